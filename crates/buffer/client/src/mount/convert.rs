//! Conversions between the types of FUSE and of the protocol.

use forebay_protocol::lock::FileLock;
use forebay_protocol::message::{CreateMode, NewInode, OnExisting, OpenMode, SetTime, XattrMode};
use forebay_protocol::{Attr, Errno, FileKind, Ino, LockOwner, Timestamp};
use fuser::{FileAttr, FileType, INodeNo, RenameFlags, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `FMODE_EXEC` of the kernel in the flags of an open: the file is opened to be executed.
pub const FMODE_EXEC: i32 = 0x20;
/// The bits of `access(2)`.
pub const ACCESS_READ: u16 = 4;
pub const ACCESS_EXECUTE: u16 = 1;

pub fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.0)
}

pub fn ino(ino: INodeNo) -> Ino {
    Ino(ino.0)
}

pub fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Dir => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// The mode of an inode that a process with this mask creates.
pub fn create_mode(mode: u32, umask: u32) -> CreateMode {
    CreateMode { bits: (mode & 0o7777) as u16, umask: (umask & 0o777) as u16 }
}

/// Whether every user may look names up in a directory. It may have an access control list if it has
/// extended attributes.
pub fn is_searchable_by_all(attr: &Attr) -> bool {
    attr.mode & 0o111 == 0o111 && !attr.extended
}

/// The inode that `mknod` creates for a mode and a device number.
pub fn new_node(mode: u32, rdev: u32) -> Option<NewInode> {
    let kind = kind_of_mode(mode)?;
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    Some(NewInode::Node(kind, if device { rdev } else { 0 }))
}

pub fn on_existing(flags: RenameFlags) -> Option<OnExisting> {
    match flags {
        f if f == RenameFlags::empty() => Some(OnExisting::Replace),
        RenameFlags::RENAME_NOREPLACE => Some(OnExisting::Fail),
        RenameFlags::RENAME_EXCHANGE => Some(OnExisting::Exchange),
        _ => None,
    }
}

pub fn xattr_mode(flags: i32) -> XattrMode {
    match flags {
        libc::XATTR_CREATE => XattrMode::Create,
        libc::XATTR_REPLACE => XattrMode::Replace,
        _ => XattrMode::Any,
    }
}

pub fn lock(owner: LockOwner, (start, end): (u64, u64), kind: i32, pid: u32) -> FileLock {
    FileLock { owner, start, end, exclusive: kind == libc::F_WRLCK, pid }
}

/// Names in the format of `listxattr`: each followed by a NUL.
pub fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    let ended = names.iter().flat_map(|name| name.iter().chain(&[0]));
    ended.copied().collect()
}

/// The file type of a mode.
fn kind_of_mode(mode: u32) -> Option<FileKind> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => Some(FileKind::File),
        libc::S_IFIFO => Some(FileKind::Fifo),
        libc::S_IFSOCK => Some(FileKind::Socket),
        libc::S_IFCHR => Some(FileKind::CharDevice),
        libc::S_IFBLK => Some(FileKind::BlockDevice),
        _ => None,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nanos));
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let seconds =
        if time.secs >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    seconds.and_then(|time| time.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

pub fn set_time(time: TimeOrNow) -> SetTime {
    let time = match time {
        TimeOrNow::Now => return SetTime::Now,
        TimeOrNow::SpecificTime(time) => time,
    };
    SetTime::At(match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { secs: after.as_secs() as i64, nanos: after.subsec_nanos() },
        // The kernel counts nanoseconds forwards from a negative second. fuser 0.18 counts them
        // backwards when it builds the SystemTime, which this reverts.
        Err(before) => Timestamp {
            secs: -(before.duration().as_secs() as i64),
            nanos: before.duration().subsec_nanos(),
        },
    })
}

pub fn attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 1 << 20,
        flags: 0,
    }
}

/// A negative entry, which the kernel may cache.
pub fn absent() -> FileAttr {
    attr(&Attr::default())
}

pub fn open_mode(flags: i32) -> OpenMode {
    let access = flags & libc::O_ACCMODE;
    OpenMode {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        truncate: flags & libc::O_TRUNC != 0,
        descriptor: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_convert_to_system_time() {
        let shown = |secs, nanos| system_time(Timestamp { secs, nanos });
        assert_eq!(shown(5, 1), UNIX_EPOCH + Duration::new(5, 1));
        assert_eq!(shown(-7, 5), UNIX_EPOCH - Duration::new(6, 999_999_995));
    }

    #[test]
    fn times_before_1970_convert_from_the_kernel() {
        let taken = |time| set_time(TimeOrNow::SpecificTime(time));
        let wanted = |secs, nanos| SetTime::At(Timestamp { secs, nanos });
        assert_eq!(taken(UNIX_EPOCH + Duration::new(5, 1)), wanted(5, 1));
        // The result of fuser for -7 s and 5 ns.
        assert_eq!(taken(UNIX_EPOCH - Duration::new(7, 5)), wanted(-7, 5));
    }
}
