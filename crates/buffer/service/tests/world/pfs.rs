//! The parallel file system: what was not flushed is lost when it crashes; it may be away, and it
//! may be full.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_client::System;
use forebay_stage::end::{Attributes, Body, FileSystem, Folder, Kind, State, Time};
use rustix::io::Errno;

use crate::seat::{self, Machine};

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
    state: State,
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
        let time = Time {
            seconds: (now / 1_000_000_000) as i64,
            nanoseconds: self.changes,
        };
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.state.changed = time;
            if contents {
                inode.state.modified = time;
            }
        }
    }

    fn make(&mut self, what: What, kind: Kind, mode: u32, now: u64) -> u64 {
        self.next += 1;
        let ino = self.next;
        let time = Time::default();
        let state = State {
            kind,
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            space: 0,
            names: 1,
            inode: (9, ino),
            accessed: time,
            modified: time,
            changed: time,
        };
        let attributes = BTreeMap::new();
        self.inodes.insert(
            ino,
            Inode {
                what,
                state,
                attributes,
            },
        );
        self.touch(ino, now, true);
        ino
    }

    fn state(&self, ino: u64) -> Result<State, Errno> {
        let inode = self.get(ino)?;
        let size = match &inode.what {
            What::File(bytes) => bytes.len() as u64,
            What::Link(goal) => goal.len() as u64,
            What::Directory(_) => 0,
        };
        Ok(State {
            size,
            space: size.div_ceil(512) * 512,
            ..inode.state
        })
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
        tables.make(What::Directory(BTreeMap::new()), Kind::Directory, 0o755, 0);
        tables.durable = tables.inodes.clone();
        Pfs {
            tables: Arc::new(Mutex::new(tables)),
            machine,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    /// For the movers: fails while it is away, and for those who are dead.
    fn reach(&self) -> Result<MutexGuard<'_, Tables>, Errno> {
        let tables = self.lock();
        if tables.away || seat::is_dead() {
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

    /// Make a directory or file, with all above it, durably.
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
                            (What::File(Arc::new(bytes.to_vec())), Kind::File)
                        }
                        _ => (What::Directory(BTreeMap::new()), Kind::Directory),
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
        let inodes = if durable {
            &tables.durable
        } else {
            &tables.inodes
        };
        match &inodes.get(&Tables::walk(inodes, path)?)?.what {
            What::File(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// It goes or comes back.
    pub fn set_away(&self, away: bool) {
        self.lock().away = away;
    }

    /// Bytes it can hold from now on.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.lock().capacity = capacity;
    }

    /// What was not flushed is gone; who had it open is told when he flushes.
    pub fn crash(&self) {
        let mut tables = self.lock();
        tables.inodes = tables.durable.clone();
        tables.crashes += 1;
    }

    fn open(&self, tables: &Tables, ino: u64) -> Open {
        Open {
            pfs: self.clone(),
            ino,
            crashes: tables.crashes,
        }
    }
}

impl FileSystem for Pfs {
    fn open_folder(&self, path: &Path) -> Result<Box<dyn Folder>, Errno> {
        let tables = self.reach().map_err(|_| Errno::NOENT)?;
        let ino = Tables::walk(&tables.inodes, path).ok_or(Errno::NOENT)?;
        match tables.get(ino)?.what {
            What::Directory(_) => Ok(Box::new(self.open(&tables, ino))),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn Body>, Errno> {
        let tables = self.reach().map_err(|_| Errno::NOENT)?;
        let ino = Tables::walk(&tables.inodes, path).ok_or(Errno::NOENT)?;
        Ok(Box::new(self.open(&tables, ino)))
    }
}

impl Attributes for Open {
    fn state(&self) -> Result<State, Errno> {
        self.pfs.reach()?.state(self.ino)
    }

    fn take_on(
        &self,
        state: &State,
        attributes: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Result<(), String>, Errno> {
        let set = attributes();
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let inode = tables.inodes.get_mut(&self.ino).ok_or(Errno::STALE)?;
        let (mode, accessed, modified) = (state.mode, state.accessed, state.modified);
        let inode_state = &mut inode.state;
        (inode_state.mode, inode_state.accessed) = (mode, accessed);
        (inode_state.uid, inode_state.gid) = (state.uid, state.gid);
        inode_state.modified = modified;
        tables.touch(self.ino, now, false);
        Ok(set)
    }

    fn attribute_names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let tables = self.pfs.reach()?;
        Ok(tables.get(self.ino)?.attributes.keys().cloned().collect())
    }

    fn attribute(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let tables = self.pfs.reach()?;
        let attributes = &tables.get(self.ino)?.attributes;
        attributes.get(name).cloned().ok_or(Errno::NODATA)
    }

    fn set_attribute(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let mut tables = self.pfs.change()?;
        let inode = tables.inodes.get_mut(&self.ino).ok_or(Errno::STALE)?;
        inode.attributes.insert(name.to_vec(), value.to_vec());
        Ok(())
    }
}

impl Folder for Open {
    fn again(&self) -> Result<Box<dyn Folder>, Errno> {
        let mut again = self.pfs.open(&*self.pfs.reach()?, self.ino);
        again.crashes = self.crashes;
        Ok(Box::new(again))
    }

    fn entries(
        &self,
        take: &mut dyn FnMut(&OsStr, Result<State, Errno>) -> bool,
    ) -> Result<(), Errno> {
        let entries = self.pfs.reach()?.entries(self.ino)?.clone();
        for (name, ino) in entries {
            let state = self.pfs.reach()?.state(ino);
            if !take(&name, state) {
                break;
            }
        }
        Ok(())
    }

    fn look(&self, name: &OsStr) -> Result<State, Errno> {
        let tables = self.pfs.reach()?;
        tables.state(tables.child(self.ino, name)?)
    }

    fn folder(&self, name: &OsStr) -> Result<Box<dyn Folder>, Errno> {
        let tables = self.pfs.reach()?;
        let ino = tables.child(self.ino, name)?;
        match tables.get(ino)?.what {
            What::Directory(_) => Ok(Box::new(self.pfs.open(&tables, ino))),
            What::File(_) => Err(Errno::NOTDIR),
            What::Link(_) => Err(Errno::LOOP),
        }
    }

    fn make(&self, name: &OsStr) -> Result<bool, Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        if tables.child(self.ino, name).is_ok() {
            return Ok(false);
        }
        let made = tables.make(
            What::Directory(BTreeMap::new()),
            Kind::Directory,
            0o700,
            now,
        );
        tables.entries(self.ino)?.insert(name.to_owned(), made);
        tables.touch(self.ino, now, true);
        Ok(true)
    }

    fn open(&self, name: &OsStr, _: Option<&State>) -> Result<Box<dyn Body>, Errno> {
        let tables = self.pfs.reach()?;
        let ino = tables.child(self.ino, name)?;
        match tables.get(ino)?.what {
            What::Link(_) => Err(Errno::LOOP),
            _ => Ok(Box::new(self.pfs.open(&tables, ino))),
        }
    }

    fn create(&self, name: &OsStr, keep: bool) -> Result<Box<dyn Body>, Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let ino = match tables.child(self.ino, name) {
            Ok(ino) => ino,
            Err(_) => {
                let made = tables.make(What::File(Arc::default()), Kind::File, 0o600, now);
                tables.entries(self.ino)?.insert(name.to_owned(), made);
                tables.touch(self.ino, now, true);
                made
            }
        };
        if !keep {
            tables.file(ino)?.clear();
            tables.touch(ino, now, true);
        }
        Ok(Box::new(self.pfs.open(&tables, ino)))
    }

    fn goal(&self, name: &OsStr) -> Result<OsString, Errno> {
        let tables = self.pfs.reach()?;
        match &tables.get(tables.child(self.ino, name)?)?.what {
            What::Link(goal) => Ok(goal.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    fn point(&self, name: &OsStr, goal: &OsStr, _: &State) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        if tables.child(self.ino, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let made = tables.make(What::Link(goal.to_owned()), Kind::Link, 0o777, now);
        tables.entries(self.ino)?.insert(name.to_owned(), made);
        Ok(())
    }

    fn link(&self, name: &OsStr, folder: &dyn Folder, of: &OsStr) -> Result<(), Errno> {
        let ino = folder.look(of)?.inode.1;
        let mut tables = self.pfs.change()?;
        if tables.child(self.ino, name).is_ok() {
            return Err(Errno::EXIST);
        }
        tables.entries(self.ino)?.insert(name.to_owned(), ino);
        if let Some(inode) = tables.inodes.get_mut(&ino) {
            inode.state.names += 1;
        }
        Ok(())
    }

    fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let removed = tables.entries(self.ino)?.remove(name);
        tables.touch(self.ino, now, true);
        removed.map(|_| ()).ok_or(Errno::NOENT)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        let entries = tables.entries(self.ino)?;
        let moved = entries.remove(from).ok_or(Errno::NOENT)?;
        entries.insert(to.to_owned(), moved);
        tables.touch(self.ino, now, true);
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        let mut tables = self.pfs.change()?;
        if tables.crashes != self.crashes {
            return Err(Errno::IO);
        }
        tables.durable = tables.inodes.clone();
        Ok(())
    }

    fn device(&self) -> Result<u64, Errno> {
        Ok(9)
    }
}

impl Body for Open {
    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut tables = self.pfs.reach()?;
        let bytes = tables.file(self.ino)?;
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        tables.has_room(data.len() as u64)?;
        let bytes = tables.file(self.ino)?;
        let end = offset as usize + data.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(data);
        tables.touch(self.ino, now, true);
        Ok(())
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.pfs.reach()?.state(self.ino)?.size;
        match (offset < size, hole) {
            (false, _) => Err(Errno::NXIO),
            (true, true) => Ok(size),
            (true, false) => Ok(offset),
        }
    }

    fn resize(&self, size: u64) -> Result<(), Errno> {
        let now = self.pfs.now();
        let mut tables = self.pfs.change()?;
        tables.file(self.ino)?.resize(size as usize, 0);
        tables.touch(self.ino, now, true);
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn promise(&self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn flush(&self) -> Result<(), Errno> {
        let mut tables = self.pfs.change()?;
        let inode = tables.get(self.ino)?.clone();
        tables.durable.insert(self.ino, inode);
        Ok(())
    }

    fn must_flush(&self) -> bool {
        false
    }
}
