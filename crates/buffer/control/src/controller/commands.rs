//! Commands to storage nodes and compute nodes: they follow from the difference between the actual
//! and the desired state of the objects.

use forebay_policy::pool::{self, NodeId};
use forebay_protocol::NodeIndex;
use forebay_protocol::placement::Placement;
use forebay_protocol::random::keyed_block;
use forebay_units::Bytes;

use super::machine::Controller;
use super::objects::{
    Activation, Fragment, FragmentState, HostReplica, MountState, StageRecord, StageState,
};
use super::sent_commands::CommandTarget;
use crate::messages::{
    ActivationId, ComputeCommand, FragmentId, FragmentPlan, InstanceId, MountPlan, Owner, StageId,
    StagePlan, StorageCommand,
};

/// A command and its receiver.
enum AddressedCommand {
    Storage(NodeId, StorageCommand),
    Compute(String, ComputeCommand),
}

impl Controller {
    /// Sends the commands that are needed and not in flight.
    pub(super) fn send_commands(&mut self) {
        let mut needed = Vec::new();
        self.fragment_targets(&mut needed);
        self.stage_targets(&mut needed);
        self.mount_targets(&mut needed);
        let retry_interval_ms = self.settings.retry_interval_ms;
        for target in self.sent.take_due(needed, self.now, retry_interval_ms) {
            match self.command_for(target) {
                Some(AddressedCommand::Storage(node, command)) => {
                    self.send_to_storage_node(node, command);
                }
                Some(AddressedCommand::Compute(host, command)) => {
                    self.send_to_compute_node(host, command);
                }
                None => {}
            }
        }
    }

    /// The command for a target. It is made only when it is due: one for each node that lists all
    /// nodes of its instance would be too much for every step.
    fn command_for(&self, target: CommandTarget) -> Option<AddressedCommand> {
        let node_of = |id| Some(self.state.storage.fragment(id)?.node);
        let stage_of = |id| self.state.stages.get(id).and_then(|stage| Some((stage.node?, stage)));
        Some(match target {
            CommandTarget::CreateFragment(id) => {
                let fragment = self.state.storage.fragment(id)?;
                let command = StorageCommand::CreateFragment(self.fragment_plan(id, fragment)?);
                AddressedCommand::Storage(fragment.node, command)
            }
            CommandTarget::RemoveFragment(id) => {
                AddressedCommand::Storage(node_of(id)?, StorageCommand::RemoveFragment(id))
            }
            CommandTarget::StartStage(id) => {
                let (node, stage) = stage_of(id)?;
                let command = StorageCommand::StartStage(self.stage_plan(id, stage)?);
                AddressedCommand::Storage(node, command)
            }
            CommandTarget::CancelStage(id) => {
                let (node, _) = stage_of(id)?;
                AddressedCommand::Storage(node, StorageCommand::CancelStage(id))
            }
            CommandTarget::Mount(id, host) => {
                let activation = self.state.sessions.activation(id)?;
                let plan = self.mount_plan(id, activation, &host)?;
                AddressedCommand::Compute(host, ComputeCommand::Mount(plan))
            }
            CommandTarget::Unmount(id, host) => {
                AddressedCommand::Compute(host, ComputeCommand::Unmount(id))
            }
        })
    }

    fn fragment_targets(&self, targets: &mut Vec<CommandTarget>) {
        for (id, fragment) in self.state.storage.fragments() {
            targets.push(match fragment.state {
                FragmentState::Requested => CommandTarget::CreateFragment(id),
                FragmentState::Ending => CommandTarget::RemoveFragment(id),
                FragmentState::Ready(_) | FragmentState::Lost | FragmentState::Forgotten => {
                    continue;
                }
            });
        }
    }

    fn fragment_plan(&self, id: FragmentId, fragment: &Fragment) -> Option<FragmentPlan> {
        let storage = &self.state.storage;
        let instance = storage.instance(fragment.instance)?;
        let session = self.state.sessions.get(instance.session)?;
        let granularity = storage.pool(Some(&instance.pool)).ok()?.granularity;
        let mut configurations = storage.configurations_of(instance);
        let limits = configurations.clone().filter_map(|c| c.modifiers.max_files);
        let spec = session.setup.instance.as_ref();
        let max_files = limits.chain(spec.and_then(|spec| spec.modifiers.max_files));
        let root = configurations.next().map(|c| (c.group, c.root_permissions));
        let (group, root_permissions) = root.unwrap_or((session.owner.gid, 0o700));
        Some(FragmentPlan {
            fragment: id,
            instance: fragment.instance,
            granules: fragment.granules,
            capacity: pool::bytes_in(fragment.granules, granularity).unwrap_or(Bytes(u64::MAX)),
            owner: Owner { gid: group, ..session.owner },
            root_permissions,
            max_files: max_files.min(),
            place: self.fragment_place(id, fragment.instance)?,
        })
    }

