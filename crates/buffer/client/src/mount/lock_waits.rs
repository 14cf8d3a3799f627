//! Locks that processes on the mount take and wait for.
//!
//! A wait holds no thread of the mount: the kernel is answered when the lock comes. The kernel says
//! that a waiting process was interrupted, but the FUSE library does not pass that on, so one thread
//! looks from time to time whether those who wait have signals to attend to.

use super::convert::errno;
use super::mounted_fs::{MountedFs, empty};
use super::open_files::OpenFile;
use crate::session::lock;
use forebay_protocol::lock::{FileLock, MAX_LOCK_OFFSET};
use forebay_protocol::{Errno, LockOwner};
use fuser::{FileHandle, ReplyEmpty, ReplyLock};
use std::fs;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// How often it is looked whether those who wait were interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// A process that waits for a lock.
#[derive(Debug)]
struct Waiter {
    /// The thread.
    pid: u32,
    /// When it is closed is not for us to say.
    open: Weak<OpenFile>,
    ticket: u64,
    /// Its process had a signal to attend to when it was last looked.
    signalled: bool,
}

#[derive(Debug, Default)]
struct Waiters {
    list: Vec<Waiter>,
    /// There is a thread that looks.
    watched: bool,
}

/// All processes that wait for locks.
#[derive(Clone, Debug, Default)]
pub struct LockWaits(Arc<Mutex<Waiters>>);

impl LockWaits {
    fn add(&self, waiter: Waiter) {
        let mut waiters = lock(&self.0);
        waiters.list.push(waiter);
        if !waiters.watched {
            let all = self.clone();
            let thread = std::thread::Builder::new().name("forebay-waits".into());
            waiters.watched = thread.spawn(move || all.watch()).is_ok();
        }
    }

    /// Look after those who wait until nobody does.
    fn watch(&self) {
        loop {
            std::thread::sleep(LOOK);
            let mut interrupted = Vec::new();
            // Closed, if need be, when the list is free again.
            let mut opens = Vec::new();
            {
                let mut waiters = lock(&self.0);
                waiters.list.retain_mut(|waiter| {
                    let Some(open) = waiter.open.upgrade() else {
                        return false;
                    };
                    let waits = open.file.is_lock_pending(waiter.ticket);
                    let stays = waits && !waiter.is_interrupted();
                    if waits && !stays {
                        interrupted.push((open, waiter.ticket));
                    } else {
                        opens.push(open);
                    }
                    stays
                });
                if waiters.list.is_empty() && interrupted.is_empty() {
                    waiters.watched = false;
                    return;
                }
            }
            drop(opens);
            for (open, ticket) in interrupted {
                open.file.cancel_lock(ticket);
            }
        }
    }
}

impl Waiter {
    /// Is there a signal for it? One for its whole process may be about to be taken by another
    /// thread, so it must be there twice.
    fn is_interrupted(&mut self) -> bool {
        if self.pid == 0 {
            return false; // of another PID name space, where we cannot look
        }
        match signals(self.pid) {
            None => true,
            Some((own, shared)) => {
                let before = std::mem::replace(&mut self.signalled, shared);
                own || (shared && before)
            }
        }
    }
}

/// Does a signal wait for this thread, and does one for its process that the thread would take?
/// `None`: it has gone.
fn signals(tid: u32) -> Option<(bool, bool)> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let taken = !mask("SigBlk:")?;
    Some((mask("SigPnd:")? & taken != 0, mask("ShdPnd:")? & taken != 0))
}

impl MountedFs {
    pub fn do_set_lock(
        &self,
        pid: u32,
        handle: FileHandle,
        (kind, wanted): (i32, FileLock),
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let open = match self.open_file(handle) {
            Ok(open) => open,
            Err(error) => return reply.error(errno(error)),
        };
        if kind == libc::F_UNLCK {
            let FileLock {
                owner, start, end, ..
            } = wanted;
            return empty(reply, open.file.unlock_for(owner, start, end));
        }
        // What can be had at once needs no ticket.
        let in_the_way = open.file.try_lock_for(wanted);
        match in_the_way {
            Ok(None) => return reply.ok(),
            Ok(Some(_)) if !sleep => return reply.error(errno(Errno::EAGAIN)),
            Ok(Some(_)) => {}
            Err(error) => return reply.error(errno(error)),
        }
        let reply = Arc::new(Mutex::new(Some(reply)));
        let answer = |reply: &Mutex<Option<ReplyEmpty>>, result| {
            if let Some(reply) = lock(reply).take() {
                empty(reply, result);
            }
        };
        let to_answer = reply.clone();
        let done = Box::new(move |result| answer(&to_answer, result));
        match open.file.lock_async(wanted, done) {
            Ok(Some(ticket)) => self.lock_waits.add(Waiter {
                pid,
                open: Arc::downgrade(&open),
                ticket,
                signalled: false,
            }),
            Ok(None) => {}
            Err(error) => answer(&reply, Err(error)),
        }
    }

    pub fn do_test_lock(&self, handle: FileHandle, wanted: FileLock, reply: ReplyLock) {
        let found = self
            .open_file(handle)
            .and_then(|open| open.file.test_lock(wanted));
        match found {
            Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
            Ok(Some(found)) => {
                let kind = if found.exclusive {
                    libc::F_WRLCK
                } else {
                    libc::F_RDLCK
                };
                reply.locked(found.start, found.end, kind, found.pid);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    /// A process closes a file: its locks on it by `fcntl` go, whatever else it has it open by.
    pub fn do_flush(&self, handle: FileHandle, owner: u64) -> Result<(), Errno> {
        let open = self.open_file(handle)?;
        open.file
            .unlock_for(LockOwner::Fcntl(owner), 0, MAX_LOCK_OFFSET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_signalled_is_found() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(signals(tid), Some((false, false)));
        assert_eq!(signals(u32::MAX), None);
    }
}
