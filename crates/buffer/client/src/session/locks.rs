//! Taking and releasing locks on ranges of files.
//!
//! A request for a lock that another owner holds gets a ticket instead of waiting. A connection of
//! its own waits until the daemon grants such locks ([`Sessions::watched_session`]).
//!
//! [`Sessions::watched_session`]: crate::sessions::Sessions::watched_session

use super::Session;
use super::lock_table::{LockCallback, PendingLock};
use crate::system::Connection;
use forebay_protocol::lock::{FileLock, HeldLock};
use forebay_protocol::message::LockRequest;
use forebay_protocol::{Call, Errno, HandleId, Ino, LockOwner, Reply};
use std::io;

impl Session {
    /// Starts watching for events by `start`, unless that was done.
    pub fn start_event_watch(
        &self,
        start: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut locks = self.locks.lock();
        if !locks.is_watched {
            start()?;
            locks.is_watched = true;
        }
        Ok(())
    }

    /// Takes a lock now. Returns the conflicting lock, if there is one.
    pub fn try_lock(&self, ino: Ino, wanted: HeldLock) -> Result<Option<FileLock>, Errno> {
        loop {
            let epoch = self.epoch();
            let conflict: Option<FileLock> = self.call(lock_request(wanted, None))?;
            if conflict.is_some() {
                return Ok(conflict);
            }
            self.locks.lock().add_held(ino, wanted);
            // If the daemon restarted meanwhile, the lock may not have been reclaimed.
            if self.epoch() == epoch {
                return Ok(None);
            }
        }
    }

    /// Takes a lock as soon as it is free. Returns the ticket of the pending lock, if it is not
    /// granted at once; [`cancel_lock`](Session::cancel_lock) cancels it.
    pub fn lock_async(&self, ino: Ino, wanted: HeldLock, callback: LockCallback) -> Option<u64> {
        let ticket = self.locks.lock().add_pending(PendingLock { ino, wanted, callback });
        self.request_pending_lock(ticket, wanted);
        self.is_lock_pending(ticket).then_some(ticket)
    }

    /// Whether the lock of this ticket is pending.
    pub fn is_lock_pending(&self, ticket: u64) -> bool {
        self.locks.lock().is_pending(ticket)
    }

    /// Requests all pending locks, from a daemon that may not know them.
    pub fn request_pending_locks(&self) {
        let pending = self.locks.lock().pending();
        for (ticket, wanted) in pending {
            self.request_pending_lock(ticket, wanted);
        }
    }

    fn request_pending_lock(&self, ticket: u64, wanted: HeldLock) {
        let epoch = self.epoch();
        match self.call(lock_request(wanted, Some(ticket))) {
            Ok(true) => self.lock_granted(ticket, epoch),
            Ok(false) => {} // pending
            Err(errno) => self.lock_failed(ticket, errno),
        }
    }

    /// A pending lock was granted by the daemon in `epoch`.
    pub fn lock_granted(&self, ticket: u64, epoch: u64) {
        let mut locks = self.locks.lock();
        let Some(pending) = locks.take_pending(ticket) else {
            return;
        };
        let (ino, wanted) = (pending.ino, pending.wanted);
        locks.add_held(ino, wanted);
        if self.epoch() == epoch {
            drop(locks);
            return (pending.callback)(Ok(()));
        }
        // The daemon restarted: whether the lock is held is unknown.
        locks.put_back_pending(ticket, pending);
        drop(locks);
        self.request_pending_lock(ticket, wanted);
    }

    fn lock_failed(&self, ticket: u64, errno: Errno) {
        let pending = self.locks.lock().take_pending(ticket);
        if let Some(pending) = pending {
            (pending.callback)(Err(errno));
        }
    }

    /// Cancels a pending lock: it fails with `EINTR`, unless it was just granted.
    pub fn cancel_lock(&self, ticket: u64) {
        let epoch = self.epoch();
        let granted: Result<Vec<u64>, Errno> = self.call(LockRequest::Cancel { ticket });
        match granted {
            Ok(_) => self.lock_granted(ticket, epoch),
            Err(_) => self.lock_failed(ticket, Errno::EINTR),
        }
    }

    /// Whether this owner holds a lock on some range of the file.
    pub fn holds_lock(&self, ino: Ino, owner: LockOwner) -> bool {
        self.locks.lock().holds(ino, owner)
    }

    /// Releases a range.
    pub fn unlock_range(
        &self,
        ino: Ino,
        handle: HandleId,
        owner: LockOwner,
        (start, end): (u64, u64),
    ) -> Result<(), Errno> {
        {
            let mut locks = self.locks.lock();
            if !locks.holds(ino, owner) {
                return Ok(());
            }
            locks.release(ino, owner, (start, end));
        }
        self.call(LockRequest::Release { handle, owner, start, end })
    }

    /// A handle is being closed, which releases its locks. Returns `false` if the session has no
    /// locks at all.
    pub fn forget_locks_of_handle(&self, ino: Ino, handle: HandleId) -> bool {
        let mut locks = self.locks.lock();
        if locks.is_empty() {
            return false;
        }
        locks.release_handle(ino, handle);
        true
    }

    /// The daemon restarted: takes the held locks again, on a connection that is the first to do so.
    /// `seq` is the sequence number of its last call.
    pub(super) fn reclaim_locks(
        &self,
        connection: &mut Connection,
        seq: &mut u64,
    ) -> io::Result<()> {
        let held = self.locks.lock().held();
        for (ino, held) in held {
            *seq += 1;
            let call = Call::new(*seq, lock_request(held, None));
            let reply = connection.call(&call, &[], &mut [])?.reply;
            if reply != Reply::Done {
                tracing::error!(%ino, ?reply, "lock lost: the session expired at the storage daemon, \
                    and another client may hold the lock");
                let range = (held.lock.start, held.lock.end);
                self.locks.lock().release(ino, held.lock.owner, range);
            }
        }
        Ok(())
    }
}

fn lock_request(wanted: HeldLock, ticket: Option<u64>) -> LockRequest {
    LockRequest::Acquire { handle: wanted.handle, lock: wanted.lock, ticket }
}
