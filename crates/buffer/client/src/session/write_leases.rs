//! Write leases: permission of the daemon to delay the writes of an open file.
//!
//! A lease lasts until the daemon recalls it or restarts, or until the session ends. The daemon lets no
//! other session observe the file until the recall is confirmed, which happens when all delayed writes
//! are acknowledged. It does so for a limited time only, so that the lease is confirmed from time to time
//! while writes are delayed.

use super::Session;
use crate::file::DelayedWrites;
use forebay_protocol::LeaseId;
use forebay_protocol::message::{LockRequest, WRITE_LEASE_RECALL_NS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval at which the time to give a lease back is extended while writes are finished.
const EXTENSION_INTERVAL: Duration = Duration::from_nanos(WRITE_LEASE_RECALL_NS / 4);

/// The write leases of a session.
#[derive(Debug, Default)]
pub struct WriteLeases {
    /// The files of the leases that the daemon may recall.
    held: BTreeMap<LeaseId, Arc<DelayedWrites>>,
    /// How often all leases were lost. A lease that was requested before the last time is not valid.
    losses: u64,
    /// Time at which the connection for events broke.
    interrupted_at: Option<Instant>,
    /// Requests for leases without a reply, and leases that were recalled meanwhile: a reply that
    /// grants one of them is late.
    in_flight: u32,
    recalled: BTreeSet<LeaseId>,
}

impl Session {
    /// Requests a write lease, or has it confirmed. Returns whether it is valid.
    pub fn request_write_lease(&self, writes: &Arc<DelayedWrites>) -> bool {
        let sent_at = self.options.system.now();
        let losses = {
            let mut leases = self.write_leases.lock();
            leases.in_flight += 1;
            leases.losses
        };
        // A write does not wait for a node that does not answer.
        let request = LockRequest::WriteLease { handle: writes.handle() };
        let granted: Option<Vec<Option<LeaseId>>> =
            self.call_best_effort(request).and_then(|reply| reply.reply.try_into().ok());
        let granted = granted.unwrap_or_default().first().copied().flatten();
        let mut leases = self.write_leases.lock();
        let is_valid = |id: &LeaseId| leases.losses == losses && !leases.recalled.contains(id);
        let granted = granted.filter(is_valid);
        match granted {
            Some(id) => {
                leases.held.retain(|_, other| !Arc::ptr_eq(other, writes));
                leases.held.insert(id, writes.clone());
                writes.leased(id, sent_at);
            }
            // The lease may be recalled: it stays among those that are held until it is given back.
            None => writes.end_lease(),
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

    /// The connection for events is broken, or works again.
    pub fn note_events(&self, works: bool) {
        let now = self.options.system.now();
        let mut leases = self.write_leases.lock();
        leases.interrupted_at = (!works).then(|| leases.interrupted_at.unwrap_or(now));
    }

    /// The daemon has restarted, or this is a `new_session`: all leases are lost. Another client may have
    /// opened a file while its delayed writes were not acknowledged, if this one was silent. Such files
    /// are not opened again, so that these writes, and all later ones, fail.
    pub(super) fn lose_write_leases(&self, new_session: bool) {
        let now = self.options.system.now();
        let (held, interrupted_at) = {
            let mut leases = self.write_leases.lock();
            leases.losses += 1;
            (std::mem::take(&mut leases.held), leases.interrupted_at.unwrap_or(now))
        };
        for writes in held.into_values() {
            if writes.lose_lease(new_session, interrupted_at) {
                tracing::error!(handle = writes.handle().0, address = %self.address,
                    "delayed writes of an open file fail: the storage daemon has not heard of this \
                     client in time");
                self.handles.lock().remove(&writes.handle());
            }
        }
    }

    /// A file is being closed.
    pub fn forget_write_lease(&self, writes: &Arc<DelayedWrites>) {
        writes.end_lease();
        self.write_leases.lock().held.retain(|_, other| !Arc::ptr_eq(other, writes));
    }
}
