//! The parallel file system, as the system shows it.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, ftruncate,
    futimens, linkat, mkdirat, openat, readlinkat, renameat, statat, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::{Errno, pread, pwrite};

use super::identity::{Entered, Identity};
use super::{DirHandle, FileHandle, FileKind, FileStat, FileTime, Metadata};

/// On whose behalf; `None` for the process itself.
pub(super) type Who = Option<Arc<Identity>>;

pub(super) fn enter(who: &Who) -> Result<Option<Entered<'_>>, Errno> {
    who.as_deref().map(Identity::enter).transpose()
}

/// Something open, directory or file.
pub(super) struct Open {
    fd: OwnedFd,
    who: Who,
}

/// What is open, to be used with someone's rights.
pub(super) fn opened(fd: OwnedFd, who: &Who) -> Open {
    let who = who.clone();
    Open { fd, who }
}

/// Opens a directory by its path, following symbolic links.
pub(crate) fn open_folder(path: &Path, who: &Who) -> Result<Box<dyn DirHandle>, Errno> {
    let _as = enter(who)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::empty())?;
    Ok(Box::new(Open {
        fd,
        who: who.clone(),
    }))
}

/// Opens a file by its path, following symbolic links.
pub(crate) fn open_path(path: &Path, who: &Who) -> Result<Box<dyn FileHandle>, Errno> {
    let _as = enter(who)?;
    // A pipe must not keep us waiting for someone who writes to it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::empty())?;
    Ok(Box::new(Open {
        fd,
        who: who.clone(),
    }))
}

#[allow(
    clippy::unnecessary_cast,
    reason = "the number of names has 32 bits on some processors"
)]
fn state(stat: &Stat) -> FileStat {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let time = |seconds: i64, nanoseconds: u64| FileTime {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
    };
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

fn times(state: &FileStat) -> Timestamps {
    let time = |time: FileTime| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    Timestamps {
        last_access: time(state.accessed),
        last_modification: time(state.modified),
    }
}

fn c_string(name: &[u8]) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}

impl Open {
    fn enter(&self) -> Result<Option<Entered<'_>>, Errno> {
        enter(&self.who)
    }

    /// Whether files can be given to others here.
    fn may_give_away(&self) -> bool {
        self.who.is_none() && rustix::process::geteuid().is_root()
    }
}

impl Metadata for Open {
    fn stat(&self) -> Result<FileStat, Errno> {
        Ok(state(&fstat(&self.fd)?))
    }

    fn set_metadata(
        &self,
        wanted: &FileStat,
        attributes: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Result<(), String>, Errno> {
        let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        let now = fstat(&self.fd)?;
        let taken = self.enter()?;
        if (now.st_uid, now.st_gid) != (wanted.uid, wanted.gid) {
            match fchown(&self.fd, Some(uid), Some(gid)) {
                Ok(()) => {}
                // Only root may give files away; the group may still be one of ours.
                Err(Errno::PERM | Errno::INVAL) if !self.may_give_away() => {
                    let _ = fchown(&self.fd, None, Some(gid));
                }
                Err(errno) => return Err(errno),
            }
        }
        // The attributes are set with the same rights, which are taken for each anew.
        drop(taken);
        let set = attributes();
        let _as = self.enter()?;
        fchmod(&self.fd, Mode::from_raw_mode(wanted.mode))?;
        futimens(&self.fd, &times(wanted))?;
        Ok(set)
    }

    fn attribute_names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = vec![0u8; 1024];
        let length = loop {
            match flistxattr(&self.fd, &mut names[..]) {
                Err(Errno::RANGE) if names.len() < 65_536 => names.resize(65_536, 0),
                other => break other?,
            }
        };
        names.truncate(length);
        let split = names.split(|byte| *byte == 0);
        Ok(split
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }

    fn attribute(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0u8; 65_536];
        let length = fgetxattr(&self.fd, c_string(name)?, &mut value[..])?;
        value.truncate(length);
        Ok(value)
    }

    fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let _as = self.enter()?;
        fsetxattr(&self.fd, c_string(name)?, value, XattrFlags::empty())
    }
}

impl DirHandle for Open {
    fn try_clone(&self) -> Result<Box<dyn DirHandle>, Errno> {
        Ok(Box::new(Open {
            fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
            who: self.who.clone(),
        }))
    }

    fn read_dir(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<FileStat, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let _as = self.enter()?;
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if !take(name, self.look_at(name)) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        let _as = self.enter()?;
        self.look_at(name)
    }

    fn open_dir(&self, name: &OsStr) -> Result<Box<dyn DirHandle>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        Ok(Box::new(self.open_at(name, flags, Mode::empty())?))
    }

    fn mkdir(&self, name: &OsStr) -> Result<bool, Errno> {
        let _as = self.enter()?;
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
        let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
        if !keep {
            flags |= OFlags::TRUNC;
        }
        Ok(Box::new(self.open_at(
            name,
            flags,
            Mode::RUSR | Mode::WUSR,
        )?))
    }

    fn readlink(&self, name: &OsStr, _: &FileStat) -> Result<OsString, Errno> {
        let _as = self.enter()?;
        let goal = readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsString::from_vec(goal.into_bytes()))
    }

    fn symlink(&self, name: &OsStr, goal: &OsStr, like: &FileStat) -> Result<(), Errno> {
        let _as = self.enter()?;
        symlinkat(goal, &self.fd, name)?;
        if self.may_give_away() {
            let owner = Some(Uid::from_raw(like.uid));
            let group = Some(Gid::from_raw(like.gid));
            chownat(&self.fd, name, owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        // Some file systems keep no times of links; nothing depends on them.
        let _ = utimensat(&self.fd, name, &times(like), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    fn link(&self, name: &OsStr, folder: &dyn DirHandle, of: &OsStr) -> Result<(), Errno> {
        let _as = self.enter()?;
        let from = folder.descriptor().ok_or(Errno::XDEV)?;
        linkat(from, of, &self.fd, name, AtFlags::empty())
    }

    fn unlink(&self, name: &OsStr) -> Result<(), Errno> {
        let _as = self.enter()?;
        unlinkat(&self.fd, name, AtFlags::empty())
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let _as = self.enter()?;
        renameat(&self.fd, from, &self.fd, to)
    }

    fn syncfs(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(&self.fd)
    }

    fn device(&self) -> Result<u64, Errno> {
        Ok(fstat(&self.fd)?.st_dev)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl Open {
    fn look_at(&self, name: &OsStr) -> Result<FileStat, Errno> {
        Ok(state(&statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn open_at(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<Open, Errno> {
        let _as = self.enter()?;
        let fd = openat(&self.fd, name, flags | OFlags::CLOEXEC, mode)?;
        Ok(Open {
            fd,
            who: self.who.clone(),
        })
    }
}

impl FileHandle for Open {
    fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut have = 0;
        while let Some(rest) = into.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match pread(&self.fd, rest, offset + have as u64) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(have)
    }

    fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
        while !data.is_empty() {
            match pwrite(&self.fd, data, offset) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => {
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
        let to = if hole {
            SeekFrom::Hole(offset)
        } else {
            SeekFrom::Data(offset)
        };
        rustix::fs::seek(&self.fd, to)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        ftruncate(&self.fd, size)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn reserve_space(&self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        rustix::fs::fdatasync(&self.fd)
    }

    fn needs_fdatasync(&self) -> bool {
        false
    }
}
