//! Connections and calls on their way to the node, and replies on their way back.

use super::counters::RequestKind;
use super::doors::guest;
use super::event_loop::EventLoop;
use super::munge_worker::PendingCredential;
use crate::node::{ConnId, Effect, Input};
use forebay_net::auth;
use forebay_net::frame::MAX_BODY_BYTES;
use forebay_net::stream::Stream;
use forebay_protocol::identity::{PeerIdentity, Proof};
use forebay_protocol::message::SessionRequest;
use forebay_protocol::{Call, Errno, Reply, Request, SessionId};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Connections accepted in a row, before other events are processed.
const MAX_ACCEPTS: usize = 64;

impl EventLoop {
    pub(super) fn accept_unix(&mut self) {
        for _ in 0..MAX_ACCEPTS {
            let Some(socket) = self.connections.accept_unix() else {
                return;
            };
            match auth::unix_peer(&socket) {
                Ok(peer) => {
                    self.add_connection(Stream::Unix(socket), peer);
                }
                Err(error) => tracing::warn!(%error, "cannot get peer credentials"),
            }
        }
    }

    pub(super) fn accept_tcp(&mut self) {
        for _ in 0..MAX_ACCEPTS {
            let Some(socket) = self.connections.accept_tcp() else {
                return;
            };
            // Either fails only if the peer has disconnected.
            let (Ok(address), Ok(stream)) = (socket.local_addr(), Stream::accepted(socket)) else {
                continue;
            };
            let unauthenticated = PeerIdentity {
                uid: u32::MAX,
                gid: u32::MAX,
                groups: Vec::new(),
                trusted: false,
                local: false,
            };
            if let Some(id) = self.add_connection(stream, unauthenticated) {
                self.step(Input::LocalAddress(id, address));
            }
        }
    }

    fn add_connection(&mut self, stream: Stream, peer: PeerIdentity) -> Option<ConnId> {
        let id = self.connections.add(stream)?;
        self.step(Input::Connected(id, peer));
        if let Some(oldest) = self.connections.admission.arrive(id, Instant::now()) {
            tracing::warn!("too many unauthenticated connections: the oldest is closed");
            self.close_connection(oldest);
        }
        self.admit(id);
        Some(id)
    }

    /// Remove a connection from the event loop.
    pub(super) fn close_connection(&mut self, id: ConnId) {
        if self.connections.remove(id).is_some() {
            self.step(Input::Disconnected(id));
        }
    }

    /// Close connections whose peers did not authenticate, or sent no request, in time.
    pub(super) fn close_overdue_connections(&mut self) {
        while let Some(id) = self.connections.admission.overdue(Instant::now()) {
            tracing::warn!("authentication timeout: connection closed");
            self.close_connection(id);
        }
    }

    /// Turn a connection into a data connection with a thread of its own.
    pub(super) fn hand_over(&mut self, id: ConnId, session: SessionId, slot: u32) {
        let guest = self.connections.admission.guest(id);
        if let Some(conn) = self.connections.remove(id) {
            self.step(Input::Disconnected(id));
            self.data.start_connection(conn, session, slot, guest);
        }
    }

    /// Queue a reply.
    pub(super) fn reply(
        &mut self,
        id: ConnId,
        seq: u64,
        reply: &Reply,
        descriptor: Option<OwnedFd>,
        cacheable: bool,
    ) {
        let queued = self
            .connections
            .queue_reply(id, seq, reply, descriptor, cacheable);
        if let Err(error) = queued {
            tracing::error!(%error, "reply too long: connection closed");
            self.close_connection(id);
        }
    }

    /// Send queued replies, then process a call that arrived meanwhile.
    pub(super) fn flush_connection(&mut self, id: ConnId) {
        match self.connections.flush(id) {
            Ok(true) => self.process_calls(id),
            Ok(false) => {}
            Err(_) => self.close_connection(id),
        }
    }

    /// Process the complete calls of a connection, as far as they may be in progress concurrently.
    pub(super) fn process_calls(&mut self, id: ConnId) {
        loop {
            let call = match self.connections.next_call(id) {
                Ok(Some(call)) => call,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "invalid frame: connection closed");
                    return self.close_connection(id);
                }
            };
            self.connections.admission.spoke(id);
            // Messages of other daemons get no reply, so several may be processed in a row.
            let has_reply = !matches!(call.request, Request::Peer(_));
            if let Some(conn) = self.connections.get_mut(id) {
                conn.busy = has_reply;
            }
            let (kind, begun) = (RequestKind::of(&call.request), Instant::now());
            self.process_call(id, call);
            if has_reply {
                return;
            }
            self.counters.count_request(kind, begun.elapsed(), false);
        }
    }

    fn process_call(&mut self, id: ConnId, call: Call) {
        let seq = call.seq;
        if let Some(errno) = self.connections.get_mut(id).and_then(|conn| conn.refused) {
            return self.refuse(id, seq, errno);
        }
        if let Request::Session(SessionRequest::Attach(attach)) = &call.request
            && attach.data_connection
            && let Some(guest) = self.connections.admission.guest(id)
            && !self.data.permits.is_free(guest)
            // A connection that replaces another one takes over its permit.
            && !attach.token.is_some_and(|t| self.data.slots.is_slot_in_use(t.session, attach.slot))
        {
            tracing::warn!(user = guest, "data connection refused: too many");
            return self.refuse(id, seq, Errno::EAGAIN);
        }
        if let Request::Session(SessionRequest::Prove {
            proof: Proof::Munge(credential),
            nonce,
        }) = &call.request
            && self.munge_worker.is_some()
        {
            return self.decode_credential(id, seq, credential.clone(), *nonce);
        }
        self.step(Input::Call(id, call));
        self.admit(id);
    }

    /// Have a MUNGE credential decoded.
    fn decode_credential(&mut self, id: ConnId, seq: u64, credential: Vec<u8>, nonce: [u8; 32]) {
        let pending = self
            .node
            .handshake(id, nonce)
            .map(|opening| PendingCredential {
                conn: id,
                seq,
                credential,
                opening,
            });
        let is_queued = pending.is_some_and(|pending| {
            let worker = self.munge_worker.as_ref();
            worker.is_some_and(|worker| worker.try_send(pending).is_ok())
        });
        if is_queued {
            self.connections.admission.proving(id, true);
        } else {
            // Too many credentials wait, or the connection was not challenged.
            self.step(Input::MungeDecoded(id, seq, None));
        }
    }

    /// Answer a call with an error and close the connection.
    fn refuse(&mut self, id: ConnId, seq: u64, errno: Errno) {
        self.effects.push(Effect::Reply {
            conn: id,
            seq,
            reply: Reply::Failed(errno),
            descriptor: None,
            cacheable: false,
        });
        self.effects.push(Effect::Disconnect(id));
    }

    /// Apply the connection limits of a peer once it is authenticated.
    pub(super) fn admit(&mut self, id: ConnId) {
        if !self.connections.admission.is_stranger(id) {
            return;
        }
        let Some(peer) = self.node.authenticated_peer(id) else {
            return;
        };
        let guest = guest(peer);
        let admitted = self.connections.admission.admit(id, guest);
        if let Some(conn) = self.connections.get_mut(id) {
            match admitted {
                Ok(()) => conn.longest = MAX_BODY_BYTES,
                Err(errno) => {
                    tracing::warn!(user = guest, "connection refused: too many");
                    conn.refused = Some(errno);
                }
            }
        }
    }
}
