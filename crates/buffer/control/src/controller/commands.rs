//! Commands, from the difference between what is and what should be.

use forebay_policy::pool::{self, NodeId};
use forebay_units::Bytes;

use forebay_protocol::NodeIndex;
use forebay_protocol::placement::Placement;
use forebay_protocol::random::keyed_block;

use super::*;
use crate::messages::*;

/// What a command is about; one command about each is under way at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CommandTarget {
    Fragment(FragmentId),
    Stage(StageId),
    Mount(ActivationId, String),
    /// As the above, for taking it away.
    FragmentEnd(FragmentId),
    StageEnd(StageId),
    MountEnd(ActivationId, String),
}

impl Controller {
    pub(super) fn send_commands(&mut self) {
        let mut commands: Vec<(CommandTarget, Peer, Command)> = Vec::new();
        self.fragment_commands(&mut commands);
        self.stage_commands(&mut commands);
        self.mount_commands(&mut commands);
        let (now, retry_after) = (self.now, self.settings.retry_interval_ms);
        let due =
            |last: Option<&UnixMillis>| last.is_none_or(|last| now.ms_since(*last) >= retry_after);
        // What is no longer wanted is forgotten, so that the record of sent commands stays small.
        let mut sent = BTreeMap::new();
        for (subject, peer, command) in commands {
            let last = self.last_sent.get(&subject).copied();
            if due(last.as_ref()) {
                self.send_command(peer, command);
                sent.insert(subject, self.now);
            } else if let Some(last) = last {
                sent.insert(subject, last);
            }
        }
        self.last_sent = sent;
    }

    pub(super) fn send_command(&mut self, peer: Peer, command: Command) {
        let heard = self.peers.get(&peer).map_or(0, |view| view.last_sequence);
        self.effects.push(ControllerEffect::Send(
            peer,
            StampedCommand {
                last_report: heard,
                command,
            },
        ));
    }

    fn fragment_commands(&self, commands: &mut Vec<(CommandTarget, Peer, Command)>) {
        for (key, fragment) in self.state.fragments.iter() {
            let id = FragmentId(key);
            let peer = Peer::StorageNode(fragment.node);
            match fragment.state {
                FragmentState::Requested => {
                    let Some(plan) = self.fragment_plan(id, fragment) else {
                        continue;
                    };
                    commands.push((
                        CommandTarget::Fragment(id),
                        peer,
                        Command::SetupFragment(plan),
                    ));
                }
                FragmentState::Ending => {
                    commands.push((
                        CommandTarget::FragmentEnd(id),
                        peer,
                        Command::RemoveFragment(id),
                    ));
                }
                FragmentState::Ready(_) | FragmentState::Lost | FragmentState::Forgotten => {}
            }
        }
    }

    fn fragment_plan(&self, id: FragmentId, fragment: &Fragment) -> Option<FragmentPlan> {
        let instance = self.state.instances.get(fragment.instance.0)?;
        let owner = self.owner_of(fragment.instance)?;
        let granularity = self.state.pool(Some(&instance.pool)).ok()?.granularity;
        let configurations = instance.configurations.iter();
        let configurations = configurations.filter_map(|id| self.state.configurations.get(id.0));
        let root_permissions = configurations
            .clone()
            .next()
            .map_or(0o770, |c| c.root_permissions);
        let of_session = self
            .state
            .sessions
            .get(instance.session.0)?
            .setup
            .instance
            .as_ref();
        let overall = of_session.and_then(|spec| spec.modifiers.max_files);
        let max_files = configurations
            .filter_map(|c| c.modifiers.max_files)
            .chain(overall)
            .min();
        Some(FragmentPlan {
            fragment: id,
            instance: fragment.instance,
            granules: fragment.granules,
            capacity: pool::bytes_in(fragment.granules, granularity).unwrap_or(Bytes(u64::MAX)),
            owner,
            root_permissions,
            max_files,
            place: self.fragment_place(id, fragment.instance)?,
        })
    }

    /// Whose an instance is, whoever uses it.
    fn owner_of(&self, instance: InstanceId) -> Option<Owner> {
        let session = self.state.instances.get(instance.0)?.session;
        Some(self.state.sessions.get(session.0)?.owner)
    }

