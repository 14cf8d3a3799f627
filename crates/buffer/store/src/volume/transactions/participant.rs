//! The participant's part of transactions.

use super::decision::{linked, unlinked};
use crate::context::{Context, VolumeAction};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::namespace::{TxLock, lock_for_step};
use crate::objects::Objects;
use crate::state::{Round, VolumeEvent};
use crate::volume::Volume;
use crate::volume::tx_locks::TxLockOwner;
use forebay_protocol::peer::{PeerPayload, Step, TxId};
use forebay_protocol::{Credentials, Errno, NodeIndex, Timestamp};

impl<O: Objects> Volume<O> {
    /// `EAGAIN` if a step conflicts with another transaction.
    pub fn check_conflict(&self, tx: TxId, step: &Step) -> Result<(), Errno> {
        let locks = &self.tx_locks;
        let is_locked = lock_for_step(step).is_some_and(|lock| locks.conflicts(&lock, tx));
        let is_in_use = match step {
            Step::InsertEntry { dir, .. } => locks.conflicts(&TxLock::Inode(*dir), tx),
            Step::RemoveLink { ino, dir: true, .. } => locks.any_name_conflicts(*ino, tx),
            Step::RemoveLink { dir: false, .. }
            | Step::MakeDir { .. }
            | Step::MakeDirWithAcls { .. }
            | Step::AddLink { .. }
            | Step::ChangeParent { .. }
            | Step::LockRenames => false,
        };
        if is_locked || is_in_use { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Prepare for a round of a transaction, and vote once that is durable.
    pub fn prepare(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        (tx, number): (TxId, u8),
        user: &Credentials,
        now: Timestamp,
        steps: &[Step],
    ) {
        let known = self.state.prepared.get(&tx);
        if known.is_some_and(|known| known.rounds.iter().any(|round| round.number == number)) {
            return self.vote(node, tx, number);
        }
        let round = match self.prepare_round(node, tx, number, user, now, steps) {
            Ok(round) => round,
            Err(errno) => {
                let vote = PeerPayload::Vote { tx, round: number, found: Err(errno) };
                return self.send(node, from, vote);
            }
        };
        for lock in &round.locks {
            self.tx_locks.take(lock.clone(), TxLockOwner::Transaction(tx));
        }
        let event = VolumeEvent::Prepare { tx, coordinator: from, round };
        let record = self.log(node, event, None);
        self.participant.prepared.insert((tx, number), record);
        self.when_durable(node, record, VolumeAction::Vote(tx, number));
        node.effects.push(Effect::SyncLog);
    }

    fn prepare_round(
        &self,
        node: &Context<O>,
        tx: TxId,
        number: u8,
        user: &Credentials,
        now: Timestamp,
        steps: &[Step],
    ) -> Result<Round, Errno> {
        node.require_log_space(log_space_for(steps))?;
        let mut round = Round { number, changes: Vec::new(), locks: Vec::new(), found: Vec::new() };
        for step in steps {
            self.check_conflict(tx, step)?;
            if matches!(step, Step::MakeDir { .. } | Step::MakeDirWithAcls { .. }) {
                self.check_inode_limit()?;
            }
            let prepared = self.names().prepare_step(user, step, now)?;
            for change in &prepared.changes {
                self.check_memory(node, change)?;
            }
            round.changes.extend(prepared.changes);
            round.found.push(prepared.found);
            round.locks.extend(lock_for_step(step));
        }
        assert_eq!(round.found.len(), steps.len(), "a finding for every step");
        Ok(round)
    }

    /// Send the vote on a round if its record is durable; otherwise it is sent when it is.
    pub fn vote(&mut self, node: &mut Context<O>, tx: TxId, number: u8) {
        let votes = &mut self.participant.prepared;
        if let Some(record) = votes.get(&(tx, number)) {
            if !node.journal.is_durable(*record) {
                return;
            }
            votes.remove(&(tx, number));
        }
        let Some(prepared) = self.state.prepared.get(&tx) else {
            return;
        };
        let coordinator = prepared.coordinator;
        let mut rounds = prepared.rounds.iter();
        if let Some(round) = rounds.find(|round| round.number == number) {
            let vote = PeerPayload::Vote { tx, round: number, found: Ok(round.found.clone()) };
            self.send(node, coordinator, vote);
        }
    }

    /// The coordinator has decided.
    pub fn resolve(&mut self, node: &mut Context<O>, from: NodeIndex, tx: TxId, commit: bool) {
        if let Some(prepared) = self.state.prepared.get(&tx) {
            // Without log space the coordinator sends the decision again.
            if prepared.coordinator != from || node.log_space == LogSpace::Exhausted {
                return;
            }
            let changes = prepared.rounds.iter().map(|round| &*round.changes);
            let unlinked: Vec<_> = changes.clone().flat_map(unlinked).collect();
            let linked: Vec<_> = changes.flat_map(linked).collect();
            let record = self.log(node, VolumeEvent::Resolve { tx, commit }, None);
            self.participant.clients.remove(&tx);
            self.tx_locks.release(TxLockOwner::Transaction(tx));
            node.parked.note_unlocked(self.id());
            // One without a name, which it has not got, may have been closed meanwhile.
            for ino in linked {
                self.drop_if_unused(node, ino);
            }
            if commit {
                self.participant.applied.insert(tx, record);
                self.when_durable(node, record, VolumeAction::ReportDone(tx, from));
                for ino in unlinked {
                    self.drop_if_unused(node, ino);
                }
            }
        }
        if commit {
            self.report_done(node, tx, from);
        }
    }

    /// Report to the coordinator that a transaction has been applied here, and whether durably. Until
    /// then it must remember the decision, since this node would query it.
    pub fn report_done(&mut self, node: &mut Context<O>, tx: TxId, to: NodeIndex) {
        let applied = &mut self.participant.applied;
        let record = applied.get(&tx);
        let durable = record.is_none_or(|record| node.journal.is_durable(*record));
        if durable {
            applied.remove(&tx);
        }
        self.send(node, to, PeerPayload::TxDone { tx, durable });
    }

    /// Query the decision of transactions this node is prepared for.
    pub fn query_decisions(&mut self, node: &mut Context<O>, coordinator: NodeIndex) {
        let open = self.state.prepared.iter();
        let open = open.filter(|(_, prepared)| prepared.coordinator == coordinator);
        let open: Vec<TxId> = open.map(|(tx, _)| *tx).collect();
        for tx in open {
            self.send(node, coordinator, PeerPayload::QueryOutcome { tx });
        }
    }
}

/// The log space that the steps of a participant take.
fn log_space_for(steps: &[Step]) -> LogSpace {
    let frees = |step: &Step| match step {
        Step::RemoveLink { .. } | Step::LockRenames => true,
        Step::MakeDir { .. }
        | Step::MakeDirWithAcls { .. }
        | Step::InsertEntry { .. }
        | Step::AddLink { .. }
        | Step::ChangeParent { .. } => false,
    };
    if steps.iter().all(frees) { LogSpace::ReserveOnly } else { LogSpace::Normal }
}
