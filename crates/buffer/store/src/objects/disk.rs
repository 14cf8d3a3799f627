//! Objects as files: `<root>/<instance>/<low byte of inode>/<inode>`, numbers in hexadecimal.

use super::pace::Pace;
use super::seal::{self, Rested, Sealed, Verdict};
use super::{ObjectId, ObjectStat, Objects};
use forebay_wire::message::{Allocate, OpenMode};
use forebay_wire::{Errno, Ino, InstanceId, Timestamp};
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fallocate, openat,
    statat, unlinkat,
};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

const FOLDERS: u64 = 64;

/// A directory of data objects. Clones share it.
#[derive(Clone, Debug)]
pub struct DiskObjects {
    root: Arc<PathBuf>,
    dirs: Arc<Mutex<HashMap<InstanceId, Arc<OwnedFd>>>>,
}

impl DiskObjects {
    /// The directory `root`, made if it is missing.
    pub fn open(root: &Path) -> io::Result<DiskObjects> {
        std::fs::create_dir_all(root)?;
        Ok(DiskObjects {
            root: Arc::new(root.to_owned()),
            dirs: Arc::default(),
        })
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

    fn opened(&self, id: ObjectId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let dir = self.dir(id.instance)?;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&*dir, name(id.ino), flags | OFlags::CLOEXEC, mode)?)
    }

    /// As it is for reading, without leaving a trace in its times.
    fn looked_at(&self, id: ObjectId) -> Result<File, Errno> {
        Ok(self.opened(id, OFlags::RDONLY | OFlags::NOATIME)?.into())
    }

    /// Take the checksums of an object that nobody writes to any more; of a large one not while
    /// others use the device, if it `yields`.
    pub fn seal(&self, id: ObjectId, yields: bool, stop: &AtomicBool) -> Result<Sealed, Errno> {
        Ok(seal::seal(&self.looked_at(id)?, yields, stop)?)
    }

    /// As [`seal`](DiskObjects::seal) for many small objects: their data are made durable all at
    /// once, which takes about as long as for one of them. None is sealed if others use the device
    /// and they `yield`.
    pub fn seal_many(
        &self,
        ids: &[ObjectId],
        yields: bool,
        stop: &AtomicBool,
    ) -> Vec<Result<Sealed, Errno>> {
        let root = File::open(&*self.root);
        if yields
            && root
                .as_ref()
                .is_ok_and(|root| Pace::of(root).others_are_busy())
        {
            return vec![Ok(Sealed::Busy); ids.len()];
        }
        let look = |id: &ObjectId| Ok(seal::look(&self.looked_at(*id)?)?);
        let looked: Vec<Result<_, Errno>> = ids.iter().map(look).collect();
        let synced = root
            .map_err(Errno::from)
            .and_then(|root| Ok(rustix::fs::syncfs(&root)?));
        let finish = |(id, looked): (&ObjectId, Result<_, Errno>)| match looked? {
            Err(sealed) => Ok(sealed),
            // That takes its time, and meanwhile the others would not be what they were.
            Ok(rested) if Rested::is_large(&rested) => self.seal(*id, yields, stop),
            Ok(rested) => {
                synced?;
                let file = self.looked_at(*id)?;
                Ok(seal::finish(&file, &rested, &mut Pace::default(), stop)?)
            }
        };
        ids.iter().zip(looked).map(finish).collect()
    }

    /// Compare an object with its checksums; says its length, too.
    pub fn check(&self, id: ObjectId, stop: &AtomicBool) -> Result<(Verdict, u64), Errno> {
        let file = self.looked_at(id)?;
        Ok((seal::check(&file, stop)?, file.metadata()?.len()))
    }

    /// An object for someone who will write to it.
    fn to_write(&self, id: ObjectId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let file = self.opened(id, flags)?;
        seal::break_seal(&file)?;
        Ok(file)
    }

    /// An object past the page cache, for one who has opened it through the cache before: its seal
    /// is broken already if it is to be written to. `EINVAL`: its file system does no direct I/O.
    pub fn open_direct(&self, id: ObjectId, mode: OpenMode) -> Result<OwnedFd, Errno> {
        self.opened(id, access(mode) | OFlags::DIRECT)
    }

    /// Make an object's contents durable, and its existence if `fresh`.
    pub fn sync(&self, id: ObjectId, data_only: bool, fresh: bool) -> Result<(), Errno> {
        let file = match self.opened(id, OFlags::RDWR) {
            Err(Errno::ENOENT) => return Ok(()), // never had data, or has been removed since
            other => other?,
        };
        if data_only {
            rustix::fs::fdatasync(&file)?
        } else {
            rustix::fs::fsync(&file)?
        }
        if fresh {
            let dir = self.dir(id.instance)?;
            let folder = openat(&*dir, folder(id.ino), OFlags::RDONLY, Mode::empty())?;
            rustix::fs::fsync(&folder)?;
        }
        Ok(())
    }
}

fn access(mode: OpenMode) -> OFlags {
    match (mode.read, mode.write) {
        (_, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (true, true) => OFlags::RDWR,
    }
}

fn folder(ino: Ino) -> String {
    format!("{:02x}", ino.0 % FOLDERS)
}

fn name(ino: Ino) -> String {
    format!("{:02x}/{:016x}", ino.0 % FOLDERS, ino.0)
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

    fn drop_instance(&mut self, id: InstanceId) -> Result<(), Errno> {
        self.dirs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        match std::fs::remove_dir_all(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn instances(&self) -> Result<Vec<InstanceId>, Errno> {
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

    fn list(&self, id: InstanceId) -> Result<Vec<(Ino, u64)>, Errno> {
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
        match self.opened(id, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                let times = Timestamps {
                    last_access: timespec(Some(atime)),
                    last_modification: timespec(Some(mtime)),
                };
                Ok(rustix::fs::futimens(&file, &times)?)
            }
            Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn stat(&self, id: ObjectId) -> Result<ObjectStat, Errno> {
        let dir = self.dir(id.instance)?;
        let stat = statat(&*dir, name(id.ino), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(ObjectStat {
            size: stat.st_size as u64,
            space: stat.st_blocks as u64 * 512,
            atime: Timestamp {
                secs: stat.st_atime,
                nanos: stat.st_atime_nsec as u32,
            },
            mtime: Timestamp {
                secs: stat.st_mtime,
                nanos: stat.st_mtime_nsec as u32,
            },
        })
    }

    fn truncate(&mut self, id: ObjectId, size: u64) -> Result<(), Errno> {
        Ok(rustix::fs::ftruncate(
            self.to_write(id, OFlags::WRONLY)?,
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
        let file = self.opened(id, OFlags::RDONLY | OFlags::NOATIME)?;
        let Some(mtime) = mtime else {
            return Ok(rustix::fs::futimens(&file, &times)?);
        };
        // The bytes stay what they are, and so does a seal that holds. One that does not must not
        // come to hold again because someone gives the object the time it had.
        match seal::seal_of(&file)? {
            Some(mut seal) => {
                rustix::fs::futimens(&file, &times)?;
                seal.set_mtime(mtime);
                seal::put(&file, &seal)?;
            }
            None => {
                seal::break_seal(&file)?;
                rustix::fs::futimens(&file, &times)?;
            }
        }
        Ok(())
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
            self.to_write(id, OFlags::RDWR)?,
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

    fn open(&self, id: ObjectId, mode: OpenMode) -> Result<OwnedFd, Errno> {
        let flags = access(mode);
        if mode.write {
            self.to_write(id, flags)
        } else {
            self.opened(id, flags)
        }
    }
}
