//! What is kept for a job's next call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_control::messages::Owner;

/// A job, by who asks and its id.
pub(super) type Key = (Owner, String);

/// One of something for each of the jobs that called last.
///
/// What is kept may take time to end, as a connection does whose thread is waited for. It ends when
/// nobody has the lock: calls of other jobs go on meanwhile.
pub(super) struct JobCache<T> {
    jobs: Mutex<HashMap<Key, (Arc<T>, Instant)>>,
    most: usize,
}

impl<T> JobCache<T> {
    /// Room for `most` jobs.
    pub fn new(most: usize) -> JobCache<T> {
        JobCache {
            jobs: Mutex::default(),
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (Arc<T>, Instant)>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept for a job, which uses it now.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        let mut jobs = self.lock();
        let (known, used) = jobs.get_mut(key)?;
        *used = Instant::now();
        Some(known.clone())
    }

    /// Keeps `made` for a job, unless another of its processes was faster: returns what is kept. If
    /// there is no room, what was used longest ago goes.
    pub fn insert(&self, key: Key, made: T) -> Arc<T> {
        let mut jobs = self.lock();
        if let Some((known, used)) = jobs.get_mut(&key) {
            *used = Instant::now();
            let known = known.clone();
            drop(jobs);
            return known;
        }
        let mut oldest = None;
        if jobs.len() >= self.most {
            let found = jobs.iter().min_by_key(|(_, (_, used))| *used);
            let found = found.map(|(key, _)| key.clone());
            oldest = found.and_then(|key| jobs.remove(&key));
        }
        let made = Arc::new(made);
        jobs.insert(key, (made.clone(), Instant::now()));
        drop(jobs);
        drop(oldest);
        made
    }

    /// Lets go what has not been used for so long, and is not being used.
    pub fn drop_unused(&self, time: Duration) {
        let unused = |_: &Key, (kept, used): &mut (Arc<T>, Instant)| {
            used.elapsed() >= time && Arc::strong_count(kept) == 1
        };
        let mut jobs = self.lock();
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

    /// How many have ended, and how many of them while somebody had the lock.
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
                && kept.jobs.try_lock().is_err()
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
            Scene {
                kept: Arc::new(JobCache::new(2)),
                ends: Arc::default(),
            }
        }

        fn put(&self, key: Key) -> Arc<Connection> {
            let (kept, ends) = (Arc::downgrade(&self.kept), self.ends.clone());
            self.kept.insert(key, Connection { kept, ends })
        }

        /// Ends so far, none of which held up others.
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
    fn what_was_used_longest_ago_makes_room_and_holds_nobody_up() {
        let scene = Scene::new();
        drop((scene.put(job(1)), scene.put(job(2))));
        assert!(scene.kept.get(&job(1)).is_some());
        drop(scene.put(job(3)));
        assert_eq!(scene.ended(), 1);
        let there = [1, 2, 3].map(|number| scene.kept.get(&job(number)).is_some());
        assert_eq!(there, [true, false, true]);
    }

    #[test]
    fn who_comes_first_is_kept() {
        let scene = Scene::new();
        let (first, second) = (scene.put(job(1)), scene.put(job(1)));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(scene.ended(), 1);
    }

    #[test]
    fn what_is_being_used_is_not_forgotten() {
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
