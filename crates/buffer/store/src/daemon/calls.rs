//! Connections and calls on their way to the node, and replies on their way back.

use super::charged_use::{ChargedConnection, charge_of, is_urgent, read_bytes};
use super::connection::Incoming;
use super::counters::RequestKind;
use super::event_loop::EventLoop;
use crate::node::{ConnId, Effect, Input};
use forebay_net::admission::Principal;
use forebay_net::auth;
use forebay_net::frame::MAX_BODY_BYTES;
use forebay_net::handshake::ServerHandshake;
use forebay_net::stream::Stream;
use forebay_protocol::PeerIdentity;
use forebay_protocol::message::SessionRequest;
use forebay_protocol::{Call, Errno, Reply, Request, SessionId};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Connections accepted in a row, before other events are processed.
const MAX_ACCEPTS: usize = 64;

impl EventLoop {
    pub(super) fn accept_unix(&mut self) {
        for _ in 0..MAX_ACCEPTS {
            let Some(socket) = self.connections.accept_unix() else {
                return;
            };
            self.add_unix_connection(socket);
        }
    }

    /// Add a connection of this host, whose peer the kernel identifies.
    pub(super) fn add_unix_connection(&mut self, socket: UnixStream) -> Option<ConnId> {
        let peer = match auth::unix_peer(&socket) {
            Ok(peer) => peer,
            Err(error) => {
                tracing::warn!(%error, "cannot get peer credentials");
                return None;
            }
        };
        let id = self.add_connection(Stream::Unix(socket), None)?;
        self.step(Input::Connected(id, peer.clone()));
        self.admit(id, &peer);
        Some(id)
    }

    pub(super) fn accept_tcp(&mut self) {
        for _ in 0..MAX_ACCEPTS {
            let Some(socket) = self.connections.accept_tcp() else {
                return;
            };
            self.add_tcp_connection(socket);
        }
    }

    /// Add a connection, which counts as unauthenticated.
    pub(super) fn add_connection(
        &mut self,
        stream: Stream,
        handshake: Option<ServerHandshake>,
    ) -> Option<ConnId> {
        let id = self.connections.add(stream, handshake)?;
        if let Some(oldest) = self.connections.admission.add(id.0, Instant::now()) {
            tracing::warn!("too many unauthenticated connections: the oldest is closed");
            self.close_connection(ConnId(oldest));
        }
        Some(id)
    }

    /// Remove a connection from the event loop.
    pub(super) fn close_connection(&mut self, id: ConnId) {
        self.delayed.remove(id);
        self.batches.remove(id);
        if self.connections.close(id) {
            self.step(Input::Disconnected(id));
        }
    }

    /// Close connections whose peers did not authenticate, or sent no request, in time.
    pub(super) fn close_overdue_connections(&mut self) {
        while let Some(id) = self.connections.admission.take_timed_out(Instant::now()) {
            tracing::warn!("authentication timeout: connection closed");
            self.close_connection(ConnId(id));
        }
    }

    /// Turn a connection into a data connection with a thread of its own.
    pub(super) fn hand_over(&mut self, id: ConnId, session: SessionId, slot: u32) {
        let principal = self.connections.admission.principal(id.0);
        if let Some(conn) = self.connections.take(id) {
            self.step(Input::Disconnected(id));
            // A session that has ended since has none.
            if let Some(traffic) = self.node.traffic(session) {
                let rates = self.rates.as_ref();
                let charged = rates.zip(self.node.charged_user_of_session(session));
                let charged =
                    charged.map(|(rates, uid)| ChargedConnection { rates: rates.clone(), uid });
                let session = (session, traffic);
                self.data.start_connection(conn, session, slot, principal, charged);
            }
        }
    }

    pub(super) fn reply(
        &mut self,
        id: ConnId,
        seq: u64,
        reply: Reply,
        descriptor: Option<OwnedFd>,
        cacheable: bool,
    ) {
        if let (Some(rates), Some(bytes)) = (&self.rates, read_bytes(&reply))
            && let Some(uid) = self.node.charged_user_of_connection(id)
        {
            rates.charge_read(uid, bytes, Instant::now());
        }
        let queued = self.connections.queue_reply(id, seq, reply, descriptor, cacheable);
        if let Err(error) = queued {
            tracing::error!(%error, "reply too long: connection closed");
            self.close_connection(id.connection());
        }
    }

    /// Send queued replies, then process a call that arrived meanwhile.
    pub(super) fn flush_connection(&mut self, id: ConnId) {
        match self.connections.flush(id) {
            Ok(true) => self.process_frames(id),
            Ok(false) => {}
            Err(_) => self.close_connection(id),
        }
    }

