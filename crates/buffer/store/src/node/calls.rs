//! A call, from its arrival at the node to the volume that carries it out.

use super::Node;
use crate::context::{Handled, Origin, Outcome, Requester};
use crate::driver::{ConnId, Effect};
use crate::objects::Objects;
use crate::volume::{PendingCall, Resolved, changes};
use forebay_protocol::PeerIdentity;
use forebay_protocol::message::{
    BatchRequest, FileRequest, MAX_BATCH_REQUESTS, NameRequest, PROBE_SLOT, RECOVERY_SLOT,
    SessionRequest, connection_slot, is_batch_slot,
};
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::{Call, Credentials, Errno, Ino, InstanceId, Reply, Request, SessionId};

/// Time for which a request waits for space that only absent clients may have in use; then it fails with
/// `ENOSPC`. Clients take one that is not among those that [may take long](Request::may_take_long) and has
/// no reply for a failure of the daemon in the end.
const SPACE_TIMEOUT_NS: u64 = 3_000_000_000;
/// Time for which a sync waits until other nodes have removed their parts of removed files.
const REMOVALS_TIMEOUT_NS: u64 = 500_000_000;

impl<O: Objects + Clone> Node<O> {
    pub(super) fn call(&mut self, conn: ConnId, call: Call) {
        let seq = call.seq;
        let is_for_all = self.is_for_all(conn, &call);
        let changes = changes(&call.request);
        let directory = directory_of_changed_entry(&call.request);
        let handled = self.dispatch(conn, call);
        self.context.finish(conn, seq, handled);
        if is_for_all {
            self.permit_caching((conn, seq), changes, directory);
        }
    }

    /// The calls of the requests of a batch, each of which has a reply of its own. `EINVAL`: it is no valid
    /// batch.
    pub fn divide_batch(&self, conn: ConnId, batch: Call) -> Result<Vec<(ConnId, Call)>, Errno> {
        let (_, slot) = self.connections.session(conn).ok_or(Errno::ENOTCONN)?;
        let Call { seq, caller, tags, request: Request::Batch(requests) } = batch else {
            return Err(Errno::EINVAL);
        };
        if !is_batch_slot(slot) || !(1..=MAX_BATCH_REQUESTS).contains(&requests.len()) {
            return Err(Errno::EINVAL);
        }
        let mut tags = tags.into_iter();
        let call = |(position, request): (usize, BatchRequest)| {
            let tags = match tags.len() {
                0 => Vec::new(), // the client is trusted
                _ => tags.by_ref().take(request.inodes().len()).collect(),
            };
            let caller = caller.clone();
            (conn.at_position(position), Call { seq, caller, tags, request: request.into() })
        };
        Ok(requests.into_iter().enumerate().map(call).collect())
    }

    /// Carry out all requests of a batch.
    pub(super) fn batch(&mut self, conn: ConnId, batch: Call) {
        let seq = batch.seq;
        match self.divide_batch(conn, batch) {
            Ok(calls) => calls.into_iter().for_each(|(conn, call)| self.call(conn, call)),
            Err(errno) => self.context.reply(conn, seq, Reply::Failed(errno)),
        }
    }

