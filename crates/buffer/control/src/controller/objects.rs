//! The controller's objects, in DataWarp's terms: pools of nodes; sessions with instances made of
//! fragments; configurations of instances with their name spaces; a session's registrations on
//! configurations and its activations of them on hosts; and stages.

use std::collections::BTreeMap;
use std::fmt;

use forebay_job_script::{AccessMode, InstanceType, Modifiers, Stage};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use super::request::{Outcome, Setup};
use crate::messages::{
    ActivationId, ConfigurationId, FailedFile, FragmentId, InstanceId, NameSpaceId, Owner,
    RegistrationId, SessionId, StageId, StageProgress, UnixMillis,
};

/// A pool: storage of one granularity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Bytes in a granule.
    pub granularity: Bytes,
    /// Whether requests are enlarged so that all fragments match.
    pub equalize_fragments: bool,
}

/// A storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its host name.
    pub name: String,
    /// Name of its pool.
    pub pool: String,
    /// Granules it has.
    pub granules: u64,
    /// Whether an operator takes it out of service: it keeps what it has and gets nothing new.
    pub drained: bool,
    /// Whether an operator has given it up for lost: the count of the last report that was heard
    /// of it by then. Ends when it reports that it is there and empty.
    #[serde(default)]
    pub forgotten: Option<u64>,
    /// Where its storage daemon listens, if other hosts can reach it.
    #[serde(default)]
    pub address: Option<String>,
}

/// Whether a session ends with its job or when someone says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifetime {
    /// Ends with the job.
    Job,
    /// Holds a persistent instance.
    Persistent,
}

impl Lifetime {
    /// `job` or `persistent`.
    pub fn as_str(self) -> &'static str {
        match self {
            Lifetime::Job => "job",
            Lifetime::Persistent => "persistent",
        }
    }
}

/// A job's or a persistent instance's claim on the buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The job's id or the persistent instance's name.
    pub token: String,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Whose it is.
    pub owner: Owner,
    /// Who asked for it: the workload manager's name, for instance.
    pub creator: String,
    /// Who has set it up last, if that was someone else: only they run it.
    #[serde(default)]
    pub runner: Option<String>,
    /// Since when.
    pub created: UnixMillis,
    /// What was asked for, so that asking again is recognised.
    pub setup: Setup,
    /// Its own instance.
    pub instance: Option<InstanceId>,
    /// Its claims on configurations.
    pub registrations: Vec<RegistrationId>,
    /// Its mounts.
    pub activations: Vec<ActivationId>,
    /// Its stages, in the order in which they were asked for.
    pub stages: Vec<StageId>,
    /// Client hosts it was last activated on.
    pub hosts: Vec<String>,
    /// Whether clients may have written since the last stage-out began.
    pub written: bool,
    /// Whether it is being taken down.
    pub ending: bool,
    /// Most of its stages of an instance that are moved at a time, where it has set that.
    #[serde(default)]
    pub stages_at_once: Vec<(InstanceId, u32)>,
}

impl Session {
    /// One that claims nothing yet.
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
            registrations: Vec::new(),
            activations: Vec::new(),
            stages: Vec::new(),
            hosts: Vec::new(),
            written: false,
            ending: false,
            stages_at_once: Vec::new(),
        }
    }

    /// Most of its stages of an instance that are moved at a time.
    pub fn max_concurrent_stages_of(&self, instance: InstanceId) -> u32 {
        let mut limits = self.stages_at_once.iter();
        let limit = limits.find(|(of, _)| *of == instance);
        limit.map_or(u32::MAX, |(_, most)| *most)
    }
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The session that made it.
    pub session: SessionId,
    /// Name of a persistent instance, else the session's token.
    pub label: String,
    /// Name of its pool.
    pub pool: String,
    /// Bytes in its fragments.
    pub capacity: Bytes,
    /// Whether any user may use it.
    pub public: bool,
    /// Whether it is load-balanced: each of its fragments holds a copy of everything.
    #[serde(default)]
    pub replicated: bool,
    /// Since when.
    pub created: UnixMillis,
    /// Its parts.
    pub fragments: Vec<FragmentId>,
    /// Its configurations.
    pub configurations: Vec<ConfigurationId>,
    /// Why it cannot be used, if it cannot.
    pub broken: Option<String>,
    /// Whether it is being removed.
    pub ending: bool,
}

/// How far a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FragmentState {
    /// Its node was asked, or is about to be.
    Requested,
    /// It is there, since the node's report with this count.
    Ready(u64),
    /// Its node said that it is no longer there.
    Lost,
    /// Its node is asked to remove it.
    Ending,
    /// Its node was given up: what was in it is lost, and it takes no room any more.
    Forgotten,
}

/// An instance's part of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragment {
    /// Whose part.
    pub instance: InstanceId,
    /// Where.
    pub node: NodeId,
    /// How much.
    pub granules: u64,
    /// How far.
    pub state: FragmentState,
}

