//! Objects as files: `<root>/<instance>/<low byte of inode>/<inode>`, numbers in hexadecimal.

mod checksums;
mod fetch;

pub use checksums::RecordChecksumsError;

use super::checksum::{self, ObjectFile};
use super::checksum_validity::{self, ChecksumValidity, MAX_CHECKSUMS_BYTES, Watermarks};
use super::removal::RemovalQueue;
use super::{ObjectId, ObjectStat, Objects};
use crate::objects::block_checksums::CHECKSUMS_XATTR;
use forebay_protocol::message::{Allocate, OpenMode};
use forebay_protocol::{Errno, Ino, InstanceId, Timestamp};
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fallocate, openat,
    statat, unlinkat,
};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const FOLDERS: u64 = 64;

/// A directory of data objects. Clones share it.
#[derive(Clone, Debug)]
pub struct DiskObjects {
    root: Arc<PathBuf>,
    /// The directory, open since the start, so that its file system tells what it has lost since.
    whole: Arc<File>,
    dirs: Arc<Mutex<HashMap<InstanceId, Arc<OwnedFd>>>>,
    lasting: Arc<ChecksumValidity>,
    leaving: Arc<RemovalQueue>,
}

impl DiskObjects {
    /// The directory `root`, made if it is missing.
    pub fn open(root: &Path) -> io::Result<DiskObjects> {
        std::fs::create_dir_all(root)?;
        let marks = checksums::read_watermarks(&root.join(checksum_validity::WATERMARK_FILE))?;
        let mut objects = DiskObjects {
            root: Arc::new(root.to_owned()),
            whole: Arc::new(File::open(root)?),
            dirs: Arc::default(),
            leaving: Arc::new(RemovalQueue::scan(root)?),
            lasting: Arc::new(ChecksumValidity::new(None, Watermarks::default(), false)),
        };
        let fresh = !objects.list_instances()?.is_empty();
        objects.lasting = Arc::new(ChecksumValidity::new(checksum::boot_id(), marks, fresh));
        Ok(objects)
    }

    /// Removed instances that still take space. Somebody has to [`run`](Leaving::run) it.
    pub fn removal_queue(&self) -> Arc<RemovalQueue> {
        self.leaving.clone()
    }

    fn path(&self, id: InstanceId) -> PathBuf {
        self.root.join(format!("{:016x}", id.0))
    }

    fn dir(&self, id: InstanceId) -> Result<Arc<OwnedFd>, Errno> {
        let mut dirs = self.dirs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = dirs.get(&id) {
            return Ok(dir.clone());
        }
        let dir = Arc::new(OwnedFd::from(File::open(self.path(id))?));
        dirs.insert(id, dir.clone());
        Ok(dir)
    }

    fn open_object(&self, id: ObjectId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let dir = self.dir(id.instance)?;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&*dir, name(id.ino), flags | OFlags::CLOEXEC, mode)?)
    }

    /// As it is for reading, without leaving a trace in its times.
    fn open_for_scan(&self, id: ObjectId) -> Result<File, Errno> {
        Ok(self
            .open_object(id, OFlags::RDONLY | OFlags::NOATIME)?
            .into())
    }

    /// An object for someone who will write to it.
    fn open_for_writing(&self, id: ObjectId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let file = self.open_object(id, flags)?;
        self.lasting.invalidate(&ObjectFile::new(&file))?;
        Ok(file)
    }

    /// An object past the page cache, for one who has opened it through the cache before: its seal
    /// is broken already if it is to be written to. `EINVAL`: its file system does no direct I/O.
    pub fn open_direct(&self, id: ObjectId, mode: OpenMode) -> Result<OwnedFd, Errno> {
        self.open_object(id, access(mode) | OFlags::DIRECT)
    }
}

