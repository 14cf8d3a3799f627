//! The parallel file system as mounted on this host.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use forebay_protocol::Timestamp;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, SeekFrom, Stat, Timespec,
    Timestamps, Uid, XattrFlags, chownat, copy_file_range, fchmod, fchown, fgetxattr, flistxattr,
    flock, fsetxattr, fstat, ftruncate, futimens, linkat, mkdirat, openat, readlinkat, renameat,
    statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, pread, pwrite};

use super::identity::{Entered, Identity};
use super::{
    DirHandle, FileHandle, FileKind, FileStat, Metadata, PutOutcome, SetXattrs, SmallFile,
};

/// The user whose permissions apply; `None` for that of this process.
pub(super) type User = Option<Arc<Identity>>;

/// Accesses files with the permissions of `user` until the guard is dropped.
pub(super) fn enter(user: &User) -> Result<Option<Entered<'_>>, Errno> {
    user.as_deref().map(Identity::enter).transpose()
}

/// An open directory or file.
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    user: User,
    /// Whether `syncfs` makes the files of its file system durable and reports write errors.
    pub(super) has_reliable_syncfs: OnceLock<bool>,
    /// Whether files without names cannot be created in the directory.
    pub(super) lacks_unnamed_files: AtomicBool,
}

/// File systems on devices of this host. Those on servers do not write all data to the servers'
/// devices at `syncfs`, or report lost writes to open files only.
const LOCAL_FILE_SYSTEMS: [i64; 4] = [
    0xef53,      // ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
];

#[allow(clippy::unnecessary_cast, reason = "the number of links has 32 bits on some processors")]
fn file_stat(stat: &Stat) -> FileStat {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let time = |secs: i64, nanos: u64| Timestamp { secs, nanos: u32::try_from(nanos).unwrap_or(0) };
    FileStat {
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Other,
        },
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: unsigned(stat.st_size),
        allocated: unsigned(stat.st_blocks).saturating_mul(512),
        nlink: stat.st_nlink as u64,
        inode: (stat.st_dev, stat.st_ino),
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn timestamps(stat: &FileStat) -> Timestamps {
    let time = |time: Timestamp| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
    Timestamps { last_access: time(stat.accessed), last_modification: time(stat.modified) }
}

fn c_string(name: &[u8]) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

impl OpenFile {
    pub(super) fn new(fd: OwnedFd, user: &User) -> OpenFile {
        let user = user.clone();
        OpenFile {
            fd,
            user,
            has_reliable_syncfs: OnceLock::new(),
            lacks_unnamed_files: AtomicBool::new(false),
        }
    }

    pub(super) fn enter(&self) -> Result<Option<Entered<'_>>, Errno> {
        enter(&self.user)
    }

    pub(super) fn has_reliable_syncfs(&self) -> bool {
        *self.has_reliable_syncfs.get_or_init(|| {
            let found = rustix::fs::fstatfs(&self.fd).map(|found| found.f_type);
            #[allow(clippy::unnecessary_cast, reason = "other processors have another type")]
            let known = |kind| LOCAL_FILE_SYSTEMS.contains(&(kind as i64));
            found.is_ok_and(known)
        })
    }

    /// Whether the owner of files can be changed.
    fn may_chown(&self) -> bool {
        self.user.is_none() && rustix::process::geteuid().is_root()
    }

    /// Sets the owner and group of `file`, whose attributes are `now`, as far as that is permitted. Returns
    /// its attributes then.
    pub(super) fn set_owner(
        &self,
        file: &OwnedFd,
        now: &Stat,
        wanted: &FileStat,
    ) -> Result<Stat, Errno> {
        if (now.st_uid, now.st_gid) == (wanted.uid, wanted.gid) {
            return Ok(*now);
        }
        let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        match fchown(file, Some(uid), Some(gid)) {
            Ok(()) => {}
            // Only root may change the owner; the group may be one of the user's.
            Err(Errno::PERM | Errno::INVAL) if !self.may_chown() => {
                let _ = fchown(file, None, Some(gid));
            }
            Err(errno) => return Err(errno),
        }
        fstat(file)
    }

    /// Sets permissions and times of `file`, whose attributes are `now`.
    pub(super) fn set_mode_and_times(
        file: &OwnedFd,
        now: &Stat,
        wanted: &FileStat,
    ) -> Result<(), Errno> {
        // The bits that change the user or group of a program are for the owner that it had.
        let mode = match (now.st_uid == wanted.uid, now.st_gid == wanted.gid) {
            (true, true) => wanted.mode,
            (true, false) => wanted.mode & !0o2000,
            (false, _) => wanted.mode & !0o6000,
        };
        if now.st_mode & 0o7777 != mode {
            fchmod(file, Mode::from_raw_mode(mode))?;
        }
        futimens(file, &timestamps(wanted))
    }
}

