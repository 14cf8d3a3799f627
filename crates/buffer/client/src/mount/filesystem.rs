//! The requests of the kernel.

use super::convert;
use super::kernel_cache::Versions;
use super::mounted_fs::MountedFs;
use super::reply::{attributes, empty, entry, written, xattr};
use forebay_fuse::{
    CopyRange, FileHandle, Filesystem, INodeNo, Incoming, KernelConfig, LockOwner, LockRequest,
    NewMode, ReadFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, RequestId, SetAttr, WriteFlags,
};
use forebay_protocol::message::{self, CreateMode, NewInode};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Implements operations of [`Filesystem`]. Each is counted and timed under its name.
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

        impl Filesystem for MountedFs {
            fn init(&self, config: &mut KernelConfig) -> io::Result<()> {
                self.negotiate(config);
                Ok(())
            }

            /// The request is carried out by another thread if few are left to receive requests.
            fn receive(self: &Arc<Self>, incoming: Incoming<'_>) {
                let _receiving = self.threads.begin();
                if !self.threads.are_scarce() {
                    return incoming.dispatch(&**self);
                }
                let (fs, held) = (self.clone(), incoming.hold());
                self.threads.carry_out(Box::new(move || held.dispatch(&*fs)));
            }

            fn interrupt(&self, request: RequestId) {
                self.lock_waits.interrupt(request);
            }

            $(fn $name(&$this, $request: &Request $(, $argument: $type)*) {
                let _timed = $this.counters.time(Operation::$name as usize);
                $this.kernel_cache.begin_operation();
                $body
            })*
        }
    };
}

