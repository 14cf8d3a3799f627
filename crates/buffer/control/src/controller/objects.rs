//! The controller's objects, in DataWarp's terms: pools of storage nodes; sessions with instances
//! that consist of fragments; configurations of instances; activations, which mount a configuration
//! on compute nodes; and stages.

use std::collections::BTreeMap;
use std::fmt;

use forebay_job_script::{AccessMode, InstanceType, Modifiers, Stage, StageKind, StagePath};
use forebay_policy::pool::NodeId;
use forebay_protocol::Errno;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use super::expiry::Expiry;
use super::request::{InstanceSpec, Lifetime, Outcome, Setup};
use super::shares::StageShare;
use crate::messages::{
    ActivationId, ConfigurationId, FailedFile, FragmentId, InstanceId, Owner, SessionId, StageId,
    StageProgress, UnixMillis,
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

/// State of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// Not yet to start.
    Waiting,
    /// To start when a mover is free.
    Queued,
    /// Its node moves data.
    Running,
    /// Its node is asked to stop.
    Cancelling,
    /// Moved, and durable at its destination.
    Done,
    /// Failed for this reason; the source is untouched.
    Failed(String),
    /// Stopped.
    Cancelled,
}

impl StageState {
    /// Whether a mover works on it or is about to.
    pub fn is_in_progress(&self) -> bool {
        match self {
            StageState::Queued | StageState::Running | StageState::Cancelling => true,
            StageState::Waiting
            | StageState::Done
            | StageState::Failed(_)
            | StageState::Cancelled => false,
        }
    }

    /// Whether its node has a mover for it.
    pub fn has_mover(&self) -> bool {
        self.is_in_progress() && *self != StageState::Queued
    }

    /// Whether nothing is left to move.
    pub fn is_settled(&self) -> bool {
        matches!(self, StageState::Done | StageState::Cancelled)
    }
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRecord {
    /// Its session.
    pub session: SessionId,
    /// Its instance.
    pub instance: InstanceId,
    /// The replica that it fills, if the instance is load-balanced.
    pub replica: Option<FragmentId>,
    /// Source and destination.
    pub directive: Stage,
    /// The storage node that moves the data; of several, the one with the first share.
    pub node: Option<NodeId>,
    /// The shares of the storage nodes that move the data together; empty if one node moves all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<StageShare>,
    /// Number of the current attempt.
    pub attempt: u32,
    /// State.
    pub state: StageState,
    /// Time at which it was last queued.
    pub queued: UnixMillis,
    /// Progress at the end of the last attempt.
    pub moved: StageProgress,
    /// Files that could not be staged in a failed attempt, as far as they are remembered.
    pub failed_files: Vec<FailedFile>,
    /// Number of the last attempts that have failed because the source does not exist.
    #[serde(default)]
    pub without_source: u8,
    /// The instance of which this is a complete copy, if it is the copy of an evacuation. The
    /// directive then is a description only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<InstanceId>,
}

impl StageRecord {
    /// A stage that waits until it is queued.
    pub(super) fn waiting(
        session: SessionId,
        instance: InstanceId,
        directive: Stage,
        now: UnixMillis,
    ) -> StageRecord {
        StageRecord {
            session,
            instance,
            replica: None,
            directive,
            node: None,
            shares: Vec::new(),
            attempt: 0,
            state: StageState::Waiting,
            queued: now,
            moved: StageProgress::default(),
            failed_files: Vec::new(),
            without_source: 0,
            copy_of: None,
        }
    }

    /// The storage nodes that move its data: that of share 0 first.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let one = self.node.filter(|_| self.shares.is_empty());
        one.into_iter().chain(self.shares.iter().map(|share| share.node))
    }

    /// The storage nodes that have a mover for it, if it has movers.
    pub(super) fn busy_nodes(&self) -> impl Iterator<Item = NodeId> {
        let has_ended = |node: &NodeId| {
            self.shares.iter().any(|share| share.node == *node && share.end.is_some())
        };
        self.nodes().filter(move |node| !has_ended(node))
    }

