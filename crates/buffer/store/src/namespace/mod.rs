//! The name space of one instance on one node: inodes, and directory entries by parent and name.
//!
//! An operation is checked against the tables and planned as a [`Change`]. The tables are only altered
//! by applying a change, when an operation is carried out and when the log is replayed.

mod apply;
mod change;
mod memory;
mod plan;
mod put;
mod rename;
mod step;

pub use apply::ApplyError;
pub use change::{Change, PlannedInode, SetInode};
pub use plan::{Access, EXEC, READ, WRITE};
pub use put::PlannedPut;
pub use step::{TxLock, lock_for_step};

use forebay_policy::layout::Layout;
use forebay_protocol::message::{DIRECTORY_ENTRY_BYTES, Provisional};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Attr, FileKind, Ino, NodeIndex, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First cookie of an entry; mounts use lower ones for `.` and `..`.
pub const FIRST_COOKIE: u64 = 16;

/// Extended attribute that marks a file without a name which may get one. Requests neither name nor show
/// it: its prefix is not one of those that they may use.
const LINKABLE: &[u8] = b"forebay.linkable";

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// Permission bits and set-id bits.
    pub mode: u16,
    /// Number of names; for a directory 2 plus the number of its subdirectories; 0 when removed.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access. A file with a data object has the object's time.
    pub atime: Timestamp,
    /// Last change of contents. A file with a data object has the object's time.
    pub mtime: Timestamp,
    /// Last change of anything, except writes to a data object.
    pub ctime: Timestamp,
    /// The part that depends on its kind.
    pub body: Body,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The part of an inode that depends on its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// A regular file with one data object.
    File,
    /// A regular file striped over several nodes, with a data object on each.
    Striped(FileLength),
    /// A directory.
    Dir(Directory),
    /// A symbolic link, with its target.
    Symlink(Vec<u8>),
    /// A pipe, socket or device with its number.
    Special(FileKind, u32),
}

/// The recorded length of a striped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLength {
    /// Length in bytes, if it is `known`.
    pub size: u64,
    /// Bytes that all its objects take, if the length is `known`.
    pub space: u64,
    /// The last write that is included in the inode's `mtime`.
    pub mtime_seen: Timestamp,
    /// Whether the length is settled; otherwise the data objects determine it.
    pub known: bool,
    /// The nodes that may have data objects of the file.
    pub pieces: PieceNodes,
}

/// The nodes that may have data objects of a striped file, besides its metadata node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "u16", into = "u16")]
pub enum PieceNodes {
    /// None.
    None,
    /// This number of nodes, the first ones of the file's rounds; at least one.
    First(u16),
    /// Any nodes: the file was written when the number was not recorded.
    All,
}

impl PieceNodes {
    /// The number of the first nodes, of the `nodes` of the instance.
    pub fn width(self, nodes: u16) -> u16 {
        match self {
            PieceNodes::None => 0,
            PieceNodes::First(width) => width.min(nodes),
            PieceNodes::All => nodes,
        }
    }

    /// These nodes and the `width` first ones.
    #[must_use]
    pub fn with_first(self, width: u16) -> PieceNodes {
        debug_assert!(width > 0);
        match self {
            PieceNodes::None => PieceNodes::First(width),
            PieceNodes::First(known) => PieceNodes::First(known.max(width)),
            PieceNodes::All => PieceNodes::All,
        }
    }
}

/// As it is stored. 0 and 1 were `false` and `true` before the number of nodes was recorded: whether
/// any nodes may have data objects.
impl From<u16> for PieceNodes {
    fn from(stored: u16) -> PieceNodes {
        match stored {
            0 => PieceNodes::None,
            1 => PieceNodes::All,
            more => PieceNodes::First(more - 1),
        }
    }
}

impl From<PieceNodes> for u16 {
    fn from(nodes: PieceNodes) -> u16 {
        match nodes {
            PieceNodes::None => 0,
            PieceNodes::All => 1,
            PieceNodes::First(width) => {
                debug_assert!((1..=Layout::MAX_NODES).contains(&width));
                width + 1
            }
        }
    }
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredDir", into = "StoredDir")]
pub struct Directory {
    /// The parent directory; the root is its own parent.
    pub parent: Ino,
    names: BTreeMap<Arc<[u8]>, u64>,
    order: BTreeMap<u64, Entry>,
    next_cookie: u64,
}

/// A directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Arc<[u8]>,
    /// The inode.
    pub ino: Ino,
    /// The kind of the inode, which may be on another node.
    pub kind: FileKind,
}

