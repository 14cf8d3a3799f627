//! Participants are prepared, or the transaction is aborted.

use super::{Ballot, Phase, Transaction, Walk};
use crate::context::{Context, Requester};
use crate::namespace::{TxLock, lock_for_step};
use crate::objects::Objects;
use crate::volume::Volume;
use crate::volume::memory::check_growth;
use crate::volume::transactions::plan::{Next, Plan};
use crate::volume::tx_locks::TxLockOwner;
use forebay_protocol::peer::{PeerPayload, Step, StepResult, TxId};
use forebay_protocol::{Call, Errno, Ino, NodeIndex, Reply};
use std::collections::BTreeMap;

/// Set in the number of every transaction, so that it never equals that of a task.
const TX_BIT: u64 = 1 << 63;
impl<O: Objects> Volume<O> {
    /// Begin a transaction: lock its first name, and prepare.
    pub fn begin_transaction(
        &mut self,
        node: &mut Context<O>,
        requester: Requester,
        call: Call,
        plan: Plan,
    ) {
        let tx = TxId(node.secrets.next() as u64 | TX_BIT);
        let (dir, name) = plan.first_name();
        let lock = TxLock::Name(*dir, name.clone());
        self.tx_locks.take(lock, TxLockOwner::Transaction(tx));
        let session = node.sessions.get(requester.origin.session);
        let transaction = Transaction {
            client: session.ok().and_then(|session| session.client_number).unwrap_or(0),
            now: node.now.wall,
            since_ns: node.now.steady_ns,
            ..Transaction::new(requester, call, plan, node.current_attempts())
        };
        let before = self.coordinator.transactions.insert(tx, transaction);
        assert!(before.is_none(), "transaction numbers are unique");
        self.advance(node, tx);
    }

    /// A round or a walk is over: continue with the next part of the plan.
    pub fn advance(&mut self, node: &mut Context<O>, tx: TxId) {
        loop {
            let Some(live) = self.coordinator.get_mut(tx) else {
                return;
            };
            assert!(live.waiting.is_empty(), "the last round is over");
            let found = std::mem::take(&mut live.found);
            let Some(plan) = &mut live.plan else {
                return;
            };
            let next = plan.next(live.round, &found);
            let to_sync = plan.replacing_file().filter(|_| matches!(next, Ok(Next::Walk(_))));
            if let (Some(ino), Some((requester, call))) = (to_sync, &live.call)
                && !self.replacements.is_synced((requester.origin.conn, call.seq), ino)
            {
                return self.retry_when_synced(node, tx, ino);
            }
            let Some(live) = self.coordinator.get_mut(tx) else {
                return;
            };
            live.round += 1;
            live.phase = Phase::Preparing;
            match next {
                Err(errno) => return self.fail(node, tx, errno),
                Ok(Next::Nothing) => return self.finish_unchanged(node, tx),
                Ok(Next::Decide) => return self.decide(node, tx),
                Ok(Next::Walk(mut walks)) => {
                    if let Some((at, forbidden)) = walks.pop() {
                        live.phase = Phase::Walking(Walk { at, forbidden, rest: walks });
                        return self.walk(node, tx);
                    }
                }
                Ok(Next::Round(steps)) => match self.begin_round(node, tx, steps) {
                    Err(errno) => return self.fail(node, tx, errno),
                    Ok(true) => {}
                    Ok(false) => return,
                },
            }
        }
    }

    /// Prepare nodes for their steps. `true`: all were on this node, which is prepared.
    fn begin_round(
        &mut self,
        node: &mut Context<O>,
        tx: TxId,
        steps: Vec<(NodeIndex, Step)>,
    ) -> Result<bool, Errno> {
        let own = self.state.spec.placement.node;
        let mut waiting: BTreeMap<NodeIndex, Vec<Step>> = BTreeMap::new();
        for (other, step) in steps {
            if other == own {
                self.prepare_own_step(node, tx, &step)?;
            } else {
                waiting.entry(other).or_default().push(step);
            }
        }
        let live = self.coordinator.get_mut(tx).ok_or(Errno::ESTALE)?;
        let nodes: Vec<NodeIndex> = waiting.keys().copied().collect();
        live.waiting = waiting;
        live.participants.extend(&nodes);
        for other in &nodes {
            self.send_prepare(node, tx, *other);
        }
        Ok(nodes.is_empty())
    }

