//! Messages between the libraries and the service, on its Unix sockets.

use serde::{Deserialize, Serialize};

use crate::code::Code;

/// Longest text of a name, a path or a host, in bytes.
pub const MAX_TEXT_BYTES: usize = 4096;
/// Longest time in milliseconds for which one status call waits in the service.
pub const MAX_WAIT_MS: u64 = 1000;

/// Operations of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Copies a file or a directory.
    Copy,
    /// Copies, and removes the source when the copy is on stable storage.
    Move,
    /// Removes a file or a directory.
    Remove,
}

/// A source or destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resource {
    /// Memory of the caller, whose contents are in the descriptor sent with the call.
    Memory {
        /// Length in bytes.
        size: u64,
    },
    /// A file or directory in a dataspace of this node, or of one shared by all nodes.
    Path(DataPath),
    /// A file or directory in a dataspace of another node.
    Remote {
        /// The node: host name or address, optionally with a port.
        host: String,
        /// The path there.
        path: DataPath,
    },
}

/// A path in a dataspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPath {
    /// The dataspace.
    pub nsid: String,
    /// The path below its mount point.
    pub path: Vec<u8>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRequest {
    /// The operation.
    pub operation: Operation,
    /// The source.
    pub source: Resource,
    /// The destination; `None` to remove the source.
    pub destination: Option<Resource>,
}

impl TaskRequest {
    /// Bytes in its names and paths.
    pub fn text_bytes(&self) -> usize {
        let of = |resource: &Resource| match resource {
            Resource::Memory { .. } => 0,
            Resource::Path(path) => path.nsid.len() + path.path.len(),
            Resource::Remote { host, path } => host.len() + path.nsid.len() + path.path.len(),
        };
        of(&self.source) + self.destination.as_ref().map_or(0, of)
    }
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskState {
    /// Pending, in progress, finished, or failed.
    pub status: Code,
    /// The result.
    pub error: Code,
    /// The number of `errno(3)` if the result is a system error, otherwise 0.
    pub errno: i32,
    /// Bytes not transferred yet.
    pub pending_bytes: u64,
    /// All bytes known so far.
    pub total_bytes: u64,
}

/// Type of a dataspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// Persistent memory with a file system.
    Nvml,
    /// A parallel file system.
    Lustre,
    /// A user-level file system, mounted.
    Echofs,
    /// Any other file system.
    Posix,
}

impl Backend {
    /// The backend with this number in C programs.
    pub fn from_number(number: i64) -> Option<Backend> {
        match number {
            0x1000_0001 => Some(Backend::Nvml),
            0x1000_0002 => Some(Backend::Lustre),
            0x1000_0003 => Some(Backend::Echofs),
            0x1000_0004 => Some(Backend::Posix),
            _ => None,
        }
    }
}

/// A dataspace to be registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataspaceRequest {
    /// Its type.
    pub backend: Backend,
    /// Whether bytes that are below the mount point already count.
    pub track: bool,
    /// The directory, absolute.
    pub mount: Vec<u8>,
    /// Bytes that tasks may store there.
    pub capacity: u64,
    /// Whether processes that belong to no job may use it.
    pub visible: bool,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its dataspaces, each with the bytes that the job's tasks may store there.
    pub limits: Vec<(String, u64)>,
}

/// A process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the process on this node.
    pub pid: i32,
}

/// Commands to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Does nothing.
    Ping,
    /// Refuses new tasks.
    Pause,
    /// Accepts tasks again.
    Resume,
    /// Ends the service, unless tasks are pending.
    Shutdown,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Starts a task.
    Submit(TaskRequest),
    /// Reports the state of a task.
    Status {
        /// The task.
        task: u32,
        /// Time to wait until the task is over, in milliseconds; at most [`MAX_WAIT_MS`].
        wait_ms: u64,
    },
    /// Ends a task.
    Cancel(u32),
    /// A call of an administrator.
    Control(ControlCall),
}

/// A call through the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlCall {
    /// A command.
    Command(Command),
    /// Counts tasks.
    Status,
    /// Registers a job.
    RegisterJob(u32, JobRequest),
    /// Replaces hosts and limits of a job.
    UpdateJob(u32, JobRequest),
    /// Removes a job with its processes.
    UnregisterJob(u32),
    /// Adds a process to a job.
    AddProcess(u32, Process),
    /// Removes a process from a job.
    RemoveProcess(u32, Process),
    /// Registers a dataspace.
    RegisterDataspace(String, DataspaceRequest),
    /// Replaces the description of a dataspace.
    UpdateDataspace(String, DataspaceRequest),
    /// Removes a dataspace; its files stay.
    UnregisterDataspace(String),
    /// Lists dataspaces, jobs and tasks.
    List,
}

/// Number of tasks, and the time until they are over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Tasks in progress.
    pub running: u64,
    /// Tasks that wait for a worker.
    pub pending: u64,
    /// Seconds until the last of the running tasks is over; `None` without an estimate.
    pub eta_seconds: Option<f64>,
}

/// A dataspace in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataspaceEntry {
    /// Name.
    pub nsid: String,
    /// Description.
    pub space: DataspaceRequest,
    /// Bytes that count against the capacity.
    pub used: u64,
}

/// A job in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEntry {
    /// Number.
    pub job: u32,
    /// Hosts.
    pub hosts: Vec<String>,
    /// Dataspace, quota and bytes in use.
    pub limits: Vec<(String, u64, u64)>,
    /// Processes.
    pub processes: Vec<Process>,
}

/// A task in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEntry {
    /// Number.
    pub task: u32,
    /// User.
    pub uid: u32,
    /// Job.
    pub job: Option<u32>,
    /// Description.
    pub request: TaskRequest,
    /// State.
    pub state: TaskState,
}

/// Everything that the service knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Dataspaces by name.
    pub dataspaces: Vec<DataspaceEntry>,
    /// Jobs by number.
    pub jobs: Vec<JobEntry>,
    /// Tasks by number.
    pub tasks: Vec<TaskEntry>,
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The call is carried out.
    Done,
    /// The number of the new task.
    Task(u32),
    /// The state of a task.
    State(TaskState),
    /// The status of the service.
    Status(ServiceStatus),
    /// The listing.
    Listing(Listing),
    /// The call is refused, for this reason.
    Refused(Code, String),
}
