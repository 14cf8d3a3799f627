//! Requests for read leases, and requests that conflict with them.

use super::Holder;
use crate::context::{Context, Handled, Origin, Outcome, Requester};
use crate::log::LogSpace;
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use crate::volume::Volume;
#[cfg(doc)]
use forebay_protocol::message::LockRequest;
use forebay_protocol::message::{
    FileRequest, InodeRequest, MAX_LEASED_HANDLES, NameRequest, OpenMode, RECOVERY_SLOT,
};
use forebay_protocol::{Errno, FileKind, HandleId, Ino, LeaseId, Reply, Request, SessionId};

impl<O: Objects> Volume<O> {
    /// Grant or renew leases: [`LockRequest::Lease`].
    pub fn lease(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        handles: &[HandleId],
    ) -> Handled<O> {
        if handles.len() > MAX_LEASED_HANDLES {
            return Err(Errno::EINVAL);
        }
        let session = requester.origin.session;
        let leases = handles.iter().map(|handle| self.lease_one(node, session, *handle));
        Ok(Outcome::Reply(Reply::Leases(leases.collect())))
    }

    fn lease_one(
        &mut self,
        node: &mut Context<O>,
        session: SessionId,
        id: HandleId,
    ) -> Option<LeaseId> {
        let handle = self.handles.get(session, id).ok()?;
        let ino = handle.ino;
        if handle.is_piece || !handle.mode.read || !self.may_lease(node, ino) {
            return None;
        }
        if !self.state.leased {
            node.require_log_space(LogSpace::Normal).ok()?;
            self.log(node, VolumeEvent::Leased(true), None);
        }
        let holder = (session, id);
        let secrets = &mut node.secrets;
        self.leases.grant(ino, holder, node.now.steady_ns, || LeaseId(secrets.next()))
    }

    /// Whether nobody can change the data of a file without a request that conflicts with leases.
    fn may_lease(&self, node: &Context<O>, ino: Ino) -> bool {
        let is_file = self.names().get(ino).is_some_and(|inode| inode.kind() == FileKind::File);
        is_file
            && !self.handles.is_open_for_writing(ino)
            // A length is being set on other nodes.
            && !self.tx_locks.has_inode(ino)
            // A client from before this start may have it open for writing.
            && !node.sessions.any_returning_to(self.id())
            && !self.leases.is_disabled()
    }

    /// The time at which to retry a request, which led before to `completed`: until then clients may read
    /// or write a file that it shows or changes under leases from before this start, which are forgotten.
    pub fn forgotten_leases_end(
        &self,
        node: &Context<O>,
        origin: &Origin,
        completed: Option<SlotResult>,
        request: &Request,
    ) -> Option<u64> {
        let until_ns = self.leases.forgotten_until_ns();
        // A file that was open for writing before this start was not leased.
        let reopens = origin.slot == RECOVERY_SLOT && node.sessions.is_returning(origin.session);
        let waits = node.now.steady_ns < until_ns && !reopens;
        (waits && self.observes_a_file(request, completed)).then_some(until_ns)
    }

    /// Recall leases that conflict with a request, which leads, or led before, to `completed`. Returns
    /// the time at which to retry it, if it is not retried before because they were given back.
    pub fn recall_leases(
        &mut self,
        node: &mut Context<O>,
        completed: Option<SlotResult>,
        request: &Request,
    ) -> Option<u64> {
        let ino = self.file_to_change(request, completed)?;
        let now_ns = node.now.steady_ns;
        let conflict = self.leases.recall(ino, now_ns)?;
        for ((session, handle), id) in conflict.recalls {
            self.events.add_recall(session, (ino, handle), id);
            self.notify(node, session);
        }
        Some(conflict.until_ns)
    }

    /// The existing file whose data a request may change, or permits its client to change.
    pub fn file_to_change(&self, request: &Request, completed: Option<SlotResult>) -> Option<Ino> {
        let changes = |open: &OpenMode| open.write || open.truncate;
        let ino = match (request, completed) {
            // The handle may have to be opened again.
            (
                Request::File(FileRequest::Open { open, .. })
                | Request::Name(
                    NameRequest::Create { open, .. } | NameRequest::CreateUnnamed { open, .. },
                ),
                Some(SlotResult::Opened(ino, _)),
            ) => changes(open).then_some(ino),
            (_, Some(_)) => None,
            (Request::File(FileRequest::Open { ino, open, .. }), None) => {
                changes(open).then_some(*ino)
            }
            (Request::Name(NameRequest::Create { parent, name, open, .. }), None) => {
                let dir = self.names().get(*parent).and_then(|inode| inode.dir());
                let child = dir.and_then(|dir| dir.get(name));
                child.filter(|_| changes(open))
            }
            (Request::Inode(InodeRequest::SetAttr { ino, set, .. }), None) => {
                set.size.map(|_| *ino)
            }
            _ => None,
        };
        // The metadata node of the file holds its leases.
        ino.filter(|ino| self.names().get(*ino).is_some_and(|inode| inode.kind() == FileKind::File))
    }

    /// A holder has given a recalled lease back.
    pub fn lease_returned(&mut self, node: &mut Context<O>, ino: Ino, holder: Holder, id: LeaseId) {
        if let Some(ended) = self.write_leases.end(ino, holder, Some(id)) {
            self.write_lease_ended(node, ino, ended);
        }
        if self.leases.end(ino, holder, Some(id)) {
            node.parked.note_unlocked(self.id());
        }
    }

    /// A handle is closed: its lease ends.
    pub fn close_lease(&mut self, node: &mut Context<O>, ino: Ino, (session, handle): Holder) {
        self.events.remove_recall(session, (ino, handle));
        if let Some(ended) = self.write_leases.end(ino, (session, handle), None) {
            self.write_lease_ended(node, ino, ended);
        }
        if self.leases.end(ino, (session, handle), None) {
            node.parked.note_unlocked(self.id());
        }
    }

    /// A session from before this start has expired without opening its files again.
    pub fn session_lost(&mut self) {
        // On this host it may read through descriptors.
        self.write_leases.disable();
        // On several nodes a client that was silent for the time of a session's lease asks before it
        // acknowledges a write.
        if !self.is_striped() {
            self.leases.disable();
        }
    }

    /// A client could not open again a file that it had open for writing. It may still write to data
    /// objects that it has open, on this host or on other nodes.
    pub fn writer_lost(&mut self) {
        self.leases.disable();
    }

    /// Forget leases that have expired, and note when there are none any more.
    pub fn forget_unused_leases(&mut self, node: &mut Context<O>) {
        self.note_ended_write_leases(node);
        let any_valid =
            self.leases.forget_unused(node.now.steady_ns) || !self.write_leases.is_empty();
        if self.state.leased && !any_valid && node.log_space >= LogSpace::Normal {
            self.log(node, VolumeEvent::Leased(false), None);
        }
    }

    /// Whether clients may have leases.
    pub fn is_leased(&self) -> bool {
        self.state.leased
    }
}
