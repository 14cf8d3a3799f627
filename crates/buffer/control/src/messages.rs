//! Messages between the controller and its peers: storage nodes and compute nodes.
//!
//! Messages may be lost, delayed and repeated. Commands name objects whose ids are never reused, so
//! a repeated command changes nothing; reports carry the sender's sequence number, so an outdated
//! report is recognised.

use forebay_job_script::{AccessMode, InstanceRef, Stage};
use forebay_policy::pool::NodeId;
use forebay_protocol::placement::Placement;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

pub use forebay_protocol::InstanceId;
pub use forebay_protocol::message::HostFence;
pub use forebay_protocol::progress::{PhaseTimes, ShareDecision, ShareTally, StageProgress};

use crate::records::record_key;

macro_rules! object_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(
                Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
                Deserialize,
            )]
            #[serde(transparent)]
            pub struct $name(pub u64);
        )*
        record_key!($($name),*);
    };
}

object_id! {
    /// Id of a pool. Like all ids of the controller's objects, it is never reused.
    PoolId;
    /// Id of a session.
    SessionId;
    /// Id of a fragment.
    FragmentId;
    /// Id of a configuration.
    ConfigurationId;
    /// Id of an activation.
    ActivationId;
    /// Id of a stage.
    StageId;
}
record_key!(InstanceId, NodeId);

/// Wall-clock time in milliseconds since a fixed moment (the Unix epoch in drivers).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The time this many milliseconds later.
    pub fn plus_ms(self, milliseconds: u64) -> UnixMillis {
        UnixMillis(self.0.saturating_add(milliseconds))
    }

    /// Milliseconds since `earlier`; zero if `earlier` is later.
    pub fn ms_since(self, earlier: UnixMillis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Makes it `latest` if it is later. Returns whether it was.
    pub fn limit(&mut self, latest: UnixMillis) -> bool {
        let is_later = *self > latest;
        *self = latest.min(*self);
        is_later
    }
}

/// A user and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A node that carries out commands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// A storage node: stores fragments and moves data.
    StorageNode(NodeId),
    /// A compute node, by its host name: mounts instances.
    ComputeNode(String),
}

/// A fragment of an instance, as its storage node needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentPlan {
    /// The fragment.
    pub fragment: FragmentId,
    /// The instance that it is a part of.
    pub instance: InstanceId,
    /// Granules of the node that it occupies.
    pub granules: u64,
    /// Bytes in these granules.
    pub capacity: Bytes,
    /// Owner of the instance.
    pub owner: Owner,
    /// Permissions of the root directory.
    pub root_permissions: u32,
    /// Limit on the number of files, if there is one.
    pub max_files: Option<u64>,
    /// Position among the instance's fragments.
    pub place: Placement,
}

/// A stage, as a mover needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePlan {
    /// The stage.
    pub stage: StageId,
    /// Number of the attempt; a higher one replaces a lower one.
    pub attempt: u32,
    /// The instance to move to or from.
    pub instance: InstanceId,
    /// Reference by which the directive's paths name the instance.
    pub instance_ref: Option<InstanceRef>,
    /// The user for whom data is moved.
    pub owner: Owner,
    /// Owner of the instance; differs from `owner` for a persistent instance of another user.
    pub instance_owner: Owner,
    /// Source and destination.
    pub directive: Stage,
    /// Directories of the parallel file system that paths must not leave; empty for no limit.
    pub pfs_roots: Vec<String>,
    /// Whether the copies are read back from storage and compared.
    pub read_back: bool,
    /// The instance all of whose data are to be copied to `instance`. The directive then is a
    /// description only: a storage node of an older release fails it. Sent only to nodes whose
    /// heartbeats say that they copy instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<CopySource>,
    /// The share of this mover, if several share the stage. Only a node that has announced that it
    /// shares stages gets one: an older node would move all data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<SharePlan>,
}

/// An instance that is copied to another one, as a mover needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySource {
    /// The instance.
    pub instance: InstanceId,
    /// Addresses of its storage daemons, in the order of its fragments.
    pub addresses: Vec<String>,
}

