//! Batches close requests. No program waits for a close, so handles are collected for some milliseconds and
//! sent in one request.

use crate::sessions::Sessions;
use forebay_protocol::message::{FileRequest, MAX_CLOSED_HANDLES};
use forebay_protocol::{HandleId, NodeIndex};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time for which a handle waits for others.
const BATCH_INTERVAL: Duration = Duration::from_millis(4);
/// Maximum number of waiting handles; beyond it each close is sent at once.
const MAX_QUEUED: usize = 1 << 12;

#[derive(Debug, Default)]
struct State {
    /// The handles that wait.
    handles: Vec<(NodeIndex, HandleId)>,
    /// Number of handles queued so far, and of those that were sent.
    queued: u64,
    sent: u64,
    /// They are to be sent without waiting for others.
    is_urgent: bool,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// There is a first handle, or handles are to be sent at once.
    has_work: Condvar,
    has_sent: Condvar,
}

/// A thread that sends close requests. Dropping it sends the last ones.
#[derive(Debug)]
pub struct CloseBatch {
    queue: Arc<Queue>,
    /// `None` when it ends.
    thread: Option<JoinHandle<()>>,
}

impl CloseBatch {
    /// Starts the thread. `None` if that fails: each close is one request then.
    pub fn start(sessions: &Arc<Sessions>) -> Option<CloseBatch> {
        let queue = Arc::new(Queue::default());
        let (sessions, served) = (Arc::downgrade(sessions), queue.clone());
        let thread = std::thread::Builder::new().name("forebay-closes".into());
        let thread = thread.spawn(move || send_batches(&served, &sessions)).ok()?;
        Some(CloseBatch { queue, thread: Some(thread) })
    }

    /// Queues a handle. Returns `false` if too many are waiting.
    pub fn push(&self, node: NodeIndex, handle: HandleId) -> bool {
        let mut state = self.queue.state.lock();
        if state.handles.len() >= MAX_QUEUED {
            return false;
        }
        state.handles.push((node, handle));
        state.queued += 1;
        let is_first = state.handles.len() == 1;
        drop(state);
        if is_first {
            self.queue.has_work.notify_one();
        }
        true
    }

    /// Waits until the handles that are queued now are closed, but not beyond `timeout`. `false`: there
    /// were none.
    pub fn finish_within(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.queue.state.lock();
        let queued = state.queued;
        let had_any = state.sent < queued;
        while state.sent < queued {
            state.is_urgent = true;
            self.queue.has_work.notify_one();
            if self.queue.has_sent.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        had_any
    }
}

impl Drop for CloseBatch {
    fn drop(&mut self) {
        self.queue.state.lock().has_ended = true;
        self.queue.has_work.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// Waits for handles, and then some time for more. `None`: there are none any more.
    fn next_batch(&self) -> Option<Vec<(NodeIndex, HandleId)>> {
        let mut state = self.state.lock();
        while state.handles.is_empty() {
            if state.has_ended {
                return None;
            }
            self.has_work.wait(&mut state);
        }
        let until = Instant::now() + BATCH_INTERVAL;
        while !state.is_urgent && !state.has_ended {
            if self.has_work.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.is_urgent = false;
        Some(std::mem::take(&mut state.handles))
    }

    fn note_sent(&self, count: usize) {
        let mut state = self.state.lock();
        state.sent += count as u64;
        assert!(state.sent <= state.queued, "a handle is closed once");
        drop(state);
        self.has_sent.notify_all();
    }
}

fn send_batches(queue: &Queue, sessions: &Weak<Sessions>) {
    while let Some(batch) = queue.next_batch() {
        let count = batch.len();
        let mut handles: BTreeMap<NodeIndex, Vec<HandleId>> = BTreeMap::new();
        for (node, handle) in batch {
            handles.entry(node).or_default().push(handle);
        }
        // Without sessions, there are no handles.
        if let Some(sessions) = sessions.upgrade() {
            for (node, handles) in handles {
                for batch in handles.chunks(MAX_CLOSED_HANDLES) {
                    let request = FileRequest::CloseAll { handles: batch.to_vec() };
                    // If the session is lost, the handles are closed.
                    let _ = sessions.exchange(node, None, request.into());
                }
            }
        }
        queue.note_sent(count);
    }
}