impl Metadata for OpenFile {
    fn stat(&self) -> Result<FileStat, Errno> {
        Ok(file_stat(&fstat(&self.fd)?))
    }

    fn set_metadata(&self, wanted: &FileStat, set_xattrs: SetXattrs<'_>) -> Result<(), Errno> {
        let now = fstat(&self.fd)?;
        let entered = self.enter()?;
        self.set_owner(&self.fd, &now, wanted)?;
        // Each extended attribute is set with the same permissions, which are entered again.
        drop(entered);
        let wanted = FileStat { mode: set_xattrs(wanted.mode), ..*wanted };
        let _entered = self.enter()?;
        // An access control list is a part of the permissions.
        OpenFile::set_mode_and_times(&self.fd, &fstat(&self.fd)?, &wanted)
    }

    fn list_xattr(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = vec![0u8; 1024];
        let length = loop {
            match flistxattr(&self.fd, &mut names[..]) {
                Err(Errno::RANGE) if names.len() < 65_536 => names.resize(65_536, 0),
                other => break other?,
            }
        };
        names.truncate(length);
        let split = names.split(|byte| *byte == 0);
        Ok(split.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0u8; 65_536];
        let length = fgetxattr(&self.fd, c_string(name)?, &mut value[..])?;
        value.truncate(length);
        Ok(value)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let _entered = self.enter()?;
        fsetxattr(&self.fd, c_string(name)?, value, XattrFlags::empty())
    }
}

