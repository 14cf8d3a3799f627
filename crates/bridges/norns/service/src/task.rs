//! A task and its state.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use forebay_norns_api::Code;
use forebay_norns_api::message::{Resource, TaskEntry, TaskRequest, TaskState};
use forebay_stage::ProgressCounters;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::caller::User;
use crate::rates::Pair;

/// A task from its submission on, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskRecord {
    pub task: u32,
    pub user: User,
    pub job: Option<u32>,
    pub request: TaskRequest,
    /// The copy of a move is on stable storage.
    pub copied: bool,
    /// The service was restarted while the task was unfinished.
    pub resumed: bool,
    /// The result of a task that is over.
    pub outcome: Option<Outcome>,
}

/// The result of a task that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The number of `errno(3)`; 0 for success.
    pub errno: i32,
    /// Bytes transferred.
    pub done: u64,
    /// Bytes to transfer.
    pub total: u64,
}

/// A task that is not over.
#[derive(Debug)]
pub(crate) struct Task {
    pub record: TaskRecord,
    /// The contents of a memory region.
    pub region: Option<OwnedFd>,
    pub progress: ProgressCounters,
    /// Bytes of the source, once they are known.
    pub total: AtomicU64,
    pub running: AtomicBool,
}

impl Task {
    pub fn new(record: TaskRecord, region: Option<OwnedFd>) -> Arc<Task> {
        assert!(record.outcome.is_none(), "a task that is over has an outcome only");
        Arc::new(Task {
            record,
            region,
            progress: ProgressCounters::new(),
            total: AtomicU64::new(0),
            running: AtomicBool::new(false),
        })
    }

    /// Whether the task was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }

    /// Bytes transferred so far.
    pub fn done(&self) -> u64 {
        self.progress.snapshot().bytes
    }

    pub fn state(&self) -> TaskState {
        let total = self.total.load(Relaxed);
        TaskState {
            status: if self.running.load(Relaxed) { Code::INPROGRESS } else { Code::PENDING },
            error: Code::SUCCESS,
            errno: 0,
            pending_bytes: total.saturating_sub(self.done()),
            total_bytes: total,
        }
    }

    /// Source and destination, for rates.
    pub fn pair(&self) -> Pair {
        let name = |resource: &Resource| match resource {
            Resource::Memory { .. } => String::new(),
            Resource::Path(path) => path.nsid.clone(),
            Resource::Remote { host, path } => format!("{host}/{}", path.nsid),
        };
        let request = &self.record.request;
        (name(&request.source), request.destination.as_ref().map(name).unwrap_or_default())
    }
}

impl Outcome {
    pub fn new(result: Result<(), Errno>, done: u64, total: u64) -> Outcome {
        let errno = result.err().map_or(0, Errno::raw_os_error);
        Outcome { errno, done, total }
    }

    pub fn state(&self) -> TaskState {
        let failed = self.errno != 0;
        TaskState {
            status: if failed { Code::FINISHEDWERROR } else { Code::FINISHED },
            error: if failed { Code::SYSTEMERROR } else { Code::SUCCESS },
            errno: self.errno,
            pending_bytes: self.total.saturating_sub(self.done),
            total_bytes: self.total,
        }
    }
}

impl TaskRecord {
    /// The task in a listing, with this state.
    pub fn entry(&self, state: TaskState) -> TaskEntry {
        TaskEntry {
            task: self.task,
            uid: self.user.uid,
            job: self.job,
            request: self.request.clone(),
            state,
        }
    }

    /// The dataspaces of this node that the task uses.
    pub fn dataspaces(&self) -> impl Iterator<Item = &str> {
        let request = &self.request;
        let resources = std::iter::once(&request.source).chain(&request.destination);
        resources.filter_map(|resource| match resource {
            Resource::Path(path) => Some(path.nsid.as_str()),
            Resource::Memory { .. } | Resource::Remote { .. } => None,
        })
    }
}
