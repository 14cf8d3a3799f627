//! Locks on ranges of files, those of `fcntl` and of `flock`, held at the files' metadata nodes.
//!
//! They are not durable. After a restart of the daemon, sessions from before reclaim their locks when
//! they open their handles again; until all have done so or expired, no other lock is granted.

mod requests;
mod table;
#[cfg(test)]
mod tests;

use crate::driver::ConnId;
use forebay_protocol::{HandleId, Ino, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use table::{LockGrant, LockTable, MAX_WAITS};

/// The call of a session that waits for notifications.
type Watch = (ConnId, u64);

/// Locks that a session waited for and holds now, of which it has not confirmed to know.
#[derive(Debug, Default)]
struct Notifications {
    tickets: BTreeSet<u64>,
    watch: Option<Watch>,
}

/// The locks of a volume, and the notifications about them.
#[derive(Debug, Default)]
pub struct FileLocks {
    table: LockTable,
    sessions: BTreeMap<SessionId, Notifications>,
}

impl FileLocks {
    /// Whether any lock waits only for sessions that may reclaim theirs.
    pub fn is_held_back(&self) -> bool {
        self.table.is_held_back()
    }

    /// A session is over. Its locks went with its handles.
    pub fn detach(&mut self, session: SessionId) {
        assert!(!self.table.has_locks_of(session), "a session that ends has closed its handles");
        self.sessions.remove(&session);
    }

    /// The call of a session that waits for notifications: it gets none any more.
    pub fn take_watch(&mut self, session: SessionId) -> Option<Watch> {
        self.sessions.get_mut(&session)?.watch.take()
    }

    /// A connection of a session is closed.
    pub fn drop_watch(&mut self, session: SessionId, conn: ConnId) {
        if let Some(notifications) = self.sessions.get_mut(&session) {
            notifications.watch.take_if(|(watch, _)| *watch == conn);
        }
    }

    fn is_granted(&self, session: SessionId, ticket: u64) -> bool {
        let known = self.sessions.get(&session);
        known.is_some_and(|notifications| notifications.tickets.contains(&ticket))
    }

    /// Whether a session may wait for another lock: one that does not confirm its notifications may
    /// not.
    fn may_wait(&self, session: SessionId) -> bool {
        let known = self.sessions.get(&session);
        known.is_none_or(|notifications| notifications.tickets.len() < MAX_WAITS)
    }

    /// A session confirms tickets, and waits for others from now on.
    fn watch(&mut self, session: SessionId, confirmed: &[u64], watch: Watch) {
        let notifications = self.sessions.entry(session).or_default();
        for ticket in confirmed {
            notifications.tickets.remove(ticket);
        }
        notifications.watch = Some(watch);
    }

    fn note_grants(&mut self, grants: &[LockGrant]) {
        for grant in grants {
            let notifications = self.sessions.entry(grant.session).or_default();
            notifications.tickets.insert(grant.ticket);
        }
    }

    /// The tickets to notify a session of, and its call that waits for them, if there are both.
    fn take_notification(&mut self, session: SessionId) -> Option<(Watch, Vec<u64>)> {
        let notifications = self.sessions.get_mut(&session)?;
        if notifications.tickets.is_empty() {
            return None;
        }
        let watch = notifications.watch.take()?;
        Some((watch, notifications.tickets.iter().copied().collect()))
    }

    /// Check that every lock belongs to an open handle, for debug builds.
    pub fn check(&self, is_open: impl Fn(SessionId, Ino, HandleId) -> bool) {
        self.table.check(is_open);
    }
}
