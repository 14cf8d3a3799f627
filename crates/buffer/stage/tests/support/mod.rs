#![allow(dead_code, missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test: what cannot be unwrapped has failed")]
//! A directory as the parallel file system, and an instance on a storage daemon.

pub mod gate;
pub mod shares;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_client::{Admin, Fs};
use forebay_net::auth::PoolKey;
use forebay_protocol::Credentials;
use forebay_protocol::message::{DirEntry, InstanceSpec, NewInode, OpenMode};
use forebay_protocol::{Attr, Errno, FileKind, InstanceId};
use forebay_stage::end::LocalFileSystem;
use forebay_stage::{
    ItemKind, Namespace, ProgressCounters, StageError, StageItem, StageLocation, StageOptions,
    StageReport, StageRequest, run_stage,
};
use forebay_store::daemon::{self, Daemon};

const INSTANCE: InstanceId = InstanceId(1);

pub struct Sides {
    /// The directory of the parallel file system.
    pub pfs: PathBuf,
    /// The instance.
    pub buffer: Buffer,
    pub daemon: Daemon,
    pub directory: tempfile::TempDir,
}

pub fn sides() -> Sides {
    sides_of(8 << 30)
}

/// An empty directory, in memory if possible: a sync of a disk's file system waits for the writes of
/// all other programs.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// Both sides, with an instance of `capacity` bytes.
pub fn sides_of(capacity: u64) -> Sides {
    let directory = directory();
    let pfs = directory.path().join("pfs");
    fs::create_dir(&pfs).unwrap();
    let mut start = daemon::StoreOptions::new(directory.path().join("flash"));
    start.tcp = Some("127.0.0.1:0".parse().unwrap());
    start.key = Some(key());
    let daemon = Daemon::start(start).unwrap();
    let options = forebay_client::ClientOptions::default;
    let admin = Admin::connect(daemon.address(), options()).unwrap();
    let spec = InstanceSpec {
        id: INSTANCE,
        uid: 0,
        gid: 0,
        mode: 0o777,
        capacity,
        inodes: 1_000_000,
        placement: forebay_protocol::placement::Placement::single_node(),
    };
    admin.create_instance(spec).unwrap();
    let fs = Fs::attach(daemon.address(), INSTANCE, options()).unwrap();
    fs.mkdir_all(Path::new("striped"), 0o777).unwrap();
    Sides { pfs, buffer: Buffer::of(fs), daemon, directory }
}

fn key() -> PoolKey {
    PoolKey::new(b"only for these tests").unwrap()
}

impl Sides {
    /// The instance as accessed from another host: without descriptors, all data over a socket.
    pub fn over_tcp(&self) -> Buffer {
        let address = self.daemon.tcp_address().unwrap();
        let options = forebay_client::ClientOptions {
            key: Some(key()),
            ..forebay_client::ClientOptions::default()
        };
        Buffer::of(Fs::attach(address, INSTANCE, options).unwrap())
    }

    /// The instance with the permissions of a user.
    pub fn as_user(&self, uid: u32, gid: u32) -> Buffer {
        Buffer::of(self.buffer.fs.on_behalf_of(Credentials {
            uid,
            gid,
            groups: Some(Vec::new()),
            checked: false,
        }))
    }

    pub fn inside(&self, path: &str) -> StageLocation {
        StageLocation::in_instance(&self.buffer.space, path)
    }

    pub fn outside(&self, path: &str) -> StageLocation {
        StageLocation::in_pfs(&LocalFileSystem::open(&[], None), self.pfs.join(path))
    }

    pub fn stage_in(&self, kind: ItemKind, from: &str, to: &str) -> StageRequest {
        one(kind, self.outside(from), self.inside(to))
    }

    pub fn stage_out(&self, kind: ItemKind, from: &str, to: &str) -> StageRequest {
        one(kind, self.inside(from), self.outside(to))
    }

    /// A request for these files of the instance, as single items, into the new directory `out`.
    pub fn files_out(&self, names: &[&str]) -> (PathBuf, StageRequest) {
        let out = self.pfs.join("out");
        fs::create_dir(&out).unwrap();
        let item = |name: &&str| StageItem {
            kind: ItemKind::File,
            source: self.inside(name),
            target: self.outside(&format!("out/{name}")),
        };
        let items = names.iter().map(item).collect();
        (out, StageRequest { items })
    }
}

pub fn one(kind: ItemKind, source: StageLocation, target: StageLocation) -> StageRequest {
    StageRequest { items: vec![StageItem { kind, source, target }] }
}

pub fn run(request: &StageRequest, options: &StageOptions) -> Result<StageReport, StageError> {
    run_stage(request, options, &ProgressCounters::new())
}

/// The name space `striped` of an instance.
pub struct Buffer {
    pub fs: Fs,
    pub space: Arc<Namespace>,
}

impl Buffer {
    pub fn of(fs: Fs) -> Buffer {
        let space = Namespace::new(fs.clone(), Path::new("striped"), "$DW_JOB_STRIPED").unwrap();
        Buffer { fs, space }
    }

    fn path(&self, path: &str) -> PathBuf {
        Path::new("striped").join(path)
    }

