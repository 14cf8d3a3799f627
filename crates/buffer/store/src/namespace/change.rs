//! Changes of a name space, as they are logged.

use super::{Body, Directory, FileLength, Inode};
use forebay_protocol::message::{NewInode, OnExisting};
use forebay_protocol::{FileKind, Ino, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A change that is possible and permitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Create an inode with a name.
    Make {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The inode.
        inode: PlannedInode,
        /// The time of the change.
        now: Timestamp,
    },
    /// Remove a name of an inode that is not a directory.
    Unlink {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The time of the change.
        now: Timestamp,
    },
    /// Remove an empty directory.
    RmDir {
        /// Its parent.
        parent: Ino,
        /// Its name.
        name: Vec<u8>,
        /// The time of the change.
        now: Timestamp,
    },
    /// Rename an inode, or exchange two.
    Rename {
        /// The old directory.
        parent: Ino,
        /// The old name.
        name: Vec<u8>,
        /// The new directory.
        to: Ino,
        /// The new name.
        to_name: Vec<u8>,
        /// Whether an existing inode of the new name is replaced or exchanged.
        existing: OnExisting,
        /// The time of the change.
        now: Timestamp,
    },
    /// Add a name.
    Link {
        /// The inode.
        ino: Ino,
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The time of the change.
        now: Timestamp,
    },
    /// Set attributes.
    SetAttributes {
        /// The inode.
        ino: Ino,
        /// The new values.
        set: SetInode,
    },
    /// Set an extended attribute, or remove it without a value.
    SetXattr {
        /// The inode.
        ino: Ino,
        /// The attribute's name.
        name: Vec<u8>,
        /// The new value.
        value: Option<Vec<u8>>,
        /// The time of the change.
        now: Timestamp,
    },
    /// Drop an inode that has no name and is not open.
    DropInode {
        /// The inode.
        ino: Ino,
    },
    /// Part of a transaction: set or remove an entry of a directory.
    SetEntry {
        /// The directory.
        dir: Ino,
        /// The name.
        name: Vec<u8>,
        /// The inode that gets the name.
        put: Option<(Ino, FileKind)>,
        /// The time of the change.
        now: Timestamp,
    },
    /// Part of a transaction: create a directory whose name is on another node.
    MakeDir {
        /// Its number.
        ino: Ino,
        /// Its parent.
        parent: Ino,
        /// Permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// The time of the change.
        now: Timestamp,
    },
    /// Part of a transaction: an inode loses a name. A directory is removed.
    RemoveName {
        /// The inode.
        ino: Ino,
        /// The time of the change.
        now: Timestamp,
    },
    /// Part of a transaction: an inode gets an additional name.
    AddName {
        /// The inode.
        ino: Ino,
        /// The time of the change.
        now: Timestamp,
    },
    /// Part of a transaction: an inode is renamed.
    MoveInode {
        /// The inode.
        ino: Ino,
        /// The new parent of a directory, if it changes.
        parent: Option<Ino>,
        /// The time of the change.
        now: Timestamp,
    },
    /// Record the length of a striped file.
    SetLength {
        /// The inode.
        ino: Ino,
        /// The length.
        length: FileLength,
        /// New `mtime` and `ctime`, if they change.
        times: Option<(Timestamp, Timestamp)>,
    },
    /// Create a file with contents, in place of a file that has the name.
    Put {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The inode.
        inode: PlannedInode,
        /// Its `atime` and `mtime`.
        times: (Timestamp, Timestamp),
        /// Record the length of a striped file.
        length: Option<FileLength>,
        /// The time of the change.
        now: Timestamp,
    },
}

/// An inode to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedInode {
    /// Its number.
    pub ino: Ino,
    /// Its kind, with a link's target or a device's number.
    pub new: NewInode,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether it is created open for writing.
    pub opened: bool,
}

/// Attributes to set; `None` leaves one unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetInode {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of contents.
    pub mtime: Option<Timestamp>,
    /// When attributes changed.
    pub ctime: Timestamp,
}

impl PlannedInode {
    pub(super) fn build(&self, parent: Ino, striped: bool, now: Timestamp) -> Inode {
        let body = match &self.new {
            NewInode::Dir => Body::Dir(Directory::new(parent)),
            NewInode::Symlink(target) => Body::Symlink(target.clone()),
            NewInode::Node(FileKind::File, _) if striped => Body::Striped(FileLength {
                size: 0,
                space: 0,
                mtime_seen: Timestamp::default(),
                known: !self.opened,
                may_have_pieces: self.opened,
            }),
            NewInode::Node(FileKind::File, _) => Body::File,
            NewInode::Node(kind, rdev) => Body::Special(*kind, *rdev),
        };
        Inode {
            mode: self.mode,
            nlink: if matches!(body, Body::Dir(_)) { 2 } else { 1 },
            uid: self.uid,
            gid: self.gid,
            atime: now,
            mtime: now,
            ctime: now,
            body,
            xattrs: BTreeMap::new(),
        }
    }
}
