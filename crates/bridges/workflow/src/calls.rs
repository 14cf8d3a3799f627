//! Requests to the controller and to the servers of nodes, and their replies.

use std::collections::BTreeSet;

use forebay_workflow_script::{Location, NornsScript, PersistAction, Principal};
use serde::{Deserialize, Serialize};

use crate::graph::Job;
use crate::placement::{Holdings, Pull};

/// A request to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The caller's workflows; those of all users for root.
    Status,
    /// Asks for the needs of a job on a node; from the node's prolog, or from its epilog.
    Plan {
        /// The job.
        job: u32,
        /// The node.
        node: String,
        /// The job has ended.
        ended: bool,
    },
    /// The work done on a node; from its prolog or epilog.
    Report(Report),
    /// Names of files that a node stages out, relative to the destination of a stage.
    Claim {
        /// The job.
        job: u32,
        /// Line of the stage in the job's script.
        line: u32,
        /// The node.
        node: String,
        /// The names.
        names: Vec<String>,
    },
    /// Remove the data of a workflow that has no job left.
    Remove {
        /// The workflow.
        workflow: u32,
    },
    /// Repeat the failed stages out of a workflow.
    Recover {
        /// The workflow.
        workflow: u32,
    },
    /// Persistent data of the caller, on all nodes.
    Persist {
        /// The action.
        action: PersistAction,
        /// The data.
        location: Location,
        /// The user or group of `share` and `unshare`.
        principal: Option<Principal>,
    },
}

/// The work done on a node before or after a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The job.
    pub job: u32,
    /// The node.
    pub node: String,
    /// The job has ended.
    pub ended: bool,
    /// The data were not transferred, for this reason.
    pub failure: Option<String>,
    /// The transfer goes on; the other fields are its state.
    pub under_way: bool,
    /// Bytes transferred so far.
    pub moved: u64,
    /// Bytes to transfer, as far as known.
    pub to_move: u64,
    /// Time of the transfer, in milliseconds.
    pub milliseconds: u64,
    /// Bytes in the workflow's directories on the node.
    pub bytes: u64,
    /// Files in them.
    pub files: u64,
    /// Directories of joined workflows that became part of the job's directory on the node.
    pub merged: BTreeSet<u32>,
    /// Locations that the job made persistent on the node.
    pub stored: BTreeSet<Location>,
    /// Persistent locations that it removed.
    pub deleted: BTreeSet<Location>,
}

/// The needs of a job on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Name of the directory of the workflow's data.
    pub directory: u32,
    /// Directories on the node that become part of it.
    pub merge: BTreeSet<u32>,
    /// Rank of the node.
    pub rank: u32,
    /// Number of the job's nodes.
    pub node_count: u32,
    /// The job's working directory.
    pub working_directory: String,
    /// The job's directives.
    pub script: NornsScript,
    /// Transfers from other nodes, with the addresses of these.
    pub pulls: Vec<(Pull, String)>,
    /// The stages in have succeeded on all nodes, so that there are results.
    pub was_prepared: bool,
}

/// Persistent data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persistent {
    /// Name of the owner.
    pub user: String,
    /// Owner.
    pub uid: u32,
    /// The data.
    pub location: Location,
    /// Nodes that have them.
    pub nodes: BTreeSet<String>,
    /// Users and groups that may read them.
    pub readers: BTreeSet<Principal>,
}

/// The status of all workflows that a caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Jobs, in the order of their ids.
    pub jobs: Vec<Job>,
    /// Data on the nodes by workflow.
    pub holdings: Vec<(u32, Holdings)>,
    /// Persistent data.
    pub persistent: Vec<Persistent>,
}

/// The controller's reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Plan`].
    Plan(Box<Plan>),
    /// The request was carried out.
    Done,
    /// The request failed, for this reason.
    Failed(String),
}
