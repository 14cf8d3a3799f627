//! Requests of clients, by families.

use super::{Allocate, Attach, InstanceSpec, NewInode, OnExisting, OpenMode, SetAttr, XattrMode};
#[cfg(doc)]
use super::{
    LOCK_WATCH_SLOT, MAX_CLOSED_HANDLES, MAX_INLINE_FILE_BYTES, MAX_NAME, MAX_REQUEST_INODES,
    RECOVERY_SLOT, Reply,
};
use crate::ids::{HandleId, Ino, InstanceId, LockOwner};
use crate::lock::FileLock;
use crate::peer::PeerMessage;
use crate::placement::Capability;
use serde::{Deserialize, Serialize};

/// A request. Names are bytes without `/` or NUL, at most [`MAX_NAME`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Sessions.
    Session(SessionRequest),
    /// Instances; for administrators only.
    Admin(AdminRequest),
    /// Entries of directories.
    Name(NameRequest),
    /// Inodes, open or not.
    Inode(InodeRequest),
    /// Open files.
    File(FileRequest),
    /// File locks.
    Lock(LockRequest),
    /// Data over the socket.
    Data(DataRequest),
    /// A message of one daemon to another. Not answered; what there is to report comes as another
    /// such message.
    Peer(Box<PeerMessage>),
}

macro_rules! families {
    ($($family:ident($request:ty);)*) => {$(
        impl From<$request> for Request {
            fn from(request: $request) -> Request {
                Request::$family(request)
            }
        }
    )*};
}

families! {
    Session(SessionRequest);
    Admin(AdminRequest);
    Name(NameRequest);
    Inode(InodeRequest);
    File(FileRequest);
    Lock(LockRequest);
    Data(DataRequest);
}

/// Sessions begin and end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionRequest {
    /// Begin or resume a session. Answered by [`Reply::Attached`].
    Attach(Attach),
    /// End the session: close all its handles, forget its slots.
    Detach,
}

/// Requests of administrators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are an instance's")]
pub enum AdminRequest {
    /// Create an instance.
    CreateInstance(InstanceSpec),
    /// Remove an instance and all its data. Fails with `EBUSY` while sessions are attached, unless
    /// `force`, which ends them.
    RemoveInstance { id: InstanceId, force: bool },
    /// Change an instance's capacity; it may not go below what is used.
    ResizeInstance { id: InstanceId, capacity: u64 },
    /// Change the addresses of an instance's nodes, in the order of their node indices.
    SetPeers { id: InstanceId, peers: Vec<String> },
    /// List all instances.
    ListInstances,
    /// Read all of an instance's data on this node and compare them with their checksums. Answered
    /// by [`Reply::ScrubReport`].
    ScrubInstance { id: InstanceId },
}

/// Requests about directory entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum NameRequest {
    /// Attributes of the entry `name`.
    Lookup {
        parent: Ino,
        name: Vec<u8>,
    },
    /// The target of a symbolic link.
    ReadLink {
        ino: Ino,
    },
    /// Entries behind `cookie` (0: from the beginning), as many as fit `bytes`.
    ReadDir {
        ino: Ino,
        cookie: u64,
        bytes: u32,
        attrs: bool,
    },
    /// Make a directory, symbolic link, pipe, socket, device or closed regular file.
    Mknod {
        parent: Ino,
        name: Vec<u8>,
        new: NewInode,
        mode: u16,
    },
    /// Make a regular file and open it. If the name exists, open that, or fail with `EEXIST` if
    /// `exclusive`.
    Create {
        parent: Ino,
        name: Vec<u8>,
        mode: u16,
        exclusive: bool,
        handle: HandleId,
        open: OpenMode,
    },
    /// Make a regular file of at most [`MAX_INLINE_FILE_BYTES`] bytes atomically: contents,
    /// attributes and name, in place of the entry with that name, which must not be a directory. The
    /// file is closed then. Owner and group that `set` leaves out are as [`NameRequest::Create`]
    /// gives them; it must not set a length. Answered by [`Reply::Attr`]. [`FileRequest::Sync`]
    /// without a handle makes the contents durable. `EOPNOTSUPP`: other nodes are concerned, and the
    /// file has to be made step by step.
    PutFile {
        parent: Ino,
        name: Vec<u8>,
        set: Box<SetAttr>,
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    Unlink {
        parent: Ino,
        name: Vec<u8>,
    },
    RmDir {
        parent: Ino,
        name: Vec<u8>,
    },
    Rename {
        parent: Ino,
        name: Vec<u8>,
        to: Ino,
        to_name: Vec<u8>,
        existing: OnExisting,
    },
    Link {
        ino: Ino,
        parent: Ino,
        name: Vec<u8>,
    },
}

