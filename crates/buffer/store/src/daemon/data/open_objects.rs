//! Handles that data connections may use, with their open objects.

use super::fences::Fence;
use crate::objects::{BlockChecksums, DiskObjects, ObjectId, Objects};
use crate::sync_failures::HandleSyncs;
use forebay_net::writeback::WriteBehind;
use forebay_protocol::message::OpenMode;
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::{Errno, HandleId, SessionId};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Largest block that is read completely to verify part of it: that of objects up to 960 MiB.
pub const MAX_CHECKED_BLOCK_BYTES: u64 = 1 << 20;

/// A handle that data connections may use.
#[derive(Debug)]
pub struct OpenObject {
    pub object: ObjectId,
    pub mode: OpenMode,
    file: OnceLock<File>,
    /// Checksums of an object opened for reading only, if they were valid at the first read.
    checksums: OnceLock<Option<BlockChecksums>>,
    /// Bytes of space that writes through this handle may still use.
    grant: AtomicU64,
    pub write_behind: WriteBehind,
    pub syncs: HandleSyncs,
    writers: Mutex<Writers>,
    writer_left: Condvar,
}

/// Writes in flight through a handle.
#[derive(Debug, Default)]
struct Writers {
    closed: bool,
    fences: Vec<Arc<Fence>>,
}

/// A write in flight; it ends when this is dropped.
#[derive(Debug)]
pub struct ActiveWrite<'a> {
    open: &'a OpenObject,
    fence: &'a Arc<Fence>,
}

impl Drop for ActiveWrite<'_> {
    fn drop(&mut self) {
        let mut writers = self.open.writers.lock();
        let own = writers.fences.iter().position(|fence| Arc::ptr_eq(fence, self.fence));
        debug_assert!(own.is_some(), "a write ends once");
        if let Some(index) = own {
            writers.fences.swap_remove(index);
        }
        self.open.writer_left.notify_all();
    }
}

#[derive(Debug, Default)]
pub struct OpenObjects(Mutex<HashMap<(SessionId, HandleId), Arc<OpenObject>>>);

impl OpenObjects {
    /// Add a handle, unless it exists.
    pub fn insert_handle(
        &self,
        session: SessionId,
        handle: HandleId,
        object: ObjectId,
        mode: OpenMode,
    ) {
        let mut opens = self.0.lock();
        opens.entry((session, handle)).or_insert_with(|| {
            Arc::new(OpenObject {
                object,
                mode,
                file: OnceLock::new(),
                checksums: OnceLock::new(),
                grant: AtomicU64::new(0),
                write_behind: WriteBehind::default(),
                syncs: HandleSyncs::default(),
                writers: Mutex::default(),
                writer_left: Condvar::new(),
            })
        });
    }

    /// Set the bytes of space that writes through a handle may use.
    pub fn set_grant(&self, session: SessionId, handle: HandleId, bytes: u64) {
        if let Some(open) = self.0.lock().get(&(session, handle)) {
            open.grant.store(bytes, Ordering::Release);
        }
    }

    /// Close a handle. Writes in flight through it, e.g. of a broken connection, are shut down and
    /// waited for, so nothing is written through the handle after this returns.
    pub fn close_handle(&self, session: SessionId, handle: HandleId) {
        let removed = self.0.lock().remove(&(session, handle));
        if let Some(open) = removed {
            open.end_active_writes();
        }
    }

    pub fn get_handle(
        &self,
        session: SessionId,
        handle: HandleId,
    ) -> Result<Arc<OpenObject>, Errno> {
        let opens = self.0.lock();
        let open = opens.get(&(session, handle));
        open.cloned().ok_or(Errno::EBADF)
    }
}

impl OpenObject {
    /// Begin a write by the connection with this fence; `EBADF` if the handle is closed.
    pub fn begin_write<'a>(&'a self, fence: &'a Arc<Fence>) -> Result<ActiveWrite<'a>, Errno> {
        let mut writers = self.writers.lock();
        if writers.closed {
            return Err(Errno::EBADF);
        }
        writers.fences.push(fence.clone());
        Ok(ActiveWrite { open: self, fence })
    }

    fn end_active_writes(&self) {
        let mut writers = self.writers.lock();
        writers.closed = true;
        writers.fences.iter().for_each(|fence| fence.shut_down());
        let is_active = |writers: &mut Writers| !writers.fences.is_empty();
        self.writer_left.wait_while(&mut writers, is_active);
        assert!(writers.closed && writers.fences.is_empty());
    }

    /// The object's file, opened on first use; `None` if it has no object yet.
    pub fn open_file(&self, objects: &DiskObjects) -> Result<Option<&File>, Errno> {
        if let Some(file) = self.file.get() {
            return Ok(Some(file));
        }
        match objects.open(self.object, self.mode) {
            Ok(fd) => Ok(Some(self.file.get_or_init(|| File::from(fd)))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Valid checksums of an object opened for reading only.
    pub fn checksums(&self, objects: &DiskObjects, file: &File) -> Option<&BlockChecksums> {
        if self.mode.write {
            return None;
        }
        let load = || objects.valid_checksums(file).unwrap_or_default();
        self.checksums.get_or_init(load).as_ref()
    }

    /// Compare data read at `offset` with the object's checksums; `EIO` if they differ.
    pub fn verify_data(
        &self,
        objects: &DiskObjects,
        file: &File,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let Some(checksums) = self.checksums(objects, file) else {
            return Ok(());
        };
        let damage = checksums
            .first_damage(offset, data)
            .or_else(|| damaged_edge(file, checksums, offset, data.len() as u64));
        // The object may have been opened for writing since, which invalidates the checksums.
        if let Some(offset) = damage
            && objects.valid_checksums(file)?.as_ref() == Some(checksums)
        {
            objects.note_mismatch(self.object, offset);
            return Err(Errno::EIO);
        }
        Ok(())
    }

    /// Deduct the space for a write of `length` bytes from the grant; `EDQUOT` if it is too small.
    /// Unless the object has blocks for the write, the client has to reserve space first.
    pub fn consume_grant(&self, offset: u64, append: bool, length: usize) -> Result<(), Errno> {
        if !self.mode.write {
            return Err(Errno::EBADF);
        }
        // The offset of an append is unknown: assume that it straddles one more block.
        let cost = if append {
            block_bytes(BLOCK_BYTES - 1, length as u64)
        } else {
            offset.checked_add(length as u64).ok_or(Errno::EFBIG)?;
            block_bytes(offset, length as u64)
        };
        debug_assert!(cost >= length as u64, "a write without space");
        let deducted = self
            .grant
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |grant| grant.checked_sub(cost));
        deducted.map(|_| ()).map_err(|_| Errno::EDQUOT)
    }
}

/// Offset of a damaged first or last block, of which only a part was read. Blocks of more than
/// [`MAX_CHECKED_BLOCK_BYTES`] are not verified.
fn damaged_edge(file: &File, checksums: &BlockChecksums, offset: u64, length: u64) -> Option<u64> {
    let end = offset.checked_add(length)?;
    let first = checksums.block_range(offset);
    let last = checksums.block_range(end.saturating_sub(1));
    let edges = first.into_iter().chain(last.filter(|_| last != first));
    for (from, to) in edges.filter(|(from, to)| *from < offset || *to > end) {
        if length > 0 && to - from <= MAX_CHECKED_BLOCK_BYTES {
            let mut block = vec![0; (to - from) as usize];
            if file.read_exact_at(&mut block, from).is_err()
                || checksums.first_damage(from, &block).is_some()
            {
                return Some(from);
            }
        }
    }
    None
}
