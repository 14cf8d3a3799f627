//! Replies that grant leases on names and attributes, and requests that conflict with them.

use super::CacheConflict;
use crate::context::{Context, Origin};
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use crate::volume::Volume;
use crate::volume::write_leases::Awaited;
use forebay_protocol::message::{FileRequest, PathOperation, RECOVERY_SLOT};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::{Attr, Errno, LeaseId, NodeIndex, Reply, Request, SessionId};
use std::collections::BTreeSet;

impl<O: Objects> Volume<O> {
    /// Grant a session a lease with the reply to a request, or extend it, if the reply may be cached.
    pub fn grant_cache_lease(
        &mut self,
        node: &Context<O>,
        session: SessionId,
        changes: bool,
        reply: &Reply,
    ) -> bool {
        let now_ns = node.now.steady_ns;
        let may_grant = self.cache_leases.is_available(session, now_ns)
            && !self.is_changing(node, session)
            && (self.session_count() == 1 || self.may_share_cache(node, session, changes, reply));
        if may_grant {
            self.cache_leases.extend(session, now_ns);
        }
        may_grant
    }

    /// Whether a session may cache a reply although there are others. It must drop that when the lease
    /// is recalled, and while it processes the reply to a change, it cannot.
    fn may_share_cache(
        &self,
        node: &Context<O>,
        session: SessionId,
        changes: bool,
        reply: &Reply,
    ) -> bool {
        !changes
            && self.recalls_caches_everywhere()
            && (!self.is_striped() || !has_earlier_release(node, session))
            && self.events.is_recallable(session)
            // A client from before this start may be writing a file.
            && !node.sessions.any_returning_to(self.id())
            && !self.leases.is_disabled()
            && self.is_lasting(reply)
    }

    /// Whether all nodes of the instance recall leases before they take part in a change. Those of earlier
    /// releases do not.
    fn recalls_caches_everywhere(&self) -> bool {
        let others = usize::from(self.state.spec.placement.nodes).saturating_sub(1);
        self.links.all_recall_caches(others)
    }

    /// Whether the attributes in a reply change only by requests that conflict with leases. Writes
    /// change those of a file, also after its last close until all nodes have reported their objects, and
    /// so do tasks.
    fn is_lasting(&self, reply: &Reply) -> bool {
        let is_lasting = |attr: &Attr| {
            !self.handles.is_open_for_writing(attr.ino)
                && !self.lengths.is_unsettled(attr.ino)
                && !self.tx_locks.has_inode(attr.ino)
        };
        match reply {
            Reply::Attr(attr) | Reply::Opened { attr, .. } => is_lasting(attr),
            Reply::Attrs(attrs) => attrs.iter().all(is_lasting),
            Reply::Entries { entries, .. } => {
                entries.iter().filter_map(|entry| entry.attr.as_ref()).all(is_lasting)
            }
            _ => true,
        }
    }

    /// Recall leases of other sessions that conflict with a request, which led before to `completed`.
    /// Returns the time at which to retry it, if it is not retried before because they were returned.
    /// `waits_until_ns`: the request waits for leases on a file until then.
    pub fn recall_cache_leases(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        completed: Option<SlotResult>,
        request: &Request,
        waits_until_ns: Option<u64>,
    ) -> Option<u64> {
        let may_change = match completed {
            None => changes(request),
            // The handle may have to be opened again.
            Some(_) => self.file_to_change(request, completed).is_some(),
        };
        if !may_change {
            return None;
        }
        // The attributes of a file that was open for writing before this start were not cached.
        if origin.slot == RECOVERY_SLOT && node.sessions.is_returning(origin.session) {
            return None;
        }
        if let Some(until_ns) = waits_until_ns {
            self.cache_leases.hold_until(until_ns);
        }
        self.recall_caches_of_others(node, Some(origin.session))
    }

    fn recall_caches_of_others(
        &mut self,
        node: &mut Context<O>,
        changer: Option<SessionId>,
    ) -> Option<u64> {
        // On several nodes a client of an earlier release only obeys the recalls of node 0, and caches only
        // while it is the only one.
        let is_exempt = |id: &SessionId| {
            Some(*id) == changer || (self.is_striped() && has_earlier_release(node, *id))
        };
        let exempt: BTreeSet<SessionId> = self.cache_leases.sessions().filter(is_exempt).collect();
        self.recall_caches_except(node, &exempt)
    }

    fn recall_caches_except(
        &mut self,
        node: &mut Context<O>,
        exempt: &BTreeSet<SessionId>,
    ) -> Option<u64> {
        let secrets = &mut node.secrets;
        let new_id = || LeaseId(secrets.next());
        let conflict = self.cache_leases.recall(exempt, node.now.steady_ns, new_id)?;
        Some(self.send_recalls(node, conflict))
    }

    /// Another node prepares a change here, which the client of this number has requested from it: whether the
    /// message waits until other clients have dropped what they cache, or until it is repeated.
    pub fn waits_for_caches(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        client: u64,
        message: impl FnOnce() -> PeerPayload,
    ) -> bool {
        let is_its = |id: &SessionId| client != 0 && number_of_client(node, *id) == Some(client);
        let changer = self.cache_leases.sessions().find(is_its);
        if self.recall_caches_of_others(node, changer).is_none() {
            return false;
        }
        self.waiting_messages.add(Awaited::Caches, from, message(), node.now.steady_ns);
        true
    }

