//! The requests of the kernel.

use super::arguments::{Argument, Request};
use super::busy_threads::BusyThreads;
use super::convert::{self, errno};
use super::kernel_cache::Versions;
use super::lock_owner::lock_owner;
use super::mounted_fs::MountedFs;
use super::reply::{attributes, empty, entry, written, xattr};
use forebay_protocol::message::{CreateMode, NewInode, SetAttr};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A mounted instance, and the threads that receive its requests.
#[derive(Debug)]
pub struct Served {
    fs: Arc<MountedFs>,
    threads: Arc<BusyThreads>,
}

impl Served {
    /// An instance whose requests are received by this number of threads.
    pub fn new(fs: MountedFs, threads: usize) -> Served {
        Served { fs: Arc::new(fs), threads: Arc::new(BusyThreads::new(threads)) }
    }
}

/// Implements operations of [`Filesystem`]. Each is counted and timed under its name, and carried out
/// by another thread if few are left to receive requests.
macro_rules! operations {
    ($(fn $name:ident(
        &$this:ident, $request:ident: &Request $(, $argument:ident: $type:ty)* $(,)?
    ) $body:block)*) => {
        #[allow(non_camel_case_types, reason = "the names of the methods")]
        enum Operation {
            $($name),*
        }

        /// The names of all operations.
        pub const OPERATIONS: &[&str] = &[$(stringify!($name)),*];

        impl MountedFs {
            $(
            #[allow(clippy::too_many_arguments, reason = "those of the trait")]
            fn $name(&$this, $request: &Request $(, $argument: $type)*) {
                let _timed = $this.counters.time(Operation::$name as usize);
                $this.kernel_cache.begin_operation();
                $body
            })*
        }

        impl Filesystem for Served {
            fn init(
                &mut self, _request: &fuser::Request, config: &mut KernelConfig
            ) -> io::Result<()> {
                let fs = Arc::get_mut(&mut self.fs);
                let fs = fs.ok_or_else(|| io::Error::other("requests before the first one"))?;
                fs.negotiate(config);
                Ok(())
            }

            $(fn $name(&self, request: &fuser::Request $(, $argument: $type)*) {
                let request = Request::from(request);
                let _receiving = self.threads.begin();
                if !self.threads.are_scarce() {
                    return self.fs.$name(&request $(, $argument)*);
                }
                let fs = self.fs.clone();
                $(let mut $argument = Some(Argument::hold($argument));)*
                self.threads.carry_out(Box::new(move || {
                    fs.$name(&request $(, <$type as Argument<'_>>::lend(&mut $argument))*);
                }));
            })*
        }
    };
}

operations! {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.do_lookup(request, parent, name, reply);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        attributes((&self.kernel_cache, Versions::Compared), reply, self.do_get_attr(request, ino));
    }

    fn setattr(
        &self, request: &Request, ino: INodeNo, mode: Option<u32>, uid: Option<u32>,
        gid: Option<u32>, size: Option<u64>, atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>, handle: Option<FileHandle>, _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>, _bkuptime: Option<SystemTime>, _flags: Option<BsdFileFlags>,
        reply: ReplyAttr
    ) {
        let set = SetAttr {
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            clear_set_id: false,
        };
        attributes((&self.kernel_cache, Versions::Ignored), reply, self.do_set_attr(request, ino, handle, set));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.fs_for(request).read_link(convert::ino(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32,
        reply: ReplyEntry
    ) {
        match convert::new_node(mode, rdev) {
            Some(new) => entry((&self.kernel_cache, Versions::Ignored), reply, self.make_inode(request, parent, name, new, convert::create_mode(mode, umask))),
            None => reply.error(fuser::Errno::EINVAL),
        }
    }

    fn mkdir(
        &self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32,
        reply: ReplyEntry
    ) {
        entry((&self.kernel_cache, Versions::Ignored), reply, self.make_inode(request, parent, name, NewInode::Dir, convert::create_mode(mode, umask)));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let change = self.kernel_cache.attributes.change([convert::ino(parent)]);
        let removed = self.fs_for(request).unlink(convert::ino(parent), name.as_bytes());
        // With the reply the kernel asks for the attributes of the directory.
        drop(change);
        empty(reply, removed);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _change = self.kernel_cache.attributes.change_any(); // the directory is unknown
        empty(reply, self.fs_for(request).rmdir(convert::ino(parent), name.as_bytes()));
    }

    fn symlink(
        &self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry
    ) {
        let new = NewInode::Symlink(target.as_os_str().as_bytes().to_vec());
        entry((&self.kernel_cache, Versions::Ignored), reply, self.make_inode(request, parent, name, new, CreateMode::from(0o777)));
    }

    fn rename(
        &self, request: &Request, parent: INodeNo, name: &OsStr, to: INodeNo, to_name: &OsStr,
        flags: RenameFlags, reply: ReplyEmpty
    ) {
        let Some(existing) = convert::on_existing(flags) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let from = (convert::ino(parent), name.as_bytes());
        let to = (convert::ino(to), to_name.as_bytes());
        for (dir, name) in [from, to] {
            self.negative_lookups.add_name(dir, name); // both may be replaced or removed
        }
        let _change = self.kernel_cache.attributes.change_any();
        self.kernel_cache.parents.clear();
        let renamed = self.fs_for(request).rename(from, to, existing);
        self.kernel_cache.parents.clear();
        empty(reply, renamed);
    }

    fn link(
        &self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry
    ) {
        entry((&self.kernel_cache, Versions::Ignored), reply, self.do_link(request, ino, parent, name));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.do_open(request, ino, flags.0, reply);
    }

    fn create(
        &self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32,
        reply: ReplyCreate
    ) {
        self.do_create(request, (parent, name), convert::create_mode(mode, umask), flags, reply);
    }

    fn read(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, size: u32,
        _flags: OpenFlags, _lock_owner: Option<LockOwner>, reply: ReplyData
    ) {
        self.counters.read_requested.add(u64::from(size));
        self.do_read(handle, offset, size, reply);
    }

    fn write(
        &self, request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, data: &[u8],
        write_flags: WriteFlags, flags: OpenFlags, _lock_owner: Option<LockOwner>,
        reply: ReplyWrite
    ) {
        self.counters.written.add(data.len() as u64);
        // `fcntl` can change it at any time.
        let append = flags.0 & libc::O_APPEND != 0;
        written(reply, self.do_write(request, handle, (offset, append), data, write_flags));
    }

    // No written data are buffered here.
    fn flush(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, owner: LockOwner,
        reply: ReplyEmpty
    ) {
        empty(reply, self.do_flush(handle, owner.0));
    }

    fn getlk(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, owner: LockOwner, start: u64,
        end: u64, kind: i32, pid: u32, reply: ReplyLock
    ) {
        let owner = forebay_protocol::LockOwner::Fcntl(owner.0);
        self.do_test_lock(handle, convert::lock(owner, (start, end), kind, pid), reply);
    }

    fn setlk(
        &self, request: &Request, _ino: INodeNo, handle: FileHandle, owner: LockOwner, start: u64,
        end: u64, kind: i32, pid: u32, sleep: bool, reply: ReplyEmpty
    ) {
        let owner = lock_owner(request.pid(), owner.0, (start, end));
        let wanted = convert::lock(owner, (start, end), kind, pid);
        self.do_set_lock(request.pid(), handle, (kind, wanted), sleep, reply);
    }

    fn release(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags,
        _lock_owner: Option<LockOwner>, _flush: bool, reply: ReplyEmpty
    ) {
        self.opens.close(handle);
        reply.ok();
    }

    fn fsync(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, data_only: bool,
        reply: ReplyEmpty
    ) {
        empty(reply, self.do_fsync(handle, data_only));
    }

    fn fsyncdir(
        &self, request: &Request, _ino: INodeNo, _handle: FileHandle, _data_only: bool,
        reply: ReplyEmpty
    ) {
        empty(reply, self.fs_for(request).sync());
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.do_open_dir(request, ino, reply);
    }

    fn releasedir(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags,
        reply: ReplyEmpty
    ) {
        self.open_directories.close(handle);
        reply.ok();
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        empty(reply, self.do_access(request, ino, (mask.bits() & 7) as u16));
    }

    fn readdir(
        &self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64,
        reply: ReplyDirectory
    ) {
        self.do_read_dir(request, (convert::ino(ino), handle), offset, reply);
    }

    fn readdirplus(
        &self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64,
        reply: ReplyDirectoryPlus
    ) {
        self.do_read_dir_plus(request, (convert::ino(ino), handle), offset, reply);
    }

    fn statfs(&self, request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.do_stat_fs(request, reply);
    }

    fn setxattr(
        &self, request: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32,
        _position: u32, reply: ReplyEmpty
    ) {
        let mode = convert::xattr_mode(flags);
        empty(reply, self.change_xattr(request, ino, name, |fs, ino| {
            fs.set_xattr(ino, name.as_bytes(), value, mode)
        }));
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if ino == INodeNo::ROOT && name == crate::mounted_instance::ATTRIBUTE {
            return xattr(reply, size, self.described_instance(request));
        }
        xattr(reply, size, self.do_get_xattr(request, ino, name));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.fs_for(request).list_xattr(convert::ino(ino));
        xattr(reply, size, names.map(|names| convert::joined(&names)));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.do_remove_xattr(request, ino, name));
    }

    fn fallocate(
        &self, request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, length: u64,
        mode: i32, reply: ReplyEmpty
    ) {
        empty(reply, self.do_fallocate(request, handle, (offset, length), mode));
    }

    fn ioctl(
        &self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _flags: IoctlFlags,
        _command: u32, _input: &[u8], _output_size: u32, reply: ReplyIoctl
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }

    fn lseek(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, offset: i64, whence: i32,
        reply: ReplyLseek
    ) {
        match self.do_lseek(handle, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self, request: &Request, _ino_in: INodeNo, handle_in: FileHandle, offset_in: u64,
        _ino_out: INodeNo, handle_out: FileHandle, offset_out: u64, length: u64,
        _flags: CopyFileRangeFlags, reply: ReplyWrite
    ) {
        let (from, to) = ((handle_in, offset_in), (handle_out, offset_out));
        written(reply, self.do_copy_file_range(request, from, to, length));
    }
}
