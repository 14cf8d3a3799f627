//! A file system with the speed of a parallel file system: one directory of files, whose reads and
//! writes one server carries out, one after another.

use forebay_fuse::mount::{MountOptions, Mounted};
use forebay_fuse::{
    FileAttr, FileHandle, FileType, Filesystem, INodeNo, KernelConfig, LockOwner, NewMode,
    OpenFlags, ReadFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, Session, SetAttr, Statfs, Time, WriteFlags,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest request of the kernel in bytes.
pub const LARGEST_REQUEST: u32 = 1 << 20;
/// Threads that take requests from the kernel; the server works on one at a time.
const THREADS: NonZeroUsize = NonZeroUsize::new(4).unwrap();
/// Time for which the kernel keeps names and attributes.
const KEPT: Duration = Duration::from_secs(1);

/// The time of a request: `latency` plus its bytes at `bytes_per_second`.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Time of a request without data.
    pub latency: Duration,
    /// Bytes per second of a request's data.
    pub bytes_per_second: f64,
}

/// A file.
struct Node {
    file: File,
    name: OsString,
}

/// The files by number and name.
#[derive(Default)]
struct Nodes {
    by_number: HashMap<u64, Arc<Node>>,
    by_name: HashMap<OsString, u64>,
    last: u64,
}

/// The file system.
struct SlowPfs {
    /// Directory that has the contents of the files.
    directory: PathBuf,
    speed: Speed,
    nodes: Mutex<Nodes>,
    /// End of the last request that the server has accepted.
    busy_until: Mutex<Instant>,
}

impl SlowPfs {
    /// Waits until the server has carried out a request for so many bytes.
    fn serve(&self, bytes: usize) {
        let data = Duration::from_secs_f64(bytes as f64 / self.speed.bytes_per_second);
        let end = {
            let mut busy_until = self.busy_until.lock();
            *busy_until = (*busy_until).max(Instant::now()) + self.speed.latency + data;
            *busy_until
        };
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }

    fn node(&self, number: INodeNo) -> Result<Arc<Node>, i32> {
        self.nodes.lock().by_number.get(&number.0).cloned().ok_or(libc::ENOENT)
    }

    fn attributes(&self, number: INodeNo) -> Result<FileAttr, i32> {
        let (metadata, kind) = if number == INodeNo::ROOT {
            (std::fs::metadata(&self.directory), FileType::Directory)
        } else {
            (self.node(number)?.file.metadata(), FileType::RegularFile)
        };
        let metadata = metadata.map_err(errno)?;
        let changed = Time { secs: metadata.mtime(), nanos: metadata.mtime_nsec() as u32 };
        Ok(FileAttr {
            ino: number,
            size: metadata.len(),
            blocks: metadata.blocks(),
            atime: changed,
            mtime: changed,
            ctime: changed,
            kind,
            perm: (metadata.mode() & 0o7777) as u16,
            nlink: 1,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: 0,
            blksize: LARGEST_REQUEST,
        })
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, i32> {
        let number = match self.nodes.lock().by_name.get(name) {
            Some(number) if parent == INodeNo::ROOT => INodeNo(*number),
            Some(_) | None => return Err(libc::ENOENT),
        };
        self.attributes(number)
    }

    fn make(&self, name: &OsStr) -> Result<FileAttr, i32> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(self.directory.join(name)).map_err(errno)?;
        let number = {
            let mut nodes = self.nodes.lock();
            nodes.last = nodes.last.max(INodeNo::ROOT.0) + 1;
            let number = nodes.last;
            nodes.by_name.insert(name.to_owned(), number);
            nodes.by_number.insert(number, Arc::new(Node { file, name: name.to_owned() }));
            number
        };
        self.attributes(INodeNo(number))
    }

    fn remove(&self, name: &OsStr) -> Result<(), i32> {
        self.nodes.lock().by_name.remove(name).ok_or(libc::ENOENT)?;
        std::fs::remove_file(self.directory.join(name)).map_err(errno)
    }

    fn read_from(&self, number: INodeNo, offset: u64, size: u32) -> Result<Vec<u8>, i32> {
        let node = self.node(number)?;
        let mut data = vec![0; size as usize];
        let mut length = 0;
        while length < data.len() {
            match node.file.read_at(&mut data[length..], offset + length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) => return Err(errno(error)),
            }
        }
        data.truncate(length);
        self.serve(length);
        Ok(data)
    }
}

/// The number of an error.
fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Sends the result of an operation without data.
fn answer(reply: ReplyEmpty, result: Result<(), i32>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for SlowPfs {
    fn init(&self, config: &mut KernelConfig) -> io::Result<()> {
        config.set_max_write(LARGEST_REQUEST);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(attributes) => reply.entry(KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Ok(attributes) => reply.attr(KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(&self, _: &Request, ino: INodeNo, set: &SetAttr, reply: ReplyAttr) {
        let set = set.size.map_or(Ok(()), |size| {
            self.node(ino).and_then(|node| node.file.set_len(size).map_err(errno))
        });
        match set.and_then(|()| self.attributes(ino)) {
            Ok(attributes) => reply.attr(KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.remove(name));
    }

    fn forget(&self, ino: INodeNo, _lookups: u64) {
        let mut nodes = self.nodes.lock();
        let removed = nodes
            .by_number
            .get(&ino.0)
            .is_some_and(|node| nodes.by_name.get(&node.name) != Some(&ino.0));
        if removed {
            nodes.by_number.remove(&ino.0);
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: i32, reply: ReplyOpen) {
        match self.node(ino) {
            Ok(_) => reply.opened(FileHandle(0), OpenFlags::KEEP_CACHE, None),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: NewMode,
        _: i32,
        reply: ReplyCreate,
    ) {
        let found = self.find(parent, name).or_else(|_| self.make(name));
        match found {
            Ok(attributes) => {
                let entry = (KEPT, &attributes);
                reply.created(entry, FileHandle(0), OpenFlags::KEEP_CACHE, None);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: ReadFlags,
        _: i32,
        reply: ReplyData,
    ) {
        match self.read_from(ino, offset, size) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: i32,
        reply: ReplyWrite,
    ) {
        let node = self.node(ino);
        let written = node.and_then(|node| node.file.write_all_at(data, offset).map_err(errno));
        self.serve(data.len());
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.serve(0);
        reply.ok();
    }

    fn access(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const BLOCKS: u64 = 1 << 30;
        reply.statfs(&Statfs {
            block_size: 4096,
            blocks: BLOCKS,
            free: BLOCKS,
            available: BLOCKS,
            inodes: 0,
            inodes_free: 0,
            name_length: 255,
        });
    }
}

/// Mounts the file system at `path`; the contents of files are in `directory`. Dropping the mount
/// unmounts.
pub fn mount(path: &Path, directory: PathBuf, speed: Speed) -> io::Result<Mounted> {
    let served = SlowPfs {
        directory,
        speed,
        nodes: Mutex::default(),
        busy_until: Mutex::new(Instant::now()),
    };
    let options = MountOptions {
        source: "slow-pfs".into(),
        subtype: "slow-pfs".into(),
        ..MountOptions::default()
    };
    let (device, mounted) = forebay_fuse::mount::mount(path, &options)?;
    Session::new(Arc::new(served), device)?.spawn(THREADS)?;
    Ok(mounted)
}