operations! {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.do_lookup(request, parent, name, reply);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.do_get_attr(request, ino);
        let found = self.attributes_or_kept(convert::ino(ino), found);
        let found = self.note_if_removed(convert::ino(ino), found).map(|(mut attr, ttl)| {
            self.show_read(&mut attr);
            (attr, ttl)
        });
        attributes((&self.kernel_cache, Versions::Compared), reply, found);
    }

    fn setattr(&self, request: &Request, ino: INodeNo, new: &SetAttr, reply: ReplyAttr) {
        let set = message::SetAttr {
            mode: new.mode.map(|mode| (mode & 0o7777) as u16),
            uid: new.uid,
            gid: new.gid,
            size: new.size,
            atime: new.atime.map(convert::set_time),
            mtime: new.mtime.map(convert::set_time),
            clear_set_id: false,
        };
        let set = self.do_set_attr(request, ino, new.handle, set);
        let set = self.note_if_removed(convert::ino(ino), set);
        attributes((&self.kernel_cache, Versions::Ignored), reply, set);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let (fs, ino) = (self.fs_for(request), convert::ino(ino));
        match self.note_if_removed(ino, self.link_target(&fs, ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error.0),
        }
    }

    fn mknod(
        &self, request: &Request, parent: INodeNo, name: &OsStr, mode: NewMode, rdev: u32,
        reply: ReplyEntry
    ) {
        let Some(new) = convert::new_node(mode.mode, rdev) else {
            return reply.error(libc::EINVAL);
        };
        let made = self.make_inode(request, parent, name, new, convert::create_mode(mode));
        entry((&self.kernel_cache, Versions::Ignored), reply, made);
    }

    fn mkdir(
        &self, request: &Request, parent: INodeNo, name: &OsStr, mode: NewMode, reply: ReplyEntry
    ) {
        let mode = convert::create_mode(mode);
        let made = self.make_inode(request, parent, name, NewInode::Dir, mode);
        entry((&self.kernel_cache, Versions::Ignored), reply, made);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Some(reply) = self.unlink_delegated(request, parent, name, reply) else {
            return;
        };
        let change = self.kernel_cache.attributes.change_entry(convert::ino(parent));
        let removed = self.fs_for(request).unlink(convert::ino(parent), name.as_bytes());
        if removed.is_ok() {
            change.removed(name.as_bytes());
        }
        // With the reply the kernel asks for the attributes of the directory.
        drop(change);
        empty(reply, removed);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _change = self.kernel_cache.attributes.change_any(); // the directory is unknown
        empty(reply, self.fs_for(request).rmdir(convert::ino(parent), name.as_bytes()));
    }

    fn symlink(
        &self, request: &Request, parent: INodeNo, name: &OsStr, target: &OsStr, reply: ReplyEntry
    ) {
        let new = NewInode::Symlink(target.as_bytes().to_vec());
        let made = self.make_inode(request, parent, name, new, CreateMode::from(0o777));
        entry((&self.kernel_cache, Versions::Ignored), reply, made);
    }

    fn rename(
        &self, request: &Request, parent: INodeNo, name: &OsStr, to: INodeNo, to_name: &OsStr,
        flags: u32, reply: ReplyEmpty
    ) {
        let Some(existing) = convert::on_existing(flags) else {
            return reply.error(libc::EINVAL);
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
        let linked = self.do_link(request, ino, parent, name);
        entry((&self.kernel_cache, Versions::Ignored), reply, linked);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: i32, reply: ReplyOpen) {
        self.do_open(request, ino, flags, reply);
    }

    fn create(
        &self, request: &Request, parent: INodeNo, name: &OsStr, mode: NewMode, flags: i32,
        reply: ReplyCreate
    ) {
        self.do_create(request, (parent, name), convert::create_mode(mode), flags, reply);
    }

    fn tmpfile(
        &self, request: &Request, parent: INodeNo, mode: NewMode, flags: i32, reply: ReplyCreate
    ) {
        self.do_tmpfile(request, parent, convert::create_mode(mode), flags, reply);
    }

    fn read(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, size: u32,
        flags: ReadFlags, open_flags: i32, reply: ReplyData
    ) {
        self.counters.read_requested.add(u64::from(size));
        self.do_read(handle, (offset, size), (flags, open_flags), reply);
    }

    fn write(
        &self, request: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, data: &[u8],
        flags: WriteFlags, open_flags: i32, reply: ReplyWrite
    ) {
        self.counters.written.add(data.len() as u64);
        // `fcntl` can change the flags at any time.
        written(reply, self.do_write(request, handle, (offset, open_flags), data, flags));
    }

    fn flush(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, owner: LockOwner,
        reply: ReplyEmpty
    ) {
        empty(reply, self.do_flush(handle, owner.0));
    }

    fn getlk(&self, _request: &Request, _ino: INodeNo, lock: &LockRequest, reply: ReplyLock) {
        self.do_test_lock(lock, reply);
    }

    fn setlk(
        &self, request: &Request, _ino: INodeNo, lock: &LockRequest, wait: bool, reply: ReplyEmpty
    ) {
        self.do_set_lock(request, lock, wait, reply);
    }

    fn release(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
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
        &self, request: &Request, ino: INodeNo, _handle: FileHandle, _data_only: bool,
        reply: ReplyEmpty
    ) {
        empty(reply, self.sync_directory(request, convert::ino(ino)));
    }

    fn opendir(&self, request: &Request, ino: INodeNo, reply: ReplyOpen) {
        self.do_open_dir(request, ino, reply);
    }

    fn releasedir(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, reply: ReplyEmpty
    ) {
        self.open_directories.close(handle);
        reply.ok();
    }

    fn access(&self, request: &Request, ino: INodeNo, mask: u32, reply: ReplyEmpty) {
        let permitted = self.do_access(request, ino, (mask & 7) as u16);
        empty(reply, self.note_if_removed(convert::ino(ino), permitted));
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
        reply: ReplyEmpty
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

    fn lseek(
        &self, _request: &Request, _ino: INodeNo, handle: FileHandle, offset: i64, whence: i32,
        reply: ReplyLseek
    ) {
        match self.do_lseek(handle, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error.0),
        }
    }

    fn copy_file_range(&self, request: &Request, range: &CopyRange, reply: ReplyWrite) {
        written(reply, self.do_copy_file_range(request, range));
    }
}
