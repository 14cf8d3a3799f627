//! Messages between a job's processes and the staging service of their host, over a Unix socket.

use serde::{Deserialize, Serialize};

/// Environment variable of a job with the path of the socket.
pub const SOCKET_VARIABLE: &str = "FOREBAY_JOB_SOCKET";
/// Environment variable of a job with its id.
pub const JOB_VARIABLE: &str = "FOREBAY_JOB_ID";

/// The kind of a staged path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathKind {
    /// A file.
    File,
    /// A directory with its contents.
    Directory,
}

/// The time of a stage-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageOutTime {
    /// As soon as possible.
    Now,
    /// The end of the job.
    JobEnd,
}

/// Two absolute paths, neither of which has `.`, `..` or a symbolic link above its last component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathPair {
    /// In an instance of the job, as seen by its processes.
    pub instance: String,
    /// On the parallel file system.
    pub pfs: String,
}

/// A call. All paths are as in [`PathPair`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StagingCall {
    /// Stage in. Answered when the stages are recorded.
    StageIn(PathKind, Vec<PathPair>),
    /// Stage out. Answered when the stages are recorded.
    StageOut(PathKind, Vec<PathPair>, StageOutTime),
    /// Cancel stage-outs at the job's end.
    Revoke(PathKind, Vec<String>),
    /// Start stage-outs now instead of at the job's end.
    Activate(PathKind, Vec<String>),
    /// Query the states of stages. Answered by [`StagingReply::Counts`].
    Query(PathKind, Vec<String>),
    /// Wait for the end of stages.
    Wait(PathKind, Vec<String>),
    /// Stop stages.
    Terminate(PathKind, Vec<String>),
    /// Limit the number of concurrent stages of the instance at this path.
    SetConcurrency(String, u32),
    /// Query the layout of the file or directory with this inode number. Answered by
    /// [`StagingReply::Stripes`].
    QueryStripes(String, u64),
    /// Query failed stages of this path and the paths below it. Answered by
    /// [`StagingReply::Failures`].
    QueryFailures(String),
}

/// A call of a job's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The job's id.
    pub job: String,
    /// The call.
    pub call: StagingCall,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StagingReply {
    /// Done.
    Done,
    /// Refused: an error number of `errno(3)`, and the reason.
    Refused(i32, String),
    /// Number of files in each state.
    Counts(StageCounts),
    /// Layout of a file.
    Stripes {
        /// Length of a stripe in bytes.
        size: u64,
        /// Number of storage nodes.
        width: u32,
        /// The index among them of the node with the first stripe.
        start: u32,
    },
    /// Paths in the instance that could not be staged, with error numbers of `errno(3)`.
    Failures(Vec<(String, i32)>),
}

/// Number of files by the state of their stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCounts {
    /// Staged.
    pub complete: u64,
    /// Being staged, or queued.
    pub pending: u64,
    /// To be staged at the job's end.
    pub deferred: u64,
    /// Failed.
    pub failed: u64,
}
