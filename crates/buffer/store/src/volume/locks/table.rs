//! The ranges of files that are locked or waited for, and by whom.

use forebay_protocol::lock::{FileLock, HeldLock, HeldRanges, MAX_LOCK_OFFSET};
use forebay_protocol::{HandleId, Ino, LockOwner, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// HeldRanges that a session may hold.
const MAX_RANGES: usize = 1 << 16;
/// Locks that a session may wait for.
pub const MAX_WAITS: usize = 1 << 12;
/// Owners that are visited to find a deadlock.
const MAX_VISITED_OWNERS: usize = 4096;

/// An owner of locks in a session.
pub type SessionOwner = (SessionId, LockOwner);

/// A lock that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    session: SessionId,
    wanted: HeldLock,
    ticket: u64,
}

impl Waiting {
    fn owner(&self) -> SessionOwner {
        (self.session, self.wanted.lock.owner)
    }
}

/// The locks on one file.
#[derive(Debug, Default)]
struct LockedFile {
    held: BTreeMap<SessionOwner, HeldRanges>,
    /// In the order of arrival.
    waiting: Vec<Waiting>,
}

impl LockedFile {
    /// The locks of other owners that conflict with a lock.
    fn conflicts(
        &self,
        owner: SessionOwner,
        wanted: FileLock,
    ) -> impl Iterator<Item = (SessionOwner, &HeldLock)> {
        let others = self.held.iter().filter(move |(other, _)| **other != owner);
        let held = others.flat_map(|(other, ranges)| ranges.iter().map(|held| (*other, held)));
        held.filter(move |(_, held)| held.lock.conflicts(&wanted))
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }
}

/// The result of an attempt to lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockResult {
    Granted,
    /// It will be granted later, under its ticket.
    Waits,
    /// This lock of a session conflicts.
    Conflict(SessionId, FileLock),
    /// The holder of a conflicting lock waits, perhaps through other owners, for this owner.
    Deadlock,
    /// The session holds or waits for too many locks.
    Full,
}

/// A lock that was waited for and is held now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockGrant {
    pub session: SessionId,
    /// The session's name for the wait.
    pub ticket: u64,
}

/// The locks on a volume's files.
#[derive(Debug, Default)]
pub struct LockTable {
    files: BTreeMap<Ino, LockedFile>,
    /// HeldRanges that each session holds.
    counts: BTreeMap<SessionId, usize>,
    /// The files that each owner waits for, by ticket.
    waits: BTreeMap<SessionOwner, BTreeMap<u64, Ino>>,
    /// Some locks wait without a conflict, because others may be reclaimed.
    held_back: bool,
}

