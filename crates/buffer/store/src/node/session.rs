//! Sessions: begin, join, repeat, end.

use super::calls::Again;
use super::open::may_open;
use super::{
    Attached, ConnId, Effect, Event, MungeAuthentication, SessionState, Shard, SlotResult,
};
use crate::log::LogSpace;
use crate::objects::{ObjectId, Objects};
use forebay_net::handshake::{Daemon, Opening};
use forebay_protocol::Credentials;
use forebay_protocol::identity::{PeerIdentity, Proof};
use forebay_protocol::message::{
    Attach, MAX_DATA_CONNECTIONS, MAX_SLOTS, PROTOCOL_VERSION, SessionToken,
};
use forebay_protocol::message::{FileRequest, NameRequest};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, InstanceId, Reply, Request, SessionId};

impl<O: Objects> Shard<O> {
    pub(super) fn hello(&mut self, conn: ConnId, seq: u64, hello: Attach) -> Result<Reply, Errno> {
        let numbers = if hello.data_connection {
            MAX_DATA_CONNECTIONS
        } else {
            MAX_SLOTS
        };
        if hello.version != PROTOCOL_VERSION || hello.slot >= numbers {
            return Err(Errno::EPROTO);
        }
        if self.needs_proof(conn)? {
            let nonce = self.nonce();
            if let Some(known) = self.conns.get_mut(&conn) {
                known.challenge = Some(nonce);
            }
            return Ok(Reply::Challenge { nonce });
        }
        let known = self.conns.get(&conn).ok_or(Errno::ENOTCONN)?;
        if known.session.is_some() {
            return Err(Errno::EINVAL);
        }
        let peer = known.peer.clone();
        let id = match hello.token {
            Some(resume) => self.join(resume, &peer)?,
            None => self.begin(hello.instance, &peer)?,
        };
        if let Some(known) = self.conns.get_mut(&conn) {
            known.session = Some((id, hello.slot));
        }
        let attached = self.attached.entry(id).or_default();
        attached.idle_since = None;
        attached.bulk |= !peer.local;
        attached.local |= peer.local;
        attached.caches = hello.single_cache;
        if hello.data_connection {
            self.effects
                .push(Effect::BulkConnection(conn, id, hello.slot));
        } else {
            // Whatever an older connection of this slot still holds must not be acted upon.
            let (old, last) = attached.slots.entry(hello.slot).or_default();
            if let Some(old) = old.replace(conn)
                && old != conn
            {
                self.effects.push(Effect::Disconnect(old));
                self.conns.remove(&old);
            }
            *last = (*last).max(seq.saturating_sub(1));
        }
        let session = self.state.sessions.get(&id).ok_or(Errno::ESTALE)?;
        let instance = session.instance.and_then(|id| self.state.volumes.get(&id));
        Ok(Reply::Attached {
            token: SessionToken {
                session: id,
                secret: session.secret,
            },
            epoch: self.state.epoch,
            boot: self.boot,
            capacity: instance.map_or(0, |instance| instance.spec.capacity),
            placement: instance.map_or_else(Placement::single_node, |i| {
                i.spec.placement.without_secret()
            }),
        })
    }

    fn needs_proof(&self, conn: ConnId) -> Result<bool, Errno> {
        let known = self.conns.get(&conn).ok_or(Errno::ENOTCONN)?;
        if known.peer.local || known.peer.trusted || known.proven {
            return Ok(false);
        }
        // Without a key or MUNGE nobody is known over TCP.
        if self.key.is_none() && !self.munge {
            Err(Errno::EKEYREJECTED)
        } else {
            Ok(true)
        }
    }

    /// What a connection that was challenged has to prove, with these random bytes of its own.
    pub fn opening(&self, conn: ConnId, nonce: [u8; 32]) -> Option<Opening> {
        let known = self.conns.get(&conn)?;
        Some(Opening {
            with: Daemon::Storage,
            daemon: known.challenge?,
            client: nonce,
            at: known.at?,
        })
    }

