//! Sessions begin, are joined by connections, expire and end.

use super::Node;
use crate::context::SESSION_BYTES;
use crate::driver::{ConnId, Effect};
use crate::log::LogSpace;
use crate::objects::Objects;
use crate::state::{Event, SessionState};
use forebay_protocol::PeerIdentity;
use forebay_protocol::message::{
    Attach, MAX_BATCH_REQUESTS, MAX_DATA_CONNECTIONS, MAX_HOST_NAME, MAX_SLOTS, PROTOCOL_VERSION,
    SessionToken, TrailingField, is_batch_slot,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, Reply, SessionId};

impl<O: Objects + Clone> Node<O> {
    /// The first request on a connection: it begins or joins a session.
    pub(super) fn attach(
        &mut self,
        conn: ConnId,
        seq: u64,
        attach: &Attach,
    ) -> Result<Reply, Errno> {
        let slots = if attach.data_connection { MAX_DATA_CONNECTIONS } else { MAX_SLOTS };
        if attach.version != PROTOCOL_VERSION || attach.slot >= slots {
            return Err(Errno::EPROTO);
        }
        let connection = self.connections.get(conn)?;
        if connection.session.is_some() {
            return Err(Errno::EINVAL);
        }
        let peer = connection.peer.clone();
        if attach.client.host.len() > MAX_HOST_NAME {
            return Err(Errno::EINVAL);
        }
        if attach.token.is_some_and(|token| self.evicted.contains(token)) {
            return Err(Errno::ESHUTDOWN);
        }
        let joined = attach.token.and_then(|token| self.context.sessions.get(token.session).ok());
        let instance = joined.map_or(attach.instance, |session| session.state.instance);
        if instance.is_some_and(|id| self.host_fences.refuses(id, &attach.client)) {
            return Err(Errno::ESTALE);
        }
        let id = match attach.token {
            Some(token) => self.check_token(token, &peer)?,
            None => self.begin_session(attach, &peer)?,
        };
        self.connections.get_mut(conn)?.session = Some((id, attach.slot));
        let session = self.context.sessions.get_mut(id)?;
        session.renew_lease();
        session.has_descriptors |= peer.may_hold_descriptors();
        session.uses_data_connections |= !peer.may_hold_descriptors();
        session.is_trusted |= peer.trusted;
        session.caches = attach.single_cache;
        session.cache_checks_permissions = attach.cache_checks_permissions;
        session.client = attach.client.clone();
        session.client_number = Some(attach.client_number.0);
        let caches = session.state.instance.filter(|_| !attach.single_cache);
        if let Some(volume) = caches.and_then(|id| self.volumes.get_mut(&id)) {
            volume.forget_cache(&mut self.context, id);
        }
        let session = self.context.sessions.get_mut(id)?;
        if attach.data_connection {
            let bulk = Effect::BulkConnection(conn, id, attach.slot);
            self.context.effects.push(bulk);
        } else if let Some(old) = session.take_slot(attach.slot, conn, seq) {
            // Calls that still arrive on the old connection must not be carried out.
            self.context.effects.push(Effect::Disconnect(old));
            self.connections.remove(old);
        }
        let session = self.context.sessions.get(id)?;
        let spec = session.state.instance.and_then(|id| self.volume(id));
        let spec = spec.map(|volume| &volume.spec);
        Ok(Reply::Attached {
            token: SessionToken { session: id, secret: session.state.secret },
            epoch: self.epoch,
            boot: self.boot_id,
            capacity: spec.map_or(0, |spec| spec.capacity),
            placement: spec
                .map_or_else(Placement::single_node, |spec| spec.placement.without_secret()),
            takes_batches: TrailingField(true),
            keeps_write_leases: TrailingField(true),
        })
    }

    /// The session of a token. `ESTALE`: it is over, or its beginning was lost in a power cut
    /// and its number was given to another session, which has another secret.
    fn check_token(&self, token: SessionToken, peer: &PeerIdentity) -> Result<SessionId, Errno> {
        let session = &self.context.sessions.get(token.session)?.state;
        if session.secret != token.secret {
            return Err(Errno::ESTALE);
        }
        if session.uid != peer.uid && !peer.trusted {
            return Err(Errno::EACCES);
        }
        Ok(token.session)
    }

