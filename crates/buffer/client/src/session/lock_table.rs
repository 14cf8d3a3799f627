//! The locks that a session holds and waits for.

use forebay_protocol::lock::{HeldLock, HeldRanges};
use forebay_protocol::{Errno, HandleId, Ino, LockOwner};
use std::collections::BTreeMap;
use std::fmt;

/// Called when a pending lock is granted, or will never be.
pub type LockCallback = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// A pending lock.
pub struct PendingLock {
    pub ino: Ino,
    pub wanted: HeldLock,
    pub callback: LockCallback,
}

/// The locks of a session.
#[derive(Default)]
pub struct LockTable {
    held: BTreeMap<(Ino, LockOwner), HeldRanges>,
    pending: BTreeMap<u64, PendingLock>,
    last_ticket: u64,
    /// Whether a thread waits for events, such as grants of locks.
    pub is_watched: bool,
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable")
            .field("held", &self.held)
            .field("pending", &self.pending.keys())
            .finish_non_exhaustive()
    }
}

impl LockTable {
    /// A lock was granted.
    pub fn add_held(&mut self, ino: Ino, held: HeldLock) {
        let ranges = self.held.entry((ino, held.lock.owner)).or_default();
        ranges.acquire(held);
        assert!(!ranges.is_empty());
    }

    /// Whether `owner` holds a lock on some range of the file.
    pub fn holds(&self, ino: Ino, owner: LockOwner) -> bool {
        self.held.contains_key(&(ino, owner))
    }

    /// The owner releases a range.
    pub fn release(&mut self, ino: Ino, owner: LockOwner, (start, end): (u64, u64)) {
        self.release_ranges((ino, owner), |ranges| {
            ranges.release(start, end);
        });
    }

    /// All locks through `handle` are released.
    pub fn release_handle(&mut self, ino: Ino, handle: HandleId) {
        let of_file = (ino, LockOwner::MIN)..=(ino, LockOwner::MAX);
        let keys: Vec<_> = self.held.range(of_file).map(|(key, _)| *key).collect();
        for key in keys {
            self.release_ranges(key, |ranges| {
                ranges.release_handle(handle);
            });
        }
    }

    fn release_ranges(&mut self, key: (Ino, LockOwner), release: impl FnOnce(&mut HeldRanges)) {
        if let Some(ranges) = self.held.get_mut(&key) {
            release(ranges);
            if ranges.is_empty() {
                self.held.remove(&key);
            }
        }
    }

    /// All held locks.
    pub fn held(&self) -> Vec<(Ino, HeldLock)> {
        let all = self.held.iter();
        all.flat_map(|((ino, _), ranges)| ranges.iter().map(|held| (*ino, *held))).collect()
    }

    /// Adds a pending lock and returns its ticket.
    pub fn add_pending(&mut self, pending: PendingLock) -> u64 {
        self.last_ticket += 1;
        let previous = self.pending.insert(self.last_ticket, pending);
        assert!(previous.is_none(), "tickets are unique");
        self.last_ticket
    }

    /// A lock is pending again under its ticket.
    pub fn put_back_pending(&mut self, ticket: u64, pending: PendingLock) {
        assert!(ticket <= self.last_ticket);
        self.pending.insert(ticket, pending);
    }

    pub fn take_pending(&mut self, ticket: u64) -> Option<PendingLock> {
        self.pending.remove(&ticket)
    }

    pub fn is_pending(&self, ticket: u64) -> bool {
        self.pending.contains_key(&ticket)
    }

    /// All pending locks by ticket.
    pub fn pending(&self) -> Vec<(u64, HeldLock)> {
        let all = self.pending.iter();
        all.map(|(ticket, pending)| (*ticket, pending.wanted)).collect()
    }

    /// Whether no lock is held or pending.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.pending.is_empty()
    }
}
