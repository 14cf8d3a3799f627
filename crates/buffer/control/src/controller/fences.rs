//! Fences: before the mounts of a compute node that is presumed dead count as ended, the storage nodes
//! of the instance confirm that they refuse them. The host may run, and be cut off from the controller
//! only: what its processes were acknowledged is staged out, and what they write later fails.

use std::collections::BTreeMap;

use forebay_protocol::message::{ALL_HOSTS, HostFence};
use serde::{Deserialize, Serialize};

use super::machine::Controller;
use super::objects::{FragmentState, MountState};
use crate::messages::{ActivationId, FragmentId, InstanceId, Peer};
use crate::records::{Change, CorruptRecord, StoredRecord, Table, record_key};

/// Number of a fence. Later ones have higher numbers; the number is the first generation of the
/// host's mounts that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FenceId(pub u64);

record_key!(FenceId);

/// A compute node whose mounts of an instance are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Fence {
    instance: InstanceId,
    host: String,
}

/// The last fence of each host and instance.
#[derive(Clone, Debug)]
pub(super) struct FenceTable {
    records: Table<FenceId, Fence>,
    /// Follows from `records`.
    by_instance: BTreeMap<InstanceId, BTreeMap<String, FenceId>>,
}

impl Default for FenceTable {
    fn default() -> FenceTable {
        FenceTable { records: Table::new("fences"), by_instance: BTreeMap::new() }
    }
}

impl FenceTable {
    pub fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        self.records.restore(record)
    }

    /// Computes what follows from the restored records.
    pub fn finish_restore(&mut self) {
        for (id, fence) in self.records.iter() {
            let hosts = self.by_instance.entry(fence.instance).or_default();
            hosts.insert(fence.host.clone(), id);
        }
    }

    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.records.take_changes(changes);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_instance.is_empty()
    }

    /// The highest number of a fence.
    pub fn last(&self) -> Option<FenceId> {
        self.records.last_key()
    }

    /// The first generation of a host's mounts that is accepted.
    pub fn first_generation(&self, instance: InstanceId, host: &str) -> u64 {
        let hosts = self.by_instance.get(&instance);
        let first = |host: &str| hosts.and_then(|hosts| hosts.get(host)).map_or(0, |id| id.0);
        first(host).max(first(ALL_HOSTS))
    }

    /// The last fence of an instance; 0 if it has none.
    pub fn last_of(&self, instance: InstanceId) -> u64 {
        let hosts = self.by_instance.get(&instance);
        hosts.and_then(|hosts| hosts.values().max()).map_or(0, |id| id.0)
    }

    /// The fences of an instance after the one of this number.
    pub fn after(&self, instance: InstanceId, number: u64) -> Vec<HostFence> {
        let hosts = self.by_instance.get(&instance).into_iter().flatten();
        let later = hosts.filter(|(_, id)| id.0 > number);
        later.map(|(host, id)| HostFence { host: host.clone(), generation: id.0 }).collect()
    }

    /// Adds a fence, which replaces an earlier one of the host.
    fn add(&mut self, id: FenceId, instance: InstanceId, host: &str) {
        let earlier = self.by_instance.entry(instance).or_default().insert(host.to_owned(), id);
        if let Some(earlier) = earlier {
            assert!(earlier < id, "fences are numbered in order");
            self.records.remove(earlier);
        }
        self.records.insert_new(id, Fence { instance, host: host.to_owned() });
    }

    /// Forgets the fences of an instance that is gone.
    pub fn remove_instance(&mut self, instance: InstanceId) {
        for id in self.by_instance.remove(&instance).into_iter().flatten().map(|(_, id)| id) {
            self.records.remove(id);
        }
    }
}

impl Controller {
    /// Releases mounts that are to be ended on compute nodes without a report for long, once their
    /// storage nodes refuse them.
    pub(super) fn release_silent_mounts(&mut self) {
        for id in self.state.sessions.activation_ids() {
            let activation = self.state.sessions.activation(id);
            let Some(since) = activation.and_then(|activation| activation.ending) else {
                continue;
            };
            let is_silent = |host: &str| {
                let silence_ms = self.silence_ms(&Peer::ComputeNode(host.to_owned()));
                silence_ms.min(self.now.ms_since(since)) > self.settings.host_dead_after_ms
            };
            let mounts = self.state.sessions.mounts.of(id);
            let silent = mounts.filter(|(_, mount)| is_silent(&mount.host));
            let silent: Vec<(String, u64)> =
                silent.map(|(_, mount)| (mount.host.clone(), mount.generation)).collect();
            for (host, generation) in silent {
                if self.is_mount_refused(id, &host, generation) {
                    self.state.sessions.mounts.remove(id, &host);
                }
            }
        }
    }

    /// Whether a mount can write no more. If not, its host is fenced.
    fn is_mount_refused(&mut self, id: ActivationId, host: &str, generation: u64) -> bool {
        let Some(instance) = self.fenced_instance(id) else {
            return true;
        };
        if self.state.fences.first_generation(instance, host) <= generation {
            let fence = FenceId(self.state.next_id());
            self.state.fences.add(fence, instance, host);
            return false;
        }
        self.unconfirmed_fences(instance).is_empty()
    }

