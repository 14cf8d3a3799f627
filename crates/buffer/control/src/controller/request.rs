//! Requests to the controller, and its answers.

use std::fmt;

use forebay_job_script::{
    Access, Capacity, InstanceRef, InstanceType, JobScript, Modifiers, OptimizationStrategy, Stage,
};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use super::quotas::QuotaSubject;
use crate::messages::{Owner, SessionId, StageId};
use crate::records::record_key;

/// Idempotency key of a request: a random number that the client chooses. It repeats the request
/// under the same key until it gets a reply; the controller carries it out once.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RequestId(pub u128);

record_key!(RequestId);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A request in transit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestEnvelope {
    /// Idempotency key.
    pub id: RequestId,
    /// User of the client's process, as the transport has authenticated it.
    pub caller: Owner,
    /// The request.
    pub request: Request,
}

/// A requested allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Size.
    pub capacity: Capacity,
    /// Scratch or cache.
    pub kind: InstanceType,
    /// Access modes.
    pub access: Vec<Access>,
    /// Name of the pool; the default pool if absent.
    pub pool: Option<String>,
    /// Criterion by which storage nodes are chosen.
    pub preference: OptimizationStrategy,
    /// Limits for all access modes.
    pub modifiers: Modifiers,
    /// The group whose members may use it, besides its owner.
    #[serde(default)]
    pub group: Option<u32>,
    /// Lifetime of a persistent instance in milliseconds; that of the pool if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_ms: Option<u64>,
    /// The account of the batch system for which it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

impl InstanceSpec {
    /// A scratch instance without limits.
    pub fn scratch(capacity: Capacity, access: Vec<Access>, pool: Option<String>) -> InstanceSpec {
        InstanceSpec {
            capacity,
            kind: InstanceType::Scratch,
            access,
            pool,
            preference: OptimizationStrategy::default(),
            modifiers: Modifiers::default(),
            group: None,
            lifetime_ms: None,
            account: None,
        }
    }
}

/// Resources and stages that a job requests of the buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Its own instance.
    pub instance: Option<InstanceSpec>,
    /// Names of the persistent instances that it uses.
    pub persistents: Vec<String>,
    /// Stages, in the script's order.
    pub stages: Vec<Stage>,
}

impl Setup {
    /// The setup that a job script's directives request.
    pub fn from_script(script: &JobScript) -> Setup {
        let instance = script.job().map(|job| InstanceSpec {
            capacity: job.capacity,
            kind: job.kind.clone(),
            access: job.access.clone(),
            pool: job.pool.clone(),
            preference: job.modifiers.optimization_strategy.unwrap_or_default(),
            modifiers: job.modifiers.clone(),
            // The client resolves its name.
            group: None,
            lifetime_ms: None,
            // The batch system knows it.
            account: None,
        });
        let persistents = script.persistents.iter().map(|used| used.name.clone());
        Setup { instance, persistents: persistents.collect(), stages: script.stages.clone() }
    }
}

