//! The thread that sends the delayed writes of a file.

use super::{DelayedWrites, MAX_QUEUE, State, reported};
use crate::file::parts::Parts;
use crate::sessions::PendingWrites;
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
        if writes.needs_confirmation()
            && let Ok(session) = parts.attachment.sessions.session(parts.primary.node)
        {
            session.request_write_lease(writes);
        }
        let result = send(parts, &batch, offset);
        if let Err(errno) = result {
            tracing::error!(ino = %parts.ino, offset, length = batch.len(), %errno,
                "a delayed write failed");
            pending.record_failure(parts.ino, reported(errno));
        }
        let mut state = writes.state.lock();
        if result.is_err() {
            state.lease = None;
        }
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
    // Writes may wait for space in the queue.
    writes.changed.notify_all();
    Some(state.start)
}

/// Writes all of `data`, whose space is reserved.
fn send(parts: &Parts, data: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let count = parts.primary.write(&parts.attachment, &data[done..], at)?;
        if count == 0 {
            return Err(Errno::EIO);
        }
        done += count;
    }
    assert_eq!(done, data.len());
    Ok(())
}
