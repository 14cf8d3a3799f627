//! Writes without reserved space, over blocks that an object has.
//!
//! In a full instance no space is granted, but what has blocks can be written, as on a local file
//! system. Between the moment when the object was seen to have the blocks and the write, nobody may
//! free them: they could be granted to somebody else, and the write would take others. So such writes
//! hold a lock of the object, and so does what frees blocks, which the daemon alone does: clients of
//! this host truncate no objects, and write to them by themselves only within their grants.

use super::{DiskObjects, ObjectId};
use forebay_net::extents::bytes_with_blocks;
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
    let length = range.end - range.start;
    if bytes_with_blocks(file, range)? == length { Ok(()) } else { Err(Errno::EDQUOT) }
}
