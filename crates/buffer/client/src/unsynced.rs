//! Changes that are not synced, and whether a sync can still make them durable.
//!
//! After a power failure a storage node has lost unsynced changes. Its daemon restarts, sessions
//! continue, and a sync would succeed. So a client records the boot id of the node's host with its
//! first unsynced change, and a sync that finds another boot id fails with `EIO`, once.

use std::sync::atomic::{AtomicU64, Ordering};

/// The boot id of the host at the oldest unsynced change; 0 if there is none.
#[derive(Debug, Default)]
pub struct Unsynced(AtomicU64);

impl Unsynced {
    /// A change is made while the host has this boot id.
    pub fn record_change(&self, boot_id: u64) {
        if self.0.load(Ordering::Relaxed) == 0 {
            let order = Ordering::AcqRel;
            // Another thread may have recorded a change meanwhile.
            let _ = self.0.compare_exchange(0, boot_id, order, Ordering::Acquire);
        }
    }

    /// A sync starts, which may not cover later changes.
    pub fn take(&self) -> PendingSync {
        PendingSync(self.0.swap(0, Ordering::AcqRel))
    }

    /// The sync failed.
    pub fn put_back(&self, pending: PendingSync) {
        if pending.0 != 0 {
            self.0.store(pending.0, Ordering::Release);
        }
    }
}

/// The changes that a sync covers: the boot id of the host at the oldest; 0 if there are none.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is put back if the sync fails"]
pub struct PendingSync(u64);

impl PendingSync {
    /// No changes.
    pub const NOTHING: PendingSync = PendingSync(0);

    /// Whether the changes are lost, as the host has this boot id now.
    pub fn is_lost(self, boot_id: u64) -> bool {
        self.0 != 0 && self.0 != boot_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_before_a_restart_are_reported_lost_once() {
        let unsynced = Unsynced::default();
        assert!(!unsynced.take().is_lost(1));
        unsynced.record_change(1);
        unsynced.record_change(2);
        let pending = unsynced.take();
        assert!(pending.is_lost(2) && !pending.is_lost(1));
        unsynced.put_back(pending);
        assert!(unsynced.take().is_lost(2));
        assert!(!unsynced.take().is_lost(2));
    }
}
