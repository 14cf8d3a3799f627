//! Write leases: permission of the daemon to delay the writes to a data object.
//!
//! A lease lasts until the daemon recalls it, or until the session ends. The daemon lets no other session
//! observe the object until the recall is confirmed, which happens when all delayed writes to it are
//! acknowledged. It does so for a limited time only, so that the lease is confirmed from time to time
//! while writes are delayed.
//!
//! When the daemon has restarted, the leases are claimed under which writes are delayed that are not
//! acknowledged, before any connection to it is used. Without its lease another client may have opened or
//! truncated the file, and the writes fail. So they do after another boot of the daemon's host: a power
//! failure may have undone that a lease ended.

use super::Session;
use crate::file::DelayedWrites;
use crate::system::Connection;
use forebay_protocol::message::{
    InodeRequest, LockRequest, RECOVERY_SLOT, StatFs, WRITE_LEASE_RECALL_NS,
};
use forebay_protocol::{Call, Errno, LeaseId, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval at which the time to give a lease back is extended while writes are finished.
const EXTENSION_INTERVAL: Duration = Duration::from_nanos(WRITE_LEASE_RECALL_NS / 4);

/// The write leases of a session.
#[derive(Debug, Default)]
pub struct WriteLeases {
    /// The files of the leases that the daemon may recall, or has recalled while their writes are not over.
    held: BTreeMap<LeaseId, Arc<DelayedWrites>>,
    /// How often all leases were lost. A lease that was requested before the last time is not valid.
    losses: u64,
    /// Requests for leases without a reply, and leases that were recalled meanwhile: a reply that
    /// grants one of them is late.
    in_flight: u32,
    recalled: BTreeSet<LeaseId>,
}

impl Session {
    /// The node of the instance that the daemon is.
    fn node(&self) -> NodeIndex {
        self.placement.get().map_or(NodeIndex(0), |placement| placement.node)
    }

    /// Requests a write lease, or has it confirmed. Returns whether it is valid.
    pub fn request_write_lease(&self, writes: &Arc<DelayedWrites>) -> bool {
        if !self.keeps_write_leases.load(Ordering::Acquire) {
            return false;
        }
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
                writes.leased(self.node(), id, sent_at);
            }
            // The lease may be recalled: it stays among those that are held until it is given back.
            None => writes.end_lease(self.node()),
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
                ended.extend(leases.held.get(id).cloned());
            }
        }
        let node = self.node();
        for writes in &ended {
            writes.end_lease(node);
        }
        for writes in &ended {
            while !writes.finish_on_within(node, EXTENSION_INTERVAL) {
                for other in &ended {
                    self.call_best_effort(LockRequest::WriteLease { handle: other.handle() });
                }
            }
        }
        // If the daemon has restarted meanwhile, they have other numbers, and are not given back.
        self.write_leases.lock().held.retain(|id, _| !recalled.contains(id));
    }

    /// The daemon has restarted, or the session is a new one: no write is delayed under the leases any more.
    pub(super) fn suspend_write_leases(&self) {
        let mut leases = self.write_leases.lock();
        leases.losses += 1;
        for writes in leases.held.values() {
            writes.end_lease(self.node());
        }
    }

    /// Claims the leases under which writes are delayed that are not over, when the handles have been opened
    /// again, on a connection that is the first to do so. `seq` is the number of its last call. `is_same`:
    /// neither the session nor the boot of the host is a new one.
    pub(super) fn claim_write_leases(
        &self,
        connection: &mut Connection,
        seq: &mut u64,
        is_same: bool,
    ) -> io::Result<()> {
        let may_claim = is_same && self.keeps_write_leases.load(Ordering::Acquire);
        let held = self.write_leases.lock().held.clone();
        for (id, writes) in held {
            let is_pending = writes.await_lease(self.node());
            let claimed =
                if is_pending && may_claim { claim(connection, seq, &writes)? } else { None };
            let mut leases = self.write_leases.lock();
            leases.held.remove(&id);
            match claimed {
                Some(new) => {
                    writes.claimed(self.node(), new);
                    leases.held.insert(new, writes);
                }
                None if is_pending => {
                    tracing::error!(ino = %writes.ino(), address = %self.address,
                        "delayed writes to an open file fail: the storage daemon has restarted, and \
                         their lease is over");
                    writes.lose();
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Whether the daemon knows the lease under which writes are delayed, whether it is recalled or not.
    pub fn is_write_lease_held(&self, writes: &Arc<DelayedWrites>) -> Result<bool, Errno> {
        let held = self.with_retries(|| {
            self.call(InodeRequest::StatFs).map(|_: StatFs| ()).map_err(io::Error::other)?;
            let mut identity = self.identity.lock();
            let mut seq = identity.recovery_seq + 1;
            let (mut connection, _, epoch) = self.attach(&identity, RECOVERY_SLOT, seq, false)?;
            let held = claim(&mut connection, &mut seq, writes);
            identity.recovery_seq = seq;
            // Its leases are claimed first.
            let has_restarted = epoch != self.epoch();
            if has_restarted { Err(io::ErrorKind::ConnectionReset.into()) } else { held }
        })?;
        Ok(held.is_some() && held == writes.last_lease(self.node()))
    }

    /// A file is being closed.
    pub fn forget_write_lease(&self, writes: &Arc<DelayedWrites>) {
        writes.end_lease(self.node());
        self.write_leases.lock().held.retain(|_, other| !Arc::ptr_eq(other, writes));
    }
}

/// Asks on a [`RECOVERY_SLOT`] for the lease under which writes are delayed.
fn claim(
    connection: &mut Connection,
    seq: &mut u64,
    writes: &DelayedWrites,
) -> io::Result<Option<LeaseId>> {
    *seq += 1;
    let call = Call::new(*seq, LockRequest::WriteLease { handle: writes.handle() });
    let reply = connection.call(&call, &[], &mut [])?.reply;
    let leases: Result<Vec<Option<LeaseId>>, Errno> = reply.try_into();
    Ok(leases.unwrap_or_default().first().copied().flatten())
}
