//! The name space of one instance: inodes, and directory entries by (parent, name).
//!
//! An operation is checked against the tables and becomes a [`Change`]; applying the change is
//! the only way the tables are altered, when an operation is carried out as well as when the log
//! is read back. Tables and changes know nothing of clients, files or clocks.

mod apply;
mod change;
mod plan;
mod rename;

pub use change::{Change, NewInode, SetInode};
pub use plan::{Credentials, EXEC, READ, WRITE};

use forebay_wire::{Attr, Ino, Kind, Node, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First cookie given to an entry; lower ones are the mount's for `.` and `..`.
pub const FIRST_COOKIE: u64 = 16;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// Permission bits and set-id bits.
    pub mode: u16,
    /// Names that lead to it; for a directory 2 and one per directory in it; 0 when removed.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access; for a file with a data object the object's time counts instead.
    pub atime: Timestamp,
    /// Last change of contents; for a file with a data object the object's time counts instead.
    pub mtime: Timestamp,
    /// Last change of anything; for a file writes since then come on top.
    pub ctime: Timestamp,
    /// What it is.
    pub body: Body,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// A regular file; its bytes are in a data object.
    File,
    /// A directory.
    Dir(Dir),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A pipe, socket or device with its number.
    Special(Kind, u32),
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredDir", into = "StoredDir")]
pub struct Dir {
    /// The directory it is in; the root is in itself.
    pub parent: Ino,
    names: BTreeMap<Arc<[u8]>, u64>,
    order: BTreeMap<u64, Entry>,
    next_cookie: u64,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Arc<[u8]>,
    /// What it names.
    pub ino: Ino,
}

/// A directory without its index by name.
#[derive(Serialize, Deserialize)]
struct StoredDir {
    parent: Ino,
    next_cookie: u64,
    entries: Vec<(u64, Vec<u8>, Ino)>,
}

impl From<StoredDir> for Dir {
    fn from(stored: StoredDir) -> Dir {
        let mut dir = Dir::new(stored.parent);
        for (cookie, name, ino) in stored.entries {
            dir.insert(&name, ino, cookie);
        }
        dir.next_cookie = stored.next_cookie;
        dir
    }
}

impl From<Dir> for StoredDir {
    fn from(dir: Dir) -> StoredDir {
        let entries = dir
            .order
            .into_iter()
            .map(|(c, e)| (c, e.name.to_vec(), e.ino))
            .collect();
        StoredDir {
            parent: dir.parent,
            next_cookie: dir.next_cookie,
            entries,
        }
    }
}

impl Dir {
    /// An empty directory in `parent`.
    pub fn new(parent: Ino) -> Dir {
        Dir {
            parent,
            names: BTreeMap::new(),
            order: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
        }
    }

    /// What `name` names.
    pub fn get(&self, name: &[u8]) -> Option<Ino> {
        self.names
            .get(name)
            .and_then(|cookie| self.order.get(cookie))
            .map(|entry| entry.ino)
    }

    /// Entries behind `cookie`, with their own cookies, in their order.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Entry)> {
        self.order
            .range(cookie.saturating_add(1)..)
            .map(|(cookie, entry)| (*cookie, entry))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Has it no entries?
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn insert(&mut self, name: &[u8], ino: Ino, cookie: u64) {
        let name: Arc<[u8]> = name.into();
        self.names.insert(name.clone(), cookie);
        self.order.insert(cookie, Entry { name, ino });
        self.next_cookie = self.next_cookie.max(cookie + 1);
    }

    fn remove(&mut self, name: &[u8]) -> Option<Ino> {
        let cookie = self.names.remove(name)?;
        self.order.remove(&cookie).map(|entry| entry.ino)
    }

    /// Let an existing name lead to another inode, its place in the order unchanged.
    fn replace(&mut self, name: &[u8], ino: Ino) -> Option<Ino> {
        let entry = self.order.get_mut(self.names.get(name)?)?;
        Some(std::mem::replace(&mut entry.ino, ino))
    }
}

impl Inode {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File => Kind::File,
            Body::Dir(_) => Kind::Dir,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    /// Its directory, if it is one.
    pub fn dir(&self) -> Option<&Dir> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    /// Its attributes, without what a data object adds.
    pub fn attr(&self, ino: Ino) -> Attr {
        let (size, rdev) = match &self.body {
            Body::File => (0, 0),
            Body::Dir(dir) => (dir.len() as u64 * 32, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Special(_, rdev) => (0, *rdev),
        };
        Attr {
            ino,
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev,
            size,
            blocks: 0,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            unsettled: false,
        }
    }
}

/// All inodes of an instance that this shard owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    inodes: BTreeMap<Ino, Inode>,
    shard: Node,
    next: u64,
    orphans: BTreeSet<Ino>,
}

impl Namespace {
    /// A name space with an empty root directory.
    pub fn new(mode: u16, uid: u32, gid: u32, now: Timestamp) -> Namespace {
        let root = Inode {
            mode,
            nlink: 2,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            body: Body::Dir(Dir::new(Ino::ROOT)),
            xattrs: BTreeMap::new(),
        };
        Namespace {
            inodes: BTreeMap::from([(Ino::ROOT, root)]),
            shard: Node(0),
            next: Ino::ROOT.0 + 1,
            orphans: BTreeSet::new(),
        }
    }

    /// An inode.
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    /// All inodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes.iter().map(|(ino, inode)| (*ino, inode))
    }

    /// The number of inodes, removed ones that are still open included.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Never: there always is a root.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// Inodes without a name that have not been dropped yet.
    pub fn orphans(&self) -> impl Iterator<Item = Ino> {
        self.orphans.iter().copied()
    }

    /// Is `ino` without a name?
    pub fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.contains(&ino)
    }
}
