//! Connections, and the authentication of their far ends.

use crate::driver::{ConnId, MungeAuthentication};
use forebay_net::auth::PoolKey;
use forebay_net::handshake::{Daemon, Opening};
use forebay_protocol::identity::{PeerIdentity, Proof};
use forebay_protocol::{Errno, Reply, SessionId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The identity of the far end; on TCP, it counts once it is authenticated.
    pub peer: PeerIdentity,
    /// The session and the slot that it joined.
    pub session: Option<(SessionId, u32)>,
    /// The daemon's address that it was made to, on TCP.
    address: Option<SocketAddr>,
    /// Set while a TCP client has not answered its challenge.
    challenge: Option<[u8; 32]>,
    is_authenticated: bool,
}

impl Connection {
    /// Whether the far end must be authenticated before it joins a session.
    pub fn needs_authentication(&self) -> bool {
        !(self.peer.local || self.peer.trusted || self.is_authenticated)
    }

    fn authenticate(&mut self, peer: PeerIdentity) {
        self.peer = peer;
        self.is_authenticated = true;
    }
}

/// All connections.
#[derive(Debug)]
pub struct Connections {
    connections: BTreeMap<ConnId, Connection>,
    key: Option<PoolKey>,
    has_munge: bool,
}

impl Connections {
    /// No connections. With the pool's key peers may authenticate by it.
    pub fn new(key: Option<PoolKey>) -> Connections {
        Connections {
            connections: BTreeMap::new(),
            key,
            has_munge: false,
        }
    }

    /// Peers may authenticate by MUNGE.
    pub fn enable_munge(&mut self) {
        self.has_munge = true;
    }

    /// Add a connection.
    pub fn insert(&mut self, conn: ConnId, peer: PeerIdentity) {
        let connection = Connection {
            peer,
            session: None,
            address: None,
            challenge: None,
            is_authenticated: false,
        };
        let known = self.connections.insert(conn, connection);
        assert!(known.is_none(), "connection numbers are not used twice");
    }

    /// Set the daemon's address that a connection was made to.
    pub fn set_address(&mut self, conn: ConnId, address: SocketAddr) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.address = Some(address);
        }
    }

    /// Remove a connection.
    pub fn remove(&mut self, conn: ConnId) -> Option<Connection> {
        self.connections.remove(&conn)
    }

    /// A connection, or `ENOTCONN`.
    pub fn get(&self, conn: ConnId) -> Result<&Connection, Errno> {
        self.connections.get(&conn).ok_or(Errno::ENOTCONN)
    }

    /// A connection, or `ENOTCONN`.
    pub fn get_mut(&mut self, conn: ConnId) -> Result<&mut Connection, Errno> {
        self.connections.get_mut(&conn).ok_or(Errno::ENOTCONN)
    }

    /// The session and the slot that a connection joined.
    pub fn session(&self, conn: ConnId) -> Option<(SessionId, u32)> {
        self.connections.get(&conn)?.session
    }

    /// A session is over.
    pub fn leave_session(&mut self, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn) {
            connection.session = None;
        }
    }

    /// Challenge the far end to authenticate. `EKEYREJECTED`: there is neither a key nor MUNGE.
    pub fn challenge(&mut self, conn: ConnId, nonce: [u8; 32]) -> Result<Reply, Errno> {
        if self.key.is_none() && !self.has_munge {
            return Err(Errno::EKEYREJECTED);
        }
        self.get_mut(conn)?.challenge = Some(nonce);
        Ok(Reply::Challenge { nonce })
    }

    /// The handshake that a challenged far end has to authenticate, with its own random bytes.
    pub fn handshake(&self, conn: ConnId, nonce: [u8; 32]) -> Option<Opening> {
        let connection = self.connections.get(&conn)?;
        Some(Opening {
            with: Daemon::Storage,
            daemon: connection.challenge?,
            client: nonce,
            at: connection.address?,
        })
    }

    /// The identity of the far end of a connection, once it is known.
    pub fn authenticated_peer(&self, conn: ConnId) -> Option<&PeerIdentity> {
        let connection = self.connections.get(&conn)?;
        (connection.peer.local || connection.is_authenticated).then_some(&connection.peer)
    }

    /// Authenticate the far end by the pool's key.
    pub fn authenticate_by_key(
        &mut self,
        conn: ConnId,
        proof: &Proof,
        nonce: [u8; 32],
    ) -> Result<Reply, Errno> {
        let handshake = self.end_challenge(conn, nonce)?;
        let key = self.key.as_ref().ok_or(Errno::EKEYREJECTED)?;
        let (peer, own_proof) = handshake.believe_key(key, proof)?;
        self.get_mut(conn)?.authenticate(peer);
        Ok(Reply::Proved(own_proof))
    }

    /// Authenticate the far end by its MUNGE credential, which the driver has decoded.
    pub fn authenticate_by_munge(
        &mut self,
        conn: ConnId,
        decoded: Option<MungeAuthentication>,
    ) -> Result<Reply, Errno> {
        let nonce = decoded.as_ref().map_or([0; 32], |decoded| decoded.nonce);
        let handshake = self.end_challenge(conn, nonce)?;
        let decoded = decoded.ok_or(Errno::EKEYREJECTED)?;
        let peer = handshake.believe_munge(&decoded.credential)?;
        self.get_mut(conn)?.authenticate(peer);
        Ok(Reply::Proved(decoded.own))
    }

    /// A challenge can be answered once.
    fn end_challenge(&mut self, conn: ConnId, nonce: [u8; 32]) -> Result<Opening, Errno> {
        let handshake = self.handshake(conn, nonce);
        self.get_mut(conn)?.challenge = None;
        handshake.ok_or(Errno::EKEYREJECTED)
    }
}
