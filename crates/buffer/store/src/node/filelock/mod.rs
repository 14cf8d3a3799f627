//! Locks on ranges of files, those of `fcntl` and of `flock`, held at the files' homes.
//!
//! They are not durable. After a restart of the daemon, sessions from before take theirs again as
//! they open their handles again; until all have done so or expired, nobody else gets any.

mod table;
#[cfg(test)]
mod tests;

pub(super) use table::LockTable;

use super::{Attached, Context, Shard};
use crate::objects::Objects;
use forebay_protocol::lock::{FileLock, HeldLock};
use forebay_protocol::message::{LOCK_WATCH_SLOT, RECOVERY_SLOT};
use forebay_protocol::{Errno, HandleId, Ino, InstanceId, LockOwner, Reply, SessionId};
use table::{LockGrant, LockResult, MAX_WAITS};

impl<O: Objects> Shard<O> {
    fn locked_file(&self, context: &Context, id: HandleId) -> Result<Ino, Errno> {
        let handle = self.handle(context.session, id)?;
        // Whoever has only a part of the file open is not at its home.
        if handle.piece {
            return Err(Errno::EINVAL);
        }
        Ok(handle.ino)
    }

    pub(super) fn lock_file(
        &mut self,
        context: &Context,
        handle: HandleId,
        lock: FileLock,
        ticket: Option<u64>,
    ) -> Result<Reply, Errno> {
        let ino = self.locked_file(context, handle)?;
        if lock.start > lock.end {
            return Err(Errno::EINVAL);
        }
        let session = context.session;
        // It was granted. That stays news until the client says that it knows: this answer may be
        // lost, too.
        let news = self.attached.get(&session).map(|a| &a.lock_news);
        if ticket.is_some_and(|ticket| news.is_some_and(|news| news.contains(&ticket))) {
            return Ok(Reply::Done);
        }
        // Whoever does not listen is not told more and more.
        if ticket.is_some() && news.is_some_and(|news| news.len() >= MAX_WAITS) {
            return Err(Errno::ENOLCK);
        }
        let claims = context.slot == RECOVERY_SLOT && self.returning.contains(&session);
        let hold_back = !claims && self.may_be_claimed(context.instance);
        let held = HeldLock { lock, handle };
        let locks = &mut self.runtime(context.instance).locks;
        match locks.lock(session, ino, held, ticket, hold_back) {
            LockResult::Granted => {
                // It may be less than what was held before.
                self.grant_locks(context.instance, ino);
                Ok(Reply::Done)
            }
            LockResult::Waits => Ok(Reply::LockPending),
            LockResult::Conflict(of, lock) => Ok(conflict(session, of, lock)),
            LockResult::Deadlock => Err(Errno::EDEADLK),
            LockResult::Full => Err(Errno::ENOLCK),
        }
    }

    pub(super) fn test_lock(
        &mut self,
        context: &Context,
        handle: HandleId,
        lock: FileLock,
    ) -> Result<Reply, Errno> {
        let ino = self.locked_file(context, handle)?;
        let locks = &self.runtime(context.instance).locks;
        let found = locks.conflict(context.session, ino, lock);
        Ok(found.map_or(Reply::Done, |(of, lock)| {
            conflict(context.session, of, lock)
        }))
    }

    pub(super) fn unlock_file(
        &mut self,
        context: &Context,
        handle: HandleId,
        owner: LockOwner,
        (start, end): (u64, u64),
    ) -> Result<Reply, Errno> {
        let ino = self.locked_file(context, handle)?;
        if start > end {
            return Err(Errno::EINVAL);
        }
        let locks = &mut self.runtime(context.instance).locks;
        locks.unlock((context.session, owner), ino, start, end);
        self.grant_locks(context.instance, ino);
        Ok(Reply::Done)
    }

    /// A handle is gone.
    pub(super) fn close_locks(
        &mut self,
        session: SessionId,
        instance: InstanceId,
        ino: Ino,
        handle: HandleId,
    ) {
        if self.runtime(instance).locks.close(session, ino, handle) {
            self.grant_locks(instance, ino);
        }
    }

