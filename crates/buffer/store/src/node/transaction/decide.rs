//! Transactions that this node decides, from the decision on.

use super::{Stage, Transaction};
use crate::log::LogSpace;
use crate::node::locks::Tried;
use crate::node::{Doomed, Effect, Event, Shard, SlotResult, Spread};
use crate::objects::Objects;
use forebay_protocol::peer::{PeerPayload, TxId};
use forebay_protocol::{Errno, InstanceId, NodeIndex, Reply, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

impl Spread {
    /// The daemon starts: a transaction that was decided before.
    pub(in crate::node) fn recall(&mut self, tx: TxId, nodes: &BTreeSet<NodeIndex>) {
        let live = Transaction {
            asker: None,
            tried: Tried::not_yet(0),
            plan: None,
            now: Timestamp::default(),
            since: 0,
            stage: Stage::Decided(nodes.clone()),
            wave: 0,
            waiting: BTreeMap::new(),
            nodes: nodes.clone(),
            changes: Vec::new(),
            found: Vec::new(),
            reply: None,
        };
        self.transactions.insert(tx, live);
        self.recalled.insert(tx);
    }
}

impl<O: Objects> Shard<O> {
    /// Everybody is ready: it happens.
    pub(in crate::node) fn decide(&mut self, instance: InstanceId, tx: TxId) {
        if self.room == LogSpace::Exhausted {
            // The log was full before: without an answer from it, give up.
            return self.fail(instance, tx, Errno::ENOSPC);
        }
        let spread = &mut self.runtime(instance).spread;
        let Some(live) = spread.transactions.get_mut(&tx) else {
            return;
        };
        let (Some(plan), Some((context, _))) = (&live.plan, &live.asker) else {
            return;
        };
        let (entries, reply) = plan.conclusion(live.now);
        let mut changes = std::mem::take(&mut live.changes);
        changes.extend(entries);
        let outcome = match &reply {
            Reply::Referral { ino, kind } => SlotResult::Elsewhere(*ino, *kind),
            _ => SlotResult::Done,
        };
        let request = (context.session, context.slot, context.seq, outcome);
        let nodes = live.nodes.clone();
        live.reply = Some(reply);
        live.stage = Stage::Decided(nodes.clone());
        let alone = nodes.is_empty();
        let event = Event::Decide {
            instance,
            tx,
            nodes,
            changes: changes.clone(),
        };
        self.log(event, Some(request));
        self.drop_unnamed(instance, &changes);
        if alone {
            self.answer(instance, tx);
            self.runtime(instance).spread.transactions.remove(&tx);
        } else {
            let record = self.last;
            self.doomed
                .push_back((record, Doomed::Commit(instance, tx)));
            self.effects.push(Effect::SyncLog);
        }
    }

    /// The decision is durable: tell everybody.
    pub(in crate::node) fn announce(&mut self, instance: InstanceId, tx: TxId) {
        let live = self.runtime(instance).spread.transactions.get_mut(&tx);
        let Some(live) = live else {
            return;
        };
        live.wave = ANNOUNCED;
        for node in live.nodes.clone() {
            self.announce_to(instance, tx, node);
        }
    }

    pub(in crate::node) fn announce_to(&mut self, instance: InstanceId, tx: TxId, node: NodeIndex) {
        let live = self.runtime(instance).spread.transactions.get(&tx);
        let known = live.is_some_and(|live| live.wave == ANNOUNCED || live.plan.is_none());
        if known {
            self.tell(instance, node, PeerPayload::Resolve { tx, commit: true });
        }
    }

    /// A node that is ready asks what became of a transaction.
    pub(in crate::node) fn asked(&mut self, instance: InstanceId, from: NodeIndex, tx: TxId) {
        match self.runtime(instance).spread.transactions.get(&tx) {
            None => self.tell(instance, from, PeerPayload::Resolve { tx, commit: false }),
            Some(live) if matches!(live.stage, Stage::Decided(_)) => {
                self.announce_to(instance, tx, from);
            }
            Some(_) => {} // not yet known
        }
    }

    /// A transaction has happened on a node.
    pub(in crate::node) fn part_done(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        tx: TxId,
        durable: bool,
    ) {
        let room = self.room > LogSpace::Exhausted;
        let live = self.runtime(instance).spread.transactions.get_mut(&tx);
        let Some(live) = live else {
            return;
        };
        let Stage::Decided(undone) = &mut live.stage else {
            return;
        };
        undone.remove(&from);
        // Without room in the log it is said again, and forgotten then.
        if durable && room {
            live.nodes.remove(&from);
        }
        let (happened, over) = (undone.is_empty(), live.nodes.is_empty());
        if happened {
            self.answer(instance, tx);
        }
        if over {
            self.log(Event::Forget { instance, tx }, None);
            self.runtime(instance).spread.transactions.remove(&tx);
        }
    }

    /// A transaction has happened everywhere: answer, and let go what it held here.
    fn answer(&mut self, instance: InstanceId, tx: TxId) {
        let spread = &mut self.runtime(instance).spread;
        let Some(live) = spread.transactions.get_mut(&tx) else {
            return;
        };
        let (asker, reply) = (live.asker.take(), live.reply.take());
        spread.locks.release(tx);
        spread.recalled.remove(&tx);
        self.unlocked = true;
        if let (Some((context, _)), Some(reply)) = (asker, reply) {
            self.reply(context.conn, context.seq, reply);
        }
    }
}

/// The wave of a transaction whose decision is durable.
const ANNOUNCED: u8 = u8::MAX;
