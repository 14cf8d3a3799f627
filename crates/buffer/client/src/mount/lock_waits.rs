//! Locks that processes on the mount take and wait for.
//!
//! A pending lock holds no thread of the mount: the kernel gets its reply when the lock is granted.
//! The kernel reports if a waiting process was interrupted, but the FUSE library does not pass that
//! on. So one thread polls whether the waiting processes have signals pending.

use super::convert::errno;
use super::open_files::OpenFile;
use super::reply::empty;
use forebay_protocol::Errno;
use forebay_protocol::lock::FileLock;
use fuser::ReplyEmpty;
use parking_lot::Mutex;
use std::fs;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Interval at which waiting processes are checked for signals.
const SIGNAL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A process that waits for a lock.
#[derive(Debug)]
struct Waiter {
    /// The thread.
    tid: u32,
    /// Weak: the wait does not keep the file open.
    open: Weak<OpenFile>,
    ticket: u64,
    /// A signal was pending for its process at the last poll.
    signalled: bool,
}

#[derive(Debug, Default)]
struct Waiters {
    list: Vec<Waiter>,
    /// Whether the polling thread exists.
    polled: bool,
}

/// All processes that wait for locks.
#[derive(Clone, Debug, Default)]
pub struct LockWaits(Arc<Mutex<Waiters>>);

impl LockWaits {
    /// Takes a lock for the thread `tid`, and replies when it is granted, or at once if it conflicts
    /// and `wait` is not set.
    pub fn lock(
        &self,
        tid: u32,
        open: &Arc<OpenFile>,
        wanted: FileLock,
        wait: bool,
        reply: ReplyEmpty,
    ) {
        // A lock that is free needs no ticket.
        match open.file.try_lock_for(wanted) {
            Ok(None) => return reply.ok(),
            Ok(Some(_)) if !wait => return reply.error(errno(Errno::EAGAIN)),
            Ok(Some(_)) => {}
            Err(error) => return reply.error(errno(error)),
        }
        let reply = Arc::new(Mutex::new(Some(reply)));
        let send = |reply: &Mutex<Option<ReplyEmpty>>, result| {
            if let Some(reply) = reply.lock().take() {
                empty(reply, result);
            }
        };
        let pending_reply = reply.clone();
        let callback = Box::new(move |result| send(&pending_reply, result));
        match open.file.lock_async(wanted, callback) {
            Ok(Some(ticket)) => {
                self.add(Waiter { tid, open: Arc::downgrade(open), ticket, signalled: false })
            }
            Ok(None) => {}
            Err(error) => send(&reply, Err(error)),
        }
    }

    fn add(&self, waiter: Waiter) {
        let mut waiters = self.0.lock();
        waiters.list.push(waiter);
        if !waiters.polled {
            let all = self.clone();
            let thread = std::thread::Builder::new().name("forebay-waits".into());
            waiters.polled = thread.spawn(move || all.poll()).is_ok();
        }
    }

    /// Polls the waiting processes until there are none.
    fn poll(&self) {
        loop {
            std::thread::sleep(SIGNAL_POLL_INTERVAL);
            let mut interrupted = Vec::new();
            // Files that are closed by dropping them here, after the list is unlocked.
            let mut opens = Vec::new();
            {
                let mut waiters = self.0.lock();
                assert!(waiters.polled);
                waiters.list.retain_mut(|waiter| {
                    let Some(open) = waiter.open.upgrade() else {
                        return false;
                    };
                    let is_pending = open.file.is_lock_pending(waiter.ticket);
                    let stays = is_pending && !waiter.is_interrupted();
                    if is_pending && !stays {
                        interrupted.push((open, waiter.ticket));
                    } else {
                        opens.push(open);
                    }
                    stays
                });
                if waiters.list.is_empty() && interrupted.is_empty() {
                    waiters.polled = false;
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
    /// Whether a signal is pending for the thread. A signal for its whole process may be about to be
    /// handled by another thread, so it must be pending in two polls.
    fn is_interrupted(&mut self) -> bool {
        if self.tid == 0 {
            return false; // in another PID name space, not visible here
        }
        match pending_signals(self.tid) {
            None => true,
            Some((thread, process)) => {
                let before = std::mem::replace(&mut self.signalled, process);
                thread || (process && before)
            }
        }
    }
}

/// Whether a signal is pending for a thread, and whether one is pending for its process that the
/// thread does not block. `None` if the thread has ended.
fn pending_signals(tid: u32) -> Option<(bool, bool)> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let not_blocked = !mask("SigBlk:")?;
    let thread = mask("SigPnd:")? & not_blocked != 0;
    let process = mask("ShdPnd:")? & not_blocked != 0;
    Some((thread, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_running_and_ended_threads() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(pending_signals(tid), Some((false, false)));
        assert_eq!(pending_signals(u32::MAX), None);
    }
}
