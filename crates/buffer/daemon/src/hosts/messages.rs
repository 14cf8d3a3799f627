//! What travels between the controller and everyone else.
//!
//! A connection begins with who is there:
//!
//! ```text
//! other side                        controller
//! Hello {version, role, key}  ->
//!                             <-  Challenge {key}        (between hosts only)
//! Proof                       ->
//!                             <-  Welcome {…, proof}, or Refused
//! ```
//!
//! Both prove who they are over both keys, by MUNGE or the pool's key; on a Unix socket the kernel
//! says it. After that, reports and requests go up, orders and answers come down. Between hosts the
//! Welcome and all that follows it is sealed ([`seal`](super::seal)).

use forebay_job_script::BufferPath;
use forebay_policy::pool::NodeId;
use forebay_protocol::identity::Proof;
use serde::{Deserialize, Serialize};

use crate::activity::HostActivity;
use crate::activity::Status;
use forebay_control::controller::{Failure, JobView, Outcome, Request, RequestId, RequestedStage};
use forebay_control::messages::{
    ComputeCommand, Owner, Report, StageId, StampedCommand, StorageCommand,
};

/// Version of all that is said here; both sides must speak the same one.
pub const VERSION: u16 = 4;

/// What the other side is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The storage node of this name.
    Storage(String),
    /// The agent of the compute node of this name.
    Agent(String),
    /// Someone who asks; on behalf of this user, if the sender may act for others.
    Client(Option<Owner>),
}

/// The first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Must be [`VERSION`].
    pub version: u16,
    /// What the sender is.
    pub role: Role,
    /// A public key for this connection only, and so random bytes: the controller's proof answers
    /// them.
    pub key: [u8; 32],
}

/// The controller knows who is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The pool's random number, in hexadecimal digits: differs if the controller has lost its
    /// state, and everything its nodes hold with it.
    pub pool: String,
    /// A storage node's number.
    pub node: Option<NodeId>,
    /// Granules a storage node has.
    pub granules: u64,
    /// The compute node's name, from its agent.
    pub host: Option<String>,
    /// The controller's proof; absent on Unix sockets.
    pub proof: Option<Proof>,
}

/// A question that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// Everything there is.
    Status,
    /// The variables of a session's job.
    MountVariables(String),
    /// A job as its own processes may know it.
    Job(String),
    /// What a running job has asked to be staged: the stages that say something about these
    /// paths, or have these numbers.
    RequestedStages(String, Vec<BufferPath>, Vec<StageId>),
}

/// An answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryReply {
    /// Everything there is.
    Status(Box<Status>),
    /// Names and values of a session's variables.
    MountVariables(Vec<(String, String)>),
    /// A job.
    Job(JobView),
    /// Stages.
    RequestedStages(Vec<RequestedStage>),
}

/// To the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToController {
    /// Who is there.
    Hello(Hello),
    /// In answer to a challenge.
    Proof(Proof),
    /// From a storage node or an agent.
    Report(Report),
    /// What a storage node or an agent has done so far; about once a second.
    Activity(Box<HostActivity>),
    /// A request under its idempotency key: it may be repeated until there is a reply, and is
    /// carried out once.
    Request(RequestId, Box<Request>),
    /// A question and its number.
    Query(u64, Query),
}

/// From the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromController {
    /// Prove who you are.
    Challenge {
        /// A public key for this connection only, and so random bytes to answer.
        key: [u8; 32],
    },
    /// You are known.
    Welcome(Box<Welcome>),
    /// You are not, and why.
    Refused(String),
    /// To a storage node.
    StorageCommand(Box<StampedCommand<StorageCommand>>),
    /// To a compute node's agent.
    ComputeCommand(Box<StampedCommand<ComputeCommand>>),
    /// The answer to [`Upward::Ask`].
    Reply(RequestId, Outcome),
    /// The answer to [`Upward::Query`].
    QueryReply(u64, Result<QueryReply, Failure>),
}
