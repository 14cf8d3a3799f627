//! A parallel file system on which operations of one kind wait until the test lets them continue, or
//! lookups of incomplete copies fail.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay_stage::end::{
    DirHandle, FileHandle, FileStat, FileSystem, LocalFileSystem, Metadata, SetXattrs,
};
use rustix::io::Errno;

/// The kind of operation that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Writes.
    Write,
    /// Syncs.
    Flush,
    /// Reads.
    Read,
    /// Hard links.
    Link,
}

/// Blocks operations of one kind.
#[derive(Debug, Default)]
pub struct Gate {
    /// The kind of operation that waits, and how many are waiting.
    state: Mutex<(Option<At>, u64)>,
    changed: Condvar,
    /// Lookups of incomplete copies fail.
    pub copies_fail: AtomicBool,
}

impl Gate {
    /// Closes the gate for operations of one kind, or opens it.
    pub fn close(&self, at: Option<At>) {
        *self.state.lock().unwrap() = (at, 0);
        self.changed.notify_all();
    }

    /// Blocks until an operation waits.
    pub fn wait(&self) {
        let state = self.state.lock().unwrap();
        let limit = Duration::from_secs(30);
        let none = |(_, waiting): &mut (Option<At>, u64)| *waiting == 0;
        let (state, _) = self.changed.wait_timeout_while(state, limit, none).unwrap();
        assert!(state.1 > 0, "no operation reached the gate");
    }

    fn pass(&self, at: At) {
        let mut state = self.state.lock().unwrap();
        if state.0 == Some(at) {
            state.1 += 1;
            self.changed.notify_all();
        }
        let _state = self.changed.wait_while(state, |(closed, _)| *closed == Some(at)).unwrap();
    }
}

/// The file system below a directory, through a gate.
pub fn gated(directory: &Path, gate: &Arc<Gate>) -> Arc<dyn FileSystem> {
    Arc::new(Gated {
        inner: LocalFileSystem::open(&[directory.to_owned()], None),
        gate: gate.clone(),
    })
}

struct Gated<T> {
    inner: T,
    gate: Arc<Gate>,
}

impl<T> fmt::Debug for Gated<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gated")
    }
}

impl<T> Gated<T> {
    fn gate_dir(&self, inner: Box<dyn DirHandle>) -> Box<dyn DirHandle> {
        let gate = self.gate.clone();
        Box::new(Gated { inner, gate })
    }

    fn gate_file(&self, inner: Box<dyn FileHandle>) -> Box<dyn FileHandle> {
        let gate = self.gate.clone();
        Box::new(Gated { inner, gate })
    }
}

impl FileSystem for Gated<Arc<dyn FileSystem>> {
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(self.gate_dir(self.inner.open_dir(path)?))
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno> {
        Ok(self.gate_file(self.inner.open_file(path)?))
    }
}

impl<T: Metadata + ?Sized> Metadata for Gated<Box<T>> {
    fn stat(&self) -> Result<FileStat, Errno> {
        self.inner.stat()
    }

    fn set_metadata(&self, stat: &FileStat, set_xattrs: SetXattrs<'_>) -> Result<(), Errno> {
        self.inner.set_metadata(stat, set_xattrs)
    }

    fn list_xattr(&self) -> Result<Vec<Vec<u8>>, Errno> {
        self.inner.list_xattr()
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.inner.get_xattr(name)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        self.inner.set_xattr(name, value)
    }
}

impl DirHandle for Gated<Box<dyn DirHandle>> {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(self.gate_dir(self.inner.try_clone()?))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        self.inner.read_dir(take)
    }

    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        let is_copy = name.to_string_lossy().contains(".forebay-stage-");
        if is_copy && self.gate.copies_fail.load(Ordering::SeqCst) {
            return Err(Errno::IO);
        }
        self.inner.lstat(name)
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        let inner = self.inner.open_dir(name)?;
        Ok(Gated::gate_dir(self, inner))
    }

    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno> {
        self.inner.mkdir(name)
    }

    fn open(&self, name: &OsStr, seen: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno> {
        Ok(self.gate_file(self.inner.open(name, seen)?))
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno> {
        Ok(self.gate_file(self.inner.create(name, keep)?))
    }

    fn create_shared(&self, name: &OsStr) -> Result<Box<dyn FileHandle>, Errno> {
        Ok(self.gate_file(self.inner.create_shared(name)?))
    }

    fn readlink(&self, name: &OsStr, seen: &FileStat) -> Result<OsString, Errno> {
        self.inner.readlink(name, seen)
    }

    fn symlink(&self, name: &OsStr, link_target: &OsStr, stat: &FileStat) -> Result<(), Errno> {
        self.inner.symlink(name, link_target, stat)
    }

    fn link(&self, name: &OsStr, dir: &dyn DirHandle, existing: &OsStr) -> Result<(), Errno> {
        self.gate.pass(At::Link);
        self.inner.link(name, dir, existing)
    }

    fn unlink(&self, name: &OsStr) -> Result<(), Errno> {
        self.inner.unlink(name)
    }

    fn rmdir(&self, name: &OsStr) -> Result<(), Errno> {
        self.inner.rmdir(name)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        self.inner.rename(from, to)
    }

    fn syncfs(&self) -> Result<(), Errno> {
        self.gate.pass(At::Flush);
        self.inner.syncfs()
    }

    fn device(&self) -> Result<u64, Errno> {
        self.inner.device()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

impl FileHandle for Gated<Box<dyn FileHandle>> {
    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.gate.pass(At::Read);
        self.inner.read_at(into, offset)
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        self.gate.pass(At::Write);
        self.inner.write_all_at(data, offset)
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        self.inner.seek(offset, hole)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        self.inner.truncate(size)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn reserve_space(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.inner.reserve_space(offset, length)
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        self.inner.fdatasync()
    }

    fn needs_fdatasync(&self) -> bool {
        self.inner.needs_fdatasync()
    }
}
