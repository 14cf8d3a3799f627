//! The controller's objects, in DataWarp's terms: pools of storage nodes; sessions with instances
//! that consist of fragments; configurations of instances; activations, which mount a configuration
//! on compute nodes; and stages.

mod request;
mod stage;
mod state_word;

use std::collections::BTreeMap;

use forebay_job_script::{AccessMode, InstanceType, Modifiers};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

pub use request::{RequestProgress, RequestRecord, Wait};
pub use stage::{StageRecord, StageState};
pub use state_word::StateWord;

use super::expiry::Expiry;
use super::request::{InstanceSpec, Lifetime, Setup};
use crate::messages::{
    ActivationId, ConfigurationId, FragmentId, InstanceId, Owner, SessionId, StageId, UnixMillis,
};
use crate::records::RecordKey;

/// A pool: storage nodes with granules of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Bytes in a granule.
    pub granularity: Bytes,
    /// Whether requests are enlarged so that all fragments have the same size.
    pub equalize_fragments: bool,
}

/// A storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Host name.
    pub name: String,
    /// Name of its pool.
    pub pool: String,
    /// Number of granules.
    pub granules: u64,
    /// Whether an operator has drained it: it gets no new fragments.
    pub drained: bool,
    /// Whether persistent instances move off it, if it is drained.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evacuates: bool,
    /// Sequence number of the node's last report before an operator gave it up for lost. Reset when
    /// the node reports that it is back and empty.
    pub forgotten: Option<u64>,
    /// Address of its storage daemon, if other hosts can reach it.
    pub address: Option<String>,
    /// Id of the directory with its fragments, when it has reported.
    #[serde(default)]
    pub disk: Option<u64>,
    /// An operator has decided that fragments on it which only a lost state of the controller knew are
    /// to be removed.
    #[serde(default)]
    pub discards_unknown: bool,
}

/// The use of the buffer by a job, or for a persistent instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Job id or name of the persistent instance.
    pub token: String,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Owner.
    pub owner: Owner,
    /// The client that set it up first: the name of the workload manager, for instance.
    pub creator: String,
    /// The client that set it up last, if that is another one: only this client runs the job.
    pub runner: Option<String>,
    /// Time of creation.
    pub created: UnixMillis,
    /// The request that created it; a repeated request is compared with this one.
    pub setup: Setup,
    /// Its own instance.
    pub instance: Option<InstanceId>,
    /// Configurations that it uses (DataWarp's registrations): of its own instance and of
    /// persistent ones.
    pub configurations: Vec<ConfigurationId>,
    /// Its mounts.
    pub activations: Vec<ActivationId>,
    /// Its stages, in the order of their requests.
    pub stages: Vec<StageId>,
    /// Compute nodes of its last activation.
    pub hosts: Vec<String>,
    /// Whether clients may have written since the last stage-out began.
    pub written: bool,
    /// Whether it is being torn down.
    pub ending: bool,
    /// Expiry, of a persistent instance that expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// Limits on its concurrent stages of an instance, where it has set one.
    pub stage_limits: BTreeMap<InstanceId, u32>,
}

impl Session {
    /// A session without an instance, mounts or stages.
    pub fn new(
        token: String,
        lifetime: Lifetime,
        owner: Owner,
        creator: String,
        created: UnixMillis,
        setup: Setup,
    ) -> Session {
        Session {
            token,
            lifetime,
            owner,
            creator,
            runner: None,
            created,
            setup,
            instance: None,
            configurations: Vec::new(),
            activations: Vec::new(),
            stages: Vec::new(),
            hosts: Vec::new(),
            written: false,
            ending: false,
            expiry: None,
            stage_limits: BTreeMap::new(),
        }
    }

    /// Its kind and name, for messages.
    pub fn description(&self) -> String {
        match self.lifetime {
            Lifetime::Job => format!("job `{}`", self.token),
            Lifetime::Persistent => format!("persistent instance `{}`", self.token),
        }
    }

    /// Limit on its concurrent stages of an instance.
    pub fn max_concurrent_stages_of(&self, instance: InstanceId) -> u32 {
        self.stage_limits.get(&instance).copied().unwrap_or(u32::MAX)
    }

