//! Files that the kernel has open, and their data objects as the kernel knows them.

use crate::file::File;
use forebay_protocol::Ino;
use fuser::{BackingId, FileHandle};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// What the opens of one inode share.
#[derive(Debug, Default)]
pub struct SharedInode {
    /// The data object's registration with the kernel, which must be the same for all opens.
    backing: Mutex<Option<Arc<BackingId>>>,
    /// A write by someone unprivileged must take set-id bits away.
    pub set_id: AtomicBool,
}

/// One open.
#[derive(Debug)]
pub struct OpenFile {
    pub file: Arc<File>,
    pub append: bool,
    pub shared: Arc<SharedInode>,
}

#[derive(Debug, Default)]
struct Inodes(HashMap<Ino, (Arc<SharedInode>, usize)>);

/// All opens.
#[derive(Debug, Default)]
pub struct OpenFiles {
    opens: RwLock<HashMap<u64, Arc<OpenFile>>>,
    inodes: Mutex<Inodes>,
    next: AtomicU64,
}

impl SharedInode {
    /// The registration, made by `register` if there is none.
    pub fn backing(
        &self,
        descriptor: BorrowedFd<'_>,
        register: impl FnOnce(BorrowedFd<'_>) -> io::Result<BackingId>,
    ) -> io::Result<Arc<BackingId>> {
        let mut backing = self.backing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*backing {
            return Ok(known.clone());
        }
        let made = Arc::new(register(descriptor)?);
        *backing = Some(made.clone());
        Ok(made)
    }
}

impl OpenFiles {
    /// What the opens of `ino` share; one more of them begins, to be ended by
    /// [`close`](OpenFiles::close) after [`add`](OpenFiles::add), or by [`leave`](OpenFiles::leave).
    pub fn acquire_inode(&self, ino: Ino) -> Arc<SharedInode> {
        let mut inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        let (shared, count) = inodes.0.entry(ino).or_default();
        *count += 1;
        shared.clone()
    }

    pub fn release_inode(&self, ino: Ino) {
        let mut inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = inodes.0.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                inodes.0.remove(&ino);
            }
        }
    }

    /// `ino` has got set-id bits.
    pub fn mark_set_id(&self, ino: Ino) {
        let inodes = self.inodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((shared, _)) = inodes.0.get(&ino) {
            shared.set_id.store(true, Ordering::Release);
        }
    }

    pub fn add(&self, open: OpenFile) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut opens = self.opens.write().unwrap_or_else(PoisonError::into_inner);
        opens.insert(number, Arc::new(open));
        FileHandle(number)
    }

    pub fn get(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        self.opens
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle.0)
            .cloned()
    }

    pub fn close(&self, handle: FileHandle) {
        let open = self
            .opens
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle.0);
        if let Some(open) = open {
            self.release_inode(open.file.ino());
        }
    }
}