/// The share of a mover in a stage of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharePlan {
    /// Its number, from 0.
    pub index: u32,
    /// Number of shares.
    pub count: u32,
    /// A number that the shares of this attempt have, and nothing else.
    pub key: u64,
}

/// The order to a mover that has copied its share of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareOrder {
    /// The stage.
    pub stage: StageId,
    /// Number of the attempt.
    pub attempt: u32,
    /// The tally of the mover that the decision follows from.
    pub tally: ShareTally,
    /// The decision, by which it goes on. `None`: stop, whether it has copied its share or not, because
    /// another mover has failed.
    pub decision: Option<ShareDecision>,
}

/// A mount, as a compute node needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPlan {
    /// The activation.
    pub activation: ActivationId,
    /// The instance to mount.
    pub instance: InstanceId,
    /// Access mode of the mount.
    pub mode: AccessMode,
    /// Increases when the compute node is to replace what it has mounted: another replica of a
    /// load-balanced instance is to be read, or storage nodes refuse the old mount.
    pub generation: u64,
    /// Mount point.
    pub path: String,
    /// Owner of the instance; of a persistent one, the user who created it.
    pub owner: Owner,
    /// Storage nodes with its fragments, in the fragments' order; of a load-balanced instance the
    /// node with the replica to read.
    pub nodes: Vec<NodeId>,
    /// Addresses of their storage daemons, in the same order. Empty if the only daemon is in the
    /// same process.
    pub addresses: Vec<String>,
}

/// A command to a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageCommand {
    /// Create a fragment.
    CreateFragment(FragmentPlan),
    /// Destroy a fragment and the data in it.
    RemoveFragment(FragmentId),
    /// Refuse mounts of compute nodes that are presumed dead.
    FenceHosts {
        /// A fragment of the instance.
        fragment: FragmentId,
        /// The compute nodes.
        hosts: Vec<HostFence>,
        /// The last fence of the instance; these and those that the node has confirmed are all up to
        /// it.
        through: u64,
    },
    /// Move data.
    StartStage(StagePlan),
    /// Stop moving data; the source stays as it is.
    CancelStage(StageId),
    /// Finish a share of a stage, or stop it. Sent to nodes only that share stages.
    EndShare(ShareOrder),
}

/// A command to a compute node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeCommand {
    /// Mount an instance.
    Mount(MountPlan),
    /// Unmount it.
    Unmount(ActivationId),
}

/// A command in transit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedCommand<C> {
    /// Sequence number of the peer's last report that the controller had received. A peer that has
    /// lost its state since (a restarted agent, a replaced disk) creates and mounts nothing on an
    /// older command: the controller must first learn what was lost.
    pub last_report: u64,
    /// The controller's state that the command follows from. A peer refuses commands of a state that
    /// does not follow from those whose commands it has obeyed.
    pub state: StateStamp,
    /// The command.
    pub command: C,
}

/// A durable state of the controller. Every start of the controller begins an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStamp {
    /// The epoch: the time of the controller's start in milliseconds since 1970.
    pub epoch: u64,
    /// The epoch's first revision.
    pub first: u64,
    /// Number of changes that were durable.
    pub revision: u64,
}

impl StateStamp {
    /// Whether this state is `earlier` or follows from it. It does not if the controller's database
    /// was restored from a backup that is older than `earlier`.
    pub fn follows(&self, earlier: &StateStamp) -> bool {
        match self.epoch == earlier.epoch {
            true => self.revision >= earlier.revision,
            false => self.first > earlier.revision,
        }
    }
}

/// A report to the controller. Its sequence number increases with every report of the sender, also
/// across crashes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// From a storage node.
    Storage {
        /// The sender.
        node: NodeId,
        /// Id of the directory that holds its fragments and its records: the sequence number with
        /// which the directory was taken into use.
        disk: u64,
        /// Its sequence number.
        sequence: u64,
        /// Contents.
        body: StorageReport,
    },
    /// From a compute node.
    Compute {
        /// Host name of the sender.
        host: String,
        /// Its sequence number.
        sequence: u64,
        /// Contents.
        body: ComputeReport,
    },
}

