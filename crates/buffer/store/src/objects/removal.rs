//! Removal of instances: hidden at once, their objects removed in the background.
//!
//! A removed instance is renamed to `removed-<instance>-<number>` in the directory of all objects,
//! so a restarted daemon finds and continues the removal.

use forebay_protocol::InstanceId;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PREFIX: &str = "removed-";
/// Threads that remove objects. Threads in different directories rarely contend.
const REMOVAL_THREADS: usize = 4;
/// Pause before a failed removal is retried.
const RETRY_BACKOFF: Duration = Duration::from_secs(10);
/// Time for which a stopping daemon continues to remove. The next start continues with the rest.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Progress of the removal of an instance, or of several with the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalProgress {
    /// Id of the removed instance.
    pub instance: u64,
    /// Objects at the beginning; 0 until they are counted.
    pub total_objects: u64,
    /// Objects removed so far.
    pub removed_objects: u64,
}

#[derive(Debug, Default)]
struct QueueState {
    /// An instance was added since the worker last listed the queue.
    has_new: bool,
    /// Time at which removal stops.
    stop_at: Option<Instant>,
    /// Instance that is being removed, without `removed_objects`.
    current: RemovalProgress,
    /// Directories to remove, by instance.
    pending: BTreeSet<(u64, PathBuf)>,
}

/// The removed instances of a directory.
#[derive(Debug)]
pub struct RemovalQueue {
    root: PathBuf,
    state: Mutex<QueueState>,
    changed: Condvar,
    removed_objects: AtomicU64,
}

