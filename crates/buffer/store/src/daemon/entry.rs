//! Calls on their way in: who may have one carried out at all, and whose word is looked at first.

use super::doors::guest;
use super::events::EventLoop;
use super::munge_worker::PendingCredential;
use crate::node::{ConnId, Effect, Input};
use forebay_net::frame::MAX_BODY_BYTES;
use forebay_protocol::identity::Proof;
use forebay_protocol::message::SessionRequest;
use forebay_protocol::{Call, Errno, Reply, Request};
use std::time::Instant;

impl EventLoop {
    pub(super) fn take_call(&mut self, id: ConnId, call: Call) {
        let seq = call.seq;
        if let Some(errno) = self.conns.get(&id).and_then(|conn| conn.refused) {
            return self.refuse(id, seq, errno);
        }
        if let Request::Session(SessionRequest::Attach(hello)) = &call.request
            && hello.data_connection
            && let Some(guest) = self.doors.guest(id)
            && !self.seats.is_free(guest)
            // Whose place it takes leaves a seat, once it is known that it may take it.
            && !hello.token.is_some_and(|r| self.lanes.is_slot_in_use(r.session, hello.slot))
        {
            tracing::warn!(user = guest, "too many bulk connections: one is refused");
            return self.refuse(id, seq, Errno::EAGAIN);
        }
        let call = match (call, &self.decoder) {
            (
                Call {
                    request:
                        Request::Session(SessionRequest::Prove {
                            proof: Proof::Munge(credential),
                            nonce,
                        }),
                    ..
                },
                Some(decoder),
            ) => {
                let unproven = self.parts.node.handshake(id, nonce);
                let unproven = unproven.map(|opening| PendingCredential {
                    conn: id,
                    seq,
                    credential,
                    opening,
                });
                // Too many wait, or nothing was asked of this one.
                if unproven.is_none_or(|unproven| decoder.try_send(unproven).is_err()) {
                    self.step(Input::MungeDecoded(id, seq, None));
                } else {
                    self.doors.proving(id, true);
                }
                return;
            }
            (call, _) => call,
        };
        self.step(Input::Call(id, call));
        self.admit(id);
    }

    /// Answer a call with an error, and close the connection.
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

    /// Let in who has been a stranger so far, if it is known now who that is.
    pub(super) fn admit(&mut self, id: ConnId) {
        if !self.doors.is_stranger(id) {
            return;
        }
        let Some(peer) = self.parts.node.authenticated_peer(id) else {
            return;
        };
        let guest = guest(peer);
        let admitted = self.doors.admit(id, guest);
        if let Some(conn) = self.conns.get_mut(&id) {
            match admitted {
                Ok(()) => conn.longest = MAX_BODY_BYTES,
                Err(errno) => {
                    tracing::warn!(user = guest, "too many connections: one is refused");
                    conn.refused = Some(errno);
                }
            }
        }
    }

    /// Close the connections of those who have not said in time who they are.
    pub(super) fn close_overdue(&mut self) {
        while let Some(id) = self.doors.overdue(Instant::now()) {
            tracing::warn!(
                "a peer has not said in time who it is, or nothing: its connection is closed"
            );
            self.forget(id);
        }
    }
}
