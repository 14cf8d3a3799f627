//! How the daemons of an instance talk: messages that may be lost, late or repeated.
//!
//! Every message says which start of which daemon it is meant for, and is numbered; a receiver
//! takes only what is meant for it and comes after what it took before. So an old message never
//! undoes what a newer one did. What must arrive is said again from time to time until an answer
//! shows that it did: all that is said may be said twice.

use super::{Effect, Shard};
use crate::objects::Objects;
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload};
use forebay_protocol::{InstanceId, NodeIndex};
use std::collections::BTreeSet;

/// How long to wait before saying something again, in nanoseconds.
pub(super) const REMIND: u64 = 500_000_000;

/// What is known of another node.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// Its present start; the default before it has said anything.
    known: Incarnation,
    sent: u64,
    taken: u64,
    /// It has been greeted since the last reminder.
    greeted: bool,
    /// It knows this start.
    mutual: bool,
    /// Tasks of its present start that resized objects here, and below which they are over.
    resized: BTreeSet<u64>,
    oldest: u64,
}

impl Link {
    /// Is a task to resize something new? One that is carried out again after it was answered
    /// would undo what was written since.
    fn is_new(&mut self, task: u64, oldest: u64) -> bool {
        self.oldest = self.oldest.max(oldest);
        self.resized = self.resized.split_off(&self.oldest);
        task >= self.oldest && self.resized.insert(task)
    }
}

impl<O: Objects> Shard<O> {
    /// Say something to another node of an instance. To one that has not been heard of, say only
    /// who one is; all the rest is said when it answers.
    pub(super) fn tell(&mut self, instance: InstanceId, node: NodeIndex, say: PeerPayload) {
        let Some(place) = self.state.volumes.get(&instance).map(|i| &i.spec.placement) else {
            return;
        };
        let (own, address) = (place.node, place.peers.get(usize::from(node.0)).cloned());
        let Some(address) = address.filter(|_| own != node) else {
            return;
        };
        let sender = self.incarnation;
        let link = self.runtime(instance).spread.links.entry(node).or_default();
        let known = link.known != Incarnation::default();
        if !known && std::mem::replace(&mut link.greeted, true) {
            return;
        }
        link.sent += 1;
        let message = PeerMessage {
            instance,
            from: own,
            sender,
            receiver: link.known,
            sequence: link.sent,
            payload: if known { say } else { PeerPayload::Probe },
        };
        self.effects.push(Effect::SendToPeer {
            address,
            node,
            message: Box::new(message),
        });
    }

    /// A message from another node, which has proved to be trusted.
    pub(super) fn receive(&mut self, message: PeerMessage) {
        let PeerMessage {
            instance,
            from,
            sender,
            receiver,
            sequence: number,
            payload: say,
        } = message;
        let Some(place) = self.state.volumes.get(&instance).map(|i| &i.spec.placement) else {
            return;
        };
        if from == place.node || from.0 >= place.nodes || sender == Incarnation::default() {
            return;
        }
        let own = self.incarnation;
        let link = self.runtime(instance).spread.links.entry(from).or_default();
        if sender.epoch < link.known.epoch {
            return; // from before it started again
        }
        let started = sender != link.known;
        if started {
            let again = link.known != Incarnation::default();
            let greeted = link.greeted;
            let sent = link.sent;
            *link = Link {
                known: sender,
                sent,
                greeted,
                ..Link::default()
            };
            if again {
                self.reconsider(instance, from);
            }
        }
        let link = self.runtime(instance).spread.links.entry(from).or_default();
        if receiver == own {
            if number <= link.taken {
                return;
            }
            link.taken = number;
            link.mutual = true;
        } else {
            self.tell(instance, from, PeerPayload::Probe);
        }
        if started {
            self.remind_node(instance, from);
        }
        if receiver == own {
            self.hear(instance, from, say);
        }
    }