    /// The instance of an activation, if its mounts have to be refused before they count as ended:
    /// those of a load-balanced one write nothing, and what is written to a job's own instance while it
    /// is being torn down is given up. A persistent instance outlives the job.
    fn fenced_instance(&self, id: ActivationId) -> Option<InstanceId> {
        let activation = self.state.sessions.activation(id)?;
        let instance = self.state.instance_mounted_by(activation)?;
        let is_ending = self.state.sessions.get(activation.session)?.ending;
        let is_given_up =
            is_ending && self.state.storage.session_of(instance) == Some(activation.session);
        (!is_given_up && !self.is_replicated(instance)).then_some(instance)
    }

    /// Has storage nodes refuse all clients of an instance except movers: also those of which the
    /// controller does not know, mounted outside of jobs. Clients that come later are accepted.
    pub(super) fn fence_all_hosts(&mut self, instance: InstanceId) {
        let fence = FenceId(self.state.next_id());
        self.state.fences.add(fence, instance, ALL_HOSTS);
    }

    /// The fragments of an instance whose nodes have not confirmed all fences.
    pub(super) fn unconfirmed_fences(&self, instance: InstanceId) -> Vec<FragmentId> {
        let last = self.state.fences.last_of(instance);
        let fragments = self.state.storage.fragments_of(instance);
        let unconfirmed = fragments.filter(|(_, f)| f.is_ready() && f.fenced < last);
        unconfirmed.map(|(id, _)| id).collect()
    }

    /// The generation of mounts that are requested now.
    pub(super) fn mount_generation(&self, id: ActivationId, host: &str) -> u64 {
        let activation = self.state.sessions.activation(id);
        let configuration = activation.map(|activation| activation.configuration);
        let configuration = configuration.and_then(|id| self.state.storage.configuration(id));
        configuration.map_or(0, |c| self.state.fences.first_generation(c.instance, host))
    }

    /// The generation of mounts that are requested now, which no storage node refuses: nodes may have
    /// fences that a controller restored from a backup does not know.
    pub(super) fn new_mount_generation(&self, id: ActivationId, host: &str) -> u64 {
        self.mount_generation(id, host).max(self.state.last_lost_id())
    }

    /// A storage node has confirmed fences.
    pub(super) fn hosts_fenced(&mut self, id: FragmentId, through: u64) {
        if self.state.storage.confirm_fences(id, through) {
            self.looks_at_all = true;
        }
    }

    /// A fenced compute node has reported again: it is to replace the mounts that are still wanted.
    pub(super) fn replace_refused_mounts(&mut self, host: &str) {
        if self.state.fences.is_empty() {
            return;
        }
        let sessions = &self.state.sessions;
        let is_wanted = |id: ActivationId| {
            sessions.activation(id).is_some_and(|activation| activation.ending.is_none())
        };
        let mounts = sessions.mounts.on_host(host).filter(|(id, _)| is_wanted(*id));
        let refused: Vec<(ActivationId, u64, bool)> = mounts
            .map(|(id, mount)| (id, mount, self.mount_generation(id, host)))
            .filter(|(_, mount, first)| mount.generation < *first)
            .map(|(id, mount, first)| (id, first, matches!(mount.state, MountState::Mounted(_))))
            .collect();
        for (id, generation, mounted) in refused {
            let mounts = &mut self.state.sessions.mounts;
            mounts.set_generation(id, host, generation);
            if mounted {
                mounts.set_state(id, host, MountState::Requested);
            }
        }
    }

    /// Whether the state of a fragment allows that its node is sent fences.
    pub(super) fn needs_fences(&self, id: FragmentId) -> bool {
        let fragment = self.state.storage.fragment(id);
        fragment.is_some_and(|f| {
            matches!(f.state, FragmentState::Ready(_))
                && f.fenced < self.state.fences.last_of(f.instance)
        })
    }

    /// Why activations are still mounted, for messages.
    pub(super) fn describe_unmounts(&self, activations: &[ActivationId]) -> String {
        let sessions = &self.state.sessions;
        let mounts = activations.iter().flat_map(|id| sessions.mounts.of(*id));
        for (id, mount) in mounts {
            let silence_ms = self.silence_ms(&Peer::ComputeNode(mount.host.clone()));
            if silence_ms <= self.settings.host_dead_after_ms {
                continue;
            }
            let instance = self.fenced_instance(id.activation);
            let waiting = instance.map(|instance| self.unconfirmed_fences(instance));
            let nodes = waiting.into_iter().flatten().filter_map(|fragment| {
                let node = self.state.storage.fragment(fragment)?.node;
                Some(format!("`{}`", self.state.storage.node_name(node)))
            });
            let nodes: Vec<String> = nodes.collect();
            if !nodes.is_empty() {
                return format!(
                    "host `{}` has not reported for {} s, and may still write until storage \
                     node(s) {} confirm that they refuse its mount",
                    mount.host,
                    silence_ms / 1000,
                    nodes.join(", ")
                );
            }
        }
        "a compute node has not unmounted it; are files still open there?".to_owned()
    }
}
