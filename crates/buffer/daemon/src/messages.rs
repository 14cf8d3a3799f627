//! Messages between the controller and its nodes and clients.
//!
//! A connection begins with the sender's role:
//!
//! ```text
//! other side              controller
//! Hello {versions, role} ->
//!                        <-  Welcome, or Refused
//! ```
//!
//! Before that both sides have authenticated each other (see [`control_channel`](crate::control_channel)).
//! After that, reports and requests go to the controller, commands and replies come from it.

use forebay_control::controller::{
    Failure, InstanceSpec, JobUsage, JobView, Outcome, PlannedAllocation, Request, RequestId,
    RequestedStage,
};
use forebay_control::messages::{
    ComputeCommand, Owner, Report, StageId, StampedCommand, StorageCommand,
};
use forebay_job_script::BufferPath;
use forebay_policy::pool::NodeId;
use serde::{Deserialize, Serialize};

use crate::activity::{HostActivity, Status};

/// Newest version of these messages that this release speaks.
pub const VERSION: u16 = 11;
/// Oldest version that it speaks. The release before speaks this one and 10.
pub const OLDEST_VERSION: u16 = 9;

/// The kind of process at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The storage node of this name.
    Storage(String),
    /// The agent of the compute node of this name.
    Agent(String),
    /// A client; on behalf of this user, if the sender may make requests for others.
    Client(Option<Owner>),
}

/// The first message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Oldest version that the sender speaks.
    pub version: u16,
    /// Newest version that the sender speaks; without it, the oldest one is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<u16>,
    /// The sender's role.
    pub role: Role,
}

/// The last message of the handshake: the connection is accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The pool's id, in hexadecimal digits. It differs if the controller has lost its state, and
    /// with it all knowledge of what its nodes hold.
    pub pool: String,
    /// A storage node's number.
    pub node: Option<NodeId>,
    /// A storage node's size in granules.
    pub granules: u64,
    /// The compute node's name, if an agent relays the connection.
    pub host: Option<String>,
    /// The version that both sides speak from now on; without it, the oldest one that the sender of
    /// [`Hello`] speaks.
    #[serde(default)]
    pub version: Option<u16>,
}

/// The controller's reply to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakeReply {
    /// The connection is accepted.
    Welcome(Box<Welcome>),
    /// The connection is refused, for this reason.
    Refused(String),
}

/// A read-only query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// The state of the whole pool.
    Status,
    /// The environment variables of a session's job.
    MountVariables(String),
    /// A job, as its own processes may see it.
    Job(String),
    /// The stages that a running job has requested: those that concern these paths, or have these
    /// ids.
    RequestedStages(String, Vec<BufferPath>, Vec<StageId>),
    /// The allocation that an instance would get.
    Allocation(Box<InstanceSpec>),
    /// Statistics of the jobs and persistent instances of this name, or of all.
    JobUsage(Option<String>),
    /// The state of the whole pool without counters of hosts. Replied to as [`Query::Status`].
    ControlStatus,
    /// The state of the job or persistent instance of this name, as
    /// [`Controller::job_status`](forebay_control::controller::Controller::job_status) selects it, with
    /// the progress of its removal. Replied to as [`Query::Status`].
    JobStatus(String),
}

/// The reply to a [`Query`] of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryReply {
    /// The state of the whole pool.
    Status(Box<Status>),
    /// Names and values of the variables.
    MountVariables(Vec<(String, String)>),
    /// A job.
    Job(JobView),
    /// Stages.
    RequestedStages(Vec<RequestedStage>),
    /// An allocation.
    Allocation(PlannedAllocation),
    /// Statistics, by the time of the set-up.
    JobUsage(Vec<JobUsage>),
}

/// A message to the controller, after the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToController {
    /// From a storage node or a compute node.
    Report(Report),
    /// A node's counters; about once a second.
    Activity(Box<HostActivity>),
    /// A client's request, with its idempotency key. Clients retransmit it until there is a reply;
    /// it is carried out once.
    Request(RequestId, Box<Request>),
    /// A query, with a number for its reply.
    Query(u64, Query),
}

/// A message from the controller, after the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromController {
    /// To a storage node.
    StorageCommand(Box<StampedCommand<StorageCommand>>),
    /// To a compute node.
    ComputeCommand(Box<StampedCommand<ComputeCommand>>),
    /// The reply to the request with this idempotency key.
    Reply(RequestId, Outcome),
    /// The reply to the query with this number.
    QueryReply(u64, Result<QueryReply, Failure>),
}
