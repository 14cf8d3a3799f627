//! What can happen to a name space, as the log keeps it.

use super::{Body, Dir, Inode};
use forebay_wire::message::{New, OnExisting};
use forebay_wire::{Ino, Timestamp};
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
        inode: NewInode,
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
    Set {
        /// Whose.
        ino: Ino,
        /// To what.
        set: SetInode,
    },
    /// An extended attribute is set, or removed without a value.
    Xattr {
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
    Drop {
        /// Which.
        ino: Ino,
    },
}

/// An inode to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInode {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub new: New,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
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

impl NewInode {
    pub(super) fn build(&self, parent: Ino, now: Timestamp) -> Inode {
        let body = match &self.new {
            New::Dir => Body::Dir(Dir::new(parent)),
            New::Symlink(target) => Body::Symlink(target.clone()),
            New::Node(forebay_wire::Kind::File, _) => Body::File,
            New::Node(kind, rdev) => Body::Special(*kind, *rdev),
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