impl Report {
    /// The peer that sent it.
    pub fn sender(&self) -> Peer {
        match self {
            Report::Storage { node, .. } => Peer::StorageNode(*node),
            Report::Compute { host, .. } => Peer::ComputeNode(host.clone()),
        }
    }

    /// The sender's sequence number.
    pub fn sequence(&self) -> u64 {
        match self {
            Report::Storage { sequence, .. } | Report::Compute { sequence, .. } => *sequence,
        }
    }
}

/// Content of a storage node's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageReport {
    /// The node is alive.
    Heartbeat {
        /// All fragments that it has.
        fragments: Vec<FragmentId>,
        /// Bytes written to its flash since the disk was taken into use.
        written: Bytes,
        /// The latest state of the controller whose commands it has obeyed.
        obeyed: StateStamp,
        /// Whether its movers copy instances ([`StagePlan::copy_of`]).
        #[serde(default)]
        copies_instances: bool,
        /// Whether it can share stages with other nodes.
        #[serde(default)]
        shares_stages: bool,
    },
    /// The fragment can be used.
    FragmentReady(FragmentId),
    /// The fragment cannot be created now, for this reason.
    FragmentRefused(FragmentId, String),
    /// The fragment and the data in it are gone.
    FragmentRemoved(FragmentId),
    /// All fences of the fragment's instance up to this one hold: requests of these hosts' mounts
    /// are carried out no more.
    HostsFenced(FragmentId, u64),
    /// Progress of an attempt of a stage.
    StageProgress(StageId, u32, StageProgress),
    /// The copies of its share of an attempt are on stable storage, and it waits for an order.
    ShareCopied(StageId, u32, StageProgress, ShareTally),
    /// The attempt is done: all data is on stable storage.
    StageDone(StageId, u32, StageProgress),
    /// The attempt failed; the source is untouched.
    StageFailed(StageId, u32, StageFailure),
    /// The stage was stopped.
    StageCancelled(StageId),
}

/// Content of a compute node's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeReport {
    /// The node is alive and has these mounts, and no others.
    Heartbeat(Vec<ActivationId>),
    /// The instance is mounted according to the plan of this generation.
    Mounted(ActivationId, u64),
    /// The instance cannot be mounted according to the plan of this generation, for this reason.
    MountFailed(ActivationId, u64, String),
    /// The instance is not mounted.
    Unmounted(ActivationId),
}

/// A file that could not be staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedFile {
    /// Its path at the source, as error messages name it.
    pub path: String,
    /// The closest `errno(3)`.
    pub errno: i32,
}

/// Failure of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageFailure {
    /// Reason, in words.
    pub reason: String,
    /// Files that could not be staged: at most [`StageFailure::MAX_FILES`], with at most
    /// [`StageFailure::MAX_PATH_BYTES`] bytes of paths.
    pub files: Vec<FailedFile>,
    /// Progress until the failure.
    pub moved: StageProgress,
}

impl StageFailure {
    /// Limit on the number of files that are named.
    pub const MAX_FILES: usize = 1000;
    /// Limit on the sum of their paths' lengths, in bytes.
    pub const MAX_PATH_BYTES: usize = 256 << 10;
    /// The reason of a mover that was stopped because another one of its stage has failed.
    pub const STOPPED: &str = "the mover was stopped";

    /// A failure that names as many of `files` as the limits allow.
    pub fn new(
        reason: String,
        files: impl IntoIterator<Item = FailedFile>,
        moved: StageProgress,
    ) -> StageFailure {
        let mut path_bytes = 0;
        let fits = |file: &FailedFile| {
            path_bytes += file.path.len();
            path_bytes <= StageFailure::MAX_PATH_BYTES
        };
        let files = files.into_iter().take(StageFailure::MAX_FILES);
        StageFailure { reason, files: files.take_while(fits).collect(), moved }
    }
}

impl From<String> for StageFailure {
    fn from(reason: String) -> StageFailure {
        StageFailure { reason, ..StageFailure::default() }
    }
}

impl From<&str> for StageFailure {
    fn from(reason: &str) -> StageFailure {
        reason.to_owned().into()
    }
}
