//! Removed instances: out of sight at once, their objects removed one by one in the background.
//!
//! What is left of them lies in `removed-<instance>-<number>` beside the others, so a daemon that
//! starts finds it again.

use forebay_protocol::InstanceId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const PREFIX: &str = "removed-";
/// Threads that remove objects. In different directories they wait little for each other.
const THREADS: usize = 4;
/// Time between looks at what could not be removed.
const AGAIN: Duration = Duration::from_secs(10);
/// How long a daemon that stops goes on removing. What is left then goes after its next start.
const LAST: Duration = Duration::from_secs(1);

/// A removed instance of which something is left, or several of the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalProgress {
    /// Which.
    pub instance: u64,
    /// Objects it had; 0 while they are not counted.
    pub total_objects: u64,
    /// Of these, removed.
    pub removed_objects: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Something was removed since the thread looked last.
    rung: bool,
    /// When to stop.
    stop: Option<Instant>,
    /// What is being removed, but for the count.
    now: RemovalProgress,
    /// Directories that are to go, with the numbers of their instances.
    left: BTreeSet<(u64, PathBuf)>,
}

/// The removed instances of a directory.
#[derive(Debug)]
pub struct RemovalQueue {
    root: PathBuf,
    state: Mutex<State>,
    bell: Condvar,
    removed: AtomicU64,
}