    /// Process the complete frames of a connection, as far as they may be in progress concurrently.
    pub(super) fn process_frames(&mut self, id: ConnId) {
        loop {
            let incoming = match self.connections.next_frame(id) {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "invalid frame: connection closed");
                    return self.close_connection(id);
                }
            };
            self.connections.admission.note_message(id.0);
            let call = match incoming {
                Incoming::Call(call) => call,
                Incoming::Handshake(body) => return self.process_handshake(id, &body),
            };
            if !matches!(call.request, Request::Peer(_)) {
                return self.process_call(id, call);
            }
            // Messages of other daemons get no reply, so several may be processed in a row.
            let begun = Instant::now();
            self.process_call(id, call);
            self.counters.count_request(RequestKind::Peer, begun.elapsed(), false);
        }
    }

    fn process_call(&mut self, id: ConnId, call: Call) {
        let seq = call.seq;
        if let Some(errno) = self.connections.get_mut(id).and_then(|conn| conn.refused) {
            return self.refuse(id, seq, errno);
        }
        if let Request::Session(SessionRequest::Attach(attach)) = &call.request
            && attach.data_connection
            && let Some(principal) = self.connections.admission.principal(id.0)
            && !self.data.permits.is_free(principal)
            // A connection that replaces another one takes over its permit.
            && !attach.token.is_some_and(|r| self.data.slots.is_slot_in_use(r.session, attach.slot))
        {
            tracing::warn!(?principal, "data connection refused: too many");
            return self.refuse(id, seq, Errno::EAGAIN);
        }
        if self.trusted_hosts.is_some() && !self.is_from_trusted_host(id, &call.request) {
            tracing::warn!(host = ?self.host_of(id), "refused: only an administrator's host may do this");
            return self.refuse(id, seq, Errno::EACCES);
        }
        if let Some(delay) = self.delay_of(id, &call) {
            return self.delayed.insert(id, call, Instant::now() + delay);
        }
        self.begin_call(id, call);
    }

    /// Carry out a call, or have the requests of a batch carried out by turns.
    fn begin_call(&mut self, conn: ConnId, call: Call) {
        if !matches!(call.request, Request::Batch(_)) {
            return self.step(Input::Call(conn, call));
        }
        let seq = call.seq;
        match self.node.divide_batch(conn, call) {
            Ok(calls) => self.batches.push(calls),
            Err(errno) => {
                let (reply, descriptor) = (Reply::Failed(errno), None);
                let effect = Effect::Reply { conn, seq, reply, descriptor, cacheable: false };
                self.effects.push(effect);
            }
        }
    }

    /// The delay of a call whose user exceeds a rate.
    fn delay_of(&self, id: ConnId, call: &Call) -> Option<Duration> {
        let rates = self.rates.as_ref()?;
        let (requests, bytes) = charge_of(&call.request)?;
        let uid = self.node.charged_user(id, call)?;
        if is_urgent(&call.request) {
            rates.charge_urgent(uid, Instant::now());
            return None;
        }
        rates.take(uid, requests, bytes, Instant::now())
    }

    /// Carry out the calls whose delay is over.
    pub(super) fn resume_delayed_calls(&mut self) {
        while let Some((id, call)) = self.delayed.take_due(Instant::now()) {
            self.begin_call(id, call);
        }
    }

    /// The host of a connection; `None`: this one.
    fn host_of(&mut self, id: ConnId) -> Option<IpAddr> {
        self.connections.get_mut(id).and_then(|conn| conn.host)
    }

    /// Whether the host of a connection has the rights that a request needs in addition to those of
    /// clients.
    fn is_from_trusted_host(&mut self, id: ConnId, request: &Request) -> bool {
        let (Some(host), Some(hosts)) = (self.host_of(id), &self.trusted_hosts) else {
            return true;
        };
        match request {
            Request::Session(SessionRequest::Attach(attach)) if attach.instance.is_none() => {
                hosts.may_administer(host)
            }
            Request::Peer(message) => {
                let volume = self.node.volume(message.instance);
                volume.is_none_or(|volume| hosts.may_be_peer(host, &volume.spec.placement))
            }
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Path(_)
            | Request::Delegated(_)
            | Request::Batch(_) => true,
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

    /// Apply the connection limits to an authenticated peer.
    pub(super) fn admit(&mut self, id: ConnId, peer: &PeerIdentity) {
        let admitted = self.connections.admission.admit(id.0, Principal::from(peer));
        let Some(conn) = self.connections.get_mut(id) else {
            return;
        };
        match admitted {
            Ok(()) => conn.max_body = MAX_BODY_BYTES,
            Err(reason) => {
                tracing::warn!(%reason, "connection refused");
                self.counters.refused_connections.increment();
                conn.refused = Some(reason.into());
            }
        }
    }
}
