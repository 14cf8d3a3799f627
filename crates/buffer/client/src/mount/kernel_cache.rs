//! Names and attributes that the kernel caches for a mount, and the recall of the lease on them.
//!
//! A reply that the kernel may cache is sent under a [`Permit`]. A recall waits for the permits in use,
//! and ends the validity of replies to operations that have begun before it. The kernel compares versions
//! of most names and attributes with those at the time of its request, and ignores a reply that an
//! invalidation has overtaken ([`Versions`]). For those that it does not compare, and for attributes of an
//! inode that it does not have yet, a recall waits until the processes that have received a reply have had
//! the time to process it.

use super::attribute_cache::AttributeCache;
use super::kernel_entries::KernelEntries;
use super::negative_lookups::NegativeLookups;
use super::parents::Parents;
use forebay_protocol::Ino;
use forebay_protocol::message::CACHE_LIFETIME_NS;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a process takes at most to process a reply that was sent to it.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// Age at which the newer inodes become the older ones. All that the kernel caches of the older ones has
/// expired when these are dropped.
const MAX_AGE: Duration = Duration::from_nanos(CACHE_LIFETIME_NS + CACHE_LIFETIME_NS / 5);
/// Maximum number of inodes of one age.
const MAX_INODES: usize = 1 << 16;

/// Treatment of a reply by the kernel (`fs/fuse` of Linux 6.16 and later) if an invalidation overtakes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// The kernel notes the epoch of names and the version of attributes before its request, and ignores
    /// a reply if they have changed: lookups and requests for attributes. It has no version of attributes
    /// of an inode that this reply gives it.
    Compared,
    /// The reply is cached in any case: new inodes, changes of attributes, listings with attributes.
    Ignored,
}

thread_local! {
    /// The number of recalls before the operation began that this thread carries out.
    static BEGAN_AFTER: Cell<u64> = const { Cell::new(0) };
}

/// Inodes whose attributes the kernel may cache.
#[derive(Debug)]
struct CachedInodes {
    /// Each with the time of the last reply.
    newer: HashMap<Ino, Instant>,
    older: HashMap<Ino, Instant>,
    /// Time at which the newer ones become the older ones.
    rotates_at: Instant,
}

impl CachedInodes {
    fn new(now: Instant) -> CachedInodes {
        CachedInodes { newer: HashMap::new(), older: HashMap::new(), rotates_at: now + MAX_AGE }
    }

    /// Adds an inode, or the time of another reply. `false`: there are too many inodes.
    fn add(&mut self, ino: Ino, now: Instant) -> bool {
        if now >= self.rotates_at {
            self.older = std::mem::take(&mut self.newer);
            self.rotates_at = now + MAX_AGE;
        }
        let has_room = self.newer.len() < MAX_INODES || self.newer.contains_key(&ino);
        if has_room {
            self.newer.insert(ino, now);
        }
        has_room
    }

    fn take(&mut self) -> HashMap<Ino, Instant> {
        let mut all = std::mem::take(&mut self.older);
        all.extend(std::mem::take(&mut self.newer));
        all
    }
}

/// The kernel's cache of names and attributes of a mount.
#[derive(Debug)]
pub struct KernelCache {
    pub entries: KernelEntries,
    negative_lookups: Arc<NegativeLookups>,
    /// Parents of directories, known under the lease, for listings.
    pub parents: Parents,
    /// Attributes and listings that this process knows under the lease.
    pub attributes: AttributeCache,
    /// The number of recalls.
    recalls: RwLock<u64>,
    inodes: Mutex<CachedInodes>,
    /// Time of the last reply that is cached in any case.
    last_ignored: Mutex<Option<Instant>>,
}

/// Permission to send a reply that the kernel may cache. It must be kept until the reply is sent.
#[derive(Debug)]
pub struct Permit<'a> {
    cache: &'a KernelCache,
    /// No recall begins meanwhile.
    _recalls: RwLockReadGuard<'a, u64>,
    ttl: Duration,
    versions: Versions,
    /// The inode of the reply.
    ino: Cell<Option<Ino>>,
}

impl KernelCache {
    pub fn new(negative_lookups: Arc<NegativeLookups>) -> KernelCache {
        let now = Instant::now();
        KernelCache {
            entries: KernelEntries::default(),
            negative_lookups,
            parents: Parents::default(),
            attributes: AttributeCache::default(),
            recalls: RwLock::new(0),
            inodes: Mutex::new(CachedInodes::new(now)),
            last_ignored: Mutex::new(None),
        }
    }

    /// This thread begins an operation. Replies that it gets are cached unless a recall comes before it
    /// has replied to the kernel.
    pub fn begin_operation(&self) {
        let recalls = *self.recalls.read();
        BEGAN_AFTER.set(recalls);
    }

