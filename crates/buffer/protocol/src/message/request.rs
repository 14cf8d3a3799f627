//! Requests to a storage daemon, by families.

use super::{
    Allocate, Attach, BatchRequest, CreateMode, Delegated, HostFence, InstanceSpec, NewInode,
    OnExisting, OpenMode, PathRequest, SetAttr, TrailingField, XattrMode,
};
#[cfg(doc)]
use super::{
    BATCH_SLOTS, EVENT_SLOT, MAX_BATCH_REQUESTS, MAX_CLOSED_HANDLES, MAX_INLINE_FILE_BYTES,
    MAX_LEASED_HANDLES, MAX_LISTED_SESSIONS, MAX_NAME, MAX_REQUEST_INODES, READ_LEASE_NS,
    RECOVERY_SLOT, Reply, Share, WRITE_LEASE_RECALL_NS,
};
use crate::credentials::Credentials;
use crate::ids::{HandleId, Ino, InstanceId, LeaseId, LockOwner, SessionId};
use crate::inode_tag::InodeTag;
use crate::lock::FileLock;
use crate::peer::PeerMessage;
use crate::placement::Capability;
use serde::{Deserialize, Serialize};

/// A request with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// One more than that of the slot's previous request.
    pub seq: u64,
    /// The user for whom the request is carried out; `None` for the peer itself.
    pub caller: Option<Credentials>,
    /// Tags of the [inodes](Request::inodes) that the request names, in their order. Empty if the
    /// daemon trusts the client.
    pub tags: Vec<InodeTag>,
    /// The request.
    pub request: Request,
}

impl Call {
    /// A call for the peer itself.
    pub fn new(seq: u64, request: impl Into<Request>) -> Call {
        Call { seq, caller: None, tags: Vec::new(), request: request.into() }
    }
}

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
    /// Operations on paths.
    Path(Box<PathRequest>),
    /// A message between daemons. Has no reply: results are sent as messages, too.
    Peer(Box<PeerMessage>),
    /// A change that the client has reported to a program as made.
    Delegated(Box<Delegated>),
    /// At most [`MAX_BATCH_REQUESTS`] independent requests, on one of the [`BATCH_SLOTS`]. Answered by
    /// [`Reply::Batch`]; by `EINVAL` if it is empty, too long, or came on another slot. A request that does
    /// [not belong in a batch](Request::is_batched) fails with `EOPNOTSUPP`.
    Batch(Vec<BatchRequest>),
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

impl From<Delegated> for Request {
    fn from(delegated: Delegated) -> Request {
        Request::Delegated(Box::new(delegated))
    }
}

/// Requests about sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionRequest {
    /// Begin or join a session. Answered by [`Reply::Attached`].
    Attach(Attach),
    /// End the session and close all its handles.
    Detach,
}

/// Requests of administrators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are an instance's")]
pub enum AdminRequest {
    /// Create an instance.
    CreateInstance(InstanceSpec),
    /// Remove an instance with its data. Fails with `EBUSY` while sessions are attached, unless
    /// `force`, which ends them.
    RemoveInstance { id: InstanceId, force: bool },
    /// Change the capacity of an instance; it must not fall below its usage.
    ResizeInstance { id: InstanceId, capacity: u64 },
    /// List all instances.
    ListInstances,
    /// Compare all of an instance's data on this node with their checksums. Answered by
    /// [`Reply::ScrubReport`].
    ScrubInstance { id: InstanceId },
    /// Refuse these hosts' mounts of an instance, of generations before the given ones: their
    /// connections are closed, and no request of theirs is carried out after the reply. Their
    /// sessions end when their leases have expired.
    FenceHosts { id: InstanceId, hosts: Vec<HostFence> },
    /// List the sessions with numbers above `after`, in order, at most [`MAX_LISTED_SESSIONS`];
    /// without those of administrators. Answered by [`Reply::Sessions`].
    ListSessions { after: SessionId },
    /// End at most [`MAX_LISTED_SESSIONS`] sessions: their connections are closed, no request of
    /// theirs is carried out after the reply, and attaching to one fails with `ESHUTDOWN`. What they
    /// hold is released at once, on an instance of several nodes when their leases have expired.
    /// Sessions that do not exist are skipped.
    EvictSessions { sessions: Vec<SessionId> },
}

