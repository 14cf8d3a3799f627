//! What clients ask of a storage daemon, and what it answers.
//!
//! A client's attachment to an instance is a *session*. Each of its connections is a *slot* with
//! at most one request outstanding, numbered 1, 2, 3, … by [`Call::seq`]. A daemon remembers the
//! outcome of the last change made through each slot, so that a repeated request is answered
//! again and not carried out again, also after the daemon crashed and recovered.

use crate::auth::Proof;
use crate::ids::{Errno, HandleId, Ino, InstanceId, LockOwner, Node, SessionId, Timestamp};
use crate::layout::Layout;
use crate::lock::FileLock;
use crate::peer::PeerMessage;
use crate::place::{ObjectInfo, Permit, Place};
use serde::{Deserialize, Serialize};

/// Version of everything in this module. Both sides must speak the same one.
pub const PROTOCOL: u16 = 4;
/// Longest name of a directory entry, in bytes.
pub const MAX_NAME: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const MAX_TARGET: usize = 4095;
/// Longest value of an extended attribute, in bytes.
pub const MAX_XATTR: usize = 64 * 1024;
/// Most data in one read or write over a socket, in bytes.
pub const MAX_DATA: usize = 4 << 20;
/// Longest file that [`Request::Put`] makes and [`Request::Fetch`] gets, in bytes.
pub const MAX_WHOLE: usize = 64 << 10;
/// How long after the request was sent a reply that permits it may be cached, in nanoseconds.
pub const CACHE_TIME: u64 = 1_000_000_000;
/// Connections a session may have.
pub const MAX_SLOTS: u32 = 64;
/// The slot on which a session opens its handles again after a restart of the daemon, before it
/// calls on any other. A daemon that knows of all sessions that they have done so drops what
/// nobody has open.
pub const RECOVERY_SLOT: u32 = MAX_SLOTS - 1;
/// The slot of [`Request::AwaitLocks`].
pub const WATCH_SLOT: u32 = MAX_SLOTS - 2;

/// The first request on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Must be [`PROTOCOL`].
    pub version: u16,
    /// The instance to attach to; `None` for a connection that administers the daemon.
    pub instance: Option<InstanceId>,
    /// The session this connection joins; `None` begins one.
    pub resume: Option<Resume>,
    /// Which of the session's slots this connection is, below [`MAX_SLOTS`].
    pub slot: u32,
    /// This connection carries only [`Request::Read`] and [`Request::Write`], and they bypass the
    /// daemon's queue of metadata requests.
    pub bulk: bool,
    /// All of the session's requests come from one cache, which keeps what it is told as long as
    /// [`CACHE_TIME`] if the reply permits. Replies do while the session is its instance's only one.
    pub caches: bool,
}

/// Proof that a connection belongs to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// The session.
    pub session: SessionId,
    /// What [`Reply::Welcome`] said when the session began.
    pub secret: u128,
}

/// On whose behalf a request is made. Only a connection from root or from the daemon's own user
/// may set it; for every other one it is the peer itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups. `None`: the sender can find out, and wants to be asked only if it matters.
    /// A request whose outcome depends on them then does nothing and fails with
    /// [`Errno::EGROUPS`].
    pub groups: Option<Vec<u32>>,
    /// The sender has already checked permission bits and owners (a mount whose kernel does).
    pub checked: bool,
}

/// A request with its place in the slot's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the request in its slot: one more than that of the one before it.
    pub seq: u64,
    /// On whose behalf; `None` for the peer itself.
    pub caller: Option<Caller>,
    /// What to do.
    pub request: Request,
}

/// Kinds of inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Regular file.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Inode.
    pub ino: Ino,
    /// Kind.
    pub kind: Kind,
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
    /// Ask all nodes with [`Request::StatObject`] and give the answers to
    /// [`settle`](Attr::settle). The time is that of the last write that `mtime` accounts for.
    pub unsettled: Option<Timestamp>,
    /// Whether it has extended attributes.
    pub extended: bool,
}

