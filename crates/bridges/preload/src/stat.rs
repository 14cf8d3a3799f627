//! Attributes in the structures of the C library, equal to those through the mount.

use crate::errno::last;
use forebay_protocol::{Attr, Errno, FileKind, Timestamp};
use std::os::fd::RawFd;

/// Preferred size of a transfer, in bytes.
const BLOCK_BYTES: u32 = 1 << 20;

/// The attributes of an open file of the kernel.
pub fn of_descriptor(fd: RawFd) -> Result<libc::stat, Errno> {
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writes.
    if unsafe { libc::fstat(fd, &mut stat) } == 0 { Ok(stat) } else { Err(last()) }
}

/// The length of an open file of the kernel, in bytes.
pub fn length_of(fd: RawFd) -> Result<u64, Errno> {
    Ok(of_descriptor(fd)?.st_size as u64)
}

fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => libc::S_IFREG,
        FileKind::Dir => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

/// `struct stat`.
pub fn stat(attr: &Attr, device: u64) -> libc::stat {
    // SAFETY: all zeros are a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = device;
    stat.st_ino = attr.ino.0;
    stat.st_mode = type_bits(attr.kind) | u32::from(attr.mode);
    stat.st_nlink = attr.nlink.into();
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.rdev.into();
    stat.st_size = attr.size as i64;
    stat.st_blksize = BLOCK_BYTES.into();
    stat.st_blocks = attr.blocks as i64;
    (stat.st_atime, stat.st_atime_nsec) = (attr.atime.secs, attr.atime.nanos.into());
    (stat.st_mtime, stat.st_mtime_nsec) = (attr.mtime.secs, attr.mtime.nanos.into());
    (stat.st_ctime, stat.st_ctime_nsec) = (attr.ctime.secs, attr.ctime.nanos.into());
    stat
}

/// `struct statx` with the fields of `STATX_BASIC_STATS`.
pub fn statx(attr: &Attr, device: u64) -> libc::statx {
    let time = |time: Timestamp| {
        // SAFETY: all zeros are a valid time.
        let mut converted: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (converted.tv_sec, converted.tv_nsec) = (time.secs, time.nanos);
        converted
    };
    // SAFETY: all zeros are a valid `statx`.
    let mut statx: libc::statx = unsafe { std::mem::zeroed() };
    statx.stx_mask = libc::STATX_BASIC_STATS;
    statx.stx_blksize = BLOCK_BYTES;
    statx.stx_nlink = attr.nlink;
    (statx.stx_uid, statx.stx_gid) = (attr.uid, attr.gid);
    statx.stx_mode = (type_bits(attr.kind) | u32::from(attr.mode)) as u16;
    statx.stx_ino = attr.ino.0;
    statx.stx_size = attr.size;
    statx.stx_blocks = attr.blocks;
    statx.stx_atime = time(attr.atime);
    statx.stx_mtime = time(attr.mtime);
    statx.stx_ctime = time(attr.ctime);
    statx.stx_dev_major = libc::major(device);
    statx.stx_dev_minor = libc::minor(device);
    statx.stx_rdev_major = libc::major(attr.rdev.into());
    statx.stx_rdev_minor = libc::minor(attr.rdev.into());
    statx
}