/// Lifetime of a session: the event that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifetime {
    /// End of its job.
    Job,
    /// Request to destroy the persistent instance that the session holds.
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

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Create a session and its instance; answered when the instance can be used.
    Setup {
        /// Job id.
        token: String,
        /// Owner of the session.
        owner: Owner,
        /// Name of the client, such as a workload manager or one run of a script.
        creator: String,
        /// Instance, persistent instances and stages.
        setup: Setup,
    },
    /// Stage in; answered when all stage-ins are done.
    StageIn {
        /// The session.
        token: String,
    },
    /// Mount on compute nodes; answered when all have mounted.
    Activate {
        /// The session.
        token: String,
        /// Host names of the compute nodes.
        hosts: Vec<String>,
        /// If given: refuse unless this client has set the session up last, so that a job runs once
        /// at a time.
        creator: Option<String>,
    },
    /// Unmount on all compute nodes; answered when all have unmounted.
    Deactivate {
        /// The session.
        token: String,
        /// If given: refuse unless this client has set the session up last.
        creator: Option<String>,
    },
    /// Stage out; answered when all stage-outs are done.
    StageOut {
        /// The session.
        token: String,
    },
    /// End a job's session; answered when it is torn down.
    Teardown {
        /// The session.
        token: String,
        /// If given: refuse unless this client has set the session up last.
        creator: Option<String>,
        /// Whether to destroy results that are not staged out.
        hurry: bool,
    },
    /// Create a persistent instance; answered when it can be used.
    CreatePersistent {
        /// Name.
        name: String,
        /// Owner.
        owner: Owner,
        /// Allocation.
        spec: InstanceSpec,
        /// Whether any user may use it.
        public: bool,
    },
    /// Destroy a persistent instance; answered when it is torn down.
    DestroyPersistent {
        /// Name.
        name: String,
        /// Whether to destroy data that is still to be staged out.
        hurry: bool,
    },
    /// Have a persistent instance expire later, or earlier.
    ExtendPersistent {
        /// Name.
        name: String,
        /// Time from now in milliseconds; if absent the longest that the caller may request.
        lifetime_ms: Option<u64>,
    },
    /// Stage while the job runs; answered at once with the stage's id.
    BeginStage {
        /// The session.
        token: String,
        /// Source and destination.
        what: Stage,
    },
    /// Stage at the end of the job; answered at once with the stage's id.
    DeferStage {
        /// The session.
        token: String,
        /// Source and destination.
        what: Stage,
    },
    /// Start a deferred stage now.
    ReleaseStage {
        /// The stage.
        stage: StageId,
    },
    /// Limit the session's concurrent stages of an instance.
    LimitStages {
        /// The session.
        token: String,
        /// The instance, as directives name it.
        instance: InstanceRef,
        /// Limit, at least 1. A storage node may have a lower one.
        max_concurrent: u32,
    },
    /// Wait for the end of a stage.
    AwaitStage {
        /// The stage.
        stage: StageId,
    },
    /// Stop a stage; answered when it has stopped.
    CancelStage {
        /// The stage.
        stage: StageId,
    },
    /// Add a pool (operators only).
    AddPool {
        /// Name.
        name: String,
        /// Bytes in a granule.
        granularity: Bytes,
        /// Whether requests are enlarged so that all fragments have the same size.
        equalize_fragments: bool,
    },
    /// Add a storage node, or change its granules and address (operators only).
    AddNode {
        /// Host name.
        name: String,
        /// Name of the pool.
        pool: String,
        /// Number of granules.
        granules: u64,
        /// Address of its storage daemon, if other hosts can reach it.
        address: Option<String>,
    },
    /// Drain a node or put it back into service (operators only).
    DrainNode {
        /// The node.
        node: NodeId,
        /// Whether to drain it.
        drained: bool,
        /// Whether persistent instances move off it.
        #[serde(default)]
        evacuate: bool,
    },
    /// Give up a node that is offline and will not come back with its data (operators only).
    ForgetNode {
        /// The node.
        node: NodeId,
        /// Whether to do so even if that loses data.
        allow_data_loss: bool,
    },
    /// Limit the bytes that are allocated to a user, a group or an account; `None` for no limit
    /// (operators only).
    SetQuota {
        /// The user, group or account.
        subject: QuotaSubject,
        /// The limit.
        quota: Option<Bytes>,
    },
    /// Permit and record the eviction of clients' sessions, which the administrator then carries out
    /// on the storage nodes (operators only).
    EvictSessions {
        /// Description of the sessions.
        sessions: String,
    },
    /// Accept that the database was restored from a backup (operators only).
    AcceptRestored,
    /// Remove what a node has and only a state before such a restoration knew (operators only).
    DiscardUnknown {
        /// The node.
        node: NodeId,
    },
}

impl Request {
    /// Whether the timeout for staging applies.
    pub fn is_for_staging(&self) -> bool {
        matches!(
            self,
            Request::StageIn { .. } | Request::StageOut { .. } | Request::AwaitStage { .. }
        )
    }

