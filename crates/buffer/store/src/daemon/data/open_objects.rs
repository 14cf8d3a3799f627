//! Handles that bulk connections may use, and the objects they lead to.

use super::fences::Fence;
use crate::objects::block_checksums::BlockChecksums;
use crate::objects::{DiskObjects, ObjectId, Objects};
use forebay_protocol::message::OpenMode;
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::writeback::WriteBehind;
use forebay_protocol::{Errno, HandleId, SessionId};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

/// Largest chunk that is read whole to check part of it, in bytes: that of objects up to 960 MiB.
pub const MAX_CHECKED_CHUNK_BYTES: u64 = 1 << 20;

/// A handle that bulk connections may use.
#[derive(Debug)]
pub struct OpenObject {
    pub object: ObjectId,
    pub mode: OpenMode,
    file: OnceLock<File>,
    /// The same object past the page cache, if its file system lets us.
    direct: OnceLock<Option<File>>,
    /// Checksums of an object that is only read, as far as they held when it was read first.
    seal: OnceLock<Option<BlockChecksums>>,
    grant: AtomicU64,
    pub behind: WriteBehind,
    writers: Mutex<Writers>,
    left: Condvar,
}

/// Who writes through a handle.
#[derive(Debug, Default)]
struct Writers {
    /// The handle is closed.
    closed: bool,
    ends: Vec<Arc<Fence>>,
}

/// A write is under way, until this is dropped.
#[derive(Debug)]
pub struct ActiveWrite<'a> {
    open: &'a OpenObject,
    end: &'a Arc<Fence>,
}

impl Drop for ActiveWrite<'_> {
    fn drop(&mut self) {
        let mut writers = self.open.writers();
        let own = writers
            .ends
            .iter()
            .position(|end| Arc::ptr_eq(end, self.end));
        if let Some(index) = own {
            writers.ends.swap_remove(index);
        }
        self.open.left.notify_all();
    }
}

#[derive(Debug, Default)]
struct Tables {
    opens: HashMap<(SessionId, HandleId), Arc<OpenObject>>,
    /// Handles for writing whose descriptors clients of this host have.
    passed: HashMap<ObjectId, usize>,
}

/// Handles of all sessions.
#[derive(Debug, Default)]
pub struct OpenObjects(Mutex<Tables>);

impl OpenObjects {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`OpenMode::descriptor`] says whether a client of this host gets a descriptor.
    pub fn insert_handle(
        &self,
        session: SessionId,
        handle: HandleId,
        object: ObjectId,
        mode: OpenMode,
    ) {
        let mut tables = self.lock();
        let key = (session, handle);
        if tables.opens.contains_key(&key) {
            return;
        }
        if mode.write && mode.descriptor {
            *tables.passed.entry(object).or_default() += 1;
        }
        let open = OpenObject {
            object,
            mode,
            file: OnceLock::new(),
            direct: OnceLock::new(),
            seal: OnceLock::new(),
            grant: AtomicU64::new(0),
            behind: WriteBehind::default(),
            writers: Mutex::default(),
            left: Condvar::new(),
        };
        tables.opens.insert(key, Arc::new(open));
    }

    pub fn set_grant(&self, session: SessionId, handle: HandleId, bytes: u64) {
        if let Some(open) = self.lock().opens.get(&(session, handle)) {
            open.grant.store(bytes, Ordering::Release);
        }
    }

    /// After this nothing is written through the handle any more. Whoever is in the middle of it, as
    /// after a broken connection, is cut off, and waited for as long as the device takes.
    pub fn close_handle(&self, session: SessionId, handle: HandleId) {
        if let Some(open) = self.remove(session, handle) {
            open.end_active_writes();
        }
    }

    fn remove(&self, session: SessionId, handle: HandleId) -> Option<Arc<OpenObject>> {
        let mut tables = self.lock();
        let open = tables.opens.remove(&(session, handle))?;
        if open.mode.write && open.mode.descriptor {
            let object = open.object;
            let last = tables.passed.get_mut(&object).is_none_or(|count| {
                *count -= 1;
                *count == 0
            });
            if last {
                tables.passed.remove(&object);
            }
        }
        Some(open)
    }

    pub fn get_handle(
        &self,
        session: SessionId,
        handle: HandleId,
    ) -> Result<Arc<OpenObject>, Errno> {
        let tables = self.lock();
        let open = tables.opens.get(&(session, handle));
        open.cloned().ok_or(Errno::EBADF)
    }

    /// Does a client of this host have a descriptor of the object, by which it may have mapped it
    /// into its memory, to write to it there?
    pub fn may_be_mapped(&self, object: ObjectId) -> bool {
        self.lock().passed.contains_key(&object)
    }
}

