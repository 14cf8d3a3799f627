//! Connections and the sessions that they joined.

use crate::driver::ConnId;
use forebay_protocol::PeerIdentity;
use forebay_protocol::message::batch_position_slot;
use forebay_protocol::{Errno, SessionId};
use std::collections::BTreeMap;

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The authenticated far end.
    pub peer: PeerIdentity,
    /// The session and the slot that it joined.
    pub session: Option<(SessionId, u32)>,
}

#[derive(Debug, Default)]
pub struct Connections(BTreeMap<ConnId, Connection>);

impl Connections {
    pub fn insert(&mut self, conn: ConnId, peer: PeerIdentity) {
        let connection = Connection { peer, session: None };
        let known = self.0.insert(conn, connection);
        assert!(known.is_none(), "connection numbers are not used twice");
    }

    pub fn remove(&mut self, conn: ConnId) -> Option<Connection> {
        self.0.remove(&conn)
    }

    /// The connection of a call, or `ENOTCONN`.
    pub fn get(&self, conn: ConnId) -> Result<&Connection, Errno> {
        self.0.get(&conn.connection()).ok_or(Errno::ENOTCONN)
    }

    /// A connection, or `ENOTCONN`.
    pub fn get_mut(&mut self, conn: ConnId) -> Result<&mut Connection, Errno> {
        self.0.get_mut(&conn).ok_or(Errno::ENOTCONN)
    }

    /// The session of a call, and the slot under which its result is remembered.
    pub fn session(&self, conn: ConnId) -> Option<(SessionId, u32)> {
        let (session, slot) = self.0.get(&conn.connection())?.session?;
        let position = conn.position();
        Some((session, position.map_or(slot, |position| batch_position_slot(slot, position))))
    }

    /// A session is over.
    pub fn leave_session(&mut self, conn: ConnId) {
        if let Some(connection) = self.0.get_mut(&conn) {
            connection.session = None;
        }
    }
}