impl LockTable {
    /// Whether some locks wait without a conflict.
    pub fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Whether no lock is held or waited for.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.counts.is_empty() && self.waits.is_empty()
    }

    /// Whether a session holds or waits for any lock.
    pub fn has_locks_of(&self, session: SessionId) -> bool {
        let mut waits = self.waits.range(owners_of(session));
        self.counts.contains_key(&session) || waits.next().is_some()
    }

    /// A lock of another owner that conflicts with a lock.
    pub fn conflict(
        &self,
        session: SessionId,
        ino: Ino,
        wanted: FileLock,
    ) -> Option<(SessionId, FileLock)> {
        let file = self.files.get(&ino)?;
        let (owner, held) = file.conflicts((session, wanted.owner), wanted).next()?;
        Some((owner.0, held.lock))
    }

    /// Take a lock, or wait for it if there is a ticket. `hold_back`: it is granted later, because it
    /// may be reclaimed by another session.
    pub fn lock(
        &mut self,
        session: SessionId,
        ino: Ino,
        wanted: HeldLock,
        ticket: Option<u64>,
        hold_back: bool,
    ) -> LockResult {
        let owner = (session, wanted.lock.owner);
        let conflict = self.conflict(session, ino, wanted.lock);
        if conflict.is_none() && !hold_back {
            // A range locked within another makes three of one, so the limit is not exact.
            let count = self.counts.get(&session);
            if count.is_some_and(|count| *count >= MAX_RANGES) {
                return LockResult::Full;
            }
            self.change_ranges(owner, ino, |ranges| ranges.acquire(wanted));
            return LockResult::Granted;
        }
        let Some(ticket) = ticket else {
            let unknown = FileLock {
                owner: LockOwner::MIN,
                start: 0,
                end: MAX_LOCK_OFFSET,
                exclusive: true,
                pid: 0,
            };
            let (holder, lock) = conflict.unwrap_or((SessionId(0), unknown));
            return LockResult::Conflict(holder, lock);
        };
        let waits = self.waits.get(&owner);
        if waits.is_some_and(|waits| waits.contains_key(&ticket)) {
            return LockResult::Waits; // a repetition
        }
        let waiting = Waiting { session, wanted, ticket };
        if self.is_deadlock(ino, &waiting) {
            return LockResult::Deadlock;
        }
        let waits = self.waits.range(owners_of(session));
        if waits.map(|(_, waits)| waits.len()).sum::<usize>() >= MAX_WAITS {
            return LockResult::Full;
        }
        self.held_back |= hold_back;
        self.files.entry(ino).or_default().waiting.push(waiting);
        self.waits.entry(owner).or_default().insert(ticket, ino);
        LockResult::Waits
    }

    /// Change the ranges of a file that an owner holds.
    fn change_ranges<T>(
        &mut self,
        owner: SessionOwner,
        ino: Ino,
        change: impl FnOnce(&mut HeldRanges) -> T,
    ) -> T {
        let file = self.files.entry(ino).or_default();
        let ranges = file.held.entry(owner).or_default();
        let before = ranges.len();
        let result = change(ranges);
        let after = ranges.len();
        if after == 0 {
            file.held.remove(&owner);
        }
        if file.is_idle() {
            self.files.remove(&ino);
        }
        let count = self.counts.entry(owner.0).or_default();
        assert!(*count >= before, "all ranges of a session are counted");
        *count = *count + after - before;
        if *count == 0 {
            self.counts.remove(&owner.0);
        }
        result
    }

    /// Whether a wait would never end, because a holder of a conflicting lock waits for its owner.
    fn is_deadlock(&self, ino: Ino, waiting: &Waiting) -> bool {
        let own = waiting.owner();
        let mut visited = BTreeSet::new();
        let mut pending = self.blockers(ino, waiting);
        while let Some(owner) = pending.pop() {
            if owner == own {
                return true;
            }
            if !visited.insert(owner) {
                continue;
            }
            if visited.len() > MAX_VISITED_OWNERS {
                return false;
            }
            let waits = self.waits.get(&owner).into_iter();
            let inos: BTreeSet<Ino> = waits.flat_map(|waits| waits.values()).copied().collect();
            for ino in inos {
                let file = self.files.get(&ino).into_iter();
                let waits = file.flat_map(|file| &file.waiting);
                for wait in waits.filter(|wait| wait.owner() == owner) {
                    pending.extend(self.blockers(ino, wait));
                }
            }
        }
        false
    }

    /// The owners of locks that conflict with a wait.
    fn blockers(&self, ino: Ino, waiting: &Waiting) -> Vec<SessionOwner> {
        let Some(file) = self.files.get(&ino) else {
            return Vec::new();
        };
        let conflicts = file.conflicts(waiting.owner(), waiting.wanted.lock);
        conflicts.map(|(owner, _)| owner).collect()
    }

    /// Release what an owner holds of a range.
    pub fn unlock(&mut self, owner: SessionOwner, ino: Ino, start: u64, end: u64) {
        self.change_ranges(owner, ino, |ranges| ranges.release(start, end));
    }

    /// A handle is closed: release its locks, and cancel its waits. `false`: there are none.
    pub fn close(&mut self, session: SessionId, ino: Ino, handle: HandleId) -> bool {
        let Some(file) = self.files.get(&ino) else {
            return false;
        };
        let owners = file.held.range(owners_of(session));
        let owners: Vec<SessionOwner> = owners.map(|(owner, _)| *owner).collect();
        let is_of_handle = |w: &&Waiting| w.session == session && w.wanted.handle == handle;
        let waits = file.waiting.iter().filter(is_of_handle);
        let waits: Vec<_> = waits.map(|wait| (wait.owner(), wait.ticket)).collect();
        let mut found = !waits.is_empty();
        for owner in owners {
            found |= self.change_ranges(owner, ino, |ranges| ranges.release_handle(handle));
        }
        for (owner, ticket) in waits {
            self.remove_wait(owner, ino, ticket);
        }
        found
    }

    /// Cancel a wait. `false`: there is none of this ticket.
    pub fn cancel(&mut self, session: SessionId, ticket: u64) -> bool {
        let waits = self.waits.range(owners_of(session));
        let mut found = waits.filter_map(|(owner, waits)| Some((*owner, *waits.get(&ticket)?)));
        let Some((owner, ino)) = found.next() else {
            return false;
        };
        self.remove_wait(owner, ino, ticket);
        true
    }

    /// Remove a wait. Its owner has no other one of this ticket.
    fn remove_wait(&mut self, owner: SessionOwner, ino: Ino, ticket: u64) {
        self.forget_wait(owner, ticket);
        if let Some(file) = self.files.get_mut(&ino) {
            let is_removed = |wait: &Waiting| wait.owner() == owner && wait.ticket == ticket;
            file.waiting.retain(|wait| !is_removed(wait));
            if file.is_idle() {
                self.files.remove(&ino);
            }
        }
    }

    fn forget_wait(&mut self, owner: SessionOwner, ticket: u64) {
        if let Some(waits) = self.waits.get_mut(&owner) {
            waits.remove(&ticket);
            if waits.is_empty() {
                self.waits.remove(&owner);
            }
        }
    }

    /// Locks on a file were released or weakened: grant those that wait without a conflict, in the
    /// order of arrival.
    pub fn grant(&mut self, ino: Ino, grants: &mut Vec<LockGrant>) {
        let mut index = 0;
        loop {
            let Some(file) = self.files.get_mut(&ino) else {
                return;
            };
            let Some(waiting) = file.waiting.get(index).copied() else {
                return;
            };
            let owner = waiting.owner();
            if file.conflicts(owner, waiting.wanted.lock).next().is_some() {
                index += 1;
                continue;
            }
            file.waiting.remove(index);
            self.forget_wait(owner, waiting.ticket);
            self.change_ranges(owner, ino, |ranges| ranges.acquire(waiting.wanted));
            grants.push(LockGrant { session: waiting.session, ticket: waiting.ticket });
            // The new lock may be weaker than the one it replaces.
            index = 0;
        }
    }

    /// No lock is held back any more.
    pub fn grant_all(&mut self) -> Vec<LockGrant> {
        self.held_back = false;
        let mut grants = Vec::new();
        let inos: Vec<Ino> = self.files.keys().copied().collect();
        for ino in inos {
            self.grant(ino, &mut grants);
        }
        grants
    }

    /// Check that the counts are right, that no locks conflict, and that every lock belongs to an open
    /// handle, for debug builds.
    pub fn check(&self, is_open: impl Fn(SessionId, Ino, HandleId) -> bool) {
        let mut counts: BTreeMap<SessionId, usize> = BTreeMap::new();
        for (ino, file) in &self.files {
            assert!(!file.is_idle(), "file {ino} has locks");
            for (owner, ranges) in &file.held {
                *counts.entry(owner.0).or_default() += ranges.len();
                for held in ranges.iter() {
                    assert!(is_open(owner.0, *ino, held.handle), "{held:?} of {owner:?}");
                    assert!(file.conflicts(*owner, held.lock).next().is_none(), "{held:?}");
                }
            }
            for waiting in &file.waiting {
                let waits = self.waits.get(&waiting.owner());
                let known = waits.and_then(|waits| waits.get(&waiting.ticket));
                assert_eq!(known, Some(ino), "{waiting:?}");
            }
        }
        assert_eq!(self.counts, counts, "ranges of each session");
    }
}

/// All owners of a session.
fn owners_of(session: SessionId) -> std::ops::RangeInclusive<SessionOwner> {
    (session, LockOwner::MIN)..=(session, LockOwner::MAX)
}
