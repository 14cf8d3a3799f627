//! Status of all objects, for people and other programs.

use std::collections::BTreeMap;

use forebay_job_script::{AccessMode, Direction, InstanceType};
use forebay_policy::pool::{NodeId, StorageNode};
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use super::evacuation_status::EvacuationStatus;
use super::expiry::Expiry;
use super::machine::Controller;
use super::mount_table::MountTable;
use super::objects::{
    Activation, Configuration, Fragment, FragmentState, Instance, Session, StageRecord, StageState,
    StateWord,
};
use super::quotas::UsageStatus;
use super::request::Lifetime;
use crate::messages::{
    ActivationId, ConfigurationId, FragmentId, InstanceId, Owner, SessionId, StageId,
    StageProgress, UnixMillis,
};

/// Status of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Bytes in a granule.
    pub granularity: Bytes,
    /// Granules of all its nodes.
    pub quantity: u64,
    /// Granules that can be allocated now.
    pub free: u64,
}

/// Status of a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Id.
    pub id: NodeId,
    /// Host name.
    pub name: String,
    /// Name of its pool.
    pub pool: String,
    /// Whether it reports.
    pub online: bool,
    /// Whether an operator has drained it.
    pub drained: bool,
    /// Whether persistent instances move off it.
    #[serde(default)]
    pub evacuates: bool,
    /// Whether an operator has given it up for lost.
    pub forgotten: bool,
    /// Number of granules; 0 if it was given up.
    pub granules: u64,
    /// Granules in use.
    pub used: u64,
    /// Number of fragments.
    pub fragments: u32,
    /// Bytes written to its flash since its directory was taken into use; 0 if it has not reported.
    #[serde(default)]
    pub written: Bytes,
    /// It reports another directory than the one with its fragments: its flash is not mounted, for
    /// instance.
    #[serde(default)]
    pub wrong_disk: bool,
    /// Number of fragments that it has and only a lost state of the controller knew.
    #[serde(default)]
    pub unknown: u32,
}

/// Status of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    /// Id.
    pub id: SessionId,
    /// State in DataWarp's five characters.
    pub state: String,
    /// Job id or name of the persistent instance.
    pub token: String,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Whether clients may have written since it was set up.
    pub written: bool,
    /// Whether it is being torn down.
    pub ending: bool,
    /// The client that set it up first.
    pub creator: String,
    /// The client that set it up last; empty from a controller of an earlier release.
    #[serde(default)]
    pub runner: String,
    /// Owner.
    pub owner: Owner,
    /// Time of creation.
    pub created: UnixMillis,
    /// Compute nodes of its last activation.
    pub hosts: Vec<String>,
    /// Whether it is mounted, or being mounted or unmounted.
    #[serde(default)]
    pub mounted: bool,
    /// Why its mounts wait, if an instance that it uses moves to other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}

/// Status of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStatus {
    /// Id.
    pub id: InstanceId,
    /// State in DataWarp's five characters.
    pub state: String,
    /// The session that created it.
    pub session: SessionId,
    /// Name of a persistent instance, else the session's token.
    pub label: String,
    /// Name of its pool.
    pub pool: String,
    /// Bytes in its fragments.
    pub capacity: Bytes,
    /// Storage nodes with its fragments.
    pub nodes: Vec<NodeId>,
    /// Whether no data is lost.
    pub intact: bool,
    /// Reason why it cannot be used, if it cannot.
    pub broken: Option<String>,
    /// Whether any user may use it.
    pub public: bool,
    /// Access modes.
    pub modes: Vec<AccessMode>,
    /// Time of creation.
    pub created: UnixMillis,
    /// Expiry, of a persistent instance that expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// The generation of mounts outside of jobs that begin now.
    #[serde(default)]
    pub mount_generation: Option<u64>,
    /// The instance of which this one becomes a copy, and which it is to replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<InstanceId>,
}

