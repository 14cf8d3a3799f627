//! Changes of entries that are reported to programs before the storage node has made them.
//!
//! The daemon gives a [delegation](forebay_protocol::message::Delegated) to the only client of an instance.
//! Each change under it is *outstanding* from before it is reported until the reply. All other requests of
//! this client that could observe it, or depend on it, are sent when it is over, and a recall is answered
//! when all are. Changes of the same entry are sent one after the other. A failure is logged, and reported by the
//! next sync of the directory, and of the file that was to be created.

use super::Sessions;
use crate::session::SessionReply;
use forebay_protocol::message::{Delegated, NameRequest};
use forebay_protocol::{Credentials, Errno, Ino, NodeIndex, Request, Timestamp};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of outstanding changes. Each occupies a thread, of which a mount has 8 or more, and a
/// connection.
const MAX_OUTSTANDING: usize = 4;
/// Maximum number of directories and files of which a failure is known.
const MAX_FAILED: usize = 1024;

/// A delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    number: u64,
    /// No change is reported after it.
    until: Instant,
}

/// A name in a directory.
type Entry = (Ino, Vec<u8>);

/// What a program was told of a change.
#[derive(Clone, Copy, Debug)]
pub struct Reported {
    /// The directory whose entry changes.
    pub dir: Ino,
    /// The file that was created.
    pub created: Option<Ino>,
    /// The time of the change.
    pub now: Timestamp,
}

#[derive(Debug, Default)]
struct State {
    grant: Option<Grant>,
    /// Changes begun so far.
    begun: u64,
    /// Those that are outstanding, by their numbers, with the entries.
    outstanding: BTreeMap<u64, Entry>,
    /// Directories with failed changes, and files that were not created, whose errors were not reported.
    failed: BTreeMap<Ino, Errno>,
    /// Of more of them the error is reported by the next sync of any.
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

    /// The number of the delegation, if there is one at `now`.
    pub fn number(&self, now: Instant) -> Option<u64> {
        let grant = self.state.lock().grant.filter(|grant| now < grant.until)?;
        Some(grant.number)
    }

    /// Begins a change of an entry of a directory, which may be reported before it is made. `None`: there is
    /// no delegation. Waits while too many are outstanding.
    pub fn begin(
        &self,
        (dir, name): (Ino, &[u8]),
        now: impl Fn() -> Instant,
    ) -> Option<OutstandingChange<'_>> {
        let mut state = self.state.lock();
        loop {
            let grant = state.grant.filter(|grant| now() < grant.until)?;
            if state.outstanding.len() < MAX_OUTSTANDING {
                state.begun += 1;
                let change = state.begun;
                state.outstanding.insert(change, (dir, name.to_owned()));
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
        while state.outstanding.first_key_value().is_some_and(|(change, _)| *change <= last) {
            self.finished.wait(&mut state);
        }
        true
    }

    fn record_failure(&self, ino: Ino, errno: Errno) {
        let mut state = self.state.lock();
        if state.failed.len() < MAX_FAILED || state.failed.contains_key(&ino) {
            state.failed.insert(ino, errno);
        } else {
            state.failed_elsewhere = Some(errno);
        }
    }

    /// Reports a failed change of an entry of a directory, or that a file was not created, once.
    pub fn report_failure(&self, ino: Ino) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let failed = state.failed.remove(&ino).or_else(|| state.failed_elsewhere.take());
        failed.map_or(Ok(()), Err)
    }
}

impl OutstandingChange<'_> {
    /// End of the time for which the names and attributes are valid that this client knows.
    pub fn until(&self) -> Instant {
        self.grant.until
    }

    /// Waits until those of the same entry are over that have begun before.
    fn follow_earlier(&self) {
        let mut state = self.delegation.state.lock();
        let is_earlier = |state: &State| {
            let own = state.outstanding.get(&self.change);
            state.outstanding.range(..self.change).any(|(_, other)| Some(other) == own)
        };
        while is_earlier(&state) {
            self.delegation.finished.wait(&mut state);
        }
    }
}