impl DirHandle for OpenFile {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
        Ok(Box::new(OpenFile::new(fd, &self.user)))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let _entered = self.enter()?;
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if !take(name, self.stat_at(name)) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        let _entered = self.enter()?;
        self.stat_at(name)
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        Ok(Box::new(self.open_at(name, flags, Mode::empty())?))
    }

    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno> {
        let _entered = self.enter()?;
        match mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn open(&self, name: &OsStr, _: Option<&FileStat>) -> Result<Box<dyn FileHandle>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(Box::new(self.open_at(name, flags, Mode::empty())?))
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn FileHandle>, Errno> {
        self.create_copy(name, keep, FlockOperation::NonBlockingLockExclusive)
    }

    fn create_shared(&self, name: &OsStr) -> Result<Box<dyn FileHandle>, Errno> {
        self.create_copy(name, true, FlockOperation::NonBlockingLockShared)
    }

    fn put_small_files(&self, files: &[SmallFile<'_>]) -> Vec<Result<PutOutcome, Errno>> {
        self.put_unnamed_files(files)
    }

    fn readlink(&self, name: &OsStr, _: &FileStat) -> Result<OsString, Errno> {
        let _entered = self.enter()?;
        let target = readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    fn symlink(&self, name: &OsStr, link_target: &OsStr, like: &FileStat) -> Result<(), Errno> {
        let _entered = self.enter()?;
        symlinkat(link_target, &self.fd, name)?;
        if self.may_chown() {
            let owner = Some(Uid::from_raw(like.uid));
            let group = Some(Gid::from_raw(like.gid));
            chownat(&self.fd, name, owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        // Some file systems have no times of symbolic links; nothing depends on them.
        let _ = utimensat(&self.fd, name, &timestamps(like), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    fn link(&self, name: &OsStr, dir: &dyn DirHandle, existing: &OsStr) -> Result<(), Errno> {
        let _entered = self.enter()?;
        let from = dir.descriptor().ok_or(Errno::XDEV)?;
        linkat(from, existing, &self.fd, name, AtFlags::empty())
    }

    fn unlink(&self, name: &OsStr) -> Result<(), Errno> {
        let _entered = self.enter()?;
        unlinkat(&self.fd, name, AtFlags::empty())
    }

    fn rmdir(&self, name: &OsStr) -> Result<(), Errno> {
        let _entered = self.enter()?;
        unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let _entered = self.enter()?;
        renameat(&self.fd, from, &self.fd, to)
    }

    fn syncfs(&self) -> Result<(), Errno> {
        if !self.has_reliable_syncfs() {
            match rustix::fs::fsync(&self.fd) {
                // Some file systems have no directories that can be synced.
                Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
        rustix::fs::syncfs(&self.fd)
    }

    fn device(&self) -> Result<u64, Errno> {
        Ok(fstat(&self.fd)?.st_dev)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl OpenFile {
    /// Opens an incomplete copy for reading and writing, and creates it if necessary. It is truncated
    /// unless `keep` is set.
    fn create_copy(
        &self,
        name: &OsStr,
        keep: bool,
        lock: FlockOperation,
    ) -> Result<Box<dyn FileHandle>, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = self.open_at(name, flags, mode)?;
        lock_copy(&file.fd, lock)?;
        let found = fstat(&file.fd)?;
        // A copy that ended between the open and the lock has given the file its final name.
        let inode = file_stat(&found).inode;
        if !self.lstat(name).is_ok_and(|named| named.inode == inode) {
            return Err(Errno::BUSY);
        }
        // Another user may have made a file of this name, or a link to one, to read what is written.
        let is_own = match &self.user {
            Some(user) => found.st_uid == user.uid() && found.st_nlink == 1,
            None => true,
        };
        if is_own {
            if !keep && found.st_size != 0 {
                let _entered = self.enter()?;
                ftruncate(&file.fd, 0)?;
            }
            let _ = file.has_reliable_syncfs.set(self.has_reliable_syncfs());
            return Ok(Box::new(file));
        }
        if keep {
            return Err(Errno::EXIST);
        }
        self.unlink(name)?;
        let file = self.open_at(name, flags | OFlags::EXCL, mode)?;
        lock_copy(&file.fd, lock)?;
        let _ = file.has_reliable_syncfs.set(self.has_reliable_syncfs());
        Ok(Box::new(file))
    }

    fn stat_at(&self, name: &OsStr) -> Result<FileStat, Errno> {
        Ok(file_stat(&statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn open_at(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OpenFile, Errno> {
        let _entered = self.enter()?;
        let fd = openat(&self.fd, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(OpenFile::new(fd, &self.user))
    }
}

/// Reserves an incomplete copy for this open file, or for those of one stage. `EBUSY`: another stage copies to the same name.
pub(super) fn lock_copy(file: &OwnedFd, lock: FlockOperation) -> Result<(), Errno> {
    match flock(file, lock) {
        Err(Errno::WOULDBLOCK) => Err(Errno::BUSY),
        // Some mounts of parallel file systems have no locks.
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        Err(errno) => Err(errno),
    }
}

impl FileHandle for OpenFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match pread(&self.fd, rest, offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        assert!(done <= into.len());
        Ok(done)
    }

    fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
        let _entered = self.enter()?;
        while !data.is_empty() {
            match pwrite(&self.fd, data, offset) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => {
                    assert!(written <= data.len());
                    offset += written as u64;
                    data = data.get(written..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let to = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        rustix::fs::seek(&self.fd, to)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        let _entered = self.enter()?;
        ftruncate(&self.fd, size)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn copy_from(
        &self,
        source: BorrowedFd<'_>,
        mut from: u64,
        mut to: u64,
        length: usize,
    ) -> Result<usize, Errno> {
        let _entered = self.enter()?;
        copy_file_range(source, Some(&mut from), &self.fd, Some(&mut to), length)
    }

    fn reserve_space(&self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        if self.has_reliable_syncfs() {
            rustix::fs::fdatasync(&self.fd)
        } else {
            rustix::fs::fsync(&self.fd) // no later sync makes its attributes durable
        }
    }

    /// File systems that write dirty data back at `close`, and report errors there, as NFS, are among those of
    /// which this is true: `fdatasync` has reported them before, so that the result of `close` says no more.
    fn needs_fdatasync(&self) -> bool {
        !self.has_reliable_syncfs()
    }
}
