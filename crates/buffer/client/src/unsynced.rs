//! What may not be durable yet, and whether it can still become so.
//!
//! A storage node that loses its power forgets what was not synced. Its daemon comes back, sessions
//! go on, and a sync would succeed, of what is left. So a client notes under which start of the
//! node's host it changed something, and a sync that finds another one fails with `EIO`, once.

use std::sync::atomic::{AtomicU64, Ordering};

/// The start of a host under which the oldest change was made that was not synced; 0: there is none.
#[derive(Debug, Default)]
pub struct Unsynced(AtomicU64);

impl Unsynced {
    /// Something changes while `boot` is the host's start.
    pub fn record_change(&self, boot: u64) {
        if self.0.load(Ordering::Relaxed) == 0 {
            let order = Ordering::AcqRel;
            // Another thread may have noted it meanwhile.
            let _ = self.0.compare_exchange(0, boot, order, Ordering::Acquire);
        }
    }

    /// A sync begins: what changes from now on may not be part of it.
    pub fn take(&self) -> PendingSync {
        PendingSync(self.0.swap(0, Ordering::AcqRel))
    }

    /// The sync has failed.
    pub fn put_back(&self, taken: PendingSync) {
        if taken.0 != 0 {
            self.0.store(taken.0, Ordering::Release);
        }
    }
}

/// What was to be synced.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is put back if the sync fails"]
pub struct PendingSync(u64);

impl PendingSync {
    /// Nothing.
    pub const NOTHING: PendingSync = PendingSync(0);

    /// Is it gone, now that `boot` is the host's start?
    pub fn is_lost(self, boot: u64) -> bool {
        self.0 != 0 && self.0 != boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_under_another_start_is_lost_and_told_once() {
        let unsynced = Unsynced::default();
        assert!(!unsynced.take().is_lost(1));
        unsynced.record_change(1);
        unsynced.record_change(2);
        let taken = unsynced.take();
        assert!(taken.is_lost(2) && !taken.is_lost(1));
        unsynced.put_back(taken);
        assert!(unsynced.take().is_lost(2));
        assert!(!unsynced.take().is_lost(2));
    }
}
