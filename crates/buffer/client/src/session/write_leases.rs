//! Write leases: permission of the daemon to delay the writes of an open file.
//!
//! A lease lasts until the daemon recalls it, or restarts. The daemon lets no other session observe the
//! file until the recall is confirmed, which happens when all delayed writes are acknowledged.

use super::Session;
use crate::file::DelayedWrites;
use forebay_protocol::LeaseId;
use forebay_protocol::message::{LockRequest, WRITE_LEASE_RECALL_NS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the time to give a lease back is extended while writes are finished.
const EXTENSION_INTERVAL: Duration = Duration::from_nanos(WRITE_LEASE_RECALL_NS / 4);

/// The write leases of a session.
#[derive(Debug, Default)]
pub struct WriteLeases {
    held: BTreeMap<LeaseId, Arc<DelayedWrites>>,
    /// Requests for leases without a reply, and leases that were recalled meanwhile: a reply that
    /// grants one of them is late.
    in_flight: u32,
    recalled: BTreeSet<LeaseId>,
}

impl Session {
    /// Requests a write lease. Returns whether it was granted.
    pub fn request_write_lease(&self, writes: &Arc<DelayedWrites>) -> bool {
        let (sent_at, epoch) = (self.options.system.now(), self.epoch());
        self.write_leases.lock().in_flight += 1;
        // A write does not wait for a node that does not answer.
        let request = LockRequest::WriteLease { handle: writes.handle() };
        let granted: Option<Vec<Option<LeaseId>>> =
            self.call_best_effort(request).and_then(|reply| reply.reply.try_into().ok());
        let granted = granted.unwrap_or_default().first().copied().flatten();
        let mut leases = self.write_leases.lock();
        let granted = granted.filter(|id| !leases.recalled.contains(id));
        if let Some(id) = granted {
            leases.held.retain(|_, other| !Arc::ptr_eq(other, writes));
            leases.held.insert(id, writes.clone());
            writes.leased((id, epoch), sent_at);
        }
        leases.in_flight -= 1;
        if leases.in_flight == 0 {
            leases.recalled.clear();
        }
        granted.is_some()
    }

    /// Leases were recalled: all writes that were delayed under them are over after this returns.
    pub fn return_write_leases(&self, recalled: &[LeaseId]) {
        let mut ended = Vec::new();
        {
            let mut leases = self.write_leases.lock();
            for id in recalled {
                if leases.in_flight > 0 {
                    leases.recalled.insert(*id);
                }
                ended.extend(leases.held.remove(id));
            }
        }
        for writes in &ended {
            writes.end_lease();
        }
        for writes in &ended {
            while !writes.finish_within(EXTENSION_INTERVAL) {
                for other in &ended {
                    self.call_best_effort(LockRequest::WriteLease { handle: other.handle() });
                }
            }
        }
    }

    /// A file is being closed.
    pub fn forget_write_lease(&self, writes: &Arc<DelayedWrites>) {
        writes.end_lease();
        self.write_leases.lock().held.retain(|_, other| !Arc::ptr_eq(other, writes));
    }
}
