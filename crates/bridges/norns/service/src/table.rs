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
/// Bytes of the tasks in a listing, and of one without names and paths; both at most.
const MAX_LISTED_BYTES: usize = 16 << 20;
const TASK_ENTRY_BYTES: usize = 256;
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

/// The effect of a cancellation.
pub(crate) enum Cancelled {
    /// There is no such task.
    Unknown,
    /// A worker will end the task, or it is over.
    Requested,
    /// No worker had begun with the task, and none will: the caller must [finish](TaskTable::finish)
    /// it.
    Pending(Arc<Task>),
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

    /// Cancels a task of user `uid`, or of any user for `None`.
    pub fn cancel(&self, task: u32, uid: Option<u32>) -> Cancelled {
        let mut inner = self.inner.lock();
        let is_visible = |record: &TaskRecord| uid.is_none_or(|uid| record.user.uid == uid);
        if let Some(active) = inner.active.get(&task).filter(|task| is_visible(&task.record)) {
            active.progress.cancel();
            let place = inner.queue.iter().position(|queued| queued.record.task == task);
            let queued = place.and_then(|place| inner.queue.remove(place));
            return queued.map_or(Cancelled::Requested, Cancelled::Pending);
        }
        match inner.results.get(&task).is_some_and(is_visible) {
            true => Cancelled::Requested,
            false => Cancelled::Unknown,
        }
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

    /// The tasks by number; of those that are over the last ones, as far as they fit into a reply.
    pub fn list(&self) -> Vec<TaskEntry> {
        let inner = self.inner.lock();
        let active = inner.active.values().map(|task| task.record.entry(task.state()));
        let over = inner.result_order.iter().rev().filter_map(|task| inner.results.get(task));
        let over =
            over.filter_map(|record| record.outcome.map(|outcome| record.entry(outcome.state())));
        let mut left = MAX_LISTED_BYTES;
        let mut entries: Vec<TaskEntry> = active
            .chain(over)
            .take_while(|entry| {
                let needed = entry.request.text_bytes() + TASK_ENTRY_BYTES;
                let fits = needed <= left;
                left = left.saturating_sub(needed);
                fits
            })
            .collect();
        entries.sort_by_key(|entry| entry.task);
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::User;
    use crate::task::Outcome;
    use forebay_norns_api::message::{DataPath, Operation, Resource, TaskRequest};
    use rustix::io::Errno;

    fn record(task: u32, uid: u32) -> TaskRecord {
        let path =
            |nsid: &str| Resource::Path(DataPath { nsid: nsid.to_owned(), path: b"a".to_vec() });
        let request = TaskRequest {
            operation: Operation::Copy,
            source: path("from"),
            destination: Some(path("to")),
        };
        let user = User { uid, gid: uid, groups: Vec::new() };
        TaskRecord { task, user, job: None, request, copied: false, resumed: false, outcome: None }
    }

    fn submit(table: &TaskTable, uid: u32) -> u32 {
        let task = table.reserve(uid).unwrap();
        table.enqueue(Task::new(record(task, uid), None));
        task
    }

    fn finish(table: &TaskTable, task: &Task, result: Result<(), Errno>, seconds: u64) {
        let outcome = Some(Outcome::new(result, 100, 100));
        table.finish(
            TaskRecord { outcome, ..task.record.clone() },
            Some(Duration::from_secs(seconds)),
        );
    }

    #[test]
    fn queue_is_bounded_for_each_user_and_in_total() {
        let table = TaskTable::default();
        let code = |uid| table.reserve(uid).map_err(|(code, _)| code).err();
        for user in 0..MAX_TASKS / MAX_USER_TASKS {
            for _ in 0..MAX_USER_TASKS {
                submit(&table, user as u32);
            }
            assert_eq!(code(user as u32), Some(Code::TOOMANYTASKS), "user {user}");
        }
        assert_eq!(code(99), Some(Code::TOOMANYTASKS), "all users together");
        let first = table.next().unwrap();
        finish(&table, &first, Ok(()), 1);
        assert_eq!(code(0), None);
    }

    #[test]
    fn pending_task_is_cancelled_at_once_and_a_running_one_by_its_worker() {
        let table = TaskTable::default();
        let (first, second) = (submit(&table, 7), submit(&table, 7));
        let running = table.next().unwrap();
        assert_eq!(running.record.task, first);
        assert!(matches!(table.cancel(second, Some(8)), Cancelled::Unknown), "of another user");
        assert!(matches!(table.cancel(first, Some(7)), Cancelled::Requested));
        assert!(running.is_cancelled());
        let Cancelled::Pending(task) = table.cancel(second, None) else { panic!("it is pending") };
        finish(&table, &task, Err(Errno::CANCELED), 0);
        let state = table.state(second, Some(7), Duration::ZERO).unwrap();
        assert_eq!((state.status, state.errno), (Code::FINISHEDWERROR, libc::ECANCELED));
        assert_eq!(table.state(second, Some(8), Duration::ZERO), None);
        assert_eq!(table.status().pending, 0);
        assert!(!table.end(false), "a task is in progress");
    }

    #[test]
    fn estimate_is_that_of_the_task_that_ends_last() {
        let table = TaskTable::default();
        submit(&table, 1);
        finish(&table, &table.next().unwrap(), Ok(()), 2);
        for total in [100, 400] {
            submit(&table, 1);
            assert_eq!(table.status().pending, 1);
            table.next().unwrap().total.store(total, Relaxed);
        }
        let status = table.status();
        assert_eq!((status.running, status.pending), (2, 0));
        assert_eq!(status.eta_seconds, Some(8.0), "400 bytes at 50 bytes/s");
    }

    #[test]
    fn results_are_kept_up_to_a_limit() {
        let table = TaskTable::default();
        let first = submit(&table, 1);
        for _ in 0..MAX_RESULTS {
            finish(&table, &table.next().unwrap(), Ok(()), 1);
            submit(&table, 1);
        }
        assert!(table.state(first, None, Duration::ZERO).is_some());
        let last = table.next().unwrap();
        let outcome = Some(Outcome::new(Ok(()), 0, 0));
        let dropped = table.finish(TaskRecord { outcome, ..last.record.clone() }, None);
        assert_eq!(dropped, Some(first));
        assert_eq!(table.state(first, None, Duration::ZERO), None);
    }
}