    /// The share of a storage node.
    pub(super) fn share_of(&self, node: NodeId) -> Option<u32> {
        let index = self.shares.iter().position(|share| share.node == node);
        index.and_then(|index| u32::try_from(index).ok())
    }

    /// Whether it is a stage-out of the script that has failed twice because nothing has been
    /// written at its source: it holds no results back. Once is not enough, since the user may want
    /// to save files at another path.
    pub fn has_no_source(&self) -> bool {
        self.without_source > 1 && matches!(self.state, StageState::Failed(_))
    }

    /// Whether these files of a failed attempt show that the source, a file or directory that the
    /// script has named, does not exist.
    pub(super) fn lacks_source(&self, failed: &[FailedFile]) -> bool {
        let StagePath::Buffer(source) = &self.directive.source else {
            return false;
        };
        let shown = || format!("{}/{}", source.instance.variable(), source.path);
        let missing = |file: &FailedFile| file.errno == Errno::ENOENT.0 && file.path == shown();
        self.directive.line > 0
            && matches!(self.directive.kind, StageKind::File | StageKind::Directory)
            && matches!(failed, [file] if missing(file))
    }
}

/// Condition that an accepted request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The session's instance can be used.
    Ready(SessionId),
    /// All these stages are done.
    Staged(Vec<StageId>),
    /// None of these stages is in progress.
    Stopped(Vec<StageId>),
    /// These activations are mounted on all their compute nodes.
    Mounted(Vec<ActivationId>),
    /// These activations are mounted nowhere.
    Unmounted(Vec<ActivationId>),
    /// The session is torn down, on all storage nodes that can be reached.
    TornDown(SessionId),
}

/// An accepted request, and its outcome once there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Time of acceptance.
    pub accepted: UnixMillis,
    /// Time at which it is answered at the latest.
    pub deadline: UnixMillis,
    /// Progress.
    pub progress: RequestProgress,
}

impl RequestRecord {
    /// The answer, once there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.progress {
            RequestProgress::Pending(_) => None,
            RequestProgress::Answered(outcome) => Some(outcome),
        }
    }
}

/// Progress of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestProgress {
    /// It waits.
    Pending(Wait),
    /// It was answered.
    Answered(Outcome),
}

/// State of an object in DataWarp's five characters: goal `C`reate or `D`estroy, `A`ctual, `F`use
/// blown, in `T`ransition, `M`ixed; `-` for no. There is no fuse in this buffer, so the third is `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateWord {
    /// It is to be destroyed.
    pub destroy: bool,
    /// All of its parts exist.
    pub actual: bool,
    /// It is changing.
    pub transitioning: bool,
    /// Some of its parts exist and some do not.
    pub mixed: bool,
}

impl StateWord {
    /// The state of an object of `total` parts, of which `existing` exist.
    pub fn from_parts(destroy: bool, existing: usize, total: usize) -> StateWord {
        assert!(existing <= total, "more parts exist than there are");
        let actual = existing == total && !(destroy && total == 0);
        StateWord {
            destroy,
            actual,
            transitioning: destroy || !actual,
            mixed: existing > 0 && existing < total,
        }
    }
}

impl fmt::Display for StateWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = |on: bool, c: char| if on { c } else { '-' };
        write!(
            f,
            "{}{}-{}{}",
            if self.destroy { 'D' } else { 'C' },
            mark(self.actual, 'A'),
            mark(self.transitioning, 'T'),
            mark(self.mixed, 'M')
        )
    }
}

/// Whether an allocation is to be load-balanced: a replica of all data on each of its nodes.
pub(super) fn is_replicated(spec: &InstanceSpec) -> bool {
    let mut access = spec.access.iter();
    access.any(|access| access.mode == AccessMode::LoadBalanced)
}
