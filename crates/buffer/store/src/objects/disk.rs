//! Objects as files: `<root>/<instance>/<low byte of inode>/<inode>`, numbers in hexadecimal.

use super::leaving::Leaving;
use super::seal::{self, Sealed, Verdict};
use super::{Fetched, ObjectId, ObjectStat, Objects};
use forebay_wire::message::{Allocate, OpenMode};
use forebay_wire::{Errno, Ino, InstanceId, Timestamp};
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fallocate, openat,
    statat, unlinkat,
};
use rustix::io::{ReadWriteFlags, preadv2};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

const FOLDERS: u64 = 64;

/// A directory of data objects. Clones share it.
#[derive(Clone, Debug)]
pub struct DiskObjects {
    root: Arc<PathBuf>,
    /// The directory, open since the start, so that its file system tells what it has lost since.
    whole: Arc<File>,
    dirs: Arc<Mutex<HashMap<InstanceId, Arc<OwnedFd>>>>,
    leaving: Arc<Leaving>,
}

impl DiskObjects {
    /// The directory `root`, made if it is missing.
    pub fn open(root: &Path) -> io::Result<DiskObjects> {
        std::fs::create_dir_all(root)?;
        Ok(DiskObjects {
            root: Arc::new(root.to_owned()),
            whole: Arc::new(File::open(root)?),
            dirs: Arc::default(),
            leaving: Arc::new(Leaving::of(root)),
        })
    }

    /// Removed instances that still take space. Somebody has to [`run`](Leaving::run) it.
    pub fn leaving(&self) -> Arc<Leaving> {
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

    /// All of an object, without leaving a trace in its times; `None` if it is longer than `most`
    /// bytes, or somebody writes to it. `EIO`: it is not what it was when it was sealed. `EAGAIN`:
    /// the kernel would have to read it from the device, and the caller does not `wait`.
    pub fn fetch(&self, id: ObjectId, most: usize, wait: bool) -> Result<Option<Fetched>, Errno> {
        let file = self.looked_at(id)?;
        let look = || Ok::<_, Errno>(object_stat(&rustix::fs::fstat(&file)?));
        let stat = look()?;
        let length = usize::try_from(stat.size).unwrap_or(usize::MAX);
        if length > most {
            return Ok(None);
        }
        let mut data = vec![0; length];
        if wait {
            match file.read_exact_at(&mut data, 0) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                other => other?,
            }
        } else if length > 0 {
            let into = &mut [IoSliceMut::new(&mut data)];
            match preadv2(&file, into, 0, ReadWriteFlags::NOWAIT) {
                Ok(count) if count == length => {}
                // Some of it, or the file system cannot tell.
                Ok(_) | Err(rustix::io::Errno::OPNOTSUPP) => return Err(Errno::EAGAIN),
                Err(error) => return Err(error.into()),
            }
        }
        // Whoever writes breaks the seal before: one that still holds is that of these bytes.
        let damage = seal::seal_of(&file)?.and_then(|seal| seal.first_damage(0, &data));
        if let Some(offset) = damage {
            tracing::error!(instance = %id.instance, ino = %id.ino, offset, "data at rest are damaged");
            return Err(Errno::EIO);
        }
        let now = look()?;
        let same = (now.size, now.mtime) == (stat.size, stat.mtime);
        let stat = Some(stat);
        Ok(same.then_some(Fetched { stat, data }))
    }

    /// Make the contents of all objects durable, and their existence.
    pub fn sync_all(&self) -> Result<(), Errno> {
        Ok(rustix::fs::syncfs(&*self.whole)?)
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
        Ok(self.leaving.add(id, &self.path(id))?)
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

    fn put(
        &mut self,
        id: ObjectId,
        data: &[u8],
        atime: Timestamp,
        mtime: Timestamp,
    ) -> Result<ObjectStat, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let file = File::from(self.opened(id, flags)?);
        let times = Timestamps {
            last_access: timespec(Some(atime)),
            last_modification: timespec(Some(mtime)),
        };
        let fill = || {
            file.write_all_at(data, 0)?;
            rustix::fs::futimens(&file, &times)?;
            let stat = object_stat(&rustix::fs::fstat(&file)?);
            // Without checksums nothing is wrong. Nobody else has it open to write to it.
            let _ = seal::put_on_whole(&file, data, stat.mtime);
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
