//! The mounts of activations on compute nodes: a record for each, so that the report of one compute
//! node does not rewrite those of all others.

use std::collections::BTreeMap;

use super::objects::{HostReplica, Mount, MountId, MountState};
use crate::messages::ActivationId;
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// Number of an activation's mounts, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountCounts {
    /// To be mounted.
    pub requested: usize,
    /// Mounted.
    pub mounted: usize,
    /// Not mounted, because the compute node could not.
    pub failed: usize,
}

impl MountCounts {
    /// Number of all mounts.
    pub fn total(self) -> usize {
        self.requested + self.mounted + self.failed
    }

    fn of(&mut self, state: &MountState) -> &mut usize {
        match state {
            MountState::Requested => &mut self.requested,
            MountState::Mounted(_) => &mut self.mounted,
            MountState::Failed(_) => &mut self.failed,
        }
    }
}

/// The mounts of all activations.
#[derive(Clone, Debug)]
pub(super) struct MountTable {
    records: Table<MountId, Mount>,
    /// Follows from `records`.
    by_host: BTreeMap<String, BTreeMap<ActivationId, MountId>>,
    /// Follows from `records`.
    counts: BTreeMap<ActivationId, MountCounts>,
}

impl Default for MountTable {
    fn default() -> MountTable {
        MountTable {
            records: Table::new("mounts"),
            by_host: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }
}

impl MountTable {
    pub fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        self.records.restore(record)
    }

    /// Computes what follows from the restored records.
    pub fn finish_restore(&mut self) {
        for (id, mount) in self.records.iter() {
            self.by_host.entry(mount.host.clone()).or_default().insert(id.activation, id);
            *self.counts.entry(id.activation).or_default().of(&mount.state) += 1;
        }
    }

    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.records.take_changes(changes);
    }

    /// Mounts that were changed or removed in this step.
    pub fn changed_keys(&self) -> impl Iterator<Item = MountId> {
        self.records.changed_keys()
    }

    /// Panics if the indices contradict the records. Costs time in proportion to their number.
    pub fn check_invariants(&self) {
        let mut counts: BTreeMap<ActivationId, MountCounts> = BTreeMap::new();
        for (id, mount) in self.records.iter() {
            assert_eq!(self.id(id.activation, &mount.host), Some(id), "a host is mounted twice");
            *counts.entry(id.activation).or_default().of(&mount.state) += 1;
        }
        assert_eq!(counts, self.counts, "mounts are counted by state");
        let indexed: usize = self.by_host.values().map(BTreeMap::len).sum();
        assert_eq!(indexed, self.records.len(), "the index has a mount that does not exist");
    }

    fn id(&self, activation: ActivationId, host: &str) -> Option<MountId> {
        self.by_host.get(host)?.get(&activation).copied()
    }

    /// A mount by its key.
    pub fn by_id(&self, id: MountId) -> Option<&Mount> {
        self.records.get(id)
    }

    /// The mount of an activation on a compute node.
    pub fn get(&self, activation: ActivationId, host: &str) -> Option<&Mount> {
        self.records.get(self.id(activation, host)?)
    }

    /// The mounts of an activation, in the order in which they were requested.
    pub fn of(&self, activation: ActivationId) -> impl Iterator<Item = (MountId, &Mount)> {
        let first = MountId { activation, number: 0 };
        self.records.range(first..=MountId { activation, number: u64::MAX })
    }

    /// The mounts on a compute node.
    pub fn on_host(&self, host: &str) -> impl Iterator<Item = (ActivationId, &Mount)> {
        let ids = self.by_host.get(host).into_iter().flatten();
        ids.filter_map(|(activation, id)| Some((*activation, self.records.get(*id)?)))
    }

    /// Number of an activation's mounts.
    pub fn counts(&self, activation: ActivationId) -> MountCounts {
        self.counts.get(&activation).copied().unwrap_or_default()
    }

    /// Adds a mount on a compute node that has none of this activation.
    pub fn insert(&mut self, activation: ActivationId, mount: Mount) {
        let last = self.of_last(activation);
        let id = MountId { activation, number: last.map_or(0, |last| last.number + 1) };
        let old = self.by_host.entry(mount.host.clone()).or_default().insert(activation, id);
        assert!(old.is_none(), "a host is mounted twice");
        *self.counts.entry(activation).or_default().of(&mount.state) += 1;
        self.records.insert_new(id, mount);
    }

    fn of_last(&self, activation: ActivationId) -> Option<MountId> {
        let first = MountId { activation, number: 0 };
        let mut ids = self.records.range(first..=MountId { activation, number: u64::MAX });
        ids.next_back().map(|(id, _)| id)
    }

    /// Changes the state of a mount.
    pub fn set_state(&mut self, activation: ActivationId, host: &str, state: MountState) {
        let Some(mount) = self.id(activation, host).and_then(|id| self.records.get_mut(id)) else {
            return;
        };
        let counts = self.counts.entry(activation).or_default();
        *counts.of(&mount.state) -= 1;
        *counts.of(&state) += 1;
        mount.state = state;
    }

    /// Changes the generation of a mount.
    pub fn set_generation(&mut self, activation: ActivationId, host: &str, generation: u64) {
        if let Some(mount) = self.id(activation, host).and_then(|id| self.records.get_mut(id)) {
            assert!(mount.generation <= generation, "generations increase");
            mount.generation = generation;
        }
    }

    /// The replica that a compute node reads, to be changed.
    pub fn replica_mut(
        &mut self,
        activation: ActivationId,
        host: &str,
    ) -> Option<&mut Option<HostReplica>> {
        let id = self.id(activation, host)?;
        Some(&mut self.records.get_mut(id)?.replica)
    }

    /// Removes a mount.
    pub fn remove(&mut self, activation: ActivationId, host: &str) {
        let Some(id) = self.id(activation, host) else {
            return;
        };
        if let Some(of_host) = self.by_host.get_mut(host) {
            of_host.remove(&activation);
            if of_host.is_empty() {
                self.by_host.remove(host);
            }
        }
        let Some(mount) = self.records.remove(id) else {
            return;
        };
        let counts = self.counts.entry(activation).or_default();
        *counts.of(&mount.state) -= 1;
        if counts.total() == 0 {
            self.counts.remove(&activation);
        }
    }

    /// Removes all mounts of an activation.
    pub fn remove_all(&mut self, activation: ActivationId) {
        let hosts: Vec<String> = self.of(activation).map(|(_, mount)| mount.host.clone()).collect();
        for host in hosts {
            self.remove(activation, &host);
        }
    }
}
