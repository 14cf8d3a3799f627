//! The coordinator's part of transactions, from the decision on.

use super::coordinator::{Decided, Phase};
use crate::context::{Context, VolumeAction};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::namespace::Change;
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use crate::volume::Volume;
use crate::volume::tx_locks::TxLockOwner;
use forebay_protocol::peer::{PeerPayload, TxId};
use forebay_protocol::{Errno, Ino, NodeIndex, Reply};

/// The inodes that lose a name.
pub fn unlinked(changes: &[Change]) -> Vec<Ino> {
    let mut inos = Vec::new();
    for change in changes {
        if let Change::RemoveName { ino, .. } = change {
            inos.push(*ino);
        }
    }
    inos
}

/// The inodes that get a name.
pub fn linked(changes: &[Change]) -> Vec<Ino> {
    let named = changes.iter().filter_map(|change| match change {
        Change::AddName { ino, .. } => Some(*ino),
        _ => None,
    });
    named.collect()
}

impl<O: Objects> Volume<O> {
    /// All participants are prepared: commit.
    pub fn decide(&mut self, node: &mut Context<O>, tx: TxId) {
        if node.log_space == LogSpace::Exhausted {
            return self.fail(node, tx, Errno::ENOSPC);
        }
        let Some(live) = self.coordinator.get(tx) else {
            return;
        };
        let (Some(plan), Some((requester, _))) = (&live.plan, &live.call) else {
            return;
        };
        let (entry, result) = plan.conclusion(live.now());
        if let Err(errno) = self.check_memory(node, &entry) {
            return self.fail(node, tx, errno);
        }
        let reply = match result {
            Some((ino, kind)) => Reply::Referral { ino, kind },
            None => Reply::Done,
        };
        let result = result.map_or(SlotResult::Done, |(ino, kind)| SlotResult::Referral(ino, kind));
        let update = requester.origin.slot_update(result);
        let Some(live) = self.coordinator.get_mut(tx) else {
            return;
        };
        let mut changes = std::mem::take(&mut live.changes);
        changes.push(entry);
        let nodes = live.participants.clone();
        let is_local = nodes.is_empty();
        live.phase = Phase::Decided(Decided {
            is_durable: false,
            pending: nodes.clone(),
            reply: Some(reply),
        });
        let unlinked = unlinked(&changes);
        let event = VolumeEvent::Decide { tx, nodes, changes };
        self.log(node, event, Some(update));
        for ino in unlinked {
            self.drop_if_unused(node, ino);
        }
        if is_local {
            self.finish_transaction(node, tx);
            self.coordinator.remove(tx);
        } else {
            self.when_durable(node, node.journal.last(), VolumeAction::Announce(tx));
            node.effects.push(Effect::SyncLog);
        }
    }

    /// The commit is durable: announce it to all participants.
    pub fn announce(&mut self, node: &mut Context<O>, tx: TxId) {
        let Some(live) = self.coordinator.get_mut(tx) else {
            return;
        };
        let Phase::Decided(decided) = &mut live.phase else {
            unreachable!("only a committed transaction is announced");
        };
        decided.is_durable = true;
        for other in live.participants.clone() {
            self.announce_to(node, tx, other);
        }
    }

    pub fn announce_to(&mut self, node: &mut Context<O>, tx: TxId, to: NodeIndex) {
        let phase = self.coordinator.get(tx).map(|live| &live.phase);
        if let Some(Phase::Decided(Decided { is_durable: true, .. })) = phase {
            self.send(node, to, PeerPayload::Resolve { tx, commit: true });
        }
    }

    /// A prepared participant queries the decision.
    pub fn decision_queried(&mut self, node: &mut Context<O>, from: NodeIndex, tx: TxId) {
        match self.coordinator.get(tx).map(|live| &live.phase) {
            None => self.send(node, from, PeerPayload::Resolve { tx, commit: false }),
            Some(Phase::Decided(_)) => self.announce_to(node, tx, from),
            Some(Phase::Preparing | Phase::Walking(_)) => {}
        }
    }

    /// A participant has applied a transaction. `is_durable`: a power cut there does not undo that.
    pub fn participant_done(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        tx: TxId,
        is_durable: bool,
    ) {
        let Some(live) = self.coordinator.get_mut(tx) else {
            return;
        };
        let Phase::Decided(decided) = &mut live.phase else {
            return;
        };
        decided.pending.remove(&from);
        let is_applied = decided.pending.is_empty();
        // Without log space the participant is kept, and reports again.
        if is_durable && node.log_space > LogSpace::Exhausted {
            live.participants.remove(&from);
        }
        let is_over = live.participants.is_empty();
        if is_applied {
            self.finish_transaction(node, tx);
        }
        if is_over {
            self.log(node, VolumeEvent::Forget { tx }, None);
            self.coordinator.remove(tx);
        }
    }

    /// A transaction has been applied by all participants: reply, and release its locks here.
    fn finish_transaction(&mut self, node: &mut Context<O>, tx: TxId) {
        let Some(live) = self.coordinator.get_mut(tx) else {
            return;
        };
        let Phase::Decided(decided) = &mut live.phase else {
            unreachable!("only a committed transaction is applied");
        };
        assert!(decided.pending.is_empty(), "all participants are done");
        if let (Some((requester, _)), Some(reply)) = (live.call.take(), decided.reply.take()) {
            node.reply_to(&requester.origin, reply);
        }
        self.tx_locks.release(TxLockOwner::Transaction(tx));
        self.coordinator.forget_recalled(tx);
        node.parked.note_unlocked(self.id());
    }
}
