//! Transactions: changes of the name space that concern several nodes, in two phases.
//!
//! The node that receives the request coordinates: it checks and locks its own part, prepares the
//! participants, one round after the other since the next round may depend on what the last one
//! found, and commits. Without a commit nothing happens: a prepared participant that hears nothing
//! queries the coordinator, and a coordinator with no record of the transaction answers abort
//! (presumed abort). A conflict with another transaction aborts this one, and the request is retried
//! after a backoff.

mod coordinator;
mod decision;
mod participant;
mod plan;
mod request;
mod walk;

pub use coordinator::Coordinator;

use crate::context::Context;
use crate::objects::Objects;
use crate::volume::Volume;
use forebay_protocol::SessionId;
use forebay_protocol::peer::TxId;
use std::collections::BTreeMap;

/// Records that must be durable before they are reported to coordinators.
#[derive(Debug, Default)]
pub struct Participant {
    /// The records of prepared rounds.
    prepared: BTreeMap<(TxId, u8), u64>,
    /// The records of applied transactions.
    applied: BTreeMap<TxId, u64>,
    /// The numbers of the clients that have requested the transactions prepared since the start.
    clients: BTreeMap<TxId, u64>,
}

impl Participant {
    /// A transaction that the client of this number has requested is prepared.
    pub fn note_client(&mut self, tx: TxId, number: u64) {
        self.clients.insert(tx, number);
    }

    /// Whether the client of this number has requested a transaction.
    fn is_requested_by(&self, tx: TxId, number: u64) -> bool {
        number != 0 && self.clients.get(&tx) == Some(&number)
    }
}

impl<O: Objects> Volume<O> {
    /// Whether transactions are going to change names or attributes here that this session may not cache
    /// until then: those that others have requested, if it is the only one that can have a lease, or any.
    pub fn is_changing(&self, node: &Context<O>, session: SessionId) -> bool {
        let number = node.sessions.get(session).ok().and_then(|session| session.client_number);
        let is_own =
            |tx: &TxId| number.is_some_and(|number| self.participant.is_requested_by(*tx, number));
        match self.session_count() {
            1 => self.state.prepared.keys().any(|tx| !is_own(tx)),
            _ => !self.state.prepared.is_empty() || self.coordinator.any_undecided(),
        }
    }
}
