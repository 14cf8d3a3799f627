//! Changes of the name space that concern several nodes: the part of a node that is not asked by
//! the client but by the node that was.

use crate::log::LogSpace;
use crate::namespace::{Change, TxLock, lock_for_step};
use crate::node::room::room_for_steps;
use crate::node::{Doomed, Effect, Event, Shard, Wave};
use crate::objects::Objects;
use forebay_protocol::Credentials;
use forebay_protocol::peer::{PeerPayload, Step, StepResult, TxId};
use forebay_protocol::{Errno, InstanceId, NodeIndex, Timestamp};

impl<O: Objects> Shard<O> {
    /// `EAGAIN` if a step touches what another transaction holds.
    pub(in crate::node) fn check_conflict(
        &mut self,
        instance: InstanceId,
        tx: TxId,
        step: &Step,
    ) -> Result<(), Errno> {
        let locks = self.locks(instance);
        let taken = lock_for_step(step).is_some_and(|lock| locks.held(&lock, tx));
        let in_use = match step {
            Step::InsertEntry { dir, .. } => locks.held(&TxLock::Inode(*dir), tx),
            Step::RemoveLink { ino, dir: true, .. } => locks.names_held(*ino, tx),
            _ => false,
        };
        if taken || in_use {
            Err(Errno::EAGAIN)
        } else {
            Ok(())
        }
    }

    /// Get ready for part of a transaction, and vote once that is durable.
    pub(in crate::node) fn prepare(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        (tx, number): (TxId, u8),
        who: &Credentials,
        now: Timestamp,
        steps: &[Step],
    ) {
        let Ok(known) = self.names(instance) else {
            return;
        };
        let prepared = known.prepared.get(&tx);
        if prepared.is_some_and(|p| p.waves.iter().any(|wave| wave.number == number)) {
            return self.vote(instance, tx, number);
        }
        match self.get_ready(instance, tx, number, who, now, steps) {
            Err(errno) => {
                let vote = PeerPayload::Vote {
                    tx,
                    round: number,
                    found: Err(errno),
                };
                self.tell(instance, from, vote);
            }
            Ok(wave) => {
                let locks = wave.locks.clone();
                let event = Event::Prepare {
                    instance,
                    tx,
                    coordinator: from,
                    wave,
                };
                self.log(event, None);
                for lock in locks {
                    self.locks(instance).take(lock, tx);
                }
                let record = self.last;
                let votes = &mut self.runtime(instance).spread.votes;
                votes.insert((tx, number), record);
                self.doomed
                    .push_back((record, Doomed::Vote(instance, tx, number)));
                self.effects.push(Effect::SyncLog);
            }
        }
    }

    fn get_ready(
        &mut self,
        instance: InstanceId,
        tx: TxId,
        number: u8,
        who: &Credentials,
        now: Timestamp,
        steps: &[Step],
    ) -> Result<Wave, Errno> {
        self.need_room(room_for_steps(steps))?;
        let who = who.clone();
        let mut wave = Wave {
            number,
            changes: Vec::new(),
            locks: Vec::new(),
            found: Vec::new(),
        };
        for step in steps {
            self.check_conflict(instance, tx, step)?;
            if matches!(step, Step::MakeDir { .. }) {
                self.check_inodes(instance)?;
            }
            let ready = self.names(instance)?.names.prepare_step(&who, step, now)?;
            wave.changes.extend(ready.changes);
            wave.found.push(ready.found);
            wave.locks.extend(lock_for_step(step));
        }
        Ok(wave)
    }

    /// Say that this node is ready, if that is durable; otherwise that is said when it is.
    pub(in crate::node) fn vote(&mut self, instance: InstanceId, tx: TxId, number: u8) {
        let durable = self.durable;
        let votes = &mut self.runtime(instance).spread.votes;
        if votes
            .get(&(tx, number))
            .is_some_and(|record| *record > durable)
        {
            return;
        }
        votes.remove(&(tx, number));
        let Ok(known) = self.names(instance) else {
            return;
        };
        let Some(prepared) = known.prepared.get(&tx) else {
            return;
        };
        let wave = prepared.waves.iter().find(|wave| wave.number == number);
        let found: Option<Vec<StepResult>> = wave.map(|wave| wave.found.clone());
        if let (Some(found), node) = (found, prepared.coordinator) {
            let vote = PeerPayload::Vote {
                tx,
                round: number,
                found: Ok(found),
            };
            self.tell(instance, node, vote);
        }
    }

    /// The coordinator has decided.
    pub(in crate::node) fn resolve(
        &mut self,
        instance: InstanceId,
        from: NodeIndex,
        tx: TxId,
        commit: bool,
    ) {
        let Ok(known) = self.names(instance) else {
            return;
        };
        match known.prepared.get(&tx) {
            Some(prepared) if prepared.coordinator == from => {
                if self.room == LogSpace::Exhausted {
                    return; // it will be said again
                }
                let changes = prepared.waves.iter().flat_map(|wave| &wave.changes);
                let changes: Vec<Change> = changes.cloned().collect();
                self.log(
                    Event::Resolve {
                        instance,
                        tx,
                        commit,
                    },
                    None,
                );
                self.locks(instance).release(tx);
                self.unlocked = true;
                let record = self.last;
                if commit {
                    let spread = &mut self.runtime(instance).spread;
                    spread.resolved.insert(tx, record);
                    self.doomed
                        .push_back((record, Doomed::Done(instance, tx, from)));
                    self.drop_unnamed(instance, &changes);
                }
            }
            Some(_) => return,
            None => {}
        }
        if commit {
            self.done(instance, tx, from);
        }
    }

    /// Tell the coordinator that a transaction has happened here, and whether for good. It must
    /// remember it until then, since this node would ask.
    pub(in crate::node) fn done(&mut self, instance: InstanceId, tx: TxId, node: NodeIndex) {
        let durable = self.durable;
        let resolved = &mut self.runtime(instance).spread.resolved;
        let durable = resolved.get(&tx).is_none_or(|record| *record <= durable);
        if durable {
            resolved.remove(&tx);
        }
        self.tell(instance, node, PeerPayload::TxDone { tx, durable });
    }

    /// Inodes that lost a name may have lost the last one.
    pub(in crate::node) fn drop_unnamed(&mut self, instance: InstanceId, changes: &[Change]) {
        for change in changes {
            if let Change::RemoveName { ino, .. } = change {
                self.drop_if_unused(instance, *ino);
            }
        }
    }

    /// Ask what became of transactions this node is ready for.
    pub(in crate::node) fn ask_for_decisions(&mut self, instance: InstanceId, node: NodeIndex) {
        let Ok(known) = self.names(instance) else {
            return;
        };
        let theirs = known.prepared.iter();
        let theirs = theirs.filter(|(_, prepared)| prepared.coordinator == node);
        let open: Vec<TxId> = theirs.map(|(tx, _)| *tx).collect();
        for tx in open {
            self.tell(instance, node, PeerPayload::QueryOutcome { tx });
        }
    }
}
