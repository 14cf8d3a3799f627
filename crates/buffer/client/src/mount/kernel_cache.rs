//! Names and attributes that the kernel caches for a mount, and the recall of the lease on them.
//!
//! A reply that the kernel may cache is sent under a [`Permit`]. A recall waits for the permits in use,
//! and ends the validity of replies to operations that have begun before it. The kernel compares versions
//! of most names and attributes with those at the time of its request, and ignores a reply that an
//! invalidation has overtaken. For those that it does not compare, a recall waits until the processes that
//! have received a reply have had the time to process it.

use super::attribute_cache::AttributeCache;
use super::kernel_entries::KernelEntries;
use super::negative_lookups::NegativeLookups;
use super::parents::Parents;
use forebay_protocol::Ino;
use forebay_protocol::message::CACHE_LIFETIME_NS;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time that a process takes at most to process a reply that was sent to it.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// Age at which the newer inodes become the older ones. All that the kernel caches of the older ones has
/// expired when these are dropped.
const MAX_AGE: Duration = Duration::from_nanos(CACHE_LIFETIME_NS + CACHE_LIFETIME_NS / 5);
/// Maximum number of inodes of one age.
const MAX_INODES: usize = 1 << 16;

thread_local! {
    /// The number of recalls before the operation began that this thread carries out.
    static BEGAN_AFTER: Cell<u64> = const { Cell::new(0) };
}

/// Inodes whose attributes the kernel may cache.
#[derive(Debug)]
struct CachedInodes {
    newer: HashSet<Ino>,
    older: HashSet<Ino>,
    /// Time at which the newer ones become the older ones.
    rotates_at: Instant,
}

impl CachedInodes {
    fn new(now: Instant) -> CachedInodes {
        CachedInodes { newer: HashSet::new(), older: HashSet::new(), rotates_at: now + MAX_AGE }
    }

    /// Adds an inode. `false`: there are too many.
    fn add(&mut self, ino: Ino, now: Instant) -> bool {
        if now >= self.rotates_at {
            self.older = std::mem::take(&mut self.newer);
            self.rotates_at = now + MAX_AGE;
        }
        let has_room = self.newer.len() < MAX_INODES;
        if has_room {
            self.newer.insert(ino);
        }
        has_room || self.newer.contains(&ino)
    }

    fn take(&mut self) -> HashSet<Ino> {
        let mut all = std::mem::take(&mut self.newer);
        all.extend(std::mem::take(&mut self.older));
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
    started: Instant,
    /// Time of the last reply that may be cached, in nanoseconds since the start.
    last_reply_ns: AtomicU64,
}

/// Permission to send a reply that the kernel may cache. It must be kept until the reply is sent.
#[derive(Debug)]
pub struct Permit<'a> {
    cache: &'a KernelCache,
    /// No recall begins meanwhile.
    _recalls: RwLockReadGuard<'a, u64>,
    ttl: Duration,
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
            started: now,
            last_reply_ns: AtomicU64::new(0),
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
    pub fn permit(&self, ttl: Duration) -> Permit<'_> {
        let recalls = self.recalls.read();
        let is_valid = *recalls == BEGAN_AFTER.get();
        Permit { cache: self, _recalls: recalls, ttl: if is_valid { ttl } else { Duration::ZERO } }
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
        let last_reply = Duration::from_nanos(self.last_reply_ns.load(Ordering::Acquire));
        std::thread::sleep((last_reply + SETTLE_TIME).saturating_sub(self.started.elapsed()));
        if !self.entries.invalidate() {
            tracing::error!(
                "the kernel does not invalidate names: they are used until they expire"
            );
            std::thread::sleep(MAX_AGE);
        }
        for ino in inodes {
            self.entries.invalidate_attributes(ino);
        }
    }
}

impl Permit<'_> {
    /// The time to live of a name without an inode.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The time to live of a name with the attributes of its inode, or of these alone.
    pub fn ttl_of(&self, ino: Ino) -> Duration {
        let is_known = self.ttl.is_zero() || self.cache.inodes.lock().add(ino, Instant::now());
        if is_known { self.ttl } else { Duration::ZERO }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.ttl.is_zero() {
            let now_ns = self.cache.started.elapsed().as_nanos() as u64;
            self.cache.last_reply_ns.fetch_max(now_ns, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    #[test]
    fn replies_to_operations_from_before_a_recall_are_not_cached() {
        let cache = KernelCache::new(Arc::default());
        cache.begin_operation();
        assert_eq!(cache.permit(TTL).ttl_of(Ino(7)), TTL);
        *cache.recalls.write() += 1;
        assert_eq!(cache.permit(TTL).ttl_of(Ino(8)), Duration::ZERO);
        assert_eq!(cache.permit(TTL).ttl(), Duration::ZERO);
        cache.begin_operation();
        assert_eq!(cache.permit(TTL).ttl(), TTL);
        assert_eq!(cache.inodes.lock().take(), HashSet::from([Ino(7)]));
    }

    #[test]
    fn inodes_are_known_until_their_attributes_have_expired() {
        let start = Instant::now();
        let mut inodes = CachedInodes::new(start);
        assert!(inodes.add(Ino(1), start + MAX_AGE - Duration::from_millis(1)));
        assert!(inodes.add(Ino(2), start + MAX_AGE));
        assert!(inodes.add(Ino(3), start + 2 * MAX_AGE - Duration::from_millis(1)));
        assert_eq!(inodes.newer.union(&inodes.older).count(), 3);
        assert!(inodes.add(Ino(4), start + 2 * MAX_AGE));
        assert_eq!(inodes.take(), HashSet::from([Ino(2), Ino(3), Ino(4)]));
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