    /// The position of a fragment among those of its instance.
    pub(super) fn fragment_place(&self, id: FragmentId, instance: InstanceId) -> Option<Placement> {
        let row = self.state.storage.instance(instance)?;
        // A replica is complete on its own.
        if row.replicated || row.fragments.len() < 2 {
            return Some(Placement::single_node());
        }
        let node = row.fragments.iter().position(|fragment| *fragment == id)?;
        let block =
            |half: u128| keyed_block(&self.settings.secret, (u128::from(instance.0) << 1) | half);
        let mut secret = [0; 32];
        secret[..16].copy_from_slice(&block(0));
        secret[16..].copy_from_slice(&block(1));
        Some(Placement {
            node: NodeIndex(u16::try_from(node).ok()?),
            nodes: u16::try_from(row.fragments.len()).ok()?,
            stripe_bytes: self.settings.stripe_bytes,
            secret,
            peers: self.storage_addresses(instance, |_| true),
        })
    }

    /// Addresses of the storage daemons of those fragments of an instance that are `wanted`, in
    /// stripe order.
    fn storage_addresses(
        &self,
        instance: InstanceId,
        wanted: impl Fn(&FragmentId) -> bool,
    ) -> Vec<String> {
        let storage = &self.state.storage;
        let fragments = storage.fragments_of(instance).filter(|(id, _)| wanted(id));
        fragments.filter_map(|(_, fragment)| storage.node(fragment.node)?.address.clone()).collect()
    }

    fn stage_targets(&self, targets: &mut Vec<CommandTarget>) {
        for (id, stage) in self.state.stages.iter().filter(|(_, stage)| stage.node.is_some()) {
            targets.push(match stage.state {
                StageState::Running => CommandTarget::StartStage(id),
                StageState::Cancelling => CommandTarget::CancelStage(id),
                StageState::Waiting
                | StageState::Queued
                | StageState::Done
                | StageState::Failed(_)
                | StageState::Cancelled => continue,
            });
        }
    }

    fn stage_plan(&self, id: StageId, stage: &StageRecord) -> Option<StagePlan> {
        let session = self.state.sessions.get(stage.session)?;
        Some(StagePlan {
            stage: id,
            attempt: stage.attempt,
            instance: stage.instance,
            instance_ref: self.instance_ref_of(session, stage.instance),
            owner: session.owner,
            instance_owner: self.state.owner_of(stage.instance)?,
            directive: stage.directive.clone(),
            pfs_roots: self.settings.pfs_roots.clone(),
            read_back: self.settings.read_back.applies_to(stage.directive.direction),
        })
    }

    fn mount_targets(&self, targets: &mut Vec<CommandTarget>) {
        for (id, activation) in self.state.sessions.activations() {
            for (host, state) in &activation.hosts {
                if activation.ending.is_some() {
                    targets.push(CommandTarget::Unmount(id, host.clone()));
                } else if *state == MountState::Requested
                    && self.mount_source(activation, host).is_some()
                {
                    targets.push(CommandTarget::Mount(id, host.clone()));
                }
            }
        }
    }

    /// The instance that a host is to mount, and of a load-balanced one the replica. `None` while no
    /// replica can be read.
    fn mount_source<'a>(
        &self,
        activation: &'a Activation,
        host: &str,
    ) -> Option<(InstanceId, Option<&'a HostReplica>)> {
        let storage = &self.state.storage;
        let instance = storage.configuration(activation.configuration)?.instance;
        if !storage.instance(instance)?.replicated {
            return Some((instance, None));
        }
        let replica = activation.replicas.get(host)?;
        replica.fragment.is_some().then_some((instance, Some(replica)))
    }

    fn mount_plan(
        &self,
        id: ActivationId,
        activation: &Activation,
        host: &str,
    ) -> Option<MountPlan> {
        let storage = &self.state.storage;
        let (instance, replica) = self.mount_source(activation, host)?;
        let only = replica.and_then(|replica| replica.fragment);
        let is_read = |id: &FragmentId| only.is_none_or(|only| only == *id);
        let fragments = storage.fragments_of(instance).filter(|(id, _)| is_read(id));
        Some(MountPlan {
            activation: id,
            instance,
            mode: storage.configuration(activation.configuration)?.mode,
            path: activation.mount.clone(),
            owner: self.state.owner_of(instance)?,
            generation: replica.map_or(0, |replica| replica.generation),
            nodes: fragments.map(|(_, fragment)| fragment.node).collect(),
            addresses: self.storage_addresses(instance, is_read),
        })
    }
}