impl Attr {
    /// Take length, space and last write from what all the file's data objects say.
    pub fn settle(
        &mut self,
        layout: &Layout,
        objects: impl IntoIterator<Item = (Node, Option<ObjectInfo>)>,
    ) {
        let Some(seen) = self.unsettled.take() else {
            return;
        };
        (self.size, self.blocks) = (0, 0);
        let mut latest = Timestamp::default();
        for (node, object) in objects {
            if let Some(object) = object {
                self.size = self.size.max(layout.end(self.ino, node, object.size));
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

/// A new inode that is not a regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum New {
    /// An empty directory.
    Dir,
    /// A symbolic link to these bytes.
    Symlink(Vec<u8>),
    /// An empty regular file that is not opened, a pipe, socket or device with its number.
    Node(Kind, u32),
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The daemon's current time.
    Now,
    /// This time.
    At(Timestamp),
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

/// A new instance on a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Its name; must be new.
    pub id: InstanceId,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory; its members may attach, subject to `mode`.
    pub gid: u32,
    /// Permission bits of the root directory.
    pub mode: u16,
    /// Bytes of data it may hold on this node.
    pub capacity: u64,
    /// Inodes it may hold on this node.
    pub inodes: u64,
    /// Where it lies, if on several nodes.
    pub place: Place,
}

/// How full an instance is on one storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The instance as it was made, without [`Place::secret`] and [`Place::peers`].
    pub spec: InstanceSpec,
    /// Bytes in use, those promised to writers included.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Sessions attached.
    pub sessions: u64,
}

/// What was found when an instance's data on one node were compared with their checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrubbed {
    /// Objects that are what they were.
    pub whole: u64,
    /// Bytes in these.
    pub bytes: u64,
    /// Objects that had no checksums that hold, and have been given some.
    pub sealed: u64,
    /// Objects without checksums, because they were written to a moment ago.
    pub unsealed: u64,
    /// Damaged objects, 1,000 at most, and where the first damaged part begins.
    pub damaged: Vec<(Ino, u64)>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Place to continue from behind this entry. Stays valid while entries come and go.
    pub cookie: u64,
    /// Name.
    pub name: Vec<u8>,
    /// Inode.
    pub ino: Ino,
    /// Kind.
    pub kind: Kind,
    /// Attributes, if the request asked for them.
    pub attr: Option<Attr>,
}

/// What a client asks for. Names are bytes without `/` or NUL, at most [`MAX_NAME`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the fields are what the operation of that name takes in POSIX
pub enum Request {
    /// Begin or resume a session. Answered by [`Reply::Welcome`].
    Hello(Hello),
    /// Answer to [`Reply::Challenge`] on a TCP connection, with the client's own random bytes: see
    /// [`opening`](crate::opening). Answered by [`Reply::Proved`].
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
        new: New,
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
    /// Make a regular file of at most [`MAX_WHOLE`] bytes as a whole: contents, attributes and
    /// name, in place of what has the name, which must not be a directory. Nobody has it open then.
    /// Owner and group that `set` leaves out are as [`Request::Create`] gives them; it must not set
    /// a length. Answered by [`Reply::Attr`]. [`Request::Sync`] without a handle makes the contents durable. `EOPNOTSUPP`: other
    /// nodes are concerned, and the file has to be made step by step.
    Put {
        parent: Ino,
        name: Vec<u8>,
        set: SetAttr,
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// Attributes and contents of a regular file of at most [`MAX_WHOLE`] bytes, as they are at one
    /// moment. Leaves no trace in its times. Answered by [`Reply::Whole`]. `EOPNOTSUPP`: it is
    /// longer, it lies on other nodes, or somebody writes to it; open it.
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
        permit: Permit,
        open: OpenMode,
    },
    /// What a file's data object on this node says. Answered by [`Reply::Object`].
    StatObject {
        ino: Ino,
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
        told: Vec<u64>,
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

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It did not work.
    Failed(Errno),
    /// It worked and there is nothing to say.
    Done,
    /// A TCP client must prove who it is: see [`opening`](crate::opening).
    Challenge {
        /// Random bytes.
        nonce: [u8; 32],
    },
    /// The daemon knows who is there, and proves who it is itself.
    Proved(Proof),
    /// The session is open.
    Welcome {
        /// Shown by further connections of the session.
        resume: Resume,
        /// The start of the daemon's host; 0 if it is not known. Differs after a power cut, when
        /// what was not synced may be gone.
        boot: u64,
        /// The daemon's start: differs after a restart, when handles must be opened anew.
        epoch: u64,
        /// Bytes the instance may hold on this node.
        capacity: u64,
        /// Where the instance lies, without [`Place::secret`].
        place: Place,
    },
    /// All instances.
    Instances(Vec<Usage>),
    /// What comparing data with their checksums found.
    Scrubbed(Scrubbed),
    /// Attributes.
    Attr(Attr),
    /// An opened file, its attributes, and whether this request made it.
    Opened {
        /// Attributes.
        attr: Attr,
        /// [`Request::Create`] made it.
        created: bool,
        /// Opens the file's data objects on other nodes, if there may be any.
        permit: Option<Permit>,
    },
    /// A file's attributes and contents.
    Whole {
        /// Attributes.
        attr: Attr,
        /// All its bytes.
        #[serde(with = "serde_bytes")]
        data: Vec<u8>,
    },
    /// The name leads to an inode that another node is the home of: ask that one, with `GetAttr`
    /// after a lookup and with `Open` instead of a create that was not exclusive. `ESTALE` there
    /// means that the name has gone meanwhile: look it up again.
    Elsewhere {
        /// The inode; [`Ino::shard`] is its home.
        ino: Ino,
        /// What it is.
        kind: Kind,
    },
    /// A data object; `None` while the node holds nothing of the file.
    Object(Option<ObjectInfo>),
    /// Opens a file's data objects on other nodes.
    Permit(Permit),
    /// A symbolic link's target, or an extended attribute's value.
    Bytes(Vec<u8>),
    /// Names of extended attributes.
    Names(Vec<Vec<u8>>),
    /// Directory entries, and whether these are the last.
    Entries {
        /// In the order of their cookies.
        entries: Vec<Entry>,
        /// Nothing follows.
        end: bool,
    },
    /// Space promised, in bytes.
    Granted(u64),
    /// Capacity and use of the instance.
    StatFs {
        /// Bytes in all.
        capacity: u64,
        /// Bytes in use.
        used: u64,
        /// Inodes in all.
        inodes: u64,
        /// Inodes in use.
        inodes_used: u64,
    },
    /// The lock will be held later.
    Waiting,
    /// A lock that is in the way. Its `owner` means nothing, and its `pid` something only if it is
    /// the same session's.
    Conflict(FileLock),
    /// Locks that were waited for and are held now, by their tickets.
    Locks(Vec<u64>),
    /// Bytes follow as the frame's payload.
    Data,
    /// Bytes taken, and the offset they were written at.
    Written {
        /// Bytes.
        count: u32,
        /// Where, for an append.
        offset: u64,
    },
}
