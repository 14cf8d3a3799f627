//! What the controller and its peers say to each other.
//!
//! Messages may be lost, delayed and repeated. Commands name objects whose numbers are never
//! used twice, so carrying one out again changes nothing; reports carry the sender's counter, so
//! an old one is recognised.

use forebay_job_script::{AccessMode, InstanceRef, Stage};
use forebay_policy::pool::NodeId;
use forebay_protocol::placement::Placement;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

pub use forebay_protocol::progress::{PhaseTimes, StageProgress};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);
    };
}

number! {
    /// A session's number; never used twice, as all the others.
    SessionId
}
number! {
    /// An instance's number.
    InstanceId
}
number! {
    /// A fragment's number.
    FragmentId
}
number! {
    /// A configuration's number.
    ConfigurationId
}
number! {
    /// A name space's number.
    NameSpaceId
}
number! {
    /// A registration's number.
    RegistrationId
}
number! {
    /// An activation's number.
    ActivationId
}
number! {
    /// A stage's number.
    StageId
}

/// A point in time, in milliseconds since some fixed moment (the Unix epoch in drivers).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// This much later.
    pub fn plus_ms(self, milliseconds: u64) -> UnixMillis {
        UnixMillis(self.0.saturating_add(milliseconds))
    }

    /// Milliseconds since `earlier`, or zero.
    pub fn ms_since(self, earlier: UnixMillis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A user and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
}

/// One who carries out commands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// A storage node: keeps fragments and moves data.
    StorageNode(NodeId),
    /// A compute node, by its host name: mounts.
    ComputeNode(String),
}

/// A fragment of an instance as its node needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FragmentPlan {
    /// The fragment.
    pub fragment: FragmentId,
    /// Whose part it is.
    pub instance: InstanceId,
    /// Granules of the node it takes.
    pub granules: u64,
    /// Bytes in these.
    pub capacity: Bytes,
    /// Who may use it.
    pub owner: Owner,
    /// Permissions of the root directory.
    pub root_permissions: u32,
    /// Most files in it, if there is a limit.
    pub max_files: Option<u64>,
    /// Its place among the instance's fragments.
    #[serde(default)]
    pub place: Placement,
}

/// A stage as a mover needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePlan {
    /// The stage.
    pub stage: StageId,
    /// Which try this is; a higher one replaces a lower one.
    pub attempt: u32,
    /// The instance to move to or from.
    pub instance: InstanceId,
    /// How paths name it; absent in records of earlier versions.
    #[serde(default)]
    pub space: Option<InstanceRef>,
    /// On whose behalf.
    pub owner: Owner,
    /// Whose instance it is: the one who made it, if it is persistent.
    pub instance_owner: Owner,
    /// What and where.
    pub directive: Stage,
    /// Directories of the parallel file system out of which no path may lead; empty for anywhere.
    #[serde(default)]
    pub pfs_roots: Vec<String>,
    /// Whether what was copied is read back from its storage and compared.
    #[serde(default)]
    pub read_back: bool,
}

/// A mount as a host needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPlan {
    /// The activation.
    pub activation: ActivationId,
    /// The instance to mount.
    pub instance: InstanceId,
    /// How it is seen.
    pub mode: AccessMode,
    /// Rises when the host is to mount another copy of a load-balanced instance, in the place of
    /// the one that it has mounted.
    #[serde(default)]
    pub generation: u32,
    /// Where to mount it.
    pub path: String,
    /// Whose instance it is: the one who made it, if it is persistent, whoever uses it.
    pub owner: Owner,
    /// Nodes that hold its fragments, in the fragments' order; of a load-balanced instance the one
    /// node with the copy that the host is to read.
    pub nodes: Vec<NodeId>,
    /// Where their storage daemons listen, in the same order. Empty if the only one is in the
    /// same process.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// From the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Make room for a fragment.
    SetupFragment(FragmentPlan),
    /// Destroy a fragment and what is in it.
    RemoveFragment(FragmentId),
    /// Move data.
    StartStage(StagePlan),
    /// Stop moving data; keep what the source has.
    CancelStage(StageId),
    /// Mount an instance.
    Mount(MountPlan),
    /// Unmount it.
    Unmount(ActivationId),
}