/// A directory as it is stored: without the index by name.
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
        let entries =
            dir.order.into_iter().map(|(c, e)| (c, e.name.to_vec(), e.ino, e.kind)).collect();
        StoredDir { parent: dir.parent, next_cookie: dir.next_cookie, entries }
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

    /// The inode of an entry.
    pub fn get(&self, name: &[u8]) -> Option<Ino> {
        self.entry(name).map(|entry| entry.ino)
    }

    /// An entry by its name.
    pub fn entry(&self, name: &[u8]) -> Option<&Entry> {
        self.names.get(name).and_then(|cookie| self.order.get(cookie))
    }

    /// The entries after `cookie`, in order, with their cookies.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Entry)> {
        self.order.range(cookie.saturating_add(1)..).map(|(cookie, entry)| (*cookie, entry))
    }

    /// The cookie of the next new entry.
    pub fn next_cookie(&self) -> u64 {
        self.next_cookie
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn insert(&mut self, name: &[u8], (ino, kind): (Ino, FileKind), cookie: u64) {
        let name: Arc<[u8]> = name.into();
        self.names.insert(name.clone(), cookie);
        let replaced = self.order.insert(cookie, Entry { name, ino, kind });
        debug_assert!(replaced.is_none(), "a cookie is used once");
        self.next_cookie = self.next_cookie.max(cookie + 1);
    }

    fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let cookie = self.names.remove(name)?;
        self.order.remove(&cookie)
    }

    /// Replace the inode of an entry; its cookie stays the same. Returns the old inode.
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

    /// The entries, if it is a directory.
    pub fn dir(&self) -> Option<&Directory> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            Body::File | Body::Striped(_) | Body::Symlink(_) | Body::Special(..) => None,
        }
    }

    /// Whether a program gets its user or group.
    pub fn has_set_id(&self) -> bool {
        self.mode & 0o6000 != 0
    }

    /// Whether it has no name, and may get one.
    pub fn is_linkable(&self) -> bool {
        self.xattrs.contains_key(LINKABLE)
    }

    /// The names of the extended attributes that requests show.
    pub fn xattr_names(&self) -> impl Iterator<Item = &[u8]> {
        self.xattrs.keys().map(Vec::as_slice).filter(|name| *name != LINKABLE)
    }

    /// The recorded length, if it is a striped file.
    pub fn length(&self) -> Option<&FileLength> {
        match &self.body {
            Body::Striped(length) => Some(length),
            Body::File | Body::Dir(_) | Body::Symlink(_) | Body::Special(..) => None,
        }
    }

    /// Whether a read is to be recorded: it is the first one since the file changed, or for a day, as with
    /// the mount option `relatime`.
    pub fn is_access_due(&self, now: Timestamp) -> bool {
        self.atime <= self.mtime.max(self.ctime)
            || now.secs.saturating_sub(self.atime.secs) >= 24 * 60 * 60
    }

    /// Whether a read at this time, by the clock of any node, was after all that is recorded.
    pub fn is_newer_access(&self, at: Timestamp) -> bool {
        at > self.atime.max(self.mtime).max(self.ctime)
    }

    /// Its attributes, without those that a data object determines.
    pub fn attr(&self, ino: Ino) -> Attr {
        let (size, rdev) = match &self.body {
            Body::File => (0, 0),
            Body::Striped(length) => (length.size, 0),
            Body::Dir(dir) => (dir.len() as u64 * DIRECTORY_ENTRY_BYTES, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Special(_, rdev) => (0, *rdev),
        };
        let (mut blocks, mut provisional) = (0, None);
        if let Body::Striped(length) = &self.body {
            blocks = length.space / 512;
            let width = length.pieces.width(Layout::MAX_NODES);
            let unsettled = Provisional { mtime_seen: length.mtime_seen, width };
            provisional = (!length.known).then_some(unsettled);
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
            provisional,
            extended: self.xattr_names().next().is_some(),
        }
    }
}

/// The inodes of an instance whose metadata is on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredNamespace")]
pub struct Namespace {
    inodes: BTreeMap<Ino, Inode>,
    shard: NodeIndex,
    /// Whether files are striped over several nodes.
    striped: bool,
    next: u64,
    orphans: BTreeSet<Ino>,
    /// Memory that inodes and names take.
    #[serde(skip)]
    memory_bytes: u64,
}

/// A name space as it is stored.
#[derive(Deserialize)]
struct StoredNamespace {
    inodes: BTreeMap<Ino, Inode>,
    shard: NodeIndex,
    striped: bool,
    next: u64,
    orphans: BTreeSet<Ino>,
}

