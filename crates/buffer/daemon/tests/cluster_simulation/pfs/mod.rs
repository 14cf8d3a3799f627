//! The parallel file system: unflushed data is lost when it crashes; it may be unreachable, and it
//! may be full.

mod open;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_client::System;
use forebay_protocol::Timestamp;
use forebay_stage::end::{DirHandle, FileHandle, FileKind, FileStat, FileSystem};
use rustix::io::Errno;

use crate::actor_thread::{self, Machine};

const ROOT: u64 = 1;

#[derive(Clone, Debug)]
enum What {
    File(Arc<Vec<u8>>),
    Directory(BTreeMap<OsString, u64>),
    Link(OsString),
}

#[derive(Clone, Debug)]
struct Inode {
    what: What,
    state: FileStat,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug, Default)]
struct Tables {
    inodes: BTreeMap<u64, Inode>,
    /// As it is on its disks.
    durable: BTreeMap<u64, Inode>,
    next: u64,
    changes: u32,
    away: bool,
    /// Crashes so far.
    crashes: u64,
    capacity: Option<u64>,
}

/// The file system. Clones share it.
#[derive(Clone, Debug)]
pub struct Pfs {
    tables: Arc<Mutex<Tables>>,
    machine: Machine,
}

/// Something in it.
struct Open {
    pfs: Pfs,
    ino: u64,
    /// Crashes before it was opened.
    crashes: u64,
}

impl Tables {
    fn child(&self, ino: u64, name: &OsStr) -> Result<u64, Errno> {
        match &self.get(ino)?.what {
            What::Directory(entries) => entries.get(name).copied().ok_or(Errno::NOENT),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn get(&self, ino: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&ino).ok_or(Errno::STALE)
    }

    fn file(&mut self, ino: u64) -> Result<&mut Vec<u8>, Errno> {
        match &mut self.inodes.get_mut(&ino).ok_or(Errno::STALE)?.what {
            What::File(bytes) => Ok(Arc::make_mut(bytes)),
            _ => Err(Errno::ISDIR),
        }
    }

    fn entries(&mut self, ino: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match &mut self.inodes.get_mut(&ino).ok_or(Errno::STALE)?.what {
            What::Directory(entries) => Ok(entries),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn has_room(&self, more: u64) -> Result<(), Errno> {
        let sizes = self.inodes.values().map(|inode| match &inode.what {
            What::File(bytes) => bytes.len() as u64,
            _ => 0,
        });
        let used: u64 = sizes.sum();
        match self.capacity {
            Some(capacity) if used + more > capacity => Err(Errno::NOSPC),
            _ => Ok(()),
        }
    }

    /// Contents (`true`) or attributes have changed.
    fn touch(&mut self, ino: u64, now: u64, contents: bool) {
        self.changes += 1;
        let time = Timestamp { secs: (now / 1_000_000_000) as i64, nanos: self.changes };
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.state.changed = time;
            if contents {
                inode.state.modified = time;
            }
        }
    }

    fn make(&mut self, what: What, kind: FileKind, mode: u32, now: u64) -> u64 {
        self.next += 1;
        let ino = self.next;
        let time = Timestamp::default();
        let state = FileStat {
            kind,
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            allocated: 0,
            nlink: 1,
            inode: (9, ino),
            accessed: time,
            modified: time,
            changed: time,
        };
        let attributes = BTreeMap::new();
        self.inodes.insert(ino, Inode { what, state, attributes });
        self.touch(ino, now, true);
        ino
    }

    fn state(&self, ino: u64) -> Result<FileStat, Errno> {
        let inode = self.get(ino)?;
        let size = match &inode.what {
            What::File(bytes) => bytes.len() as u64,
            What::Link(goal) => goal.len() as u64,
            What::Directory(_) => 0,
        };
        Ok(FileStat { size, allocated: size.div_ceil(512) * 512, ..inode.state })
    }

    fn walk(inodes: &BTreeMap<u64, Inode>, path: &Path) -> Option<u64> {
        let mut at = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                at = match &inodes.get(&at)?.what {
                    What::Directory(entries) => *entries.get(name)?,
                    _ => return None,
                };
            }
        }
        Some(at)
    }
}

impl Pfs {
    pub fn new(machine: Machine) -> Pfs {
        let mut tables = Tables::default();
        tables.make(What::Directory(BTreeMap::new()), FileKind::Directory, 0o755, 0);
        tables.durable = tables.inodes.clone();
        Pfs { tables: Arc::new(Mutex::new(tables)), machine }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    /// For the movers: fails while it is unreachable, and for dead actors.
    fn reach(&self) -> Result<MutexGuard<'_, Tables>, Errno> {
        let tables = self.lock();
        if tables.away || actor_thread::is_killed() {
            return Err(Errno::IO);
        }
        Ok(tables)
    }

    /// The same for what changes something, which takes its time.
    fn change(&self) -> Result<MutexGuard<'_, Tables>, Errno> {
        self.machine.sleep(Duration::from_micros(200));
        self.reach()
    }

    fn now(&self) -> u64 {
        self.machine.0.nanoseconds()
    }

    /// Creates a directory or file, and its parents, durably.
    pub fn put(&self, path: &Path, contents: Option<&[u8]>) {
        let mut tables = self.lock();
        let mut at = ROOT;
        let last = path.components().count() - 1;
        for (index, part) in path.components().enumerate() {
            let Component::Normal(name) = part else {
                continue;
            };
            at = match tables.child(at, name) {
                Ok(found) => found,
                Err(_) => {
                    let (what, kind) = match contents {
                        Some(bytes) if index == last => {
                            (What::File(Arc::new(bytes.to_vec())), FileKind::File)
                        }
                        _ => (What::Directory(BTreeMap::new()), FileKind::Directory),
                    };
                    let made = tables.make(what, kind, 0o755, 0);
                    tables.entries(at).unwrap().insert(name.to_owned(), made);
                    made
                }
            };
        }
        tables.durable = tables.inodes.clone();
    }

    /// The contents that a file has now, or would have after a crash.
    pub fn contents(&self, path: &Path, durable: bool) -> Option<Arc<Vec<u8>>> {
        let tables = self.lock();
        let inodes = if durable { &tables.durable } else { &tables.inodes };
        match &inodes.get(&Tables::walk(inodes, path)?)?.what {
            What::File(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Makes it unreachable or reachable.
    pub fn set_away(&self, away: bool) {
        self.lock().away = away;
    }

    /// Bytes it can hold from now on.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.lock().capacity = capacity;
    }

    /// Drops unflushed data; a later flush of an open file fails.
    pub fn crash(&self) {
        let mut tables = self.lock();
        tables.inodes = tables.durable.clone();
        tables.crashes += 1;
    }

    fn open(&self, tables: &Tables, ino: u64) -> Open {
        Open { pfs: self.clone(), ino, crashes: tables.crashes }
    }
}

impl FileSystem for Pfs {
    fn open_dir(&self, path: &Path) -> Result<Box<dyn DirHandle>, Errno> {
        let tables = self.reach().map_err(|_| Errno::NOENT)?;
        let ino = Tables::walk(&tables.inodes, path).ok_or(Errno::NOENT)?;
        match tables.get(ino)?.what {
            What::Directory(_) => Ok(Box::new(self.open(&tables, ino))),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn FileHandle>, Errno> {
        let tables = self.reach().map_err(|_| Errno::NOENT)?;
        let ino = Tables::walk(&tables.inodes, path).ok_or(Errno::NOENT)?;
        Ok(Box::new(self.open(&tables, ino)))
    }
}
