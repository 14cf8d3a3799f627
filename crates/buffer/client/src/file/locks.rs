//! Advisory locks on a file.

use super::File;
use crate::session::{LockCallback, Session};
use forebay_protocol::lock::{FileLock, HeldLock, MAX_LOCK_OFFSET};
use forebay_protocol::message::LockRequest;
use forebay_protocol::{Errno, LockOwner};
use std::sync::mpsc;

/// The whole file.
const ALL: (u64, u64) = (0, MAX_LOCK_OFFSET);

impl File {
    /// Locks the file as by `flock`, shared or `exclusive`, and waits until no other open file has a
    /// conflicting lock. The lock replaces the present one of this open file, and ends with it.
    /// `EDEADLK` if it would wait for ever. Locks of ranges are independent of these locks.
    pub fn lock(&self, exclusive: bool) -> Result<(), Errno> {
        self.wait_for_lock(self.own_lock(ALL, exclusive, LockOwner::Flock))
    }

    /// As [`lock`](File::lock), but fails with `EAGAIN` instead of waiting.
    pub fn try_lock(&self, exclusive: bool) -> Result<(), Errno> {
        self.try_own_lock(self.own_lock(ALL, exclusive, LockOwner::Flock))
    }

    /// Releases the lock.
    pub fn unlock(&self) -> Result<(), Errno> {
        self.unlock_for(LockOwner::Flock(self.handle().0), ALL.0, ALL.1)
    }

    /// As [`lock`](File::lock), for the bytes from `start` to `end`, both included, as by `fcntl`.
    pub fn lock_range(&self, start: u64, end: u64, exclusive: bool) -> Result<(), Errno> {
        self.wait_for_lock(self.own_lock((start, end), exclusive, LockOwner::Fcntl))
    }

    /// As [`try_lock`](File::try_lock), for the bytes from `start` to `end`, both included, as by
    /// `fcntl`.
    pub fn try_lock_range(&self, start: u64, end: u64, exclusive: bool) -> Result<(), Errno> {
        self.try_own_lock(self.own_lock((start, end), exclusive, LockOwner::Fcntl))
    }

    /// Releases the bytes from `start` to `end`, both included.
    pub fn unlock_range(&self, start: u64, end: u64) -> Result<(), Errno> {
        self.unlock_for(LockOwner::Fcntl(self.handle().0), start, end)
    }

    fn wait_for_lock(&self, lock: FileLock) -> Result<(), Errno> {
        let (sender, receiver) = mpsc::channel();
        let callback = Box::new(move |result| {
            let _ = sender.send(result);
        });
        self.lock_async(lock, callback)?;
        receiver.recv().unwrap_or(Err(Errno::EIO))
    }

    fn try_own_lock(&self, lock: FileLock) -> Result<(), Errno> {
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
        FileLock { owner: owner(self.handle().0), start, end, exclusive, pid: std::process::id() }
    }

    /// The session with the file's metadata node, which keeps its locks.
    fn session(&self) -> Result<&Session, Errno> {
        self.finish_writes();
        self.parts.session(self.parts.primary.node)
    }

    fn watched_session(&self) -> Result<&Session, Errno> {
        self.finish_writes();
        let sessions = &self.parts.attachment.sessions;
        sessions.watched_session(self.parts.primary.node)
    }

    fn held(&self, lock: FileLock) -> HeldLock {
        let handle = self.handle();
        HeldLock { lock, handle }
    }

    /// Takes a lock now. Returns the conflicting lock, if there is one.
    pub(crate) fn try_lock_for(&self, lock: FileLock) -> Result<Option<FileLock>, Errno> {
        self.watched_session()?.try_lock(self.ino(), self.held(lock))
    }

    /// Takes a lock as soon as it is free; `callback` is called when it is granted or will never be,
    /// except after an error. Returns the ticket of a pending lock, to
    /// [cancel](File::cancel_lock) it.
    pub(crate) fn lock_async(
        &self,
        lock: FileLock,
        callback: LockCallback,
    ) -> Result<Option<u64>, Errno> {
        let session = self.watched_session()?;
        Ok(session.lock_async(self.ino(), self.held(lock), callback))
    }

    pub(crate) fn cancel_lock(&self, ticket: u64) {
        if let Ok(session) = self.session() {
            session.cancel_lock(ticket);
        }
    }

    pub(crate) fn unlock_for(&self, owner: LockOwner, start: u64, end: u64) -> Result<(), Errno> {
        let session = self.session()?;
        if session.holds_lock(self.ino(), owner) {
            // An old write must not overwrite those of the next owner.
            self.parts.attachment.sessions.try_fence_writes();
        }
        session.unlock_range(self.ino(), self.handle(), owner, (start, end))
    }

    /// The lock that conflicts with `lock`, if there is one.
    pub(crate) fn test_lock(&self, lock: FileLock) -> Result<Option<FileLock>, Errno> {
        let handle = self.handle();
        self.requester.call(self.parts.primary.node, LockRequest::Test { handle, lock })
    }
}
