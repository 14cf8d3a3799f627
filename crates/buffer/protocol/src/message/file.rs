//! Attributes and operations of files.

#[cfg(doc)]
use super::InodeRequest;
use super::TrailingField;
use crate::ids::{Ino, NodeIndex, Timestamp};
use crate::placement::ObjectInfo;
use forebay_policy::layout::Layout;
use serde::{Deserialize, Serialize};

/// Kinds of inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// Regular file.
    #[default]
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// Attributes, as shown by `stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Inode.
    pub ino: Ino,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits, set-id bits and sticky bit: `0o7777`.
    pub mode: u16,
    /// Links (of a directory: 2 and one for each directory in it).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Allocated space, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
    /// Set for a distributed file that is or was open for writing.
    pub provisional: Option<Provisional>,
    /// Whether it has extended attributes.
    pub extended: bool,
}

/// Length of a directory for each of its entries, in bytes.
pub const DIRECTORY_ENTRY_BYTES: u64 = 32;

/// `size`, `blocks` and `mtime` of a file are determined by its data objects: query them with
/// [`InodeRequest::StatObjects`] and pass the replies to [`merge_objects`](Attr::merge_objects).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisional {
    /// The last write included in `mtime`.
    pub mtime_seen: Timestamp,
    /// Objects are on the metadata node and on this number of nodes, the first ones of the file's
    /// rounds.
    pub width: u16,
}

impl Attr {
    /// Computes length, space and last write from the states of all the file's data objects.
    pub fn merge_objects(
        &mut self,
        layout: &Layout,
        objects: impl IntoIterator<Item = (NodeIndex, Option<ObjectInfo>)>,
    ) {
        let Some(provisional) = self.provisional.take() else {
            return;
        };
        (self.size, self.blocks) = (0, 0);
        let mut latest = Timestamp::default();
        for (node, object) in objects {
            if let Some(object) = object {
                self.size = self.size.max(layout.file_end(self.ino, node, object.size));
                self.blocks += object.space / 512;
                latest = latest.max(object.mtime);
            }
        }
        if latest > provisional.mtime_seen {
            self.mtime = latest;
            self.ctime = self.ctime.max(latest);
        }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Position behind this entry. Stays valid while entries are added and removed.
    pub cookie: u64,
    /// Name.
    pub name: Vec<u8>,
    /// Inode.
    pub ino: Ino,
    /// Kind.
    pub kind: FileKind,
    /// Attributes, if the request asked for them.
    pub attr: Option<Attr>,
}

/// A new inode that is not a regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewInode {
    /// An empty directory.
    Dir,
    /// A symbolic link to these bytes.
    Symlink(Vec<u8>),
    /// An empty regular file that is not opened, a pipe, a socket, or a device with its number.
    Node(FileKind, u32),
}

/// The mode of a new inode, before its directory has been taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateMode {
    /// Permission bits and set-id bits.
    pub bits: u16,
    /// The process's file mode creation mask: these bits are cleared, unless the directory has a
    /// default access control list.
    pub umask: u16,
}

impl From<u16> for CreateMode {
    /// A mode without a mask.
    fn from(bits: u16) -> CreateMode {
        CreateMode { bits, umask: 0 }
    }
}

/// Attributes to change; `None` keeps the current value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Clears set-id bits as a change of contents by a process without privileges does.
    pub clear_set_id: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The daemon's current time.
    Now,
    /// This time.
    At(Timestamp),
}

/// Mode of opening a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Truncate it; requires `write`.
    pub truncate: bool,
    /// Pass a descriptor of the data object with the reply (Unix sockets only).
    pub descriptor: bool,
    /// Reads do not change the access time (`O_NOATIME`). A mode is therefore the last part of a message.
    pub keep_access_time: TrailingField<bool>,
}

impl OpenMode {
    /// For nothing.
    pub const NONE: OpenMode = OpenMode {
        read: false,
        write: false,
        truncate: false,
        descriptor: false,
        keep_access_time: TrailingField(false),
    };
}

/// Treatment of an existing entry by `rename`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnExisting {
    /// Replace it.
    Replace,
    /// Fail with `EEXIST`.
    Fail,
    /// Exchange the two; fail with `ENOENT` if it does not exist.
    Exchange,
}

/// Treatment of an existing attribute by `setxattr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Replace it.
    Any,
    /// Fail with `EEXIST` if it exists.
    Create,
    /// Fail with `ENODATA` if it does not exist.
    Replace,
}

/// Name of the extended attribute with an inode's access control list (`acl(5)`), in the format of Linux.
pub const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// The same for the list that new entries of a directory inherit.
pub const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

/// Name of the extended attribute with the capabilities of a program.
pub const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// Whether an extended attribute of this name is an access control list.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_ACL || name == DEFAULT_ACL
}

/// Whether an inode can have an extended attribute of this name. SELinux has one label for a whole mount.
pub fn is_xattr_supported(name: &[u8]) -> bool {
    if is_acl(name) {
        return true;
    }
    let known: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    known.iter().any(|prefix| name.starts_with(prefix)) && name != b"security.selinux"
}

/// Operations on a range of a file, as in `fallocate(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allocate {
    /// Reserve space; extend the file unless `keep_size`.
    Reserve {
        /// Keep the length.
        keep_size: bool,
    },
    /// Free the space; the range reads as zeros. Keeps the length.
    PunchHole,
    /// Make the range read as zeros; extend the file unless `keep_size`.
    Zero {
        /// Keep the length.
        keep_size: bool,
    },
}
