//! Locks on a file, which other clients respect that ask for some.

use super::File;
use crate::session::{LockCallback, Session};
use forebay_protocol::lock::{FileLock, HeldLock, MAX_LOCK_OFFSET};
use forebay_protocol::message::LockRequest;
use forebay_protocol::{Errno, LockOwner, Reply, Request};
use std::sync::mpsc;

impl File {
    /// Wait until no other open file has a lock on this one, as by `flock`, that is in the way of
    /// locking it, and lock it: others then can have no lock, or no `exclusive` one. It replaces the
    /// lock that this open file has, and ends with it. `EDEADLK` if that would take for ever. Locks
    /// of ranges are another matter: neither is in the way of the other.
    pub fn lock(&self, exclusive: bool) -> Result<(), Errno> {
        self.wait_for(self.own_lock((0, MAX_LOCK_OFFSET), exclusive, LockOwner::Flock))
    }

    /// As [`lock`](File::lock), but fail with `EAGAIN` instead of waiting.
    pub fn try_lock(&self, exclusive: bool) -> Result<(), Errno> {
        self.try_for(self.own_lock((0, MAX_LOCK_OFFSET), exclusive, LockOwner::Flock))
    }

    /// Give the lock up.
    pub fn unlock(&self) -> Result<(), Errno> {
        self.unlock_for(LockOwner::Flock(self.handle().0), 0, MAX_LOCK_OFFSET)
    }

    /// As [`lock`](File::lock), for the bytes from `start` to `end`, both included, as by `fcntl`.
    pub fn lock_range(&self, start: u64, end: u64, exclusive: bool) -> Result<(), Errno> {
        self.wait_for(self.own_lock((start, end), exclusive, LockOwner::Fcntl))
    }

    /// As [`try_lock`](File::try_lock), for the bytes from `start` to `end`, both included, as by
    /// `fcntl`.
    pub fn try_lock_range(&self, start: u64, end: u64, exclusive: bool) -> Result<(), Errno> {
        self.try_for(self.own_lock((start, end), exclusive, LockOwner::Fcntl))
    }

    /// Give up what is locked of the bytes from `start` to `end`, both included.
    pub fn unlock_range(&self, start: u64, end: u64) -> Result<(), Errno> {
        self.unlock_for(LockOwner::Fcntl(self.handle().0), start, end)
    }

    fn wait_for(&self, lock: FileLock) -> Result<(), Errno> {
        let (sender, receiver) = mpsc::channel();
        let done = Box::new(move |result| {
            let _ = sender.send(result);
        });
        self.lock_async(lock, done)?;
        receiver.recv().unwrap_or(Err(Errno::EIO))
    }

    fn try_for(&self, lock: FileLock) -> Result<(), Errno> {
        match self.try_lock_for(lock)? {
            None => Ok(()),
            Some(_) => Err(Errno::EAGAIN),
        }
    }

    fn own_lock(
        &self,
        (start, end): (u64, u64),
        exclusive: bool,
        owner: fn(u64) -> LockOwner,
    ) -> FileLock {
        FileLock {
            owner: owner(self.handle().0),
            start,
            end,
            exclusive,
            pid: std::process::id(),
        }
    }

    fn at_home(&self) -> Result<&Session, Errno> {
        self.fs.sessions.session_for_locks(self.home.node)
    }

    fn held(&self, lock: FileLock) -> HeldLock {
        let handle = self.handle();
        HeldLock { lock, handle }
    }

    /// `Some`: what is in the way.
    pub(crate) fn try_lock_for(&self, lock: FileLock) -> Result<Option<FileLock>, Errno> {
        self.at_home()?.try_lock(self.ino, self.held(lock))
    }

    /// `done` is called when the lock is held or will never be. `Some`: a ticket to
    /// [cancel](File::cancel_lock) the wait by. After an error `done` is not called.
    pub(crate) fn lock_async(
        &self,
        lock: FileLock,
        done: LockCallback,
    ) -> Result<Option<u64>, Errno> {
        let session = self.at_home()?;
        Ok(session.lock_async(self.ino, self.held(lock), done))
    }

    pub(crate) fn is_lock_pending(&self, ticket: u64) -> bool {
        let session = self.fs.sessions.session(self.home.node);
        session.is_ok_and(|session| session.is_lock_pending(ticket))
    }

    pub(crate) fn cancel_lock(&self, ticket: u64) {
        if let Ok(session) = self.fs.sessions.session(self.home.node) {
            session.cancel_lock(ticket);
        }
    }

    pub(crate) fn unlock_for(&self, owner: LockOwner, start: u64, end: u64) -> Result<(), Errno> {
        let session = self.fs.sessions.session(self.home.node)?;
        if session.holds_lock(self.ino, owner) {
            // It must not come to lie over what the next one writes who has the lock.
            self.fs.sessions.try_fence_writes();
        }
        session.unlock_range(self.ino, self.handle(), owner, (start, end))
    }

    /// What is in the way of a lock.
    pub(crate) fn test_lock(&self, lock: FileLock) -> Result<Option<FileLock>, Errno> {
        let handle = self.handle();
        let request = Request::Lock(LockRequest::Test { handle, lock });
        match self.fs.call(self.home.node, request)? {
            Reply::Done => Ok(None),
            Reply::LockConflict(found) => Ok(Some(found)),
            _ => Err(Errno::EPROTO),
        }
    }
}
