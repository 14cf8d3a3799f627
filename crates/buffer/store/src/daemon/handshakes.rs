//! Handshakes of TCP connections. The node knows a connection once its peer is authenticated.

use super::event_loop::EventLoop;
use super::munge_worker::PendingCredential;
use crate::node::{ConnId, Input};
use forebay_net::handshake::{
    Authenticated, CredentialCheck, Refusal, ServerHandshake, Service, Step,
};
use forebay_net::stream::Stream;
use std::net::TcpStream;

impl EventLoop {
    pub(super) fn add_tcp_connection(&mut self, socket: TcpStream) {
        // Either fails only if the peer has disconnected.
        let (Ok(address), Ok(stream)) = (socket.local_addr(), Stream::tcp(socket)) else {
            return;
        };
        self.add_connection(stream, Some(ServerHandshake::new(Service::Storage, address)));
    }

    pub(super) fn process_handshake(&mut self, id: ConnId, body: &[u8]) {
        let Some(conn) = self.connections.get_mut(id) else {
            return;
        };
        let Some(handshake) = &mut conn.handshake else {
            return;
        };
        match handshake.receive(&self.authenticator, body) {
            Ok(Step::Answer(bytes, ciphers)) => {
                let queued = conn.queue(&bytes).and_then(|()| conn.set_ciphers(ciphers));
                conn.busy = false;
                match queued {
                    Ok(()) => self.connections.touch(id),
                    Err(error) => {
                        tracing::warn!(%error, "handshake failed: connection closed");
                        self.counters.refused_connections.increment();
                        self.close_connection(id);
                    }
                }
            }
            Ok(Step::Verify(check)) => self.verify_credential(id, check),
            Ok(Step::Authenticated(client)) => self.finish_handshake(id, Ok(client)),
            Err(refusal) => self.finish_handshake(id, Err(refusal)),
        }
    }

    fn verify_credential(&mut self, id: ConnId, check: CredentialCheck) {
        let pending = PendingCredential { conn: id, check };
        let worker = self.munge_worker.as_ref();
        let admission = &mut self.connections.admission;
        let queued = admission.set_authenticating(id.0).is_ok()
            && worker.is_some_and(|worker| worker.try_submit(pending).is_ok());
        if !queued {
            let busy = Refusal::overload("too many credentials wait to be verified");
            self.finish_handshake(id, Err(busy));
        }
    }

    /// The client is authenticated, or not.
    pub(super) fn finish_handshake(&mut self, id: ConnId, outcome: Result<Authenticated, Refusal>) {
        let Some(conn) = self.connections.get_mut(id) else {
            return;
        };
        let Some(handshake) = conn.handshake.take() else {
            return;
        };
        conn.busy = false;
        let verdict = match &outcome {
            Ok(client) => handshake.finish(client),
            Err(refusal) => handshake.refuse(refusal),
        };
        let queued = verdict.and_then(|bytes| conn.queue(&bytes));
        self.connections.touch(id);
        match (outcome, queued) {
            (Ok(client), Ok(())) => {
                self.step(Input::Connected(id, client.peer.clone()));
                self.admit(id, &client.peer);
            }
            (Ok(_), Err(error)) => {
                tracing::warn!(%error, "handshake failed: connection closed");
                self.counters.refused_connections.increment();
                self.close_connection(id);
            }
            (Err(refusal), _) => {
                tracing::warn!(%refusal, "connection refused");
                self.counters.refused_connections.increment();
                // The client learns the reason if its socket has room for it.
                if let Some(conn) = self.connections.get_mut(id) {
                    let _ = conn.send();
                }
                self.close_connection(id);
            }
        }
    }
}