    /// The client that set it up last.
    pub fn last_creator(&self) -> &str {
        self.runner.as_ref().unwrap_or(&self.creator)
    }
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The session that created it.
    pub session: SessionId,
    /// Name of a persistent instance, else the session's token.
    pub label: String,
    /// Name of its pool.
    pub pool: String,
    /// Bytes in its fragments.
    pub capacity: Bytes,
    /// Whether any user may use it.
    pub public: bool,
    /// Whether it is load-balanced: each fragment holds a replica of all data.
    pub replicated: bool,
    /// Time of creation.
    pub created: UnixMillis,
    /// Its fragments, in stripe order.
    pub fragments: Vec<FragmentId>,
    /// Its configurations.
    pub configurations: Vec<ConfigurationId>,
    /// Reason why it cannot be used, if it cannot.
    pub broken: Option<String>,
    /// Whether it is being removed.
    pub ending: bool,
    /// The instance whose data are being copied here, and which this one is to replace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<InstanceId>,
}

/// State of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FragmentState {
    /// Its node is asked to create it.
    Requested,
    /// It exists since the node's report with this sequence number.
    Ready(u64),
    /// Its node has reported that it no longer exists.
    Lost,
    /// Its node is asked to remove it.
    Ending,
    /// Its node was given up: its data is lost, and it occupies no granules.
    Forgotten,
}

/// The part of an instance on one storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// Its instance.
    pub instance: InstanceId,
    /// Its storage node.
    pub node: NodeId,
    /// Granules that it occupies.
    pub granules: u64,
    /// State.
    pub state: FragmentState,
    /// The last fence of its instance that the node has confirmed, with all earlier ones.
    #[serde(default)]
    pub fenced: u64,
}

impl Fragment {
    /// Whether it exists and is not to be removed.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, FragmentState::Ready(_))
    }
}

/// An access mode of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Its instance.
    pub instance: InstanceId,
    /// Scratch or cache.
    pub kind: InstanceType,
    /// Striped, private or load-balanced.
    pub mode: AccessMode,
    /// Group of the root directory.
    pub group: u32,
    /// Permissions of the root directory.
    pub root_permissions: u32,
    /// Limits.
    pub modifiers: Modifiers,
}

/// State of a mount on one compute node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountState {
    /// The node is asked to mount it.
    Requested,
    /// It is mounted since the node's report with this sequence number.
    Mounted(u64),
    /// The node could not mount it, for this reason.
    Failed(String),
}

/// A configuration that is mounted on compute nodes for a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// Its session.
    pub session: SessionId,
    /// Its configuration.
    pub configuration: ConfigurationId,
    /// Mount point on each compute node; ends with `/`.
    pub mount: String,
    /// Time since which it is being unmounted, if it is.
    pub ending: Option<UnixMillis>,
    /// The compute nodes, in records of earlier versions: now a record of each ([`Mount`]).
    #[serde(default, rename = "hosts", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) earlier_hosts: BTreeMap<String, MountState>,
    /// The replicas that compute nodes read, in records of earlier versions.
    #[serde(default, rename = "replicas", skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) earlier_replicas: BTreeMap<String, HostReplica>,
}

impl Activation {
    /// An activation that is mounted nowhere yet.
    pub fn new(session: SessionId, configuration: ConfigurationId, mount: String) -> Activation {
        Activation {
            session,
            configuration,
            mount,
            ending: None,
            earlier_hosts: BTreeMap::new(),
            earlier_replicas: BTreeMap::new(),
        }
    }
}

/// Key of a mount: its activation, and a number that no other mount of the activation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountId {
    /// The activation.
    pub activation: ActivationId,
    /// Index of the compute node within the activation.
    pub number: u64,
}

impl RecordKey for MountId {
    fn to_stored(self) -> u128 {
        (u128::from(self.activation.0) << 64) | u128::from(self.number)
    }

    fn from_stored(stored: u128) -> Option<MountId> {
        let activation = ActivationId(u64::try_from(stored >> 64).ok()?);
        let number = u64::try_from(stored & u128::from(u64::MAX)).ok()?;
        Some(MountId { activation, number })
    }
}

/// An activation on one compute node, until this has unmounted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The compute node's host name.
    pub host: String,
    /// State.
    pub state: MountState,
    /// The generation of the mount, unless the instance is load-balanced: the compute node's last
    /// fence when it was ordered.
    #[serde(default)]
    pub generation: u64,
    /// The replica that the compute node reads, if the instance is load-balanced and it has one.
    pub replica: Option<HostReplica>,
}

/// The replica of a load-balanced instance that a compute node reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReplica {
    /// Number of replicas that it was assigned so far.
    pub generation: u32,
    /// The replica that it reads or is to mount.
    pub fragment: Option<FragmentId>,
    /// Replicas that it failed to mount since its last successful mount.
    pub failed: Vec<FragmentId>,
}

/// Whether an allocation is to be load-balanced: a replica of all data on each of its nodes.
pub(super) fn is_replicated(spec: &InstanceSpec) -> bool {
    let mut access = spec.access.iter();
    access.any(|access| access.mode == AccessMode::LoadBalanced)
}
