//! Recalls of the lease on names and attributes, which the daemon of node 0 grants to a cache.

use super::{NODE_0, Sessions};
use forebay_protocol::Errno;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Drops everything that is cached. After it has returned, nothing is used that was cached before, nor
/// the reply to any request that was sent before.
type DropCache = Box<dyn Fn() + Send + Sync>;

/// The recalls so far, and what they lead to.
#[derive(Default)]
pub struct CacheRecalls {
    count: AtomicU64,
    drop_cache: OnceLock<DropCache>,
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
    /// From now on `drop_cache` is called when the lease on names and attributes is recalled, so that the
    /// daemon may grant it beside other clients. Takes a thread. Called once, before the first request of
    /// the cache.
    pub fn obey_cache_recalls(
        self: &Arc<Sessions>,
        drop_cache: impl Fn() + Send + Sync + 'static,
    ) -> Result<(), Errno> {
        let set = self.cache_recalls.drop_cache.set(Box::new(drop_cache));
        assert!(set.is_ok(), "sessions have one cache");
        self.watched_session(NODE_0).map(|_| ())
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
        if let Some(drop_cache) = self.cache_recalls.drop_cache.get() {
            drop_cache();
        }
    }
}
