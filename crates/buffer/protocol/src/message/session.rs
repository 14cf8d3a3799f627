//! Attaching a connection to a session.

use super::TrailingField;
#[cfg(doc)]
use super::{
    CACHE_LIFETIME_NS, CacheRecall, MAX_DATA_CONNECTIONS, MAX_HOST_NAME, MAX_SLOTS,
    PROTOCOL_VERSION,
};
use crate::ids::{InstanceId, SessionId};
use serde::{Deserialize, Serialize};

/// The first request on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// [`PROTOCOL_VERSION`].
    pub version: u16,
    /// The instance; `None` for a connection that administers the daemon.
    pub instance: Option<InstanceId>,
    /// The session to join; `None` begins one.
    pub token: Option<SessionToken>,
    /// Index of the connection among the session's slots, below [`MAX_SLOTS`], or among its data
    /// connections, below [`MAX_DATA_CONNECTIONS`]. The connection replaces an older one with this
    /// index, of which no request is carried out any more once this one is attached.
    pub slot: u32,
    /// The connection carries only requests for data, which bypass the daemon's queue of metadata
    /// requests.
    pub data_connection: bool,
    /// All of the session's requests come from one cache, which keeps cacheable replies for
    /// [`CACHE_LIFETIME_NS`], or until its lease is recalled ([`CacheRecall`]). Replies are cacheable
    /// while the instance has no other session, or no other session changes it.
    pub single_cache: bool,
    /// The cache lets a user follow a name only if the user may search its directory. Otherwise replies
    /// about names are cacheable only in directories that every user may search.
    pub cache_checks_permissions: bool,
    /// The host of the client.
    pub client: ClientHost,
    /// The client uses [delegations](super::Delegated).
    pub delegates: TrailingField<bool>,
    /// A random number, the same in all sessions of the client; 0: not known. A node that takes part in a
    /// change which the client has requested from another one does not recall the client's own lease on names
    /// and attributes.
    pub client_number: TrailingField<u64>,
}

/// The host of a client, as the client names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientHost {
    /// Its name, at most [`MAX_HOST_NAME`] bytes; of a mount the compute node's name in the pool.
    pub host: String,
    /// The generation of the mount that the pool's controller has ordered; `None` for programs and
    /// movers. A host that the controller presumes dead is fenced: storage nodes refuse its mounts
    /// of earlier generations.
    pub mount: Option<u64>,
}

/// In a [`HostFence`]: all hosts.
pub const ALL_HOSTS: &str = "*";

/// A compute node whose mounts of an instance are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFence {
    /// Its name; [`ALL_HOSTS`] for every host.
    pub host: String,
    /// The first generation of its mounts that is accepted.
    pub generation: u64,
}

/// Proof that a connection belongs to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionToken {
    /// The session.
    pub session: SessionId,
    /// Random; drawn by the daemon for the first attach.
    pub secret: u128,
}

/// A client's session, as administrators see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its number on this storage node.
    pub id: SessionId,
    /// The instance.
    pub instance: InstanceId,
    /// The user of the client's process; for mounts usually root.
    pub uid: u32,
    /// The host of the client, once it has attached since the daemon's start.
    pub client: ClientHost,
    /// Time since it began, in nanoseconds; `None` if it began before the daemon's start.
    pub age_ns: Option<u64>,
    /// Time since its last request, or since the daemon's start, in nanoseconds. Requests by which a
    /// client waits for events do not count, those by which it renews its session do.
    pub idle_ns: u64,
    /// Connections for metadata.
    pub connections: u32,
    /// Connections for data.
    pub data_connections: u32,
    /// Open files and directories.
    pub handles: u64,
    /// Read leases.
    pub read_leases: u64,
    /// Whether it has locks on files.
    pub has_locks: bool,
    /// Contents of files that it has read over its connections since the daemon's start, in bytes.
    pub read: u64,
    /// Contents that it has written, in bytes.
    pub written: u64,
}
