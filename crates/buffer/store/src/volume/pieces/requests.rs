//! Pieces are opened, measured, resized, removed and checked.

use crate::context::{Context, Handled, Origin, Outcome, Requester, VolumeAction};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::namespace::PieceNodes;
use crate::objects::Objects;
use crate::volume::Volume;
use crate::volume::checksums::PendingCall;
use crate::volume::confirmations::{MAX_BATCH, MetadataNodeHandle};
use crate::volume::files::require_space_to_open;
use crate::volume::tasks::Goal;
use forebay_protocol::message::{MAX_REQUEST_INODES, OpenMode};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::placement::{Capability, ObjectInfo};
use forebay_protocol::{Errno, HandleId, Ino, NodeIndex, Reply, SessionId};

impl<O: Objects> Volume<O> {
    /// A capability for the pieces of a file on other nodes, if there may be any.
    pub fn capability(
        &self,
        node: &Context<O>,
        session: SessionId,
        ino: Ino,
        (handle, mode): (HandleId, OpenMode),
    ) -> Result<Option<Capability>, Errno> {
        let Some(length) = self.names().find(ino)?.length() else {
            return Ok(None);
        };
        let capability = Capability {
            ino,
            read: mode.read,
            write: mode.write,
            width: self.granted_width(node, ino, *length),
            session,
            handle,
            uid: node.sessions.get(session)?.state.uid,
            epoch: node.incarnation.epoch,
            mac: [0; 32],
        };
        Ok(Some(capability.issue(&self.state.spec.placement.secret, self.id())))
    }

    pub fn renew_capability(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        id: HandleId,
        position: u16,
    ) -> Handled<O> {
        let handle = self.handles.get(requester.origin.session, id)?;
        let (ino, mode) = (handle.ino, handle.mode);
        if mode.write {
            self.extend_pieces(node, ino, position)?;
        }
        if let Some((_, record)) = self.lengths.extension(ino)
            && !node.journal.is_durable(record)
        {
            let reply = VolumeAction::ReplyCapability(requester.origin, id);
            self.when_durable(node, node.journal.last(), reply);
            node.effects.push(Effect::SyncLog);
            return Ok(Outcome::Deferred);
        }
        self.reply_capability(node, requester.origin.session, id)
    }

    /// The extension of a file to more nodes is durable.
    pub fn extended(&mut self, node: &mut Context<O>, origin: &Origin, id: HandleId) {
        if let Ok(handle) = self.handles.get(origin.session, id) {
            self.lengths.forget_extension(handle.ino, node.journal.durable());
        }
        let handled = self.reply_capability(node, origin.session, id);
        node.finish(origin.conn, origin.seq, handled);
    }

    fn reply_capability(&self, node: &Context<O>, session: SessionId, id: HandleId) -> Handled<O> {
        let handle = self.handles.get(session, id)?;
        let capability = self.capability(node, session, handle.ino, (id, handle.mode))?;
        capability
            .map(|capability| Outcome::Reply(Reply::Capability(capability)))
            .ok_or(Errno::EINVAL)
    }

    pub fn open_piece(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        id: HandleId,
        capability: &Capability,
        mode: OpenMode,
    ) -> Handled<O> {
        require_space_to_open(node, requester, mode)?;
        let ino = capability.ino;
        let placement = &self.state.spec.placement;
        if !placement.is_distributed() || ino.metadata_node().0 >= placement.nodes || mode.truncate
        {
            return Err(Errno::EINVAL);
        }
        capability.verify(&placement.secret, self.id())?;
        let session = node.sessions.get(requester.origin.session)?;
        if session.state.uid != capability.uid && !session.is_trusted {
            return Err(Errno::EACCES);
        }
        let home = MetadataNodeHandle {
            node: ino.metadata_node(),
            session: capability.session,
            handle: capability.handle,
        };
        let known_epoch = self.links.epoch_of(home.node);
        if capability.epoch < known_epoch || self.confirmations.is_refused(home) {
            return Err(Errno::EKEYREJECTED);
        }
        if (mode.read && !capability.read) || (mode.write && !capability.write) {
            return Err(Errno::EACCES);
        }
        let position = placement.layout().position(ino, placement.node);
        let may_create = position < capability.width;
        if mode.write && !may_create {
            return Err(Errno::EKEYREJECTED);
        }
        if self.names().owns(ino) {
            self.names().find(ino)?;
            self.handles.get(home.session, home.handle).map_err(|_| Errno::EKEYREJECTED)?;
        }
        let passes_descriptor = mode.descriptor
            && requester.origin.passes_descriptors
            && (may_create || self.space.has_object(ino));
        if mode.write || passes_descriptor {
            self.ensure_object(node, ino)?;
        }
        self.fence_silent_holder(node, ino, Some(requester.origin.session))?;
        let local = (requester.origin.session, id);
        let is_new = self.handles.get(local.0, local.1).is_err();
        self.add_piece_handle(node, &requester.origin, id, ino, mode)?;
        if is_new && !self.names().owns(ino) {
            self.confirmations.insert(local, home, node.now.steady_ns);
            self.account_memory(&mut node.memory);
        }
        let open_object = || self.objects.open(self.object(ino), mode);
        let descriptor = passes_descriptor.then(open_object).transpose()?;
        let reply = Reply::Object(self.object_info(ino)?);
        Ok(Outcome::with_descriptor(reply, descriptor))
    }

