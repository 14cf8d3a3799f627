//! Objects as files: `<root>/<instance>/<inode modulo 64>/<inode>`, numbers in hexadecimal.

mod checksums;
mod fetch;
mod listing;

pub use checksums::RecordChecksumsError;

use super::block_checksums::CHECKSUMS_XATTR;
use super::checksum::{self, ObjectFile, boot_id};
use super::checksum_validity::{ChecksumValidity, MAX_CHECKSUMS_BYTES, WATERMARK_FILE, Watermarks};
use super::freeing::{self, FreeingQueue};
use super::overwrite::BlockLocks;
use super::removal::RemovalQueue;
use super::{DamagedObjects, ObjectId, Objects, Times};
use forebay_net::extents::{bytes_with_blocks, next_extent};
use forebay_protocol::message::{Allocate, FoundExtent, OpenMode};
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Errno, Ino, InstanceId, Timestamp};
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fallocate, openat,
    statat, unlinkat,
};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Subdirectories per instance.
pub const FOLDERS: u64 = 64;

/// Unit of `st_blocks`, whatever the file system's block size is.
const STAT_BLOCK_BYTES: u64 = 512;

/// A directory of data objects. Clones share it.
#[derive(Clone, Debug)]
pub struct DiskObjects {
    root: Arc<PathBuf>,
    /// The root directory, open since the start, so that `syncfs` on it reports all write-back
    /// errors since then.
    root_dir: Arc<File>,
    instance_dirs: Arc<Mutex<HashMap<InstanceId, Arc<OwnedFd>>>>,
    validity: Arc<ChecksumValidity>,
    removal_queue: Arc<RemovalQueue>,
    freeing_queue: Arc<FreeingQueue>,
    damaged: Arc<DamagedObjects>,
    /// Held while blocks of an object are freed, or written over without reserved space.
    pub(super) block_locks: Arc<BlockLocks>,
}

impl DiskObjects {
    /// Open the directory `root`; it is created if missing.
    pub fn open(root: &Path) -> io::Result<DiskObjects> {
        std::fs::create_dir_all(root)?;
        let watermarks = Watermarks::load(&root.join(WATERMARK_FILE))?;
        let has_objects = !list_instances(root)?.is_empty();
        let validity = ChecksumValidity::new(boot_id(), watermarks, has_objects);
        Ok(DiskObjects {
            root: Arc::new(root.to_owned()),
            root_dir: Arc::new(File::open(root)?),
            instance_dirs: Arc::default(),
            validity: Arc::new(validity),
            removal_queue: Arc::new(RemovalQueue::scan(root)?),
            freeing_queue: Arc::default(),
            damaged: Arc::default(),
            block_locks: Arc::default(),
        })
    }

    /// Removed instances that still take space. The caller must
    /// [run its worker](RemovalQueue::run_worker).
    pub fn removal_queue(&self) -> Arc<RemovalQueue> {
        self.removal_queue.clone()
    }

    /// Removed objects whose blocks are freed in the background, once files are
    /// [accepted](FreeingQueue::accept).
    pub fn freeing_queue(&self) -> Arc<FreeingQueue> {
        self.freeing_queue.clone()
    }

    /// A file of this length, if it takes long to free its blocks, and another thread will close it.
    fn open_large(&self, dir: &OwnedFd, path: &str, bytes: u64) -> Option<OwnedFd> {
        if bytes < freeing::MIN_BYTES || !self.freeing_queue.accepts_more() {
            return None;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(dir, path, flags, Mode::empty()).ok()
    }

    fn instance_path(&self, id: InstanceId) -> PathBuf {
        self.root.join(id.to_string())
    }

    fn instance_dir(&self, id: InstanceId) -> Result<Arc<OwnedFd>, Errno> {
        let mut dirs = self.instance_dirs.lock();
        if let Some(dir) = dirs.get(&id) {
            return Ok(dir.clone());
        }
        let dir = Arc::new(OwnedFd::from(File::open(self.instance_path(id))?));
        dirs.insert(id, dir.clone());
        Ok(dir)
    }

    fn open_object(&self, id: ObjectId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let dir = self.instance_dir(id.instance)?;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&*dir, object_path(id.ino), flags | OFlags::CLOEXEC, mode)?)
    }

    /// Open an object for reading without updating its access time.
    fn open_for_scan(&self, id: ObjectId) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOATIME;
        Ok(self.open_object(id, flags)?.into())
    }

    /// Open an object for writing, which invalidates its checksums.
    fn open_for_writing(&self, id: ObjectId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let file = self.open_object(id, flags)?;
        self.validity.invalidate(&ObjectFile::new(&file))?;
        Ok(file)
    }
}

