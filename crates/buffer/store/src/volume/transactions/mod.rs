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

use forebay_protocol::peer::TxId;
use std::collections::BTreeMap;

/// Records that must be durable before they are reported to coordinators.
#[derive(Debug, Default)]
pub struct Participant {
    /// The records of prepared rounds.
    prepared: BTreeMap<(TxId, u8), u64>,
    /// The records of applied transactions.
    applied: BTreeMap<TxId, u64>,
}