    fn hear(&mut self, instance: InstanceId, from: NodeIndex, say: PeerPayload) {
        match say {
            PeerPayload::Probe => self.tell(instance, from, PeerPayload::ProbeAck),
            PeerPayload::ProbeAck => {}
            PeerPayload::StatObjects(asked) => self.tell_objects(instance, from, &asked),
            PeerPayload::ObjectStats(told) => {
                for (task, info) in told {
                    self.object_told(instance, from, task, Ok(info));
                }
            }
            PeerPayload::ResizeObject {
                task,
                oldest,
                ino,
                length,
            } => {
                let link = self.runtime(instance).spread.links.entry(from).or_default();
                let length = link.is_new(task, oldest).then_some(length);
                self.tell_object(instance, from, task, ino, length);
            }
            PeerPayload::ObjectResized { task, info } => {
                self.object_told(instance, from, task, info)
            }
            PeerPayload::RemoveObjects(inos) => self.remove_pieces(instance, from, inos),
            PeerPayload::ObjectsRemoved(inos) => self.pieces_removed(instance, from, &inos),
            PeerPayload::CheckOrphans(inos) => self.check_files(instance, from, inos),
            PeerPayload::OrphansChecked {
                existing: there,
                removed: gone,
            } => self.files_checked(instance, from, &there, gone),
            PeerPayload::Prepare {
                tx,
                round: wave,
                who,
                now,
                steps,
            } => self.prepare(instance, from, (tx, wave), &who, now, &steps),
            PeerPayload::Vote {
                tx,
                round: wave,
                found,
            } => self.voted(instance, from, (tx, wave), found),
            PeerPayload::QueryParent { tx, dir } => self.tell_parent(instance, from, tx, dir),
            PeerPayload::ParentReply { tx, dir, parent } => {
                self.parent_told(instance, tx, dir, parent)
            }
            PeerPayload::Resolve { tx, commit } => self.resolve(instance, from, tx, commit),
            PeerPayload::TxDone { tx, durable } => self.part_done(instance, from, tx, durable),
            PeerPayload::QueryOutcome { tx } => self.asked(instance, from, tx),
        }
    }

    /// Is there anything that another node has to be reminded of?
    pub(super) fn reminders_due(&self) -> bool {
        !self.parked.is_empty()
            || self.has_strangers()
            || self
                .state
                .volumes
                .values()
                .any(|instance| !instance.prepared.is_empty() || !instance.decided.is_empty())
            || self.runtime.values().any(|runtime| {
                let spread = &runtime.spread;
                !spread.tasks.is_empty()
                    || !spread.transactions.is_empty()
                    || !spread.unsettled.is_empty()
                    || spread.owed.values().any(|owed| !owed.is_empty())
                    || spread.unconfirmed.values().any(|inos| !inos.is_empty())
            })
    }

    /// Are there nodes that may not know of this start? They have to, since it may have lost files
    /// they have objects of.
    fn has_strangers(&self) -> bool {
        let spread = self.state.volumes.iter();
        let mut spread = spread.filter(|(_, instance)| instance.spec.placement.is_distributed());
        spread.any(|(id, instance)| {
            let links = self.runtime.get(id).map(|r| &r.spread.links);
            let known = links.map_or(0, |l| l.values().filter(|link| link.mutual).count());
            known + 1 < usize::from(instance.spec.placement.nodes)
        })
    }

    /// Say again what has not been answered, if it is time.
    pub(super) fn remind(&mut self) {
        if !self.spread || self.now.steady_ns < self.reminded.saturating_add(REMIND) {
            return;
        }
        self.reminded = self.now.steady_ns;
        let spread = self.state.volumes.iter();
        let spread: Vec<_> = spread
            .filter(|(_, instance)| instance.spec.placement.is_distributed())
            .map(|(id, instance)| {
                (
                    *id,
                    instance.spec.placement.node,
                    instance.spec.placement.nodes,
                )
            })
            .collect();
        self.give_up_parked();
        for (instance, own, nodes) in spread {
            self.give_up_tasks(instance, own);
            self.give_up_transactions(instance);
            self.settle_lengths(instance);
            for node in (0..nodes).map(NodeIndex).filter(|node| *node != own) {
                let link = self.runtime(instance).spread.links.entry(node).or_default();
                link.greeted = false;
                if !link.mutual {
                    self.tell(instance, node, PeerPayload::Probe);
                }
                self.remind_node(instance, node);
            }
        }
    }

    /// Say again all that one node has not answered.
    fn remind_node(&mut self, instance: InstanceId, node: NodeIndex) {
        self.remind_of_tasks(instance, node);
        self.remind_of_pieces(instance, node);
        self.remind_of_transactions(instance, node);
        self.ask_for_decisions(instance, node);
    }
}
