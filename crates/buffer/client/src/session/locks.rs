//! Locks on ranges of files: what a session holds at a node, and what it waits for there.
//!
//! A call that would wait for a lock takes a ticket instead, and one connection of the session, on a
//! thread of its own, waits for news of all tickets. That connection also notices at once when the
//! daemon has started again, so that locks are claimed before others can have them.

use super::{Session, lock};
use crate::sessions::Sessions;
use crate::system::Connection;
use forebay_protocol::lock::{FileLock, HeldLock, HeldRanges};
use forebay_protocol::message::LOCK_WATCH_SLOT;
use forebay_protocol::message::LockRequest;
use forebay_protocol::{Call, Errno, HandleId, Ino, LockOwner, NodeIndex, Reply, Request};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Pause before a daemon that does not answer is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// What is done when a lock that was waited for is held, or will never be.
pub type LockCallback = Box<dyn FnOnce(Result<(), Errno>) + Send>;

struct Waiter {
    ino: Ino,
    wanted: HeldLock,
    done: LockCallback,
}

/// What a session knows of its locks.
#[derive(Default)]
pub struct LockTable {
    held: BTreeMap<(Ino, LockOwner), HeldRanges>,
    waiting: BTreeMap<u64, Waiter>,
    tickets: u64,
    /// There is a thread that waits for news.
    watched: bool,
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Book")
            .field("held", &self.held)
            .field("waiting", &self.waiting.keys())
            .finish_non_exhaustive()
    }
}

impl LockTable {
    fn hold(&mut self, ino: Ino, held: HeldLock) {
        let ranges = self.held.entry((ino, held.lock.owner)).or_default();
        ranges.acquire(held);
    }

    fn give_up(&mut self, key: (Ino, LockOwner), act: impl FnOnce(&mut HeldRanges)) {
        if let Some(ranges) = self.held.get_mut(&key) {
            act(ranges);
            if ranges.is_empty() {
                self.held.remove(&key);
            }
        }
    }
}

impl Session {
    /// Take a lock now. `Some`: this one is in the way.
    pub fn try_lock(&self, ino: Ino, held: HeldLock) -> Result<Option<FileLock>, Errno> {
        loop {
            let epoch = self.epoch();
            let request = Request::Lock(LockRequest::Acquire {
                handle: held.handle,
                lock: held.lock,
                ticket: None,
            });
            match self.call(None, request)?.reply {
                Reply::Done => {}
                Reply::LockConflict(lock) => return Ok(Some(lock)),
                _ => return Err(Errno::EPROTO),
            }
            lock(&self.locks).hold(ino, held);
            // A daemon that has started again since may not have been told of it.
            if self.epoch() == epoch {
                return Ok(None);
            }
        }
    }

    /// Take a lock as soon as it can be had. `Some`: a ticket to [cancel](Session::cancel_lock) the
    /// wait by.
    pub fn lock_async(&self, ino: Ino, wanted: HeldLock, done: LockCallback) -> Option<u64> {
        let ticket = {
            let mut book = lock(&self.locks);
            book.tickets += 1;
            let ticket = book.tickets;
            book.waiting.insert(ticket, Waiter { ino, wanted, done });
            ticket
        };
        self.ask_for(ticket, wanted);
        self.is_lock_pending(ticket).then_some(ticket)
    }

    /// Is the lock of this ticket still waited for?
    pub fn is_lock_pending(&self, ticket: u64) -> bool {
        lock(&self.locks).waiting.contains_key(&ticket)
    }

    fn ask_for(&self, ticket: u64, wanted: HeldLock) {
        let epoch = self.epoch();
        let request = Request::Lock(LockRequest::Acquire {
            handle: wanted.handle,
            lock: wanted.lock,
            ticket: Some(ticket),
        });
        match self.call(None, request).map(|said| said.reply) {
            Ok(Reply::Done) => self.lock_came(ticket, epoch),
            Ok(Reply::LockPending) => {}
            Ok(_) => self.lock_failed(ticket, Errno::EPROTO),
            Err(errno) => self.lock_failed(ticket, errno),
        }
    }

    /// A lock that was waited for was granted by the daemon's start `epoch`.
    fn lock_came(&self, ticket: u64, epoch: u64) {
        let mut book = lock(&self.locks);
        let Some(waiter) = book.waiting.remove(&ticket) else {
            return;
        };
        let (ino, wanted) = (waiter.ino, waiter.wanted);
        book.hold(ino, wanted);
        if self.epoch() == epoch {
            drop(book);
            return (waiter.done)(Ok(()));
        }
        // It has started again since: whether the lock is held is not certain.
        book.waiting.insert(ticket, waiter);
        drop(book);
        self.ask_for(ticket, wanted);
    }

    fn lock_failed(&self, ticket: u64, errno: Errno) {
        let waiter = lock(&self.locks).waiting.remove(&ticket);
        if let Some(waiter) = waiter {
            (waiter.done)(Err(errno));
        }
    }

