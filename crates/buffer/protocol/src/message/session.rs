//! Attaching to an instance: how a connection joins a session.

#[cfg(doc)]
use super::{
    CACHE_LIFETIME_NS, DataRequest, MAX_DATA_CONNECTIONS, MAX_SLOTS, PROTOCOL_VERSION, Reply,
};
use crate::ids::{InstanceId, SessionId};
use serde::{Deserialize, Serialize};

/// The first request on a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Must be the version of the protocol.
    pub version: u16,
    /// The instance to attach to; `None` for a connection that administers the daemon.
    pub instance: Option<InstanceId>,
    /// The session this connection joins; `None` begins one.
    pub token: Option<SessionToken>,
    /// Which of the session's slots this connection is, below [`MAX_SLOTS`]; with `bulk` which of its
    /// lanes, below [`MAX_DATA_CONNECTIONS`](super::MAX_DATA_CONNECTIONS). It takes the place of an older connection with
    /// the same number: of that one nothing is carried out any more once this one is welcome.
    pub slot: u32,
    /// This connection carries only requests for data, and they bypass the
    /// daemon's queue of metadata requests.
    pub data_connection: bool,
    /// All of the session's requests come from one cache, which keeps what it is told as long as
    /// [`CACHE_LIFETIME_NS`](super::CACHE_LIFETIME_NS) if the reply permits. Replies do while the session is its instance's only one.
    pub single_cache: bool,
}

/// Proof that a connection belongs to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionToken {
    /// The session.
    pub session: SessionId,
    /// The number that the reply to the first attach gave the session.
    pub secret: u128,
}
