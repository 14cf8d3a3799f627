//! Who holds which ranges of which files, and who waits for some.

use forebay_protocol::lock::{FileLock, HeldLock, HeldRanges, MAX_LOCK_OFFSET};
use forebay_protocol::{HandleId, Ino, LockOwner, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Ranges that a session may hold.
const MOST: usize = 1 << 16;
/// Locks that a session may wait for.
pub const MAX_WAITS: usize = 1 << 12;
/// Owners that are looked at to find out whether a wait would never end.
const MOST_OWNERS: usize = 4096;

/// An owner of locks, of whatever session.
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

#[derive(Debug, Default)]
struct Locks {
    held: BTreeMap<SessionOwner, HeldRanges>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

impl Locks {
    /// What of others is in the way of a lock.
    fn against(
        &self,
        owner: SessionOwner,
        wanted: FileLock,
    ) -> impl Iterator<Item = (SessionOwner, &HeldLock)> {
        let others = self.held.iter().filter(move |(other, _)| **other != owner);
        let held = others.flat_map(|(other, ranges)| ranges.iter().map(|held| (*other, held)));
        held.filter(move |(_, held)| held.lock.conflicts(&wanted))
    }
}

/// What became of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockResult {
    /// The lock is held.
    Granted,
    /// It will be, and the ticket be told.
    Waits,
    /// Someone holds this.
    Conflict(SessionId, FileLock),
    /// The holder waits, perhaps for others who wait, for something that who asks holds.
    Deadlock,
    /// The session holds or waits for too many.
    Full,
}

/// A lock that was waited for and is held now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockGrant {
    /// Of this session.
    pub session: SessionId,
    /// As it named the wait.
    pub ticket: u64,
}

/// The locks of an instance's files that have their home here.
#[derive(Debug, Default)]
pub struct LockTable {
    files: BTreeMap<Ino, Locks>,
    /// Ranges that each session holds.
    counts: BTreeMap<SessionId, usize>,
    /// What each owner waits for, by ticket.
    waits: BTreeMap<SessionOwner, BTreeMap<u64, Ino>>,
    /// Nothing is granted yet to those who do not claim what they held before.
    held_back: bool,
}

impl LockTable {
    /// Do some wait although nobody is in their way?
    pub fn is_held_back(&self) -> bool {
        self.held_back
    }

