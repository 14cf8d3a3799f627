//! Small sequential writes that are reported to the program before the storage nodes have them.
//!
//! After some adjacent small writes the client asks for a write lease on the data object that the next one
//! goes to. While it has that, a write is copied into a queue, and a thread sends the queue: the first write
//! at once, and all that were made until its reply as one. So there is no time for which a write waits while
//! nothing is on its way, and no request for each write while there are many.
//!
//! No client observes a data object before all delayed writes to it are acknowledged: other sessions wait
//! for the lease of its storage node, and this client sends none of its other requests before
//! ([`PendingWrites::finish`]). Writes that are not small and adjacent are sent at once, when the delayed
//! ones are acknowledged.
//!
//! A delayed write that fails is reported by the next write, sync or flush of each open file with that
//! inode. Space is reserved before a write is delayed, so that it does not fail for want of it.
//!
//! [`PendingWrites::finish`]: crate::sessions::PendingWrites::finish

mod lease;
mod sender;
#[cfg(test)]
mod tests;

use super::File;
use forebay_policy::layout::{Extent, Layout};
use forebay_protocol::{Errno, HandleId, Ino, LeaseId, NodeIndex};
use lease::{CONFIRMATION_INTERVAL, MAX_SILENCE, NodeLease};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::ops::Range;
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

#[derive(Debug, Default)]
struct State {
    /// The end of the last write.
    next: u64,
    /// Adjacent small writes in a row.
    sequential: u32,
    /// The leases on the data objects.
    leases: BTreeMap<NodeIndex, NodeLease>,
    /// Delayed writes that are not on their way, adjacent from `start` on.
    queue: Vec<u8>,
    start: u64,
    /// The range of those that are on their way.
    in_flight: Range<u64>,
    /// Bytes that were delayed, and those of them whose requests are over.
    delayed: u64,
    finished: u64,
    sender: Option<JoinHandle<()>>,
    is_sender_running: bool,
    /// The file is being closed.
    is_closed: bool,
    /// Another client may have opened or truncated the file before writes that were delayed: these, and all
    /// later ones, fail.
    is_lost: bool,
}

impl State {
    fn is_pending(&self) -> bool {
        assert!(self.finished + self.queue.len() as u64 <= self.delayed);
        self.finished < self.delayed
    }

    /// Whether a write at `offset` to these data objects may be delayed now.
    fn may_delay(
        &self,
        offset: u64,
        mut extents: impl Iterator<Item = Extent>,
        now: Instant,
    ) -> bool {
        let is_adjacent = self.queue.is_empty() || self.start + self.queue.len() as u64 == offset;
        let is_leased = |extent: Extent| {
            let lease = self.leases.get(&extent.node);
            lease.is_some_and(|lease| lease.is_valid(MAX_SILENCE, now))
        };
        is_adjacent && !self.is_closed && !self.is_lost && extents.all(is_leased)
    }
}

/// The delayed writes of an open file.
#[derive(Debug)]
pub struct DelayedWrites {
    ino: Ino,
    handle: HandleId,
    layout: Layout,
    state: Mutex<State>,
    changed: Condvar,
}

impl DelayedWrites {
    /// For a file that is open for writing.
    pub fn new(ino: Ino, handle: HandleId, layout: Layout) -> Arc<DelayedWrites> {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(DelayedWrites { ino, handle, layout, state, changed })
    }

    /// The inode of the file.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The handle of the file.
    pub fn handle(&self) -> HandleId {
        self.handle
    }

    /// The parts of a range in the data objects.
    fn extents(&self, offset: u64, length: u64) -> impl Iterator<Item = Extent> + use<> {
        self.layout.extents(self.ino, offset, length)
    }

    /// Delays a write. `false`: it must be sent at once.
    pub fn write(self: &Arc<DelayedWrites>, file: &File, data: &[u8], offset: u64) -> bool {
        if !self.is_sequential(data.len(), offset) {
            return false;
        }
        let extents = || self.extents(offset, data.len() as u64);
        if !extents().all(|extent| self.is_remote_and_leased(file, extent.node))
            || !self.has_sender(file)
            || !extents().all(|extent| reserve(file, &extent))
        {
            return false;
        }
        let mut state = self.state.lock();
        loop {
            if !state.may_delay(offset, extents(), Instant::now()) {
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

    /// Whether the data object on a node is on another host, and leased. It is opened, and the lease requested
    /// or confirmed, if necessary.
    fn is_remote_and_leased(self: &Arc<DelayedWrites>, file: &File, node: NodeIndex) -> bool {
        if !file.parts.part(node).is_ok_and(|part| part.object.is_none()) {
            return false;
        }
        {
            let mut state = self.state.lock();
            let lease = state.leases.entry(node).or_default();
            let now = Instant::now();
            if lease.is_valid(CONFIRMATION_INTERVAL, now) {
                return true;
            }
            if !lease.may_request(now) {
                // Another thread may have requested a confirmation.
                return lease.is_held();
            }
        }
        // Recalls are noticed at once.
        let session = file.parts.attachment.sessions.watched_session(node);
        session.is_ok_and(|session| session.request_write_lease(self))
    }

    /// Waits until the requests of all writes that are delayed now are over.
    pub fn finish(&self) {
        self.finish_before(None, |_| true);
    }

    /// As [`finish`](DelayedWrites::finish), but not longer than `timeout`. Returns whether they are
    /// over.
    pub fn finish_within(&self, timeout: Duration) -> bool {
        self.finish_before(Some(Instant::now() + timeout), |_| true)
    }

    /// The same for those to the data object on a node.
    pub fn finish_on_within(&self, node: NodeIndex, timeout: Duration) -> bool {
        let is_affected = |state: &State| self.is_pending_on(state, node);
        self.finish_before(Some(Instant::now() + timeout), is_affected)
    }

    fn finish_before(
        &self,
        deadline: Option<Instant>,
        is_affected: impl Fn(&State) -> bool,
    ) -> bool {
        let mut state = self.state.lock();
        let delayed = state.delayed;
        while state.finished < delayed && is_affected(&state) {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    if self.changed.wait_until(&mut state, deadline).timed_out() {
                        return state.finished >= delayed || !is_affected(&state);
                    }
                }
            }
        }
        true
    }

    /// Whether there are delayed writes to the data object on a node.
    fn is_pending_on(&self, state: &State, node: NodeIndex) -> bool {
        let queued = state.start..state.start + state.queue.len() as u64;
        let on_node = |range: &Range<u64>| {
            let mut extents = self.extents(range.start, range.end - range.start);
            extents.any(|extent| extent.node == node)
        };
        [queued, state.in_flight.clone()].iter().any(on_node)
    }

    /// `EIO` if another client may have opened or truncated the file before writes that were delayed.
    pub fn check(&self) -> Result<(), Errno> {
        if self.state.lock().is_lost { Err(Errno::EIO) } else { Ok(()) }
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

/// Reserves the space for a part of a write. `false`: there is less, or an error.
fn reserve(file: &File, extent: &Extent) -> bool {
    let (attachment, length) = (&file.parts.attachment, extent.length as usize);
    let Ok(part) = file.parts.part(extent.node) else {
        return false;
    };
    match part.reserve_at_hand(attachment, length, extent.object_offset) {
        Ok(false) => {
            // The storage node takes the whole reservation for used when it is asked for more.
            file.finish_writes();
            part.try_reserve(attachment, length, extent.object_offset) == Ok(true)
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
