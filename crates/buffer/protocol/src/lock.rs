//! File locks of `fcntl` and `flock`.

use crate::ids::{HandleId, LockOwner};
use serde::{Deserialize, Serialize};

/// The last byte that a lock can cover, as in the kernel.
pub const MAX_LOCK_OFFSET: u64 = i64::MAX as u64;

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLock {
    /// The owner within the session. A lock of a [`LockOwner::Flock`] covers the whole file.
    pub owner: LockOwner,
    /// First byte.
    pub start: u64,
    /// Last byte; not below `start`.
    pub end: u64,
    /// Excludes all other locks on the range; otherwise only exclusive ones.
    pub exclusive: bool,
    /// The process on the client's host, as reported by `F_GETLK`; 0 if there is none.
    pub pid: u32,
}

impl FileLock {
    /// Whether two locks of different owners exclude each other.
    pub fn conflicts(&self, other: &FileLock) -> bool {
        self.owner.is_same_family(other.owner)
            && self.start <= other.end
            && other.start <= self.end
            && (self.exclusive || other.exclusive)
    }
}

/// A granted lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The lock.
    pub lock: FileLock,
    /// The handle through which it was acquired, and with which it is released.
    pub handle: HandleId,
}

/// The locks of one owner on one file: ranges in order that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldRanges(Vec<HeldLock>);

impl HeldRanges {
    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = &HeldLock> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a lock. It replaces the parts of others in its range, and is merged with equal neighbours.
    pub fn acquire(&mut self, mut new: HeldLock) {
        assert!(new.lock.start <= new.lock.end);
        self.release(new.lock.start, new.lock.end);
        let is_mergeable = |a: &HeldLock, b: &HeldLock| {
            a.lock.end.checked_add(1) == Some(b.lock.start)
                && a.lock.exclusive == b.lock.exclusive
                && a.handle == b.handle
                && a.lock.pid == b.lock.pid
        };
        let mut at = self.0.partition_point(|held| held.lock.end < new.lock.start);
        if let Some(previous) = at.checked_sub(1).and_then(|previous| self.0.get(previous))
            && is_mergeable(previous, &new)
        {
            new.lock.start = previous.lock.start;
            at -= 1;
            self.0.remove(at);
        }
        if let Some(next) = self.0.get(at)
            && is_mergeable(&new, next)
        {
            new.lock.end = next.lock.end;
            self.0.remove(at);
        }
        self.0.insert(at, new);
        debug_assert!(self.0.is_sorted_by(|a, b| a.lock.end < b.lock.start));
    }

    /// Releases the range from `start` to `end`, both included. Returns whether any of it was locked.
    pub fn release(&mut self, start: u64, end: u64) -> bool {
        let first = self.0.partition_point(|held| held.lock.end < start);
        let last = self.0.partition_point(|held| held.lock.start <= end);
        let mut kept = Vec::new();
        for held in self.0.get(first..last).unwrap_or_default() {
            if held.lock.start < start {
                let lock = FileLock { end: start - 1, ..held.lock };
                kept.push(HeldLock { lock, ..*held });
            }
            if held.lock.end > end {
                let lock = FileLock { start: end + 1, ..held.lock };
                kept.push(HeldLock { lock, ..*held });
            }
        }
        self.0.splice(first..last.max(first), kept);
        last > first
    }

    /// Releases the locks acquired through a handle. Returns whether there were any.
    pub fn release_handle(&mut self, handle: HandleId) -> bool {
        let before = self.0.len();
        self.0.retain(|held| held.handle != handle);
        self.0.len() < before
    }
}
