//! Locks of the files' objects on one server: many readers or one writer, in order of arrival.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A file's object on a server: (file, object).
pub(crate) type Object = (u64, u32);

/// A request that waits for a lock, by its index at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockRequest {
    request: u32,
    write: bool,
    since: u64,
}

#[derive(Default)]
struct Lock {
    writers: u32,
    readers: u32,
    waiting: VecDeque<LockRequest>,
}

impl Lock {
    fn admits(&self, write: bool) -> bool {
        self.writers == 0 && (!write || self.readers == 0)
    }

    fn take(&mut self, write: bool) {
        if write {
            self.writers += 1;
        } else {
            self.readers += 1;
        }
    }
}

/// The locks of one server; locks that are not held take no memory, but for the last writer of
/// objects of shared files.
#[derive(Default)]
pub(crate) struct Locks {
    held: FxHashMap<Object, Lock>,
    /// Node of the client that last wrote to each object of a shared file.
    last_writer: FxHashMap<Object, u32>,
}

impl Locks {
    /// A client writes to an object of a shared file; returns whether the last writer was another.
    pub fn changes_writer(&mut self, object: Object, client: u32) -> bool {
        self.last_writer.insert(object, client).is_some_and(|last| last != client)
    }

    /// Takes the lock if it is free for this access; otherwise queues the request and returns
    /// false.
    pub fn acquire(&mut self, object: Object, request: u32, write: bool, now: u64) -> bool {
        let lock = self.held.entry(object).or_default();
        let free = lock.waiting.is_empty() && lock.admits(write);
        if free {
            lock.take(write);
        } else {
            lock.waiting.push_back(LockRequest { request, write, since: now });
        }
        free
    }

    /// Releases the lock; calls `granted(request, since)` for each request that gets it.
    pub fn release(&mut self, object: Object, write: bool, mut granted: impl FnMut(u32, u64)) {
        let Some(lock) = self.held.get_mut(&object) else {
            unreachable!("the lock of {object:?} is released but not held")
        };
        assert!(if write { lock.writers == 1 } else { lock.readers > 0 });
        if write {
            lock.writers -= 1;
        } else {
            lock.readers -= 1;
        }
        while let Some(next) = lock.waiting.front().copied().filter(|c| lock.admits(c.write)) {
            lock.waiting.pop_front();
            lock.take(next.write);
            granted(next.request, next.since);
        }
        if lock.writers == 0 && lock.readers == 0 {
            self.held.remove(&object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers_get_the_lock_in_order_of_arrival() {
        let mut locks = Locks::default();
        let object = (1, 0);
        assert!(locks.acquire(object, 1, false, 0));
        assert!(locks.acquire(object, 2, false, 0));
        assert!(!locks.acquire(object, 3, true, 5));
        assert!(!locks.acquire(object, 4, false, 6), "readers do not overtake a writer");
        assert!(locks.acquire((1, 1), 5, true, 0), "another object has another lock");
        let mut order = Vec::new();
        locks.release(object, false, |r, s| order.push((r, s)));
        assert!(order.is_empty());
        locks.release(object, false, |r, s| order.push((r, s)));
        assert_eq!(order, [(3, 5)]);
        locks.release(object, true, |r, s| order.push((r, s)));
        assert_eq!(order, [(3, 5), (4, 6)]);
        locks.release(object, false, |_, _| unreachable!());
        assert_eq!(locks.held.len(), 1);
    }
}
