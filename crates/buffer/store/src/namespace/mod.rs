//! The name space of one instance: inodes, and directory entries by (parent, name).
//!
//! An operation is checked against the tables and becomes a [`Change`]; applying the change is
//! the only way the tables are altered, when an operation is carried out as well as when the log
//! is read back. Tables and changes know nothing of clients, files or clocks.

mod apply;
mod change;
mod plan;
mod put;
mod rename;
mod step;

pub use change::{Change, PlannedInode, SetInode};
pub use plan::{Access, EXEC, READ, WRITE};
pub use put::PlannedPut;
pub use step::{PreparedStep, TxLock, lock_for_step};

use forebay_protocol::placement::Placement;
use forebay_protocol::{Attr, FileKind, Ino, NodeIndex, Timestamp};
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
    /// A regular file of an instance on several nodes; its bytes are in a data object on each.
    Striped(FileLength),
    /// A directory.
    Dir(Directory),
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A pipe, socket or device with its number.
    Special(FileKind, u32),
}

/// What is known of the length of a striped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLength {
    /// Length in bytes, if `known`.
    pub size: u64,
    /// Space it takes, in bytes, if `known`.
    pub space: u64,
    /// The last write that the inode's `mtime` accounts for.
    pub mtime_seen: Timestamp,
    /// Otherwise the objects have to be asked.
    pub known: bool,
    /// There may be objects on other nodes.
    pub may_have_pieces: bool,
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredDir", into = "StoredDir")]
pub struct Directory {
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
    /// Its kind; the inode itself may be on another node.
    pub kind: FileKind,
}

/// A directory without its index by name.
#[derive(Serialize, Deserialize)]
struct StoredDir {
    parent: Ino,
    next_cookie: u64,
    entries: Vec<(u64, Vec<u8>, Ino, FileKind)>,
}

impl From<StoredDir> for Directory {
    fn from(stored: StoredDir) -> Directory {
        let mut dir = Directory::new(stored.parent);
        for (cookie, name, ino, kind) in stored.entries {
            dir.insert(&name, (ino, kind), cookie);
        }
        dir.next_cookie = stored.next_cookie;
        dir
    }
}

impl From<Directory> for StoredDir {
    fn from(dir: Directory) -> StoredDir {
        let entries = dir
            .order
            .into_iter()
            .map(|(c, e)| (c, e.name.to_vec(), e.ino, e.kind))
            .collect();
        StoredDir {
            parent: dir.parent,
            next_cookie: dir.next_cookie,
            entries,
        }
    }
}

impl Directory {
    /// An empty directory in `parent`.
    pub fn new(parent: Ino) -> Directory {
        Directory {
            parent,
            names: BTreeMap::new(),
            order: BTreeMap::new(),
            next_cookie: FIRST_COOKIE,
        }
    }

    /// What `name` names.
    pub fn get(&self, name: &[u8]) -> Option<Ino> {
        self.entry(name).map(|entry| entry.ino)
    }

    /// The entry `name`.
    pub fn entry(&self, name: &[u8]) -> Option<&Entry> {
        self.names
            .get(name)
            .and_then(|cookie| self.order.get(cookie))
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

    fn insert(&mut self, name: &[u8], (ino, kind): (Ino, FileKind), cookie: u64) {
        let name: Arc<[u8]> = name.into();
        self.names.insert(name.clone(), cookie);
        self.order.insert(cookie, Entry { name, ino, kind });
        self.next_cookie = self.next_cookie.max(cookie + 1);
    }

    fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let cookie = self.names.remove(name)?;
        self.order.remove(&cookie)
    }

    /// Let an existing name lead to another inode, its place in the order unchanged.
    fn replace(&mut self, name: &[u8], (ino, kind): (Ino, FileKind)) -> Option<(Ino, FileKind)> {
        let entry = self.order.get_mut(self.names.get(name)?)?;
        let old = (entry.ino, entry.kind);
        (entry.ino, entry.kind) = (ino, kind);
        Some(old)
    }
}

impl Inode {
    /// Its kind.
    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::File | Body::Striped(_) => FileKind::File,
            Body::Dir(_) => FileKind::Dir,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    /// Its directory, if it is one.
    pub fn dir(&self) -> Option<&Directory> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    /// What is known of its length, if it is a striped file.
    pub fn length(&self) -> Option<&FileLength> {
        match &self.body {
            Body::Striped(length) => Some(length),
            _ => None,
        }
    }

    /// Its attributes, without what a data object adds.
    pub fn attr(&self, ino: Ino) -> Attr {
        let (size, rdev) = match &self.body {
            Body::File => (0, 0),
            Body::Striped(length) => (length.size, 0),
            Body::Dir(dir) => (dir.len() as u64 * 32, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Special(_, rdev) => (0, *rdev),
        };
        let (mut blocks, mut unsettled) = (0, None);
        if let Body::Striped(length) = &self.body {
            blocks = length.space / 512;
            unsettled = (!length.known).then_some(length.mtime_seen);
        }
        Attr {
            ino,
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev,
            size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            provisional: unsettled,
            extended: !self.xattrs.is_empty(),
        }
    }
}

/// All inodes of an instance that this shard owns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    inodes: BTreeMap<Ino, Inode>,
    shard: NodeIndex,
    /// Files are striped over several nodes.
    spread: bool,
    next: u64,
    orphans: BTreeSet<Ino>,
}

/// Numbers of inodes that are passed over when a daemon starts: a power cut may have taken back
/// inodes whose numbers clients or other nodes still know. Many times what can be made in the
/// second or so that a change may go without being durable.
const GAP: u64 = 1 << 24;

impl Namespace {
    /// What the node in this place owns of a new name space: the first has its root directory.
    pub fn new(mode: u16, uid: u32, gid: u32, place: &Placement, now: Timestamp) -> Namespace {
        let root = Inode {
            mode,
            nlink: 2,
            uid,
            gid,
            atime: now,
            mtime: now,
            ctime: now,
            body: Body::Dir(Directory::new(Ino::ROOT)),
            xattrs: BTreeMap::new(),
        };
        let first = place.node == NodeIndex(0);
        Namespace {
            inodes: first.then_some((Ino::ROOT, root)).into_iter().collect(),
            shard: place.node,
            spread: place.is_distributed(),
            next: Ino::ROOT.0 + 1,
            orphans: BTreeSet::new(),
        }
    }

    /// The daemon starts: numbers that a power cut took back are not given out again.
    pub fn skip_inode_numbers(&mut self) {
        self.next += GAP;
    }

    /// An inode.
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    /// The place of the node whose inodes these are.
    pub fn node(&self) -> NodeIndex {
        self.shard
    }

    /// Is this the node that owns `ino`?
    pub fn owns(&self, ino: Ino) -> bool {
        ino.metadata_node() == self.shard
    }

    /// The number for the next new inode.
    pub fn next_ino(&self) -> Ino {
        Ino::new(self.shard, self.next)
    }

    /// `ino` is spoken for.
    pub fn reserve_ino(&mut self, ino: Ino) {
        self.next = self.next.max((ino.0 & ((1 << 48) - 1)) + 1);
    }

    /// All inodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes.iter().map(|(ino, inode)| (*ino, inode))
    }

    /// The number of inodes, removed ones that are still open included.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Are there no inodes here?
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
