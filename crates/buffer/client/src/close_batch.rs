//! Files that were closed, on their way to the daemon: those that nobody waits for are told of
//! together, which costs a fraction of telling of each.

use crate::session::lock;
use crate::sessions::Sessions;
use forebay_protocol::message::FileRequest;
use forebay_protocol::message::MAX_CLOSED_HANDLES;
use forebay_protocol::{HandleId, NodeIndex, Request};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a handle waits for others.
const PAUSE: Duration = Duration::from_millis(1);
/// Handles that may wait; of one beyond them the daemon is told at once.
const MOST: usize = 1 << 14;

#[derive(Debug, Default)]
struct Queue {
    handles: BTreeMap<NodeIndex, Vec<HandleId>>,
    count: usize,
    /// The thread waits until it is told.
    asleep: bool,
    ended: bool,
}

#[derive(Debug, Default)]
struct Inbox {
    queue: Mutex<Queue>,
    more: Condvar,
}

/// A thread that tells daemons of closed files. Dropping it tells of the last ones.
#[derive(Debug)]
pub struct CloseBatch {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl CloseBatch {
    /// Start the thread. `None`: there can be none, so each close has to be told by itself.
    pub fn start(sessions: &Arc<Sessions>) -> Option<CloseBatch> {
        let inbox = Arc::<Inbox>::default();
        let (ours, sessions) = (inbox.clone(), Arc::downgrade(sessions));
        let thread = std::thread::Builder::new()
            .name("forebay-closes".into())
            .spawn(move || run(&ours, &sessions));
        Some(CloseBatch {
            inbox,
            thread: Some(thread.ok()?),
        })
    }

    /// Tell of a handle soon. `false`: that has to be done now, too many wait.
    pub fn push(&self, node: NodeIndex, handle: HandleId) -> bool {
        let mut queue = lock(&self.inbox.queue);
        if queue.count >= MOST {
            return false;
        }
        queue.count += 1;
        queue.handles.entry(node).or_default().push(handle);
        let asleep = std::mem::take(&mut queue.asleep);
        drop(queue);
        if asleep {
            self.inbox.more.notify_one();
        }
        true
    }
}

impl Drop for CloseBatch {
    fn drop(&mut self) {
        lock(&self.inbox.queue).ended = true;
        self.inbox.more.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(inbox: &Inbox, sessions: &Weak<Sessions>) {
    loop {
        let mut queue = lock(&inbox.queue);
        while queue.count == 0 {
            if queue.ended {
                return;
            }
            queue.asleep = true;
            queue = inbox
                .more
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.asleep = false;
        if !queue.ended {
            drop(queue);
            std::thread::sleep(PAUSE);
            queue = lock(&inbox.queue);
        }
        queue.count = 0;
        let handles = std::mem::take(&mut queue.handles);
        drop(queue);
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        for (node, handles) in handles {
            for some in handles.chunks(MAX_CLOSED_HANDLES) {
                let handles = some.to_vec();
                // What has lost its session is closed.
                let _ =
                    sessions.exchange(node, None, Request::File(FileRequest::CloseAll { handles }));
            }
        }
    }
}