    /// Ask metadata nodes which of the handles are open by which data objects are open here.
    pub fn request_confirmations(&mut self, node: &mut Context<O>) {
        for (home, handles) in self.confirmations.take_due(node.now.steady_ns) {
            self.send(node, home, PeerPayload::ConfirmHandles(handles));
        }
    }

    /// Another node asks which of these handles are open here.
    pub fn confirm_handles(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        handles: &[(SessionId, HandleId)],
    ) {
        let (mut open, mut closed) = (Vec::new(), Vec::new());
        for (session, handle) in handles.iter().copied().take(MAX_BATCH) {
            match self.handles.get(session, handle) {
                Ok(known) if !known.is_piece => open.push((session, handle)),
                // Its client may open it again.
                _ if node.sessions.is_returning(session) => {}
                _ => closed.push((session, handle)),
            }
        }
        self.send(node, from, PeerPayload::HandlesConfirmed { open, closed });
    }

    /// A metadata node has answered: close what depends on a handle that is closed there.
    pub fn handles_confirmed(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        open: Vec<(SessionId, HandleId)>,
        closed: Vec<(SessionId, HandleId)>,
    ) {
        let home = |(session, handle)| MetadataNodeHandle { node: from, session, handle };
        for handle in open {
            self.confirmations.confirm(home(handle), node.now.steady_ns);
        }
        for handle in closed {
            for (session, id) in self.confirmations.refuse(home(handle)) {
                tracing::debug!(%session, "a data object is closed: its file is not open any more");
                self.close(node, session, id);
            }
        }
    }

    /// Size, space and times of a data object here; `None` if there is none.
    pub fn object_info(&self, ino: Ino) -> Result<Option<ObjectInfo>, Errno> {
        if !self.space.has_object(ino) {
            return Ok(None);
        }
        self.objects.stat(self.object(ino)).map(Some)
    }

    /// The same for several files.
    pub fn object_infos(&self, inos: &[Ino]) -> Result<Vec<Option<ObjectInfo>>, Errno> {
        if inos.len() > MAX_REQUEST_INODES {
            return Err(Errno::EINVAL);
        }
        inos.iter().map(|ino| self.object_info(*ino)).collect()
    }

    /// Truncate or extend the object here of a file whose length becomes `length` bytes.
    fn resize_piece(&mut self, node: &mut Context<O>, ino: Ino, length: u64) -> Result<(), Errno> {
        let placement = &self.state.spec.placement;
        let (layout, own) = (placement.layout(), placement.node);
        let target = layout.object_length(ino, own, length);
        let has_last_byte = length > 0 && layout.file_end(ino, own, target) == length;
        if has_last_byte {
            self.ensure_object(node, ino)?;
        }
        let object = self.object(ino);
        if self.space.has_object(ino) && (has_last_byte || self.objects.stat(object)?.size > target)
        {
            self.objects.truncate(object, target)?;
            self.recharge(ino);
        }
        Ok(())
    }

    /// This node's part of a task: resize the object, and measure it.
    pub fn do_own_part(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        goal: Goal,
    ) -> Result<Option<ObjectInfo>, Errno> {
        if let Goal::Resize(length) = goal {
            self.resize_piece(node, ino, length)?;
        }
        self.object_info(ino)
    }

    /// Report objects to the metadata node of their files.
    pub fn report_objects(&mut self, node: &mut Context<O>, to: NodeIndex, queries: &[(u64, Ino)]) {
        let mut reports = Vec::with_capacity(queries.len());
        for (task, ino) in queries {
            let query = || PeerPayload::StatObjects(vec![(*task, *ino)]);
            if self.waits_for_writes(node, to, *ino, query) {
                continue;
            }
            match self.object_info(*ino) {
                Ok(info) => reports.push((*task, info)),
                Err(errno) => tracing::warn!(%errno, "cannot stat a data object"),
            }
        }
        self.send(node, to, PeerPayload::ObjectStats(reports));
    }

