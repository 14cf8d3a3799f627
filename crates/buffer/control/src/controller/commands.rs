//! Commands to storage nodes and compute nodes: they follow from the difference between the actual
//! and the desired state of the objects.

use std::collections::BTreeSet;

use forebay_policy::pool::{self, NodeId};
use forebay_protocol::NodeIndex;
use forebay_protocol::placement::Placement;
use forebay_protocol::random::keyed_block;
use forebay_units::Bytes;

use super::machine::Controller;
use super::objects::{
    Activation, Fragment, FragmentState, HostReplica, Mount, MountId, MountState, StageRecord,
};
use super::sent_commands::CommandTarget;
use super::shares::{share_order, stage_commands, stage_node};
use super::step_scope::StepScope;
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
    pub(super) fn send_commands(&mut self, scope: StepScope) {
        let due = match scope {
            StepScope::All => {
                let needed = self.needed_commands();
                self.sent.need_only(needed);
                self.sent.take_due(self.now, self.settings.retry_interval_ms)
            }
            StepScope::Changed => {
                self.note_changed_commands();
                self.sent.take_new(self.now)
            }
        };
        for target in due {
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

    /// The commands that the state of all objects needs.
    pub(super) fn needed_commands(&self) -> BTreeSet<CommandTarget> {
        let storage = &self.state.storage;
        let fragments = storage.fragments().filter_map(|(id, _)| self.fragment_command(id));
        let fences = storage.fragments().filter(|(id, _)| self.needs_fences(*id));
        let fences = fences.map(|(id, _)| CommandTarget::FenceHosts(id));
        let stages = self.state.stages.in_progress();
        let stages = stages.flat_map(|(id, stage)| stage_commands(id, stage));
        let activations = self.state.sessions.activations();
        let mounts = activations.flat_map(|(id, _)| self.state.sessions.mounts.of(id));
        let mounts = mounts.filter_map(|(id, _)| self.mount_command(id));
        fragments.chain(fences).chain(stages).chain(mounts).collect()
    }

    /// Notes the commands that objects changed in this step need, and those that they no longer need.
    fn note_changed_commands(&mut self) {
        let fragments: Vec<FragmentId> = self.state.storage.changed_fragments().collect();
        for id in fragments {
            let kinds = [CommandTarget::CreateFragment(id), CommandTarget::RemoveFragment(id)];
            self.replace_commands(&kinds, self.fragment_command(id).as_slice());
            let fences = [CommandTarget::FenceHosts(id)];
            let needed = self.needs_fences(id);
            self.replace_commands(&fences, if needed { &fences } else { &[] });
        }
        let stages: Vec<StageId> = self.state.stages.changed().collect();
        for id in stages {
            let stage = self.state.stages.get(id);
            let needed = stage.map(|stage| stage_commands(id, stage)).unwrap_or_default();
            self.replace_commands(&self.sent.of_stage(id), &needed);
        }
        let sessions = &self.state.sessions;
        let of_activation = |id| sessions.mounts.of(id).map(|(id, _)| id);
        let of_changed = sessions.changed_activations().flat_map(of_activation);
        let mounts: BTreeSet<MountId> = sessions.mounts.changed_keys().chain(of_changed).collect();
        for id in mounts {
            let kinds = [CommandTarget::Mount(id), CommandTarget::Unmount(id)];
            self.replace_commands(&kinds, self.mount_command(id).as_slice());
        }
    }

    /// Of these commands for one object, some are needed.
    fn replace_commands(&mut self, kinds: &[CommandTarget], needed: &[CommandTarget]) {
        for kind in kinds.iter().filter(|kind| !needed.contains(kind)) {
            self.sent.forget(kind);
        }
        for needed in needed {
            self.sent.need(needed.clone());
        }
    }

    /// The command for a target. It is made only when it is due: one for each node that lists all
    /// nodes of its instance would be too much for every step.
    fn command_for(&self, target: CommandTarget) -> Option<AddressedCommand> {
        let node_of = |id| Some(self.state.storage.fragment(id)?.node);
        Some(match target {
            CommandTarget::CreateFragment(id) => {
                let fragment = self.state.storage.fragment(id)?;
                let command = StorageCommand::CreateFragment(self.fragment_plan(id, fragment)?);
                AddressedCommand::Storage(fragment.node, command)
            }
            CommandTarget::RemoveFragment(id) => {
                AddressedCommand::Storage(node_of(id)?, StorageCommand::RemoveFragment(id))
            }
            CommandTarget::FenceHosts(id) => {
                let fragment = self.state.storage.fragment(id)?;
                let hosts = self.state.fences.after(fragment.instance, fragment.fenced);
                let through = self.state.fences.last_of(fragment.instance);
                let command = StorageCommand::FenceHosts { fragment: id, hosts, through };
                AddressedCommand::Storage(fragment.node, command)
            }
            CommandTarget::StartStage(id, share) => {
                let stage = self.state.stages.get(id)?;
                let node = self.mover_of(stage, share)?;
                let command = StorageCommand::StartStage(self.stage_plan(id, stage, share)?);
                AddressedCommand::Storage(node, command)
            }
            CommandTarget::CancelStage(id, share) => {
                let node = stage_node(self.state.stages.get(id)?, share)?;
                AddressedCommand::Storage(node, StorageCommand::CancelStage(id))
            }
            CommandTarget::EndShare(id, share) => {
                let stage = self.state.stages.get(id)?;
                let node = self.mover_of(stage, share)?;
                let order = share_order(id, stage, share)?;
                AddressedCommand::Storage(node, StorageCommand::EndShare(order))
            }
            CommandTarget::Mount(id) => {
                let mount = self.state.sessions.mounts.by_id(id)?;
                let plan = self.mount_plan(id.activation, mount)?;
                AddressedCommand::Compute(mount.host.clone(), ComputeCommand::Mount(plan))
            }
            CommandTarget::Unmount(id) => {
                let host = self.state.sessions.mounts.by_id(id)?.host.clone();
                AddressedCommand::Compute(host, ComputeCommand::Unmount(id.activation))
            }
        })
    }

    fn fragment_command(&self, id: FragmentId) -> Option<CommandTarget> {
        match self.state.storage.fragment(id)?.state {
            FragmentState::Requested => Some(CommandTarget::CreateFragment(id)),
            FragmentState::Ending => Some(CommandTarget::RemoveFragment(id)),
            FragmentState::Ready(_) | FragmentState::Lost | FragmentState::Forgotten => None,
        }
    }

    fn fragment_plan(&self, id: FragmentId, fragment: &Fragment) -> Option<FragmentPlan> {
        let storage = &self.state.storage;
        let instance = storage.instance(fragment.instance)?;
        let session = self.state.sessions.get(instance.session)?;
        let granularity = storage.pool(Some(&instance.pool)).ok()?.granularity;
        // A replacement has no configurations yet: they are those of the instance that it replaces.
        let replaced = instance.replaces.and_then(|id| storage.instance(id));
        let mut configurations = storage.configurations_of(replaced.unwrap_or(instance));
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
    pub(super) fn storage_addresses(
        &self,
        instance: InstanceId,
        wanted: impl Fn(&FragmentId) -> bool,
    ) -> Vec<String> {
        let storage = &self.state.storage;
        let fragments = storage.fragments_of(instance).filter(|(id, _)| wanted(id));
        fragments.filter_map(|(_, fragment)| storage.node(fragment.node)?.address.clone()).collect()
    }

    fn stage_plan(&self, id: StageId, stage: &StageRecord, share: u32) -> Option<StagePlan> {
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
            read_back: stage.copy_of.is_some()
                || self.settings.read_back.applies_to(stage.directive.direction),
            copy_of: stage.copy_of.map(|source| self.copy_source(source)),
            share: self.share_plan(id, stage, share),
        })
    }

    fn mount_command(&self, id: MountId) -> Option<CommandTarget> {
        let activation = self.state.sessions.activation(id.activation)?;
        let mount = self.state.sessions.mounts.by_id(id)?;
        if activation.ending.is_some() {
            return Some(CommandTarget::Unmount(id));
        }
        let is_possible =
            mount.state == MountState::Requested && self.mount_source(activation, mount).is_some();
        is_possible.then_some(CommandTarget::Mount(id))
    }

    /// The instance that a host is to mount, and of a load-balanced one the replica. `None` while no
    /// replica can be read.
    fn mount_source<'a>(
        &self,
        activation: &Activation,
        mount: &'a Mount,
    ) -> Option<(InstanceId, Option<&'a HostReplica>)> {
        let storage = &self.state.storage;
        let instance = self.state.instance_mounted_by(activation)?;
        if !storage.instance(instance)?.replicated {
            // While it moves to other nodes, it is mounted nowhere.
            return (!self.state.evacuations.is_held(instance)).then_some((instance, None));
        }
        let replica = mount.replica.as_ref()?;
        replica.fragment.is_some().then_some((instance, Some(replica)))
    }

    pub(super) fn mount_plan(&self, id: ActivationId, mount: &Mount) -> Option<MountPlan> {
        let storage = &self.state.storage;
        let activation = self.state.sessions.activation(id)?;
        let (instance, replica) = self.mount_source(activation, mount)?;
        let only = replica.and_then(|replica| replica.fragment);
        let is_read = |id: &FragmentId| only.is_none_or(|only| only == *id);
        let fragments = storage.fragments_of(instance).filter(|(id, _)| is_read(id));
        Some(MountPlan {
            activation: id,
            instance,
            mode: storage.configuration(activation.configuration)?.mode,
            path: activation.mount.clone(),
            owner: self.state.owner_of(instance)?,
            generation: replica.map_or(mount.generation, |replica| replica.generation.into()),
            nodes: fragments.map(|(_, fragment)| fragment.node).collect(),
            addresses: self.storage_addresses(instance, is_read),
        })
    }
}