impl OpenObject {
    fn writers(&self) -> MutexGuard<'_, Writers> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write by the connection with this end begins; `EBADF` if the handle has been closed.
    pub fn begin_write<'a>(&'a self, end: &'a Arc<Fence>) -> Result<ActiveWrite<'a>, Errno> {
        let mut writers = self.writers();
        if writers.closed {
            return Err(Errno::EBADF);
        }
        writers.ends.push(end.clone());
        Ok(ActiveWrite { open: self, end })
    }

    fn end_active_writes(&self) {
        let mut writers = self.writers();
        writers.closed = true;
        writers.ends.iter().for_each(|end| end.shut_down());
        while !writers.ends.is_empty() {
            let left = self.left.wait(writers);
            writers = left.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The object; `None` if the file has no data yet.
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

    /// The object past the page cache. It must be [open](OpenObject::file) already.
    pub fn direct(&self, objects: &DiskObjects) -> Option<&File> {
        let open = || {
            let opened = objects.open_direct(self.object, self.mode);
            opened.map(File::from).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Its checksums, if it is only read and they hold.
    pub fn checksums(&self, objects: &DiskObjects, file: &File) -> Option<&BlockChecksums> {
        if self.mode.write {
            return None;
        }
        let look = || objects.valid_checksums(file).unwrap_or_default();
        self.seal.get_or_init(look).as_ref()
    }

    /// Compare what was read with the object's checksums, if it has some that hold.
    pub fn verify_data(
        &self,
        objects: &DiskObjects,
        file: &File,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let Some(seal) = self.checksums(objects, file) else {
            return Ok(());
        };
        let inner = seal.first_damage(offset, data);
        let damage = inner.or_else(|| damaged_end(file, seal, offset, data.len() as u64));
        // Someone may have begun to write since, and broken the seal.
        if let Some(offset) = damage
            && objects.valid_checksums(file)?.as_ref() == Some(seal)
        {
            let ObjectId { instance, ino } = self.object;
            tracing::error!(%instance, %ino, offset, "data at rest are damaged");
            return Err(Errno::EIO);
        }
        Ok(())
    }

    /// Take what a write of `length` bytes needs from what was promised.
    pub fn consume_grant(&self, offset: u64, append: bool, length: usize) -> Result<(), Errno> {
        if !self.mode.write {
            return Err(Errno::EBADF);
        }
        // An append may straddle one block more than it would at a known place.
        let cost = if append {
            block_bytes(BLOCK_BYTES - 1, length as u64)
        } else {
            offset.checked_add(length as u64).ok_or(Errno::EFBIG)?;
            block_bytes(offset, length as u64)
        };
        let paid = self
            .grant
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |grant| {
                grant.checked_sub(cost)
            });
        // If it fails, the client has to reserve first.
        paid.map(|_| ()).map_err(|_| Errno::EDQUOT)
    }
}

/// Damage in the first or last chunk of what was read, if only part of the chunk was; chunks of very
/// large objects are not read for that.
fn damaged_end(file: &File, seal: &BlockChecksums, offset: u64, length: u64) -> Option<u64> {
    let end = offset.checked_add(length)?;
    let first = seal.block_range(offset);
    let last = seal.block_range(end.saturating_sub(1));
    let parts = first.into_iter().chain(last.filter(|_| last != first));
    for (from, to) in parts.filter(|(from, to)| *from < offset || *to > end) {
        if length > 0 && to - from <= MAX_CHECKED_CHUNK_BYTES {
            let mut chunk = vec![0; (to - from) as usize];
            if file.read_exact_at(&mut chunk, from).is_err()
                || seal.first_damage(from, &chunk).is_some()
            {
                return Some(from);
            }
        }
    }
    None
}