    /// Where a fragment stands among those of its instance.
    pub(super) fn fragment_place(&self, id: FragmentId, instance: InstanceId) -> Option<Placement> {
        let row = self.state.instances.get(instance.0)?;
        let fragments = &row.fragments;
        // A copy stands by itself.
        if row.replicated || fragments.len() < 2 {
            return Some(Placement::single_node());
        }
        let node = fragments.iter().position(|fragment| *fragment == id)?;
        let number = |half| (u128::from(instance.0) << 1) | half;
        let mut secret = [0; 32];
        let key = &self.settings.secret;
        secret[..16].copy_from_slice(&keyed_block(key, number(0)));
        secret[16..].copy_from_slice(&keyed_block(key, number(1)));
        Some(Placement {
            node: NodeIndex(u16::try_from(node).ok()?),
            nodes: u16::try_from(fragments.len()).ok()?,
            stripe_bytes: self.settings.stripe_bytes,
            secret,
            peers: self.addresses(instance, |_| true),
        })
    }

    /// Where the storage daemons of those of an instance's fragments listen that are wanted, in the
    /// fragments' order.
    fn addresses(&self, instance: InstanceId, wanted: impl Fn(&FragmentId) -> bool) -> Vec<String> {
        let of = |fragment: &Fragment| {
            let node = self.state.nodes.get(u64::from(fragment.node.0));
            node.and_then(|node| node.address.clone())
        };
        self.state
            .fragments_of(instance)
            .filter(|(id, _)| wanted(id))
            .filter_map(|(_, fragment)| of(fragment))
            .collect()
    }

    fn stage_commands(&self, commands: &mut Vec<(CommandTarget, Peer, Command)>) {
        for (key, stage) in self.state.stages.iter() {
            let id = StageId(key);
            let Some(node) = stage.node else { continue };
            match stage.state {
                StageState::Running => {
                    let Some(session) = self.state.sessions.get(stage.session.0) else {
                        continue;
                    };
                    let Some(instance_owner) = self.owner_of(stage.instance) else {
                        continue;
                    };
                    let plan = StagePlan {
                        stage: id,
                        attempt: stage.attempt,
                        instance: stage.instance,
                        space: self.space_of(session, stage.instance),
                        owner: session.owner,
                        instance_owner,
                        directive: stage.directive.clone(),
                        pfs_roots: self.settings.pfs_roots.clone(),
                        read_back: self
                            .settings
                            .read_back
                            .applies_to(stage.directive.direction),
                    };
                    commands.push((
                        CommandTarget::Stage(id),
                        Peer::StorageNode(node),
                        Command::StartStage(plan),
                    ));
                }
                StageState::Cancelling => {
                    commands.push((
                        CommandTarget::StageEnd(id),
                        Peer::StorageNode(node),
                        Command::CancelStage(id),
                    ));
                }
                _ => {}
            }
        }
    }

    fn mount_commands(&self, commands: &mut Vec<(CommandTarget, Peer, Command)>) {
        for (key, row) in self.state.activations.iter() {
            let id = ActivationId(key);
            for (host, state) in &row.hosts {
                let peer = Peer::ComputeNode(host.clone());
                if row.ending.is_some() {
                    let subject = CommandTarget::MountEnd(id, host.clone());
                    commands.push((subject, peer, Command::Unmount(id)));
                } else if *state == MountState::Requested {
                    let Some(plan) = self.mount_plan(id, row, host) else {
                        continue;
                    };
                    commands.push((
                        CommandTarget::Mount(id, host.clone()),
                        peer,
                        Command::Mount(plan),
                    ));
                }
            }
        }
    }

    fn mount_plan(
        &self,
        activation: ActivationId,
        row: &Activation,
        host: &str,
    ) -> Option<MountPlan> {
        let configuration = self.state.configurations.get(row.configuration.0)?;
        let owner = self.owner_of(configuration.instance)?;
        let copied = self
            .state
            .instances
            .get(configuration.instance.0)?
            .replicated;
        let copy = row.replicas.get(host).filter(|_| copied);
        let own = copy.and_then(|copy| copy.fragment);
        if copied && own.is_none() {
            return None;
        }
        let read = |id: &FragmentId| own.is_none_or(|own| own == *id);
        let fragments = self.state.fragments_of(configuration.instance);
        let fragments = fragments.filter(|(id, _)| read(id));
        let nodes: Vec<NodeId> = fragments.map(|(_, f)| f.node).collect();
        let addresses = self.addresses(configuration.instance, read);
        Some(MountPlan {
            activation,
            instance: configuration.instance,
            mode: configuration.mode,
            path: row.mount.clone(),
            owner,
            generation: copy.map_or(0, |copy| copy.generation),
            nodes,
            addresses,
        })
    }
}
