//! Conversions between the types of FUSE and of the protocol.

use forebay_fuse::{FileAttr, FileType, INodeNo, LockRequest, NewMode, Time, TimeOrNow};
use forebay_protocol::lock::FileLock;
use forebay_protocol::message::{
    CreateMode, NewInode, OnExisting, OpenMode, SetTime, TrailingField, XattrMode,
};
use forebay_protocol::{Attr, FileKind, Ino, LockOwner, Timestamp};

/// `FMODE_EXEC` of the kernel in the flags of an open: the file is opened to be executed.
pub const FMODE_EXEC: i32 = 0x20;
/// The bits of `access(2)`.
pub const ACCESS_READ: u16 = 4;
pub const ACCESS_EXECUTE: u16 = 1;

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
pub fn create_mode(NewMode { mode, umask }: NewMode) -> CreateMode {
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

pub fn on_existing(flags: u32) -> Option<OnExisting> {
    match flags {
        0 => Some(OnExisting::Replace),
        libc::RENAME_NOREPLACE => Some(OnExisting::Fail),
        libc::RENAME_EXCHANGE => Some(OnExisting::Exchange),
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

/// On a local file system locks of `flock` and `fcntl` are independent.
pub fn lock(request: &LockRequest) -> FileLock {
    let forebay_fuse::Lock { start, end, kind, pid } = request.lock;
    let number = request.owner.0;
    let owner = if request.flock { LockOwner::Flock(number) } else { LockOwner::Fcntl(number) };
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

fn time(time: Timestamp) -> Time {
    Time { secs: time.secs, nanos: time.nanos }
}

pub fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::At(Time { secs, nanos }) => SetTime::At(Timestamp { secs, nanos }),
    }
}

pub fn attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        kind: file_type(attr.kind),
        perm: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 1 << 20,
    }
}

pub fn open_mode(flags: i32) -> OpenMode {
    let access = flags & libc::O_ACCMODE;
    OpenMode {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        truncate: flags & libc::O_TRUNC != 0,
        descriptor: true,
        keep_access_time: TrailingField(flags & libc::O_NOATIME != 0),
    }
}
