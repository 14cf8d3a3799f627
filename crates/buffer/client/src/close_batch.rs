//! Batches close requests. No program waits for a close, so handles are collected for a millisecond and
//! sent in one request.

use crate::sessions::Sessions;
use forebay_protocol::message::{FileRequest, MAX_CLOSED_HANDLES};
use forebay_protocol::{HandleId, NodeIndex};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time for which a handle waits for others.
const BATCH_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of waiting handles; beyond it each close is sent at once.
const MAX_QUEUED: usize = 1 << 12;

type Handle = (NodeIndex, HandleId);

/// A thread that sends close requests. Dropping it sends the last ones.
#[derive(Debug)]
pub struct CloseBatch {
    /// `None` when it ends.
    queue: Option<SyncSender<Handle>>,
    thread: Option<JoinHandle<()>>,
}

impl CloseBatch {
    /// Starts the thread. `None` if that fails: each close is one request then.
    pub fn start(sessions: &Arc<Sessions>) -> Option<CloseBatch> {
        let (queue, handles) = sync_channel(MAX_QUEUED);
        let sessions = Arc::downgrade(sessions);
        let thread = std::thread::Builder::new().name("forebay-closes".into());
        let thread = thread.spawn(move || send_batches(&handles, &sessions)).ok()?;
        Some(CloseBatch { queue: Some(queue), thread: Some(thread) })
    }

    /// Queues a handle. Returns `false` if too many are waiting.
    pub fn push(&self, node: NodeIndex, handle: HandleId) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.try_send((node, handle)).is_ok())
    }
}

impl Drop for CloseBatch {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send_batches(queue: &Receiver<Handle>, sessions: &Weak<Sessions>) {
    while let Ok(first) = queue.recv() {
        std::thread::sleep(BATCH_INTERVAL);
        let mut handles: BTreeMap<NodeIndex, Vec<HandleId>> = BTreeMap::new();
        for (node, handle) in [first].into_iter().chain(queue.try_iter().take(MAX_QUEUED)) {
            handles.entry(node).or_default().push(handle);
        }
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
