//! The coordinator's part of transactions, up to the decision.

mod prepare;

use super::plan::Plan;
use crate::context::{Attempts, Requester};
use crate::namespace::Change;
use crate::volume::tasks::{ANSWER_TIMEOUT_NS, DECIDED_TIMEOUT_NS};
use forebay_protocol::message::TrailingField;
use forebay_protocol::peer::{PeerPayload, Step, StepResult, TxId};
use forebay_protocol::{Call, Errno, Ino, NodeIndex, Reply, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

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
    /// The number of the client that has requested it.
    client: u64,
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
            client: 0,
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
            client: 0,
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
            client: TrailingField(self.client),
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

    /// Whether a transaction has not changed this node yet, and may.
    pub fn any_undecided(&self) -> bool {
        self.transactions.values().any(|live| !live.is_decided())
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
