//! Changes of entries that are reported to programs before the storage node has made them.
//!
//! The daemon gives a [delegation](forebay_protocol::message::Delegated) to the only client of an instance.
//! Each change under it is *outstanding* from before it is reported until the reply. All other requests of
//! this client that could observe it, or depend on it, are sent when it is over, and a recall is answered
//! when all are. A failure is logged, and reported by the next sync of the directory.

use super::Sessions;
use crate::session::SessionReply;
use forebay_protocol::message::{Delegated, NameRequest};
use forebay_protocol::{Credentials, Errno, Ino, NodeIndex, Request, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Maximum number of outstanding changes. Each occupies a thread, of which a mount has 8 or more, and a
/// connection.
const MAX_OUTSTANDING: usize = 4;
/// Maximum number of directories of which a failure is known.
const MAX_FAILED: usize = 1024;

/// A delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    number: u64,
    /// No change is reported after it.
    until: Instant,
}

#[derive(Debug, Default)]
struct State {
    grant: Option<Grant>,
    /// Changes begun so far.
    begun: u64,
    /// The numbers of those that are outstanding.
    outstanding: BTreeSet<u64>,
    /// Directories with failed changes whose errors were not reported.
    failed: BTreeMap<Ino, Errno>,
    /// Of more directories the error is reported by the next sync of any.
    failed_elsewhere: Option<Errno>,
}

/// The delegation of a client, and the changes under it.
#[derive(Debug, Default)]
pub struct Delegation {
    state: Mutex<State>,
    /// The number of outstanding changes.
    count: AtomicUsize,
    /// A change is over.
    finished: Condvar,
}

/// A change that is outstanding until this is dropped.
#[derive(Debug)]
pub struct OutstandingChange<'a> {
    delegation: &'a Delegation,
    change: u64,
    grant: Grant,
}

impl Delegation {
    /// The reply to a request grants the delegation of this number, or extends it, unless it was recalled
    /// after the request was sent.
    fn extend(&self, number: u64, until: Instant, is_recalled: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        if !is_recalled() {
            let until = state.grant.map_or(until, |grant| grant.until.max(until));
            state.grant = Some(Grant { number, until });
        }
    }

    /// The delegation is recalled. Returns when no change is outstanding.
    pub(super) fn end(&self) {
        self.state.lock().grant = None;
        self.finish();
    }

    /// Begins a change, which may be reported before it is made. `None`: there is no delegation. Waits
    /// while too many are outstanding.
    pub fn begin(&self, now: impl Fn() -> Instant) -> Option<OutstandingChange<'_>> {
        let mut state = self.state.lock();
        loop {
            let grant = state.grant.filter(|grant| now() < grant.until)?;
            if state.outstanding.len() < MAX_OUTSTANDING {
                state.begun += 1;
                let change = state.begun;
                state.outstanding.insert(change);
                self.count.store(state.outstanding.len(), Ordering::SeqCst);
                return Some(OutstandingChange { delegation: self, change, grant });
            }
            self.finished.wait(&mut state);
        }
    }

    /// Waits until all changes that are outstanding now are over: before a request that could observe
    /// them, or depends on them. `false`: there are none.
    pub fn finish(&self) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut state = self.state.lock();
        let last = state.begun;
        while state.outstanding.first().is_some_and(|change| *change <= last) {
            self.finished.wait(&mut state);
        }
        true
    }

    fn record_failure(&self, dir: Ino, errno: Errno) {
        let mut state = self.state.lock();
        if state.failed.len() < MAX_FAILED || state.failed.contains_key(&dir) {
            state.failed.insert(dir, errno);
        } else {
            state.failed_elsewhere = Some(errno);
        }
    }

    /// Reports a failed change of an entry of a directory, once.
    pub fn report_failure(&self, dir: Ino) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let failed = state.failed.remove(&dir).or_else(|| state.failed_elsewhere.take());
        failed.map_or(Ok(()), Err)
    }
}

impl OutstandingChange<'_> {
    /// End of the time for which the names and attributes are valid that this client knows.
    pub fn until(&self) -> Instant {
        self.grant.until
    }
}

impl Drop for OutstandingChange<'_> {
    fn drop(&mut self) {
        let mut state = self.delegation.state.lock();
        let was_outstanding = state.outstanding.remove(&self.change);
        assert!(was_outstanding, "a change ends once");
        self.delegation.count.store(state.outstanding.len(), Ordering::SeqCst);
        drop(state);
        self.delegation.finished.notify_all();
    }
}

