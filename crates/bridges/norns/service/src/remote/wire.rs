//! Messages between two services.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use forebay_stage::end::FileStat;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::caller::User;

/// Version of the messages.
pub(super) const VERSION: u32 = 1;
/// Longest body of a message, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 4 << 20;
/// Longest payload: a piece of a file, in bytes.
pub(super) const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// Entries of a directory in one message.
pub(super) const MAX_ENTRIES: usize = 1000;

/// The first message of a connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    pub version: u32,
    /// The user whose permissions apply.
    pub user: User,
    pub job: Option<u32>,
    /// The dataspace on the other node.
    pub nsid: String,
}

impl Session {
    pub fn new(user: User, job: Option<u32>, nsid: String) -> Session {
        Session { version: VERSION, user, job, nsid }
    }
}

/// Number of an open file or directory.
pub(super) type Handle = u64;
/// A name in a directory.
pub(super) type Name = Vec<u8>;

/// A call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Call {
    /// Handles that are not used any more.
    pub closed: Vec<Handle>,
    pub operation: Operation,
}

/// An operation on the file system of the other node. A path is below the dataspace's mount point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Operation {
    OpenDirAt(Vec<u8>),
    OpenFileAt(Vec<u8>),
    Directory(Handle, DirectoryOperation),
    File(Handle, FileOperation),
    /// The next entries of a listing.
    NextEntries(Handle),
    /// Reserves bytes for a copy.
    Reserve(u64),
    /// Returns the reservation and counts what was added and removed.
    Settle {
        added: u64,
        removed: u64,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum DirectoryOperation {
    Attributes(AttributeOperation),
    Clone,
    /// Starts a listing.
    List,
    Lstat(Name),
    OpenDir(Name),
    Mkdir(Name),
    Open(Name),
    Create(Name, bool),
    Readlink(Name, FileStat),
    Symlink(Name, Vec<u8>, FileStat),
    /// A link `name` of `existing` in the directory with this inode.
    Link {
        name: Name,
        directory: (u64, u64),
        existing: Name,
    },
    Unlink(Name),
    Rmdir(Name),
    Rename(Name, Name),
    Sync,
    Device,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum FileOperation {
    Attributes(AttributeOperation),
    /// Offset and length.
    Read(u64, u64),
    /// Offset; the data is the payload.
    Write(u64),
    Seek(u64, bool),
    Truncate(u64),
    Sync,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum AttributeOperation {
    Stat,
    SetMetadata(FileStat),
    ListXattr,
    GetXattr(Name),
    SetXattr(Name, Vec<u8>),
}

/// An entry of a directory, with its attributes or an error number.
pub(super) type WireEntry = (Name, Result<FileStat, i32>);

/// The answer to an operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    /// An open file or directory, and its attributes.
    Opened(Handle, FileStat),
    Stat(FileStat),
    Flag(bool),
    Number(u64),
    Bytes(Vec<u8>),
    Names(Vec<Name>),
    /// Entries; none at the end of the listing.
    Entries(Vec<WireEntry>),
    /// The number of `errno(3)`.
    Failed(i32),
    /// The session is refused, for this reason.
    Refused(String),
}

/// A received name: a single component.
pub(super) fn component(name: &[u8]) -> Result<&OsStr, Errno> {
    let is_single = !name.is_empty() && name != b"." && name != b"..";
    if !is_single || name.iter().any(|byte| *byte == b'/' || *byte == 0) {
        return Err(Errno::INVAL);
    }
    Ok(OsStr::from_bytes(name))
}