impl RemovalQueue {
    /// Those in `root`.
    pub(super) fn scan(root: &Path) -> io::Result<RemovalQueue> {
        let mut left = BTreeSet::new();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let number = number.and_then(|name| name.split('-').next());
            let number = number.and_then(|number| u64::from_str_radix(number, 16).ok());
            left.extend(number.map(|number| (number, entry.path())));
        }
        Ok(RemovalQueue {
            root: root.to_owned(),
            state: Mutex::new(State {
                left,
                ..State::default()
            }),
            bell: Condvar::new(),
            removed: AtomicU64::new(0),
        })
    }

    /// Takes the directory of an instance out of sight; it may be gone already.
    pub(super) fn enqueue(&self, id: InstanceId, directory: &Path) -> io::Result<()> {
        for number in 0u32.. {
            let to = self.root.join(format!("{PREFIX}{:016x}-{number}", id.0));
            match fs::rename(directory, &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // One before it had the same number.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.with(|state| {
                        state.rung = true;
                        state.left.insert((id.0, to));
                    });
                    break;
                }
            }
        }
        self.bell.notify_all();
        Ok(())
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The removed instances of which something is left.
    pub fn progress(&self) -> Vec<RemovalProgress> {
        let removed = self.removed.load(Ordering::Relaxed);
        let (now, mut left) = self.with(|state| {
            let left = state.left.iter().map(|(instance, _)| *instance);
            (state.now, left.collect::<Vec<u64>>())
        });
        left.dedup();
        let removal = |instance| match instance == now.instance {
            true => RemovalProgress {
                removed_objects: removed,
                ..now
            },
            false => RemovalProgress {
                instance,
                ..RemovalProgress::default()
            },
        };
        left.into_iter().map(removal).collect()
    }

    /// Whether nothing is left of a removed instance; waits for that as long as `patience`.
    pub fn wait_until_removed(&self, id: InstanceId, patience: Duration) -> bool {
        let is_left = |state: &mut State| {
            let first = (id.0, PathBuf::new());
            let next = state.left.range(first..).next();
            next.is_some_and(|(instance, _)| *instance == id.0)
        };
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(state, patience, is_left);
        let waited = waited.unwrap_or_else(PoisonError::into_inner);
        !waited.1.timed_out()
    }

    /// Has [`run`](Leaving::run) return soon.
    pub fn stop_worker(&self) {
        self.with(|state| state.stop = Some(Instant::now() + LAST));
        self.bell.notify_all();
    }

    /// Removes what is there and what comes, until it is told to stop.
    pub fn run_worker(&self) {
        loop {
            let left = self.with(|state| {
                state.rung = false;
                state.left.clone()
            });
            for (instance, directory) in left {
                if self.is_over() {
                    return;
                }
                if let Err(error) = self.remove(instance, &directory) {
                    tracing::warn!(%error, path = %directory.display(),
                        "a removed instance cannot be removed from the disk now");
                }
            }
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = |state: &mut State| !state.rung && state.stop.is_none();
            let waited = self.bell.wait_timeout_while(state, AGAIN, idle);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.stop.is_some() && !state.rung {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.with(|state| state.stop.is_some_and(|stop| stop < Instant::now()))
    }

    fn remove(&self, instance: u64, directory: &Path) -> io::Result<()> {
        if !directory.try_exists()? {
            self.forget(instance, directory); // somebody else has removed it
            return Ok(());
        }
        let mut folders = Vec::new();
        let mut objects = 0;
        for folder in fs::read_dir(directory)? {
            let folder = folder?.path();
            objects += fs::read_dir(&folder)?.count() as u64;
            folders.push(folder);
        }
        self.removed.store(0, Ordering::Relaxed);
        self.with(|state| {
            state.now = RemovalProgress {
                instance,
                total_objects: objects,
                removed_objects: 0,
            }
        });
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.empty(folder)?;
            }
            Ok(())
        };
        let outcome: io::Result<()> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(work)).collect();
            let ended = others.into_iter().map(|other| other.join());
            work().and(ended.filter_map(Result::ok).collect())
        });
        self.with(|state| state.now = RemovalProgress::default());
        outcome?;
        if self.is_over() {
            return Ok(());
        }
        fs::remove_dir(directory)?;
        self.forget(instance, directory);
        Ok(())
    }

    fn forget(&self, instance: u64, directory: &Path) {
        self.with(|state| state.left.remove(&(instance, directory.to_owned())));
        self.bell.notify_all();
    }

    /// Removes a directory and the objects in it; not all of them when it is time to stop.
    fn empty(&self, folder: &Path) -> io::Result<()> {
        for object in fs::read_dir(folder)? {
            if self.is_over() {
                return Ok(());
            }
            fs::remove_file(object?.path())?;
            self.removed.fetch_add(1, Ordering::Relaxed);
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

    fn furnish(objects: &mut DiskObjects) {
        objects.add_instance(ID).unwrap();
        let time = Timestamp::default();
        for number in 0..OBJECTS {
            let ino = Ino(number);
            let id = ObjectId { instance: ID, ino };
            objects.put_object(id, b"something", time, time).unwrap();
        }
    }

    #[test]
    fn a_removed_instance_is_out_of_sight_at_once_and_gone_when_it_says_so() {
        let home = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(home.path()).unwrap();
        // Twice under the same number, before anything of the first one has gone.
        for _ in 0..2 {
            furnish(&mut objects);
            objects.remove_instance(ID).unwrap();
            assert_eq!(objects.list_instances().unwrap(), []);
        }
        objects.remove_instance(ID).unwrap();
        let leaving = objects.removal_queue();
        assert_eq!(leaving.progress().len(), 1);
        // Somebody else may remove some of it.
        fs::remove_dir_all(home.path().join(format!("{PREFIX}{:016x}-0", ID.0))).unwrap();
        assert!(!leaving.wait_until_removed(ID, Duration::ZERO));
        // A daemon that starts finds them.
        let again = DiskObjects::open(home.path()).unwrap();
        assert!(!again.removal_queue().wait_until_removed(ID, Duration::ZERO));
        let leaving: Arc<RemovalQueue> = again.removal_queue();
        let remover = {
            let leaving = leaving.clone();
            std::thread::spawn(move || leaving.run_worker())
        };
        assert!(leaving.wait_until_removed(ID, Duration::from_secs(30)));
        assert_eq!(leaving.progress(), []);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        leaving.stop_worker();
        remover.join().unwrap();
    }

    #[test]
    fn how_much_is_removed_is_known_and_what_is_in_the_way_is_tried_again() {
        let home = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(home.path()).unwrap();
        furnish(&mut objects);
        // A directory where an object is wanted cannot be removed like one.
        let odd = home.path().join(format!("{:016x}/00/odd", ID.0));
        fs::create_dir(&odd).unwrap();
        objects.remove_instance(ID).unwrap();
        let leaving = objects.removal_queue();
        let first = leaving.with(|state| state.left.first().cloned());
        let (instance, directory) = first.unwrap();
        assert!(leaving.remove(instance, &directory).is_err());
        assert!(!leaving.wait_until_removed(ID, Duration::ZERO));
        assert!(leaving.removed.load(Ordering::Relaxed) > OBJECTS / 2);
        fs::remove_dir(directory.join("00/odd")).unwrap();
        leaving.remove(instance, &directory).unwrap();
        assert!(leaving.wait_until_removed(ID, Duration::ZERO));
    }
}
