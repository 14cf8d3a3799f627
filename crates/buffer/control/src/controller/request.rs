//! What is asked of the controller, and its answers.

use std::fmt;

use forebay_job_script::{
    Access, AccessMode, Capacity, InstanceRef, InstanceType, JobScript, Modifiers,
    OptimizationStrategy, Stage,
};
use forebay_policy::allocate::Preference;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use super::node_loss::InstanceLoss;
use crate::messages::{Owner, SessionId, StageId};

/// A request, who makes it, and which of that client's it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The client: a random number that it keeps as long as it lives. It has one request under
    /// way at a time and repeats it, number and all, until it is answered.
    pub client: u64,
    /// Rises with every new request.
    pub number: u64,
    /// Whose process it is, as the transport has verified.
    pub caller: Owner,
    /// What is asked.
    pub request: Request,
}

/// An allocation that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// How much.
    pub capacity: Capacity,
    /// Scratch or cache.
    pub kind: InstanceType,
    /// How it is seen.
    pub access: Vec<Access>,
    /// From which pool; the first pool if none is named.
    pub pool: Option<String>,
    /// What nodes are chosen for.
    pub preference: Preference,
    /// Limits for all access modes.
    pub modifiers: Modifiers,
}

/// Everything a job wants of the buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Its own instance.
    pub instance: Option<InstanceSpec>,
    /// Names of persistent instances it uses.
    pub persistents: Vec<String>,
    /// What is to be staged, in the script's order.
    pub stages: Vec<Stage>,
}

impl Setup {
    /// What a job script's `jobdw`, `persistentdw`, `stage_in` and `stage_out` ask for.
    pub fn from_script(script: &JobScript) -> Setup {
        let instance = script.job().map(|job| InstanceSpec {
            capacity: job.capacity,
            kind: job.kind.clone(),
            access: job.access.clone(),
            pool: job.pool.clone(),
            preference: match job.modifiers.optimization_strategy {
                None | Some(OptimizationStrategy::Bandwidth) => Preference::Bandwidth,
                Some(OptimizationStrategy::Interference) => Preference::Interference,
                Some(OptimizationStrategy::Wear) => Preference::Wear,
            },
            modifiers: job.modifiers.clone(),
        });
        Setup {
            instance,
            persistents: script
                .persistents
                .iter()
                .map(|used| used.name.clone())
                .collect(),
            stages: script.stages.clone(),
        }
    }
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Make a session and its instance; answered when the instance can be used.
    Setup {
        /// The job's id.
        token: String,
        /// For whom.
        owner: Owner,
        /// In whose name: the workload manager's.
        creator: String,
        /// What.
        setup: Setup,
    },
    /// Stage in; answered when all is there.
    StageIn {
        /// Which session.
        token: String,
    },
    /// Mount on these hosts; answered when it is mounted.
    Activate {
        /// Which session.
        token: String,
        /// The hosts.
        hosts: Vec<String>,
    },
    /// The same for a job that a script is to run in: only if nobody else has set it up since, so
    /// that it runs once at a time.
    Run {
        /// Which session.
        token: String,
        /// The hosts.
        hosts: Vec<String>,
        /// In whose name it was set up.
        creator: String,
    },
    /// Unmount everywhere; answered when it is unmounted.
    Deactivate {
        /// Which session.
        token: String,
    },
    /// The same for a job that a script has run in: only if nobody else has set it up since.
    Leave {
        /// Which session.
        token: String,
        /// In whose name it was set up.
        creator: String,
    },
    /// Stage out; answered when all is safe.
    StageOut {
        /// Which session.
        token: String,
    },
    /// End a session; answered when it is gone.
    Teardown {
        /// Which session.
        token: String,
        /// Destroy results that are not staged out.
        hurry: bool,
    },
    /// The same for a job that a script has run in: only if nobody else has set it up since.
    End {
        /// Which session.
        token: String,
        /// In whose name it was set up.
        creator: String,
        /// Destroy results that are not staged out.
        hurry: bool,
    },
    /// Make a persistent instance; answered when it can be used.
    CreatePersistent {
        /// Its name.
        name: String,
        /// For whom.
        owner: Owner,
        /// What.
        spec: InstanceSpec,
        /// Whether any user may use it.
        public: bool,
    },
    /// End a persistent instance.
    DestroyPersistent {
        /// Its name.
        name: String,
        /// Destroy data in it that waits for its stage-out.
        hurry: bool,
    },
    /// Stage while the job runs; answered at once with the stage's number.
    BeginStage {
        /// Which session.
        token: String,
        /// What and where.
        what: Stage,
    },
    /// Stage when the job ends; answered at once with the stage's number.
    DeferStage {
        /// Which session.
        token: String,
        /// What and where.
        what: Stage,
    },
    /// Stage now what was deferred.
    ReleaseStage {
        /// Which.
        stage: StageId,
    },
    /// Limit how many stages of an instance are moved at a time.
    LimitStages {
        /// Which session.
        token: String,
        /// Which of its instances.
        space: InstanceRef,
        /// The limit, at least 1. A storage node may have a lower one.
        max_concurrent: u32,
    },
    /// Wait for a stage.
    AwaitStage {
        /// Which.
        stage: StageId,
    },
    /// Stop a stage; answered when it has stopped.
    CancelStage {
        /// Which.
        stage: StageId,
    },
    /// Add a pool (operators only).
    AddPool {
        /// Its name.
        name: String,
        /// Bytes in a granule.
        granularity: Bytes,
        /// Whether requests are enlarged so that all fragments match.
        equalize_fragments: bool,
    },
    /// Add a storage node, or change how much it has (operators only).
    AddNode {
        /// Its host name.
        name: String,
        /// Its pool.
        pool: String,
        /// Granules it has.
        granules: u64,
        /// Where its storage daemon listens, if other hosts can reach it.
        address: Option<String>,
    },
    /// Take a node out of service or put it back (operators only).
    DrainNode {
        /// Which.
        node: NodeId,
        /// Out or back.
        drained: bool,
    },
    /// Give up a node that is offline and will not come back with its data (operators only).
    ForgetNode {
        /// Which.
        node: NodeId,
        /// Even if that loses data.
        allow_data_loss: bool,
    },
}