/// Requests about inodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum InodeRequest {
    GetAttr {
        ino: Ino,
    },
    /// Attributes of at most [`MAX_REQUEST_INODES`] inodes, for a listing whose entries live on
    /// other nodes than the directory. Answered by [`Reply::Attrs`].
    GetAttrs {
        inos: Vec<Ino>,
    },
    /// Answered by [`Reply::Attr`] with the new attributes.
    SetAttr {
        ino: Ino,
        handle: Option<HandleId>,
        set: SetAttr,
    },
    /// Whether the caller may access the inode in all the ways that the bits of `mask` name, those of
    /// `access(2)`: 4 read, 2 write, 1 execute or search. `EACCES` if not.
    Access {
        ino: Ino,
        mask: u16,
    },
    SetXattr {
        ino: Ino,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
    },
    GetXattr {
        ino: Ino,
        name: Vec<u8>,
    },
    ListXattr {
        ino: Ino,
    },
    RemoveXattr {
        ino: Ino,
        name: Vec<u8>,
    },
    /// Attributes and contents of a regular file of at most [`MAX_INLINE_FILE_BYTES`] bytes, as they
    /// are at one moment. Leaves its access time. Answered by [`Reply::FileContents`].
    /// `EOPNOTSUPP`: it is longer, its data are on other nodes, or it is open for writing; open it.
    GetFile {
        ino: Ino,
    },
    /// Capacity and use of the instance.
    StatFs,
    /// State of the data objects of at most [`MAX_REQUEST_INODES`] files on this node. Answered by
    /// [`Reply::Objects`].
    StatObjects {
        inos: Vec<Ino>,
    },
}

/// Requests about open files and directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum FileRequest {
    /// Open a file or directory. A repeated `handle` opens nothing further.
    Open {
        ino: Ino,
        handle: HandleId,
        open: OpenMode,
    },
    /// Open the part of a file on a node that is not the file's metadata node. `ReserveSpace`,
    /// `Allocate`, `Sync`, `Read`, `Write` and `Close` then take the handle, with offsets in the data
    /// object. A repeated `handle` opens nothing further. Answered by [`Reply::Object`].
    /// `EKEYREJECTED`: the capability has expired; request another one from the metadata node with
    /// [`FileRequest::RenewCapability`].
    OpenObject {
        handle: HandleId,
        capability: Capability,
        open: OpenMode,
    },
    /// `returned` is the unused part of the writer's reserved space.
    Close {
        handle: HandleId,
        returned: u64,
    },
    /// Close these handles, at most [`MAX_CLOSED_HANDLES`], as `Close` does that returns nothing.
    /// Those that are not open are skipped.
    CloseAll {
        handles: Vec<HandleId>,
    },
    /// A fresh capability for a handle that is open here, on the file's metadata node.
    RenewCapability {
        handle: HandleId,
    },
    /// Reserve space for `want` more bytes written through `handle`. The reservation before it counts
    /// as used up except for `returned`.
    ReserveSpace {
        handle: HandleId,
        returned: u64,
        want: u64,
    },
    Allocate {
        handle: HandleId,
        offset: u64,
        length: u64,
        what: Allocate,
    },
    /// Make the file's data and the metadata that lead to it durable. Without `handle`: all changes of
    /// the name space so far, with the contents of files that came with [`NameRequest::PutFile`].
    Sync {
        handle: Option<HandleId>,
        data_only: bool,
    },
    /// As `Sync` of a handle, for a client on the daemon's host that has made the data object durable
    /// by its descriptor: makes the metadata durable. So several objects are synced concurrently, by
    /// the threads that wait for them.
    SyncMetadata {
        handle: HandleId,
    },
    /// Wait until no other handle of a file may append to it, on the file's metadata node. The
    /// exclusion ends with `AppendUnlock`, with `Close`, with the session, and with the daemon. On an
    /// instance of one node, data objects themselves serialize appends.
    AppendLock {
        handle: HandleId,
    },
    AppendUnlock {
        handle: HandleId,
    },
}

/// Requests about file locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of fcntl(2) and flock(2)")]
pub enum LockRequest {
    /// Take a lock on a range of an open file, on the file's metadata node. Answered by `Done`;
    /// [`Reply::LockConflict`] if another one conflicts and there is no `ticket`; else
    /// [`Reply::LockPending`], and [`LockRequest::Await`] reports when the lock is held. `EDEADLK`:
    /// the wait would never end. `ENOLCK`: the session has too many. The lock replaces what the same
    /// owner has locked of the range, and goes with the handle. After a restart of the daemon,
    /// sessions from before first take theirs again on [`RECOVERY_SLOT`], and all others wait for
    /// that.
    Acquire { handle: HandleId, lock: FileLock, ticket: Option<u64> },
    /// Release an owner's locks on a range, both ends included.
    Release { handle: HandleId, owner: LockOwner, start: u64, end: u64 },
    /// Test whether the lock could be had now. Answered by `Done` or [`Reply::LockConflict`].
    Test { handle: HandleId, lock: FileLock },
    /// Wait for pending locks to be granted; only on [`LOCK_WATCH_SLOT`]. `known` are the tickets of
    /// those that the client knows of. Answered by [`Reply::LocksGranted`] when there are any.
    Await { known: Vec<u64> },
    /// Give up waiting for a lock. Answered by `Done`, or by [`Reply::LocksGranted`] if it is held.
    Cancel { ticket: u64 },
}

/// Data over the socket, on data connections only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum DataRequest {
    /// The reply's payload is the data, shorter at the end of the file.
    Read { handle: HandleId, offset: u64, length: u32 },
    /// Write the frame's payload. `offset` is ignored if `append`.
    Write { handle: HandleId, offset: u64, append: bool },
}
