//! Load-balanced instances: each storage node has a replica of all data, and each compute node reads
//! one replica.

use forebay_job_script::OptimizationStrategy;
use forebay_policy::allocate::{self, AllocationRequest, Size};
use forebay_policy::copies::choose_copy;
use forebay_policy::pool::NodeId;

use super::machine::Controller;
use super::objects::{
    Activation, Fragment, FragmentState, HostReplica, Instance, MountId, MountState, StageRecord,
};
use super::step_scope::StepScope;
use crate::messages::{ActivationId, FragmentId, InstanceId, StageId};

impl Controller {
    /// Targets of each stage of an instance: one replica after the other if it is load-balanced,
    /// else the instance, which is `None`.
    pub(super) fn replicas_to_fill(&self, instance: InstanceId) -> Vec<Option<FragmentId>> {
        match self.state.storage.instance(instance) {
            Some(row) if row.replicated => row.fragments.iter().copied().map(Some).collect(),
            Some(_) | None => vec![None],
        }
    }

    /// The name of the node whose replica a stage fills, if it fills one of several.
    pub(super) fn replica_name(&self, stage: &StageRecord) -> Option<&str> {
        let fragment = self.state.storage.fragment(stage.replica?)?;
        Some(self.state.storage.node_name(fragment.node))
    }

    /// Whether an instance is load-balanced.
    pub(super) fn is_replicated(&self, instance: InstanceId) -> bool {
        let instance = self.state.storage.instance(instance);
        instance.is_some_and(|instance| instance.replicated)
    }

    /// Whether a replica can be read now.
    fn is_readable(&self, replica: FragmentId) -> bool {
        let fragment = self.state.storage.fragment(replica);
        fragment.is_some_and(|f| f.is_ready() && self.is_node_online(f.node))
    }

    /// The instance of an activation, if it is load-balanced.
    fn replicated_instance(&self, activation: &Activation) -> Option<&Instance> {
        let storage = &self.state.storage;
        let configuration = storage.configuration(activation.configuration)?;
        let instance = storage.instance(configuration.instance)?;
        instance.replicated.then_some(instance)
    }

    /// Assigns replicas to compute nodes: to those that have none yet, and to those whose replica
    /// cannot be read any more while another one can.
    pub(super) fn choose_replicas(&mut self, scope: StepScope) {
        let is_replicated = |id: &InstanceId| self.is_replicated(*id);
        // Any compute node may read a replica that has changed.
        let all = scope.is_all() || scope.instances(&self.state).iter().any(is_replicated);
        let mounts: Vec<MountId> = match all {
            true => {
                let activations = self.state.sessions.activations();
                let replicated = activations.filter(|(_, row)| {
                    row.ending.is_none() && self.replicated_instance(row).is_some()
                });
                let mounts = replicated.flat_map(|(id, _)| self.state.sessions.mounts.of(id));
                mounts.map(|(id, _)| id).collect()
            }
            false => self.state.sessions.mounts.changed_keys().collect(),
        };
        for id in mounts {
            if let Some((host, replica)) = self.replica_assignment(id) {
                let mounts = &mut self.state.sessions.mounts;
                mounts.set_state(id.activation, &host, MountState::Requested);
                if let Some(assigned) = mounts.replica_mut(id.activation, &host) {
                    *assigned = Some(replica);
                }
            }
        }
    }

    /// The compute node of a mount and its next replica, if it is to have another one.
    fn replica_assignment(&self, id: MountId) -> Option<(String, HostReplica)> {
        let activation = self.state.sessions.activation(id.activation)?;
        let mount = self.state.sessions.mounts.by_id(id)?;
        if activation.ending.is_some() || matches!(mount.state, MountState::Failed(_)) {
            return None;
        }
        let instance = self.replicated_instance(activation)?;
        let mut replica = mount.replica.clone().unwrap_or_default();
        let is_usable = |id: &FragmentId| !replica.failed.contains(id) && self.is_readable(*id);
        if replica.fragment.as_ref().is_some_and(is_usable) {
            return None;
        }
        let usable: Vec<bool> = instance.fragments.iter().map(is_usable).collect();
        let number = u32::try_from(id.number).unwrap_or(u32::MAX);
        // While no replica can be read, the compute node keeps the one it has, or waits.
        let chosen = *instance.fragments.get(choose_copy(number, &usable)?)?;
        replica.generation += 1;
        replica.fragment = Some(chosen);
        Some((mount.host.clone(), replica))
    }

    /// Notes that a compute node could not mount its replica. Returns whether there is another one
    /// that it has not tried.
    pub(super) fn has_other_replica(&mut self, id: ActivationId, host: &str) -> bool {
        let Some(activation) = self.state.sessions.activation(id) else {
            return false;
        };
        let Some(instance) = self.replicated_instance(activation) else {
            return false;
        };
        let fragments = instance.fragments.clone();
        let Some(Some(replica)) = self.state.sessions.mounts.replica_mut(id, host) else {
            return false;
        };
        replica.failed.extend(replica.fragment);
        let failed = replica.failed.clone();
        let mut untried = fragments.iter().filter(|id| !failed.contains(id));
        untried.any(|id| self.is_readable(*id))
    }

    /// Does without a replica whose node has gone offline before it was created; the last replica
    /// is created on another node.
    pub(super) fn replace_replica(&mut self, replica: FragmentId, instance: InstanceId) {
        let Some(row) = self.state.storage.instance(instance) else {
            return;
        };
        let (label, pool) = (row.label.clone(), row.pool.clone());
        if row.broken.is_some() || row.ending || self.give_up_replica(replica, instance) {
            return;
        }
        let Some(fragment) = self.state.storage.fragment(replica) else {
            return;
        };
        let request = AllocationRequest {
            size: Size::Granules(fragment.granules),
            preference: OptimizationStrategy::Bandwidth,
            equalize: false,
            max_nodes: Some(1),
        };
        let storage = &mut self.state.storage;
        storage.set_fragment_state(replica, FragmentState::Ending);
        // A node with another fragment of the instance, even one to be removed, is not used again.
        let fragments = storage.fragments_of(instance);
        let taken: Vec<NodeId> = fragments.map(|(_, fragment)| fragment.node).collect();
        let nodes = self.candidate_nodes(&pool, |node| !taken.contains(&node));
        match allocate::allocate(&nodes, &request) {
            Ok(shares) => {
                let successor = self.add_fragments(instance, &shares);
                for stage in self.stages_of_replica(replica) {
                    self.state.stages.set_replica(stage, successor);
                }
            }
            Err(refusal) => {
                let reason = format!(
                    "a storage node of `{label}` went offline while it was set up, and no other \
                     can take its part: {refusal}"
                );
                self.state.storage.mark_broken(instance, reason);
            }
        }
    }

    /// Does without a replica if the instance has others. Returns whether it has.
    pub(super) fn give_up_replica(&mut self, replica: FragmentId, instance: InstanceId) -> bool {
        let is_wanted = |f: &Fragment| f.is_ready() || f.state == FragmentState::Requested;
        let mut fragments = self.state.storage.fragments_of(instance);
        let has_others = fragments.any(|(id, f)| id != replica && is_wanted(f));
        drop(fragments);
        if !has_others || !self.is_replicated(instance) {
            return false;
        }
        let storage = &mut self.state.storage;
        storage.set_fragment_state(replica, FragmentState::Ending);
        for stage in self.stages_of_replica(replica) {
            self.state.stages.cancel(stage);
        }
        true
    }

    fn stages_of_replica(&self, replica: FragmentId) -> Vec<StageId> {
        self.state.stages.ids(|stage| stage.replica == Some(replica))
    }
}