fn access(mode: OpenMode) -> OFlags {
    match (mode.read, mode.write) {
        (_, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (true, true) => OFlags::RDWR,
    }
}

fn object_stat(stat: &rustix::fs::Stat) -> ObjectStat {
    let time = |secs, nanos| Timestamp {
        secs,
        nanos: nanos as u32,
    };
    ObjectStat {
        size: stat.st_size as u64,
        space: stat.st_blocks as u64 * 512,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn folder(ino: Ino) -> String {
    format!("{:02x}", ino.0 % FOLDERS)
}

fn name(ino: Ino) -> String {
    format!("{:02x}/{:016x}", ino.0 % FOLDERS, ino.0)
}

fn times(atime: Timestamp, mtime: Timestamp) -> Timestamps {
    Timestamps {
        last_access: timespec(Some(atime)),
        last_modification: timespec(Some(mtime)),
    }
}

fn timespec(time: Option<Timestamp>) -> Timespec {
    match time {
        Some(time) => Timespec {
            tv_sec: time.secs,
            tv_nsec: i64::from(time.nanos),
        },
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
    }
}

impl Objects for DiskObjects {
    type Descriptor = OwnedFd;

    fn add_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        let path = self.path(id);
        for number in 0..FOLDERS {
            std::fs::create_dir_all(path.join(folder(Ino(number))))?;
        }
        File::open(&path)?.sync_all()?;
        File::open(&*self.root)?.sync_all()?;
        Ok(())
    }

    fn remove_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        self.dirs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        Ok(self.leaving.enqueue(id, &self.path(id))?)
    }

    fn list_instances(&self) -> Result<Vec<InstanceId>, Errno> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&*self.root)? {
            let name = entry?.file_name();
            let id = name
                .to_str()
                .and_then(|name| u64::from_str_radix(name, 16).ok());
            found.extend(id.map(InstanceId));
        }
        found.sort();
        Ok(found)
    }

    fn list_objects(&self, id: InstanceId) -> Result<Vec<(Ino, u64)>, Errno> {
        use std::os::unix::fs::MetadataExt;
        let mut found = Vec::new();
        for number in 0..FOLDERS {
            for entry in std::fs::read_dir(self.path(id).join(folder(Ino(number))))? {
                let entry = entry?;
                let name = entry.file_name();
                let ino = name
                    .to_str()
                    .and_then(|name| u64::from_str_radix(name, 16).ok());
                if let Some(ino) = ino {
                    found.push((Ino(ino), entry.metadata()?.blocks() * 512));
                }
            }
        }
        Ok(found)
    }

    fn create(&mut self, id: ObjectId, atime: Timestamp, mtime: Timestamp) -> Result<(), Errno> {
        match self.open_object(id, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => Ok(rustix::fs::futimens(&file, &times(atime, mtime))?),
            Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn create_open(
        &mut self,
        id: ObjectId,
        (atime, mtime): (Timestamp, Timestamp),
        mode: OpenMode,
    ) -> Result<OwnedFd, Errno> {
        // One that was not there has no seal to break.
        match self.open_object(id, access(mode) | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                rustix::fs::futimens(&file, &times(atime, mtime))?;
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
        atime: Timestamp,
        mtime: Timestamp,
    ) -> Result<ObjectStat, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = match self.open_object(id, flags) {
            // Written anew, it might get back checksums of what it held.
            Err(Errno::EEXIST) => {
                self.remove(id)?;
                self.open_object(id, flags)?
            }
            other => other?,
        };
        let file = File::from(file);
        let times = times(atime, mtime);
        let fill = || {
            file.write_all_at(data, 0)?;
            rustix::fs::futimens(&file, &times)?;
            let stat = object_stat(&rustix::fs::fstat(&file)?);
            // Without checksums nothing is wrong. Nobody else has it open to write to it.
            let _ = checksum::store_checksums_of_new_object(&file, &self.lasting, data, stat.mtime);
            Ok(stat)
        };
        let filled: Result<ObjectStat, Errno> = fill();
        if filled.is_err() {
            let _ = self.remove(id);
        }
        filled
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat, Errno> {
        let dir = self.dir(id.instance)?;
        let stat = statat(&*dir, name(id.ino), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(object_stat(&stat))
    }

    fn truncate(&mut self, id: ObjectId, size: u64) -> Result<(), Errno> {
        Ok(rustix::fs::ftruncate(
            self.open_for_writing(id, OFlags::WRONLY)?,
            size,
        )?)
    }

    fn set_times(
        &mut self,
        id: ObjectId,
        atime: Option<Timestamp>,
        mtime: Option<Timestamp>,
    ) -> Result<(), Errno> {
        let times = Timestamps {
            last_access: timespec(atime),
            last_modification: timespec(mtime),
        };
        let file = self.open_object(id, OFlags::RDONLY | OFlags::NOATIME)?;
        let Some(mtime) = mtime else {
            return Ok(rustix::fs::futimens(&file, &times)?);
        };
        let set = || Ok(rustix::fs::futimens(&file, &times)?);
        self.lasting.set_mtime(&ObjectFile::new(&file), mtime, set)
    }

    fn allocate(
        &mut self,
        id: ObjectId,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> Result<(), Errno> {
        let keep = |keep_size| {
            if keep_size {
                FallocateFlags::KEEP_SIZE
            } else {
                FallocateFlags::empty()
            }
        };
        let flags = match what {
            Allocate::Reserve { keep_size } => keep(keep_size),
            Allocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocate::Zero { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
        };
        Ok(fallocate(
            self.open_for_writing(id, OFlags::RDWR)?,
            flags,
            offset,
            length,
        )?)
    }

    fn remove(&mut self, id: ObjectId) -> Result<(), Errno> {
        let dir = self.dir(id.instance)?;
        match unlinkat(&*dir, name(id.ino), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn has_durable_checksums(&self, id: ObjectId) -> bool {
        let mut bytes = [0; MAX_CHECKSUMS_BYTES];
        let path = || self.path(id.instance).join(name(id.ino));
        !self.lasting.has_none_durable()
            && rustix::fs::lgetxattr(path(), CHECKSUMS_XATTR, &mut bytes).is_ok_and(|length| {
                self.lasting
                    .needs_durable_invalidation(&bytes[..length.min(MAX_CHECKSUMS_BYTES)])
            })
    }

    fn open(&self, id: ObjectId, mode: OpenMode) -> Result<OwnedFd, Errno> {
        let flags = access(mode);
        if mode.write {
            self.open_for_writing(id, flags)
        } else {
            self.open_object(id, flags)
        }
    }
}
