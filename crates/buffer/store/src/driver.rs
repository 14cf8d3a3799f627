//! The interface between a [`Node`](crate::node::Node) and its driver: inputs and effects.

use crate::objects::ObjectId;
use forebay_protocol::PeerIdentity;
use forebay_protocol::message::{MAX_BATCH_REQUESTS, OpenMode, SESSION_LEASE_NS};
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::{
    Attr, Call, Errno, HandleId, InodeTag, InstanceId, NodeIndex, Reply, SessionId, Timestamp,
};

/// A connection, as the driver numbers them, below 2^48; or the call of one request of a batch on it. No
/// number is used twice. Each has at most one call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// Bits of the number of a connection. Above them is one more than the position of a request in a batch.
const CONNECTION_BITS: u32 = 48;

impl ConnId {
    /// The request at `position` of a batch on this connection.
    pub fn at_position(self, position: usize) -> ConnId {
        assert!(self.position().is_none() && position < MAX_BATCH_REQUESTS);
        ConnId(self.0 | (position as u64 + 1) << CONNECTION_BITS)
    }

    /// The position of the request in its batch; `None`: it came by itself.
    pub fn position(self) -> Option<usize> {
        (self.0 >> CONNECTION_BITS).checked_sub(1).map(|position| position as usize)
    }

    /// The connection.
    pub fn connection(self) -> ConnId {
        ConnId(self.0 & ((1 << CONNECTION_BITS) - 1))
    }
}

/// The time of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The time of day, for timestamps.
    pub wall: Timestamp,
    /// Nanoseconds on a monotonic clock, for leases and timeouts.
    pub steady_ns: u64,
}

/// The limits of a daemon.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Lifetime of a session without a connection, in nanoseconds.
    pub lease_ns: u64,
    /// Open handles of a session.
    pub max_session_handles: usize,
    /// Open handles of one user who is not trusted.
    pub max_user_handles: usize,
    /// Sessions on this node.
    pub max_sessions: usize,
    /// Sessions of one user who is not trusted.
    pub max_user_sessions: usize,
    /// Instances on this node.
    pub max_instances: usize,
    /// Memory for the metadata of all instances, in bytes.
    pub metadata_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            lease_ns: SESSION_LEASE_NS,
            max_session_handles: 1 << 20,
            max_user_handles: 1 << 18,
            max_sessions: 1 << 16,
            max_user_sessions: 1 << 12,
            max_instances: 1 << 12,
            metadata_bytes: 1 << 40,
        }
    }
}

/// An object to make durable.
#[derive(Clone, Copy, Debug)]
pub struct ObjectSync {
    /// The object.
    pub object: ObjectId,
    /// The handle through which the client has written. A write error that the kernel notes while
    /// the handle's file is open fails the next sync through it, whoever else was told.
    pub opened: (SessionId, HandleId),
    /// The slot and the number of the call. See
    /// [`HandleSyncs`](crate::sync_failures::HandleSyncs).
    pub call: (u32, u64),
    /// Whether its times need not be durable.
    pub data_only: bool,
    /// Whether its existence may not be durable.
    pub is_new: bool,
}

/// An event that a node reacts to.
#[derive(Debug)]
pub enum Input {
    /// A connection was accepted, and its far end authenticated.
    Connected(ConnId, PeerIdentity),
    /// A call arrived, or it is the turn of one request of a batch.
    Call(ConnId, Call),
    /// A connection was closed.
    Disconnected(ConnId),
    /// The log is durable up to this record.
    LogSynced(u64),
    /// The existence of an object is durable.
    ObjectDurable(ObjectId),
    /// The invalidation that [`Effect::InvalidateChecksums`] requested is durable, or failed.
    ChecksumsInvalidated(ObjectId, Result<(), Errno>),
    /// The data that [`Effect::SyncObject`] named are durable, or that failed.
    ObjectSynced(ObjectId, Result<(), Errno>),
    /// Time passed. Due about once a second.
    Tick,
}

/// An action of the driver.
#[derive(Debug)]
pub enum Effect<D> {
    /// Reply to a call.
    Reply {
        /// The connection.
        conn: ConnId,
        /// Number of the call.
        seq: u64,
        /// The reply.
        reply: Reply,
        /// A descriptor to pass with it.
        descriptor: Option<D>,
        /// Whether the client may cache it.
        cacheable: bool,
    },
    /// Make an object, or the contents of files that were stored whole, durable, then the log, and
    /// reply `Done`.
    Sync {
        /// The connection.
        conn: ConnId,
        /// Number of the call.
        seq: u64,
        /// The object, if there is one.
        object: Option<ObjectSync>,
        /// The number of objects [put](crate::objects::Objects::put_object) since the start whose
        /// contents must be durable.
        put_count: u64,
    },
    /// Read an object of at most
    /// [`MAX_INLINE_FILE_BYTES`](forebay_protocol::message::MAX_INLINE_FILE_BYTES), and reply with
    /// [`fetch_reply`](crate::node::fetch_reply).
    FetchObject {
        /// The connection.
        conn: ConnId,
        /// Number of the call.
        seq: u64,
        /// The object.
        object: ObjectId,
        /// The attributes of the file's inode.
        attr: Box<Attr>,
        /// The file's length, unless the object determines it.
        length: Option<u64>,
        /// The tag of the file's inode, for a client that is not trusted.
        tag: Option<InodeTag>,
    },
    /// An object was written through a handle that is closed now.
    ObjectWritten(ObjectId),
    /// An object is to be written whose checksums would be valid again after a power cut: invalidate
    /// them durably, and provide [`Input::ChecksumsInvalidated`].
    InvalidateChecksums(ObjectId),
    /// A file is to replace another one: make its object durable, and provide [`Input::ObjectSynced`].
    SyncObject(ObjectId),
    /// Compare an instance's objects with their checksums, and reply.
    Scrub {
        /// The connection.
        conn: ConnId,
        /// Number of the call.
        seq: u64,
        /// The instance.
        instance: InstanceId,
    },
    /// From now on the connection is the session's data connection of this number. When its first call
    /// is answered, nothing that arrived on an older connection of that number may be carried out.
    BulkConnection(ConnId, SessionId, u32),
    /// A handle that data connections may use. `OpenMode::descriptor`: a client on this host has the
    /// object's descriptor.
    BulkOpen(SessionId, HandleId, ObjectId, OpenMode),
    /// Bytes that may be written through a handle on data connections.
    BulkGrant(SessionId, HandleId, u64),
    /// A handle is closed to data connections: requests in flight must end before any further effect is
    /// visible.
    BulkClose(SessionId, HandleId),
    /// Close the data connections of a session.
    BulkEnd(SessionId),
    /// Close a connection.
    Disconnect(ConnId),
    /// Send a message to another node of an instance, or drop it if it cannot be sent now.
    SendToPeer {
        /// The node's address.
        address: String,
        /// The node.
        node: NodeIndex,
        /// The message.
        message: Box<PeerMessage>,
    },
    /// Make the log durable soon: a call waits for it.
    SyncLog,
}