impl Sessions {
    /// Makes a change of an entry of the directory `dir` that was reported at `now`. An error is logged,
    /// and reported by the next sync of the directory.
    pub fn carry_out(
        &self,
        change: OutstandingChange<'_>,
        (dir, now): (Ino, Timestamp),
        caller: &Credentials,
        request: NameRequest,
    ) -> Result<(), Errno> {
        let delegated = Delegated { number: change.grant.number, now, request };
        let request = delegated.clone().into();
        let result = self.exchange_delegated(dir.metadata_node(), caller, request);
        let result = result.and_then(|reply| reply.into_result::<()>());
        result.map(drop).inspect_err(|errno| {
            tracing::error!(%errno, %dir, change = ?delegated.request,
                "a change that was reported to a program as made has failed");
            self.delegation.record_failure(dir, reported(*errno));
        })
    }

    /// As [`exchange`](Sessions::exchange), without the wait for other outstanding changes.
    fn exchange_delegated(
        &self,
        node: NodeIndex,
        caller: &Credentials,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        let recalls = self.cache_recalls.count();
        let sent_at = self.options.system.now();
        let mut reply = self.session(node)?.exchange(Some(caller), request)?;
        reply.ttl = self.limit_ttl(node, reply.ttl, recalls);
        self.note_delegation(&reply, sent_at, recalls);
        Ok(reply)
    }

    /// A reply to a request has come that was sent at `sent_at`, after so many recalls.
    pub(super) fn note_delegation(&self, reply: &SessionReply, sent_at: Instant, recalls: u64) {
        if let Some(number) = reply.delegation.filter(|_| !reply.ttl.is_zero()) {
            let is_recalled = || self.cache_recalls.count() != recalls;
            self.delegation.extend(number, sent_at + reply.ttl, is_recalled);
        }
    }
}

/// The error of a failed change, as a sync reports it.
fn reported(errno: Errno) -> Errno {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => errno,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    fn granted(until: Instant) -> Delegation {
        let delegation = Delegation::default();
        delegation.extend(7, until, || false);
        delegation
    }

    #[test]
    fn changes_begin_only_under_a_delegation() {
        let now = Instant::now();
        let soon = now + Duration::from_secs(1);
        let delegation = Delegation::default();
        assert!(delegation.begin(|| now).is_none());
        delegation.extend(7, soon, || true);
        assert!(delegation.begin(|| now).is_none(), "it was recalled before");
        delegation.extend(7, soon, || false);
        assert_eq!(delegation.begin(|| now).map(|change| change.until()), Some(soon));
        assert!(delegation.begin(|| soon).is_none());
        delegation.end();
        assert!(delegation.begin(|| now).is_none());
    }

    #[test]
    fn recall_and_requests_wait_for_outstanding_changes() {
        let now = Instant::now();
        let delegation = granted(now + Duration::from_secs(60));
        let (first, second) = (delegation.begin(|| now), delegation.begin(|| now));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                delegation.end();
                assert!(is_over.load(Ordering::SeqCst));
            });
            drop(second);
            std::thread::sleep(Duration::from_millis(20));
            is_over.store(true, Ordering::SeqCst);
            drop(first);
        });
        delegation.finish();
        assert!(delegation.begin(|| now).is_none());
    }

    #[test]
    fn outstanding_changes_are_limited() {
        let now = Instant::now();
        let delegation = granted(now + Duration::from_secs(60));
        let mut all: Vec<_> = (0..MAX_OUTSTANDING).map(|_| delegation.begin(|| now)).collect();
        assert!(all.iter().all(Option::is_some));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| delegation.begin(|| now).map(|_| ()));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!next.is_finished());
            all.pop();
            assert_eq!(next.join().ok(), Some(Some(())));
        });
    }

    #[test]
    fn failure_is_reported_once_for_its_directory() {
        let delegation = Delegation::default();
        delegation.record_failure(Ino(2), Errno::ENOSPC);
        assert_eq!(delegation.report_failure(Ino(3)), Ok(()));
        assert_eq!(delegation.report_failure(Ino(2)), Err(Errno::ENOSPC));
        assert_eq!(delegation.report_failure(Ino(2)), Ok(()));
        for dir in 0..=MAX_FAILED as u64 {
            delegation.record_failure(Ino(10 + dir), Errno::EIO);
        }
        assert_eq!(delegation.report_failure(Ino(2)), Err(Errno::EIO), "too many to know");
        assert_eq!(delegation.report_failure(Ino(2)), Ok(()));
    }
}
