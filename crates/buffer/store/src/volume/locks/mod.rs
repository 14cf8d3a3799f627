//! Locks on ranges of files, those of `fcntl` and of `flock`, held at the files' metadata nodes.
//!
//! They are not durable. After a restart of the daemon, sessions from before reclaim their locks when
//! they open their handles again; until all have done so or expired, no other lock is granted.

mod requests;
mod table;
#[cfg(test)]
mod tests;

use forebay_protocol::{HandleId, Ino, SessionId};
use table::LockTable;

/// The locks of a volume.
#[derive(Debug, Default)]
pub struct FileLocks {
    table: LockTable,
}

impl FileLocks {
    /// Whether any lock waits only for sessions that may reclaim theirs.
    pub fn is_held_back(&self) -> bool {
        self.table.is_held_back()
    }

    /// Whether a session holds or waits for any lock.
    pub fn has_locks_of(&self, session: SessionId) -> bool {
        self.table.has_locks_of(session)
    }

    /// A session is over. Its locks went with its handles.
    pub fn detach(&mut self, session: SessionId) {
        assert!(!self.has_locks_of(session), "a session that ends has closed its handles");
    }

    /// Check that every lock belongs to an open handle, for debug builds.
    pub fn check(&self, is_open: impl Fn(SessionId, Ino, HandleId) -> bool) {
        self.table.check(is_open);
    }
}