    /// Permission to send the reply to the operation that this thread carries out. `ttl`: its time to
    /// live, which is zero if the lease has been recalled since.
    pub fn permit(&self, ttl: Duration, versions: Versions) -> Permit<'_> {
        let recalls = self.recalls.read();
        let is_valid = *recalls == BEGAN_AFTER.get();
        let ttl = if is_valid { ttl } else { Duration::ZERO };
        Permit { cache: self, _recalls: recalls, ttl, versions, ino: Cell::new(None) }
    }

    /// The lease is recalled: after this returns, the kernel uses nothing that it has cached, and caches
    /// no reply to an operation that has begun before.
    pub fn drop_all(&self) {
        let inodes = {
            let mut recalls = self.recalls.write();
            *recalls += 1;
            self.negative_lookups.clear();
            self.parents.clear();
            self.attributes.clear();
            self.inodes.lock().take()
        };
        if let Some(last) = *self.last_ignored.lock() {
            sleep_until(last + SETTLE_TIME);
        }
        if !self.entries.invalidate() {
            tracing::error!(
                "the kernel does not invalidate names: they are used until they expire"
            );
            std::thread::sleep(MAX_AGE);
        }
        let began = Instant::now();
        for (ino, replied_at) in inodes {
            let settled_at = replied_at + SETTLE_TIME;
            // The kernel may not have the inode yet; otherwise it has dropped it.
            if !self.entries.invalidate_attributes(ino) && began < settled_at {
                sleep_until(settled_at);
                self.entries.invalidate_attributes(ino);
            }
        }
    }
}

fn sleep_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

impl Permit<'_> {
    /// The time to live of a name without an inode.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The time to live of a name with the attributes of its inode, or of these alone.
    pub fn ttl_of(&self, ino: Ino) -> Duration {
        if self.ttl.is_zero() || !self.cache.inodes.lock().add(ino, Instant::now()) {
            return Duration::ZERO;
        }
        let previous = self.ino.replace(Some(ino));
        assert!(
            previous.is_none() || self.versions == Versions::Ignored,
            "a lookup replies with one inode"
        );
        self.ttl
    }
}

impl Drop for Permit<'_> {
    /// The reply has been sent.
    fn drop(&mut self) {
        let Some(ino) = self.ino.get() else {
            return; // no attributes, and the kernel compares epochs of names
        };
        let now = Instant::now();
        match self.versions {
            Versions::Compared => {
                self.cache.inodes.lock().add(ino, now);
            }
            Versions::Ignored => *self.cache.last_ignored.lock() = Some(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TTL: Duration = Duration::from_secs(1);

    #[test]
    fn replies_to_operations_from_before_a_recall_are_not_cached() {
        let cache = KernelCache::new(Arc::default());
        cache.begin_operation();
        assert_eq!(cache.permit(TTL, Versions::Compared).ttl_of(Ino(7)), TTL);
        *cache.recalls.write() += 1;
        assert_eq!(cache.permit(TTL, Versions::Compared).ttl_of(Ino(8)), Duration::ZERO);
        assert_eq!(cache.permit(TTL, Versions::Compared).ttl(), Duration::ZERO);
        cache.begin_operation();
        assert_eq!(cache.permit(TTL, Versions::Compared).ttl(), TTL);
        assert_eq!(cache.inodes.lock().take().into_keys().collect::<Vec<_>>(), [Ino(7)]);
    }

    #[test]
    fn inodes_are_known_until_their_attributes_have_expired() {
        let start = Instant::now();
        let mut inodes = CachedInodes::new(start);
        assert!(inodes.add(Ino(1), start + MAX_AGE - Duration::from_millis(1)));
        assert!(inodes.add(Ino(2), start + MAX_AGE));
        assert!(inodes.add(Ino(3), start + 2 * MAX_AGE - Duration::from_millis(1)));
        assert_eq!(inodes.newer.len() + inodes.older.len(), 3);
        assert!(inodes.add(Ino(4), start + 2 * MAX_AGE));
        let known: BTreeSet<Ino> = inodes.take().into_keys().collect();
        assert_eq!(known, BTreeSet::from([Ino(2), Ino(3), Ino(4)]));
    }

    #[test]
    fn inodes_are_limited() {
        let start = Instant::now();
        let mut inodes = CachedInodes::new(start);
        assert!((1..=MAX_INODES as u64).all(|number| inodes.add(Ino(number), start)));
        assert!(!inodes.add(Ino(0), start));
        assert!(inodes.add(Ino(1), start));
        assert!(inodes.add(Ino(0), start + MAX_AGE));
    }
}
