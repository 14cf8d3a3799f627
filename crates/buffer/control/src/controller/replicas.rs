//! Load-balanced instances: a copy of everything on each node, each host reading one of them.

use forebay_policy::allocate::{self, Preference, Size};
use forebay_policy::copies::choose_copy;

use super::*;
use crate::messages::*;

impl Controller {
    /// What each stage of an instance has to fill: one copy after the other if it is load-balanced,
    /// and else the instance, which is no copy.
    pub(super) fn replicas_to_fill(&self, instance: InstanceId) -> Vec<Option<FragmentId>> {
        match self.state.instances.get(instance.0) {
            Some(row) if row.replicated => row.fragments.iter().copied().map(Some).collect(),
            _ => vec![None],
        }
    }

    /// The name of the node whose copy a stage fills, if it fills one of several.
    pub(super) fn replica_name(&self, stage: &StageRecord) -> Option<&str> {
        let fragment = self.state.fragments.get(stage.replica?.0)?;
        let node = self.state.nodes.get(u64::from(fragment.node.0))?;
        Some(&node.name)
    }

    /// Whether a copy can be read now.
    fn is_readable(&self, copy: FragmentId) -> bool {
        let fragment = self.state.fragments.get(copy.0);
        fragment
            .is_some_and(|f| matches!(f.state, FragmentState::Ready(_)) && self.node_online(f.node))
    }

    /// The instance of an activation, if it is load-balanced.
    fn copied_instance(&self, row: &Activation) -> Option<&Instance> {
        let configuration = self.state.configurations.get(row.configuration.0)?;
        let instance = self.state.instances.get(configuration.instance.0)?;
        instance.replicated.then_some(instance)
    }

    /// Gives hosts a copy to read: those that have none yet, and those whose copy cannot be read
    /// any more while another one can.
    pub(super) fn choose_replicas(&mut self) {
        for key in self.state.activations.keys() {
            let Some(row) = self.state.activations.get(key) else {
                continue;
            };
            if row.ending.is_some() {
                continue;
            }
            let Some(instance) = self.copied_instance(row) else {
                continue;
            };
            let mut changed: Vec<(String, HostReplica)> = Vec::new();
            for (host, state) in &row.hosts {
                if matches!(state, MountState::Failed(_)) {
                    continue;
                }
                let fresh = || HostReplica {
                    number: u32::try_from(row.replicas.len() + changed.len()).unwrap_or(u32::MAX),
                    ..HostReplica::default()
                };
                let known = row.replicas.get(host);
                let mut copy = known.cloned().unwrap_or_else(fresh);
                let readable = |id: &FragmentId| !copy.failed.contains(id) && self.is_readable(*id);
                if copy.fragment.as_ref().is_some_and(readable) {
                    continue;
                }
                let usable: Vec<bool> = instance.fragments.iter().map(readable).collect();
                let chosen = choose_copy(copy.number, &usable);
                // While none can be read, the host keeps what it has, or waits.
                let chosen = chosen.and_then(|index| instance.fragments.get(index));
                if let Some(chosen) = chosen {
                    copy.generation += 1;
                    copy.fragment = Some(*chosen);
                    changed.push((host.clone(), copy));
                }
            }
            let Some(row) = self
                .state
                .activations
                .get_mut(key)
                .filter(|_| !changed.is_empty())
            else {
                continue;
            };
            for (host, copy) in changed {
                row.hosts.insert(host.clone(), MountState::Requested);
                row.replicas.insert(host, copy);
            }
        }
    }

    /// Notes that a host could not mount its copy, and whether there is another one that it has not
    /// tried.
    pub(super) fn has_other_replica(&mut self, id: ActivationId, host: &str) -> bool {
        let Some(row) = self.state.activations.get(id.0) else {
            return false;
        };
        let Some(instance) = self.copied_instance(row) else {
            return false;
        };
        let fragments = instance.fragments.clone();
        let row = self.state.activations.get_mut(id.0);
        let Some(copy) = row.and_then(|row| row.replicas.get_mut(host)) else {
            return false;
        };
        copy.failed.extend(copy.fragment);
        let failed = copy.failed.clone();
        let mut untried = fragments.iter().filter(|id| !failed.contains(id));
        untried.any(|id| self.is_readable(*id))
    }