impl From<StoredNamespace> for Namespace {
    fn from(stored: StoredNamespace) -> Namespace {
        let StoredNamespace { inodes, shard, striped, next, orphans } = stored;
        let mut names = Namespace { inodes, shard, striped, next, orphans, memory_bytes: 0 };
        names.memory_bytes = names.recount_memory();
        names
    }
}

/// Inode numbers that are skipped when a daemon starts: a power cut may have undone the creation of
/// inodes whose numbers clients or other nodes still use. Many times the number of inodes that can be
/// created before they are durable, which takes about a second.
const GAP: u64 = 1 << 24;

impl Namespace {
    /// A new name space. The first node of an instance has its root directory.
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
        Namespace::from(StoredNamespace {
            inodes: first.then_some((Ino::ROOT, root)).into_iter().collect(),
            shard: place.node,
            striped: place.is_distributed(),
            next: Ino::ROOT.0 + 1,
            orphans: BTreeSet::new(),
        })
    }

    /// The daemon starts: numbers whose use was undone by a power cut are not used again.
    pub fn skip_inode_numbers(&mut self) {
        self.next += GAP;
    }

    /// An inode.
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    /// The index of this node among the nodes of the instance.
    pub fn node(&self) -> NodeIndex {
        self.shard
    }

    /// Whether the metadata of `ino` is on this node.
    pub fn owns(&self, ino: Ino) -> bool {
        ino.metadata_node() == self.shard
    }

    /// The number of the next new inode.
    pub fn next_ino(&self) -> Ino {
        let ino = Ino::new(self.shard, self.next);
        debug_assert!(!self.inodes.contains_key(&ino), "the next number is free");
        ino
    }

    /// Do not use `ino`, or lower numbers, for a new inode.
    pub fn reserve_ino(&mut self, ino: Ino) {
        debug_assert!(self.owns(ino), "a node numbers its own inodes");
        self.next = self.next.max((ino.0 & ((1 << 48) - 1)) + 1);
    }

    /// All inodes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes.iter().map(|(ino, inode)| (*ino, inode))
    }

    /// The number of inodes, including removed ones that are still open.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Whether there is no inode.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// Inodes without a name that have not been dropped.
    pub fn orphans(&self) -> impl Iterator<Item = Ino> {
        self.orphans.iter().copied()
    }

    /// Whether `ino` has no name.
    pub fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.contains(&ino)
    }

    /// Panic unless link counts and orphans are right, for debug builds.
    pub fn check(&self) {
        if let Some(problem) = self.find_problem() {
            panic!("{problem}");
        }
    }

    /// The first contradiction in link counts, orphans and sums, if there is one. The names of a striped
    /// name space's inodes may be on other nodes.
    pub fn find_problem(&self) -> Option<String> {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        for (dir, inode) in &self.inodes {
            let Some(entries) = inode.dir() else {
                continue;
            };
            let mut subdirs = 0;
            for entry in entries.order.values() {
                *names.entry(entry.ino).or_default() += 1;
                subdirs += u32::from(entry.kind == FileKind::Dir);
                if self.owns(entry.ino) && !self.inodes.contains_key(&entry.ino) {
                    return Some(format!(
                        "directory {dir} names inode {}, which is missing",
                        entry.ino
                    ));
                }
            }
            let links = if inode.nlink == 0 { 0 } else { 2 + subdirs };
            let is_removed_with_entries = inode.nlink == 0 && !entries.is_empty();
            if entries.names.len() != entries.order.len()
                || inode.nlink != links
                || is_removed_with_entries
            {
                let count = entries.order.len();
                let nlink = inode.nlink;
                return Some(format!("directory {dir} has {nlink} links and {count} entries"));
            }
        }
        for (ino, inode) in &self.inodes {
            if inode.nlink > 0 && inode.is_linkable() {
                return Some(format!("inode {ino} has a name, and is marked as one without"));
            }
            if (inode.nlink == 0) != self.orphans.contains(ino) {
                return Some(format!("inode {ino} has {} links, unlike the orphans", inode.nlink));
            }
            let count = names.get(ino).copied().unwrap_or(0);
            if !self.striped && inode.dir().is_none() && inode.nlink != count {
                return Some(format!("inode {ino} has {} links and {count} names", inode.nlink));
            }
        }
        if let Some(ino) = self.orphans.iter().find(|ino| !self.inodes.contains_key(ino)) {
            return Some(format!("orphan {ino} is missing"));
        }
        let (counted, recounted) = (self.memory_bytes, self.recount_memory());
        (counted != recounted).then(|| format!("{counted} bytes of memory are {recounted}"))
    }
}
