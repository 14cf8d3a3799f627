//! Attributes and permissions.

use crate::errno::{set, status};
use crate::next::intercept;
use crate::runtime::locate;
use crate::{path, stat, table};
use forebay_protocol::message::{SetAttr, SetTime};
use forebay_protocol::{Attr, Errno, FileKind, Timestamp};
use libc::{c_char, c_int, c_uint, gid_t, mode_t, timespec, uid_t};

/// Flags of `fstatat` and `statx` that change nothing here.
const IGNORED_FLAGS: c_int = libc::AT_NO_AUTOMOUNT | libc::AT_STATX_SYNC_TYPE;

/// The attributes of a file, and the device number of its mount.
type Found = Result<(Attr, u64), Errno>;

/// The attributes at a path. `None`: the kernel finds them.
fn attr_of_path(directory: c_int, path: &[u8], follow: bool) -> Option<Found> {
    let place = locate(directory, path)?;
    let found = place.with_parent(|parent, name| place.fs.lookup(parent, name))?;
    match found {
        Ok(attr) if attr.kind == FileKind::Symlink && follow => None,
        other => Some(other.map(|attr| (attr, place.attached.device))),
    }
}

fn attr_of_descriptor(fd: c_int) -> Option<Found> {
    let file = table::get(fd).filter(|file| !file.is_moved())?;
    Some(file.attr().map(|attr| (attr, file.attached.device)))
}

fn find(directory: c_int, path: *const c_char, flags: c_int) -> Option<Found> {
    let known = libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    if flags & !(known | IGNORED_FLAGS) != 0 {
        return None;
    }
    // SAFETY: the caller's string.
    let path = unsafe { path::bytes(path) };
    if path.is_none_or(<[u8]>::is_empty) {
        return (flags & libc::AT_EMPTY_PATH != 0).then(|| attr_of_descriptor(directory))?;
    }
    attr_of_path(directory, path?, flags & libc::AT_SYMLINK_NOFOLLOW == 0)
}

/// Stores the attributes where the caller wants them.
fn store<T>(found: Found, into: *mut T, convert: impl FnOnce(&Attr, u64) -> T) -> Option<c_int> {
    Some(match found {
        Ok((attr, device)) => {
            // SAFETY: the caller's buffer.
            unsafe { into.write(convert(&attr, device)) };
            0
        }
        Err(errno) => {
            set(errno);
            -1
        }
    })
}

fn do_stat(
    directory: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> Option<c_int> {
    store(find(directory, path, flags)?, into, stat::stat)
}

fn do_fstat(fd: c_int, into: *mut libc::stat) -> Option<c_int> {
    store(attr_of_descriptor(fd)?, into, stat::stat)
}

const CWD: c_int = libc::AT_FDCWD;
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

// `stat64` is the same structure as `stat` on 64-bit systems.
intercept! {
    fn stat(path: *const c_char, into: *mut libc::stat) -> c_int = do_stat(CWD, path, into, 0);
    fn stat64(path: *const c_char, into: *mut libc::stat) -> c_int = do_stat(CWD, path, into, 0);
    fn lstat(path: *const c_char, into: *mut libc::stat) -> c_int =
        do_stat(CWD, path, into, NOFOLLOW);
    fn lstat64(path: *const c_char, into: *mut libc::stat) -> c_int =
        do_stat(CWD, path, into, NOFOLLOW);
    fn fstat(fd: c_int, into: *mut libc::stat) -> c_int = do_fstat(fd, into);
    fn fstat64(fd: c_int, into: *mut libc::stat) -> c_int = do_fstat(fd, into);
    fn fstatat(directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int =
        do_stat(directory, path, into, flags);
    fn fstatat64(directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int =
        do_stat(directory, path, into, flags);
    // Programs that were compiled for older versions of the C library.
    fn __xstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int =
        do_stat(CWD, path, into, 0);
    fn __xstat64(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int =
        do_stat(CWD, path, into, 0);
    fn __lxstat(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int =
        do_stat(CWD, path, into, NOFOLLOW);
    fn __lxstat64(version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int =
        do_stat(CWD, path, into, NOFOLLOW);
    fn __fxstat(version: c_int, fd: c_int, into: *mut libc::stat) -> c_int = do_fstat(fd, into);
    fn __fxstat64(version: c_int, fd: c_int, into: *mut libc::stat) -> c_int = do_fstat(fd, into);
    fn __fxstatat(version: c_int, directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int =
        do_stat(directory, path, into, flags);
    fn __fxstatat64(version: c_int, directory: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int) -> c_int =
        do_stat(directory, path, into, flags);
    fn statx(directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut libc::statx) -> c_int =
        store(find(directory, path, flags)?, into, stat::statx);
    fn access(path: *const c_char, mode: c_int) -> c_int = do_access(CWD, path, mode, 0);
    fn faccessat(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int =
        do_access(directory, path, mode, flags);
    fn eaccess(path: *const c_char, mode: c_int) -> c_int =
        do_access(CWD, path, mode, libc::AT_EACCESS);
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int =
        do_access(CWD, path, mode, libc::AT_EACCESS);
    fn fchmod(fd: c_int, mode: mode_t) -> c_int =
        change(fd, SetAttr { mode: Some((mode & 0o7777) as u16), ..SetAttr::default() });
    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int =
        change(fd, SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() });
    fn futimens(fd: c_int, times: *const timespec) -> c_int = do_set_times(fd, times);
}

/// Checks permissions with the effective user, or if that is the real one.
fn do_access(directory: c_int, path: *const c_char, mode: c_int, flags: c_int) -> Option<c_int> {
    // SAFETY: have no requirements.
    let is_real = unsafe { libc::geteuid() == libc::getuid() && libc::getegid() == libc::getgid() };
    if flags & !libc::AT_EACCESS != 0 || (flags == 0 && !is_real) || mode & !7 != 0 {
        return None;
    }
    // SAFETY: the caller's string.
    let place = locate(directory, unsafe { path::bytes(path) }?)?;
    let outcome = place.with_parent(|parent, name| {
        let attr = place.fs.lookup(parent, name)?;
        if attr.kind == FileKind::Symlink {
            return Err(Errno::ELOOP);
        }
        if mode == libc::F_OK { Ok(()) } else { place.fs.access(attr.ino, mode as u16) }
    })?;
    // The kernel follows symbolic links.
    (outcome != Err(Errno::ELOOP)).then(|| status(outcome))
}

/// -1 keeps an owner.
fn given(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}

fn change(fd: c_int, set: SetAttr) -> Option<c_int> {
    let file = table::get(fd).filter(|file| !file.is_moved())?;
    Some(status(file.set_attr(set)))
}

fn do_set_times(fd: c_int, times: *const timespec) -> Option<c_int> {
    let both = if times.is_null() {
        let now = timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
        [now, now]
    } else {
        // SAFETY: the caller's two times.
        unsafe { [*times, *times.add(1)] }
    };
    let time = |time: timespec| match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(SetTime::Now)),
        libc::UTIME_OMIT => Ok(None),
        nanos => match u32::try_from(nanos) {
            Ok(nanos) if nanos < 1_000_000_000 => {
                Ok(Some(SetTime::At(Timestamp { secs: time.tv_sec, nanos })))
            }
            _ => Err(Errno::EINVAL),
        },
    };
    match (time(both[0]), time(both[1])) {
        (Ok(atime), Ok(mtime)) => change(fd, SetAttr { atime, mtime, ..SetAttr::default() }),
        (Err(errno), _) | (_, Err(errno)) => {
            table::get(fd).filter(|file| !file.is_moved())?;
            Some(status(Err(errno)))
        }
    }
}
