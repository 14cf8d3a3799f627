//! Files and directories are opened and closed, and dropped when no name and no handle is left.

use super::Volume;
use super::handles::Handle;
use crate::context::{AfterDurable, Context, Handled, Origin, Outcome, Requester, VolumeAction};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::namespace::{Access, Change, EXEC, Inode, PieceNodes, READ, WRITE};
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use forebay_protocol::message::{
    CAPABILITY_XATTR, CreateMode, NewInode, OpenMode, RECOVERY_SLOT, SetAttr,
};
use forebay_protocol::{Credentials, Errno, FileKind, HandleId, Ino, Reply, SessionId};

/// A file to create and open.
#[derive(Debug)]
pub struct CreateFile<'a> {
    pub parent: Ino,
    pub name: &'a [u8],
    pub mode: CreateMode,
    /// Fail if the name exists, instead of opening that.
    pub exclusive: bool,
    pub handle: HandleId,
    pub open: OpenMode,
}

impl<O: Objects> Volume<O> {
    pub fn open(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        ino: Ino,
        id: HandleId,
        mode: OpenMode,
    ) -> Handled<O> {
        require_space_to_open(node, requester, mode)?;
        let origin = &requester.origin;
        let inode = self.names().find(ino)?;
        let reopened = self.check_reopen(origin.session, id, mode);
        match reopened {
            Some(checked) => checked?,
            None => check_open(&requester.user, inode, mode)?,
        }
        let is_file = match inode.kind() {
            FileKind::File => true,
            FileKind::Dir if mode.write || mode.truncate => return Err(Errno::EISDIR),
            FileKind::Dir => false,
            FileKind::Symlink => return Err(Errno::ELOOP),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                return Err(Errno::ENXIO);
            }
        };
        // The new handle makes the length unknown.
        let length = self.length(ino);
        let is_empty = length.is_some_and(|length| length.known && length.size == 0);
        self.fence_silent_holder(node, ino, Some(origin.session))?;
        self.add_handle(node, origin, id, ino, mode)?;
        if mode.write && reopened.is_none() && !node.sessions.get(origin.session)?.is_trusted {
            self.take_privileges(node, requester, ino)?;
        }
        if mode.truncate && is_file {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            let result = SlotResult::Opened(ino, false);
            if is_empty {
                let names = self.names();
                let change = names.plan_set(&requester.user, ino, &set, true, node.now.wall)?;
                self.log_change(node, origin, change, result);
            } else {
                let file = (ino, Some(id));
                if self.set_attributes(node, requester, file, &set, result, Some((id, mode)))? {
                    return Ok(Outcome::Deferred);
                }
            }
        }
        self.opened(node, origin, ino, (id, mode), false)
    }

    /// Take set-id bits and capabilities from a file that a user opens for writing. On a mount the first write
    /// does so; a client of the library could write without saying so.
    fn take_privileges(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        ino: Ino,
    ) -> Result<(), Errno> {
        let (user, now) = (&requester.user, node.now.wall);
        let inode = self.names().find(ino)?;
        if inode.has_set_id() && user.uid != 0 {
            let set = SetAttr { clear_set_id: true, ..SetAttr::default() };
            let change = self.names().plan_set(user, ino, &set, true, now)?;
            self.log(node, VolumeEvent::Namespace(change), None);
        }
        self.remove_capabilities(node, ino);
        Ok(())
    }

    /// Remove the capabilities of a program whose contents change.
    pub fn remove_capabilities(&mut self, node: &mut Context<O>, ino: Ino) {
        let inode = self.names().get(ino);
        if inode.is_some_and(|inode| inode.xattrs.contains_key(CAPABILITY_XATTR)) {
            let (name, now) = (CAPABILITY_XATTR.to_vec(), node.now.wall);
            let change = Change::SetXattr { ino, name, value: None, now };
            self.log(node, VolumeEvent::Namespace(change), None);
        }
    }

    /// A handle that is open already was checked when it was opened, for the mode it was opened in.
    /// `None`: it is not open.
    pub fn check_reopen(
        &self,
        session: SessionId,
        id: HandleId,
        mode: OpenMode,
    ) -> Option<Result<(), Errno>> {
        let known = self.handles.get(session, id).ok()?.mode;
        let exceeds = (mode.read && !known.read) || ((mode.write || mode.truncate) && !known.write);
        Some(if exceeds { Err(Errno::EACCES) } else { Ok(()) })
    }

    pub fn create(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        file: &CreateFile<'_>,
    ) -> Handled<O> {
        let (parent, name, open) = (file.parent, file.name, file.open);
        let (user, origin) = (&requester.user, &requester.origin);
        match self.names().lookup(user, parent, name) {
            Ok(_) if file.exclusive => return Err(Errno::EEXIST),
            Ok(ino) => {
                return match self.elsewhere(parent, name, ino) {
                    Some(elsewhere) => Ok(Outcome::Reply(elsewhere)),
                    None => self.open(node, requester, ino, file.handle, open),
                };
            }
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        node.require_log_space(LogSpace::Normal)?;
        let new = NewInode::Node(FileKind::File, 0);
        let (mut inode, acls) = self.names().plan_make(user, parent, name, new, file.mode)?;
        inode.opened = open.write;
        let ino = inode.ino;
        let (name, now) = (name.to_vec(), node.now.wall);
        let change = Change::Make { parent, name, inode, now }.with_acls(acls);
        self.create_opened(node, origin, (ino, change), (file.handle, open))
    }

    /// Create a file without a name, as in the directory `parent`, and open it.
    pub fn create_unnamed(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (parent, mode, linkable): (Ino, CreateMode, bool),
        (id, open): (HandleId, OpenMode),
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (mut inode, acls) = self.names().plan_unnamed(&requester.user, parent, mode)?;
        inode.opened = open.write;
        let (ino, now) = (inode.ino, node.now.wall);
        let change = Change::MakeUnnamed { parent, inode, linkable, now }.with_acls(acls);
        self.create_opened(node, &requester.origin, (ino, change), (id, open))
    }

    /// Carry out a change that creates the file `ino`, and open it.
    pub fn create_opened(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        (ino, change): (Ino, Change),
        (id, open): (HandleId, OpenMode),
    ) -> Handled<O> {
        assert_eq!(change.created(), Some(ino));
        self.check_inode_limit()?;
        self.check_memory(node, &change)?;
        node.memory.check_handles()?;
        node.sessions.check_user_handles(origin.session, node.limits.max_user_handles)?;
        let max_handles = node.limits.max_session_handles;
        self.handles.check_limit(origin.session, id, max_handles)?;
        // The object comes first: one without an inode is removed at the next start.
        let passes_descriptor = open.descriptor && origin.passes_descriptors;
        let open_object = || self.open_object(node, ino, open);
        let descriptor = passes_descriptor.then(open_object).transpose()?;
        self.log_change(node, origin, change, SlotResult::Opened(ino, true));
        self.add_handle(node, origin, id, ino, open)?;
        self.reply_opened(node, origin, ino, (id, open), true, descriptor)
    }

    /// Reply to the open of an inode whose handle has been added.
    pub fn opened(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        ino: Ino,
        (id, mode): (HandleId, OpenMode),
        created: bool,
    ) -> Handled<O> {
        let is_file = self.names().find(ino)?.kind() == FileKind::File;
        let passes_descriptor = mode.descriptor && origin.passes_descriptors && is_file;
        let open_object = || self.open_object(node, ino, mode);
        let descriptor = passes_descriptor.then(open_object).transpose()?;
        self.reply_opened(node, origin, ino, (id, mode), created, descriptor)
    }

    fn reply_opened(
        &self,
        node: &Context<O>,
        origin: &Origin,
        ino: Ino,
        (id, mode): (HandleId, OpenMode),
        created: bool,
        descriptor: Option<O::Descriptor>,
    ) -> Handled<O> {
        let reply = Reply::Opened {
            attr: self.attr(ino)?,
            created,
            capability: self.capability(node, origin.session, ino, (id, mode))?,
        };
        Ok(Outcome::with_descriptor(reply, descriptor))
    }

    /// Reply to the repetition of an open. The repetition may ask for more than the first call.
    pub fn repeat_open(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        user: impl FnOnce() -> Result<Credentials, Errno>,
        (ino, created): (Ino, bool),
        (id, mode): (HandleId, OpenMode),
    ) -> Handled<O> {
        match self.check_reopen(origin.session, id, mode) {
            Some(checked) => checked?,
            None if created => drop(self.names().find(ino)?),
            None => check_open(&user()?, self.names().find(ino)?, mode)?,
        }
        self.fence_silent_holder(node, ino, Some(origin.session))?;
        self.add_handle(node, origin, id, ino, mode)?;
        let passes_descriptor =
            mode.descriptor && origin.passes_descriptors && self.space.has_object(ino);
        let open_object = || self.objects.open(self.object(ino), mode);
        let descriptor = passes_descriptor.then(open_object).transpose()?;
        self.reply_opened(node, origin, ino, (id, mode), created, descriptor)
    }

    /// Add a handle of an inode, unless it is open already.
    pub fn add_handle(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        id: HandleId,
        ino: Ino,
        mode: OpenMode,
    ) -> Result<(), Errno> {
        if self.handles.is_open_as(origin.session, id, ino, node.limits.max_session_handles)? {
            return Ok(());
        }
        let length = if mode.write { self.length(ino) } else { None };
        if let Some(length) = length {
            self.begin_writing(node, ino, length)?;
        }
        let handle = Handle::of_inode(ino, mode, length.is_some());
        self.insert_handle(node, origin, id, handle);
        Ok(())
    }

    /// Add a handle of a data object, unless it is open already.
    pub fn add_piece_handle(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        id: HandleId,
        ino: Ino,
        mode: OpenMode,
    ) -> Result<(), Errno> {
        if !self.handles.is_open_as(origin.session, id, ino, node.limits.max_session_handles)? {
            let handle = Handle::of_piece(ino, mode);
            self.insert_handle(node, origin, id, handle);
        }
        Ok(())
    }

    fn insert_handle(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        id: HandleId,
        handle: Handle,
    ) {
        let (ino, mode) = (handle.ino, handle.mode);
        debug_assert!(handle.is_piece || self.names().get(ino).is_some(), "an open inode exists");
        self.handles.insert(origin.session, id, handle);
        node.sessions.add_handle(origin.session);
        self.account_memory(&mut node.memory);
        let passes_descriptor = mode.descriptor && origin.session_has_descriptors;
        // A client that has, or has kept, a descriptor writes over a data connection in a full instance.
        let may_write_over_blocks = origin.session_has_descriptors && mode.write;
        if origin.session_uses_data_connections || may_write_over_blocks {
            let mode = OpenMode { descriptor: passes_descriptor, ..mode };
            let object = self.object(ino);
            node.effects.push(Effect::BulkOpen(origin.session, id, object, mode));
        }
    }

    /// Close a handle. A repeated close finds none, and has nothing to do.
    pub fn close(&mut self, node: &mut Context<O>, session: SessionId, id: HandleId) {
        if let Some(handle) = self.handles.remove(session, id) {
            self.handle_closed(node, session, id, &handle);
        } else if let Some(ino) = self.write_leases.object_of((session, id)) {
            self.close_lease(node, ino, (session, id)); // it was not opened again
        }
    }

    /// Close all handles of a session.
    pub fn close_all(&mut self, node: &mut Context<O>, session: SessionId) {
        while let Some((id, handle)) = self.handles.pop(session) {
            self.handle_closed(node, session, id, &handle);
        }
    }

    fn handle_closed(
        &mut self,
        node: &mut Context<O>,
        session: SessionId,
        id: HandleId,
        handle: &Handle,
    ) {
        let (ino, mode) = (handle.ino, handle.mode);
        self.confirmations.remove((session, id), handle);
        self.account_memory(&mut node.memory);
        node.sessions.remove_handle(session);
        node.effects.push(Effect::BulkClose(session, id));
        self.unlock_append(node, ino, (session, id));
        if !handle.is_piece {
            self.close_locks(node, session, ino, id);
        }
        self.close_lease(node, ino, (session, id));
        self.space.release(handle.grant().0);
        // There is nothing to checksum in an empty object.
        if mode.write && self.recharge(ino) != Some(0) {
            node.effects.push(Effect::ObjectWritten(self.object(ino)));
        }
        self.drop_if_unused(node, ino);
        let is_last_writer = handle.is_counted_writer && !self.handles.is_written(ino);
        let is_due = || {
            let inode = self.names().get(ino).filter(|inode| inode.length().is_some());
            inode.is_some_and(|inode| inode.is_access_due(node.now.wall))
        };
        let may_have_read = mode.read && !handle.is_piece && !self.handles.is_written(ino);
        if (is_last_writer && self.length(ino).is_some()) || (may_have_read && is_due()) {
            self.settle_soon(node, ino);
        }
    }

    /// Take the right to append from a handle, if it holds it.
    pub fn unlock_append(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        holder: (SessionId, HandleId),
    ) {
        if self.handles.unlock_append(ino, holder) {
            node.parked.note_unlocked(self.id());
        }
    }

    /// Drop an inode that has no name and is not open.
    pub fn drop_if_unused(&mut self, node: &mut Context<O>, ino: Ino) {
        if !self.names().is_orphan(ino) || self.handles.is_open(ino) {
            return;
        }
        // It may be about to get a name on another node; then, or else, it is dropped later.
        let is_linkable = self.names().get(ino).is_some_and(Inode::is_linkable);
        if is_linkable && self.tx_locks.is_in_transaction(ino) {
            return;
        }
        // A client from before this start may have it open.
        if !node.handles_are_restored(self.id()) {
            return;
        }
        if node.log_space == LogSpace::Exhausted {
            node.orphans_dropped = false; // retried when there is space
            return;
        }
        let length = self.length(ino);
        let change = Change::DropInode { ino };
        let record = self.log(node, VolumeEvent::Namespace(change), None);
        if let Some(length) = length {
            self.forget_length(ino);
            if length.pieces != PieceNodes::None {
                self.when_durable(node, record, VolumeAction::RemovePieces(ino, length.pieces));
            }
        }
        if let Some(bytes) = self.space.remove_object(ino) {
            let action = AfterDurable::RemoveObject(self.object(ino), bytes);
            node.journal.when_durable(record, action);
        }
    }

    /// Drop all inodes that have no name and are not open.
    pub fn drop_unused_orphans(&mut self, node: &mut Context<O>) {
        let orphans: Vec<Ino> = self.names().orphans().collect();
        for ino in &orphans {
            self.drop_if_unused(node, *ino);
        }
        if !orphans.is_empty() {
            node.parked.note_unlocked(self.id());
        }
    }

    /// Whether there are inodes without names that are only kept because sessions from before this
    /// start may have them open, or until the next tick, and there is space in the log to drop them.
    pub fn awaits_orphans(&self, node: &Context<O>) -> bool {
        !node.orphans_dropped
            && node.log_space == LogSpace::Normal
            && self.names().orphans().any(|ino| !self.handles.is_open(ino))
    }
}

/// The log space that opening takes. A handle from before this start must be restored in any case: its
/// client may have written.
pub fn require_space_to_open<O: Objects>(
    node: &Context<O>,
    requester: &Requester,
    mode: OpenMode,
) -> Result<(), Errno> {
    let restores = requester.origin.slot == RECOVERY_SLOT && !mode.truncate;
    if !restores {
        node.memory.check_handles()?;
        let max = node.limits.max_user_handles;
        node.sessions.check_user_handles(requester.origin.session, max)?;
    }
    let modifies = mode.write || mode.truncate;
    node.require_log_space(if modifies && !restores {
        LogSpace::ReserveOnly
    } else {
        LogSpace::Exhausted
    })
}

/// Check that an inode may be opened in this mode.
fn check_open(user: &Credentials, inode: &Inode, mode: OpenMode) -> Result<(), Errno> {
    let mut wanted = 0;
    if mode.read {
        wanted |= READ;
    }
    if mode.write || mode.truncate {
        wanted |= WRITE;
    }
    // A directory that is opened for neither is used to look names up.
    if wanted == 0 && inode.dir().is_some() {
        wanted = EXEC;
    }
    user.check_access(inode, wanted)
}
