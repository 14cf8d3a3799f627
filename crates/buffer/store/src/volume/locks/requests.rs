//! Requests for locks.

use super::table::{LockGrant, LockResult, MAX_WAITS};
use crate::context::{Context, Handled, Outcome, Requester};
use crate::objects::Objects;
use crate::volume::Volume;
use forebay_protocol::lock::{FileLock, HeldLock};
use forebay_protocol::message::RECOVERY_SLOT;
use forebay_protocol::{Errno, HandleId, Ino, LockOwner, Reply, SessionId};

impl<O: Objects> Volume<O> {
    /// The file of a handle at its metadata node. `EINVAL`: only the data object is open.
    fn locked_file(&self, session: SessionId, id: HandleId) -> Result<Ino, Errno> {
        let handle = self.handles.get(session, id)?;
        if handle.is_piece { Err(Errno::EINVAL) } else { Ok(handle.ino) }
    }

    pub fn lock_file(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        id: HandleId,
        lock: FileLock,
        ticket: Option<u64>,
    ) -> Handled<O> {
        let session = requester.origin.session;
        let ino = self.locked_file(session, id)?;
        if lock.start > lock.end {
            return Err(Errno::EINVAL);
        }
        if let Some(ticket) = ticket {
            // A granted lock stays among the events until the client confirms it: this reply may be lost,
            // too.
            if self.events.is_granted(session, ticket) {
                return Ok(Outcome::Reply(Reply::Done));
            }
            // A session that does not confirm its grants may not wait for more.
            if self.events.unconfirmed_grants(session) >= MAX_WAITS {
                return Err(Errno::ENOLCK);
            }
        }
        let on_recovery_slot = requester.origin.slot == RECOVERY_SLOT;
        let reclaims = on_recovery_slot && node.sessions.is_returning(session);
        let hold_back = !reclaims && self.locks_may_be_reclaimed(node);
        let held = HeldLock { lock, handle: id };
        let table = &mut self.locks.table;
        Ok(Outcome::Reply(match table.lock(session, ino, held, ticket, hold_back) {
            LockResult::Granted => {
                // It may be weaker than the lock that it replaces.
                self.grant_locks(node, ino);
                Reply::Done
            }
            LockResult::Waits => Reply::LockPending,
            LockResult::Conflict(holder, lock) => conflict(session, holder, lock),
            LockResult::Deadlock => return Err(Errno::EDEADLK),
            LockResult::Full => return Err(Errno::ENOLCK),
        }))
    }

    pub fn test_lock(&self, requester: &Requester, id: HandleId, lock: FileLock) -> Handled<O> {
        let session = requester.origin.session;
        let ino = self.locked_file(session, id)?;
        let found = self.locks.table.conflict(session, ino, lock);
        Ok(Outcome::Reply(match found {
            Some((holder, lock)) => conflict(session, holder, lock),
            None => Reply::Done,
        }))
    }

    pub fn unlock_file(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (id, owner): (HandleId, LockOwner),
        (start, end): (u64, u64),
    ) -> Handled<O> {
        let session = requester.origin.session;
        let ino = self.locked_file(session, id)?;
        if start > end {
            return Err(Errno::EINVAL);
        }
        self.locks.table.unlock((session, owner), ino, start, end);
        self.grant_locks(node, ino);
        Ok(Outcome::Reply(Reply::Done))
    }

    /// A handle is closed: its locks go.
    pub fn close_locks(
        &mut self,
        node: &mut Context<O>,
        session: SessionId,
        ino: Ino,
        id: HandleId,
    ) {
        if self.locks.table.close(session, ino, id) {
            self.grant_locks(node, ino);
        }
    }

    pub fn cancel_lock(&mut self, requester: &Requester, ticket: u64) -> Handled<O> {
        let session = requester.origin.session;
        self.locks.table.cancel(session, ticket);
        Ok(Outcome::Reply(if self.events.is_granted(session, ticket) {
            Reply::LocksGranted(vec![ticket])
        } else {
            Reply::Done
        }))
    }

    /// Whether sessions from before this start may still reclaim locks. Those that do not come expire
    /// after a lease; one that comes and makes no request may hold others up for another lease.
    fn locks_may_be_reclaimed(&self, node: &Context<O>) -> bool {
        let leases = node.limits.lease_ns.saturating_mul(2);
        let deadline_ns = node.started_ns.saturating_add(leases);
        node.now.steady_ns < deadline_ns && node.sessions.any_returning_to(self.id())
    }

    /// Grant locks that were held back, if no session may reclaim locks any more.
    pub fn grant_held_back(&mut self, node: &mut Context<O>) {
        if self.locks.is_held_back() && !self.locks_may_be_reclaimed(node) {
            let grants = self.locks.table.grant_all();
            self.granted(node, &grants);
        }
    }

    /// Grant locks on a file that were waited for and have no conflict any more.
    fn grant_locks(&mut self, node: &mut Context<O>, ino: Ino) {
        if self.locks_may_be_reclaimed(node) {
            return; // later, with those that are held back
        }
        let mut grants = Vec::new();
        self.locks.table.grant(ino, &mut grants);
        self.granted(node, &grants);
    }

    fn granted(&mut self, node: &mut Context<O>, grants: &[LockGrant]) {
        for grant in grants {
            self.events.add_grant(grant.session, grant.ticket);
        }
        for grant in grants {
            self.notify(node, grant.session);
        }
    }
}

/// The reply to `session` about a conflict with a lock of the session `holder`.
fn conflict(session: SessionId, holder: SessionId, lock: FileLock) -> Reply {
    Reply::LockConflict(FileLock {
        owner: LockOwner::MIN,
        pid: if session == holder { lock.pid } else { 0 },
        ..lock
    })
}