/// An answer to a request that could be met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It is done.
    Done,
    /// The session.
    Session(SessionId),
    /// The stage.
    Stage(StageId),
    /// The node.
    Node(NodeId),
    /// A node is given up; with it, these are lost.
    NodeForgotten(Vec<InstanceLoss>),
}

/// Why a request was not met, as an error number of the system knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// EACCES: it is someone else's.
    Denied,
    /// ENOENT: there is no such thing.
    NotFound,
    /// EEXIST: there is one of that name already.
    Exists,
    /// EBUSY: something has to end first.
    Busy,
    /// ENOSPC: the pool is full.
    Full,
    /// EINVAL: the request makes no sense.
    Invalid,
    /// ETIMEDOUT: it took too long; it may still come about.
    TimedOut,
    /// EIO: it was tried and failed.
    Failed,
}

/// A request that was not met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub cause: Cause,
    /// What was wrong and what would be right.
    pub reason: String,
}

impl Failure {
    /// A failure.
    pub fn new(cause: Cause, reason: impl Into<String>) -> Failure {
        Failure {
            cause,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}

/// How a request ended.
pub type Outcome = Result<Answer, Failure>;

/// The variable that names an access mode's mount, and the directory below the session's.
pub fn mount_variable(kind: &InstanceType, mode: AccessMode, persistent: Option<&str>) -> String {
    match (persistent, kind, mode) {
        (Some(name), _, AccessMode::Private) => format!("DW_PERSISTENT_PRIVATE_{name}"),
        (Some(name), _, _) => format!("DW_PERSISTENT_STRIPED_{name}"),
        (None, InstanceType::Cache { .. }, AccessMode::LoadBalanced) => "DW_JOB_LDBAL_CACHE".into(),
        (None, InstanceType::Cache { .. }, _) => "DW_JOB_STRIPED_CACHE".into(),
        (None, InstanceType::Scratch, AccessMode::Private) => "DW_JOB_PRIVATE".into(),
        // DataWarp balances the load of caches alone; this name is ours.
        (None, InstanceType::Scratch, AccessMode::LoadBalanced) => "DW_JOB_LDBALANCE".into(),
        (None, InstanceType::Scratch, _) => "DW_JOB_STRIPED".into(),
    }
}
