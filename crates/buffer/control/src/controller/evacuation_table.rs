//! Records of instances that move to other storage nodes, and of attempts that have failed.

use serde::{Deserialize, Serialize};

use super::evacuation::{ATTEMPT_INTERVAL_MS, MAX_DELAY_MS};
use super::stage_table::StageTable;
use super::storage_table::StorageTable;
use crate::messages::{InstanceId, StageId, UnixMillis};
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// An instance that moves, from the allocation of its replacement on. While there is a record, the
/// instance is *held*: it is mounted nowhere, and no stage of a user reads or writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Evacuation {
    /// The instance to which its data are copied.
    pub replacement: InstanceId,
    /// The stage that copies them.
    pub stage: StageId,
    /// Attempts of the stage that have failed.
    pub failures: u32,
    /// Time of the next attempt, if the last one has failed.
    pub retry_at: Option<UnixMillis>,
}

/// An instance that could not be moved, and is to be moved later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PostponedEvacuation {
    /// Time before which it is not tried again.
    pub until: UnixMillis,
    /// Number of failures in sequence.
    pub times: u32,
    /// Reason of the last one.
    pub reason: String,
}

/// Instances that move, or could not be moved, by the instance with the data.
#[derive(Clone, Debug)]
pub(super) struct EvacuationTable {
    running: Table<InstanceId, Evacuation>,
    postponed: Table<InstanceId, PostponedEvacuation>,
}

impl Default for EvacuationTable {
    fn default() -> EvacuationTable {
        EvacuationTable {
            running: Table::new("evacuations"),
            postponed: Table::new("postponed_evacuations"),
        }
    }
}

impl EvacuationTable {
    pub fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        Ok(self.running.restore(record)? || self.postponed.restore(record)?)
    }

    /// No attempt is made later than the longest pause from now.
    pub fn forget_future(&mut self, now: UnixMillis) {
        let latest = now.plus_ms(ATTEMPT_INTERVAL_MS);
        self.running.change_each(|row| row.retry_at.as_mut().is_some_and(|at| at.limit(latest)));
        let latest = now.plus_ms(MAX_DELAY_MS);
        self.postponed.change_each(|row| row.until.limit(latest));
    }

    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.running.take_changes(changes);
        self.postponed.take_changes(changes);
    }

    /// Panics if the tables contradict each other.
    pub fn check_invariants(&self, storage: &StorageTable, stages: &StageTable) {
        for (source, evacuation) in self.running.iter() {
            let replacement = storage.instance(evacuation.replacement);
            assert!(
                replacement.is_some_and(|row| row.replaces == Some(source) && !row.ending),
                "an instance moves to one that does not replace it"
            );
            let mut with_mover = stages.in_progress().filter(|(_, stage)| stage.state.has_mover());
            assert!(
                with_mover.all(|(_, stage)| stage.instance != source),
                "a mover of a user is at work on an instance that moves"
            );
            let stage = stages.get(evacuation.stage);
            assert!(
                stage.is_some_and(|stage| {
                    (stage.copy_of, stage.instance) == (Some(source), evacuation.replacement)
                }),
                "an instance that moves has no copy"
            );
        }
    }

    /// Whether an instance moves, so that it is not mounted or staged.
    pub fn is_held(&self, instance: InstanceId) -> bool {
        self.running.contains(instance)
    }

    pub fn get(&self, instance: InstanceId) -> Option<&Evacuation> {
        self.running.get(instance)
    }

    /// The instances that move.
    pub fn running(&self) -> Vec<InstanceId> {
        self.running.keys()
    }

    /// Number of instances that move.
    pub fn count(&self) -> usize {
        self.running.len()
    }

    /// Whether a stage is the copy of an instance that moves.
    pub fn has_copy(&self, stage: StageId) -> bool {
        self.running.iter().any(|(_, evacuation)| evacuation.stage == stage)
    }

    pub fn begin(&mut self, instance: InstanceId, evacuation: Evacuation) {
        self.running.insert_new(instance, evacuation);
    }

    pub fn get_mut(&mut self, instance: InstanceId) -> Option<&mut Evacuation> {
        self.running.get_mut(instance)
    }

    /// The instance does not move any more: it has moved, or stays.
    pub fn end(&mut self, instance: InstanceId) -> Option<Evacuation> {
        self.running.remove(instance)
    }

    /// The last failure, until the instance has moved or is not to be moved any more.
    pub fn postponed(&self, instance: InstanceId) -> Option<&PostponedEvacuation> {
        self.postponed.get(instance)
    }

    /// All instances that could not be moved.
    pub fn all_postponed(&self) -> Vec<InstanceId> {
        self.postponed.keys()
    }

    pub fn postpone(&mut self, instance: InstanceId, postponed: PostponedEvacuation) {
        self.postponed.insert(instance, postponed);
    }

    /// Forgets the failures of an instance.
    pub fn forget_failures(&mut self, instance: InstanceId) {
        if self.postponed.contains(instance) {
            self.postponed.remove(instance);
        }
    }
}