    /// Does nobody hold or wait for anything?
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.counts.is_empty() && self.waits.is_empty()
    }

    /// What of others is in the way of a lock.
    pub fn conflict(
        &self,
        session: SessionId,
        ino: Ino,
        wanted: FileLock,
    ) -> Option<(SessionId, FileLock)> {
        let locks = self.files.get(&ino)?;
        let (owner, held) = locks.against((session, wanted.owner), wanted).next()?;
        Some((owner.0, held.lock))
    }

    /// Take a lock, or wait for it if there is a ticket for that. `hold_back`: only who held it
    /// before may have it now.
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
            // A range set within another makes three of one.
            if self
                .counts
                .get(&session)
                .is_some_and(|count| *count >= MOST)
            {
                return LockResult::Full;
            }
            self.change(owner, ino, |ranges| ranges.acquire(wanted));
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
            let (of, lock) = conflict.unwrap_or((SessionId(0), unknown));
            return LockResult::Conflict(of, lock);
        };
        if self
            .waits
            .get(&owner)
            .is_some_and(|waits| waits.contains_key(&ticket))
        {
            return LockResult::Waits; // said again
        }
        let waiting = Waiting {
            session,
            wanted,
            ticket,
        };
        if self.is_deadlock(ino, &waiting) {
            return LockResult::Deadlock;
        }
        let waits = self.waits.range(of_session(session));
        if waits.map(|(_, waits)| waits.len()).sum::<usize>() >= MAX_WAITS {
            return LockResult::Full;
        }
        self.held_back |= hold_back;
        self.files.entry(ino).or_default().waiting.push(waiting);
        self.waits.entry(owner).or_default().insert(ticket, ino);
        LockResult::Waits
    }

    /// Alter what an owner holds of a file.
    fn change<T>(
        &mut self,
        owner: SessionOwner,
        ino: Ino,
        act: impl FnOnce(&mut HeldRanges) -> T,
    ) -> T {
        let locks = self.files.entry(ino).or_default();
        let ranges = locks.held.entry(owner).or_default();
        let before = ranges.len();
        let done = act(ranges);
        let after = ranges.len();
        if after == 0 {
            locks.held.remove(&owner);
        }
        if locks.is_idle() {
            self.files.remove(&ino);
        }
        let count = self.counts.entry(owner.0).or_default();
        *count = (*count + after).saturating_sub(before);
        if *count == 0 {
            self.counts.remove(&owner.0);
        }
        done
    }

    /// Would this wait never end, because those it waits for wait for its owner?
    fn is_deadlock(&self, ino: Ino, waiting: &Waiting) -> bool {
        let own = waiting.owner();
        let mut seen = BTreeSet::new();
        let mut pending = self.in_the_way(ino, waiting);
        while let Some(owner) = pending.pop() {
            if owner == own {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            if seen.len() > MOST_OWNERS {
                return false;
            }
            let files: BTreeSet<Ino> = self
                .waits
                .get(&owner)
                .into_iter()
                .flat_map(|waits| waits.values())
                .copied()
                .collect();
            for ino in files {
                let waits = self
                    .files
                    .get(&ino)
                    .into_iter()
                    .flat_map(|locks| &locks.waiting);
                for wait in waits.filter(|wait| wait.owner() == owner) {
                    pending.extend(self.in_the_way(ino, wait));
                }
            }
        }
        false
    }

    /// Who is in the way of a wait.
    fn in_the_way(&self, ino: Ino, waiting: &Waiting) -> Vec<SessionOwner> {
        let Some(locks) = self.files.get(&ino) else {
            return Vec::new();
        };
        let against = locks.against(waiting.owner(), waiting.wanted.lock);
        against.map(|(owner, _)| owner).collect()
    }

    /// Give up what an owner holds of a range.
    pub fn unlock(&mut self, owner: SessionOwner, ino: Ino, start: u64, end: u64) {
        self.change(owner, ino, |ranges| ranges.release(start, end));
    }

    /// A handle is closed: what was taken or is waited for through it goes. `false`: that is
    /// nothing.
    pub fn close(&mut self, session: SessionId, ino: Ino, handle: HandleId) -> bool {
        let Some(locks) = self.files.get(&ino) else {
            return false;
        };
        let owners: Vec<SessionOwner> = locks
            .held
            .range(of_session(session))
            .map(|(owner, _)| *owner)
            .collect();
        let of_handle = |w: &&Waiting| w.session == session && w.wanted.handle == handle;
        let waits: Vec<u64> = locks
            .waiting
            .iter()
            .filter(of_handle)
            .map(|w| w.ticket)
            .collect();
        let mut found = false;
        for owner in owners {
            found |= self.change(owner, ino, |ranges| ranges.release_handle(handle));
        }
        for ticket in waits {
            found |= self.cancel(session, ticket);
        }
        found
    }

    /// Wait for something no longer. `false`: it was not waited for.
    pub fn cancel(&mut self, session: SessionId, ticket: u64) -> bool {
        let waits = self.waits.range(of_session(session));
        let mut found = waits.filter_map(|(owner, waits)| Some((*owner, *waits.get(&ticket)?)));
        let Some((owner, ino)) = found.next() else {
            return false;
        };
        self.forget_wait(owner, ticket);
        if let Some(locks) = self.files.get_mut(&ino) {
            let this = |w: &Waiting| w.session == session && w.ticket == ticket;
            locks.waiting.retain(|waiting| !this(waiting));
            if locks.is_idle() {
                self.files.remove(&ino);
            }
        }
        true
    }

    fn forget_wait(&mut self, owner: SessionOwner, ticket: u64) {
        if let Some(waits) = self.waits.get_mut(&owner) {
            waits.remove(&ticket);
            if waits.is_empty() {
                self.waits.remove(&owner);
            }
        }
    }

    /// Something of a file was given up or made less: give to those who wait what they can have, in
    /// the order in which they came.
    pub fn grant(&mut self, ino: Ino, grants: &mut Vec<LockGrant>) {
        let mut at = 0;
        loop {
            let Some(locks) = self.files.get_mut(&ino) else {
                return;
            };
            let Some(first) = locks.waiting.get(at).copied() else {
                return;
            };
            let owner = first.owner();
            if locks.against(owner, first.wanted.lock).next().is_some() {
                at += 1;
                continue;
            }
            locks.waiting.remove(at);
            self.forget_wait(owner, first.ticket);
            self.change(owner, ino, |ranges| ranges.acquire(first.wanted));
            grants.push(LockGrant {
                session: first.session,
                ticket: first.ticket,
            });
            // It may have been exclusive before and be shared now.
            at = 0;
        }
    }

    /// Nothing is held back any more.
    pub fn grant_all(&mut self) -> Vec<LockGrant> {
        self.held_back = false;
        let mut grants = Vec::new();
        let inos: Vec<Ino> = self.files.keys().copied().collect();
        for ino in inos {
            self.grant(ino, &mut grants);
        }
        grants
    }
}

/// All owners of a session.
fn of_session(session: SessionId) -> std::ops::RangeInclusive<SessionOwner> {
    (session, LockOwner::MIN)..=(session, LockOwner::MAX)
}

impl Locks {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }
}
