//! Messages to and from the other nodes of an instance.

use crate::context::Context;
use crate::driver::Effect;
use crate::objects::Objects;
use crate::volume::Volume;
use forebay_protocol::NodeIndex;
use forebay_protocol::message::TrailingField;
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload, Step};

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
            recalls_caches: TrailingField(true),
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
            self.confirmations.node_restarted(from);
            self.waiting_messages.drop_from(from);
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

    pub fn handle_message(&mut self, node: &mut Context<O>, from: NodeIndex, payload: PeerPayload) {
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
                let message = || PeerPayload::ResizeObject { task, oldest, ino, length };
                if self.waits_for_writes(node, from, ino, message) {
                    return;
                }
                let is_new = self.links.is_new_resize(from, task, oldest);
                self.resize_and_report(node, from, task, ino, is_new.then_some(length));
            }
            PeerPayload::ObjectResized { task, info } => {
                self.object_reported(node, from, task, info)
            }
            PeerPayload::RemoveObjects(inos) => self.remove_pieces(node, from, inos),
            PeerPayload::ObjectsRemoved(inos) => {
                self.pieces.note_removed(from, &inos);
                if !self.pieces.any_removals() {
                    node.parked.note_unlocked(self.id());
                }
            }
            PeerPayload::CheckOrphans(inos) => self.check_files(node, from, inos),
            PeerPayload::OrphansChecked { existing, removed } => {
                self.files_checked(from, &existing, removed);
            }
            PeerPayload::Prepare { tx, round, who: user, now, steps, client } => {
                let changed = steps.iter().any(changes_what_exists);
                let message = || PeerPayload::Prepare {
                    tx,
                    round,
                    who: user.clone(),
                    now,
                    steps: steps.clone(),
                    client,
                };
                if changed && self.waits_for_caches(node, from, client.0, message) {
                    return;
                }
                self.waiting_messages.drop_prepares(tx);
                self.prepare(node, from, (tx, round), &user, now, &steps);
                if self.state.prepared.contains_key(&tx) {
                    self.participant.note_client(tx, client.0);
                }
            }
            PeerPayload::Vote { tx, round, found } => self.voted(node, from, (tx, round), found),
            PeerPayload::QueryParent { tx, dir } => self.report_parent(node, from, tx, dir),
            PeerPayload::ParentReply { tx, dir, parent } => {
                self.parent_reported(node, tx, dir, parent)
            }
            PeerPayload::Resolve { tx, commit } => {
                self.waiting_messages.drop_prepares(tx);
                self.resolve(node, from, tx, commit);
            }
            PeerPayload::TxDone { tx, durable } => self.participant_done(node, from, tx, durable),
            PeerPayload::QueryOutcome { tx } => self.decision_queried(node, from, tx),
            PeerPayload::SyncObject { sync, ino } => {
                let message = || PeerPayload::SyncObject { sync, ino };
                if !self.waits_for_writes(node, from, ino, message) {
                    self.sync_piece(node, (from, sync), ino);
                }
            }
            PeerPayload::ObjectSynced { sync, result } => {
                self.piece_synced(node, (from, sync), result)
            }
            PeerPayload::ConfirmHandles(handles) => self.confirm_handles(node, from, &handles),
            PeerPayload::HandlesConfirmed { open, closed } => {
                self.handles_confirmed(node, from, open, closed);
            }
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
            || !self.confirmations.is_empty()
            || self.replacements.await_other_nodes(self.state.spec.placement.node)
            || !self.links.are_mutual(others)
    }

    /// Retransmit to all nodes what they have not answered, and give up requests that timed out.
    pub fn retransmit(&mut self, node: &mut Context<O>) {
        self.time_out_tasks(node);
        self.time_out_transactions(node);
        self.time_out_replacements(node);
        self.settle_lengths(node);
        self.request_confirmations(node);
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
        self.retransmit_replacements(node, to);
        self.query_decisions(node, to);
    }
}

/// Whether a step of a transaction changes a name or an inode that clients may know.
fn changes_what_exists(step: &Step) -> bool {
    match step {
        Step::MakeDir { .. } | Step::MakeDirWithAcls { .. } | Step::LockRenames => false,
        Step::InsertEntry { .. }
        | Step::RemoveLink { .. }
        | Step::AddLink { .. }
        | Step::ChangeParent { .. } => true,
    }
}
