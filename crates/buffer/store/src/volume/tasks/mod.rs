//! Tasks: queries or changes of all data objects of a striped file, until the last node has answered.

mod run;

use super::tx_locks::TxLockOwner;
use crate::context::Origin;
use crate::namespace::Change;
use crate::state::SlotResult;
use forebay_protocol::message::OpenMode;
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{HandleId, Ino, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Time for which a request waits for all objects of a file, or for all participants of a
/// transaction, before it is returned with `EAGAIN`; clients apply their own timeout.
pub const ANSWER_TIMEOUT_NS: u64 = 20_000_000_000;
/// The same for a change that is committed here and cannot be retried: the usual timeout of a client.
pub const DECIDED_TIMEOUT_NS: u64 = 60_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Settle the length: the last write handle was closed.
    Settle,
    /// Set the times: the last write so far must be known to recognize later ones.
    Times,
    /// Set the length, in bytes.
    Resize(u64),
}

/// A task.
#[derive(Debug)]
pub struct Task {
    ino: Ino,
    goal: Goal,
    /// The nodes that have not answered.
    waiting: BTreeSet<NodeIndex>,
    /// The objects of the others.
    objects: BTreeMap<NodeIndex, Option<ObjectInfo>>,
    /// The request that it is done for.
    request: Option<TaskRequest>,
    since_ns: u64,
}

/// A request that waits for a task.
#[derive(Debug)]
pub struct TaskRequest {
    pub origin: Origin,
    /// The change to make when all objects are done.
    pub change: Change,
    /// The result to record for the slot.
    pub result: SlotResult,
    /// Set for an open that truncates the file: the handle and its mode.
    pub open: Option<(HandleId, OpenMode)>,
}

#[derive(Debug, Default)]
pub struct Tasks {
    tasks: BTreeMap<u64, Task>,
    last_id: u64,
}

/// The consequence of an answer for a task.
enum Progress {
    /// The task is over, or waits for other nodes.
    Waiting,
    /// All nodes have answered.
    Complete,
}

impl Tasks {
    fn add(&mut self, task: Task) -> u64 {
        assert!(!task.objects.is_empty(), "the own part has been done");
        self.last_id += 1;
        self.tasks.insert(self.last_id, task);
        self.last_id
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The files that tasks are about.
    pub fn inos(&self) -> BTreeSet<Ino> {
        self.tasks.values().map(|task| task.ino).collect()
    }

    /// The tasks that hold a lock on their file.
    pub fn lock_owners(&self) -> impl Iterator<Item = TxLockOwner> {
        let holding = self.tasks.iter();
        let holding = holding.filter(|(_, task)| task.goal != Goal::Settle);
        holding.map(|(id, _)| TxLockOwner::Task(*id))
    }

    /// Drop the tasks that settle the length of a file: it is overtaken.
    pub fn cancel_settling(&mut self, ino: Ino) {
        self.tasks.retain(|_, task| task.ino != ino || task.goal != Goal::Settle);
    }

    /// The calls that wait for tasks.
    pub fn origins(&self) -> impl Iterator<Item = Origin> {
        let requests = self.tasks.values().filter_map(|task| task.request.as_ref());
        requests.map(|request| request.origin)
    }

    fn note_answer(&mut self, id: u64, from: NodeIndex, info: Option<ObjectInfo>) -> Progress {
        let Some(task) = self.tasks.get_mut(&id) else {
            return Progress::Waiting;
        };
        if task.waiting.remove(&from) {
            task.objects.insert(from, info);
        }
        if task.waiting.is_empty() { Progress::Complete } else { Progress::Waiting }
    }

    /// A node is asked again later.
    fn ask_again(&mut self, id: u64, node: NodeIndex) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.waiting.insert(node);
        }
    }

    /// The nodes that have not answered.
    pub fn waiting(&self, id: u64) -> Vec<NodeIndex> {
        let task = self.tasks.get(&id);
        task.into_iter().flat_map(|task| task.waiting.iter().copied()).collect()
    }

    fn has_request(&self, id: u64) -> bool {
        let task = self.tasks.get(&id);
        task.is_some_and(|task| task.request.is_some())
    }

    /// Tasks with a request that has waited too long.
    fn timed_out(&self, now_ns: u64) -> Vec<u64> {
        let late = self.tasks.iter().filter(|(_, task)| {
            task.request.is_some() && task.since_ns.saturating_add(ANSWER_TIMEOUT_NS) < now_ns
        });
        late.map(|(id, _)| *id).collect()
    }

    /// The message that asks a node for its part of a task.
    fn query(&self, id: u64) -> Option<PeerPayload> {
        let task = self.tasks.get(&id)?;
        let oldest = self.tasks.keys().next().copied().unwrap_or(id);
        assert!(oldest <= id, "tasks are numbered in order");
        Some(match task.goal {
            Goal::Settle | Goal::Times => PeerPayload::StatObjects(vec![(id, task.ino)]),
            Goal::Resize(length) => {
                PeerPayload::ResizeObject { task: id, oldest, ino: task.ino, length }
            }
        })
    }
}
