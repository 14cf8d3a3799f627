//! The thread that sends the delayed writes of a file.

use super::{DelayedWrites, MAX_QUEUE, State, reported};
use crate::file::parts::Parts;
use crate::sessions::PendingWrites;
use forebay_policy::layout::Extent;
use forebay_protocol::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Time without writes after which the thread ends.
const MAX_IDLE: Duration = Duration::from_secs(1);

/// Starts the thread. `false`: there are too many.
pub fn start(writes: &Arc<DelayedWrites>, state: &mut State, parts: &Arc<Parts>) -> bool {
    let pending = &parts.attachment.sessions.pending_writes;
    if !pending.add_sender() {
        return false;
    }
    let (writes, shared) = (writes.clone(), parts.clone());
    let thread = std::thread::Builder::new().name("forebay-writes".into());
    match thread.spawn(move || run(&writes, &shared)) {
        Ok(sender) => {
            // An earlier one has ended.
            state.sender = Some(sender);
            state.is_sender_running = true;
            true
        }
        Err(_) => {
            pending.remove_sender();
            false
        }
    }
}

fn run(writes: &Arc<DelayedWrites>, parts: &Parts) {
    let pending = &parts.attachment.sessions.pending_writes;
    PendingWrites::begin_sender();
    let mut batch = Vec::new();
    while let Some(offset) = next_batch(writes, &mut batch) {
        let result = send(writes, parts, &batch, offset);
        if let Err(errno) = result {
            tracing::error!(ino = %parts.ino, offset, length = batch.len(), %errno,
                "a delayed write failed");
            pending.record_failure(parts.ino, reported(errno));
            writes.end_all_leases();
        }
        let mut state = writes.state.lock();
        state.in_flight = 0..0;
        state.finished += batch.len() as u64;
        if !state.is_pending() {
            pending.remove(writes);
        }
        batch.clear();
        writes.changed.notify_all();
    }
    pending.remove_sender();
}

/// Takes the queue; `batch` becomes the next one. Returns the offset. `None`: the thread ends.
fn next_batch(writes: &DelayedWrites, batch: &mut Vec<u8>) -> Option<u64> {
    assert!(batch.is_empty());
    let mut state = writes.state.lock();
    let mut is_idle = false;
    while state.queue.is_empty() {
        if is_idle || state.is_closed {
            state.is_sender_running = false;
            // Thousands of open files may be written in turn.
            state.queue = Vec::new();
            return None;
        }
        is_idle = writes.changed.wait_for(&mut state, MAX_IDLE).timed_out();
    }
    std::mem::swap(&mut state.queue, batch);
    assert!(batch.len() <= MAX_QUEUE);
    state.in_flight = state.start..state.start + batch.len() as u64;
    // Writes may wait for space in the queue.
    writes.changed.notify_all();
    Some(state.start)
}

/// Writes all of `data`, whose space is reserved.
fn send(writes: &Arc<DelayedWrites>, parts: &Parts, data: &[u8], offset: u64) -> Result<(), Errno> {
    for extent in writes.extents(offset, data.len() as u64) {
        let start = (extent.offset - offset) as usize;
        let piece = &data[start..start + extent.length as usize];
        let mut sent = send_extent(writes, parts, piece, &extent);
        if let Err(Errno::EBADF | Errno::ESTALE) = sent
            && extent.node != parts.primary.node
            && reopen(writes, parts, &extent)?
        {
            sent = send_extent(writes, parts, piece, &extent);
        }
        if let Err(Errno::EBADF | Errno::ESTALE) = sent {
            // Another client has opened or truncated it.
            writes.lose();
        }
        sent?;
        let mut state = writes.state.lock();
        state.in_flight.start = extent.offset + extent.length;
        writes.changed.notify_all();
    }
    parts.confirm_write()
}

/// Writes the part of the data that is in one data object.
fn send_extent(
    writes: &Arc<DelayedWrites>,
    parts: &Parts,
    data: &[u8],
    extent: &Extent,
) -> Result<(), Errno> {
    let part = parts.part(extent.node)?;
    if writes.needs_confirmation(extent.node) {
        parts.session(extent.node)?.request_write_lease(writes);
    }
    let mut done = 0;
    while done < data.len() {
        let at = extent.object_offset + done as u64;
        let check = || writes.check();
        let count = part.write_if(&parts.attachment, &data[done..], at, &check)?;
        if count == 0 {
            return Err(Errno::EIO);
        }
        done += count;
    }
    assert_eq!(done, data.len());
    Ok(())
}

/// Opens a data object again whose node has restarted after the capability for it had expired. Returns
/// whether the lease is still that under which the writes were delayed.
fn reopen(writes: &Arc<DelayedWrites>, parts: &Parts, extent: &Extent) -> Result<bool, Errno> {
    writes.check()?;
    parts.open_part(extent.node)?;
    parts.session(extent.node)?.is_write_lease_held(writes)
}
