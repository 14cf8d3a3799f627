//! The write leases of an open file, one on each of its data objects.

use super::{DelayedWrites, LeaseId, NodeIndex};
use forebay_protocol::message::WRITE_LEASE_RECALL_NS;
use std::time::{Duration, Instant};

/// Time since the request that last confirmed a lease for which writes are delayed. It is shorter than
/// the time for which others wait for a lease after its recall.
pub const MAX_SILENCE: Duration = Duration::from_secs(1);
const _: () = assert!(MAX_SILENCE.as_nanos() < WRITE_LEASE_RECALL_NS as u128);
/// Age of the last confirmation at which the next one is requested.
pub const CONFIRMATION_INTERVAL: Duration = Duration::from_millis(400);
/// Time after a refusal or a recall until a lease is requested again.
const REFUSAL_TIME: Duration = Duration::from_millis(250);

/// The lease on a data object.
#[derive(Debug, Default)]
pub struct NodeLease {
    /// The last lease. It is the one under which the pending writes were delayed.
    last: Option<LeaseId>,
    /// Writes may be delayed under it.
    is_held: bool,
    /// No lease is requested before.
    refused_until: Option<Instant>,
    /// Time when the request was sent that last confirmed the lease.
    confirmed_at: Option<Instant>,
}

impl NodeLease {
    /// Whether there is a lease.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether there is a lease, and the storage node has heard of this client within a time before `now`.
    pub fn is_valid(&self, within: Duration, now: Instant) -> bool {
        let is_recent = |at| now.saturating_duration_since(at) < within;
        self.is_held && self.confirmed_at.is_some_and(is_recent)
    }

    /// Takes the right to request a lease, or its confirmation.
    pub fn may_request(&mut self, now: Instant) -> bool {
        let may = self.refused_until.is_none_or(|until| until <= now);
        if may {
            self.refused_until = Some(now + REFUSAL_TIME);
        }
        may
    }
}

impl DelayedWrites {
    /// The lease on the data object of a node is valid: the reply to a request says so that was sent at
    /// `sent_at`. Another lease than that under which writes are delayed is none for these.
    pub fn leased(&self, node: NodeIndex, id: LeaseId, sent_at: Instant) {
        let mut state = self.state.lock();
        let is_other = state.leases.get(&node).is_some_and(|lease| lease.last != Some(id));
        if is_other && self.is_pending_on(&state, node) {
            state.is_lost = true;
            return;
        }
        let lease = state.leases.entry(node).or_default();
        (lease.last, lease.is_held) = (Some(id), true);
        lease.confirmed_at = lease.confirmed_at.max(Some(sent_at));
    }

    /// The lease under which writes to the data object of a node are delayed has this number since the
    /// node's restart.
    pub fn claimed(&self, node: NodeIndex, id: LeaseId) {
        let mut state = self.state.lock();
        state.leases.entry(node).or_default().last = Some(id);
    }

    /// From now on no write to the data object of a node is delayed.
    pub fn end_lease(&self, node: NodeIndex) {
        let mut state = self.state.lock();
        let lease = state.leases.entry(node).or_default();
        lease.refused_until = Some(Instant::now() + REFUSAL_TIME);
        lease.is_held = false;
    }

    /// The node does not know the lease any more under which writes are delayed.
    pub fn lose(&self) {
        let mut state = self.state.lock();
        state.is_lost = true;
        self.changed.notify_all();
    }

    /// Whether there are delayed writes to the data object of a node.
    pub fn await_lease(&self, node: NodeIndex) -> bool {
        let state = self.state.lock();
        self.is_pending_on(&state, node) && !state.is_lost
    }

    /// The lease under which writes to the data object of a node are, or were last, delayed.
    pub fn last_lease(&self, node: NodeIndex) -> Option<LeaseId> {
        self.state.lock().leases.get(&node).and_then(|lease| lease.last)
    }

    /// Whether the lease should be confirmed before more writes are sent.
    pub fn needs_confirmation(&self, node: NodeIndex) -> bool {
        let state = self.state.lock();
        let lease = state.leases.get(&node).filter(|lease| lease.is_held);
        lease.is_some_and(|lease| !lease.is_valid(CONFIRMATION_INTERVAL, Instant::now()))
    }

    /// The nodes that may have granted a lease.
    pub fn leased_nodes(&self) -> Vec<NodeIndex> {
        self.state.lock().leases.keys().copied().collect()
    }

    /// No write is delayed any more.
    pub fn end_all_leases(&self) {
        self.state.lock().leases.values_mut().for_each(|lease| lease.is_held = false);
    }
}
