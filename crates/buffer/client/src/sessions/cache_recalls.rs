//! Recalls of the leases on names and attributes that daemons grant to a cache, and what replies to changes
//! add to it.

use super::Sessions;
use crate::session::SessionReply;
use forebay_protocol::{Attr, Errno, NodeIndex};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

/// Drops everything that is cached. After it has returned, nothing is used that was cached before, nor
/// the reply to any request that was sent before.
type DropCache = Box<dyn Fn() + Send + Sync>;
/// Caches attributes of a directory after a change, which are valid until the given time.
type CacheDirectory = Box<dyn Fn(&Attr, Instant) + Send + Sync>;

/// The recalls so far, and what they lead to.
#[derive(Default)]
pub struct CacheRecalls {
    count: AtomicU64,
    drop_cache: OnceLock<DropCache>,
    /// The sessions of the cache.
    sessions: OnceLock<Weak<Sessions>>,
    cache_directory: OnceLock<CacheDirectory>,
}

impl CacheRecalls {
    /// The number of recalls so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

impl fmt::Debug for CacheRecalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheRecalls").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Sessions {
    /// From now on `drop_cache` is called when a lease on names and attributes is recalled, so that
    /// daemons may grant it beside other clients. Takes a thread for each node that is used. Called once,
    /// before the first request of the cache.
    pub fn obey_cache_recalls(
        self: &Arc<Sessions>,
        drop_cache: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), Errno> {
        let set = self.cache_recalls.drop_cache.set(Box::new(drop_cache));
        assert!(set.is_ok(), "sessions have one cache");
        self.cache_recalls.sessions.get_or_init(|| Arc::downgrade(self));
        let open = self.nodes().filter(|node| self.is_open(*node));
        open.into_iter().try_for_each(|node| self.watched_session(node).map(|_| ()))
    }

    /// A session with `node` was opened: its daemon can recall leases from now on. If there can be no thread
    /// for that, it waits until they expire.
    pub(super) fn obey_cache_recalls_of(&self, node: NodeIndex) {
        let sessions = self.cache_recalls.sessions.get().and_then(Weak::upgrade);
        if let Some(Err(errno)) = sessions.map(|all| all.watched_session(node).map(|_| ())) {
            tracing::warn!(%errno, node = node.0, "no thread for the recalls of a storage node");
        }
    }

    /// From now on `cache_directory` is called with the attributes of a directory that a reply to a change
    /// of one of its entries contains, and the end of their validity, before the reply is returned. Called
    /// once.
    pub fn cache_changed_directories(
        &self,
        cache_directory: impl Fn(&Attr, Instant) + Send + Sync + 'static,
    ) {
        let set = self.cache_recalls.cache_directory.set(Box::new(cache_directory));
        assert!(set.is_ok(), "sessions have one cache");
    }

    /// A reply to a request that was sent at `sent_at` has come.
    pub(super) fn cache_directory_of(&self, reply: &SessionReply, sent_at: Instant) {
        if let Some(attr) = reply.directory.as_ref().filter(|_| !reply.ttl.is_zero())
            && let Some(cache_directory) = self.cache_recalls.cache_directory.get()
        {
            cache_directory(attr, sent_at + reply.ttl);
        }
    }

    /// Whether recalls lead to anything.
    pub(super) fn obeys_cache_recalls(&self) -> bool {
        self.cache_recalls.drop_cache.get().is_some()
    }

    /// The lease on names and attributes was recalled.
    pub(super) fn drop_cache(&self) {
        {
            // What other nodes grant is limited by what node 0 has granted.
            let mut exclusivity = self.exclusivity.lock();
            exclusivity.until = None;
            self.cache_recalls.count.fetch_add(1, Ordering::AcqRel);
        }
        self.delegation.end();
        if let Some(drop_cache) = self.cache_recalls.drop_cache.get() {
            drop_cache();
        }
    }
}
