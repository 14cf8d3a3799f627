//! The tasks: a bounded queue, those in progress, and the results of the last ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use forebay_norns_api::Code;
use forebay_norns_api::message::{ServiceStatus, TaskEntry, TaskState};
use parking_lot::{Condvar, Mutex};

use crate::rates::Rates;
use crate::registry::Refused;
use crate::task::{Task, TaskRecord};

/// Maximum number of tasks that are not over, and of those of one user.
const MAX_TASKS: usize = 8192;
const MAX_USER_TASKS: usize = 2048;
/// Results that are kept.
const MAX_RESULTS: usize = 8192;

#[derive(Default)]
struct Inner {
    last: u32,
    queue: VecDeque<Arc<Task>>,
    /// Tasks that are not over.
    active: BTreeMap<u32, Arc<Task>>,
    /// Tasks that are over, in the order of their ends.
    results: BTreeMap<u32, TaskRecord>,
    result_order: VecDeque<u32>,
    rates: Rates,
    paused: bool,
    ended: bool,
}

/// The tasks of the service.
#[derive(Default)]
pub(crate) struct TaskTable {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl TaskTable {
    /// Reserves a number for a task of this user.
    pub fn reserve(&self, uid: u32) -> Result<u32, Refused> {
        let mut inner = self.inner.lock();
        if inner.paused || inner.ended {
            return Err((Code::ACCEPTPAUSED, "the service accepts no tasks at present".to_owned()));
        }
        let own = inner.active.values().filter(|task| task.record.user.uid == uid).count();
        if inner.active.len() >= MAX_TASKS || own >= MAX_USER_TASKS {
            let reason = format!(
                "there are {} tasks, {own} of user {uid}; the limits are {MAX_TASKS} and \
                 {MAX_USER_TASKS}",
                inner.active.len()
            );
            return Err((Code::TOOMANYTASKS, reason));
        }
        // 0 stands for a task that has not been submitted.
        loop {
            inner.last = inner.last.wrapping_add(1).max(1);
            let number = inner.last;
            if !inner.active.contains_key(&number) && !inner.results.contains_key(&number) {
                return Ok(number);
            }
        }
    }

    /// Adds a task to the queue.
    pub fn enqueue(&self, task: Arc<Task>) {
        let mut inner = self.inner.lock();
        let number = task.record.task;
        inner.last = inner.last.max(number);
        let known = inner.active.insert(number, task.clone());
        assert!(known.is_none(), "numbers of tasks are not used twice");
        inner.queue.push_back(task);
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits for a task to carry out; `None` when the service ends.
    pub fn next(&self) -> Option<Arc<Task>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.ended {
                return None;
            }
            if let Some(task) = inner.queue.pop_front() {
                task.running.store(true, Relaxed);
                return Some(task);
            }
            self.changed.wait(&mut inner);
        }
    }

    /// Records the result of a task, which took `time`. Returns a task whose result is dropped.
    pub fn finish(&self, record: TaskRecord, time: Option<Duration>) -> Option<u32> {
        let mut inner = self.inner.lock();
        let task = inner.active.remove(&record.task);
        if let (Some(task), Some(time), Some(outcome)) = (task, time, record.outcome)
            && outcome.errno == 0
        {
            inner.rates.record(task.pair(), outcome.done, time.as_secs_f64());
        }
        inner.last = inner.last.max(record.task);
        inner.result_order.push_back(record.task);
        inner.results.insert(record.task, record);
        assert_eq!(inner.results.len(), inner.result_order.len());
        let dropped = match inner.results.len() > MAX_RESULTS {
            true => inner.result_order.pop_front(),
            false => None,
        };
        if let Some(dropped) = dropped {
            inner.results.remove(&dropped);
        }
        drop(inner);
        self.changed.notify_all();
        dropped
    }

    /// The state of a task of user `uid`, or of any user for `None`. Waits for at most `wait` until
    /// it is over.
    pub fn state(&self, task: u32, uid: Option<u32>, wait: Duration) -> Option<TaskState> {
        let deadline = Instant::now() + wait;
        let is_visible = |record: &TaskRecord| uid.is_none_or(|uid| record.user.uid == uid);
        let mut inner = self.inner.lock();
        loop {
            if let Some(record) = inner.results.get(&task).filter(|record| is_visible(record)) {
                return record.outcome.map(|outcome| outcome.state());
            }
            let active = inner.active.get(&task).filter(|task| is_visible(&task.record))?.clone();
            let timed_out = self.changed.wait_until(&mut inner, deadline).timed_out();
            if timed_out && inner.active.contains_key(&task) {
                return Some(active.state());
            }
        }
    }

    /// Cancels a task of user `uid`, or of any user for `None`. Returns whether there is such a task.
    pub fn cancel(&self, task: u32, uid: Option<u32>) -> bool {
        let inner = self.inner.lock();
        let is_visible = |record: &TaskRecord| uid.is_none_or(|uid| record.user.uid == uid);
        if let Some(active) = inner.active.get(&task).filter(|task| is_visible(&task.record)) {
            active.progress.cancel();
            return true;
        }
        inner.results.get(&task).is_some_and(is_visible)
    }

    /// Refuses new tasks, or accepts them again.
    pub fn set_paused(&self, paused: bool) {
        self.inner.lock().paused = paused;
    }

    /// Ends the service, unless a task is not over and `force` is not set.
    pub fn end(&self, force: bool) -> bool {
        let mut inner = self.inner.lock();
        if !force && !inner.active.is_empty() {
            return false;
        }
        inner.ended = true;
        drop(inner);
        self.changed.notify_all();
        true
    }

    pub fn has_ended(&self) -> bool {
        self.inner.lock().ended
    }

    /// Whether a task that is not over uses this dataspace.
    pub fn uses_dataspace(&self, nsid: &str) -> bool {
        let inner = self.inner.lock();
        let mut tasks = inner.active.values();
        tasks.any(|task| task.record.dataspaces().any(|used| used == nsid))
    }

    /// Numbers of tasks, and the estimate for those in progress.
    pub fn status(&self) -> ServiceStatus {
        let inner = self.inner.lock();
        let running = inner.active.values().filter(|task| task.running.load(Relaxed));
        let (mut count, mut eta) = (0, None::<f64>);
        for task in running {
            count += 1;
            let left = task.total.load(Relaxed).saturating_sub(task.done());
            if let Some(seconds) = inner.rates.estimate(&task.pair(), left) {
                eta = Some(eta.map_or(seconds, |eta| eta.max(seconds)));
            }
        }
        let pending = inner.queue.len() as u64;
        ServiceStatus { running: count, pending, eta_seconds: eta }
    }

    /// All tasks by number.
    pub fn list(&self) -> Vec<TaskEntry> {
        let inner = self.inner.lock();
        let active = inner.active.values().map(|task| task.record.entry(task.state()));
        let over = inner
            .results
            .values()
            .filter_map(|record| record.outcome.map(|outcome| record.entry(outcome.state())));
        let mut entries: Vec<TaskEntry> = active.chain(over).collect();
        entries.sort_by_key(|entry| entry.task);
        entries
    }
}
