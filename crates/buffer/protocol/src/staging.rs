//! Messages between the processes of a job and the service that stages for it, over a Unix socket
//! on their host.

use serde::{Deserialize, Serialize};

/// The variable of a job's environment that names the socket.
pub const SOCKET_VARIABLE: &str = "FOREBAY_JOB_SOCKET";
/// The variable of a job's environment that has the job's id.
pub const JOB_VARIABLE: &str = "FOREBAY_JOB_ID";
/// What a stage is asked for, or asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathKind {
    /// A file.
    File,
    /// A directory and all below it.
    Directory,
}

/// When to stage out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageOutTime {
    /// As soon as possible.
    Now,
    /// When the job ends.
    JobEnd,
}

/// Two absolute paths, neither of which has `.`, `..` or a symbolic link above its last component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathPair {
    /// In an instance of the job, as its processes see it.
    pub instance: String,
    /// On the parallel file system.
    pub pfs: String,
}

/// A call. All paths are as in [`PathPair`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StagingCall {
    /// Stage in; answered once the stages are recorded.
    StageIn(PathKind, Vec<PathPair>),
    /// Stage out; answered once the stages are recorded.
    StageOut(PathKind, Vec<PathPair>, StageOutTime),
    /// Do not stage at the job's end what was to be.
    Revoke(PathKind, Vec<String>),
    /// Stage now what was to be staged at the job's end.
    Activate(PathKind, Vec<String>),
    /// How stages are; answered by [`StagingReply::Counts`].
    Query(PathKind, Vec<String>),
    /// Wait until stages are done; answered when they are.
    Wait(PathKind, Vec<String>),
    /// Stop stages.
    Terminate(PathKind, Vec<String>),
    /// Limit how many stages of the instance at this path are moved at a time.
    SetConcurrency(String, u32),
    /// How the file or directory with this inode number is striped; answered by
    /// [`StagingReply::Stripes`].
    QueryStripes(String, u64),
    /// What could not be staged at or below this path; answered by [`StagingReply::Failures`].
    QueryFailures(String),
}

/// A call and the job whose process makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The job's id.
    pub job: String,
    /// What is asked.
    pub call: StagingCall,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StagingReply {
    /// It is done.
    Done,
    /// It is not: a number of `errno(3)`, and what was wrong.
    Refused(i32, String),
    /// How many files are in which state.
    Counts(StageCounts),
    /// How a file is striped.
    Stripes {
        /// Bytes in a stripe.
        size: u64,
        /// Storage nodes that stripes are on.
        width: u32,
        /// The node, of these, with the first stripe.
        start: u32,
    },
    /// Paths in the instance, and why they could not be staged, as numbers of `errno(3)`.
    Failures(Vec<(String, i32)>),
}

/// Files by the state of their stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageCounts {
    /// Staged.
    pub complete: u64,
    /// Being staged, or waiting for that.
    pub pending: u64,
    /// To be staged at the job's end.
    pub deferred: u64,
    /// Could not be staged.
    pub failed: u64,
}
