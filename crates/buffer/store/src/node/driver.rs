//! What a [`Shard`](super::Shard) is told by its driver, and what it wants done.

use crate::objects::ObjectId;
use forebay_net::munge::DecodedCredential;
use forebay_protocol::identity::{PeerIdentity, Proof};
use forebay_protocol::message::OpenMode;
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::{
    Attr, Call, Errno, HandleId, InstanceId, NodeIndex, Reply, SessionId, Timestamp,
};
use std::net::SocketAddr;

/// A connection, as the driver numbers them. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// The time of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The time of day, for timestamps.
    pub wall: Timestamp,
    /// Nanoseconds on a clock that is never set, for leases.
    pub steady_ns: u64,
}

/// What a daemon allows.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a session lives without a connection, in nanoseconds.
    pub lease_ns: u64,
    /// Open handles in a session.
    pub max_session_handles: usize,
    /// Sessions on this node.
    pub max_sessions: usize,
    /// Sessions of one user who is not trusted.
    pub max_user_sessions: usize,
    /// Instances on this node.
    pub max_instances: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            lease_ns: 60_000_000_000,
            max_session_handles: 1 << 20,
            max_sessions: 1 << 16,
            max_user_sessions: 1 << 12,
            max_instances: 1 << 12,
        }
    }
}

/// What a MUNGE credential says, and what the daemon answers.
#[derive(Debug)]
pub struct MungeAuthentication {
    /// The credential, decoded.
    pub credential: DecodedCredential,
    /// The client's random bytes.
    pub nonce: [u8; 32],
    /// The daemon's own proof.
    pub own: Proof,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// Someone connected.
    Connected(ConnId, PeerIdentity),
    /// Over TCP, at this address of the daemon's.
    LocalAddress(ConnId, SocketAddr),
    /// A request arrived.
    Call(ConnId, Call),
    /// A connection is gone.
    Disconnected(ConnId),
    /// The MUNGE credential of this call was decoded; `None` if it is not valid.
    MungeDecoded(ConnId, u64, Option<MungeAuthentication>),
    /// The log is durable up to this record.
    LogSynced(u64),
    /// An object for which [`Effect::Unseal`] asked has no checksums any more that a power cut would
    /// bring back; or that failed.
    ChecksumsInvalidated(ObjectId, Result<(), Errno>),
    /// Time passed. Due about once a second.
    Tick,
}

/// Something to do.
#[derive(Debug)]
pub enum Effect<D> {
    /// Answer a call.
    Reply {
        /// The connection.
        conn: ConnId,
        /// Which call.
        seq: u64,
        /// The answer.
        reply: Reply,
        /// To go along with it.
        descriptor: Option<D>,
        /// The client may cache it.
        cacheable: bool,
    },
    /// Make an object, or contents of many, and then the log durable, and answer `Done`.
    Sync {
        /// The connection.
        conn: ConnId,
        /// Which call.
        seq: u64,
        /// The object, if it is about one.
        object: Option<ObjectId>,
        /// Its times need not be durable.
        data_only: bool,
        /// Its existence is not durable yet.
        fresh: bool,
        /// So many objects that were [put](crate::objects::Objects::put) since the start must be
        /// durable, too.
        put_count: u64,
    },
    /// Get all of an object of at most [`MAX_WHOLE`](forebay_protocol::message::MAX_WHOLE) bytes, and
    /// answer with [`fetched`](super::fetched).
    FetchObject {
        /// The connection.
        conn: ConnId,
        /// Which call.
        seq: u64,
        /// The object.
        object: ObjectId,
        /// What is known of its file without it.
        attr: Box<Attr>,
        /// The file's length, if the object does not say it.
        length: Option<u64>,
    },
    /// An object was written through a handle that is closed now.
    ObjectWritten(ObjectId),
    /// Someone is to write to an object whose checksums would come back in a power cut: take them
    /// off durably, and say [`Input::Unsealed`].
    InvalidateChecksums(ObjectId),
    /// Compare an instance's objects with their checksums, and answer.
    Scrub {
        /// The connection.
        conn: ConnId,
        /// Which call.
        seq: u64,
        /// The instance.
        instance: InstanceId,
    },
    /// From now on the connection carries bulk data of a session, in the lane of this number. Of an
    /// older connection in that lane nothing may be carried out any more when this one's greeting is
    /// answered.
    BulkConnection(ConnId, SessionId, u32),
    /// A handle that bulk connections may use. `OpenMode::descriptor` says whether a client on this
    /// host has the object's descriptor.
    BulkOpen(SessionId, HandleId, ObjectId, OpenMode),
    /// What may be written through a handle over bulk connections, in bytes.
    BulkGrant(SessionId, HandleId, u64),
    /// A handle is closed to bulk connections: what is under way has to end, or to be waited for, before
    /// anything is sent.
    BulkClose(SessionId, HandleId),
    /// Close a connection.
    Disconnect(ConnId),
    /// Send a message to another node of an instance, or drop it if that cannot be done now.
    SendToPeer {
        /// The node's address.
        address: String,
        /// The node's place.
        node: NodeIndex,
        /// The message.
        message: Box<PeerMessage>,
    },
    /// Make the log durable soon: someone waits for it.
    SyncLog,
}
