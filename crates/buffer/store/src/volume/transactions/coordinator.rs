//! The coordinator's part of transactions, up to the decision.

use super::plan::{Next, Plan};
use crate::context::{Attempts, Context, Requester};
use crate::namespace::{Change, TxLock, lock_for_step};
use crate::objects::Objects;
use crate::volume::Volume;
use crate::volume::tasks::{ANSWER_TIMEOUT_NS, DECIDED_TIMEOUT_NS};
use crate::volume::tx_locks::TxLockOwner;
use forebay_protocol::peer::{PeerPayload, Step, StepResult, TxId};
use forebay_protocol::{Call, Errno, Ino, NodeIndex, Reply, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Set in the number of every transaction, so that it never equals that of a task.
const TX_BIT: u64 = 1 << 63;

#[derive(Debug)]
pub enum Phase {
    /// Participants are being prepared.
    Preparing,
    /// A path is walked, to check that no directory moves below itself.
    Walking(Walk),
    /// It has committed.
    Decided(Decided),
}

/// A walk from a directory up to the root.
#[derive(Debug)]
pub struct Walk {
    pub at: Ino,
    /// The directory that must not be on the path.
    pub forbidden: Ino,
    /// Further walks.
    pub rest: Vec<(Ino, Ino)>,
}

/// The remainder of a transaction that has committed.
#[derive(Debug)]
pub struct Decided {
    /// The commit is durable: it may be announced.
    pub is_durable: bool,
    /// Participants that have not applied it.
    pub pending: BTreeSet<NodeIndex>,
    /// The reply when all have.
    pub reply: Option<Reply>,
}

/// A transaction that this node coordinates.
#[derive(Debug)]
pub struct Transaction {
    /// The call, unless the daemon has started again since or the call has timed out.
    pub call: Option<(Requester, Call)>,
    /// The plan. `None`: it was committed before this start.
    pub plan: Option<Plan>,
    pub phase: Phase,
    attempts: Attempts,
    now: Timestamp,
    since_ns: u64,
    /// The number of rounds and walks so far.
    round: u8,
    /// The steps of the present round, for each node that has not voted.
    waiting: BTreeMap<NodeIndex, Vec<Step>>,
    /// The participants; those that have applied the transaction durably are removed.
    pub participants: BTreeSet<NodeIndex>,
    /// The changes on this node.
    pub changes: Vec<Change>,
    /// The findings of the present round.
    found: Vec<StepResult>,
}

impl Transaction {
    fn new(requester: Requester, call: Call, plan: Plan, attempts: Attempts) -> Transaction {
        Transaction {
            call: Some((requester, call)),
            plan: Some(plan),
            phase: Phase::Preparing,
            attempts,
            now: Timestamp::default(),
            since_ns: 0,
            round: 0,
            waiting: BTreeMap::new(),
            participants: BTreeSet::new(),
            changes: Vec::new(),
            found: Vec::new(),
        }
    }

    /// A transaction that was committed before this start.
    pub fn recalled(participants: &BTreeSet<NodeIndex>) -> Transaction {
        Transaction {
            call: None,
            plan: None,
            phase: Phase::Decided(Decided {
                is_durable: true,
                pending: participants.clone(),
                reply: None,
            }),
            attempts: Attempts::first(0),
            now: Timestamp::default(),
            since_ns: 0,
            round: 0,
            waiting: BTreeMap::new(),
            participants: participants.clone(),
            changes: Vec::new(),
            found: Vec::new(),
        }
    }

    /// The time of its changes.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    fn is_decided(&self) -> bool {
        matches!(self.phase, Phase::Decided(_))
    }

    fn has_timed_out(&self, now_ns: u64, timeout_ns: u64) -> bool {
        self.since_ns.saturating_add(timeout_ns) < now_ns
    }

    /// The message that prepares a node for the present round.
    fn prepare_message(&self, tx: TxId, node: NodeIndex) -> Option<PeerPayload> {
        let (requester, _) = self.call.as_ref()?;
        Some(PeerPayload::Prepare {
            tx,
            round: self.round,
            who: requester.user.clone(),
            now: self.now,
            steps: self.waiting.get(&node)?.clone(),
        })
    }
}