    /// Who is at the other end of a connection, once that is known.
    pub fn authenticated_peer(&self, conn: ConnId) -> Option<&PeerIdentity> {
        let known = self.conns.get(&conn)?;
        (known.peer.local || known.proven).then_some(&known.peer)
    }

    pub(super) fn prove(
        &mut self,
        conn: ConnId,
        proof: &Proof,
        nonce: [u8; 32],
    ) -> Result<Reply, Errno> {
        let opening = self.end_challenge(conn, nonce)?;
        // A MUNGE credential is decoded by the driver first: `Input::Decoded`.
        let key = self.key.as_ref().ok_or(Errno::EKEYREJECTED)?;
        let (peer, own) = opening.believe_key(key, proof)?;
        self.proved(conn, peer);
        Ok(Reply::Proved(own))
    }

    /// The driver has had a peer's MUNGE credential decoded.
    pub(super) fn decoded(
        &mut self,
        conn: ConnId,
        proven: Option<MungeAuthentication>,
    ) -> Result<Reply, Errno> {
        let nonce = proven.as_ref().map_or([0; 32], |proven| proven.nonce);
        let opening = self.end_challenge(conn, nonce)?;
        let proven = proven.ok_or(Errno::EKEYREJECTED)?;
        let peer = opening.believe_munge(&proven.credential)?;
        self.proved(conn, peer);
        Ok(Reply::Proved(proven.own))
    }

    /// A challenge can be answered once.
    fn end_challenge(&mut self, conn: ConnId, nonce: [u8; 32]) -> Result<Opening, Errno> {
        let opening = self.opening(conn, nonce);
        let known = self.conns.get_mut(&conn).ok_or(Errno::ENOTCONN)?;
        known.challenge = None;
        opening.ok_or(Errno::EKEYREJECTED)
    }

    fn proved(&mut self, conn: ConnId, peer: PeerIdentity) {
        if let Some(known) = self.conns.get_mut(&conn) {
            known.peer = peer;
            known.proven = true;
        }
    }