fn access_flags(mode: OpenMode) -> OFlags {
    let access = match (mode.read, mode.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    if mode.keep_access_time.0 { access | OFlags::NOATIME } else { access }
}

fn object_info(stat: &rustix::fs::Stat) -> ObjectInfo {
    let time = |secs: i64, nanos| Timestamp { secs, nanos: nanos as u32 };
    ObjectInfo {
        size: stat.st_size as u64,
        space: stat.st_blocks as u64 * STAT_BLOCK_BYTES,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn folder_name(ino: Ino) -> String {
    format!("{:02x}", ino.0 % FOLDERS)
}

fn object_path(ino: Ino) -> String {
    format!("{:02x}/{:016x}", ino.0 % FOLDERS, ino.0)
}

fn timestamps(atime: Option<Timestamp>, mtime: Option<Timestamp>) -> Timestamps {
    Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) }
}

fn timespec(time: Option<Timestamp>) -> Timespec {
    match time {
        Some(time) => Timespec { tv_sec: time.secs, tv_nsec: i64::from(time.nanos) },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    }
}

/// The instances with a directory below that of all data objects.
pub fn list_instances(root: &Path) -> io::Result<Vec<InstanceId>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<InstanceId>().ok()));
    }
    found.sort();
    Ok(found)
}

impl Objects for DiskObjects {
    type Descriptor = OwnedFd;

