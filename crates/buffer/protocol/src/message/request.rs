//! What a client asks for.

use super::{Allocate, Hello, InstanceSpec, NewInode, OnExisting, OpenMode, SetAttr, XattrMode};
#[cfg(doc)]
use super::{
    LOCK_WATCH_SLOT, MAX_CLOSED_HANDLES, MAX_NAME, MAX_REQUEST_INODES, RECOVERY_SLOT, Reply,
};
use crate::identity::Proof;
use crate::ids::{HandleId, Ino, InstanceId, LockOwner};
use crate::lock::FileLock;
use crate::peer::PeerMessage;
use crate::placement::Capability;
use serde::{Deserialize, Serialize};

/// What a client asks for. Names are bytes without `/` or NUL, at most [`MAX_NAME`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields are what the operation of that name takes in POSIX"
)]
pub enum Request {
    /// Begin or resume a session. Answered by [`Reply::Welcome`].
    Hello(Hello),
    /// Answer to [`Reply::Challenge`] on a TCP connection, with the client's own random bytes: see
    /// [`opening`](forebay_net::handshake). Answered by [`Reply::Proved`].
    Prove {
        proof: Proof,
        nonce: [u8; 32],
    },
    /// End the session: close all its handles, forget its slots.
    Bye,

    /// Make an instance (administrators only).
    CreateInstance(InstanceSpec),
    /// Remove an instance and all its data. Fails with `EBUSY` while sessions are attached, unless
    /// `force`, which ends them (administrators only).
    RemoveInstance {
        id: InstanceId,
        force: bool,
    },
    /// Change an instance's capacity; it may not go below what is used (administrators only).
    ResizeInstance {
        id: InstanceId,
        capacity: u64,
    },
    /// Change the addresses of an instance's nodes, in the order of their places
    /// (administrators only).
    SetPeers {
        id: InstanceId,
        peers: Vec<String>,
    },
    /// All instances (administrators only).
    ListInstances,
    /// Read all of an instance's data on this node and compare them with their checksums
    /// (administrators only). Answered by [`Reply::Scrubbed`].
    Scrub {
        id: InstanceId,
    },