/// A command on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedCommand {
    /// Count of the peer's last report that the controller had seen. A peer that has forgotten
    /// everything since (an agent started anew, a disk replaced) makes and mounts nothing on an
    /// order from before: the controller must first learn what is gone.
    pub last_report: u64,
    /// What is wanted.
    pub command: Command,
}

/// To the controller: a peer's counter, which rises with every report and survives its crashes,
/// and what it reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The sender.
    pub from: Peer,
    /// Its counter.
    pub sequence: u64,
    /// What it says.
    pub body: ReportBody,
}

/// A file that could not be staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedFile {
    /// Its path at the source, as messages name it.
    pub path: String,
    /// The number of `errno(3)` that comes closest.
    pub errno: i32,
}

/// Why a stage failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenTrouble")]
pub struct StageFailure {
    /// In words.
    pub reason: String,
    /// The files that were in the way, as far as they are known: at most [`Trouble::FILES`], with
    /// at most [`Trouble::TEXT`] bytes of paths.
    pub files: Vec<FailedFile>,
    /// How far it came all the same.
    pub moved: StageProgress,
}

impl StageFailure {
    /// Most files that are named.
    pub const MAX_FILES: usize = 1000;
    /// Most bytes in their paths.
    pub const MAX_PATH_BYTES: usize = 256 << 10;

    /// With as many of the files as there is room for.
    pub fn new(
        reason: String,
        files: impl IntoIterator<Item = FailedFile>,
        moved: StageProgress,
    ) -> StageFailure {
        let mut text = 0;
        let fits = |file: &FailedFile| {
            text += file.path.len();
            text <= StageFailure::MAX_PATH_BYTES
        };
        let files = files
            .into_iter()
            .take(StageFailure::MAX_FILES)
            .take_while(fits);
        let files = files.collect();
        StageFailure {
            reason,
            files,
            moved,
        }
    }
}

impl From<String> for StageFailure {
    fn from(reason: String) -> StageFailure {
        StageFailure {
            reason,
            ..StageFailure::default()
        }
    }
}

impl From<&str> for StageFailure {
    fn from(reason: &str) -> StageFailure {
        reason.to_owned().into()
    }
}

/// A [`Trouble`] in a record: earlier versions wrote the reason alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenTrouble {
    Reason(String),
    Whole {
        reason: String,
        files: Vec<FailedFile>,
        moved: StageProgress,
    },
}

impl From<WrittenTrouble> for StageFailure {
    fn from(written: WrittenTrouble) -> StageFailure {
        match written {
            WrittenTrouble::Reason(reason) => reason.into(),
            WrittenTrouble::Whole {
                reason,
                files,
                moved,
            } => StageFailure::new(reason, files, moved),
        }
    }
}

/// What a peer reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportBody {
    /// A storage node lives and has these fragments, all of them.
    StorageHeartbeat(Vec<FragmentId>),
    /// A host lives and has these mounts, all of them.
    ComputeHeartbeat(Vec<ActivationId>),
    /// The fragment can be used.
    FragmentReady(FragmentId),
    /// There is no room for the fragment now.
    FragmentRefused(FragmentId, String),
    /// The fragment is gone, with what was in it.
    FragmentRemoved(FragmentId),
    /// How far a stage's attempt is.
    StageProgress(StageId, u32, StageProgress),
    /// All of it is moved and safe.
    StageDone(StageId, u32, StageProgress),
    /// It cannot be moved; the source is untouched.
    StageFailed(StageId, u32, StageFailure),
    /// It was stopped.
    StageCancelled(StageId),
    /// The instance is mounted, as the plan of this turn said.
    Mounted(ActivationId, u32),
    /// It cannot be mounted as the plan of this turn said.
    MountFailed(ActivationId, u32, String),
    /// It is not mounted.
    Unmounted(ActivationId),
}