    /// Prepare for a step on the coordinator itself.
    fn prepare_own_step(&mut self, node: &Context<O>, tx: TxId, step: &Step) -> Result<(), Errno> {
        self.check_conflict(tx, step)?;
        let (names, own) = (&self.state.names, self.accounted_bytes);
        let live = self.coordinator.get_mut(tx).ok_or(Errno::ESTALE)?;
        let (requester, _) = live.call.as_ref().ok_or(Errno::ESTALE)?;
        let prepared = names.prepare_step(&requester.user, step, live.now)?;
        for change in &prepared.changes {
            let growth = names.growth(change);
            check_growth((&self.state, &self.space), (&node.memory, own), growth)?;
        }
        live.changes.extend(prepared.changes);
        live.found.push(prepared.found);
        if let Some(lock) = lock_for_step(step) {
            self.tx_locks.take(lock, TxLockOwner::Transaction(tx));
        }
        Ok(())
    }

    fn send_prepare(&mut self, node: &mut Context<O>, tx: TxId, to: NodeIndex) {
        let live = self.coordinator.get(tx);
        if let Some(prepare) = live.and_then(|live| live.prepare_message(tx, to)) {
            self.send(node, to, prepare);
        }
    }

    pub fn retransmit_transactions(&mut self, node: &mut Context<O>, to: NodeIndex) {
        let (mut prepare, mut walk, mut announce) = (Vec::new(), Vec::new(), Vec::new());
        for (tx, live) in &self.coordinator.transactions {
            match &live.phase {
                Phase::Preparing if live.waiting.contains_key(&to) => prepare.push(*tx),
                Phase::Walking(path) if path.at.metadata_node() == to => walk.push(*tx),
                Phase::Decided(_) if live.participants.contains(&to) => announce.push(*tx),
                Phase::Preparing | Phase::Walking(_) | Phase::Decided(_) => {}
            }
        }
        for tx in prepare {
            self.send_prepare(node, tx, to);
        }
        for tx in walk {
            self.walk(node, tx);
        }
        for tx in announce {
            self.announce_to(node, tx, to);
        }
    }

    /// A participant has voted.
    pub fn voted(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        (tx, round): (TxId, u8),
        vote: Result<Vec<StepResult>, Errno>,
    ) {
        match self.coordinator.count_vote(tx, (from, round), vote) {
            Ballot::Open => {}
            Ballot::Complete => self.advance(node, tx),
            Ballot::Refused(errno) => self.fail(node, tx, errno),
        }
    }

    /// Abort a transaction. After a conflict its request is retried.
    pub fn fail(&mut self, node: &mut Context<O>, tx: TxId, errno: Errno) {
        let Some(live) = self.abort(node, tx) else {
            return;
        };
        let Some((requester, call)) = live.call else {
            return;
        };
        let origin = requester.origin;
        if errno == Errno::EAGAIN {
            let random = node.secrets.next() as u64;
            let moment = (node.now.steady_ns, random);
            let call = (origin.conn, call);
            node.parked.back_off(self.id(), call, live.attempts, moment);
        } else {
            node.reply_to(&requester.origin, Reply::Failed(errno));
        }
    }

    /// Return requests whose transactions are not decided because a node does not answer, or has no
    /// part of the instance any more. A request whose transaction has committed is answered `EIO`
    /// after a longer timeout: it is not known whether all nodes have applied it. The transaction keeps
    /// its locks.
    pub fn time_out_transactions(&mut self, node: &mut Context<O>) {
        let now_ns = node.now.steady_ns;
        for (requester, _) in self.coordinator.take_decided_timed_out(now_ns) {
            node.reply_to(&requester.origin, Reply::Failed(Errno::EIO));
        }
        for tx in self.coordinator.undecided_timed_out(now_ns) {
            let live = self.abort(node, tx);
            if let Some((requester, _)) = live.and_then(|live| live.call) {
                node.reply_to(&requester.origin, Reply::Failed(Errno::EAGAIN));
            }
        }
    }

    /// Abort a transaction, and retry its request when the data of a file are durable.
    fn retry_when_synced(&mut self, node: &mut Context<O>, tx: TxId, ino: Ino) {
        let live = self.abort(node, tx);
        if let Some((requester, call)) = live.and_then(|live| live.call) {
            self.await_durable_data(node, ino, (requester.origin.conn, call));
        }
    }

    /// A request turned out to change nothing.
    fn finish_unchanged(&mut self, node: &mut Context<O>, tx: TxId) {
        let live = self.abort(node, tx);
        if let Some((requester, _)) = live.and_then(|live| live.call) {
            node.reply_to(&requester.origin, Reply::Done);
        }
    }

    fn abort(&mut self, node: &mut Context<O>, tx: TxId) -> Option<Transaction> {
        let live = self.coordinator.remove(tx)?;
        assert!(!live.is_decided(), "a committed transaction is not aborted");
        self.tx_locks.release(TxLockOwner::Transaction(tx));
        node.parked.note_unlocked(self.id());
        for other in &live.participants {
            let abort = PeerPayload::Resolve { tx, commit: false };
            self.send(node, *other, abort);
        }
        Some(live)
    }
}