    fn dispatch(&mut self, conn: ConnId, mut call: Call) -> Handled<O> {
        if conn.position().is_some() && !call.request.is_batched() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.check_inodes(conn, &mut call)?;
        match call.request {
            Request::Session(SessionRequest::Attach(attach)) => {
                self.attach(conn, call.seq, &attach).map(Outcome::Reply)
            }
            Request::Peer(message) => self.peer_message(conn, *message),
            Request::Session(SessionRequest::Detach)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Path(_)
            | Request::Delegated(_) => self.call_of_session(conn, call),
            // Its requests are carried out one by one.
            Request::Batch(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// A message of another node.
    fn peer_message(&mut self, conn: ConnId, message: PeerMessage) -> Handled<O> {
        if !self.connections.get(conn)?.peer.trusted {
            self.context.effects.push(Effect::Disconnect(conn));
        } else if let Some(volume) = self.volumes.get_mut(&message.instance) {
            volume.receive(&mut self.context, message);
        }
        Ok(Outcome::Deferred)
    }

    /// Carry out a call of a session: now, or when it is not blocked any more.
    fn call_of_session(&mut self, conn: ConnId, call: Call) -> Handled<O> {
        self.connections.get(conn)?;
        let (id, slot) = self.connections.session(conn).ok_or(Errno::ENOTCONN)?;
        if slot != RECOVERY_SLOT && self.context.sessions.has_returned(id) {
            self.end_unclaimed_write_leases(id);
        }
        let connection = self.connections.get(conn)?;
        let now_ns = self.context.now.steady_ns;
        let session = self.context.sessions.get_mut(id)?;
        if connection_slot(slot) < PROBE_SLOT {
            session.last_call_ns = now_ns;
        }
        let Some(instance) = session.state.instance else {
            return self.administer(conn, (id, slot), call);
        };
        let volume = self.volumes.get_mut(&instance).ok_or(Errno::ESTALE)?;
        let origin = Origin {
            conn,
            seq: call.seq,
            session: id,
            slot,
            passes_descriptors: connection.peer.may_hold_descriptors(),
            session_has_descriptors: session.has_descriptors,
            session_uses_data_connections: session.uses_data_connections,
        };
        let completed = session.completed(slot, call.seq);
        let completed = completed.filter(|result| !volume.is_dropped(&call.request, *result));
        let user = || credentials(&connection.peer, call.caller.as_ref());
        let mut reported_at = None;
        // A path is resolved again when the call is retried.
        let target = match &call.request {
            // For the repetition of a reply, only the operation matters.
            Request::Path(path) if completed.is_some() => path.operation.clone().at(Ino::ROOT),
            Request::Path(path) => {
                session.check_order(slot, call.seq)?;
                // The first transmission may have begun a transaction, and the path may lead elsewhere
                // by now.
                if volume.is_striped() && volume.is_in_progress(&origin) {
                    return self.park(instance, conn, call);
                }
                match volume.resolve_path(&user()?, path)? {
                    Resolved::Target(request) => Some(request),
                    Resolved::Elsewhere(reply) => return Ok(Outcome::Reply(reply)),
                    Resolved::Locked => return self.park(instance, conn, call),
                }
            }
            Request::Delegated(delegated) => {
                if completed.is_none() {
                    session.check_delegation(delegated)?;
                }
                reported_at = Some(delegated.now);
                Some(Request::Name(delegated.request.clone()))
            }
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_)
            | Request::Batch(_) => None,
        };
        let request = target.as_ref().unwrap_or(&call.request);
        if volume.is_striped() && volume.blocks(&origin, completed.is_some(), request) {
            return self.park(instance, conn, call);
        }
        let context = &mut self.context;
        let forgotten = volume.forgotten_leases_end(context, &origin, completed, request);
        let file_leases = forgotten.max(volume.recall_leases(context, completed, request));
        let cache_leases =
            volume.recall_cache_leases(context, &origin, completed, request, file_leases);
        let write_leases = volume.recall_write_leases(context, &origin, completed, request);
        if let Some(at_ns) = file_leases.max(cache_leases).max(write_leases) {
            let attempts = self.context.current_attempts();
            self.context.parked.park_until(instance, (conn, call), attempts, at_ns);
            return Ok(Outcome::Deferred);
        }
        let waits_for_removals =
            matches!(request, Request::File(FileRequest::Sync { handle: None, data_only: true }));
        if waits_for_removals && volume.awaits_removals() {
            let attempts = self.context.current_attempts();
            let until_ns = attempts.end_ns(REMOVALS_TIMEOUT_NS);
            if self.context.now.steady_ns < until_ns {
                self.context.parked.park_until(instance, (conn, call), attempts, until_ns);
                return Ok(Outcome::Deferred);
            }
        }
        let at_rest = volume.object_to_invalidate(&origin, request);
        if let Some(ino) = at_rest {
            let call = PendingCall::Call(conn, call);
            volume.await_invalidation(&mut self.context, ino, call);
            return Ok(Outcome::Deferred);
        }
        let to_sync = match completed {
            None => volume.file_to_sync_first(request, (conn, call.seq)),
            Some(_) => None,
        };
        let to_sync = match to_sync {
            None if completed.is_none() => {
                self.context.sessions.get_mut(id)?.check_order(slot, call.seq)?;
                let id = (conn, call.seq);
                volume.stage_replacement(&mut self.context, &user()?, request, id)?
            }
            to_sync => to_sync,
        };
        if let Some(ino) = to_sync {
            volume.await_durable_data(&mut self.context, ino, (conn, call));
            return Ok(Outcome::Deferred);
        }
        self.context.sessions.get_mut(id)?.check_order(slot, call.seq)?;
        if let Some(result) = completed {
            return volume.repeat(&mut self.context, &origin, user, request, result);
        }
        if let Request::Session(_) = request {
            return self.detach(&origin);
        }
        let user = user()?;
        let call = Call { request: target.unwrap_or(call.request), ..call };
        // Space that only sessions from before this start may have in use may become free soon.
        let attempts = self.context.current_attempts();
        let timeout_ns = match call.request.may_take_long() {
            // Until the leases of all absent clients have expired.
            true => self.context.limits.lease_ns.saturating_add(SPACE_TIMEOUT_NS),
            false => SPACE_TIMEOUT_NS,
        };
        let retry_at_ns = attempts.end_ns(timeout_ns);
        let may_wait =
            self.context.now.steady_ns < retry_at_ns && volume.awaits_orphans(&self.context);
        let to_repeat = may_wait.then(|| call.clone());
        let restores_writer = origin.slot == RECOVERY_SLOT
            && matches!(&call.request, Request::File(FileRequest::Open { open, .. }) if open.write);
        let result = volume.call(&mut self.context, Requester { origin, user, reported_at }, call);
        if restores_writer && result.is_err() {
            volume.writer_lost();
        }
        match to_repeat {
            // The tick that drops them retries the call.
            Some(call) if matches!(result, Err(Errno::ENOSPC)) => {
                let call = (conn, call);
                self.context.parked.park_until(instance, call, attempts, retry_at_ns);
                Ok(Outcome::Deferred)
            }
            Some(_) | None => result,
        }
    }

    /// A session from before this start has opened its handles again, and has claimed its write leases.
    fn end_unclaimed_write_leases(&mut self, id: SessionId) {
        let session = self.context.sessions.get(id);
        let instance = session.ok().and_then(|session| session.state.instance);
        if let Some(volume) = instance.and_then(|id| self.volumes.get_mut(&id)) {
            volume.end_unclaimed_write_leases(&mut self.context, id);
        }
    }

    /// Park a call until something is unlocked in its volume.
    fn park(&mut self, instance: InstanceId, conn: ConnId, call: Call) -> Handled<O> {
        let attempts = self.context.current_attempts();
        self.context.parked.park(instance, conn, call, attempts);
        Ok(Outcome::Deferred)
    }

    /// A client ends its session.
    pub(super) fn detach(&mut self, origin: &Origin) -> Handled<O> {
        let session = self.context.sessions.get(origin.session);
        let instance = session.ok().and_then(|session| session.state.instance);
        if let Some(volume) = instance.and_then(|id| self.volumes.get_mut(&id)) {
            volume.forget_cache(&mut self.context, origin.session);
        }
        self.leave(origin.session);
        self.context.reply_to(origin, Reply::Done);
        self.context.effects.push(Effect::Disconnect(origin.conn));
        Ok(Outcome::Deferred)
    }

    /// Whether the reply to a call may be cached for all users. A client that makes requests with the
    /// rights of several users, and does not check permissions, shows a cached name to all of them: that is
    /// right only where every user may look names up.
    fn is_for_all(&self, conn: ConnId, call: &Call) -> bool {
        let caller = call.caller.as_ref();
        if self.cache_checks_permissions(conn) || caller.is_none_or(|caller| caller.checked) {
            return true;
        }
        let request = match &call.request {
            Request::Name(request) => request,
            // The path may lead through any directory.
            Request::Path(_) => return false,
            // Under a delegation users are checked by the cache.
            Request::Delegated(_) => return true,
            Request::Session(_)
            | Request::Admin(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_)
            | Request::Batch(_) => return true,
        };
        let dir = match request {
            NameRequest::Lookup { parent, .. }
            | NameRequest::Mknod { parent, .. }
            | NameRequest::Create { parent, .. }
            | NameRequest::CreateUnnamed { parent, .. }
            | NameRequest::PutFile { parent, .. }
            | NameRequest::Link { parent, .. } => *parent,
            NameRequest::ReadDir { ino, .. } => *ino,
            NameRequest::ReadLink { .. }
            | NameRequest::Unlink { .. }
            | NameRequest::RmDir { .. }
            | NameRequest::Rename { .. } => return true,
        };
        let volume = self.caching_session(conn).and_then(|(_, id)| self.volumes.get(&id));
        volume.is_some_and(|volume| volume.is_searchable_by_all(dir))
    }

    fn cache_checks_permissions(&self, conn: ConnId) -> bool {
        let session = self.connections.session(conn);
        let session = session.and_then(|(id, _)| self.context.sessions.get(id).ok());
        session.is_some_and(|session| session.cache_checks_permissions)
    }

    /// The session on a connection that may cache names and attributes of an instance.
    fn caching_session(&self, conn: ConnId) -> Option<(SessionId, InstanceId)> {
        let (id, _) = self.connections.session(conn)?;
        let session = self.context.sessions.get(id).ok().filter(|session| session.caches)?;
        Some((id, session.state.instance?))
    }

    /// Mark the reply to a call as cacheable, if its client may cache it. A kernel that checks permissions
    /// needs the attributes of a changed directory again before its next entry, so they are added.
    fn permit_caching(
        &mut self,
        (conn, seq): (ConnId, u64),
        changes: bool,
        directory: Option<Ino>,
    ) {
        let directory = directory.filter(|_| self.cache_checks_permissions(conn));
        let Some((session, instance)) = self.caching_session(conn) else {
            return;
        };
        let Some(volume) = self.volumes.get_mut(&instance) else {
            return;
        };
        let mut effects = std::mem::take(&mut self.context.effects);
        for effect in effects.iter_mut().rev() {
            if let Effect::Reply { conn: to, seq: call, reply, cacheable, .. } = effect
                && (*to, *call) == (conn, seq)
            {
                *cacheable = volume.grant_cache_lease(&self.context, session, changes, reply);
                let is_made = *cacheable && !matches!(reply, Reply::Failed(_));
                let number =
                    (is_made && changes).then(|| volume.delegate(&self.context, session)).flatten();
                let directory = directory.filter(|_| is_made);
                if let Some(Ok(attr)) = directory.map(|directory| volume.attr(directory)) {
                    *reply = std::mem::replace(reply, Reply::Done).with_directory(attr);
                }
                if let Some(number) = number {
                    *reply = std::mem::replace(reply, Reply::Done).delegating(number);
                }
                break;
            }
        }
        self.context.effects = effects;
    }
}

/// The directory whose entry a request changes, if it changes one entry and removes no directory.
fn directory_of_changed_entry(request: &Request) -> Option<Ino> {
    match request {
        Request::Name(
            NameRequest::Mknod { parent, .. }
            | NameRequest::Create { parent, .. }
            | NameRequest::PutFile { parent, .. }
            | NameRequest::Link { parent, .. }
            | NameRequest::Unlink { parent, .. },
        ) => Some(*parent),
        _ => None,
    }
}

/// On whose behalf a request is made: a peer that is not trusted acts for itself only.
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
                groups => groups.clone(),
            },
            checked: caller.checked,
        }),
        Some(_) | None => Ok(Credentials {
            uid: peer.uid,
            gid: peer.gid,
            groups: Some(peer.groups.clone()),
            checked: false,
        }),
    }
}
