//! The operations of a file system.

use crate::abi::{ReadFlags, WriteFlags};
use crate::incoming::{Incoming, Request};
use crate::init::KernelConfig;
use crate::reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use crate::types::{
    CopyRange, FileHandle, INodeNo, LockOwner, LockRequest, NewMode, RequestId, SetAttr,
};
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

/// Declares operations that fail with `ENOSYS` unless a file system implements them.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $reply:ty;)*) => {
        $($(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "those of the request")]
        fn $name(&self, request: &Request, $($argument: $type,)* reply: $reply) {
            let _ = (request, $($argument),*);
            reply.error(libc::ENOSYS);
        })*
    };
}

/// The operations of a file system. They run on the threads that receive requests.
pub trait Filesystem: Send + Sync + 'static {
    /// The first request: chooses from the capabilities of the kernel. An error ends the session.
    fn init(&self, _config: &mut KernelConfig) -> io::Result<()> {
        Ok(())
    }

    /// A request has been received. This carries it out.
    fn receive(self: &Arc<Self>, incoming: Incoming<'_>)
    where
        Self: Sized,
    {
        incoming.dispatch(&**self);
    }

    /// The kernel gives up this number of the uses of an inode that replies have given it.
    fn forget(&self, _ino: INodeNo, _lookups: u64) {}

    /// A signal has interrupted the process that waits for the reply to a request. The reply is due
    /// nevertheless, and may be `EINTR`. The request may not have been seen yet, or be done.
    fn interrupt(&self, _request: RequestId) {}

    operations! {
        /// The inode with a name.
        fn lookup(parent: INodeNo, name: &OsStr) -> ReplyEntry;
        /// The attributes of an inode, which may be asked for through an open file.
        fn getattr(ino: INodeNo, handle: Option<FileHandle>) -> ReplyAttr;
        /// Changes attributes.
        fn setattr(ino: INodeNo, set: &SetAttr) -> ReplyAttr;
        /// The target of a symbolic link.
        fn readlink(ino: INodeNo) -> ReplyData;
        /// Creates a file, pipe, socket or device.
        fn mknod(parent: INodeNo, name: &OsStr, mode: NewMode, rdev: u32) -> ReplyEntry;
        /// Creates a directory.
        fn mkdir(parent: INodeNo, name: &OsStr, mode: NewMode) -> ReplyEntry;
        /// Removes a name of anything but a directory.
        fn unlink(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        /// Removes a directory.
        fn rmdir(parent: INodeNo, name: &OsStr) -> ReplyEmpty;
        /// Creates a symbolic link.
        fn symlink(parent: INodeNo, name: &OsStr, target: &OsStr) -> ReplyEntry;
        /// Renames, with the flags of `renameat2(2)`.
        fn rename(
            parent: INodeNo, name: &OsStr, to_parent: INodeNo, to_name: &OsStr, flags: u32,
        ) -> ReplyEmpty;
        /// Gives an inode another name.
        fn link(ino: INodeNo, parent: INodeNo, name: &OsStr) -> ReplyEntry;
        /// Opens a file, with the flags of `open(2)`.
        fn open(ino: INodeNo, flags: i32) -> ReplyOpen;
        /// Creates a file unless the name exists, and opens it.
        fn create(parent: INodeNo, name: &OsStr, mode: NewMode, flags: i32) -> ReplyCreate;
        /// Creates a file without a name in a directory, and opens it (`O_TMPFILE`).
        fn tmpfile(parent: INodeNo, mode: NewMode, flags: i32) -> ReplyCreate;
        /// Reads at most `size` bytes. `open_flags` are those of `open(2)` and `fcntl(2)`.
        fn read(
            ino: INodeNo, handle: FileHandle, offset: u64, size: u32, flags: ReadFlags,
            open_flags: i32,
        ) -> ReplyData;
        /// Writes. `open_flags` are those of `open(2)` and `fcntl(2)`.
        fn write(
            ino: INodeNo, handle: FileHandle, offset: u64, data: &[u8], flags: WriteFlags,
            open_flags: i32,
        ) -> ReplyWrite;
        /// A process closes a descriptor of an open file.
        fn flush(ino: INodeNo, handle: FileHandle, owner: LockOwner) -> ReplyEmpty;
        /// The last descriptor of an open file has been closed.
        fn release(ino: INodeNo, handle: FileHandle) -> ReplyEmpty;
        /// Makes a file durable.
        fn fsync(ino: INodeNo, handle: FileHandle, data_only: bool) -> ReplyEmpty;
        /// Opens a directory.
        fn opendir(ino: INodeNo) -> ReplyOpen;
        /// The entries of a directory after the one with the cookie `offset`.
        fn readdir(ino: INodeNo, handle: FileHandle, offset: u64) -> ReplyDirectory;
        /// The same with attributes.
        fn readdirplus(ino: INodeNo, handle: FileHandle, offset: u64) -> ReplyDirectoryPlus;
        /// The last descriptor of an open directory has been closed.
        fn releasedir(ino: INodeNo, handle: FileHandle) -> ReplyEmpty;
        /// Makes a directory durable.
        fn fsyncdir(ino: INodeNo, handle: FileHandle, data_only: bool) -> ReplyEmpty;
        /// Space and inodes.
        fn statfs(ino: INodeNo) -> ReplyStatfs;
        /// Sets an extended attribute, with the flags of `setxattr(2)`.
        fn setxattr(ino: INodeNo, name: &OsStr, value: &[u8], flags: i32) -> ReplyEmpty;
        /// The value of an extended attribute of at most `size` bytes, or its length if `size` is 0.
        fn getxattr(ino: INodeNo, name: &OsStr, size: u32) -> ReplyXattr;
        /// The names of extended attributes, each followed by a zero.
        fn listxattr(ino: INodeNo, size: u32) -> ReplyXattr;
        /// Removes an extended attribute.
        fn removexattr(ino: INodeNo, name: &OsStr) -> ReplyEmpty;
        /// Checks permissions, as `access(2)`.
        fn access(ino: INodeNo, mask: u32) -> ReplyEmpty;
        /// The lock that conflicts with one.
        fn getlk(ino: INodeNo, lock: &LockRequest) -> ReplyLock;
        /// Sets or removes a lock. `wait`: waits for one that conflicts.
        fn setlk(ino: INodeNo, lock: &LockRequest, wait: bool) -> ReplyEmpty;
        /// Allocates or frees space, with the flags of `fallocate(2)`.
        fn fallocate(
            ino: INodeNo, handle: FileHandle, offset: u64, length: u64, mode: i32,
        ) -> ReplyEmpty;
        /// The next data or hole, as `lseek(2)` with `SEEK_DATA` and `SEEK_HOLE`.
        fn lseek(ino: INodeNo, handle: FileHandle, offset: i64, whence: i32) -> ReplyLseek;
        /// Copies between open files.
        fn copy_file_range(range: &CopyRange) -> ReplyWrite;
    }
}
