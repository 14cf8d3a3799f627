//! The kernel's requests.

use super::convert::{self, errno, open_mode};
use super::served::{MountedFs, attributes, empty, entry, xattr};
use forebay_wire::Kind;
use forebay_wire::Request as wire;
use forebay_wire::message::{New, OnExisting, SetAttr, XattrMode};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Largest read or write in one request.
const MAX_IO: u32 = 1 << 20;
/// Cookies of the entries that every directory has.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

thread_local! {
    /// Reads of this thread land here on their way to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for MountedFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each of these is an improvement where the kernel knows it, and dispensable where not.
        for flag in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_MAX_PAGES,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            let _ = config.add_capabilities(flag);
        }
        let usable = self.trusted
            && self.passthrough()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        self.passthrough.store(usable, Ordering::Release);
        let _ = config.set_max_write(MAX_IO);
        let _ = config.set_max_readahead(MAX_IO);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self
            .fs_for(request)
            .lookup_for(convert::ino(parent), name.as_bytes());
        match found {
            Ok((Some(attr), valid)) => entry(reply, Ok((attr, valid))),
            Ok((None, valid)) if valid.is_zero() => reply.error(fuser::Errno::ENOENT),
            Ok((None, valid)) => reply.entry(&valid, &convert::absent(), Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ino = convert::ino(ino);
        attributes(reply, self.fs_for(request).attr_for(wire::GetAttr { ino }));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
        };
        attributes(reply, self.do_set_attr(request, ino, handle, set));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.fs_for(request).read_link(convert::ino(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = convert::kind_of_mode(mode) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let rdev = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
            rdev
        } else {
            0
        };
        entry(
            reply,
            self.make(request, parent, name, New::Node(kind, rdev), mode),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        entry(reply, self.make(request, parent, name, New::Dir, mode));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            reply,
            self.fs_for(request)
                .unlink(convert::ino(parent), name.as_bytes()),
        );
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            reply,
            self.fs_for(request)
                .rmdir(convert::ino(parent), name.as_bytes()),
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = New::Symlink(target.as_os_str().as_bytes().to_vec());
        entry(reply, self.make(request, parent, name, new, 0o777));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let existing = match flags {
            f if f == RenameFlags::empty() => OnExisting::Replace,
            RenameFlags::RENAME_NOREPLACE => OnExisting::Fail,
            RenameFlags::RENAME_EXCHANGE => OnExisting::Exchange,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let from = (convert::ino(parent), name.as_bytes());
        let to = (convert::ino(to), to_name.as_bytes());
        empty(reply, self.fs_for(request).rename(from, to, existing));
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (ino, parent) = (convert::ino(ino), convert::ino(parent));
        let request_link = wire::Link {
            ino,
            parent,
            name: name.as_bytes().to_vec(),
        };
        entry(reply, self.fs_for(request).attr_for(request_link));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self
            .fs_for(request)
            .open(convert::ino(ino), open_mode(flags.0));
        let answer = opened.and_then(|opened| {
            self.take_in(&opened, flags.0, |descriptor| {
                reply.open_backing(descriptor)
            })
        });
        match answer {
            Ok(answer) => match answer.backing {
                Some(id) => {
                    self.registered();
                    reply.opened_passthrough(answer.handle, answer.flags, &id);
                }
                None => reply.opened(answer.handle, answer.flags),
            },
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let exclusive = flags & libc::O_EXCL != 0;
        let fs = self.fs_for(request);
        let mode = (mode & 0o7777) as u16;
        let made = fs.create(
            convert::ino(parent),
            name.as_bytes(),
            mode,
            exclusive,
            open_mode(flags),
        );
        let answer = made.and_then(|opened| {
            let taken =
                self.take_in(&opened, flags, |descriptor| reply.open_backing(descriptor))?;
            Ok((convert::attr(&opened.attr), opened.valid, taken))
        });
        match answer {
            Ok((attr, valid, answer)) => match answer.backing {
                Some(id) => {
                    self.registered();
                    let (handle, flags) = (answer.handle, answer.flags);
                    reply.created_passthrough(&valid, &attr, Generation(0), handle, flags, &id);
                }
                None => {
                    reply.created(&valid, &attr, Generation(0), answer.handle, answer.flags);
                }
            },
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.do_read(handle, offset, &mut buffer[..size]) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.do_write(handle, offset, data, write_flags) {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok(); // nothing is held back here
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.opens.close(handle);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.do_fsync(handle, data_only));
    }

    fn fsyncdir(
        &self,
        request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.fs_for(request).sync());
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let (fs, dir) = (self.fs_for(request), convert::ino(ino));
        if offset < DOT && reply.add(ino, DOT, fuser::FileType::Directory, ".") {
            return reply.ok();
        }
        if offset < DOT_DOT {
            let parent = fs
                .lookup(dir, b"..")
                .map_or(ino, |attr| INodeNo(attr.ino.0));
            if reply.add(parent, DOT_DOT, fuser::FileType::Directory, "..") {
                return reply.ok();
            }
        }
        match fs.read_dir(dir, offset.max(DOT_DOT), 16 * 1024, false) {
            Ok(page) => {
                for entry in page.entries {
                    let kind = convert::file_type(entry.kind);
                    let name = OsStr::from_bytes(&entry.name);
                    if reply.add(INodeNo(entry.ino.0), entry.cookie, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (fs, dir) = (self.fs_for(request), convert::ino(ino));
        for (cookie, name) in [(DOT, "."), (DOT_DOT, "..")] {
            if offset < cookie {
                // The kernel takes only number and kind of these two.
                let Ok(attr) = fs.lookup(dir, name.as_bytes()) else {
                    continue;
                };
                let (attr, none) = (convert::attr(&attr), Duration::ZERO);
                if reply.add(attr.ino, cookie, name, &none, &attr, Generation(0)) {
                    return reply.ok();
                }
            }
        }
        match fs.read_dir(dir, offset.max(DOT_DOT), 64 * 1024, true) {
            Ok(page) => {
                for entry in &page.entries {
                    let Some(attr) = &entry.attr else { continue };
                    let (attr, name) = (convert::attr(attr), OsStr::from_bytes(&entry.name));
                    let full = reply.add(
                        attr.ino,
                        entry.cookie,
                        name,
                        &page.valid,
                        &attr,
                        Generation(0),
                    );
                    if full {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.fs_for(request).stat_fs() {
            Ok(stat) => {
                let block = 4096;
                let free = stat.capacity.saturating_sub(stat.used) / block;
                let files_free = stat.inodes.saturating_sub(stat.inodes_used);
                let blocks = stat.capacity / block;
                reply.statfs(blocks, free, free, stat.inodes, files_free, 4096, 255, 4096);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        let fs = self.fs_for(request);
        empty(
            reply,
            fs.set_xattr(convert::ino(ino), name.as_bytes(), value, mode),
        );
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        xattr(
            reply,
            size,
            self.fs_for(request)
                .get_xattr(convert::ino(ino), name.as_bytes()),
        );
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.fs_for(request).list_xattr(convert::ino(ino));
        let joined = names.map(|names| {
            names
                .into_iter()
                .flat_map(|name| name.into_iter().chain([0]))
                .collect::<Vec<u8>>()
        });
        xattr(reply, size, joined);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            reply,
            self.fs_for(request)
                .remove_xattr(convert::ino(ino), name.as_bytes()),
        );
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.do_allocate(handle, offset, length, mode));
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.do_seek(handle, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _ino_in: INodeNo,
        handle_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        handle_out: FileHandle,
        offset_out: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        match self.do_copy((handle_in, offset_in), (handle_out, offset_out), length) {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(errno(error)),
        }
    }
}