/// Requests about directory entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum NameRequest {
    /// Get the attributes of the entry `name`.
    Lookup {
        parent: Ino,
        name: Vec<u8>,
    },
    /// Read the target of a symbolic link.
    ReadLink {
        ino: Ino,
    },
    /// Read entries behind `cookie` (0: from the beginning), as many as fit `bytes`.
    ReadDir {
        ino: Ino,
        cookie: u64,
        bytes: u32,
        attrs: bool,
    },
    /// Create a directory, symbolic link, pipe, socket, device or closed regular file.
    Mknod {
        parent: Ino,
        name: Vec<u8>,
        new: NewInode,
        mode: CreateMode,
    },
    /// Create a regular file and open it. If the entry exists, open that, or fail with `EEXIST` if
    /// `exclusive`.
    Create {
        parent: Ino,
        name: Vec<u8>,
        mode: CreateMode,
        exclusive: bool,
        handle: HandleId,
        open: OpenMode,
    },
    /// Create a closed regular file of at most [`MAX_INLINE_FILE_BYTES`] bytes atomically, with
    /// contents, attributes and name. It replaces an existing entry, which must not be a directory.
    /// Default owner and group are those of [`NameRequest::Create`]; `set` must not contain a length.
    /// Answered by [`Reply::Attr`]. [`FileRequest::Sync`] without a handle makes the contents
    /// durable. `EOPNOTSUPP`: other nodes are involved; create and write the file instead.
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
    /// Give an inode another name, or a first one to a `linkable` file without a name.
    Link {
        ino: Ino,
        parent: Ino,
        name: Vec<u8>,
    },
    /// Create a regular file without a name, as in the directory `parent`, and open it. It ends with
    /// its last handle, unless it is `linkable` and gets a name before. Answered by [`Reply::Opened`].
    CreateUnnamed {
        parent: Ino,
        mode: CreateMode,
        linkable: bool,
        handle: HandleId,
        open: OpenMode,
    },
}

impl NameRequest {
    /// Whether it changes names or attributes.
    pub fn is_change(&self) -> bool {
        match self {
            NameRequest::Mknod { .. }
            | NameRequest::Create { .. }
            | NameRequest::PutFile { .. }
            | NameRequest::Unlink { .. }
            | NameRequest::RmDir { .. }
            | NameRequest::Rename { .. }
            | NameRequest::Link { .. }
            | NameRequest::CreateUnnamed { .. } => true,
            NameRequest::Lookup { .. }
            | NameRequest::ReadLink { .. }
            | NameRequest::ReadDir { .. } => false,
        }
    }
}

/// Requests about inodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum InodeRequest {
    GetAttr {
        ino: Ino,
    },
    /// Get the attributes of at most [`MAX_REQUEST_INODES`] inodes, for a listing of a directory on
    /// another node. Answered by [`Reply::Attrs`].
    GetAttrs {
        inos: Vec<Ino>,
    },
    /// Answered by [`Reply::Attr`] with the new attributes.
    SetAttr {
        ino: Ino,
        handle: Option<HandleId>,
        set: SetAttr,
    },
    /// Check that the caller has all the permissions in `mask`, the bits of `access(2)`: 4 read,
    /// 2 write, 1 execute or search. `EACCES` otherwise.
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
    /// Read attributes and contents of a regular file of at most [`MAX_INLINE_FILE_BYTES`] bytes
    /// atomically, without a change of its access time. Answered by [`Reply::FileContents`].
    /// `EOPNOTSUPP`: it is longer, has data on other nodes, or is open for writing; open it instead.
    GetFile {
        ino: Ino,
    },
    /// Get capacity and usage of the instance.
    StatFs,
    /// Get the states of the data objects of at most [`MAX_REQUEST_INODES`] files on this node.
    /// Answered by [`Reply::Objects`].
    StatObjects {
        inos: Vec<Ino>,
    },
    /// Give up at most `want` bytes of this node's share of the capacity that are not in use, so that another
    /// node can use as many beyond its own share ([`ReserveSpace`](FileRequest::ReserveSpace)). Answered
    /// by [`Reply::SpaceGranted`]. Only for nodes that [report](Share::lends) that they lend some.
    LendSpace {
        want: u64,
    },
}

