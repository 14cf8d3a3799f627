//! Changes of the name space that concern several nodes: the part of the node that was asked.
//!
//! It checks and takes what it has itself, asks the other nodes to get ready for their parts, one
//! wave after the other since what the next one is about may be known only then, and decides. What
//! is not decided does not happen: a node that is ready and hears nothing asks, and one that was
//! asked and does not know says no. A conflict with another transaction gives this one up, and
//! the request is tried again after a pause.

mod decide;
mod plan;
mod prepare;
mod walk;

use super::locks::Tried;
use super::tasks::{DECIDED_PATIENCE, PATIENCE};
use super::{Context, Shard};
use crate::namespace::{Change, TxLock, lock_for_step};
use crate::objects::Objects;
use forebay_protocol::peer::{PeerPayload, Step, StepResult, TxId};
use forebay_protocol::{Call, Errno, Ino, InstanceId, NodeIndex, Reply, Timestamp};
use plan::{Next, Plan};
use std::collections::{BTreeMap, BTreeSet};

/// How far a transaction is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Others are getting ready.
    Preparing,
    /// It is being checked that no directory moves below itself: from this directory upwards,
    /// which one must not be met, and further such questions.
    Walking(Ino, Ino, Vec<(Ino, Ino)>),
    /// It happens; these nodes have not said yet that it has happened there.
    Decided(BTreeSet<NodeIndex>),
}

impl Stage {
    fn is_decided(&self) -> bool {
        matches!(self, Stage::Decided(_))
    }
}

/// A transaction that this node decides.
#[derive(Debug)]
pub(super) struct Transaction {
    /// Who asked for it, unless that was forgotten in a crash.
    pub(super) asker: Option<(Context, Call)>,
    pub(super) tried: Tried,
    pub(super) plan: Option<Plan>,
    pub(super) now: Timestamp,
    /// When it began.
    pub(super) since: u64,
    pub(super) stage: Stage,
    pub(super) wave: u8,
    /// What the present wave asks of each node that has not answered.
    pub(super) waiting: BTreeMap<NodeIndex, Vec<Step>>,
    /// All other nodes that take part.
    pub(super) nodes: BTreeSet<NodeIndex>,
    /// What changes here.
    pub(super) changes: Vec<Change>,
    pub(super) found: Vec<StepResult>,
    /// The reply when it has happened.
    pub(super) reply: Option<Reply>,
}

impl<O: Objects> Shard<O> {
    /// Take what is needed here and begin.
    pub(super) fn begin_transaction(&mut self, context: &Context, call: Call, plan: Plan) {
        let tx = TxId(self.secret() as u64 | 1 << 63);
        let at = match &plan {
            Plan::MakeDir { at, .. } | Plan::Remove { at, .. } | Plan::Link { at, .. } => at,
            Plan::Rename(rename) => &rename.from,
        };
        let lock = TxLock::Name(at.0, at.1.clone());
        self.locks(context.instance).take(lock, tx);
        let transaction = Transaction {
            asker: Some((context.clone(), call)),
            tried: self.tried(),
            plan: Some(plan),
            now: self.now.wall,
            since: self.now.steady_ns,
            stage: Stage::Preparing,
            wave: 0,
            waiting: BTreeMap::new(),
            nodes: BTreeSet::new(),
            changes: Vec::new(),
            found: Vec::new(),
            reply: None,
        };
        let transactions = &mut self.runtime(context.instance).spread.transactions;
        transactions.insert(tx, transaction);
        self.advance(context.instance, tx);
    }

    fn live(&mut self, instance: InstanceId, tx: TxId) -> Option<&mut Transaction> {
        let spread = &mut self.runtime(instance).spread;
        spread.transactions.get_mut(&tx)
    }

    /// A wave or a walk has ended: go on.
    pub(super) fn advance(&mut self, instance: InstanceId, tx: TxId) {
        loop {
            let Some(live) = self.live(instance, tx) else {
                return;
            };
            let found = std::mem::take(&mut live.found);
            let (wave, plan) = (live.wave, live.plan.as_mut());
            let next = match plan {
                Some(plan) => plan.next(wave, &found),
                None => return,
            };
            live.wave += 1;
            live.stage = Stage::Preparing;
            match next {
                Err(errno) => return self.fail(instance, tx, errno),
                Ok(Next::Nothing) => return self.nothing_to_do(instance, tx),
                Ok(Next::Decide) => return self.decide(instance, tx),
                Ok(Next::Walk(mut walks)) => {
                    if let Some((at, forbidden)) = walks.pop() {
                        live.stage = Stage::Walking(at, forbidden, walks);
                        return self.walk(instance, tx);
                    }
                }
                Ok(Next::Wave(steps)) => match self.send_wave(instance, tx, steps) {
                    Err(errno) => return self.fail(instance, tx, errno),
                    Ok(true) => {}
                    Ok(false) => return,
                },
            }
        }
    }

    /// Ask nodes for their parts. `true`: it is all here and done.
    fn send_wave(
        &mut self,
        instance: InstanceId,
        tx: TxId,
        steps: Vec<(NodeIndex, Step)>,
    ) -> Result<bool, Errno> {
        let own = self.names(instance)?.spec.placement.node;
        let mut waiting: BTreeMap<NodeIndex, Vec<Step>> = BTreeMap::new();
        for (node, step) in steps {
            if node == own {
                self.take_step(instance, tx, &step)?;
            } else {
                waiting.entry(node).or_default().push(step);
            }
        }
        let nodes: Vec<_> = waiting.keys().copied().collect();
        let Some(live) = self.live(instance, tx) else {
            return Err(Errno::ESTALE);
        };
        live.waiting = waiting;
        live.nodes.extend(&nodes);
        for node in &nodes {
            self.send_prepare(instance, tx, *node);
        }
        Ok(nodes.is_empty())
    }