/// Status of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationStatus {
    /// Id.
    pub id: ConfigurationId,
    /// State in DataWarp's five characters, that of its instance.
    pub state: String,
    /// Its instance.
    pub instance: InstanceId,
    /// Scratch or cache.
    pub kind: InstanceType,
    /// Striped, private or load-balanced.
    pub mode: AccessMode,
    /// Number of its activations.
    pub activations: u32,
    /// Sessions that use it.
    pub sessions: Vec<SessionId>,
}

/// Status of a fragment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentStatus {
    /// Id.
    pub id: FragmentId,
    /// State in DataWarp's five characters.
    pub state: String,
    /// Its instance.
    pub instance: InstanceId,
    /// Its storage node.
    pub node: NodeId,
    /// Granules that it occupies.
    pub granules: u64,
}

/// Status of an activation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivationStatus {
    /// Id.
    pub id: ActivationId,
    /// State in DataWarp's five characters: its parts are the mounts on compute nodes.
    pub state: String,
    /// Its session.
    pub session: SessionId,
    /// Its configuration.
    pub configuration: ConfigurationId,
    /// Mount point on each compute node; ends with `/`.
    pub mount: String,
    /// Its compute nodes, except those that have unmounted it.
    pub hosts: Vec<String>,
}

/// Status of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageStatus {
    /// Id.
    pub id: StageId,
    /// Token of its session.
    pub token: String,
    /// Direction.
    pub direction: Direction,
    /// Line of the directive; 0 if a running job has requested it.
    pub line: u32,
    /// State.
    pub state: StageState,
    /// Progress.
    pub progress: StageProgress,
    /// Whether it has a mover that has made no progress for a minute.
    #[serde(default)]
    pub stalled: bool,
    /// The storage nodes that move its data; empty before it starts.
    #[serde(default)]
    pub nodes: Vec<NodeId>,
}

/// Status of all objects, each kind by ascending id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlStatus {
    /// Pools.
    pub pools: Vec<PoolStatus>,
    /// Storage nodes.
    pub nodes: Vec<NodeStatus>,
    /// Sessions.
    pub sessions: Vec<SessionStatus>,
    /// Instances.
    pub instances: Vec<InstanceStatus>,
    /// Configurations.
    #[serde(default)]
    pub configurations: Vec<ConfigurationStatus>,
    /// Fragments.
    #[serde(default)]
    pub fragments: Vec<FragmentStatus>,
    /// Activations.
    #[serde(default)]
    pub activations: Vec<ActivationStatus>,
    /// Stages, without the copies of instances that move.
    pub stages: Vec<StageStatus>,
    /// Instances with data on drained nodes from which instances are to move.
    #[serde(default)]
    pub evacuations: Vec<EvacuationStatus>,
    /// Users and groups that have instances or a quota.
    #[serde(default)]
    pub usage: Vec<UsageStatus>,
    /// Accounts of the batch system that have instances or a quota.
    #[serde(default)]
    pub account_usage: Vec<UsageStatus>,
    /// Whether the controller's database was restored from a backup, and an operator has to accept
    /// that before it does anything.
    #[serde(default)]
    pub outdated: bool,
    /// Process id of the driver, if the pool is embedded and in use.
    pub process: Option<u32>,
}

impl ControlStatus {
    /// The session of a job.
    pub fn job_session(&self, token: &str) -> Option<&SessionStatus> {
        let mut sessions = self.sessions.iter();
        sessions.find(|session| session.lifetime == Lifetime::Job && session.token == token)
    }

    /// A persistent instance.
    pub fn persistent_instance(&self, name: &str) -> Option<&InstanceStatus> {
        let held = |id: SessionId| {
            let mut sessions = self.sessions.iter();
            sessions.any(|row| row.id == id && row.lifetime == Lifetime::Persistent)
        };
        // One that has moved to other nodes has the same name as long as its old data are there.
        let mut instances = self.instances.iter().filter(|row| row.replaces.is_none());
        let of_name = |row: &&InstanceStatus| row.label == name && held(row.session);
        instances.rfind(of_name)
    }

    /// The instance of a session. One that it replaces may still be being removed.
    pub fn instance_of(&self, session: SessionId) -> Option<&InstanceStatus> {
        let mut instances = self.instances.iter().filter(|row| row.replaces.is_none());
        instances.rfind(|row| row.session == session)
    }