    /// Whether an instance is load-balanced.
    pub(super) fn is_replicated_instance(&self, instance: InstanceId) -> bool {
        let row = self.state.instances.get(instance.0);
        row.is_some_and(|row| row.replicated)
    }

    /// Does without a copy whose node has gone offline before it was made; the last one is made on
    /// another node.
    pub(super) fn replace_replica(&mut self, copy: FragmentId, instance: InstanceId) {
        let Some(row) = self.state.instances.get(instance.0) else {
            return;
        };
        let (label, pool) = (row.label.clone(), row.pool.clone());
        if row.broken.is_some() || row.ending || self.give_up_replica(copy, instance) {
            return;
        }
        let Some(fragment) = self.state.fragments.get_mut(copy.0) else {
            return;
        };
        fragment.state = FragmentState::Ending;
        let request = allocate::AllocationRequest {
            size: Size::Granules(fragment.granules),
            preference: Preference::Bandwidth,
            equalize: false,
            max_nodes: Some(1),
        };
        // Not where one has been under this number.
        let taken: Vec<NodeId> = self
            .state
            .fragments_of(instance)
            .map(|(_, fragment)| fragment.node)
            .collect();
        let usable = |node: NodeId| self.node_online(node) && !taken.contains(&node);
        let nodes = self.state.candidate_nodes(&pool, usable);
        match allocate::allocate(&nodes, &request) {
            Ok(shares) => {
                let new: Vec<FragmentId> = shares
                    .iter()
                    .map(|share| self.add_fragment(instance, *share))
                    .collect();
                if let Some(row) = self.state.instances.get_mut(instance.0) {
                    row.fragments.extend(&new);
                }
                self.move_copy(copy, &new);
            }
            Err(refusal) => {
                if let Some(row) = self.state.instances.get_mut(instance.0) {
                    row.broken = Some(format!(
                        "a storage node of `{label}` went offline while it was set up, and no \
                         other can take its part: {refusal}"
                    ));
                }
            }
        }
    }

    /// Does without a copy that its node has not made, if the instance has others.
    pub(super) fn give_up_replica(&mut self, copy: FragmentId, instance: InstanceId) -> bool {
        let wanted =
            |f: &Fragment| matches!(f.state, FragmentState::Requested | FragmentState::Ready(_));
        let left = self.state.fragments_of(instance);
        let left = left.filter(|(id, f)| *id != copy && wanted(f)).count();
        let copied = self.state.instances.get(instance.0);
        if left == 0 || !copied.is_some_and(|row| row.replicated) {
            return false;
        }
        if let Some(fragment) = self.state.fragments.get_mut(copy.0) {
            fragment.state = FragmentState::Ending;
        }
        for stage in self.stages_of_copy(copy) {
            self.cancel_stage(stage);
        }
        true
    }

    /// A copy is made elsewhere: its tree is there, and stages fill that.
    fn move_copy(&mut self, from: FragmentId, to: &[FragmentId]) {
        let Some(to) = to.first() else { return };
        for stage in self.stages_of_copy(from) {
            if let Some(stage) = self.state.stages.get_mut(stage.0) {
                stage.replica = Some(*to);
            }
        }
        let namespaces = self.state.namespaces.iter();
        let of: Vec<u64> = namespaces
            .filter(|(_, namespace)| namespace.fragment == from)
            .map(|(id, _)| id)
            .collect();
        for id in of {
            if let Some(namespace) = self.state.namespaces.get_mut(id) {
                namespace.fragment = *to;
            }
        }
    }

    fn stages_of_copy(&self, copy: FragmentId) -> Vec<StageId> {
        let stages = self.state.stages.iter();
        let of = stages.filter(|(_, stage)| stage.replica == Some(copy));
        of.map(|(id, _)| StageId(id)).collect()
    }
}
