//! Arguments of requests and replies.

use crate::abi;
use std::time::Duration;

/// The number of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct INodeNo(pub u64);

impl INodeNo {
    /// The root directory.
    pub const ROOT: INodeNo = INodeNo(1);
}

/// The number that the file system has given to an open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileHandle(pub u64);

/// The number that the kernel gives to an owner of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);

/// The number that the kernel gives to a request, until it has got the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A point in time, in seconds since 1970, and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds, less than 1,000,000,000.
    pub nanos: u32,
}

/// A new access or modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    /// That time.
    At(Time),
    /// The present time of the file system.
    Now,
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of POSIX")]
pub enum FileType {
    NamedPipe,
    CharDevice,
    Directory,
    BlockDevice,
    RegularFile,
    Symlink,
    Socket,
}

impl FileType {
    /// The type in a mode.
    pub fn mode(self) -> u32 {
        match self {
            FileType::NamedPipe => libc::S_IFIFO,
            FileType::CharDevice => libc::S_IFCHR,
            FileType::Directory => libc::S_IFDIR,
            FileType::BlockDevice => libc::S_IFBLK,
            FileType::RegularFile => libc::S_IFREG,
            FileType::Symlink => libc::S_IFLNK,
            FileType::Socket => libc::S_IFSOCK,
        }
    }

    /// The type in an entry of a directory, `DT_*`.
    pub(crate) fn dirent(self) -> u32 {
        self.mode() >> 12
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of stat(2)")]
pub struct FileAttr {
    pub ino: INodeNo,
    /// Length in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub kind: FileType,
    /// Permission, set-id and sticky bits.
    pub perm: u16,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Preferred size of requests in bytes.
    pub blksize: u32,
}

impl From<&FileAttr> for abi::Attr {
    fn from(attr: &FileAttr) -> abi::Attr {
        abi::Attr {
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            atime: attr.atime.secs,
            mtime: attr.mtime.secs,
            ctime: attr.ctime.secs,
            atimensec: attr.atime.nanos,
            mtimensec: attr.mtime.nanos,
            ctimensec: attr.ctime.nanos,
            mode: attr.kind.mode() | u32::from(attr.perm),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            blksize: attr.blksize,
            flags: 0,
        }
    }
}

/// An inode under a name for which the kernel may use it and its attributes for `ttl`.
pub(crate) fn entry_out(attr: &FileAttr, ttl: Duration) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: attr.ino.0,
        generation: 0, // numbers of inodes are not used again
        entry_valid: ttl.as_secs(),
        attr_valid: ttl.as_secs(),
        entry_valid_nsec: ttl.subsec_nanos(),
        attr_valid_nsec: ttl.subsec_nanos(),
        attr: attr.into(),
    }
}

/// New attributes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// The mode with the type.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length in bytes.
    pub size: Option<u64>,
    /// The time of the last access.
    pub atime: Option<TimeOrNow>,
    /// The time of the last modification.
    pub mtime: Option<TimeOrNow>,
    /// An open file through which the attributes are changed.
    pub handle: Option<FileHandle>,
}

impl From<&abi::SetattrIn> for SetAttr {
    fn from(set: &abi::SetattrIn) -> SetAttr {
        let has = |bit| set.valid & bit != 0;
        let time = |bit, now, secs, nanos| match (has(bit), has(now)) {
            (_, true) => Some(TimeOrNow::Now),
            (true, false) => Some(TimeOrNow::At(Time { secs, nanos })),
            (false, false) => None,
        };
        use abi::valid;
        SetAttr {
            mode: has(valid::MODE).then_some(set.mode),
            uid: has(valid::UID).then_some(set.uid),
            gid: has(valid::GID).then_some(set.gid),
            size: has(valid::SIZE).then_some(set.size),
            atime: time(valid::ATIME, valid::ATIME_NOW, set.atime, set.atimensec),
            mtime: time(valid::MTIME, valid::MTIME_NOW, set.mtime, set.mtimensec),
            handle: has(valid::FH).then_some(FileHandle(set.fh)),
        }
    }
}

/// A range of a file, and who locks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: i32,
    /// The process.
    pub pid: u32,
}

/// A request to set or test a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: FileHandle,
    /// The owner of the lock.
    pub owner: LockOwner,
    /// The lock.
    pub lock: Lock,
    /// It is one of `flock(2)`, whose owners are other than those of `fcntl(2)`.
    pub flock: bool,
}

impl From<&abi::LkIn> for LockRequest {
    fn from(request: &abi::LkIn) -> LockRequest {
        let abi::FileLock { start, end, kind, pid } = request.lock;
        LockRequest {
            handle: FileHandle(request.fh),
            owner: LockOwner(request.owner),
            lock: Lock { start, end, kind: kind as i32, pid },
            flock: request.lk_flags & abi::LK_FLOCK != 0,
        }
    }
}

/// Space and inodes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Unit of `blocks`, `free` and `available`, in bytes.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that programs can count on.
    pub available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_length: u32,
}

/// The mode of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMode {
    /// The mode that the process asks for, with the type.
    pub mode: u32,
    /// The mask of the process, which the kernel has not applied with
    /// [`DONT_MASK`](abi::InitFlags::DONT_MASK).
    pub umask: u32,
}

/// A range to copy between files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The file to read, and the first byte.
    pub from: (FileHandle, u64),
    /// The file to write, and the first byte.
    pub to: (FileHandle, u64),
    /// Number of bytes.
    pub length: u64,
}
