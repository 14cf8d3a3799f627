//! Requests for write leases, and requests of other sessions and nodes that observe a leased object.

use super::{Conflict, Ended};
use crate::context::{Context, Handled, Origin, Outcome, Requester};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::objects::Objects;
use crate::state::{SlotResult, SlotUpdate, VolumeEvent};
use crate::volume::Volume;
use crate::volume::leases::Holder;
use crate::volume::write_leases::Awaited;
#[cfg(doc)]
use forebay_protocol::message::LockRequest;
use forebay_protocol::message::{
    FileRequest, InodeRequest, MAX_REQUEST_INODES, NameRequest, RECOVERY_SLOT,
};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::{
    Errno, FileKind, HandleId, Ino, LeaseId, NodeIndex, Reply, Request, SessionId,
};

impl<O: Objects> Volume<O> {
    /// Grants a write lease, extends the time to give it back, or lets its holder claim it after a restart:
    /// [`LockRequest::WriteLease`].
    pub fn write_lease(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        handle: HandleId,
    ) -> Handled<O> {
        let lease = self.grant_write_lease(node, &requester.origin, handle);
        Ok(Outcome::Reply(Reply::Leases(vec![lease])))
    }

    fn grant_write_lease(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        id: HandleId,
    ) -> Option<LeaseId> {
        let holder = (origin.session, id);
        let now_ns = node.now.steady_ns;
        let held = self.write_leases.object_of(holder);
        if origin.slot == RECOVERY_SLOT {
            let secrets = &mut node.secrets;
            return self.write_leases.claim(held?, holder, now_ns, || LeaseId(secrets.next()));
        }
        let ino = match held {
            Some(ino) => ino,
            None => {
                let handle = self.handles.get(origin.session, id).ok()?;
                let (ino, is_writer) = (handle.ino, handle.mode.write && !handle.is_fenced);
                if !is_writer || !self.may_lease_for_writing(node, origin, ino) {
                    return None;
                }
                node.require_log_space(LogSpace::Normal).ok()?;
                self.note_ended_write_leases(node);
                ino
            }
        };
        let secrets = &mut node.secrets;
        let granted = self.write_leases.grant(ino, holder, now_ns, || LeaseId(secrets.next()))?;
        if let Some(slot) = granted.new_slot {
            self.note_write_lease(node, holder, slot, SlotResult::Attr(ino));
        }
        Some(granted.id)
    }

    /// Notes durably that a handle has the lease on an inode, or ([`SlotResult::Done`]) that it has ended.
    fn note_write_lease(
        &mut self,
        node: &mut Context<O>,
        (session, handle): Holder,
        slot: u32,
        result: SlotResult,
    ) {
        // A session that is over takes its leases with it.
        if node.sessions.get(session).is_ok() {
            let update = SlotUpdate { session, slot, seq: handle.0, result };
            self.log(node, VolumeEvent::Leased(true), Some(update));
        }
    }

    /// Notes that leases have ended for which the log had no space.
    pub fn note_ended_write_leases(&mut self, node: &mut Context<O>) {
        if node.log_space > LogSpace::Exhausted {
            for Ended { holder, slot, .. } in self.write_leases.take_ended() {
                self.note_write_lease(node, holder, slot, SlotResult::Done);
            }
        }
    }

    /// Whether no other client can observe or change a data object without a request, or a message of
    /// another node, that recalls the lease. Clients with descriptors do not send their writes.
    fn may_lease_for_writing(&self, node: &Context<O>, origin: &Origin, ino: Ino) -> bool {
        let is_file = match self.names().get(ino) {
            Some(inode) => inode.kind() == FileKind::File,
            None => !self.names().owns(ino),
        };
        is_file
            && origin.session_uses_data_connections
            && !self.handles.is_open_elsewhere(ino, origin.session)
            && !node.sessions.any_returning_to(self.id())
            && !self.leases.is_disabled()
            && !self.write_leases.is_disabled()
    }

    /// Recalls the write leases of other sessions on objects that a request observes; the request leads,
    /// or led before, to `completed`. Returns the time at which to retry it, if it is not retried
    /// before because they were given back.
    pub fn recall_write_leases(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        completed: Option<SlotResult>,
        request: &Request,
    ) -> Option<u64> {
        if self.write_leases.is_empty() {
            return None;
        }
        let reopens = origin.slot == RECOVERY_SLOT && node.sessions.is_returning(origin.session);
        let mut observed = self.observed_files(request, completed);
        observed.retain(|ino| self.write_leases.contains(*ino));
        let mut wait_until_ns = None;
        for ino in observed {
            if reopens {
                // It was open when this node ended, so that the lease had been given back.
                let ended = self.write_leases.end_unclaimed_of_others(ino, origin.session);
                ended.into_iter().for_each(|ended| self.write_lease_ended(node, ino, ended));
            }
            let until_ns = self.recall_write_lease(node, ino, Some(origin.session));
            wait_until_ns = wait_until_ns.max(until_ns);
        }
        wait_until_ns
    }

