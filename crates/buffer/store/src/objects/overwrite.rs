//! Writes without reserved space, over blocks that an object has.
//!
//! In a full instance no space is granted, but what has blocks can be written, as on a local file
//! system. Between the moment when the object was seen to have the blocks and the write, nobody may
//! free them: they could be granted to somebody else, and the write would take others. So such writes
//! hold a lock of the object, and so does what frees blocks, which the daemon alone does: clients of
//! this host truncate no objects, and write to them by themselves only within their grants.

use super::{DiskObjects, ObjectId};
use forebay_net::extents::all_have_blocks;
use forebay_protocol::Errno;
use parking_lot::{Condvar, Mutex};
use rustix::io::ReadWriteFlags;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::IoSlice;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Locks of the blocks of objects.
#[derive(Debug, Default)]
pub struct BlockLocks {
    locked: Mutex<BTreeSet<ObjectId>>,
    unlocked: Condvar,
}

/// The holder may free blocks of the object, or rely on them.
#[derive(Debug)]
pub struct BlockLock<'a> {
    locks: &'a BlockLocks,
    object: ObjectId,
}

impl BlockLocks {
    /// Wait for the lock of an object. It is held for a system call or two.
    pub fn lock(&self, object: ObjectId) -> BlockLock<'_> {
        let mut locked = self.locked.lock();
        self.unlocked.wait_while(&mut locked, |locked| locked.contains(&object));
        locked.insert(object);
        BlockLock { locks: self, object }
    }
}

impl Drop for BlockLock<'_> {
    fn drop(&mut self) {
        let was_locked = self.locks.locked.lock().remove(&self.object);
        debug_assert!(was_locked, "a lock ends once");
        self.locks.unlocked.notify_all();
    }
}

impl DiskObjects {
    /// Write all of `data` at `offset`, without reserved space. `EDQUOT`: the object lacks blocks, and
    /// nothing was written.
    pub fn write_over_blocks(
        &self,
        id: ObjectId,
        file: &File,
        data: &[u8],
        offset: u64,
    ) -> Result<(), Errno> {
        let _lock = self.block_locks.lock(id);
        require_blocks(file, offset..offset + data.len() as u64)?;
        Ok(file.write_all_at(data, offset)?)
    }

    /// As [`write_over_blocks`](DiskObjects::write_over_blocks), at the end of the object. Returns the
    /// bytes written. A client of this host may append at the same time within its grant: then this
    /// write may take blocks after those that were there, but no more than that client has left unused.
    pub fn append_over_blocks(
        &self,
        id: ObjectId,
        file: &File,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let _lock = self.block_locks.lock(id);
        let end = file.metadata()?.len();
        require_blocks(file, end..end + data.len() as u64)?;
        Ok(rustix::io::pwritev2(file, &[IoSlice::new(data)], 0, ReadWriteFlags::APPEND)?)
    }
}

/// Check that an object has blocks for a range. `EDQUOT`: not for all of it.
pub fn require_blocks(file: &File, range: Range<u64>) -> Result<(), Errno> {
    if all_have_blocks(file, range)? { Ok(()) } else { Err(Errno::EDQUOT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Objects;
    use forebay_protocol::message::{Allocate, OpenMode};
    use forebay_protocol::{Ino, InstanceId, Timestamp};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    const OBJECT: ObjectId = ObjectId { instance: InstanceId(1), ino: Ino(5) };
    const WRITE: OpenMode =
        OpenMode { read: false, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

    fn with_object(dir: &tempfile::TempDir) -> (DiskObjects, File) {
        let mut objects = DiskObjects::open(dir.path()).unwrap();
        objects.add_instance(OBJECT.instance).unwrap();
        let epoch = Timestamp::default();
        objects.put_object(OBJECT, &[1; 20_000], (epoch, epoch)).unwrap();
        let file = File::from(objects.open(OBJECT, WRITE).unwrap());
        (objects, file)
    }

    #[test]
    fn what_frees_blocks_waits_for_what_relies_on_them() {
        let dir = tempfile::tempdir().unwrap();
        let (objects, file) = with_object(&dir);
        type Act = fn(&mut DiskObjects, &File);
        let acts: [Act; 5] = [
            |objects, file| objects.write_over_blocks(OBJECT, file, &[2; 10], 19_990).unwrap(),
            |objects, file| {
                assert_eq!(objects.append_over_blocks(OBJECT, file, &[3; 10]), Ok(10));
            },
            |objects, _| objects.allocate(OBJECT, 0..4096, Allocate::PunchHole).unwrap(),
            |objects, _| {
                // Some file systems free the range first.
                let _ = objects.allocate(OBJECT, 0..4096, Allocate::Zero { keep_size: true });
            },
            |objects, _| objects.truncate(OBJECT, 0).unwrap(),
        ];
        for (number, act) in acts.into_iter().enumerate() {
            let lock = objects.block_locks.lock(OBJECT);
            drop(objects.block_locks.lock(ObjectId { ino: Ino(6), ..OBJECT }));
            let (done, has_ended) = channel();
            std::thread::scope(|scope| {
                let (mut own, file) = (objects.clone(), &file);
                scope.spawn(move || {
                    act(&mut own, file);
                    done.send(()).unwrap();
                });
                let early = has_ended.recv_timeout(Duration::from_millis(50));
                assert_eq!(early, Err(RecvTimeoutError::Timeout), "act {number}");
                drop(lock);
                has_ended.recv().unwrap();
            });
        }
    }

    #[test]
    fn nothing_is_written_where_blocks_are_lacking() {
        let dir = tempfile::tempdir().unwrap();
        let (mut objects, file) = with_object(&dir);
        objects.allocate(OBJECT, 4096..8192, Allocate::PunchHole).unwrap();
        let refused = [(0, 4097), (8000, 200), (20_000, 4096), (1 << 30, 1)];
        for (offset, length) in refused {
            let data = vec![2; length];
            let written = objects.write_over_blocks(OBJECT, &file, &data, offset);
            assert_eq!(written, Err(Errno::EDQUOT), "{length} bytes at {offset}");
        }
        assert_eq!(objects.append_over_blocks(OBJECT, &file, &[2; 500]), Err(Errno::EDQUOT));
        let reader = File::open(dir.path().join(format!("{:016x}/05/{:016x}", 1, 5))).unwrap();
        let mut data = vec![0; 20_001];
        assert_eq!(reader.read_at(&mut data, 0).unwrap(), 20_000);
        assert!(data[..4096].iter().chain(&data[8192..20_000]).all(|byte| *byte == 1));
        objects.write_over_blocks(OBJECT, &file, &[2; 4096], 0).unwrap();
        assert_eq!(objects.append_over_blocks(OBJECT, &file, &[2; 480]), Ok(480));
        assert_eq!(objects.stat(OBJECT).unwrap().size, 20_480);
    }
}