impl Drop for OutstandingChange<'_> {
    fn drop(&mut self) {
        let mut state = self.delegation.state.lock();
        let was_outstanding = state.outstanding.remove(&self.change).is_some();
        assert!(was_outstanding, "a change ends once");
        self.delegation.count.store(state.outstanding.len(), Ordering::SeqCst);
        drop(state);
        self.delegation.finished.notify_all();
    }
}

impl Sessions {
    /// Makes a change that was reported. Returns the time for which its reply may be cached. An error is
    /// logged, and reported by the next sync. `meanwhile` is called when the request is sent; it must not wait
    /// for a connection.
    pub fn carry_out(
        &self,
        change: OutstandingChange<'_>,
        Reported { dir, created, now }: Reported,
        caller: &Credentials,
        request: NameRequest,
        meanwhile: impl FnOnce(),
    ) -> Result<Duration, Errno> {
        change.follow_earlier();
        let delegated = Delegated { number: change.grant.number, now, request };
        let request = delegated.clone().into();
        let result = self.exchange_delegated(dir.metadata_node(), caller, request, meanwhile);
        let result = result.and_then(|reply| reply.into_result::<()>());
        result.map(|reply| reply.ttl).inspect_err(|errno| {
            tracing::error!(%errno, %dir, change = ?delegated.request,
                "a change that was reported to a program as made has failed");
            let inos = [dir].into_iter().chain(created);
            inos.for_each(|ino| self.delegation.record_failure(ino, reported(*errno)));
        })
    }

    /// As [`exchange`](Sessions::exchange), without the wait for other outstanding changes.
    fn exchange_delegated(
        &self,
        node: NodeIndex,
        caller: &Credentials,
        request: Request,
        meanwhile: impl FnOnce(),
    ) -> Result<SessionReply, Errno> {
        let recalls = self.cache_recalls.count();
        let sent_at = self.options.system.now();
        let session = self.session(node)?;
        let pending = session.send_call(Some(caller), request)?;
        meanwhile();
        let mut reply = session.receive_or_retransmit(pending)?;
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

    fn begin<'a>(
        delegation: &'a Delegation,
        name: &str,
        now: Instant,
    ) -> Option<OutstandingChange<'a>> {
        delegation.begin((Ino(2), name.as_bytes()), || now)
    }

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
        assert!(begin(&delegation, "a", now).is_none());
        delegation.extend(7, soon, || true);
        assert!(begin(&delegation, "a", now).is_none(), "it was recalled before");
        delegation.extend(7, soon, || false);
        assert_eq!(begin(&delegation, "a", now).map(|change| change.until()), Some(soon));
        assert!(begin(&delegation, "a", soon).is_none());
        delegation.end();
        assert!(begin(&delegation, "a", now).is_none());
    }

    #[test]
    fn recall_and_requests_wait_for_outstanding_changes() {
        let now = Instant::now();
        let delegation = granted(now + Duration::from_secs(60));
        let (first, second) = (begin(&delegation, "a", now), begin(&delegation, "a", now));
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
        assert!(begin(&delegation, "a", now).is_none());
    }

    #[test]
    fn changes_of_an_entry_follow_each_other() {
        let now = Instant::now();
        let delegation = granted(now + Duration::from_secs(60));
        let first = begin(&delegation, "a", now);
        let (same, other) = (begin(&delegation, "a", now), begin(&delegation, "b", now));
        other.iter().for_each(OutstandingChange::follow_earlier);
        first.iter().for_each(OutstandingChange::follow_earlier);
        std::thread::scope(|scope| {
            let follow = || same.iter().for_each(OutstandingChange::follow_earlier);
            let following = scope.spawn(follow);
            std::thread::sleep(Duration::from_millis(20));
            drop(other);
            assert!(!following.is_finished());
            drop(first);
        });
    }

    #[test]
    fn outstanding_changes_are_limited() {
        let now = Instant::now();
        let delegation = granted(now + Duration::from_secs(60));
        let mut all: Vec<_> = (0..MAX_OUTSTANDING).map(|_| begin(&delegation, "a", now)).collect();
        assert!(all.iter().all(Option::is_some));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| begin(&delegation, "a", now).map(|_| ()));
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
