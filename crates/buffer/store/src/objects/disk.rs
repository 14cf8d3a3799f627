//! Objects as files: `<root>/<instance>/<low byte of inode>/<inode>`, numbers in hexadecimal.

use super::lasting::{self, LONGEST, Lasting, Marks};
use super::leaving::Leaving;
use super::pace::Pace;
use super::seal::{self, Opened, Sealed, Verdict};
use super::{Fetched, ObjectId, ObjectStat, Objects};
use forebay_wire::message::{Allocate, OpenMode};
use forebay_wire::seal::{Seal, XATTR};
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
    lasting: Arc<Lasting>,
    leaving: Arc<Leaving>,
}

impl DiskObjects {
    /// The directory `root`, made if it is missing.
    pub fn open(root: &Path) -> io::Result<DiskObjects> {
        std::fs::create_dir_all(root)?;
        let marks = read_marks(&root.join(lasting::FILE))?;
        let mut objects = DiskObjects {
            root: Arc::new(root.to_owned()),
            whole: Arc::new(File::open(root)?),
            dirs: Arc::default(),
            leaving: Arc::new(Leaving::of(root)),
            lasting: Arc::new(Lasting::new(None, Marks::default(), false)),
        };
        let fresh = !objects.instances()?.is_empty();
        objects.lasting = Arc::new(Lasting::new(seal::this_boot(), marks, fresh));
        Ok(objects)
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
        let file = self.looked_at(id)?;
        Ok(seal::seal(&file, &self.lasting, yields, stop)?)
    }

    /// Compare an object with its checksums; says its length, too.
    pub fn check(&self, id: ObjectId, stop: &AtomicBool) -> Result<(Verdict, u64), Errno> {
        let file = self.looked_at(id)?;
        let verdict = seal::check(&file, &self.lasting, stop)?;
        Ok((verdict, file.metadata()?.len()))
    }

    /// The checksums of an open object, if it has some that hold.
    pub fn seal_of(&self, file: &File) -> Result<Option<Seal>, Errno> {
        self.lasting.seal_of(&Opened::new(file))
    }

    /// Break an object's seal durably, if that is what opening it to write takes.
    pub fn unseal(&self, id: ObjectId) -> Result<(), Errno> {
        match self.looked_at(id) {
            Ok(file) => self.lasting.break_seal(&Opened::new(&file)),
            Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Were checksums taken that a power cut would end?
    pub fn has_fresh_seals(&self) -> bool {
        self.lasting.has_fresh()
    }

    /// Do others use the device at the moment?
    pub fn is_device_busy(&self) -> bool {
        Pace::of(&*self.whole).others_are_busy()
    }

    /// Make all data durable, and have the checksums taken so far hold over power cuts. After an
    /// error of the device nobody knows what was lost, and this is not to be called any more.
    pub fn make_seals_last(&self) -> Result<(), LastError> {
        let Some(marks) = self.lasting.close() else {
            return Ok(());
        };
        self.sync_all().map_err(LastError::Data)?;
        self.write_marks(&marks).map_err(|error| {
            self.lasting.reopen();
            LastError::Marks(error.into())
        })
    }

    fn write_marks(&self, marks: &Marks) -> io::Result<()> {
        let path = self.root.join(lasting::FILE);
        let new = path.with_extension("new");
        let file = File::create(&new)?;
        file.write_all_at(&marks.encode(), 0)?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        self.whole.sync_all()
    }

    /// An object for someone who will write to it.
    fn to_write(&self, id: ObjectId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let file = self.opened(id, flags)?;
        self.lasting.break_seal(&Opened::new(&file))?;
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
        let damage = self
            .seal_of(&file)?
            .and_then(|seal| seal.first_damage(0, &data));
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

/// Why checksums do not hold over power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastError {
    /// Data cannot be made durable.
    Data(Errno),
    /// It cannot be recorded.
    Marks(Errno),
}

/// The record of checksums that last. One that is damaged says nothing; one that cannot be read may
/// say something next time.
fn read_marks(path: &Path) -> io::Result<Marks> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Marks::decode(&bytes).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "checksums from earlier starts of the host are not used");
            Marks::default()
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Marks::default()),
        Err(error) => Err(error),
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
        match self.opened(id, access(mode) | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                rustix::fs::futimens(&file, &times(atime, mtime))?;
                Ok(file)
            }
            Err(Errno::EEXIST) => self.open(id, mode),
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
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = match self.opened(id, flags) {
            // Written anew, it might get back checksums of what it held.
            Err(Errno::EEXIST) => {
                self.remove(id)?;
                self.opened(id, flags)?
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
            let _ = seal::put_on_new(&file, &self.lasting, data, stat.mtime);
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
        let set = || Ok(rustix::fs::futimens(&file, &times)?);
        self.lasting.set_mtime(&Opened::new(&file), mtime, set)
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

    fn is_at_rest(&self, id: ObjectId) -> bool {
        let mut bytes = [0; LONGEST];
        let path = || self.path(id.instance).join(name(id.ino));
        !self.lasting.is_plain()
            && rustix::fs::lgetxattr(path(), XATTR, &mut bytes)
                .is_ok_and(|length| self.lasting.is_lasting(&bytes[..length.min(LONGEST)]))
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