    fn begin_session(&mut self, attach: &Attach, peer: &PeerIdentity) -> Result<SessionId, Errno> {
        let instance = attach.instance;
        match instance {
            None if !peer.trusted => return Err(Errno::EACCES),
            None => {}
            Some(id) => {
                let spec = &self.volume(id).ok_or(Errno::ENOENT)?.spec;
                let is_for_group = spec.mode & 0o070 != 0 && peer.in_group(spec.gid);
                if !peer.trusted && peer.uid != spec.uid && !is_for_group {
                    return Err(Errno::EACCES);
                }
            }
        }
        self.context.require_log_space(LogSpace::ReserveOnly)?;
        let mut volume = instance.and_then(|id| self.volumes.get_mut(&id));
        if let Some(volume) = &mut volume {
            volume.check_attach(&mut self.context)?;
        }
        let (sessions, limits) = (&self.context.sessions, &self.context.limits);
        if sessions.len() >= limits.max_sessions {
            return Err(Errno::ENFILE);
        }
        if !peer.trusted {
            self.context.memory.check_handles()?;
            let of_user = sessions.iter().filter(|(_, known)| known.state.uid == peer.uid);
            if of_user.count() >= limits.max_user_sessions {
                return Err(Errno::EMFILE);
            }
        }
        let id = sessions.next_id();
        let mut state = SessionState {
            secret: self.context.secrets.next(),
            uid: peer.uid,
            instance,
            slots: Default::default(),
        };
        // Programs on this host use the same clock.
        let is_near = peer.trusted && peer.may_hold_descriptors();
        let is_single = volume.as_ref().is_some_and(|volume| !volume.is_striped());
        if attach.delegates.0 && is_near && is_single {
            state.permit_delegation(id);
        }
        if let Some(volume) = &mut volume {
            volume.revoke_delegations(&mut self.context);
        }
        let now_ns = self.context.now.steady_ns;
        self.context.sessions.insert(id, state.clone(), now_ns);
        self.context.memory.replace(0, SESSION_BYTES);
        self.context.log(Event::BeginSession { id, state }, None);
        if let Some(volume) = volume {
            volume.attach(id);
        }
        let instance = instance.map(|id| id.0);
        tracing::info!(session = id.0, instance, uid = peer.uid, "session began");
        Ok(id)
    }

    pub(super) fn disconnected(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(conn) else {
            return;
        };
        self.context.parked.take_if(|parked| parked.conn.connection() == conn);
        let Some((id, slot)) = connection.session else {
            return;
        };
        let now_ns = self.context.now.steady_ns;
        let Ok(session) = self.context.sessions.get_mut(id) else {
            return;
        };
        session.release_slot(slot, conn, now_ns);
        let volume = session.state.instance.and_then(|id| self.volumes.get_mut(&id));
        if let Some(volume) = volume {
            volume.connection_closed(id, conn);
            let positions = if is_batch_slot(slot) { 0..MAX_BATCH_REQUESTS } else { 0..0 };
            for position in positions {
                volume.connection_closed(id, conn.at_position(position));
            }
        }
    }

    /// End the sessions whose leases have expired, and drop what only they may have had in use.
    pub(super) fn expire_sessions(&mut self) {
        for volume in self.volumes.values_mut() {
            volume.grant_held_back(&mut self.context);
            volume.forget_unused_leases(&mut self.context);
            volume.forget_expired_caches(&self.context);
        }
        if self.context.log_space == LogSpace::Exhausted {
            return;
        }
        let lease_ns = self.context.limits.lease_ns;
        let deadline_ns = self.context.now.steady_ns.saturating_sub(lease_ns);
        for id in self.context.sessions.expired(deadline_ns) {
            self.session_expired(id);
        }
        if !self.context.orphans_dropped {
            self.context.orphans_dropped = true;
            for (id, volume) in &mut self.volumes {
                if self.context.handles_are_restored(*id) {
                    volume.drop_unused_orphans(&mut self.context);
                } else {
                    self.context.orphans_dropped = false;
                }
            }
        }
    }

    fn session_expired(&mut self, id: SessionId) {
        let session = self.context.sessions.get(id).ok();
        let instance = session.and_then(|session| session.state.instance);
        if self.context.sessions.is_returning(id)
            && let Some(volume) = instance.and_then(|id| self.volumes.get_mut(&id))
        {
            volume.session_lost();
        }
        self.end_session(id);
    }

    /// Close all handles of a session, and forget it.
    pub(super) fn end_session(&mut self, id: SessionId) {
        let Some(session) = self.context.sessions.remove(id) else {
            return;
        };
        let instance = session.state.instance;
        self.context.memory.replace(SESSION_BYTES, 0);
        self.context.log(Event::EndSession(id), None);
        for conn in session.connections() {
            self.connections.leave_session(conn);
        }
        if let Some(volume) = instance.and_then(|id| self.volumes.get_mut(&id)) {
            volume.detach(&mut self.context, id);
        }
        let instance = instance.map(|id| id.0);
        tracing::info!(session = id.0, instance, "session ended");
    }

    /// A client ends its session: at once, or, if the log has no space for that, when the lease has
    /// expired.
    pub(super) fn leave(&mut self, id: SessionId) {
        if self.context.log_space > LogSpace::Exhausted {
            return self.end_session(id);
        }
        let session = self.context.sessions.get(id);
        let instance = session.ok().and_then(|session| session.state.instance);
        if let Some(volume) = instance.and_then(|id| self.volumes.get_mut(&id)) {
            volume.close_all(&mut self.context, id);
        }
    }
}
