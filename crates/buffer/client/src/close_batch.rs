//! Batches close requests. Nobody waits for a close, so handles are collected for a millisecond and
//! sent in one request.

use crate::sessions::Sessions;
use forebay_protocol::message::{FileRequest, MAX_CLOSED_HANDLES};
use forebay_protocol::{HandleId, NodeIndex};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a handle waits for others.
const BATCH_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of waiting handles; beyond it each close is sent at once.
const MAX_QUEUED: usize = 1 << 14;

#[derive(Debug, Default)]
struct Queue {
    handles: BTreeMap<NodeIndex, Vec<HandleId>>,
    count: usize,
    /// The thread waits to be notified.
    is_asleep: bool,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A thread that sends close requests. Dropping it sends the last ones.
#[derive(Debug)]
pub struct CloseBatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CloseBatch {
    /// Starts the thread. `None` if that fails: each close has to be sent by itself.
    pub fn start(sessions: &Arc<Sessions>) -> Option<CloseBatch> {
        let shared = Arc::<Shared>::default();
        let (ours, sessions) = (shared.clone(), Arc::downgrade(sessions));
        let thread = std::thread::Builder::new()
            .name("forebay-closes".into())
            .spawn(move || send_batches(&ours, &sessions));
        Some(CloseBatch { shared, thread: Some(thread.ok()?) })
    }

    /// Queues a handle. Returns `false` if too many are waiting.
    pub fn push(&self, node: NodeIndex, handle: HandleId) -> bool {
        let mut queue = self.shared.queue.lock();
        assert!(queue.count <= MAX_QUEUED);
        if queue.count == MAX_QUEUED {
            return false;
        }
        queue.count += 1;
        queue.handles.entry(node).or_default().push(handle);
        let is_asleep = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if is_asleep {
            self.shared.changed.notify_one();
        }
        true
    }
}

impl Drop for CloseBatch {
    fn drop(&mut self) {
        self.shared.queue.lock().has_ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send_batches(shared: &Shared, sessions: &Weak<Sessions>) {
    loop {
        let mut queue = shared.queue.lock();
        while queue.count == 0 {
            if queue.has_ended {
                return;
            }
            queue.is_asleep = true;
            shared.changed.wait(&mut queue);
        }
        queue.is_asleep = false;
        if !queue.has_ended {
            drop(queue);
            std::thread::sleep(BATCH_INTERVAL);
            queue = shared.queue.lock();
        }
        let count = std::mem::take(&mut queue.count);
        let handles = std::mem::take(&mut queue.handles);
        drop(queue);
        assert_eq!(handles.values().map(Vec::len).sum::<usize>(), count);
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        for (node, handles) in handles {
            for batch in handles.chunks(MAX_CLOSED_HANDLES) {
                let request = FileRequest::CloseAll { handles: batch.to_vec() };
                // If the session is lost, the handles are closed.
                let _ = sessions.exchange(node, None, request.into());
            }
        }
    }
}