    /// Recalls the write lease on an object, unless it is of `session`. Returns the time until which its
    /// holder may give it back.
    fn recall_write_lease(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        session: Option<SessionId>,
    ) -> Option<u64> {
        match self.write_leases.recall(ino, session, node.now.steady_ns) {
            None | Some(Conflict::Overdue) => None,
            Some(Conflict::Waits { until_ns, holder, id, is_first }) => {
                if is_first {
                    self.events.add_recall(holder.0, (ino, holder.1), id);
                    self.notify(node, holder.0);
                }
                Some(until_ns)
            }
        }
    }

    /// A message of another node observes an object: whether it waits until its write lease is given back,
    /// or until its sender repeats it after the time for that.
    pub fn waits_for_writes(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        ino: Ino,
        message: impl FnOnce() -> PeerPayload,
    ) -> bool {
        if self.recall_write_lease(node, ino, None).is_none() {
            return false;
        }
        let awaited = Awaited::WriteLease(ino);
        self.waiting_messages.add(awaited, from, message(), node.now.steady_ns);
        true
    }

    /// Ends the lease of another session than `session`, which has not given it back in time, on an object
    /// that is opened or truncated: no later write of the holder is carried out.
    pub fn fence_silent_holder(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        session: Option<SessionId>,
    ) -> Result<(), Errno> {
        if !self.write_leases.is_overdue(ino, session, node.now.steady_ns) {
            return Ok(());
        }
        // Otherwise its writes could be carried out after a restart.
        if node.log_space == LogSpace::Exhausted {
            return Err(Errno::ENOSPC);
        }
        if let Some(ended) = self.write_leases.end_overdue(ino) {
            let (silent, handle) = ended.holder;
            tracing::warn!(%ino, session = silent.0,
                "a client that is silent had a write lease: its writes are refused from now on");
            // A client that has not claimed its lease sends none.
            if !ended.is_unclaimed {
                node.effects.push(Effect::BulkClose(silent, handle));
                if let Ok(handle) = self.handles.get_mut(silent, handle) {
                    handle.is_fenced = true;
                }
            }
            self.write_lease_ended(node, ino, ended);
        }
        Ok(())
    }

    /// A lease has ended: what waits for it goes on.
    pub fn write_lease_ended(&mut self, node: &mut Context<O>, ino: Ino, ended: Ended) {
        let (session, handle) = ended.holder;
        self.events.remove_recall(session, (ino, handle));
        if node.log_space > LogSpace::Exhausted {
            self.note_write_lease(node, ended.holder, ended.slot, SlotResult::Done);
        } else {
            self.write_leases.note_later(ended);
        }
        let awaited = Awaited::WriteLease(ino);
        for (from, message) in self.waiting_messages.take(awaited, node.now.steady_ns) {
            self.handle_message(node, from, message);
        }
        node.parked.note_unlocked(self.id());
    }

    /// A session from before this start makes other requests than to open its handles again, or is over.
    pub fn end_unclaimed_write_leases(&mut self, node: &mut Context<O>, session: SessionId) {
        for (ino, ended) in self.write_leases.end_unclaimed(session) {
            self.write_lease_ended(node, ino, ended);
        }
    }

    /// Whether a request shows or changes what writes to some file change.
    pub fn observes_a_file(&self, request: &Request, completed: Option<SlotResult>) -> bool {
        let is_file =
            |ino: &Ino| self.names().get(*ino).is_some_and(|inode| inode.kind() == FileKind::File);
        self.observed_files(request, completed).iter().any(is_file)
    }

    /// The inodes whose length, times or data a request shows, changes, makes durable, or permits its
    /// client to access.
    fn observed_files(&self, request: &Request, completed: Option<SlotResult>) -> Vec<Ino> {
        let child = |dir: Ino, name: &[u8]| self.names().get(dir)?.dir()?.get(name);
        match (request, completed) {
            (_, Some(SlotResult::Opened(ino, _) | SlotResult::Attr(ino))) => vec![ino],
            (_, Some(SlotResult::Done | SlotResult::Referral(..))) => Vec::new(),
            (
                Request::Inode(
                    InodeRequest::GetAttr { ino }
                    | InodeRequest::SetAttr { ino, .. }
                    | InodeRequest::GetFile { ino },
                )
                | Request::File(FileRequest::Open { ino, .. })
                | Request::Name(NameRequest::Link { ino, .. }),
                None,
            ) => vec![*ino],
            (Request::File(FileRequest::OpenObject { capability, .. }), None) => {
                vec![capability.ino]
            }
            (
                Request::Inode(
                    InodeRequest::GetAttrs { inos } | InodeRequest::StatObjects { inos },
                ),
                None,
            ) => inos.clone(),
            (
                Request::Name(
                    NameRequest::Lookup { parent, name }
                    | NameRequest::Create { parent, name, .. }
                    // May make the data durable first.
                    | NameRequest::Rename { parent, name, .. },
                ),
                None,
            ) => child(*parent, name).into_iter().collect(),
            (Request::Name(NameRequest::ReadDir { ino, cookie, attrs: true, .. }), None) => {
                let dir = self.names().get(*ino).and_then(|inode| inode.dir());
                let entries = dir.into_iter().flat_map(|dir| dir.after(*cookie));
                entries.take(MAX_REQUEST_INODES).map(|(_, entry)| entry.ino).collect()
            }
            (_, None) => Vec::new(),
        }
    }
}
