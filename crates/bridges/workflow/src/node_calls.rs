//! Requests to the server of a node, and its replies. Only root of another host may make them: it
//! acts for a user, whose permissions apply.

use std::collections::BTreeSet;

use forebay_protocol::Timestamp;
use forebay_stage::end::{FileKind, FileStat};
use forebay_workflow_script::{Location, Principal};
use serde::{Deserialize, Serialize};

/// Longest piece of a file that is read at once, in bytes.
pub const MAX_READ: usize = 4 << 20;

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeRequest {
    /// Remove the directories of a workflow's data.
    Clean {
        /// Its user.
        uid: u32,
        /// The user's group.
        gid: u32,
        /// The directories.
        directories: BTreeSet<u32>,
    },
    /// Start to stage out a job's results again. The node reports the outcome to the controller.
    StageOut {
        /// The job.
        job: u32,
        /// Name of the node.
        node: String,
    },
    /// Let a user or group read persistent data, or no longer.
    Share {
        /// The owner.
        uid: u32,
        /// The owner's group.
        gid: u32,
        /// The data.
        location: Location,
        /// The user or group.
        principal: Principal,
        /// Whether it may.
        allow: bool,
    },
    /// Remove persistent data.
    Delete {
        /// The owner.
        uid: u32,
        /// The owner's group.
        gid: u32,
        /// The data.
        location: Location,
    },
    /// Open the directory of a workflow's data in a dataspace.
    OpenRoot {
        /// The user.
        uid: u32,
        /// The user's group.
        gid: u32,
        /// Name of the dataspace.
        dataspace: String,
        /// The directory.
        directory: u32,
    },
    /// Access a file or directory that this connection has opened.
    Access {
        /// Its number.
        handle: u64,
        /// The access.
        access: Access,
    },
}

/// An access to an open file or directory. Names are single components, in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Access {
    /// Attributes.
    Stat,
    /// Names of extended attributes.
    ListXattr,
    /// The value of one.
    GetXattr(Vec<u8>),
    /// Entries of a directory, with their attributes.
    ReadDir,
    /// Attributes of an entry.
    Lstat(Vec<u8>),
    /// Open an entry that is a directory.
    OpenDir(Vec<u8>),
    /// Open an entry that is a file.
    OpenFile(Vec<u8>),
    /// Target of an entry that is a symbolic link.
    Readlink(Vec<u8>),
    /// Another handle of a directory.
    Clone,
    /// Number of the file system.
    Device,
    /// Bytes of a file, as payload.
    Read {
        /// Position.
        offset: u64,
        /// Number of bytes, at most [`MAX_READ`].
        length: u32,
    },
    /// The next byte that is data, or in a hole.
    Seek {
        /// Position.
        offset: u64,
        /// Whether a hole is looked for.
        hole: bool,
    },
    /// Close it.
    Close,
}

/// A reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeReply {
    /// Done.
    Done,
    /// The number of a newly opened file or directory.
    Handle(u64),
    /// Attributes.
    Stat(WireStat),
    /// Entries: names, and attributes or the number of an error.
    Entries(Vec<(Vec<u8>, Result<WireStat, i32>)>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Several byte strings.
    List(Vec<Vec<u8>>),
    /// A number.
    Number(u64),
    /// The access failed with this number of `errno(3)`.
    Errno(i32),
    /// The request failed, for this reason.
    Failed(String),
}

/// [`FileStat`] in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireStat {
    kind: u8,
    mode: u32,
    uid: u32,
    gid: u32,
    size: u64,
    allocated: u64,
    nlink: u64,
    inode: (u64, u64),
    times: [(i64, u32); 3],
}

impl From<FileStat> for WireStat {
    fn from(stat: FileStat) -> WireStat {
        let time = |time: Timestamp| (time.secs, time.nanos);
        WireStat {
            kind: match stat.kind {
                FileKind::File => 0,
                FileKind::Directory => 1,
                FileKind::Symlink => 2,
                FileKind::Other => 3,
            },
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            allocated: stat.allocated,
            nlink: stat.nlink,
            inode: stat.inode,
            times: [time(stat.accessed), time(stat.modified), time(stat.changed)],
        }
    }
}

impl From<WireStat> for FileStat {
    fn from(stat: WireStat) -> FileStat {
        let time = |(secs, nanos)| Timestamp { secs, nanos };
        let [accessed, modified, changed] = stat.times;
        FileStat {
            kind: match stat.kind {
                0 => FileKind::File,
                1 => FileKind::Directory,
                2 => FileKind::Symlink,
                _ => FileKind::Other,
            },
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            allocated: stat.allocated,
            nlink: stat.nlink,
            inode: stat.inode,
            accessed: time(accessed),
            modified: time(modified),
            changed: time(changed),
        }
    }
}