    /// Whether it changes pools and nodes, and so perhaps anything on them.
    pub fn is_for_operators(&self) -> bool {
        match self {
            Request::AddPool { .. }
            | Request::AddNode { .. }
            | Request::DrainNode { .. }
            | Request::ForgetNode { .. }
            | Request::SetQuota { .. }
            | Request::EvictSessions { .. }
            | Request::AcceptRestored
            | Request::DiscardUnknown { .. } => true,
            Request::Setup { .. }
            | Request::CreatePersistent { .. }
            | Request::StageIn { .. }
            | Request::StageOut { .. }
            | Request::Activate { .. }
            | Request::Deactivate { .. }
            | Request::Teardown { .. }
            | Request::DestroyPersistent { .. }
            | Request::ExtendPersistent { .. }
            | Request::BeginStage { .. }
            | Request::DeferStage { .. }
            | Request::ReleaseStage { .. }
            | Request::LimitStages { .. }
            | Request::AwaitStage { .. }
            | Request::CancelStage { .. } => false,
        }
    }
}

/// The answer to a successful request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done.
    Done,
    /// The session is set up.
    Session(SessionId),
    /// The stage is accepted.
    Stage(StageId),
    /// The node is added.
    Node(NodeId),
    /// The node is given up; these instances are lost with it.
    NodeForgotten(Vec<InstanceLoss>),
}

/// An instance that is lost with a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceLoss {
    /// Job id or name of the persistent instance.
    pub label: String,
    /// Lifetime: that of a job or of a persistent instance.
    pub lifetime: Lifetime,
    /// Owner.
    pub owner: Owner,
    /// Number of its stage-outs that are not done.
    pub unfinished_outs: u32,
    /// Jobs other than its own that use it.
    pub users: Vec<String>,
}

impl fmt::Display for InstanceLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.lifetime {
            Lifetime::Job => "job",
            Lifetime::Persistent => "persistent instance",
        };
        write!(f, "{kind} `{}` of user {}", self.label, self.owner.uid)?;
        if self.unfinished_outs > 0 {
            write!(f, ", {} stage-out(s) not done", self.unfinished_outs)?;
        }
        if !self.users.is_empty() {
            write!(f, ", used by {}", self.users.join(", "))?;
        }
        Ok(())
    }
}

/// Kind of a failure; each corresponds to an `errno(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// EACCES: the object belongs to another user.
    Denied,
    /// ENOENT: the object does not exist.
    NotFound,
    /// EEXIST: another object has this name.
    Exists,
    /// EBUSY: something else has to end first.
    Busy,
    /// ENOSPC: the pool is full.
    Full,
    /// EINVAL: the request is not valid.
    Invalid,
    /// ETIMEDOUT: not done in time; it may still be done later.
    TimedOut,
    /// EIO: an attempt failed.
    Failed,
}

/// The failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// Kind.
    pub cause: Cause,
    /// Description of the problem, and how to correct it.
    pub reason: String,
}

impl Failure {
    /// Longest description, in bytes.
    pub const MAX_REASON_BYTES: usize = 4096;

    /// A failure. The description is cut at [`Failure::MAX_REASON_BYTES`].
    pub fn new(cause: Cause, reason: impl Into<String>) -> Failure {
        const CUT: &str = " …";
        let mut reason = reason.into();
        if reason.len() > Failure::MAX_REASON_BYTES {
            truncate_text(&mut reason, Failure::MAX_REASON_BYTES - CUT.len());
            reason.push_str(CUT);
            reason.shrink_to_fit();
        }
        Failure { cause, reason }
    }
}

/// Cuts a text that has more than `max` bytes, between two characters.
pub fn truncate_text(text: &mut String, max: usize) {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
}

/// Returns a [`Failure`] of this cause from a function; the arguments are those of `format!`.
macro_rules! refuse {
    ($cause:ident, $($reason:tt)+) => {
        return Err(Failure::new($crate::controller::Cause::$cause, format!($($reason)+)))
    };
}
pub(super) use refuse;

/// Outcome of a request.
pub type Outcome = Result<Answer, Failure>;
