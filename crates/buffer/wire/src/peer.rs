//! What the storage daemons of one instance say to each other.

use crate::ids::{InstanceId, Node};
use serde::{Deserialize, Serialize};

/// One start of a daemon, as its peers know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incarnation {
    /// How many starts there have been. A power cut may lose the count of the last one.
    pub epoch: u64,
    /// Tells apart two starts of the same count.
    pub nonce: u64,
}

/// A message from one node of an instance to another. It may be lost, repeated or late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessage {
    /// The instance.
    pub instance: InstanceId,
    /// The place of the node that sends it.
    pub from: Node,
    /// The sender's start.
    pub sender: Incarnation,
    /// The receiver's start, as the sender knows it; another one ignores the message.
    pub receiver: Incarnation,
    /// Counts the sender's messages to this receiver. One that is not higher than the last one
    /// taken is ignored.
    pub number: u64,
    /// What is said.
    pub say: Say,
}

/// What daemons say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Say {
    /// Nothing but who one is.
    Greet,
}
