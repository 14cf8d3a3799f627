//! Locks that processes on the mount take and wait for.
//!
//! A pending lock holds no thread of the mount: the kernel gets its reply when the lock is granted, or
//! when it reports that a signal has interrupted the process.

use super::open_files::OpenFile;
use super::reply::empty;
use forebay_fuse::{ReplyEmpty, RequestId};
use forebay_protocol::Errno;
use forebay_protocol::lock::FileLock;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// Number of interrupted requests that are remembered. Those are forgotten first that were interrupted
/// first: a request that begins to wait was received a moment ago.
const MAX_INTERRUPTED: usize = 4096;

/// A lock that a process waits for.
#[derive(Debug)]
struct Wait {
    /// Weak: the wait does not keep the file open.
    open: Weak<OpenFile>,
    ticket: u64,
}

#[derive(Debug, Default)]
struct Waits {
    pending: HashMap<RequestId, Wait>,
    /// Requests that were interrupted and do not wait, because they wait for no lock or do not wait yet.
    interrupted: VecDeque<RequestId>,
}

impl Waits {
    /// A request begins to wait. Returns `false` if it has been interrupted already.
    fn add(&mut self, request: RequestId, wait: Wait) -> bool {
        if self.interrupted.contains(&request) {
            return false;
        }
        let previous = self.pending.insert(request, wait);
        assert!(previous.is_none(), "a request waits for one lock");
        true
    }

    /// A request has been interrupted. Returns its wait, which ends.
    fn interrupt(&mut self, request: RequestId) -> Option<Wait> {
        let wait = self.pending.remove(&request);
        if wait.is_none() {
            if self.interrupted.len() == MAX_INTERRUPTED {
                self.interrupted.pop_front();
            }
            self.interrupted.push_back(request);
        }
        assert!(self.interrupted.len() <= MAX_INTERRUPTED);
        wait
    }
}

impl Wait {
    /// Ends the wait; its callback replies.
    fn cancel(self) {
        if let Some(open) = self.open.upgrade() {
            open.file.cancel_lock(self.ticket);
        }
    }
}

/// All locks that processes wait for.
#[derive(Clone, Debug, Default)]
pub struct LockWaits(Arc<Mutex<Waits>>);

impl LockWaits {
    /// Takes a lock, and replies when it is granted, or at once if it conflicts and `wait` is not set.
    pub fn lock(
        &self,
        request: RequestId,
        open: &Arc<OpenFile>,
        wanted: FileLock,
        wait: bool,
        reply: ReplyEmpty,
    ) {
        // A lock that is free needs no ticket.
        match open.file.try_lock_for(wanted) {
            Ok(None) => return reply.ok(),
            Ok(Some(_)) if !wait => return reply.error(libc::EAGAIN),
            Ok(Some(_)) => {}
            Err(error) => return reply.error(error.0),
        }
        let reply = Arc::new(Mutex::new(Some(reply)));
        let (waits, pending_reply) = (self.clone(), reply.clone());
        let callback = Box::new(move |result| waits.end(request, &pending_reply, result));
        match open.file.lock_async(wanted, callback) {
            Ok(Some(ticket)) => {
                let wait = Wait { open: Arc::downgrade(open), ticket };
                let is_interrupted = {
                    let mut waits = self.0.lock();
                    // Otherwise the callback has taken it, and then removes what is not there.
                    reply.lock().is_some()
                        && !waits.add(request, Wait { open: wait.open.clone(), ticket })
                };
                if is_interrupted {
                    wait.cancel();
                }
            }
            Ok(None) => {}
            Err(error) => self.end(request, &reply, Err(error)),
        }
    }

    /// The lock is granted, or will never be.
    fn end(
        &self,
        request: RequestId,
        reply: &Mutex<Option<ReplyEmpty>>,
        result: Result<(), Errno>,
    ) {
        let reply = reply.lock().take();
        self.0.lock().pending.remove(&request);
        if let Some(reply) = reply {
            empty(reply, result);
        }
    }

    /// A signal has interrupted a process that waits for the reply to a request.
    pub fn interrupt(&self, request: RequestId) {
        let wait = self.0.lock().interrupt(request);
        if let Some(wait) = wait {
            wait.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait() -> Wait {
        Wait { open: Weak::new(), ticket: 5 }
    }

    #[test]
    fn interrupt_that_overtakes_a_request_ends_its_wait() {
        let mut waits = Waits::default();
        assert!(waits.interrupt(RequestId(2)).is_none());
        assert!(!waits.add(RequestId(2), wait()));
        assert!(waits.add(RequestId(4), wait()));
        assert_eq!(waits.interrupt(RequestId(4)).map(|wait| wait.ticket), Some(5));
        assert!(waits.pending.is_empty());
    }

    #[test]
    fn interrupted_requests_are_limited() {
        let mut waits = Waits::default();
        let count = 2 * MAX_INTERRUPTED as u64;
        assert!((0..count).all(|number| waits.interrupt(RequestId(number)).is_none()));
        assert_eq!(waits.interrupted.len(), MAX_INTERRUPTED);
        assert!(waits.add(RequestId(0), wait()));
        assert!(!waits.add(RequestId(count - 1), wait()));
    }
}
