//! Changes of a name space, as they are logged.

use super::{Body, Directory, FileLength, Inode, PieceNodes};
use forebay_policy::layout::FIRST_WIDTH;
use forebay_protocol::acl::InheritedAcls;
use forebay_protocol::message::{NewInode, OnExisting};
use forebay_protocol::{FileKind, Ino, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A change that is possible and permitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Create an inode with a name.
    Make {
        parent: Ino,
        name: Vec<u8>,
        inode: PlannedInode,
        now: Timestamp,
    },
    /// Remove a name of an inode that is not a directory.
    Unlink {
        parent: Ino,
        name: Vec<u8>,
        now: Timestamp,
    },
    RmDir {
        parent: Ino,
        name: Vec<u8>,
        now: Timestamp,
    },
    /// Rename an inode, or exchange two.
    Rename {
        parent: Ino,
        name: Vec<u8>,
        to: Ino,
        to_name: Vec<u8>,
        /// Treatment of an existing inode of the new name.
        existing: OnExisting,
        now: Timestamp,
    },
    Link {
        ino: Ino,
        parent: Ino,
        name: Vec<u8>,
        now: Timestamp,
    },
    SetAttributes {
        ino: Ino,
        set: SetInode,
    },
    /// Set an extended attribute, or remove it without a value.
    SetXattr {
        ino: Ino,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
        now: Timestamp,
    },
    /// Drop an inode that has no name and is not open.
    DropInode {
        ino: Ino,
    },
    /// Part of a transaction: set or remove an entry of a directory.
    SetEntry {
        dir: Ino,
        name: Vec<u8>,
        /// The inode that gets the name.
        put: Option<(Ino, FileKind)>,
        now: Timestamp,
    },
    /// Part of a transaction: create a directory whose name is on another node.
    MakeDir {
        ino: Ino,
        parent: Ino,
        mode: u16,
        uid: u32,
        gid: u32,
        now: Timestamp,
    },
    /// Part of a transaction: an inode loses a name. A directory is removed.
    RemoveName {
        ino: Ino,
        now: Timestamp,
    },
    /// Part of a transaction: an inode gets an additional name.
    AddName {
        ino: Ino,
        now: Timestamp,
    },
    /// Part of a transaction: an inode is renamed.
    MoveInode {
        ino: Ino,
        /// The new parent of a directory, if it changes.
        parent: Option<Ino>,
        now: Timestamp,
    },
    /// Record the length of a striped file.
    SetLength {
        ino: Ino,
        length: FileLength,
        /// New `mtime` and `ctime`, if they change.
        times: Option<(Timestamp, Timestamp)>,
    },
    /// Create a file with contents, in place of a file that has the name.
    Put {
        parent: Ino,
        name: Vec<u8>,
        inode: PlannedInode,
        /// Its `atime` and `mtime`.
        times: (Timestamp, Timestamp),
        /// Record the length of a striped file.
        length: Option<FileLength>,
        now: Timestamp,
    },
    /// Set the access control list of an inode, or remove it without a value, with the mode that
    /// follows from it.
    SetAccessAcl {
        ino: Ino,
        value: Option<Vec<u8>>,
        mode: u16,
        now: Timestamp,
    },
    /// Create an inode with access control lists.
    CreateWithAcls {
        /// A change that creates an inode.
        create: Box<Change>,
        /// The lists, by the names of the extended attributes.
        acls: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// Create a file without a name, which may get one if it is `linkable`.
    MakeUnnamed {
        /// The directory in which it is created.
        parent: Ino,
        inode: PlannedInode,
        linkable: bool,
        now: Timestamp,
    },
}

impl Change {
    /// The change that creates an inode, with the lists that the inode inherits.
    pub fn with_acls(self, acls: InheritedAcls) -> Change {
        assert!(self.created().is_some(), "it creates an inode");
        if acls.0.is_empty() {
            return self;
        }
        Change::CreateWithAcls { create: Box::new(self), acls: acls.0 }
    }

    /// The inode that it creates.
    pub fn created(&self) -> Option<Ino> {
        match self {
            Change::Make { inode, .. }
            | Change::Put { inode, .. }
            | Change::MakeUnnamed { inode, .. } => Some(inode.ino),
            Change::MakeDir { ino, .. } => Some(*ino),
            Change::CreateWithAcls { create, .. } => create.created(),
            Change::Unlink { .. }
            | Change::RmDir { .. }
            | Change::Rename { .. }
            | Change::Link { .. }
            | Change::SetAttributes { .. }
            | Change::SetXattr { .. }
            | Change::DropInode { .. }
            | Change::SetEntry { .. }
            | Change::RemoveName { .. }
            | Change::AddName { .. }
            | Change::MoveInode { .. }
            | Change::SetLength { .. }
            | Change::SetAccessAcl { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedInode {
    pub ino: Ino,
    /// Its kind, with a link's target or a device's number.
    pub new: NewInode,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Whether it is created open for writing.
    pub opened: bool,
}

/// Attributes to set; `None` leaves one unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetInode {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<Timestamp>,
    pub mtime: Option<Timestamp>,
    /// Time at which attributes changed.
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
                pieces: if self.opened { PieceNodes::First(FIRST_WIDTH) } else { PieceNodes::None },
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
