//! A file system that counts and times the operations of another one.

use super::counters::{Counters, Op};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Forwards every operation to `inner`, including those that it does not implement.
#[derive(Debug)]
pub struct Instrumented<F> {
    inner: F,
    counters: Arc<Counters>,
}

impl<F> Instrumented<F> {
    pub fn new(inner: F, counters: Arc<Counters>) -> Instrumented<F> {
        Instrumented { inner, counters }
    }

    fn time(&self, op: Op) -> Timed<'_> {
        Timed { counters: &self.counters, op, started: Instant::now() }
    }
}

/// Records the time of an operation when dropped.
struct Timed<'a> {
    counters: &'a Counters,
    op: Op,
    started: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.counters.record(self.op, self.started.elapsed());
    }
}

/// Operations that are timed and forwarded, each after the [`Op`] it counts as.
macro_rules! timed {
    ($($op:ident $name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            fn $name(&self, req: &Request, $($argument: $kind),*) {
                let _timed = self.time(Op::$op);
                self.inner.$name(req, $($argument),*);
            }
        )*
    };
}

impl<F: Filesystem> Filesystem for Instrumented<F> {
    fn init(&mut self, req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.inner.init(req, config)
    }

    fn destroy(&mut self) {
        self.inner.destroy()
    }

    fn forget(&self, req: &Request, ino: INodeNo, nlookup: u64) {
        self.inner.forget(req, ino, nlookup)
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.counters.read_requested.add(u64::from(size));
        let _timed = self.time(Op::Read);
        self.inner.read(req, ino, fh, offset, size, flags, lock_owner, reply);
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.counters.written.add(data.len() as u64);
        let _timed = self.time(Op::Write);
        self.inner.write(req, ino, fh, offset, data, write_flags, flags, lock_owner, reply);
    }

    timed! {
        Lookup lookup(parent: INodeNo, name: &OsStr, reply: ReplyEntry);
        Getattr getattr(ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr);
        Setattr setattr(
            ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
            atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>,
            fh: Option<FileHandle>, crtime: Option<SystemTime>, chgtime: Option<SystemTime>,
            bkuptime: Option<SystemTime>, flags: Option<BsdFileFlags>, reply: ReplyAttr
        );
        Readlink readlink(ino: INodeNo, reply: ReplyData);
        Mknod mknod(
            parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry
        );
        Mkdir mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry);
        Unlink unlink(parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
        Rmdir rmdir(parent: INodeNo, name: &OsStr, reply: ReplyEmpty);
        Symlink symlink(parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry);
        Rename rename(
            parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags,
            reply: ReplyEmpty
        );
        Link link(ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry);
        Open open(ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        Flush flush(ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty);
        Release release(
            ino: INodeNo, fh: FileHandle, flags: OpenFlags, lock_owner: Option<LockOwner>,
            flush: bool, reply: ReplyEmpty
        );
        Fsync fsync(ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty);
        Opendir opendir(ino: INodeNo, flags: OpenFlags, reply: ReplyOpen);
        Readdir readdir(ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory);
        Readdirplus readdirplus(
            ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus
        );
        Releasedir releasedir(ino: INodeNo, fh: FileHandle, flags: OpenFlags, reply: ReplyEmpty);
        Fsyncdir fsyncdir(ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty);
        Statfs statfs(ino: INodeNo, reply: ReplyStatfs);
        Setxattr setxattr(
            ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, position: u32, reply: ReplyEmpty
        );
        Getxattr getxattr(ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr);
        Listxattr listxattr(ino: INodeNo, size: u32, reply: ReplyXattr);
        Removexattr removexattr(ino: INodeNo, name: &OsStr, reply: ReplyEmpty);
        Access access(ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty);
        Create create(
            parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32, reply: ReplyCreate
        );
        Getlk getlk(
            ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32,
            pid: u32, reply: ReplyLock
        );
        Setlk setlk(
            ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32,
            pid: u32, sleep: bool, reply: ReplyEmpty
        );
        Bmap bmap(ino: INodeNo, blocksize: u32, idx: u64, reply: ReplyBmap);
        Ioctl ioctl(
            ino: INodeNo, fh: FileHandle, flags: IoctlFlags, cmd: u32, in_data: &[u8],
            out_size: u32, reply: ReplyIoctl
        );
        Poll poll(
            ino: INodeNo, fh: FileHandle, ph: PollNotifier, events: PollEvents, flags: PollFlags,
            reply: ReplyPoll
        );
        Fallocate fallocate(
            ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32, reply: ReplyEmpty
        );
        Lseek lseek(ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek);
        CopyFileRange copy_file_range(
            ino_in: INodeNo, fh_in: FileHandle, offset_in: u64, ino_out: INodeNo,
            fh_out: FileHandle, offset_out: u64, len: u64, flags: CopyFileRangeFlags,
            reply: ReplyWrite
        );
    }
}