    fn add_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        let path = self.instance_path(id);
        for number in 0..FOLDERS {
            std::fs::create_dir_all(path.join(folder_name(Ino(number))))?;
        }
        File::open(&path)?.sync_all()?;
        File::open(&*self.root)?.sync_all()?;
        Ok(())
    }

    fn remove_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        self.removal_queue.enqueue(id, &self.instance_path(id))?;
        // From now on nobody finds it at its path.
        self.instance_dirs.lock().remove(&id);
        self.damaged.clear_instance(id);
        Ok(())
    }

    fn list_instances(&self) -> Result<Vec<InstanceId>, Errno> {
        Ok(list_instances(&self.root)?)
    }

    fn list_objects(&self, id: InstanceId) -> Result<Vec<(Ino, u64)>, Errno> {
        Ok(listing::list_objects(&self.instance_path(id))?)
    }

    fn create(&mut self, id: ObjectId, (atime, mtime): Times) -> Result<(), Errno> {
        let times = timestamps(Some(atime), Some(mtime));
        match self.open_object(id, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => Ok(rustix::fs::futimens(&file, &times)?),
            Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn create_open(
        &mut self,
        id: ObjectId,
        (atime, mtime): Times,
        mode: OpenMode,
    ) -> Result<OwnedFd, Errno> {
        // A new object has no checksums to invalidate.
        match self.open_object(id, access_flags(mode) | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                rustix::fs::futimens(&file, &timestamps(Some(atime), Some(mtime)))?;
                Ok(file)
            }
            Err(Errno::EEXIST) => self.open(id, mode),
            Err(error) => Err(error),
        }
    }

    fn put_object(
        &mut self,
        id: ObjectId,
        data: &[u8],
        (atime, mtime): Times,
    ) -> Result<ObjectInfo, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = match self.open_object(id, flags) {
            // If it were overwritten, a power failure could bring back its old checksums.
            Err(Errno::EEXIST) => {
                self.remove(id, 0)?;
                self.open_object(id, flags)?
            }
            other => other?,
        };
        let file = File::from(file);
        let times = timestamps(Some(atime), Some(mtime));
        let fill = || {
            file.write_all_at(data, 0)?;
            rustix::fs::futimens(&file, &times)?;
            let stat = object_info(&rustix::fs::fstat(&file)?);
            debug_assert_eq!(stat.size, data.len() as u64);
            // Checksums are optional, so a failure is ignored. The object is not open elsewhere.
            let validity = &self.validity;
            let _ = checksum::store_checksums_of_new_object(&file, validity, data, stat.mtime);
            Ok(stat)
        };
        let filled: Result<ObjectInfo, Errno> = fill();
        if filled.is_err() {
            let _ = self.remove(id, 0);
        }
        filled
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectInfo, Errno> {
        let dir = self.instance_dir(id.instance)?;
        let stat = statat(&*dir, object_path(id.ino), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(object_info(&stat))
    }

    fn truncate(&mut self, id: ObjectId, size: u64) -> Result<(), Errno> {
        let file = self.open_for_writing(id, OFlags::WRONLY)?;
        let _lock = self.block_locks.lock(id);
        Ok(rustix::fs::ftruncate(file, size)?)
    }

    fn set_times(
        &mut self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        let times = timestamps(atime, mtime);
        let file = self.open_for_scan(id)?;
        let set = || Ok(rustix::fs::futimens(&file, &times)?);
        match mtime {
            None => set(),
            Some(mtime) => self.validity.set_mtime(&ObjectFile::new(&file), mtime, set),
        }
    }

    fn bytes_with_blocks(&self, id: ObjectId, range: Range<u64>) -> Result<u64, Errno> {
        bytes_with_blocks(self.open_for_scan(id)?, range)
    }

    fn allocate(&mut self, id: ObjectId, range: Range<u64>, what: Allocate) -> Result<(), Errno> {
        let size_flag =
            |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        let flags = match what {
            Allocate::Reserve { keep_size } => size_flag(keep_size),
            Allocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocate::Zero { keep_size } => FallocateFlags::ZERO_RANGE | size_flag(keep_size),
        };
        let file = self.open_for_writing(id, OFlags::RDWR)?;
        let _lock = self.block_locks.lock(id);
        Ok(fallocate(file, flags, range.start, range.end - range.start)?)
    }

    fn seek(&self, id: ObjectId, offset: u64, hole: bool) -> Result<FoundExtent, Errno> {
        next_extent(self.open_for_scan(id)?, offset, hole)
    }

    fn remove(&mut self, id: ObjectId, bytes: u64) -> Result<(), Errno> {
        let (dir, path) = (self.instance_dir(id.instance)?, object_path(id.ino));
        let large = self.open_large(&dir, &path, bytes);
        match unlinkat(&*dir, path, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // Who reads it now, and finds damage, sees that it is removed.
        self.damaged.clear(id);
        if let Some(file) = large {
            self.freeing_queue.close(file);
        }
        Ok(())
    }

    fn has_durable_checksums(&self, id: ObjectId) -> bool {
        if self.validity.has_none_durable() {
            return false;
        }
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        let path = self.instance_path(id.instance).join(object_path(id.ino));
        rustix::fs::lgetxattr(path, CHECKSUMS_XATTR, &mut bytes).is_ok_and(|length| {
            let attribute = &bytes[..length.min(MAX_CHECKSUMS_BYTES)];
            self.validity.needs_durable_invalidation(attribute)
        })
    }

    fn open(&self, id: ObjectId, mode: OpenMode) -> Result<OwnedFd, Errno> {
        let flags = access_flags(mode);
        if mode.write { self.open_for_writing(id, flags) } else { self.open_object(id, flags) }
    }
}
