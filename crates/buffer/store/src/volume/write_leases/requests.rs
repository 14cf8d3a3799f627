//! Requests for write leases, and requests of other sessions that observe a leased file.

use super::Conflict;
use crate::context::{Context, Handled, Origin, Outcome, Requester};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use crate::volume::Volume;
#[cfg(doc)]
use forebay_protocol::message::LockRequest;
use forebay_protocol::message::{
    FileRequest, InodeRequest, MAX_REQUEST_INODES, NameRequest, RECOVERY_SLOT,
};
use forebay_protocol::{FileKind, HandleId, Ino, LeaseId, Reply, Request, SessionId};

impl<O: Objects> Volume<O> {
    /// Grants a write lease, or extends the time to give it back: [`LockRequest::WriteLease`].
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
        let handle = self.handles.get(origin.session, id).ok()?;
        let ino = handle.ino;
        if handle.is_piece || !handle.mode.write || !self.may_lease_for_writing(node, origin, ino) {
            return None;
        }
        if !self.is_leased() {
            node.require_log_space(LogSpace::Normal).ok()?;
            self.log(node, VolumeEvent::Leased(true), None);
        }
        let (secrets, now_ns) = (&mut node.secrets, node.now.steady_ns);
        let holder = (origin.session, id);
        self.write_leases.grant(ino, holder, now_ns, || LeaseId(secrets.next()))
    }

    /// Whether no other client can observe or change a file without a request that recalls the lease.
    /// On several nodes, requests to other nodes can; clients with descriptors do not send their writes.
    fn may_lease_for_writing(&self, node: &Context<O>, origin: &Origin, ino: Ino) -> bool {
        let is_file = self.names().get(ino).is_some_and(|inode| inode.kind() == FileKind::File);
        is_file
            && !self.is_striped()
            && origin.session_uses_data_connections
            && !self.handles.is_open_elsewhere(ino, origin.session)
            && !node.sessions.any_returning_to(self.id())
            && !self.leases.is_disabled()
    }

    /// Recalls the write leases of other sessions on files that a request observes; the request leads,
    /// or led before, to `completed`. Returns the time at which to retry it, if it is not retried
    /// before because they were given back.
    pub fn recall_write_leases(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        completed: Option<SlotResult>,
        request: &Request,
    ) -> Option<u64> {
        let now_ns = node.now.steady_ns;
        let forgotten_until_ns = self.leases.forgotten_until_ns();
        let reopens = origin.slot == RECOVERY_SLOT && node.sessions.is_returning(origin.session);
        if now_ns < forgotten_until_ns && !reopens && self.observes_a_file(request, completed) {
            return Some(forgotten_until_ns);
        }
        if self.write_leases.is_empty() {
            return None;
        }
        let mut observed = self.observed_files(request, completed);
        observed.retain(|ino| self.write_leases.contains(*ino));
        let mut wait_until_ns = None;
        for ino in observed {
            match self.write_leases.recall(ino, origin.session, now_ns) {
                None | Some(Conflict::Overdue) => {}
                Some(Conflict::Waits { until_ns, holder, id, is_first }) => {
                    wait_until_ns = wait_until_ns.max(Some(until_ns));
                    if is_first {
                        self.events.add_recall(holder.0, (ino, holder.1), id);
                        self.notify(node, holder.0);
                    }
                }
            }
        }
        wait_until_ns
    }

    /// Ends the lease of another session, which has not given it back in time, on a file that is opened
    /// or truncated: no later write of the holder is carried out.
    pub fn fence_silent_holder(&mut self, node: &mut Context<O>, ino: Ino, session: SessionId) {
        let holder = self.write_leases.holder(ino).filter(|holder| holder.0 != session);
        let Some((silent, handle)) = holder else { return };
        tracing::warn!(%ino, session = silent.0,
            "a client that is silent had a write lease: its writes are refused from now on");
        node.effects.push(Effect::BulkClose(silent, handle));
        self.events.remove_recall(silent, (ino, handle));
        self.write_leases.end(ino, (silent, handle), None);
    }

    /// Whether a request shows or changes what writes to some file change.
    fn observes_a_file(&self, request: &Request, completed: Option<SlotResult>) -> bool {
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