    pub fn attr(&self, path: &str) -> Result<Attr, Errno> {
        self.fs.resolve(&self.path(path), false)
    }

    pub fn exists(&self, path: &str) -> bool {
        self.attr(path).is_ok()
    }

    pub fn write(&self, path: &str, bytes: &[u8]) {
        let mode =
            OpenMode { write: true, truncate: true, descriptor: true, ..OpenMode::default() };
        let created = self.fs.create_path(&self.path(path), 0o644, mode).unwrap();
        created.file.write_all_at(bytes, 0).unwrap();
    }

    pub fn read_at(&self, path: &str, offset: u64, length: usize) -> Vec<u8> {
        let mode = OpenMode { read: true, descriptor: true, ..OpenMode::default() };
        let opened = self.fs.open_path(&self.path(path), mode).unwrap();
        let mut bytes = vec![0; length];
        let read = opened.file.read_at(&mut bytes, offset).unwrap();
        bytes.truncate(read);
        bytes
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        let size = self.attr(path).unwrap().size;
        self.read_at(path, 0, usize::try_from(size).unwrap())
    }

    pub fn symlink(&self, link_target: &Path, path: &str) {
        let (parent, name) = (self.path(""), path.as_bytes());
        let parent = self.fs.resolve(&parent, false).unwrap().ino;
        let new = NewInode::Symlink(link_target.as_os_str().as_bytes().to_vec());
        self.fs.make_inode(parent, name, new, 0o777).unwrap();
    }

    pub fn remove(&self, path: &str) {
        self.fs.unlink_path(&self.path(path)).unwrap();
    }

    /// The entries of a directory.
    pub fn entries(&self, path: &str) -> Vec<DirEntry> {
        let ino = self.attr(path).unwrap().ino;
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.fs.read_dir(ino, cookie, 1 << 16, true).unwrap();
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            all.extend(page.entries);
            if page.end {
                return all;
            }
        }
    }

    /// Everything below a directory that a stage preserves, by path; as [`picture`].
    pub fn picture(&self, root: &str) -> BTreeMap<PathBuf, String> {
        let mut entries = BTreeMap::new();
        let mut open = vec![PathBuf::new()];
        entries.insert(PathBuf::new(), self.line("", &self.attr(root).unwrap()));
        while let Some(directory) = open.pop() {
            let here = Path::new(root).join(&directory);
            for entry in self.entries(here.to_str().unwrap()) {
                let name = directory.join(std::ffi::OsString::from_vec(entry.name));
                let attr = entry.attr.unwrap();
                if attr.kind == FileKind::Dir {
                    open.push(name.clone());
                }
                let full = Path::new(root).join(&name);
                entries.insert(name, self.line(full.to_str().unwrap(), &attr));
            }
        }
        entries
    }

    fn line(&self, path: &str, attr: &Attr) -> String {
        let (what, kind) = match attr.kind {
            FileKind::Dir => ("directory".to_owned(), 0o040_000),
            FileKind::Symlink => {
                let link_target = self.fs.read_link(attr.ino).unwrap();
                (format!("-> {}", String::from_utf8(link_target).unwrap()), 0o120_000)
            }
            _ => (contents(&self.read(path)), 0o100_000),
        };
        let mtime = (attr.mtime.secs, i64::from(attr.mtime.nanos));
        line(&what, kind | u32::from(attr.mode), (attr.uid, attr.gid), mtime, attr.nlink.into())
    }
}

fn contents(bytes: &[u8]) -> String {
    format!("{} bytes, sum {}", bytes.len(), blake3::hash(bytes))
}

fn line(what: &str, mode: u32, owner: (u32, u32), mtime: (i64, i64), links: u64) -> String {
    let is = |kind| mode & 0o170_000 == kind;
    let mtime = if is(0o120_000) { (0, 0) } else { mtime };
    let links = if is(0o100_000) { links } else { 0 };
    format!("{what} {mode:o} {owner:?} {mtime:?} links {links}")
}

/// Everything below a directory that a stage preserves, by path.
pub fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut entries = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let state = fs::symlink_metadata(&path).unwrap();
        let what = if state.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if state.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            open.extend(entries.map(|entry| entry.unwrap().path()));
            "directory".to_owned()
        } else {
            contents(&fs::read(&path).unwrap())
        };
        let mtime = (state.mtime(), state.mtime_nsec());
        let owner = (state.uid(), state.gid());
        let line = line(&what, state.mode(), owner, mtime, state.nlink());
        entries.insert(path.strip_prefix(root).unwrap().to_owned(), line);
    }
    entries
}

/// Fails because a file cannot be mounted on a loop device, unless the tests are to pass without what needs
/// that: `FOREBAY_WITHOUT_LOOP=1`.
pub fn expect_no_loop_devices(untested: &str) {
    assert!(
        std::env::var_os("FOREBAY_WITHOUT_LOOP").is_some_and(|value| value == "1"),
        "loop devices are not available: with FOREBAY_WITHOUT_LOOP=1 {untested} is not tested"
    );
}

/// Pseudo-random bytes.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