    fn stages_of(&self, token: &str, direction: Direction) -> impl Iterator<Item = &StageStatus> {
        let own = move |stage: &&StageStatus| stage.token == token && stage.direction == direction;
        self.stages.iter().filter(own)
    }

    /// The sum of the progress of a session's stages of one direction.
    pub fn staged(&self, token: &str, direction: Direction) -> StageProgress {
        let progress = self.stages_of(token, direction).map(|stage| stage.progress);
        progress.reduce(|sum, more| sum.plus(&more)).unwrap_or_default()
    }

    /// Whether a session has stage-outs that are still to be done.
    pub fn has_stages_out(&self, token: &str) -> bool {
        self.stages_of(token, Direction::Out).any(|stage| !stage.state.is_settled())
    }
}

impl Controller {
    /// Status of all objects.
    pub fn status(&self) -> ControlStatus {
        let (pools, nodes) = self.pool_and_node_status();
        let sessions = self.state.sessions.iter();
        let instances = self.state.storage.instances();
        let fragments = self.state.storage.fragments();
        let activations = self.state.sessions.activations();
        let stages = self.state.stages.iter().filter(|(_, stage)| stage.copy_of.is_none());
        let (usage, account_usage) = self.usage_status();
        ControlStatus {
            pools,
            nodes,
            sessions: sessions.map(|(id, row)| self.session_status(id, row)).collect(),
            instances: instances.map(|(id, row)| self.instance_status(id, row)).collect(),
            configurations: self.configuration_status(),
            fragments: fragments.map(|(id, row)| fragment_status(id, row)).collect(),
            activations: activations
                .map(|(id, row)| activation_status(id, row, &self.state.sessions.mounts))
                .collect(),
            stages: stages.map(|(id, row)| self.stage_status(id, row)).collect(),
            evacuations: self.evacuation_status(),
            usage,
            account_usage,
            outdated: self.lost_revision.is_some(),
            process: None,
        }
    }

    fn pool_and_node_status(&self) -> (Vec<PoolStatus>, Vec<NodeStatus>) {
        let storage = &self.state.storage;
        let (mut pools, mut all) = (Vec::new(), Vec::new());
        for pool in storage.pools() {
            let nodes = self.candidate_nodes(&pool.name, |_| true);
            let total = nodes.iter().map(|node| node.total);
            let free = nodes.iter().map(|node| node.free_granules());
            pools.push(PoolStatus {
                name: pool.name.clone(),
                granularity: pool.granularity,
                quantity: total.fold(0, u64::saturating_add),
                free: free.fold(0, u64::saturating_add),
            });
            all.extend(nodes.iter().filter_map(|node| self.node_status(node)));
        }
        all.sort_by_key(|node| node.id);
        (pools, all)
    }

    pub(super) fn node_status(&self, node: &StorageNode) -> Option<NodeStatus> {
        let row = self.state.storage.node(node.id)?;
        Some(NodeStatus {
            id: node.id,
            name: row.name.clone(),
            pool: row.pool.clone(),
            online: self.is_node_online(node.id),
            drained: row.drained,
            evacuates: row.drained && row.evacuates,
            forgotten: row.forgotten.is_some(),
            granules: node.total,
            used: node.used,
            fragments: node.instances,
            written: node.written,
            wrong_disk: self.contacts.has_wrong_disk(node.id),
            unknown: u32::try_from(self.contacts.unknown(node.id).len()).unwrap_or(u32::MAX),
        })
    }

    pub(super) fn session_status(&self, id: SessionId, session: &Session) -> SessionStatus {
        let state = match session.instance {
            Some(instance) => self.instance_state(instance),
            None => StateWord::from_parts(session.ending, 0, 0),
        };
        SessionStatus {
            id,
            state: state.to_string(),
            token: session.token.clone(),
            lifetime: session.lifetime,
            written: session.written,
            ending: session.ending,
            creator: session.creator.clone(),
            runner: session.last_creator().to_owned(),
            owner: session.owner,
            created: session.created,
            hosts: session.hosts.clone(),
            mounted: !session.activations.is_empty(),
            waits_for: self.held_by_evacuation(&session.activations),
        }
    }

