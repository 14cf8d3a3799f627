//! Fragments on a storage node are created and removed.

use serde::{Deserialize, Serialize};

use super::{StorageEffect, StorageNode};
use crate::messages::{FragmentId, FragmentPlan, InstanceId, StorageReport};
use crate::records::{CorruptRecord, StoredRecord, Table};

/// Name of the table of fragments.
pub(super) const FRAGMENTS: &str = "node.fragments";

/// Removed fragments that are remembered, so that a delayed command does not create them again.
const MAX_TOMBSTONES: usize = 4096;

/// State of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LocalFragmentState {
    Creating,
    Ready,
    Removing,
}

/// The record of a fragment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FragmentRow {
    pub(super) plan: FragmentPlan,
    pub(super) state: LocalFragmentState,
}

/// The table of fragments in durable records.
pub(super) fn fragments_in(
    records: &[StoredRecord],
) -> Result<Table<FragmentId, FragmentRow>, CorruptRecord> {
    let mut fragments = Table::new(FRAGMENTS);
    for record in records {
        fragments.restore(record)?;
    }
    Ok(fragments)
}

impl StorageNode {
    /// The instances that are on the storage daemon, by durable records: it must have them when it starts.
    pub fn instances_in(records: &[StoredRecord]) -> Result<Vec<InstanceId>, CorruptRecord> {
        let fragments = fragments_in(records)?;
        let ready = fragments.iter().filter(|(_, row)| row.state == LocalFragmentState::Ready);
        Ok(ready.map(|(_, row)| row.plan.instance).collect())
    }

    /// After a start: what was in progress is done again.
    pub(super) fn resume_fragments(&mut self) {
        for (_, row) in self.fragments.iter() {
            match row.state {
                LocalFragmentState::Creating => {
                    self.effects.push(StorageEffect::Create(row.plan.clone()));
                }
                LocalFragmentState::Removing => {
                    self.effects.push(StorageEffect::Destroy(row.plan.clone()));
                }
                LocalFragmentState::Ready => {}
            }
        }
    }

    pub(super) fn create(&mut self, plan: FragmentPlan) {
        let fragment = plan.fragment;
        if self.tombstones.contains(fragment) {
            return self.report(StorageReport::FragmentRemoved(fragment));
        }
        match self.fragments.get(fragment).map(|row| row.state) {
            Some(LocalFragmentState::Ready) => self.report(StorageReport::FragmentReady(fragment)),
            Some(LocalFragmentState::Creating | LocalFragmentState::Removing) => {}
            None if plan.granules > self.granules.saturating_sub(self.used_granules()) => {
                let reason = format!(
                    "{} granules requested, {} of {} in use",
                    plan.granules,
                    self.used_granules(),
                    self.granules
                );
                self.report(StorageReport::FragmentRefused(fragment, reason));
            }
            None => {
                let row = FragmentRow { plan: plan.clone(), state: LocalFragmentState::Creating };
                self.fragments.insert_new(fragment, row);
                assert!(
                    self.used_granules() <= self.granules,
                    "more granules in use than the node has"
                );
                self.effects.push(StorageEffect::Create(plan));
            }
        }
    }

    pub(super) fn created(&mut self, fragment: FragmentId, outcome: Result<(), String>) {
        let state = self.fragments.get(fragment).map(|row| row.state);
        if state != Some(LocalFragmentState::Creating) {
            return;
        }
        match outcome {
            Ok(()) => {
                if let Some(row) = self.fragments.get_mut(fragment) {
                    row.state = LocalFragmentState::Ready;
                }
                self.report(StorageReport::FragmentReady(fragment));
            }
            Err(reason) => {
                self.fragments.remove(fragment);
                self.report(StorageReport::FragmentRefused(fragment, reason));
            }
        }
    }

    pub(super) fn remove(&mut self, fragment: FragmentId) {
        let Some(row) = self.fragments.get_mut(fragment) else {
            self.add_tombstone(fragment);
            return self.report(StorageReport::FragmentRemoved(fragment));
        };
        row.state = LocalFragmentState::Removing;
        let plan = row.plan.clone();
        let mut running = false;
        for stage in self.stages_of(plan.instance) {
            if let Some(mover) = self.movers.get(&stage) {
                running = true;
                self.effects.push(StorageEffect::StopMover(stage, mover.attempt));
            }
        }
        // The fragment is destroyed when its last mover has ended.
        if !running {
            self.effects.push(StorageEffect::Destroy(plan));
        }
    }

    pub(super) fn destroyed(&mut self, fragment: FragmentId, outcome: Result<(), String>) {
        let Some(row) = self.fragments.get(fragment) else {
            return;
        };
        // After a failure the fragment stays as it is: the controller repeats its command.
        if row.state != LocalFragmentState::Removing || outcome.is_err() {
            return;
        }
        let instance = row.plan.instance;
        self.fragments.remove(fragment);
        self.fences.remove(fragment);
        self.add_tombstone(fragment);
        if !self.has_fragment_of(instance) {
            for stage in self.stages_of(instance) {
                self.stages.remove(stage);
            }
        }
        self.report(StorageReport::FragmentRemoved(fragment));
    }

    fn add_tombstone(&mut self, fragment: FragmentId) {
        self.tombstones.insert(fragment, ());
        if self.tombstones.len() > MAX_TOMBSTONES {
            let oldest = self.tombstones.iter().next().map(|(id, ())| id);
            oldest.map(|id| self.tombstones.remove(id));
        }
    }

    pub(super) fn has_fragment_of(&self, instance: InstanceId) -> bool {
        let mut rows = self.fragments.iter().map(|(_, row)| row);
        rows.any(|row| row.plan.instance == instance)
    }

    pub(super) fn has_ready_fragment_of(&self, instance: InstanceId) -> bool {
        let mut rows = self.fragments.iter().map(|(_, row)| row);
        rows.any(|row| row.plan.instance == instance && row.state == LocalFragmentState::Ready)
    }
}
