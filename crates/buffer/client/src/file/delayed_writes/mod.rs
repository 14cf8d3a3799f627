//! Small sequential writes that are reported to the program before the storage node has them.
//!
//! After some adjacent small writes the client asks for a write lease on the file. While it has that, a
//! write is copied into a queue, and a thread sends the queue: the first write at once, and all that
//! were made until its reply as one. So there is no time for which a write waits while nothing is on
//! its way, and no request for each write while there are many.
//!
//! No client observes the file before all delayed writes are acknowledged: other sessions wait for the
//! lease, and this client sends none of its other requests before ([`PendingWrites::finish`]). Writes
//! that are not small and adjacent are sent at once, when the delayed ones are acknowledged.
//!
//! A delayed write that fails is reported by the next write, sync or flush of each open file with that
//! inode. Space is reserved before a write is delayed, so that it does not fail for want of it.
//!
//! [`PendingWrites::finish`]: crate::sessions::PendingWrites::finish

mod sender;

use super::File;
use forebay_protocol::message::WRITE_LEASE_RECALL_NS;
use forebay_protocol::{Errno, HandleId, Ino, LeaseId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Adjacent small writes after which they are delayed. The lease and the thread cost a file that is closed
/// soon as much as two or three writes.
const MIN_SEQUENTIAL: u32 = 16;
/// Longest write that is delayed, in bytes: larger ones use the network well.
const MAX_WRITE: usize = 256 << 10;
/// Most bytes in the queue of a file; as many may be on their way.
const MAX_QUEUE: usize = 1 << 20;
/// Time since the request that last confirmed the lease for which writes are delayed. It is shorter than
/// the time for which others wait for a lease after its recall.
const MAX_SILENCE: Duration = Duration::from_secs(1);
const _: () = assert!(MAX_SILENCE.as_nanos() < WRITE_LEASE_RECALL_NS as u128);
/// Age of the last confirmation at which the next one is requested.
const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(400);
/// Time after a refusal or a recall until a lease is requested again.
const REFUSAL_TIME: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
struct State {
    /// The end of the last write.
    next: u64,
    /// Adjacent small writes in a row.
    sequential: u32,
    lease: Option<LeaseId>,
    /// No lease is requested before.
    refused_until: Option<Instant>,
    /// Time when the request was sent that last confirmed the lease.
    confirmed_at: Option<Instant>,
    /// Delayed writes that are not on their way, adjacent from `start` on.
    queue: Vec<u8>,
    start: u64,
    /// Bytes that were delayed, and those of them whose requests are over.
    delayed: u64,
    finished: u64,
    sender: Option<JoinHandle<()>>,
    is_sender_running: bool,
    /// The file is being closed.
    is_closed: bool,
}

impl State {
    fn is_pending(&self) -> bool {
        assert!(self.finished + self.queue.len() as u64 <= self.delayed);
        self.finished < self.delayed
    }

    /// Whether the storage node has heard of this client within a time before `now`.
    fn is_confirmed(&self, within: Duration, now: Instant) -> bool {
        self.confirmed_at.is_some_and(|at| now.saturating_duration_since(at) < within)
    }

    /// Whether a write at `offset` may be delayed now.
    fn may_delay(&self, offset: u64, now: Instant) -> bool {
        let is_adjacent = self.queue.is_empty() || self.start + self.queue.len() as u64 == offset;
        let is_leased = self.lease.is_some() && self.is_confirmed(MAX_SILENCE, now);
        is_leased && is_adjacent && !self.is_closed
    }
}

/// The delayed writes of an open file.
#[derive(Debug)]
pub struct DelayedWrites {
    ino: Ino,
    handle: HandleId,
    state: Mutex<State>,
    changed: Condvar,
}

impl DelayedWrites {
    /// For a file that is open for writing.
    pub fn new(ino: Ino, handle: HandleId) -> Arc<DelayedWrites> {
        Arc::new(DelayedWrites { ino, handle, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The inode of the file.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The handle of the file.
    pub fn handle(&self) -> HandleId {
        self.handle
    }

    /// Delays a write. `false`: it must be sent at once.
    pub fn write(self: &Arc<DelayedWrites>, file: &File, data: &[u8], offset: u64) -> bool {
        if !self.is_sequential(data.len(), offset) {
            return false;
        }
        if !self.is_leased(file) || !self.has_sender(file) || !reserve(file, data.len(), offset) {
            return false;
        }
        let mut state = self.state.lock();
        loop {
            if !state.may_delay(offset, Instant::now()) {
                return false;
            }
            if state.queue.len() + data.len() <= MAX_QUEUE {
                break;
            }
            self.changed.wait(&mut state);
        }
        self.queue(&mut state, file, data, offset)
    }

    /// Notes a write. Returns whether it is small and follows adjacent ones.
    fn is_sequential(&self, length: usize, offset: u64) -> bool {
        let mut state = self.state.lock();
        let is_adjacent = state.next == offset && (1..=MAX_WRITE).contains(&length);
        state.sequential = if is_adjacent { state.sequential.saturating_add(1) } else { 0 };
        state.next = offset + length as u64;
        state.sequential >= MIN_SEQUENTIAL
    }

    fn queue(
        self: &Arc<DelayedWrites>,
        state: &mut MutexGuard<'_, State>,
        file: &File,
        data: &[u8],
        offset: u64,
    ) -> bool {
        // It ends when it has been idle.
        if !state.is_sender_running && !sender::start(self, state, &file.parts) {
            return false;
        }
        if !state.is_pending() {
            file.parts.attachment.sessions.pending_writes.add(self);
        }
        if state.queue.is_empty() {
            state.start = offset;
            // The sender may wait for the first write.
            self.changed.notify_all();
        }
        state.queue.extend_from_slice(data);
        state.delayed += data.len() as u64;
        assert!(state.queue.len() <= MAX_QUEUE && state.is_pending());
        true
    }

    /// Whether there is a thread that sends the queue, which is started if necessary.
    fn has_sender(self: &Arc<DelayedWrites>, file: &File) -> bool {
        let mut state = self.state.lock();
        state.is_sender_running || sender::start(self, &mut state, &file.parts)
    }

    /// Whether there is a lease, which is requested or confirmed if necessary.
    fn is_leased(self: &Arc<DelayedWrites>, file: &File) -> bool {
        {
            let mut state = self.state.lock();
            let now = Instant::now();
            if state.lease.is_some() && state.is_confirmed(CONFIRMATION_INTERVAL, now) {
                return true;
            }
            if state.refused_until.is_some_and(|until| now < until) {
                // Another thread may have requested a confirmation.
                return state.lease.is_some();
            }
            state.refused_until = Some(now + REFUSAL_TIME);
        }
        // Recalls are noticed at once.
        let session = file.parts.attachment.sessions.watched_session(file.parts.primary.node);
        session.is_ok_and(|session| session.request_write_lease(self))
    }

    /// The lease is valid: the reply to a request says so that was sent at `sent_at`.
    pub fn leased(&self, lease: LeaseId, sent_at: Instant) {
        let mut state = self.state.lock();
        state.lease = Some(lease);
        state.confirmed_at = state.confirmed_at.max(Some(sent_at));
    }

    /// From now on no write is delayed.
    pub fn end_lease(&self) {
        let mut state = self.state.lock();
        state.refused_until = Some(Instant::now() + REFUSAL_TIME);
        state.lease = None;
    }

    /// The storage node does not know the lease any more. Returns whether it may have let others open the
    /// file before the writes that are delayed: in a new session, and if this client was silent before
    /// it lost contact at `interrupted_at`.
    pub fn lose_lease(&self, new_session: bool, interrupted_at: Instant) -> bool {
        let mut state = self.state.lock();
        state.lease = None;
        let is_silent = !state.is_confirmed(MAX_SILENCE, interrupted_at);
        state.is_pending() && (new_session || is_silent)
    }

    /// Whether the lease should be confirmed before more writes are sent.
    fn needs_confirmation(&self) -> bool {
        let state = self.state.lock();
        state.lease.is_some() && !state.is_confirmed(CONFIRMATION_INTERVAL, Instant::now())
    }

    /// Waits until the requests of all writes that are delayed now are over.
    pub fn finish(&self) {
        self.finish_before(None);
    }

    /// As [`finish`](DelayedWrites::finish), but not longer than `timeout`. Returns whether they are
    /// over.
    pub fn finish_within(&self, timeout: Duration) -> bool {
        self.finish_before(Some(Instant::now() + timeout))
    }

    fn finish_before(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        let delayed = state.delayed;
        while state.finished < delayed {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    if self.changed.wait_until(&mut state, deadline).timed_out() {
                        return state.finished >= delayed;
                    }
                }
            }
        }
        true
    }

    /// The file is being closed: all delayed writes are finished, and none is delayed any more.
    pub fn close(&self) {
        self.finish();
        let sender = {
            let mut state = self.state.lock();
            state.is_closed = true;
            self.changed.notify_all();
            state.sender.take()
        };
        if let Some(sender) = sender {
            let _ = sender.join();
        }
        assert!(!self.state.lock().is_pending(), "a closed file has no delayed writes");
    }
}

/// Reserves the space for a write. `false`: there is less, or an error.
fn reserve(file: &File, length: usize, offset: u64) -> bool {
    let (part, attachment) = (&file.parts.primary, &file.parts.attachment);
    match part.reserve_at_hand(attachment, length, offset) {
        Ok(false) => {
            // The storage node takes the whole reservation for used when it is asked for more.
            file.finish_writes();
            part.try_reserve(attachment, length, offset) == Ok(true)
        }
        reserved => reserved == Ok(true),
    }
}

/// The error of a write to a file whose writes may be delayed, as it is reported to the program.
pub fn reported(errno: Errno) -> Errno {
    match errno {
        // The node has refused the handle since another client changed the file.
        Errno::EBADF | Errno::ESTALE => Errno::EIO,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delayed writes under a lease that was confirmed at `confirmed_at`.
    fn leased(confirmed_at: Instant, pending: &[u8]) -> Arc<DelayedWrites> {
        let writes = DelayedWrites::new(Ino(2), HandleId(1));
        writes.leased(LeaseId(1), confirmed_at);
        let mut state = writes.state.lock();
        state.queue.extend_from_slice(pending);
        state.delayed = pending.len() as u64;
        drop(state);
        writes
    }

    #[test]
    fn writes_are_lost_with_their_session_or_if_others_may_have_opened_the_file() {
        let confirmed = Instant::now();
        let soon = confirmed + MAX_SILENCE / 2;
        let late = confirmed + MAX_SILENCE;
        for (pending, new_session, interrupted_at, are_lost) in [
            (b"data".as_slice(), false, soon, false),
            (b"data", false, late, true),
            (b"data", true, soon, true),
            (b"", true, late, false),
        ] {
            let writes = leased(confirmed, pending);
            assert!(writes.state.lock().may_delay(pending.len() as u64, soon));
            assert_eq!(writes.lose_lease(new_session, interrupted_at), are_lost);
            assert!(!writes.state.lock().may_delay(pending.len() as u64, soon));
        }
    }

    #[test]
    fn nothing_is_delayed_without_a_recent_confirmation() {
        let confirmed = Instant::now();
        let writes = leased(confirmed, b"data");
        let may_delay = |offset, at| writes.state.lock().may_delay(offset, at);
        assert!(may_delay(4, confirmed));
        assert!(!may_delay(4, confirmed + MAX_SILENCE));
        assert!(!may_delay(5, confirmed), "it is not adjacent");
        writes.end_lease();
        assert!(!may_delay(4, confirmed));
    }
}