/// A way to see an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Of which instance.
    pub instance: InstanceId,
    /// Scratch or cache.
    pub kind: InstanceType,
    /// Striped, private or load-balanced.
    pub mode: AccessMode,
    /// Group of its root directory.
    pub group: u32,
    /// Permissions of its root directory.
    pub root_permissions: u32,
    /// Its limits.
    pub modifiers: Modifiers,
    /// Its trees: one for each metadata server if striped.
    pub namespaces: Vec<NameSpaceId>,
}

/// One tree of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameSpace {
    /// Of which configuration.
    pub configuration: ConfigurationId,
    /// The fragment that has it.
    pub fragment: FragmentId,
    /// Fragments over which its files are spread.
    pub span: u32,
}

/// A session's claim on a configuration; keeps it until the session's stages are done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Whose claim.
    pub session: SessionId,
    /// On what.
    pub configuration: ConfigurationId,
    /// Whether the session's end waits for stages before the claim is given up.
    pub wait: bool,
}

/// How far a mount on one host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountState {
    /// The host was asked, or is about to be.
    Requested,
    /// It is mounted, since the host's report with this count.
    Mounted(u64),
    /// The host could not; why.
    Failed(String),
}

/// A configuration mounted on hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activation {
    /// For which session.
    pub session: SessionId,
    /// What.
    pub configuration: ConfigurationId,
    /// Where on each host; ends with `/`.
    pub mount: String,
    /// The hosts that have it or are to get it; those that gave it back are no longer here.
    pub hosts: BTreeMap<String, MountState>,
    /// Whether it is being taken away, and since when.
    pub ending: Option<UnixMillis>,
    /// The copies that hosts read, if the instance is load-balanced.
    #[serde(default)]
    pub replicas: BTreeMap<String, HostReplica>,
}

/// The copy of a load-balanced instance that a host reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReplica {
    /// The host's number among those of the activation.
    pub number: u32,
    /// How often it was given a copy.
    pub generation: u32,
    /// Which one it has now, or is to mount.
    pub fragment: Option<FragmentId>,
    /// Copies that it could not mount since it last had one.
    pub failed: Vec<FragmentId>,
}

/// How far a stage is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// Not yet asked to begin.
    Waiting,
    /// To begin when a mover is free.
    Queued,
    /// Its node moves data.
    Running,
    /// Being stopped.
    Cancelling,
    /// Moved, and safe at its destination.
    Done,
    /// Not moved; why. The source is untouched.
    Failed(String),
    /// Stopped.
    Cancelled,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRecord {
    /// For which session.
    pub session: SessionId,
    /// In which instance.
    pub instance: InstanceId,
    /// Of a load-balanced instance: which of its copies.
    #[serde(default)]
    pub replica: Option<FragmentId>,
    /// What and where.
    pub directive: Stage,
    /// The node that moves the data.
    pub node: Option<NodeId>,
    /// Which try.
    pub attempt: u32,
    /// How far.
    pub state: StageState,
    /// When it was last queued.
    pub queued: UnixMillis,
    /// What was moved, once it is over.
    pub moved: StageProgress,
    /// If it failed: the files that were in the way, as far as they are remembered.
    #[serde(default)]
    pub failed_files: Vec<FailedFile>,
}

impl StageRecord {
    /// Whether a mover has it or is about to get it.
    pub fn in_progress(&self) -> bool {
        matches!(
            self.state,
            StageState::Queued | StageState::Running | StageState::Cancelling
        )
    }
}

/// What an accepted request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The session's instance can be used.
    Ready(SessionId),
    /// All these stages are done.
    Staged(Vec<StageId>),
    /// None of these stages is in progress.
    Stopped(Vec<StageId>),
    /// All these are mounted everywhere.
    Mounted(Vec<ActivationId>),
    /// All these are unmounted everywhere.
    Unmounted(Vec<ActivationId>),
    /// The session is gone, but for fragments on nodes that cannot be reached.
    TornDown(SessionId),
}

/// A client's last request: kept so that repeating it does nothing twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// The client's number of the request.
    pub number: u64,
    /// When it was accepted.
    pub accepted: UnixMillis,
    /// When it is answered at the latest.
    pub deadline: UnixMillis,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Its answer, once there is one.
    pub outcome: Option<Outcome>,
}

/// An object's state in five characters: goal `C`reate or `D`estroy, `A`ctual, `F`use blown,
/// in `T`ransition, `M`ixed; `-` where it is not. This buffer has no fuse, so the third is `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateWord {
    /// It is to go.
    pub destroy: bool,
    /// All of it is there.
    pub actual: bool,
    /// Something is under way.
    pub transitioning: bool,
    /// Some parts are there and some are not.
    pub mixed: bool,
}

impl StateWord {
    /// From the numbers of parts that are there and of all parts.
    pub fn from_parts(destroy: bool, there: usize, parts: usize) -> StateWord {
        let actual = there == parts && !(destroy && parts == 0);
        StateWord {
            destroy,
            actual,
            transitioning: destroy || !actual,
            mixed: there > 0 && there < parts,
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