/// The transactions that this node coordinates.
#[derive(Debug, Default)]
pub struct Coordinator {
    transactions: BTreeMap<TxId, Transaction>,
    /// Transactions from before this start that some participant has not applied.
    recalled: BTreeSet<TxId>,
}

/// The consequence of a vote.
enum Ballot {
    /// The vote is out of date, or others are missing.
    Open,
    /// All participants of the round are prepared.
    Complete,
    /// A participant refuses.
    Refused(Errno),
}

impl Coordinator {
    /// The committed transactions that are recovered at a start.
    pub fn restore(decided: &BTreeMap<TxId, BTreeSet<NodeIndex>>) -> Coordinator {
        let recalled = decided.iter();
        Coordinator {
            transactions: recalled.map(|(tx, nodes)| (*tx, Transaction::recalled(nodes))).collect(),
            recalled: decided.keys().copied().collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Whether transactions from before this start may not have been applied everywhere.
    pub fn has_recalled(&self) -> bool {
        !self.recalled.is_empty()
    }

    /// A transaction from before this start has been applied everywhere.
    pub fn forget_recalled(&mut self, tx: TxId) {
        self.recalled.remove(&tx);
    }

    /// A transaction.
    pub fn get(&self, tx: TxId) -> Option<&Transaction> {
        self.transactions.get(&tx)
    }

    /// A transaction.
    pub fn get_mut(&mut self, tx: TxId) -> Option<&mut Transaction> {
        self.transactions.get_mut(&tx)
    }

    pub fn remove(&mut self, tx: TxId) -> Option<Transaction> {
        self.transactions.remove(&tx)
    }

    /// The calls that wait for transactions.
    pub fn calls(&self) -> impl Iterator<Item = &Requester> {
        let calls = self.transactions.values().filter_map(|live| live.call.as_ref());
        calls.map(|(requester, _)| requester)
    }

    /// Transactions that walk a path.
    pub fn walking(&self) -> Vec<TxId> {
        let all = self.transactions.iter();
        let walking = all.filter(|(_, live)| matches!(live.phase, Phase::Walking(_)));
        walking.map(|(tx, _)| *tx).collect()
    }

    fn count_vote(
        &mut self,
        tx: TxId,
        (from, round): (NodeIndex, u8),
        vote: Result<Vec<StepResult>, Errno>,
    ) -> Ballot {
        let Some(live) = self.transactions.get_mut(&tx) else {
            return Ballot::Open;
        };
        if !matches!(live.phase, Phase::Preparing) || live.round != round {
            return Ballot::Open;
        }
        match vote {
            Err(errno) => Ballot::Refused(errno),
            Ok(found) => {
                if live.waiting.remove(&from).is_none() {
                    return Ballot::Open;
                }
                live.found.extend(found);
                if live.waiting.is_empty() { Ballot::Complete } else { Ballot::Open }
            }
        }
    }

    /// Transactions that have not been decided in time.
    fn undecided_timed_out(&self, now_ns: u64) -> Vec<TxId> {
        let undecided = self.transactions.iter().filter(|(_, live)| {
            !live.is_decided() && live.has_timed_out(now_ns, ANSWER_TIMEOUT_NS)
        });
        undecided.map(|(tx, _)| *tx).collect()
    }

    /// The calls of transactions that committed but were not applied everywhere in time.
    fn take_decided_timed_out(&mut self, now_ns: u64) -> Vec<(Requester, Call)> {
        let decided = self
            .transactions
            .values_mut()
            .filter(|live| live.is_decided() && live.has_timed_out(now_ns, DECIDED_TIMEOUT_NS));
        decided.filter_map(|live| live.call.take()).collect()
    }
}

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
        let transaction = Transaction {
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
                self.prepare_own_step(tx, &step)?;
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
    fn prepare_own_step(&mut self, tx: TxId, step: &Step) -> Result<(), Errno> {
        self.check_conflict(tx, step)?;
        let names = &self.state.names;
        let live = self.coordinator.get_mut(tx).ok_or(Errno::ESTALE)?;
        let (requester, _) = live.call.as_ref().ok_or(Errno::ESTALE)?;
        let prepared = names.prepare_step(&requester.user, step, live.now)?;
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