    /// Wait for a lock no longer: it fails with `EINTR`, unless it has just come.
    pub fn cancel_lock(&self, ticket: u64) {
        let epoch = self.epoch();
        let said = self.call(None, Request::Lock(LockRequest::Cancel { ticket }));
        match said.map(|said| said.reply) {
            Ok(Reply::LocksGranted(_)) => self.lock_came(ticket, epoch),
            _ => self.lock_failed(ticket, Errno::EINTR),
        }
    }

    /// Has this owner locked something of the file?
    pub fn holds_lock(&self, ino: Ino, owner: LockOwner) -> bool {
        lock(&self.locks).held.contains_key(&(ino, owner))
    }

    /// Give up what an owner has locked of a range.
    pub fn unlock_range(
        &self,
        ino: Ino,
        handle: HandleId,
        owner: LockOwner,
        (start, end): (u64, u64),
    ) -> Result<(), Errno> {
        {
            let mut book = lock(&self.locks);
            if !book.held.contains_key(&(ino, owner)) {
                return Ok(());
            }
            book.give_up((ino, owner), |ranges| {
                ranges.release(start, end);
            });
        }
        let request = Request::Lock(LockRequest::Release {
            handle,
            owner,
            start,
            end,
        });
        self.call(None, request).map(|_| ())
    }

    /// A handle is being closed, and its locks go with it. `false`: the session has none at all.
    pub fn forget_locks_of_handle(&self, ino: Ino, handle: HandleId) -> bool {
        let mut book = lock(&self.locks);
        if book.held.is_empty() && book.waiting.is_empty() {
            return false;
        }
        let of_file = (ino, LockOwner::MIN)..=(ino, LockOwner::MAX);
        let keys: Vec<_> = book.held.range(of_file).map(|(key, _)| *key).collect();
        for key in keys {
            book.give_up(key, |ranges| {
                ranges.release_handle(handle);
            });
        }
        true
    }

    /// The daemon has started again: take the locks again, on a connection that is the first to do
    /// so. `seq` is that of the last call on it.
    pub(super) fn reclaim_locks(&self, link: &mut Connection, seq: &mut u64) -> io::Result<()> {
        let held: Vec<(Ino, HeldLock)> = {
            let book = lock(&self.locks);
            let all = book.held.iter();
            let all = all.flat_map(|((ino, _), ranges)| ranges.iter().map(|held| (*ino, *held)));
            all.collect()
        };
        for (ino, held) in held {
            *seq += 1;
            let call = Call {
                seq: *seq,
                caller: None,
                request: Request::Lock(LockRequest::Acquire {
                    handle: held.handle,
                    lock: held.lock,
                    ticket: None,
                }),
            };
            let reply = link.call(&call, &[], &mut [])?.reply;
            if reply != Reply::Done {
                tracing::error!(%ino, ?reply, "a lock is lost: the storage daemon had no longer \
                    heard of this client, and gives it to others");
                let (start, end) = (held.lock.start, held.lock.end);
                lock(&self.locks).give_up((ino, held.lock.owner), |ranges| {
                    ranges.release(start, end);
                });
            }
        }
        Ok(())
    }
}

impl Sessions {
    /// The session with `node`, for locks: what becomes of them is watched from now on.
    pub fn session_for_locks(self: &Arc<Sessions>, node: NodeIndex) -> Result<&Session, Errno> {
        let session = self.session(node)?;
        let mut book = lock(&session.locks);
        if !book.watched {
            let sessions = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("forebay-locks".into());
            let watching = thread.spawn(move || watch(&sessions, node));
            watching.map_err(|_| Errno::ENOLCK)?;
            book.watched = true;
        }
        drop(book);
        Ok(session)
    }
}

/// Wait for news of locks at `node` for as long as somebody has the sessions.
fn watch(sessions: &Weak<Sessions>, node: NodeIndex) {
    let mut seq = 0;
    let mut told = Vec::new();
    loop {
        let Some(all) = sessions.upgrade() else {
            return;
        };
        seq += 1;
        let connected = all.session(node).ok().and_then(|session| {
            let link = session.connect(LOCK_WATCH_SLOT, seq, false).ok()?;
            let epoch = session.epoch();
            // A daemon that has started again does not know who waits.
            let waiting: Vec<(u64, HeldLock)> = {
                let book = lock(&session.locks);
                let waiting = book.waiting.iter();
                waiting
                    .map(|(ticket, waiter)| (*ticket, waiter.wanted))
                    .collect()
            };
            for (ticket, wanted) in waiting {
                session.ask_for(ticket, wanted);
            }
            Some((link, epoch))
        });
        drop(all);
        if let Some((mut link, epoch)) = connected {
            loop {
                seq += 1;
                let call = Call {
                    seq,
                    caller: None,
                    request: Request::Lock(LockRequest::Await {
                        known: std::mem::take(&mut told),
                    }),
                };
                let Ok(answer) = link.call(&call, &[], &mut []) else {
                    break;
                };
                let Reply::LocksGranted(tickets) = answer.reply else {
                    break;
                };
                let Some(all) = sessions.upgrade() else {
                    return;
                };
                if let Ok(session) = all.session(node) {
                    for ticket in &tickets {
                        session.lock_came(*ticket, epoch);
                    }
                }
                told = tickets;
            }
        }
        std::thread::sleep(PAUSE);
    }
}