    pub(super) fn instance_status(&self, id: InstanceId, instance: &Instance) -> InstanceStatus {
        let storage = &self.state.storage;
        let fragments = storage.fragments_of(id);
        let present = fragments.filter(|(_, f)| f.state != FragmentState::Forgotten);
        let configurations = storage.configurations_of(instance);
        InstanceStatus {
            id,
            state: self.instance_state(id).to_string(),
            session: instance.session,
            label: instance.label.clone(),
            pool: instance.pool.clone(),
            capacity: instance.capacity,
            nodes: present.map(|(_, f)| f.node).collect(),
            intact: instance.broken.is_none(),
            broken: instance.broken.clone(),
            public: instance.public,
            modes: configurations.map(|configuration| configuration.mode).collect(),
            created: instance.created,
            expiry: self.state.sessions.get(instance.session).and_then(|session| session.expiry),
            mount_generation: Some(self.state.fences.last_of(id).max(self.state.last_lost_id())),
            replaces: instance.replaces,
        }
    }

    fn configuration_status(&self) -> Vec<ConfigurationStatus> {
        let mut activations: BTreeMap<ConfigurationId, u32> = BTreeMap::new();
        for (_, activation) in self.state.sessions.activations() {
            *activations.entry(activation.configuration).or_default() += 1;
        }
        let mut users: BTreeMap<ConfigurationId, Vec<SessionId>> = BTreeMap::new();
        for (id, session) in self.state.sessions.iter() {
            for configuration in &session.configurations {
                users.entry(*configuration).or_default().push(id);
            }
        }
        let status = |(id, row): (ConfigurationId, &Configuration)| ConfigurationStatus {
            id,
            state: self.instance_state(row.instance).to_string(),
            instance: row.instance,
            kind: row.kind.clone(),
            mode: row.mode,
            activations: activations.get(&id).copied().unwrap_or(0),
            sessions: users.remove(&id).unwrap_or_default(),
        };
        self.state.storage.configurations().map(status).collect()
    }

    pub(super) fn stage_status(&self, id: StageId, stage: &StageRecord) -> StageStatus {
        let session = self.state.sessions.get(stage.session);
        StageStatus {
            id,
            token: session.map(|s| s.token.clone()).unwrap_or_default(),
            direction: stage.directive.direction,
            line: stage.directive.line,
            state: stage.state.clone(),
            progress: self.state.stages.progress(id, stage),
            stalled: self.stalled_stages.contains(id, self.now),
            nodes: stage.nodes().collect(),
        }
    }

    /// State of an instance; it follows from those of its fragments.
    pub fn instance_state(&self, id: InstanceId) -> StateWord {
        let storage = &self.state.storage;
        let ending = storage.instance(id).is_some_and(|instance| instance.ending);
        let total = storage.fragments_of(id).count();
        let existing = storage.fragments_of(id);
        let existing = existing.filter(|(_, f)| f.is_ready() || f.state == FragmentState::Ending);
        StateWord::from_parts(ending, existing.count(), total)
    }
}

fn fragment_status(id: FragmentId, fragment: &Fragment) -> FragmentStatus {
    let ending = fragment.state == FragmentState::Ending;
    let exists = fragment.is_ready() || ending;
    FragmentStatus {
        id,
        state: StateWord::from_parts(ending, usize::from(exists), 1).to_string(),
        instance: fragment.instance,
        node: fragment.node,
        granules: fragment.granules,
    }
}

fn activation_status(
    id: ActivationId,
    activation: &Activation,
    mounts: &MountTable,
) -> ActivationStatus {
    let counts = mounts.counts(id);
    let is_ending = activation.ending.is_some();
    let mut hosts: Vec<String> = mounts.of(id).map(|(_, mount)| mount.host.clone()).collect();
    hosts.sort();
    ActivationStatus {
        id,
        state: StateWord::from_parts(is_ending, counts.mounted, counts.total()).to_string(),
        session: activation.session,
        configuration: activation.configuration,
        mount: activation.mount.clone(),
        hosts,
    }
}