    /// Resize an object if there is a `length`, and report it to the metadata node of its file.
    pub fn resize_and_report(
        &mut self,
        node: &mut Context<O>,
        to: NodeIndex,
        task: u64,
        ino: Ino,
        length: Option<u64>,
    ) {
        if ino.metadata_node() != to {
            return;
        }
        if length.is_some()
            && let Err(errno) = self.fence_silent_holder(node, ino, None)
        {
            return self.send(node, to, PeerPayload::ObjectResized { task, info: Err(errno) });
        }
        if let Some(length) = length
            && self.objects.has_durable_checksums(self.object(ino))
        {
            let resize = PendingCall::Resize { from: to, task, length };
            return self.await_invalidation(node, ino, resize);
        }
        let resized = match length {
            Some(length) => self.resize_piece(node, ino, length),
            None => Ok(()),
        };
        let info = resized.and_then(|()| self.object_info(ino));
        self.send(node, to, PeerPayload::ObjectResized { task, info });
    }

    pub fn remove_pieces(&mut self, node: &mut Context<O>, from: NodeIndex, inos: Vec<Ino>) {
        for ino in &inos {
            if ino.metadata_node() == from {
                self.remove_piece(*ino);
            }
        }
        self.send(node, from, PeerPayload::ObjectsRemoved(inos));
    }

    fn remove_piece(&mut self, ino: Ino) {
        if let Some(bytes) = self.space.remove_object(ino)
            && let Err(error) = self.objects.remove(self.object(ino), bytes)
        {
            tracing::warn!(%error, "cannot remove a data object; the next start retries");
        }
        self.pieces.checked(ino);
    }

    /// The removal of a file is durable: other nodes are to remove their pieces. If this node forgets
    /// that in a crash, they will find out when they check.
    pub fn have_pieces_removed(&mut self, node: &mut Context<O>, ino: Ino, pieces: PieceNodes) {
        for other in self.other_nodes_with(ino, pieces) {
            self.pieces.remove_later(other, ino);
            self.send(node, other, PeerPayload::RemoveObjects(vec![ino]));
        }
    }

    /// Another node checks which of these files exist. That one does not is reported only when it is
    /// durable: a power cut must not bring a file back whose pieces were removed.
    pub fn check_files(&mut self, node: &mut Context<O>, from: NodeIndex, inos: Vec<Ino>) {
        if node.log_space == LogSpace::Exhausted {
            return; // it asks again
        }
        let names = self.names();
        let own = inos.into_iter().filter(|ino| names.owns(*ino));
        let (existing, removed): (Vec<Ino>, Vec<Ino>) =
            own.partition(|ino| names.get(*ino).is_some());
        for ino in &existing {
            self.note_piece(node, from, *ino);
        }
        if !removed.is_empty() {
            let last = node.journal.last();
            if node.journal.is_durable(last) {
                self.report_removed(node, from, removed);
            } else {
                self.when_durable(node, last, VolumeAction::ReportRemoved(from, removed));
            }
        }
        if !existing.is_empty() {
            let removed = Vec::new();
            self.send(node, from, PeerPayload::OrphansChecked { existing, removed });
        }
    }

    pub fn report_removed(&mut self, node: &mut Context<O>, to: NodeIndex, removed: Vec<Ino>) {
        let existing = Vec::new();
        self.send(node, to, PeerPayload::OrphansChecked { existing, removed });
    }

    pub fn files_checked(&mut self, from: NodeIndex, existing: &[Ino], removed: Vec<Ino>) {
        let from_metadata_node = |ino: &Ino| ino.metadata_node() == from;
        for ino in existing.iter().copied().filter(from_metadata_node) {
            self.pieces.checked(ino);
        }
        for ino in removed.into_iter().filter(from_metadata_node) {
            self.remove_piece(ino);
        }
    }

    pub fn retransmit_pieces(&mut self, node: &mut Context<O>, to: NodeIndex) {
        let (removals, unchecked) = self.pieces.pending_with(to);
        if !removals.is_empty() {
            self.send(node, to, PeerPayload::RemoveObjects(removals));
        }
        if !unchecked.is_empty() {
            self.send(node, to, PeerPayload::CheckOrphans(unchecked));
        }
    }
}
