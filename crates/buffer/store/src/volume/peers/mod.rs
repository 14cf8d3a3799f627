//! Links to the other nodes of an instance. Messages may be lost, delayed, duplicated or reordered.
//!
//! Every message names the incarnation of the daemon it is meant for, and is numbered; a receiver
//! accepts only messages meant for its own incarnation, in ascending order. So an old message never
//! undoes the effect of a newer one. Important messages are retransmitted until they are
//! answered: every message may be sent twice.

mod messages;

use forebay_protocol::NodeIndex;
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload};
use std::collections::{BTreeMap, BTreeSet};

/// Interval at which unanswered messages are retransmitted.
pub const RETRANSMIT_INTERVAL_NS: u64 = 500_000_000;

/// The state of a link to another node.
#[derive(Debug, Default)]
struct Link {
    /// The incarnation of the other node; the default before its first message.
    peer: Incarnation,
    /// Number of the last message sent.
    sent: u64,
    /// Number of the last message accepted.
    accepted: u64,
    /// A greeting was sent since the last retransmission.
    greeted: bool,
    /// The other node knows this incarnation.
    is_mutual: bool,
    /// The other node recalls leases on names and attributes before it takes part in a change.
    recalls_caches: bool,
    /// Tasks of the present incarnation of the other node that resized objects here.
    resized: BTreeSet<u64>,
    /// Tasks with lower numbers have ended.
    oldest_task: u64,
}

/// The relation of an arriving message to the state of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The other node has started again since its last message.
    restarted: bool,
    /// It is the first message of the other node's incarnation.
    is_first: bool,
    /// The message is meant for this incarnation.
    is_addressed: bool,
    /// A message with this number, or a higher one, has been accepted.
    is_duplicate: bool,
}

#[derive(Debug, Default)]
pub struct Links(BTreeMap<NodeIndex, Link>);

impl Links {
    /// Take note of an arriving message. `None`: it is from before the other node started again.
    fn note_arrival(&mut self, message: &PeerMessage, own: Incarnation) -> Option<Arrival> {
        let link = self.0.entry(message.from).or_default();
        if message.sender.epoch < link.peer.epoch {
            return None;
        }
        let is_first = message.sender != link.peer;
        let restarted = is_first && link.peer != Incarnation::default();
        if is_first {
            *link = Link {
                peer: message.sender,
                sent: link.sent,
                greeted: link.greeted,
                ..Link::default()
            };
        }
        let is_addressed = message.receiver == own;
        let is_duplicate = message.sequence <= link.accepted;
        link.recalls_caches = message.recalls_caches.0;
        if is_addressed && !is_duplicate {
            link.accepted = message.sequence;
            link.is_mutual = true;
        }
        Some(Arrival { restarted, is_first, is_addressed, is_duplicate })
    }

    /// Number a message to a node, and name the incarnation it is meant for. To a node that has not
    /// been heard of, only a greeting is sent, once between two retransmissions; `None` otherwise.
    fn stamp(
        &mut self,
        to: NodeIndex,
        payload: PeerPayload,
    ) -> Option<(Incarnation, u64, PeerPayload)> {
        let link = self.0.entry(to).or_default();
        let is_known = link.peer != Incarnation::default();
        if !is_known && std::mem::replace(&mut link.greeted, true) {
            return None;
        }
        link.sent += 1;
        Some((link.peer, link.sent, if is_known { payload } else { PeerPayload::Probe }))
    }

    /// The start of another node, as it counts them; 0 before its first message.
    pub fn epoch_of(&self, node: NodeIndex) -> u64 {
        self.0.get(&node).map_or(0, |link| link.peer.epoch)
    }

    /// Whether a task of another node that resizes an object is new. Carried out again after its
    /// answer, it would undo later writes.
    pub fn is_new_resize(&mut self, from: NodeIndex, task: u64, oldest: u64) -> bool {
        let link = self.0.entry(from).or_default();
        link.oldest_task = link.oldest_task.max(oldest);
        link.resized = link.resized.split_off(&link.oldest_task);
        task >= link.oldest_task && link.resized.insert(task)
    }

    /// Whether all `others` other nodes know this incarnation. They have to: it may have lost files
    /// of which they have objects.
    pub fn are_mutual(&self, others: usize) -> bool {
        self.0.values().filter(|link| link.is_mutual).count() >= others
    }

    /// Whether all `others` other nodes recall leases on names and attributes before they take part in a
    /// change, as far as their last messages tell.
    pub fn all_recall_caches(&self, others: usize) -> bool {
        self.0.values().filter(|link| link.recalls_caches).count() >= others
    }

    /// A new interval begins: a greeting may be sent again. Returns whether one is due.
    fn needs_greeting(&mut self, node: NodeIndex) -> bool {
        let link = self.0.entry(node).or_default();
        link.greeted = false;
        !link.is_mutual
    }
}
