//! Messages of the kernel's FUSE by their layout (`include/uapi/linux/fuse.h` of Linux 6.18, protocol
//! version 7.45). Fields are in the byte order of the machine; those that start with `_` are unused.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub const MAJOR_VERSION: u32 = 7;
/// Minor version that replies name: that of Linux 6.9, with passthrough.
pub const MINOR_VERSION: u32 = 40;
/// Smallest minor version of a kernel: Linux 5.4. All messages have their present layout since then.
pub const OLDEST_MINOR_VERSION: u32 = 31;

/// Size of the smallest buffer that the kernel accepts for requests, in bytes.
pub const MIN_READ_BUFFER: usize = 8192;

/// Numbers of requests, `enum fuse_opcode`.
pub mod opcode {
    #![allow(missing_docs, reason = "the names of the kernel")]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
}

/// Numbers of notifications, `enum fuse_notify_code`.
pub mod notify {
    #![allow(missing_docs, reason = "the names of the kernel")]
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    /// Since Linux 6.16.
    pub const INC_EPOCH: i32 = 8;
}

/// Bits of [`SetattrIn::valid`], `FATTR_*`.
pub mod valid {
    #![allow(missing_docs, reason = "the names of the kernel")]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// Bit of [`GetattrIn::getattr_flags`]: the file handle is valid.
pub const GETATTR_FH: u32 = 1;
/// Bit of [`LkIn::lk_flags`]: the lock is one of `flock(2)`.
pub const LK_FLOCK: u32 = 1;
/// Bit of [`FsyncIn::fsync_flags`]: only data, and what is needed to read them.
pub const FSYNC_FDATASYNC: u32 = 1;

/// Declares messages by their fields.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $($(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[allow(missing_docs, reason = "the names of the kernel")]
        pub struct $name { $(pub $field: $type),* })*
    };
}

messages! {
    /// First part of each request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        total_extlen: u16, _padding: u16,
    }
    /// First part of each reply and notification.
    OutHeader { len: u32, error: i32, unique: u64 }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, _unused: [u32; 11] }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16,
        _map_alignment: u16, flags2: u32, max_stack_depth: u32, _request_timeout: u16,
        _unused: [u16; 11],
    }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32,
        blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, _dummy: u32, attr: Attr }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    CreateOut { entry: EntryOut, open: OpenOut }
    WriteOut { size: u32, _padding: u32 }
    GetxattrOut { size: u32, _padding: u32 }
    LseekOut { offset: u64 }
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32,
        frsize: u32, _padding: u32, _spare: [u32; 6],
    }
    /// An entry of a listing; the name, and zeros up to a multiple of 8 bytes, follow.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }

    ForgetIn { nlookup: u64 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    BatchForgetIn { count: u32, _dummy: u32 }
    GetattrIn { getattr_flags: u32, _dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, _padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64,
        ctime: i64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, _unused4: u32,
        uid: u32, gid: u32, _unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, _padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, _padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, _padding: u32 }
    WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, _padding: u32,
    }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FsyncIn { fh: u64, fsync_flags: u32, _padding: u32 }
    /// Without `FUSE_SETXATTR_EXT`.
    SetxattrIn { size: u32, flags: u32 }
    GetxattrIn { size: u32, _padding: u32 }
    FlushIn { fh: u64, _unused: u32, _padding: u32, lock_owner: u64 }
    LkIn { fh: u64, owner: u64, lock: FileLock, lk_flags: u32, _padding: u32 }
    AccessIn { mask: u32, _padding: u32 }
    InterruptIn { unique: u64 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, _padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, _padding: u32 }
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, length: u64, flags: u64,
    }

    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    /// Argument of the `ioctl` that registers a file for passthrough.
    BackingMap { fd: i32, flags: u32, _padding: u64 }
}

bitflags::bitflags! {
    /// Capabilities of the kernel, and those of them that a session uses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of a file at a time.
        const ASYNC_READ = 1 << 0;
        /// Locks of `fcntl` are requests.
        const POSIX_LOCKS = 1 << 1;
        /// An open truncates.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// Writes of more than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The kernel does not apply the mask of the process.
        const DONT_MASK = 1 << 6;
        /// Locks of `flock` are requests.
        const FLOCK_LOCKS = 1 << 10;
        /// Listings with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between listings with and without attributes.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Several direct requests of a program at a time.
        const ASYNC_DIO = 1 << 15;
        /// Several lookups and listings of a directory at a time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The kernel checks access control lists.
        const POSIX_ACL = 1 << 20;
        /// The reply names the largest request in pages.
        const MAX_PAGES = 1 << 22;
        /// `ENOSYS` for an open of a directory means that none is needed.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// The file system clears set-id bits.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// There are more than 32 bits.
        const INIT_EXT = 1 << 30;
        /// Shared memory maps of files that are open for direct access.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// The kernel accesses registered files directly.
        const PASSTHROUGH = 1 << 37;
    }

    /// Properties of an open file, in the reply to the open.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// Reads and writes do not use the page cache.
        const DIRECT_IO = 1 << 0;
        /// The open leaves the page cache as it is.
        const KEEP_CACHE = 1 << 1;
        /// Several direct writes at a time.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// The kernel accesses a registered file directly.
        const PASSTHROUGH = 1 << 7;
    }

    /// Properties of a read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReadFlags: u32 {
        /// The owner of locks is valid: a program reads. The kernel names none when it reads pages into its
        /// page cache.
        const LOCK_OWNER = 1 << 1;
    }

    /// Properties of a write.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// The data come from the page cache.
        const CACHE = 1 << 0;
        /// The owner of locks is valid.
        const LOCK_OWNER = 1 << 1;
        /// The set-id bits are to be cleared.
        const KILL_SUIDGID = 1 << 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes in the header of the kernel.
    #[test]
    fn sizes_are_those_of_the_kernel() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<InitIn>(), 64);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<Dirent>(), 24);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<LkIn>(), 48);
        assert_eq!(size_of::<CopyFileRangeIn>(), 56);
        assert_eq!(size_of::<BackingMap>(), 16);
    }
}
