//! A call, from its arrival to those who carry it out.

use super::{ConnId, Context, Effect, Shard, unseal};
use crate::objects::{ObjectId, Objects};
use forebay_protocol::Credentials;
use forebay_protocol::identity::PeerIdentity;
use forebay_protocol::message::{AdminRequest, SessionRequest};
use forebay_protocol::message::{OpenMode, RECOVERY_SLOT};
use forebay_protocol::{Call, Errno, Reply, Request, SessionId};

impl<O: Objects> Shard<O> {
    pub(super) fn call(&mut self, conn: ConnId, call: Call) {
        let seq = call.seq;
        let for_all = self.is_for_all(conn, &call);
        match self.dispatch(conn, call) {
            Ok(Some(reply)) => self.reply(conn, seq, reply),
            Ok(None) => {}
            Err(errno) => self.reply(conn, seq, Reply::Failed(errno)),
        }
        if for_all && self.may_cache(conn) {
            for effect in &mut self.effects {
                if let Effect::Reply {
                    conn: to,
                    cacheable,
                    ..
                } = effect
                {
                    *cacheable = *to == conn;
                }
            }
        }
    }

    /// Is it a session without an instance?
    fn administers(&self, session: SessionId) -> bool {
        let known = self.state.sessions.get(&session);
        known.is_some_and(|session| session.instance.is_none())
    }

    pub(super) fn reply(&mut self, conn: ConnId, seq: u64, reply: Reply) {
        self.reply_with(conn, seq, reply, None);
    }

    /// Answer, with the data object itself if there is one to send along.
    pub(super) fn reply_with(
        &mut self,
        conn: ConnId,
        seq: u64,
        reply: Reply,
        descriptor: Option<O::Descriptor>,
    ) {
        self.effects.push(Effect::Reply {
            conn,
            seq,
            reply,
            descriptor,
            cacheable: false,
        });
    }

    /// Carry out a call. `None`: the reply comes later, or is among the effects already.
    fn dispatch(&mut self, conn: ConnId, call: Call) -> Result<Option<Reply>, Errno> {
        match call.request {
            Request::Session(SessionRequest::Attach(hello)) => {
                self.hello(conn, call.seq, hello).map(Some)
            }
            Request::Session(SessionRequest::Prove { proof, nonce }) => {
                self.prove(conn, &proof, nonce).map(Some)
            }
            Request::Peer(message) => {
                let known = self.conns.get(&conn).ok_or(Errno::ENOTCONN)?;
                if known.peer.trusted {
                    self.receive(*message);
                } else {
                    self.effects.push(Effect::Disconnect(conn));
                }
                Ok(None)
            }
            Request::Session(SessionRequest::Detach)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_) => self.call_of_session(conn, call),
        }
    }

    /// Carry out a call that comes over one of a session's connections: now, or when what is in its
    /// way has ended.
    fn call_of_session(&mut self, conn: ConnId, call: Call) -> Result<Option<Reply>, Errno> {
        let known = self.conns.get(&conn).ok_or(Errno::ENOTCONN)?;
        let (session, slot) = known.session.ok_or(Errno::ENOTCONN)?;
        let (peer, local) = (known.peer.clone(), known.peer.local);
        let seq = call.seq;
        if slot != RECOVERY_SLOT {
            self.returning.remove(&session);
        }
        if self.spread && self.is_blocked((session, slot, seq), &call.request) {
            self.park(conn, call, 0);
            return Ok(None);
        }
        if let Some(object) = self.object_at_rest(session, local, &call.request) {
            self.await_unsealing(object, unseal::Waiting::Call(conn, call));
            return Ok(None);
        }
        let who = || credentials(&peer, call.caller.as_ref());
        if let Some(again) = self.repeated(session, slot, seq, &call.request, who)? {
            return self.answer_again((conn, seq), (session, local), again);
        }
        if let Request::Session(SessionRequest::Detach) = call.request {
            self.leave(session);
            self.reply(conn, seq, Reply::Done);
            self.effects.push(Effect::Disconnect(conn));
            return Ok(None);
        }
        let attached = self.state.sessions.get(&session);
        let Some(instance) = attached.and_then(|session| session.instance) else {
            return match call.request {
                Request::Admin(AdminRequest::ScrubInstance { id }) => {
                    self.scrub(conn, seq, &peer, id).map(|()| None)
                }
                Request::Admin(request) => {
                    self.administer(conn, (session, slot, seq), &peer, request)
                }
                Request::Session(_)
                | Request::Name(_)
                | Request::Inode(_)
                | Request::File(_)
                | Request::Lock(_)
                | Request::Data(_)
                | Request::Peer(_) => Err(if peer.trusted {
                    Errno::EOPNOTSUPP
                } else {
                    Errno::EACCES
                }),
            };
        };
        let context = Context {
            conn,
            seq,
            session,
            slot,
            instance,
            who: who()?,
            local,
        };
        if self.spread
            && let Some(plan) = self.transaction(&context, &call.request)?
        {
            self.begin_transaction(&context, call, plan);
            return Ok(None);
        }
        self.file_request(&context, call.request)
    }

    /// Answer a call that was carried out before. `local`: who asks can be given a descriptor.
    fn answer_again(
        &mut self,
        (conn, seq): (ConnId, u64),
        (session, local): (SessionId, bool),
        again: Again,
    ) -> Result<Option<Reply>, Errno> {
        match again {
            Again::Descriptor(reply, ..) if !local => Ok(Some(reply)),
            Again::Reply(Reply::Done) if self.administers(session) => {
                self.when_durable(conn, seq);
                Ok(None)
            }
            Again::Reply(reply) => Ok(Some(reply)),
            Again::Descriptor(reply, object, mode) => {
                let descriptor = Some(self.objects.open(object, mode)?);
                self.reply_with(conn, seq, reply, descriptor);
                Ok(None)
            }
        }
    }
}

/// On whose behalf a request is made: only a trusted peer's own word counts.
fn credentials(peer: &PeerIdentity, caller: Option<&Credentials>) -> Result<Credentials, Errno> {
    match caller {
        Some(caller) if !peer.trusted && (caller.uid, caller.gid) != (peer.uid, peer.gid) => {
            Err(Errno::EPERM)
        }
        Some(caller) if peer.trusted => Ok(Credentials {
            uid: caller.uid,
            gid: caller.gid,
            groups: match &caller.groups {
                Some(none) if none.is_empty() && caller.uid == peer.uid => {
                    Some(peer.groups.clone())
                }
                told => told.clone(),
            },
            checked: caller.checked,
        }),
        _ => Ok(Credentials {
            uid: peer.uid,
            gid: peer.gid,
            groups: Some(peer.groups.clone()),
            checked: false,
        }),
    }
}

/// How to answer a repeated request.
pub(super) enum Again {
    Reply(Reply),
    Descriptor(Reply, ObjectId, OpenMode),
}
