//! Removed objects whose blocks are freed in the background.
//!
//! Freeing the blocks of a large file takes long: 3 ms a GiB on an idle ext4, 90 ms on a busy one, a second on
//! tmpfs, more if it is fragmented. The file is therefore open when its name is removed, and a thread closes it. When the process
//! or the host crashes, the file system frees the blocks of files without names by itself.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Bytes from which on an object is freed in the background. Smaller ones take less than some milliseconds.
pub(super) const MIN_BYTES: u64 = 4 << 20;
/// Files that may wait. Further ones are freed by who removes them.
const MAX_FILES: usize = 64;

/// Files without names that are still open.
#[derive(Debug, Default)]
pub struct FreeingQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    files: VecDeque<OwnedFd>,
    has_worker: bool,
    is_stopped: bool,
}

impl QueueState {
    fn accepts_more(&self) -> bool {
        self.has_worker && self.files.len() < MAX_FILES
    }
}

impl FreeingQueue {
    /// From now on files are accepted. The caller must [run the worker](FreeingQueue::run_worker).
    pub fn accept(&self) {
        self.state.lock().has_worker = true;
    }

    /// Whether the worker would get a file.
    pub(super) fn accepts_more(&self) -> bool {
        self.state.lock().accepts_more()
    }

    /// Close a file in the background, or at once if there is no worker or too many files wait.
    pub(super) fn close(&self, file: OwnedFd) {
        let mut state = self.state.lock();
        if state.accepts_more() {
            state.files.push_back(file);
            self.changed.notify_one();
        }
        drop(state); // before the file, if it was not accepted
    }

    /// Make [`run_worker`](FreeingQueue::run_worker) return when all files are closed. No further ones are
    /// accepted.
    pub fn stop_worker(&self) {
        let mut state = self.state.lock();
        (state.is_stopped, state.has_worker) = (true, false);
        self.changed.notify_all();
    }

    /// Close files until [stopped](FreeingQueue::stop_worker).
    pub fn run_worker(&self) {
        loop {
            let file = {
                let mut state = self.state.lock();
                let is_idle = |state: &mut QueueState| state.files.is_empty() && !state.is_stopped;
                self.changed.wait_while(&mut state, is_idle);
                assert!(state.files.len() <= MAX_FILES);
                state.files.pop_front()
            };
            match file {
                Some(file) => drop(file),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{DiskObjects, ObjectId, Objects};
    use forebay_protocol::message::Allocate;
    use forebay_protocol::{Errno, Ino, InstanceId, Timestamp};
    use rustix::fs::fstat;

    const INSTANCE: InstanceId = InstanceId(7);

    fn object(ino: u64) -> ObjectId {
        ObjectId { instance: INSTANCE, ino: Ino(ino) }
    }

    fn create(objects: &mut DiskObjects, ino: u64, bytes: u64) {
        let time = Timestamp::default();
        objects.create(object(ino), (time, time)).unwrap();
        let what = Allocate::Reserve { keep_size: false };
        objects.allocate(object(ino), 0..bytes, what).unwrap();
    }

    /// Whether each file that waits has a name, and its bytes.
    fn waiting(queue: &FreeingQueue) -> Vec<(bool, u64)> {
        let state = queue.state.lock();
        let stats = state.files.iter().map(|file| fstat(file).unwrap());
        stats.map(|stat| (stat.st_nlink > 0, stat.st_blocks as u64 * 512)).collect()
    }

    #[test]
    fn only_the_worker_frees_large_objects_and_their_names_are_gone_before() {
        let home = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(home.path()).unwrap();
        objects.add_instance(INSTANCE).unwrap();
        let queue = objects.freeing_queue();
        // Nobody would close it.
        create(&mut objects, 1, 2 * MIN_BYTES);
        objects.remove(object(1), 2 * MIN_BYTES).unwrap();
        assert_eq!(waiting(&queue), []);
        queue.accept();
        create(&mut objects, 1, MIN_BYTES / 2);
        create(&mut objects, 2, 2 * MIN_BYTES);
        objects.remove(object(1), MIN_BYTES / 2).unwrap();
        assert_eq!(waiting(&queue), [], "small objects are removed at once");
        objects.remove(object(2), 2 * MIN_BYTES).unwrap();
        // It has its blocks, no name, and another object can have its number.
        let [(has_name, bytes)] = waiting(&queue)[..] else { panic!("one file waits") };
        assert!(!has_name && bytes >= 2 * MIN_BYTES, "{has_name}, {bytes} bytes");
        assert_eq!(objects.stat(object(2)).err(), Some(Errno::ENOENT));
        assert_eq!(objects.list_objects(INSTANCE).unwrap(), []);
        objects.remove(object(2), 2 * MIN_BYTES).unwrap();
        create(&mut objects, 2, 4096);
        assert_eq!(objects.list_objects(INSTANCE).unwrap().len(), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| queue.run_worker());
            queue.stop_worker();
        });
        assert_eq!(waiting(&queue), []);
    }

    #[test]
    fn too_many_objects_are_freed_at_once() {
        let home = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(home.path()).unwrap();
        objects.add_instance(INSTANCE).unwrap();
        let queue = objects.freeing_queue();
        queue.accept();
        let count = MAX_FILES as u64 + 3;
        for ino in 1..=count {
            create(&mut objects, ino, MIN_BYTES);
            objects.remove(object(ino), MIN_BYTES).unwrap();
        }
        assert_eq!(waiting(&queue).len(), MAX_FILES);
        assert_eq!(objects.list_objects(INSTANCE).unwrap(), []);
    }
}