    /// Do a step on the coordinator itself.
    fn take_step(&mut self, instance: InstanceId, tx: TxId, step: &Step) -> Result<(), Errno> {
        let Some(live) = self.live(instance, tx) else {
            return Err(Errno::ESTALE);
        };
        let now = live.now;
        let Some((context, _)) = &live.asker else {
            return Err(Errno::ESTALE);
        };
        let who = context.who.clone();
        self.check_conflict(instance, tx, step)?;
        let ready = self.names(instance)?.names.prepare_step(&who, step, now)?;
        if let Some(lock) = lock_for_step(step) {
            self.locks(instance).take(lock, tx);
        }
        if let Some(live) = self.live(instance, tx) {
            live.changes.extend(ready.changes);
            live.found.push(ready.found);
        }
        Ok(())
    }

    fn send_prepare(&mut self, instance: InstanceId, tx: TxId, node: NodeIndex) {
        let Some(live) = self.live(instance, tx) else {
            return;
        };
        let (Some(steps), Some((context, _))) = (live.waiting.get(&node), &live.asker) else {
            return;
        };
        let say = PeerPayload::Prepare {
            tx,
            round: live.wave,
            who: context.who.clone(),
            now: live.now,
            steps: steps.clone(),
        };
        self.tell(instance, node, say);
    }

    pub(super) fn remind_of_transactions(&mut self, instance: InstanceId, node: NodeIndex) {
        let live = self.runtime(instance).spread.transactions.iter();
        let mut prepare = Vec::new();
        let mut walk = Vec::new();
        let mut announce = Vec::new();
        for (tx, live) in live {
            match &live.stage {
                Stage::Preparing if live.waiting.contains_key(&node) => prepare.push(*tx),
                Stage::Walking(at, ..) if at.metadata_node() == node => walk.push(*tx),
                Stage::Decided(_) if live.nodes.contains(&node) => announce.push(*tx),
                _ => {}
            }
        }
        for tx in prepare {
            self.send_prepare(instance, tx, node);
        }
        for tx in walk {
            self.walk(instance, tx);
        }
        for tx in announce {
            self.announce_to(instance, tx, node);
        }
    }

    pub(super) fn voted(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        (tx, wave): (TxId, u8),
        found: Result<Vec<StepResult>, Errno>,
    ) {
        let Some(live) = self.live(instance, tx) else {
            return;
        };
        if !matches!(live.stage, Stage::Preparing) || live.wave != wave {
            return;
        }
        match found {
            Ok(found) => {
                if live.waiting.remove(&from).is_some() {
                    live.found.extend(found);
                    if live.waiting.is_empty() {
                        self.advance(instance, tx);
                    }
                }
            }
            Err(errno) => self.fail(instance, tx, errno),
        }
    }

    /// Give a transaction up. After a conflict its request is tried again.
    pub(super) fn fail(&mut self, instance: InstanceId, tx: TxId, errno: Errno) {
        let Some(live) = self.give_up(instance, tx) else {
            return;
        };
        let Some((context, call)) = live.asker else {
            return;
        };
        if errno == Errno::EAGAIN {
            self.park_for_a_pause(context.conn, call, live.tried);
        } else {
            self.reply(context.conn, context.seq, Reply::Failed(errno));
        }
    }

    /// Give requests back whose transactions are not decided because a node does not answer, or has
    /// no part of the instance any more. Who asked for one that is decided is told after a longer
    /// while that it is not known whether it has happened everywhere; it keeps what it holds.
    pub(super) fn give_up_transactions(&mut self, instance: InstanceId) {
        let now = self.now.steady_ns;
        let live = self.runtime(instance).spread.transactions.values_mut();
        let late = live.filter(|live| live.since.saturating_add(DECIDED_PATIENCE) < now);
        let askers = late.filter_map(|live| live.asker.take_if(|_| live.stage.is_decided()));
        let askers: Vec<_> = askers.collect();
        for (context, _) in askers {
            let unknown = Reply::Failed(Errno::EIO);
            self.reply(context.conn, context.seq, unknown);
        }
        let live = self.runtime(instance).spread.transactions.iter();
        let undecided = live.filter(|(_, live)| !live.stage.is_decided());
        let late: Vec<TxId> = undecided
            .filter(|(_, live)| live.since.saturating_add(PATIENCE) < now)
            .map(|(tx, _)| *tx)
            .collect();
        for tx in late {
            if let Some(live) = self.give_up(instance, tx)
                && let Some((context, _)) = live.asker
            {
                let again = Reply::Failed(Errno::EAGAIN);
                self.reply(context.conn, context.seq, again);
            }
        }
    }

    fn nothing_to_do(&mut self, instance: InstanceId, tx: TxId) {
        if let Some(live) = self.give_up(instance, tx)
            && let Some((context, _)) = live.asker
        {
            self.reply(context.conn, context.seq, Reply::Done);
        }
    }

    fn give_up(&mut self, instance: InstanceId, tx: TxId) -> Option<Transaction> {
        let live = self.runtime(instance).spread.transactions.remove(&tx)?;
        self.locks(instance).release(tx);
        self.unlocked = true;
        for node in &live.nodes {
            self.tell(instance, *node, PeerPayload::Resolve { tx, commit: false });
        }
        Some(live)
    }
}