    /// Attributes of the entry `name`.
    Lookup {
        parent: Ino,
        name: Vec<u8>,
    },
    GetAttr {
        ino: Ino,
    },
    /// Attributes of at most [`MAX_INODES`] inodes, for a listing whose entries live on other nodes
    /// than the directory. Answered by [`Reply::Attrs`].
    GetAttrs {
        inos: Vec<Ino>,
    },
    /// Answered by [`Reply::Attr`] with the new attributes.
    SetAttr {
        ino: Ino,
        handle: Option<HandleId>,
        set: SetAttr,
    },
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
    Make {
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
    /// Make a regular file of at most [`MAX_WHOLE`](super::MAX_WHOLE) bytes as a whole: contents,
    /// attributes and name, in place of what has the name, which must not be a directory. Nobody
    /// has it open then. Owner and group that `set` leaves out are as [`Request::Create`] gives
    /// them; it must not set a length. Answered by [`Reply::Attr`](super::Reply::Attr).
    /// [`Request::Sync`] without a handle makes the contents durable. `EOPNOTSUPP`: other nodes are
    /// concerned, and the file has to be made step by step.
    Put {
        parent: Ino,
        name: Vec<u8>,
        set: Box<SetAttr>,
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Attributes and contents of a regular file of at most [`MAX_WHOLE`](super::MAX_WHOLE) bytes,
    /// as they are at one moment. Leaves no trace in its times. Answered by
    /// [`Reply::Whole`](super::Reply::Whole). `EOPNOTSUPP`: it is longer, it lies on other nodes, or
    /// somebody writes to it; open it.
    Fetch {
        ino: Ino,
    },
    /// Open a file or directory. A repeated `handle` opens nothing further.
    Open {
        ino: Ino,
        handle: HandleId,
        open: OpenMode,
    },
    /// `returned` is the part of the writer's space promise it did not use.
    Close {
        handle: HandleId,
        returned: u64,
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
    /// Ask for the promise of space for `want` more bytes written through `handle`. The promise
    /// before it counts as used up except for `returned`.
    Reserve {
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
    /// Make the file's data and everything that leads to it durable. Without `handle`: all changes
    /// of the name space so far, with the contents of files that came with [`Request::Put`].
    Sync {
        handle: Option<HandleId>,
        data_only: bool,
    },
    StatFs,

    /// Read over the socket; the reply's payload is the data, shorter at the end of the file.
    Read {
        handle: HandleId,
        offset: u64,
        length: u32,
    },
    /// Write the frame's payload. `offset` is ignored if `append`.
    Write {
        handle: HandleId,
        offset: u64,
        append: bool,
    },

    /// Open the part of a file that lies on a node which is not the file's home. `Reserve`,
    /// `Allocate`, `Sync`, `Read`, `Write` and `Close` then take the handle, with offsets in the
    /// data object. A repeated `handle` opens nothing further. Answered by [`Reply::Object`].
    /// `EKEYREJECTED`: the permit has expired, ask home for another with [`Request::Permit`].
    OpenObject {
        handle: HandleId,
        capability: Capability,
        open: OpenMode,
    },
    /// What the data objects of at most [`MAX_INODES`] files on this node say. Answered by
    /// [`Reply::Objects`].
    StatObjects {
        inos: Vec<Ino>,
    },
    /// A fresh permit for a handle that is open here, at the file's home.
    Permit {
        handle: HandleId,
    },
    /// Wait until no other handle of a file may append to it, at the file's home. It ends with
    /// `AppendUnlock`, with `Close`, with the session, and with the daemon. On an instance of one
    /// node, data objects themselves keep appends apart.
    AppendLock {
        handle: HandleId,
    },
    AppendUnlock {
        handle: HandleId,
    },
    /// Close these handles, at most [`MOST_CLOSED`], as `Close` does that returns nothing. Those that
    /// are not open are passed over.
    CloseAll {
        handles: Vec<HandleId>,
    },
    /// As `Sync` of a handle, by a client on the daemon's host that has made the data object durable by
    /// its descriptor: what leads to it is left. So several objects are synced at the same time, by
    /// those who wait for it.
    SyncRest {
        handle: HandleId,
    },
    /// Take a lock on a range of an open file, at the file's home. Answered by `Done`;
    /// [`Reply::Conflict`] if another one is in the way and there is no `ticket`; else
    /// [`Reply::Waiting`], and [`Request::AwaitLocks`] tells when the lock is held. `EDEADLK`: the
    /// wait would never end. `ENOLCK`: the session has too many. It replaces what the same owner
    /// has locked of the range, and goes with the handle. After a restart of the daemon, sessions
    /// from before first take theirs again on [`RECOVERY_SLOT`], and all others wait for that.
    Lock {
        handle: HandleId,
        lock: FileLock,
        ticket: Option<u64>,
    },
    /// Give up what an owner has locked of a range, both ends included.
    Unlock {
        handle: HandleId,
        owner: LockOwner,
        start: u64,
        end: u64,
    },
    /// Could the lock be had now? Answered by `Done` or [`Reply::Conflict`].
    TestLock {
        handle: HandleId,
        lock: FileLock,
    },
    /// Wait for news of locks that are waited for; only on [`WATCH_SLOT`]. `told` are the tickets
    /// of those that the client knows of. Answered by [`Reply::Locks`] when there are any.
    AwaitLocks {
        known: Vec<u64>,
    },
    /// Wait for a lock no longer. Answered by `Done`, or by [`Reply::Locks`] if it is held.
    CancelLock {
        ticket: u64,
    },
    /// May the caller access the inode in all the ways that the bits of `mask` say, those of
    /// `access(2)`: 4 read, 2 write, 1 execute or search? `EACCES` if not.
    Access {
        ino: Ino,
        mask: u16,
    },
    /// One daemon to another. Not answered; what there is to say comes as another such message.
    Peer(Box<PeerMessage>),
}