impl InodeRequest {
    /// Whether it changes attributes.
    pub fn is_change(&self) -> bool {
        match self {
            InodeRequest::SetAttr { .. }
            | InodeRequest::SetXattr { .. }
            | InodeRequest::RemoveXattr { .. } => true,
            InodeRequest::GetAttr { .. }
            | InodeRequest::GetAttrs { .. }
            | InodeRequest::Access { .. }
            | InodeRequest::GetXattr { .. }
            | InodeRequest::ListXattr { .. }
            | InodeRequest::GetFile { .. }
            | InodeRequest::StatFs
            | InodeRequest::StatObjects { .. }
            | InodeRequest::LendSpace { .. } => false,
        }
    }
}

/// Requests about open files and directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum FileRequest {
    /// Open a file or directory. Does nothing if `handle` is open.
    Open {
        ino: Ino,
        handle: HandleId,
        open: OpenMode,
    },
    /// Open a file's data object on a node that is not the file's metadata node. `ReserveSpace`,
    /// `Allocate`, `Sync`, `Read`, `Write` and `Close` then take the handle, with offsets in the data
    /// object. Does nothing if `handle` is open. Answered by [`Reply::Object`]. `EKEYREJECTED`: it is
    /// from before the metadata node's last start, its handle was closed, or it is not for writing on
    /// this node;
    /// [renew](FileRequest::RenewCapability) it at the metadata node.
    OpenObject {
        handle: HandleId,
        capability: Capability,
        open: OpenMode,
    },
    /// Close a handle. `returned` is the unused part of its reserved space.
    Close {
        handle: HandleId,
        returned: u64,
    },
    /// Close at most [`MAX_CLOSED_HANDLES`] handles without reserved space. Handles that are not
    /// open are skipped.
    CloseAll {
        handles: Vec<HandleId>,
    },
    /// Issue a new capability for an open handle, on the file's metadata node. `position`: one for
    /// writing is to include the node at this
    /// [position](forebay_policy::layout::Layout::position).
    RenewCapability {
        handle: HandleId,
        position: u16,
    },
    /// Reserve `want` bytes for writes through `handle`. Its earlier reservation is used up except
    /// for `returned`. Other nodes have [lent](InodeRequest::LendSpace) this one `lent` bytes of their shares
    /// of the capacity, which it may use beyond its own.
    ReserveSpace {
        handle: HandleId,
        returned: u64,
        want: u64,
        lent: TrailingField<u64>,
    },
    Allocate {
        handle: HandleId,
        offset: u64,
        length: u64,
        what: Allocate,
    },
    /// Make the file's data and the metadata that lead to it durable; without `handle`, all changes of
    /// the namespace so far, with the contents of files created by [`NameRequest::PutFile`]. With `data_only`
    /// and without `handle` this also waits, for a moment at most, until other nodes have removed their parts
    /// of removed files.
    Sync {
        handle: Option<HandleId>,
        data_only: bool,
    },
    /// Make the file's metadata durable. For a client on the daemon's host that has synced the data
    /// object through its descriptor, so that data objects are synced by the client's threads.
    SyncMetadata {
        handle: HandleId,
    },
    /// Wait for the exclusive right to append to the file, on the file's metadata node. It ends with
    /// `AppendUnlock`, with `Close`, with the session, and with the daemon. On an instance of one
    /// node, the data objects serialize appends.
    AppendLock {
        handle: HandleId,
    },
    AppendUnlock {
        handle: HandleId,
    },
    /// Find the next byte at or after `offset` that is in a hole of the data object, or that is
    /// data. Answered by [`Reply::Extent`].
    Seek {
        handle: HandleId,
        offset: u64,
        hole: bool,
    },
}

