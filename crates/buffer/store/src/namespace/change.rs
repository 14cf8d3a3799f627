//! What can happen to a name space, as the log keeps it.

use super::{Body, Directory, FileLength, Inode};
use forebay_protocol::message::{NewInode, OnExisting};
use forebay_protocol::{FileKind, Ino, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A change that has been found to be possible and permitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A new inode under a new name.
    Make {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The inode.
        inode: PlannedInode,
        /// When.
        now: Timestamp,
    },
    /// A name of something that is not a directory goes.
    Unlink {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// When.
        now: Timestamp,
    },
    /// An empty directory goes.
    RmDir {
        /// The directory it is in.
        parent: Ino,
        /// Its name.
        name: Vec<u8>,
        /// When.
        now: Timestamp,
    },
    /// A name changes.
    Rename {
        /// The directory it is in.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The directory it moves to.
        to: Ino,
        /// The new name.
        to_name: Vec<u8>,
        /// Whether the two are exchanged instead.
        existing: OnExisting,
        /// When.
        now: Timestamp,
    },
    /// A further name.
    Link {
        /// What is named.
        ino: Ino,
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// When.
        now: Timestamp,
    },
    /// Attributes change.
    SetAttributes {
        /// Whose.
        ino: Ino,
        /// To what.
        set: SetInode,
    },
    /// An extended attribute is set, or removed without a value.
    SetXattr {
        /// Whose.
        ino: Ino,
        /// Which.
        name: Vec<u8>,
        /// To what.
        value: Option<Vec<u8>>,
        /// When.
        now: Timestamp,
    },
    /// An inode without names, which nobody has open any more, goes.
    DropInode {
        /// Which.
        ino: Ino,
    },
    /// Part of a transaction: a name in a directory goes, comes, or leads elsewhere.
    SetEntry {
        /// The directory.
        dir: Ino,
        /// The name.
        name: Vec<u8>,
        /// What has it from now on.
        put: Option<(Ino, FileKind)>,
        /// When.
        now: Timestamp,
    },
    /// Part of a transaction: a new directory whose name is on another node.
    MakeDir {
        /// Its number.
        ino: Ino,
        /// The directory it is in.
        parent: Ino,
        /// Permission bits.
        mode: u16,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// When.
        now: Timestamp,
    },
    /// Part of a transaction: an inode has a name less. A directory is removed with it.
    RemoveName {
        /// Which.
        ino: Ino,
        /// When.
        now: Timestamp,
    },
    /// Part of a transaction: an inode has a further name.
    AddName {
        /// Which.
        ino: Ino,
        /// When.
        now: Timestamp,
    },
    /// Part of a transaction: an inode's name has changed.
    MoveInode {
        /// Which.
        ino: Ino,
        /// The directory that a directory is in from now on, if that changes.
        parent: Option<Ino>,
        /// When.
        now: Timestamp,
    },
    /// What is known of a striped file's length.
    SetLength {
        /// Which.
        ino: Ino,
        /// What is known.
        length: FileLength,
        /// New `mtime` and `ctime`, if they change.
        times: Option<(Timestamp, Timestamp)>,
    },
    /// A new file that is whole already, in place of what has the name.
    Put {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The inode.
        inode: PlannedInode,
        /// Its `atime` and `mtime`.
        times: (Timestamp, Timestamp),
        /// What is known of a striped file's length.
        length: Option<FileLength>,
        /// When.
        now: Timestamp,
    },
}

/// An inode to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedInode {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub new: NewInode,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// A file that is made to be written to at once.
    pub opened: bool,
}

/// Attributes to set; `None` leaves as is.
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
    pub(super) fn build(&self, parent: Ino, spread: bool, now: Timestamp) -> Inode {
        let body = match &self.new {
            NewInode::Dir => Body::Dir(Directory::new(parent)),
            NewInode::Symlink(target) => Body::Symlink(target.clone()),
            NewInode::Node(FileKind::File, _) if spread => Body::Striped(FileLength {
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