    pub(super) fn cancel_lock(&mut self, context: &Context, ticket: u64) -> Reply {
        self.runtime(context.instance)
            .locks
            .cancel(context.session, ticket);
        let attached = self.attached.get(&context.session);
        if attached.is_some_and(|attached| attached.lock_news.contains(&ticket)) {
            return Reply::LocksGranted(vec![ticket]);
        }
        Reply::Done
    }

    /// `None`: there is no news yet.
    pub(super) fn await_locks(
        &mut self,
        context: &Context,
        told: &[u64],
    ) -> Result<Option<Reply>, Errno> {
        if context.slot != LOCK_WATCH_SLOT {
            return Err(Errno::EINVAL);
        }
        let attached = self.attached.get_mut(&context.session);
        let attached = attached.ok_or(Errno::ESTALE)?;
        for ticket in told {
            attached.lock_news.remove(ticket);
        }
        attached.lock_watch = Some((context.conn, context.seq));
        self.tell_of_locks(context.session);
        Ok(None)
    }

    /// May sessions from before this start still come and claim locks of an instance? Those that do
    /// not come expire after a lease; one that comes and does nothing is not waited for much longer.
    fn may_be_claimed(&self, instance: InstanceId) -> bool {
        let last = self
            .started
            .saturating_add(self.limits.lease_ns.saturating_mul(2));
        self.now.steady_ns < last
            && self.returning.iter().any(|id| {
                let session = self.state.sessions.get(id);
                session.is_some_and(|session| session.instance == Some(instance))
            })
    }

    /// Locks that were held back can be given if there is nobody left who could claim them.
    pub(super) fn give_held_back(&mut self) {
        let held_back = self.runtime.iter().filter(|(_, r)| r.locks.is_held_back());
        let held_back: Vec<InstanceId> = held_back.map(|(id, _)| *id).collect();
        for instance in held_back {
            if !self.may_be_claimed(instance) {
                let grants = self.runtime(instance).locks.grant_all();
                self.granted(&grants);
            }
        }
    }

    /// Do locks wait for sessions from before this start?
    pub(super) fn holds_back(&self) -> bool {
        self.runtime.values().any(|r| r.locks.is_held_back())
    }

    fn grant_locks(&mut self, instance: InstanceId, ino: Ino) {
        if self.may_be_claimed(instance) {
            return; // later, with what is held back
        }
        let mut grants = Vec::new();
        self.runtime(instance).locks.grant(ino, &mut grants);
        self.granted(&grants);
    }

    fn granted(&mut self, grants: &[LockGrant]) {
        for grant in grants {
            if let Some(attached) = self.attached.get_mut(&grant.session) {
                attached.lock_news.insert(grant.ticket);
            }
        }
        for grant in grants {
            self.tell_of_locks(grant.session);
        }
    }

    /// Answer the call that waits for news, if there is one and there are any.
    fn tell_of_locks(&mut self, session: SessionId) {
        let Some(attached) = self.attached.get_mut(&session) else {
            return;
        };
        if attached.lock_news.is_empty() {
            return;
        }
        let news = attached.lock_news.iter().copied().collect();
        if let Some((conn, seq)) = attached.lock_watch.take() {
            self.reply(conn, seq, Reply::LocksGranted(news));
        }
    }

    /// A session is over, and with it the call that waits for news.
    pub(super) fn end_watch(&mut self, attached: &Attached) {
        if let Some((conn, seq)) = attached.lock_watch {
            self.reply(conn, seq, Reply::Failed(Errno::ESTALE));
        }
    }
}

/// The lock `lock` of session `of`, as session `asks` is told of it.
fn conflict(asks: SessionId, of: SessionId, lock: FileLock) -> Reply {
    Reply::LockConflict(FileLock {
        owner: LockOwner::MIN,
        pid: if asks == of { lock.pid } else { 0 },
        ..lock
    })
}
