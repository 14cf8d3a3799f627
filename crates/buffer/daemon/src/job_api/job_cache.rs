//! Values kept for the next call of a job.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_control::messages::Owner;
use parking_lot::Mutex;

/// A user and the id of a job.
pub(super) type Key = (Owner, String);

/// A least-recently-used cache with one value per job.
///
/// Dropping a value may block, for instance on a connection's thread. Values are dropped without
/// holding the lock, so that calls of other jobs go on.
pub(super) struct JobCache<T> {
    jobs: Mutex<HashMap<Key, (Arc<T>, Instant)>>,
    capacity: usize,
}

impl<T> JobCache<T> {
    /// A cache for `capacity` jobs.
    pub fn new(capacity: usize) -> JobCache<T> {
        JobCache { jobs: Mutex::default(), capacity }
    }

    /// The value for a job.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        let mut jobs = self.jobs.lock();
        let (known, used) = jobs.get_mut(key)?;
        *used = Instant::now();
        Some(known.clone())
    }

    /// Keeps a value for a job, unless another call was faster, and returns the one that is kept.
    /// If the cache is full, the least recently used value is dropped.
    pub fn insert(&self, key: Key, value: T) -> Arc<T> {
        let mut jobs = self.jobs.lock();
        if let Some((known, used)) = jobs.get_mut(&key) {
            *used = Instant::now();
            let known = known.clone();
            drop(jobs);
            return known;
        }
        let mut oldest = None;
        if jobs.len() >= self.capacity {
            let found = jobs.iter().min_by_key(|(_, (_, used))| *used);
            let found = found.map(|(key, _)| key.clone());
            oldest = found.and_then(|key| jobs.remove(&key));
        }
        let value = Arc::new(value);
        jobs.insert(key, (value.clone(), Instant::now()));
        drop(jobs);
        drop(oldest);
        value
    }

    /// Drops values that were not used for this long, and are not in use.
    pub fn drop_unused(&self, timeout: Duration) {
        let unused = |_: &Key, (kept, used): &mut (Arc<T>, Instant)| {
            used.elapsed() >= timeout && Arc::strong_count(kept) == 1
        };
        let mut jobs = self.jobs.lock();
        let gone: Vec<_> = jobs.extract_if(unused).collect();
        drop(jobs);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Counts dropped values, and those that were dropped while the lock was held.
    #[derive(Default)]
    struct Ends {
        all: AtomicU32,
        locked: AtomicU32,
    }

    struct Connection {
        kept: Weak<JobCache<Connection>>,
        ends: Arc<Ends>,
    }

    impl Drop for Connection {
        fn drop(&mut self) {
            self.ends.all.fetch_add(1, Ordering::Relaxed);
            if let Some(kept) = self.kept.upgrade()
                && kept.jobs.try_lock().is_none()
            {
                self.ends.locked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    struct Scene {
        kept: Arc<JobCache<Connection>>,
        ends: Arc<Ends>,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { kept: Arc::new(JobCache::new(2)), ends: Arc::default() }
        }

        fn put(&self, key: Key) -> Arc<Connection> {
            let (kept, ends) = (Arc::downgrade(&self.kept), self.ends.clone());
            self.kept.insert(key, Connection { kept, ends })
        }

        /// Values dropped so far, none of them while the lock was held.
        fn ended(&self) -> u32 {
            assert_eq!(self.ends.locked.load(Ordering::Relaxed), 0);
            self.ends.all.load(Ordering::Relaxed)
        }
    }

    fn job(number: u32) -> Key {
        let owner = Owner { uid: 1, gid: 1 };
        (owner, number.to_string())
    }

    #[test]
    fn full_cache_drops_the_least_recently_used_value_without_the_lock() {
        let scene = Scene::new();
        drop((scene.put(job(1)), scene.put(job(2))));
        assert!(scene.kept.get(&job(1)).is_some());
        drop(scene.put(job(3)));
        assert_eq!(scene.ended(), 1);
        let there = [1, 2, 3].map(|number| scene.kept.get(&job(number)).is_some());
        assert_eq!(there, [true, false, true]);
    }

    #[test]
    fn second_insert_of_a_job_returns_the_first_value() {
        let scene = Scene::new();
        let (first, second) = (scene.put(job(1)), scene.put(job(1)));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(scene.ended(), 1);
    }

    #[test]
    fn value_in_use_is_not_dropped() {
        let scene = Scene::new();
        let used = scene.put(job(1));
        drop(scene.put(job(2)));
        scene.kept.drop_unused(Duration::from_secs(60));
        assert_eq!(scene.ended(), 0);
        scene.kept.drop_unused(Duration::ZERO);
        assert_eq!(scene.ended(), 1);
        assert!(scene.kept.get(&job(1)).is_some() && scene.kept.get(&job(2)).is_none());
        drop(used);
        scene.kept.drop_unused(Duration::ZERO);
        assert_eq!(scene.ended(), 2);
    }
}
