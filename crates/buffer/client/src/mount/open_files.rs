//! Files that the kernel has open, and their data objects as the kernel knows them.

use super::attribute_cache::Change;
use super::mapped_pages::MappedPages;
use crate::file::File;
use forebay_fuse::{BackingId, FileHandle};
use forebay_protocol::Ino;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// State that all opens of an inode share.
#[derive(Debug, Default)]
pub struct SharedInode {
    /// The registration of the data object with the kernel, which must be the same for all opens.
    backing: Mutex<Option<Arc<BackingId>>>,
    /// The inode may have set-id bits, which a write by an unprivileged process clears.
    pub set_id: AtomicBool,
    /// The inode may have file capabilities, which a write by any process removes.
    pub capabilities: AtomicBool,
    /// Data were read since a program last wrote; or a read changes no access time.
    pub was_read: AtomicBool,
    /// Pages of the file that the kernel caches, without passthrough.
    pub mapped: MappedPages<File>,
    /// Opens of programs that run.
    executions: AtomicUsize,
}

/// An open file of the kernel.
#[derive(Debug)]
pub struct OpenFile {
    pub file: Arc<File>,
    pub shared: Arc<SharedInode>,
    /// The file was opened to be executed.
    pub executes: bool,
    /// The data object's time of modification that the kernel has been told of, if it maps the object to
    /// write. Then it changes it without a request.
    pub known_time: Mutex<Option<ObjectTime>>,
    /// Reads and writes change its attributes, through mapped memory without a request.
    pub _change: Change,
}

/// A data object's time of modification: seconds and nanoseconds.
pub type ObjectTime = (i64, i64);

/// The present time of modification of the data object of a file, if this process has its descriptor.
pub fn object_time(file: &File) -> Option<ObjectTime> {
    let found = rustix::fs::fstat(file.descriptor()?).ok()?;
    Some((found.st_mtime, found.st_mtime_nsec as i64))
}

impl OpenFile {
    /// Whether the data object has changed since it was opened, or since this was asked.
    pub fn object_has_changed(&self) -> bool {
        let mut known = self.known_time.lock();
        let Some(before) = *known else {
            return false;
        };
        *known = object_time(&self.file).or(*known);
        *known != Some(before)
    }
}

/// All open files of the kernel.
#[derive(Debug, Default)]
pub struct OpenFiles {
    opens: RwLock<HashMap<u64, Arc<OpenFile>>>,
    /// Open inodes with the number of their opens.
    inodes: Mutex<HashMap<Ino, (Arc<SharedInode>, usize)>>,
    last_handle: AtomicU64,
}

impl SharedInode {
    /// The registration, made by `register` if there is none.
    pub fn backing(
        &self,
        descriptor: BorrowedFd<'_>,
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> io::Result<Arc<BackingId>> {
        let mut backing = self.backing.lock();
        if let Some(known) = &*backing {
            return Ok(known.clone());
        }
        let new = Arc::new(register(descriptor)?);
        *backing = Some(new.clone());
        Ok(new)
    }
}

impl OpenFiles {
    /// Adds an open of `ino`, which ends by [`close`](OpenFiles::close) after
    /// [`add`](OpenFiles::add), or by [`release_inode`](OpenFiles::release_inode).
    pub fn acquire_inode(&self, ino: Ino) -> Arc<SharedInode> {
        let mut inodes = self.inodes.lock();
        let (shared, opens) = inodes.entry(ino).or_default();
        *opens += 1;
        shared.clone()
    }

    pub fn release_inode(&self, ino: Ino) {
        let mut inodes = self.inodes.lock();
        let found = inodes.get_mut(&ino);
        debug_assert!(found.is_some(), "an open inode is in the table");
        if let Some((_, opens)) = found {
            assert!(*opens > 0, "each open is released once");
            *opens -= 1;
            if *opens == 0 {
                inodes.remove(&ino);
            }
        }
    }

    /// `ino` has got set-id bits.
    pub fn mark_set_id(&self, ino: Ino) {
        if let Some((shared, _)) = self.inodes.lock().get(&ino) {
            shared.set_id.store(true, Ordering::Release);
        }
    }

    /// `ino` has got file capabilities.
    pub fn mark_capabilities(&self, ino: Ino) {
        if let Some((shared, _)) = self.inodes.lock().get(&ino) {
            shared.capabilities.store(true, Ordering::Release);
        }
    }

    /// Whether a program runs from `ino`, so that it must not be truncated.
    pub fn is_executed(&self, ino: Ino) -> bool {
        let inodes = self.inodes.lock();
        inodes.get(&ino).is_some_and(|(shared, _)| shared.executions.load(Ordering::Acquire) > 0)
    }

    pub fn add(&self, open: OpenFile) -> FileHandle {
        if open.executes {
            open.shared.executions.fetch_add(1, Ordering::AcqRel);
        }
        let handle = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        let previous = self.opens.write().insert(handle, Arc::new(open));
        assert!(previous.is_none(), "handles are unique");
        FileHandle(handle)
    }

    pub fn get(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        self.opens.read().get(&handle.0).cloned()
    }

    pub fn close(&self, handle: FileHandle) {
        let open = self.opens.write().remove(&handle.0);
        if let Some(open) = open {
            if open.executes {
                open.shared.executions.fetch_sub(1, Ordering::AcqRel);
            }
            self.release_inode(open.file.ino());
        }
    }
}
