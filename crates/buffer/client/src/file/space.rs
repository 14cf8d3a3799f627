//! What to do when space runs out.

use super::File;
use crate::fs::Fs;
use crate::session::lock;
use forebay_protocol::{HandleId, NodeIndex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// How often removals by other clients are waited for, at most.
const BETWEEN_FLUSHES: Duration = Duration::from_secs(1);
/// First pause while removals reach the nodes, and the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(64));

/// Removals by this client.
#[derive(Debug, Default)]
pub struct Removals {
    /// There were some since they were last waited for.
    some: AtomicBool,
    /// When that was.
    flushed: Mutex<Option<Instant>>,
}

impl Removals {
    pub fn record(&self) {
        self.some.store(true, Ordering::Release);
    }
}

impl Fs {
    /// Return what other writers of this client were promised on `node` and have not used. `false`:
    /// there was nothing to return.
    pub(super) fn return_reservations(&self, node: NodeIndex, except: HandleId) -> bool {
        let writers: Vec<Arc<File>> = {
            let mut writers = lock(&self.writers);
            writers.retain(|writer| writer.strong_count() > 0);
            writers.iter().filter_map(Weak::upgrade).collect()
        };
        let mut any = false;
        for writer in writers.iter().filter(|writer| writer.handle() != except) {
            for part in writer.parts().filter(|part| part.node == node) {
                if part.reserved() > 0 {
                    part.return_reservation(self);
                    any = true;
                }
            }
        }
        any
    }

    /// Can there be space that removed files take only for a moment? With several nodes that is so
    /// until the others have heard of it. With one, until their last handles are closed: the kernel
    /// tells a mount of that when the program has gone on already.
    pub(super) fn may_flush_removals(&self) -> bool {
        let now = self.sessions.system().now();
        let own = self.removals.some.swap(false, Ordering::AcqRel);
        if !self.sessions.striped() {
            return own;
        }
        let mut last = lock(&self.removals.flushed);
        let due = own || last.is_none_or(|last| now - last >= BETWEEN_FLUSHES);
        if due {
            *last = Some(now);
        }
        due
    }

    /// A file's home has its data objects on other nodes removed when its removal is durable. Make it
    /// so, and give that some time to reach the nodes, and closes theirs, until `enough`.
    pub(super) fn flush_removals(&self, mut enough: impl FnMut() -> bool) {
        if self.sessions.striped() && self.sync().is_err() {
            return;
        }
        let (mut pause, longest) = PAUSES;
        while !enough() && pause <= longest {
            self.sessions.system().sleep(pause);
            pause *= 2;
        }
    }
}
