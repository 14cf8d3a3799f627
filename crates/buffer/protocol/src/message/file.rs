//! Files as requests and replies describe them.

#[cfg(doc)]
use super::InodeRequest;
#[cfg(doc)]
use super::Request;
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

/// What `stat` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Inode.
    pub ino: Ino,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits, set-id bits and sticky bit: `0o7777`.
    pub mode: u16,
    /// Names (for a directory: 2 and one for each directory in it).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for a device.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Set for a file that lies on several nodes and is or was open for writing: its data objects
    /// say what its length, space and last write are, and `size`, `blocks` and `mtime` here do not.
    /// Ask all nodes with [`InodeRequest::StatObjects`] and give the answers to
    /// [`merge_objects`](Attr::merge_objects). The time is that of the last write that `mtime` accounts for.
    pub provisional: Option<Timestamp>,
    /// Whether it has extended attributes.
    pub extended: bool,
}

impl Attr {
    /// Take length, space and last write from what all the file's data objects say.
    pub fn merge_objects(
        &mut self,
        layout: &Layout,
        objects: impl IntoIterator<Item = (NodeIndex, Option<ObjectInfo>)>,
    ) {
        let Some(seen) = self.provisional.take() else {
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
        if latest > seen {
            self.mtime = latest;
            self.ctime = self.ctime.max(latest);
        }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// Place to continue from behind this entry. Stays valid while entries come and go.
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
    /// An empty regular file that is not opened, a pipe, socket or device with its number.
    Node(FileKind, u32),
}

/// Attributes to change; `None` leaves as is.
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
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The daemon's current time.
    Now,
    /// This time.
    At(Timestamp),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Cut to length 0 first; needs `write`.
    pub truncate: bool,
    /// Send a descriptor of the file's data along with the reply (Unix sockets only).
    pub descriptor: bool,
}

/// What `rename` does when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnExisting {
    /// Replace it.
    Replace,
    /// Fail with `EEXIST`.
    Fail,
    /// Swap the two; fail with `ENOENT` unless it exists.
    Exchange,
}

/// What `setxattr` does depending on whether the attribute exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Set it in either case.
    Any,
    /// Fail with `EEXIST` if it exists.
    Create,
    /// Fail with `ENODATA` unless it exists.
    Replace,
}

/// Can an inode have an extended attribute of this name? POSIX ACLs would have to be enforced, so
/// they are refused rather than only stored. SELinux has one label for a whole mount.
pub fn is_xattr_supported(name: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    known.iter().any(|prefix| name.starts_with(prefix)) && name != b"security.selinux"
}

/// What to do with a range of a file, as `fallocate(2)` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allocate {
    /// Reserve space; extend the file unless `keep_size`.
    Reserve {
        /// Leave the length as it is.
        keep_size: bool,
    },
    /// Free the space; the range reads as zeros. The length stays.
    PunchHole,
    /// Make the range read as zeros; extend the file unless `keep_size`.
    Zero {
        /// Leave the length as it is.
        keep_size: bool,
    },
}
