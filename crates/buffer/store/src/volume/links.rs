//! Links to the other nodes of an instance. Messages may be lost, delayed, duplicated or reordered.
//!
//! Every message names the incarnation of the daemon it is meant for, and is numbered; a receiver
//! accepts only messages meant for its own incarnation, in ascending order. So an old message never
//! undoes the effect of a newer one. Important messages are retransmitted until they are
//! answered: every message may be sent twice.

use super::Volume;
use crate::context::Context;
use crate::driver::Effect;
use crate::objects::Objects;
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

    /// A new interval begins: a greeting may be sent again. Returns whether one is due.
    fn needs_greeting(&mut self, node: NodeIndex) -> bool {
        let link = self.0.entry(node).or_default();
        link.greeted = false;
        !link.is_mutual
    }
}

impl<O: Objects> Volume<O> {
    /// Send a message to another node of the instance.
    pub fn send(&mut self, node: &mut Context<O>, to: NodeIndex, payload: PeerPayload) {
        let placement = &self.state.spec.placement;
        let Some(address) = placement.peers.get(usize::from(to.0)) else {
            return;
        };
        if to == placement.node {
            return;
        }
        let Some((receiver, sequence, payload)) = self.links.stamp(to, payload) else {
            return;
        };
        let message = PeerMessage {
            instance: self.id(),
            from: placement.node,
            sender: node.incarnation,
            receiver,
            sequence,
            payload,
        };
        node.effects.push(Effect::SendToPeer {
            address: address.clone(),
            node: to,
            message: Box::new(message),
        });
    }

    /// A message from another node, which is authenticated and trusted.
    pub fn receive(&mut self, node: &mut Context<O>, message: PeerMessage) {
        let placement = &self.state.spec.placement;
        let from = message.from;
        if from == placement.node
            || from.0 >= placement.nodes
            || message.sender == Incarnation::default()
        {
            return;
        }
        let Some(arrival) = self.links.note_arrival(&message, node.incarnation) else {
            return;
        };
        if arrival.restarted {
            self.pieces.check_again(from, &self.space);
        }
        if arrival.is_addressed && arrival.is_duplicate {
            return;
        }
        if !arrival.is_addressed {
            self.send(node, from, PeerPayload::Probe);
        }
        if arrival.is_first {
            self.retransmit_to(node, from);
        }
        if arrival.is_addressed {
            self.handle_message(node, from, message.payload);
        }
    }

    fn handle_message(&mut self, node: &mut Context<O>, from: NodeIndex, payload: PeerPayload) {
        match payload {
            PeerPayload::Probe => self.send(node, from, PeerPayload::ProbeAck),
            PeerPayload::ProbeAck => {}
            PeerPayload::StatObjects(queries) => self.report_objects(node, from, &queries),
            PeerPayload::ObjectStats(reports) => {
                for (task, info) in reports {
                    self.object_reported(node, from, task, Ok(info));
                }
            }
            PeerPayload::ResizeObject { task, oldest, ino, length } => {
                let is_new = self.links.is_new_resize(from, task, oldest);
                self.resize_and_report(node, from, task, ino, is_new.then_some(length));
            }
            PeerPayload::ObjectResized { task, info } => {
                self.object_reported(node, from, task, info)
            }
            PeerPayload::RemoveObjects(inos) => self.remove_pieces(node, from, inos),
            PeerPayload::ObjectsRemoved(inos) => self.pieces.note_removed(from, &inos),
            PeerPayload::CheckOrphans(inos) => self.check_files(node, from, inos),
            PeerPayload::OrphansChecked { existing, removed } => {
                self.files_checked(from, &existing, removed);
            }
            PeerPayload::Prepare { tx, round, who: user, now, steps } => {
                self.prepare(node, from, (tx, round), &user, now, &steps)
            }
            PeerPayload::Vote { tx, round, found } => self.voted(node, from, (tx, round), found),
            PeerPayload::QueryParent { tx, dir } => self.report_parent(node, from, tx, dir),
            PeerPayload::ParentReply { tx, dir, parent } => {
                self.parent_reported(node, tx, dir, parent)
            }
            PeerPayload::Resolve { tx, commit } => self.resolve(node, from, tx, commit),
            PeerPayload::TxDone { tx, durable } => self.participant_done(node, from, tx, durable),
            PeerPayload::QueryOutcome { tx } => self.decision_queried(node, from, tx),
        }
    }

    /// Whether anything is to be retransmitted.
    pub fn needs_retransmission(&self) -> bool {
        let others = usize::from(self.state.spec.placement.nodes).saturating_sub(1);
        !self.state.prepared.is_empty()
            || !self.state.decided.is_empty()
            || !self.tasks.is_empty()
            || !self.coordinator.is_empty()
            || self.lengths.any_unsettled()
            || self.pieces.any_pending()
            || !self.links.are_mutual(others)
    }

    /// Retransmit to all nodes what they have not answered, and give up requests that timed out.
    pub fn retransmit(&mut self, node: &mut Context<O>) {
        self.time_out_tasks(node);
        self.time_out_transactions(node);
        self.settle_lengths(node);
        for other in self.other_nodes() {
            if self.links.needs_greeting(other) {
                self.send(node, other, PeerPayload::Probe);
            }
            self.retransmit_to(node, other);
        }
    }

    /// Retransmit all that one node has not answered.
    fn retransmit_to(&mut self, node: &mut Context<O>, to: NodeIndex) {
        self.retransmit_tasks(node, to);
        self.retransmit_pieces(node, to);
        self.retransmit_transactions(node, to);
        self.query_decisions(node, to);
    }
}