    /// 32 bytes that an outsider cannot foresee: a keyed sequence from the random seed.
    fn nonce(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.secret().to_le_bytes());
        bytes[16..].copy_from_slice(&self.secret().to_le_bytes());
        bytes
    }

    pub(super) fn secret(&mut self) -> u128 {
        self.random = self.random.wrapping_add(1);
        let block = (u128::from(self.random) << 64) | u128::from(self.state.epoch);
        let key = self.seed;
        let hash = forebay_protocol::random::keyed_block(&key, block);
        u128::from_le_bytes(hash)
    }

    fn join(&mut self, resume: SessionToken, peer: &PeerIdentity) -> Result<SessionId, Errno> {
        let session = self
            .state
            .sessions
            .get(&resume.session)
            .ok_or(Errno::ESTALE)?;
        // Another secret means another session: one that was lost in a power cut before it was
        // durable, and whose number was given out again.
        if session.secret != resume.secret {
            return Err(Errno::ESTALE);
        }
        if session.uid != peer.uid && !peer.trusted {
            return Err(Errno::EACCES);
        }
        Ok(resume.session)
    }

    fn begin(
        &mut self,
        instance: Option<InstanceId>,
        peer: &PeerIdentity,
    ) -> Result<SessionId, Errno> {
        match instance {
            None if !peer.trusted => return Err(Errno::EACCES),
            None => {}
            Some(id) => {
                let spec = &self.state.volumes.get(&id).ok_or(Errno::ENOENT)?.spec;
                if !peer.trusted && peer.uid != spec.uid && !peer.in_group(spec.gid) {
                    return Err(Errno::EACCES);
                }
            }
        }
        self.need_room(LogSpace::ReserveOnly)?;
        if let Some(instance) = instance {
            self.end_caching(instance)?;
        }
        if self.state.sessions.len() >= self.limits.max_sessions {
            return Err(Errno::ENFILE);
        }
        let own = |session: &&SessionState| session.uid == peer.uid;
        if !peer.trusted
            && self.state.sessions.values().filter(own).count() >= self.limits.max_user_sessions
        {
            return Err(Errno::EMFILE);
        }
        let id = SessionId(self.state.session_count + 1);
        let secret = self.secret();
        self.log(
            Event::BeginSession {
                id,
                secret,
                uid: peer.uid,
                instance,
            },
            None,
        );
        self.attached.insert(id, Attached::default());
        let of = instance.map(|id| id.0);
        tracing::info!(
            session = id.0,
            instance = of,
            uid = peer.uid,
            "a session begins"
        );
        if let Some(instance) = instance {
            self.runtime(instance).sessions.insert(id);
        }
        Ok(id)
    }

    /// If this call was carried out before, its reply. Calls of a slot that come out of order
    /// fail with `ESTALE`.
    pub(super) fn repeated(
        &mut self,
        session: SessionId,
        slot: u32,
        seq: u64,
        request: &Request,
        who: impl FnOnce() -> Result<Credentials, Errno>,
    ) -> Result<Option<Again>, Errno> {
        let attached = self.attached.get_mut(&session).ok_or(Errno::ESTALE)?;
        let (_, last) = attached.slots.entry(slot).or_default();
        if seq < *last {
            return Err(Errno::ESTALE);
        }
        *last = seq;
        let durable = self.state.sessions.get(&session).ok_or(Errno::ESTALE)?;
        let (outcome, instance) = match durable.slots.get(&slot) {
            Some((done, outcome)) if *done == seq => (*outcome, durable.instance),
            _ => return Ok(None),
        };
        let Some(instance) = instance else {
            return Ok(Some(Again::Reply(Reply::Done)));
        };
        Ok(Some(match outcome {
            SlotResult::Done => Again::Reply(Reply::Done),
            SlotResult::Elsewhere(ino, kind) => Again::Reply(Reply::Referral { ino, kind }),
            SlotResult::Attr(ino) => Again::Reply(Reply::Attr(self.attr(instance, ino)?)),
            SlotResult::Opened(ino, created) => {
                let (handle, open) = match request {
                    Request::Name(NameRequest::Create { handle, open, .. }) => (handle, open),
                    Request::File(FileRequest::Open { handle, open, .. }) => (handle, open),
                    Request::Session(_)
                    | Request::Admin(_)
                    | Request::Name(
                        NameRequest::Lookup { .. }
                        | NameRequest::ReadLink { .. }
                        | NameRequest::ReadDir { .. }
                        | NameRequest::Mknod { .. }
                        | NameRequest::PutFile { .. }
                        | NameRequest::Unlink { .. }
                        | NameRequest::RmDir { .. }
                        | NameRequest::Rename { .. }
                        | NameRequest::Link { .. },
                    )
                    | Request::Inode(_)
                    | Request::File(
                        FileRequest::OpenObject { .. }
                        | FileRequest::Close { .. }
                        | FileRequest::CloseAll { .. }
                        | FileRequest::RenewCapability { .. }
                        | FileRequest::ReserveSpace { .. }
                        | FileRequest::Allocate { .. }
                        | FileRequest::Sync { .. }
                        | FileRequest::SyncMetadata { .. }
                        | FileRequest::AppendLock { .. }
                        | FileRequest::AppendUnlock { .. },
                    )
                    | Request::Lock(_)
                    | Request::Data(_)
                    | Request::Peer(_) => return Err(Errno::ESTALE),
                };
                // It may ask for more than it did the first time.
                match self.was_checked(session, *handle, *open) {
                    Some(checked) => checked?,
                    None if created => {}
                    None => may_open(&who()?, self.names(instance)?.names.find(ino)?, *open)?,
                }
                self.add_handle(session, instance, *handle, ino, *open)?;
                let reply = Reply::Opened {
                    attr: self.attr(instance, ino)?,
                    created,
                    capability: self.permit(instance, ino, *open)?,
                };
                let object = ObjectId { instance, ino };
                if open.descriptor && self.runtime(instance).space.has_object(ino) {
                    Again::Descriptor(reply, object, *open)
                } else {
                    Again::Reply(reply)
                }
            }
        }))
    }

    pub(super) fn disconnected(&mut self, conn: ConnId) {
        let Some(known) = self.conns.remove(&conn) else {
            return;
        };
        self.drop_parked(conn);
        self.drop_unsealing(conn);
        let Some((session, slot)) = known.session else {
            return;
        };
        let Some(attached) = self.attached.get_mut(&session) else {
            return;
        };
        if let Some((current, _)) = attached.slots.get_mut(&slot)
            && *current == Some(conn)
        {
            *current = None;
        }
        if attached.lock_watch.is_some_and(|(watch, _)| watch == conn) {
            attached.lock_watch = None;
        }
        if attached.slots.values().all(|(conn, _)| conn.is_none()) {
            attached.idle_since = Some(self.now.steady_ns);
        }
    }

    pub(super) fn expire_sessions(&mut self) {
        let deadline = self.now.steady_ns.saturating_sub(self.limits.lease_ns);
        let expired: Vec<_> = self
            .attached
            .iter()
            .filter(|(_, attached)| attached.idle_since.is_some_and(|since| since < deadline))
            .map(|(id, _)| *id)
            .collect();
        self.give_held_back();
        if self.room == LogSpace::Exhausted {
            return;
        }
        for id in expired {
            self.end_session(id);
        }
        if self.settled() && !self.collected {
            self.collected = true;
            self.drop_unused_orphans();
        }
    }

    /// After a start, clients have the time of a lease to open their handles again.
    pub(super) fn settled(&self) -> bool {
        self.returning.is_empty()
            || self.now.steady_ns >= self.started.saturating_add(self.limits.lease_ns)
    }

    /// Close all handles of a session and forget it.
    pub(super) fn end_session(&mut self, id: SessionId) {
        let Some(session) = self.state.sessions.get(&id) else {
            return;
        };
        let instance = session.instance;
        self.returning.remove(&id);
        let of = instance.map(|id| id.0);
        tracing::info!(session = id.0, instance = of, "a session ends");
        self.log(Event::EndSession(id), None);
        let Some(attached) = self.attached.remove(&id) else {
            return;
        };
        self.end_watch(&attached);
        for (conn, _) in attached.slots.into_values() {
            if let Some(conn) = conn.and_then(|conn| self.conns.get_mut(&conn)) {
                conn.session = None;
            }
        }
        if let Some(instance) = instance {
            self.runtime(instance).sessions.remove(&id);
            for (handle, open) in attached.handles {
                self.released(id, instance, handle, open);
            }
        }
    }

    /// A client goes for good: at once, or, where the log has no room to say so, once it has expired.
    pub(super) fn leave(&mut self, id: SessionId) {
        if self.room > LogSpace::Exhausted {
            return self.end_session(id);
        }
        let session = self.state.sessions.get(&id);
        let (Some(attached), Some(session)) = (self.attached.get_mut(&id), session) else {
            return;
        };
        let handles = std::mem::take(&mut attached.handles);
        if let Some(instance) = session.instance {
            for (handle, open) in handles {
                self.released(id, instance, handle, open);
            }
        }
    }

    fn drop_unused_orphans(&mut self) {
        let ids: Vec<_> = self.state.volumes.keys().copied().collect();
        for id in ids {
            let Ok(instance) = self.names(id) else {
                continue;
            };
            let orphans: Vec<_> = instance.names.orphans().collect();
            for ino in orphans {
                self.drop_if_unused(id, ino);
            }
        }
    }
}