/// Requests about file locks and read leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of fcntl(2) and flock(2)")]
pub enum LockRequest {
    /// Acquire a lock on a range of an open file, on the file's metadata node. Answered by `Done`; by
    /// [`Reply::LockConflict`] if another lock conflicts and there is no `ticket`; else by
    /// [`Reply::LockPending`], and later the grant is in the reply to [`LockRequest::AwaitEvents`].
    /// `EDEADLK`: deadlock. `ENOLCK`: the session has too many locks. The lock replaces the
    /// owner's other locks on the range and is released with the handle. After a restart of the daemon, earlier sessions
    /// acquire theirs again on [`RECOVERY_SLOT`] before any other lock is granted.
    Acquire { handle: HandleId, lock: FileLock, ticket: Option<u64> },
    /// Release an owner's locks on a range, including both ends.
    Release { handle: HandleId, owner: LockOwner, start: u64, end: u64 },
    /// Test for a conflicting lock. Answered by `Done` or [`Reply::LockConflict`].
    Test { handle: HandleId, lock: FileLock },
    /// Wait for events, on [`EVENT_SLOT`]: grants of queued locks, and recalls of leases. `known` are
    /// the tickets of grants that the client has processed, `returned` the recalled read leases that
    /// it does not use any more. `cache` is of clients with a single cache. Answered by
    /// [`Reply::Events`].
    AwaitEvents { known: Vec<u64>, returned: Vec<LeaseId>, cache: CacheRecall },
    /// Cancel a queued lock. Answered by `Done`, or by [`Reply::LocksGranted`] if it is granted.
    Cancel { ticket: u64 },
    /// Acquire or renew read leases on the files of at most [`MAX_LEASED_HANDLES`] handles that are
    /// open for reading, on their metadata node. While a client has a lease, the file's data do not
    /// change, so that it may keep what it has read under it. A lease ends [`READ_LEASE_NS`] after
    /// its last request was sent, when it is recalled, or when the handle is closed. Answered by
    /// [`Reply::Leases`].
    Lease { handles: Vec<HandleId> },
    /// Acquire a write lease on the data object of a handle that is open for writing, if no other session
    /// has the object open; or, for its holder, extend the time to give it back after a recall, which is
    /// [`WRITE_LEASE_RECALL_NS`]. The holder may report writes to a program before it sends them to this
    /// node: other sessions do not observe the object before the lease is given back, or the time has
    /// passed. It ends when the handle is closed. Answered by [`Reply::Leases`] with one.
    ///
    /// After a restart of the daemon a holder with such writes asks for its lease again on
    /// [`RECOVERY_SLOT`], when it has opened the handle again. Without a lease in the reply another session
    /// may have opened or truncated the file since, and the writes must not be sent.
    WriteLease { handle: HandleId },
}

/// The answer of a client with a single cache to recalls of its lease on names and attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CacheRecall {
    /// Recalls have no effect: what the client caches expires.
    #[default]
    Ignored,
    /// The client drops what it caches when the lease is recalled.
    Obeyed,
    /// As `Obeyed`, and the client has dropped what it cached when this recall arrived.
    Dropped(LeaseId),
}

/// Data over the socket, on data connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the operation's arguments in POSIX")]
pub enum DataRequest {
    /// Read; the reply's payload is shorter at the end of the file.
    Read { handle: HandleId, offset: u64, length: u32 },
    /// Write the frame's payload. `offset` is ignored if `append`.
    Write { handle: HandleId, offset: u64, append: bool },
}