impl RemovalQueue {
    /// The removed instances in `root`.
    pub(super) fn scan(root: &Path) -> io::Result<RemovalQueue> {
        let mut pending = BTreeSet::new();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let number = number.and_then(|name| name.split('-').next());
            let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
            pending.extend(number.map(|number| (number, entry.path())));
        }
        Ok(RemovalQueue {
            root: root.to_owned(),
            state: Mutex::new(QueueState { pending, ..QueueState::default() }),
            changed: Condvar::new(),
            removed_objects: AtomicU64::new(0),
        })
    }

    /// Hide the directory of an instance, which may be missing, and queue it for removal.
    pub(super) fn enqueue(&self, id: InstanceId, directory: &Path) -> io::Result<()> {
        assert_eq!(directory.parent(), Some(&*self.root));
        for number in 0u32.. {
            let to = self.root.join(format!("{PREFIX}{:016x}-{number}", id.0));
            match fs::rename(directory, &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // Another removed instance had the same id.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let mut state = self.state.lock();
                    state.has_new = true;
                    state.pending.insert((id.0, to));
                    break;
                }
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Progress of all pending removals.
    pub fn progress(&self) -> Vec<RemovalProgress> {
        let removed_objects = self.removed_objects.load(Ordering::Relaxed);
        let (current, mut pending) = {
            let state = self.state.lock();
            let pending = state.pending.iter().map(|(instance, _)| *instance);
            (state.current, pending.collect::<Vec<u64>>())
        };
        pending.dedup();
        let progress = |instance| {
            if instance == current.instance {
                RemovalProgress { removed_objects, ..current }
            } else {
                RemovalProgress { instance, ..RemovalProgress::default() }
            }
        };
        pending.into_iter().map(progress).collect()
    }

    /// Wait up to `timeout` until an instance is removed completely. Returns whether it is.
    pub fn wait_until_removed(&self, id: InstanceId, timeout: Duration) -> bool {
        let is_pending = |state: &mut QueueState| {
            let next = state.pending.range((id.0, PathBuf::new())..).next();
            next.is_some_and(|(instance, _)| *instance == id.0)
        };
        let mut state = self.state.lock();
        let waited = self.changed.wait_while_for(&mut state, is_pending, timeout);
        !waited.timed_out() || !is_pending(&mut state)
    }

    /// Make [`run_worker`](RemovalQueue::run_worker) return soon.
    pub fn stop_worker(&self) {
        self.state.lock().stop_at = Some(Instant::now() + STOP_TIMEOUT);
        self.changed.notify_all();
    }

    /// Remove queued instances until [stopped](RemovalQueue::stop_worker).
    pub fn run_worker(&self) {
        loop {
            let pending = {
                let mut state = self.state.lock();
                state.has_new = false;
                state.pending.clone()
            };
            for (instance, directory) in pending {
                if self.is_stop_due() {
                    return;
                }
                if let Err(error) = self.remove_directory(instance, &directory) {
                    tracing::warn!(%error, path = %directory.display(),
                        "cannot remove the objects of a removed instance; will retry");
                }
            }
            let mut state = self.state.lock();
            let is_idle = |state: &mut QueueState| !state.has_new && state.stop_at.is_none();
            self.changed.wait_while_for(&mut state, is_idle, RETRY_BACKOFF);
            if state.stop_at.is_some() && !state.has_new {
                return;
            }
        }
    }

    fn is_stop_due(&self) -> bool {
        let stop_at = self.state.lock().stop_at;
        stop_at.is_some_and(|stop_at| stop_at < Instant::now())
    }

    fn remove_directory(&self, instance: u64, directory: &Path) -> io::Result<()> {
        if !directory.try_exists()? {
            self.dequeue(instance, directory); // removed by another process
            return Ok(());
        }
        let mut folders = Vec::new();
        let mut total_objects = 0;
        for folder in fs::read_dir(directory)? {
            let folder = folder?.path();
            total_objects += fs::read_dir(&folder)?.count() as u64;
            folders.push(folder);
        }
        self.removed_objects.store(0, Ordering::Relaxed);
        self.state.lock().current = RemovalProgress { instance, total_objects, removed_objects: 0 };
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.remove_folder(folder)?;
            }
            Ok(())
        };
        let outcome: io::Result<()> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..REMOVAL_THREADS).map(|_| scope.spawn(work)).collect();
            let outcomes = others.into_iter().map(|other| other.join());
            work().and(outcomes.filter_map(Result::ok).collect())
        });
        self.state.lock().current = RemovalProgress::default();
        outcome?;
        if self.is_stop_due() {
            return Ok(());
        }
        fs::remove_dir(directory)?;
        self.dequeue(instance, directory);
        Ok(())
    }

    fn dequeue(&self, instance: u64, directory: &Path) {
        let entry = (instance, directory.to_owned());
        self.state.lock().pending.remove(&entry);
        self.changed.notify_all();
    }

    /// Remove a directory and its objects, or some of them if it is time to stop.
    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        for object in fs::read_dir(folder)? {
            if self.is_stop_due() {
                return Ok(());
            }
            let object = object?.path();
            // Its space becomes free even if a program still has it open, e.g. by FUSE passthrough.
            match rustix::fs::open(&object, OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(file) => rustix::fs::ftruncate(file, 0)?,
                Err(Errno::NOENT) => continue,
                Err(_) => {}
            }
            fs::remove_file(object)?;
            self.removed_objects.fetch_add(1, Ordering::Relaxed);
        }
        fs::remove_dir(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{DiskObjects, ObjectId, Objects};
    use forebay_protocol::{Ino, Timestamp};
    use std::sync::Arc;

    const ID: InstanceId = InstanceId(7);
    const OBJECTS: u64 = 500;

    fn create_objects(objects: &mut DiskObjects) {
        objects.add_instance(ID).unwrap();
        let time = Timestamp::default();
        for number in 0..OBJECTS {
            let ino = Ino(number);
            let id = ObjectId { instance: ID, ino };
            objects.put_object(id, b"something", (time, time)).unwrap();
        }
    }

    #[test]
    fn removed_instance_is_hidden_at_once_and_removed_in_background() {
        let home = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(home.path()).unwrap();
        // The same id is reused before the first instance is removed completely.
        for _ in 0..2 {
            create_objects(&mut objects);
            objects.remove_instance(ID).unwrap();
            assert_eq!(objects.list_instances().unwrap(), []);
        }
        objects.remove_instance(ID).unwrap();
        let queue = objects.removal_queue();
        assert_eq!(queue.progress().len(), 1);
        // Others may remove part of it.
        fs::remove_dir_all(home.path().join(format!("{PREFIX}{:016x}-0", ID.0))).unwrap();
        assert!(!queue.wait_until_removed(ID, Duration::ZERO));
        // A restarted daemon continues.
        let restarted = DiskObjects::open(home.path()).unwrap();
        let queue: Arc<RemovalQueue> = restarted.removal_queue();
        assert!(!queue.wait_until_removed(ID, Duration::ZERO));
        let worker = {
            let queue = queue.clone();
            std::thread::spawn(move || queue.run_worker())
        };
        assert!(queue.wait_until_removed(ID, Duration::from_secs(30)));
        assert_eq!(queue.progress(), []);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        queue.stop_worker();
        worker.join().unwrap();
    }

    #[test]
    fn failed_removal_reports_progress_and_is_retried() {
        let home = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(home.path()).unwrap();
        create_objects(&mut objects);
        // A directory in place of an object cannot be unlinked.
        let obstacle = home.path().join(format!("{:016x}/00/odd", ID.0));
        fs::create_dir(&obstacle).unwrap();
        objects.remove_instance(ID).unwrap();
        let queue = objects.removal_queue();
        let first = queue.state.lock().pending.first().cloned();
        let (instance, directory) = first.unwrap();
        assert!(queue.remove_directory(instance, &directory).is_err());
        assert!(!queue.wait_until_removed(ID, Duration::ZERO));
        assert!(queue.removed_objects.load(Ordering::Relaxed) > OBJECTS / 2);
        fs::remove_dir(directory.join("00/odd")).unwrap();
        queue.remove_directory(instance, &directory).unwrap();
        assert!(queue.wait_until_removed(ID, Duration::ZERO));
    }
}