    /// A lease is over: what may have waited for it is tried again.
    fn retry_after_lease(&mut self, node: &mut Context<O>) {
        for (from, message) in self.waiting_messages.take(Awaited::Caches, node.now.steady_ns) {
            self.handle_message(node, from, message);
        }
        node.parked.note_unlocked(self.id());
    }

    fn send_recalls(&mut self, node: &mut Context<O>, conflict: CacheConflict) -> u64 {
        let CacheConflict { until_ns, recalls } = conflict;
        for (session, id) in recalls {
            self.events.add_cache_recall(session, id);
            self.notify(node, session);
        }
        until_ns
    }

    /// Whether any delegation may still be returned.
    fn recall_delegations(&mut self, node: &mut Context<O>) -> bool {
        let secrets = &mut node.secrets;
        let new_id = || LeaseId(secrets.next());
        let conflict = self.cache_leases.recall_delegations(node.now.steady_ns, new_id);
        let until_ns = conflict.map(|conflict| self.send_recalls(node, conflict));
        until_ns.inspect(|until_ns| self.cache_leases.hold_until(*until_ns)).is_some()
    }

    /// Check that a session may attach. `EAGAIN`: the only client of an instance on several nodes may be
    /// caching, and it or one of the nodes has an earlier release, or on one node have a delegation.
    pub fn check_attach(&mut self, node: &mut Context<O>) -> Result<(), Errno> {
        if self.recall_delegations(node) {
            return Err(Errno::EAGAIN);
        }
        // Clients attach to node 0 first, which has seen to it.
        let is_first_node = self.state().spec.placement.node.0 == 0;
        if !self.is_striped() || !is_first_node || self.session_count() == 0 {
            return Ok(());
        }
        let all_obey = self.cache_leases.sessions().all(|id| !has_earlier_release(node, id));
        if all_obey && self.recalls_caches_everywhere() {
            return Ok(());
        }
        if self.recall_caches_except(node, &BTreeSet::new()).is_some() {
            self.cache_leases.deny_all(node.now.steady_ns);
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }

    /// Give a session a delegation with the reply to a change, which may be cached because it is the only
    /// one. Returns the number of the delegation.
    pub fn delegate(&mut self, node: &Context<O>, session: SessionId) -> Option<u64> {
        let number = node.sessions.get(session).ok()?.delegation()?;
        // Without delay, so that others that attach do not wait.
        if self.session_count() > 1 || self.is_striped() || !self.events.is_recallable(session) {
            return None;
        }
        self.cache_leases.delegate(session);
        Some(number)
    }

    /// No request of a session is carried out any more.
    pub fn end_delegation(&mut self, session: SessionId) {
        self.cache_leases.end_delegation(session);
    }

    /// Revoke the delegations that were recalled and not returned in time: another session begins.
    pub fn revoke_delegations(&mut self, node: &mut Context<O>) {
        for session in self.cache_leases.take_delegations() {
            let Some(update) = node.sessions.revoked_delegation(session) else {
                continue;
            };
            tracing::warn!(
                session = session.0,
                "a client has not answered the recall of its delegation: changes that it has reported \
                 to programs and not sent yet are refused"
            );
            // A record without a change: only the number matters.
            let event = VolumeEvent::Leased(self.state.leased);
            self.log(node, event, Some(update));
        }
    }

    /// A session has dropped what it cached when a recall arrived.
    pub fn cache_dropped(&mut self, node: &mut Context<O>, session: SessionId, id: LeaseId) {
        if self.cache_leases.returned(session, id) {
            self.retry_after_lease(node);
        }
    }

    /// Forget leases whose time has passed.
    pub fn forget_expired_caches(&mut self, node: &Context<O>) {
        self.cache_leases.forget_expired(node.now.steady_ns);
    }

    /// A session caches nothing, or its client is about to end.
    pub fn forget_cache(&mut self, node: &mut Context<O>, session: SessionId) {
        if self.cache_leases.forget(session) {
            self.retry_after_lease(node);
        }
    }
}

/// The number of a session's client, if it has attached since the start.
fn number_of_client<O: Objects>(node: &Context<O>, session: SessionId) -> Option<u64> {
    node.sessions.get(session).ok()?.client_number
}

/// Whether a session's client is known to have a release that has no numbers of clients.
fn has_earlier_release<O: Objects>(node: &Context<O>, session: SessionId) -> bool {
    number_of_client(node, session) == Some(0)
}

/// Whether a request may change names or attributes, now or by later writes to a file that it opens.
pub fn changes(request: &Request) -> bool {
    match request {
        Request::Name(request) => request.is_change(),
        Request::Inode(request) => request.is_change(),
        Request::File(request) => opens_for_change(request),
        Request::Path(path) => match &path.operation {
            PathOperation::Name(request) => request.is_change(),
            PathOperation::Inode(request) => request.is_change(),
            PathOperation::File(request) => opens_for_change(request),
        },
        Request::Delegated(delegated) => delegated.request.is_change(),
        Request::Session(_)
        | Request::Admin(_)
        | Request::Lock(_)
        | Request::Data(_)
        | Request::Peer(_)
        // Each of its requests is a call of its own.
        | Request::Batch(_) => false,
    }
}

/// Other requests that change a file need one that is open for writing.
fn opens_for_change(request: &FileRequest) -> bool {
    matches!(request, FileRequest::Open { open, .. } if open.write || open.truncate)
}
