//! What a copy keeps besides the contents.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fgetxattr, flistxattr,
    fsetxattr, futimens,
};
use rustix::io::Errno;

use crate::error::{Failure, describe};

/// The times of a file, for [`futimens`] and its like.
pub(crate) fn times(stat: &Stat) -> Timestamps {
    let time = |seconds: i64, nanoseconds: u64| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or(0) as _,
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// A file's modification time in nanoseconds since 1970.
pub(crate) fn modified(stat: &Stat) -> i128 {
    i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec)
}

/// Whether a file is as it was: same size, and neither contents nor attributes touched since.
pub(crate) fn unchanged(before: &Stat, after: &Stat) -> bool {
    before.st_size == after.st_size
        && before.st_ino == after.st_ino
        && modified(before) == modified(after)
        && (before.st_ctime, before.st_ctime_nsec) == (after.st_ctime, after.st_ctime_nsec)
}

/// The same, but for a further name: making a hard link touches the time of status change.
pub(crate) fn same_contents(before: &Stat, after: &Stat) -> bool {
    before.st_size == after.st_size
        && before.st_ino == after.st_ino
        && modified(before) == modified(after)
}

/// Gives `target` what `source` has: owner, extended attributes, permissions, times, in an order
/// in which none undoes another. Returns what could not be kept.
pub(crate) fn apply(
    source: &OwnedFd,
    stat: &Stat,
    target: &OwnedFd,
) -> Result<Option<String>, Failure> {
    let mut lost = None;
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let now = rustix::fs::fstat(target).map_err(|e| Failure::target("reading its state", e))?;
    if (now.st_uid, now.st_gid) != (stat.st_uid, stat.st_gid) {
        match fchown(target, Some(uid), Some(gid)) {
            Ok(()) => {}
            // Only root may give files away; the group may still be one of ours.
            Err(Errno::PERM | Errno::INVAL) if !rustix::process::geteuid().is_root() => {
                let _ = fchown(target, None, Some(gid));
            }
            Err(errno) => return Err(Failure::target("setting its owner", errno)),
        }
    }
    if let Err(reason) = extended(source.as_fd(), target.as_fd()) {
        lost = Some(reason);
    }
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    fchmod(target, mode).map_err(|e| Failure::target("setting its permissions", e))?;
    futimens(target, &times(stat)).map_err(|e| Failure::target("setting its times", e))?;
    Ok(lost)
}

/// Copies extended attributes of users and access control lists.
fn extended(source: impl AsFd, target: impl AsFd) -> Result<(), String> {
    let mut names = vec![0u8; 4096];
    let length = loop {
        match flistxattr(&source, &mut names[..]) {
            Ok(length) => break length,
            Err(Errno::RANGE) if names.len() < 65_536 => names.resize(65_536, 0),
            // The source has none.
            Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
            Err(errno) => {
                return Err(format!(
                    "its extended attributes cannot be listed: {}",
                    describe(errno)
                ));
            }
        }
    };
    names.truncate(length);
    let mut value = vec![0u8; 65_536];
    for name in names.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        let kept = |prefix: &[u8]| name.to_bytes().starts_with(prefix);
        if !kept(b"user.") && !kept(b"system.posix_acl_") {
            continue;
        }
        let shown = name.to_string_lossy();
        let length = fgetxattr(&source, name, &mut value[..]).map_err(|errno| {
            format!("its attribute {shown} cannot be read: {}", describe(errno))
        })?;
        let value = value.get(..length).unwrap_or_default();
        fsetxattr(&target, name, value, XattrFlags::empty()).map_err(|errno| {
            format!(
                "its attribute {shown} cannot be kept there: {}",
                describe(errno)
            )
        })?;
    }
    Ok(())
}
