//! Open handles and what becomes of inodes nobody has open.

use super::{Attached, Context, Doomed, Effect, Event, Handle, Shard, SlotResult};
use crate::log::LogSpace;
use crate::namespace::{Access, Change, EXEC, READ, WRITE};
use crate::objects::{ObjectId, Objects};
use forebay_protocol::Credentials;
use forebay_protocol::message::FileRequest;
use forebay_protocol::message::{NewInode, OpenMode, SetAttr};
use forebay_protocol::{Errno, FileKind, HandleId, Ino, InstanceId, Reply, Request, SessionId};

/// First promise of space to a writer.
const FIRST_AHEAD: u64 = 1 << 20;

impl<O: Objects> Shard<O> {
    pub(super) fn open(
        &mut self,
        context: &Context,
        ino: Ino,
        handle: HandleId,
        mode: OpenMode,
    ) -> Result<Option<Reply>, Errno> {
        let inode = self.names(context.instance)?.names.find(ino)?;
        match self.was_checked(context.session, handle, mode) {
            Some(checked) => checked?,
            None => may_open(&context.who, inode, mode)?,
        }
        match inode.kind() {
            FileKind::File => {}
            FileKind::Dir if mode.write || mode.truncate => return Err(Errno::EISDIR),
            FileKind::Dir => {}
            FileKind::Symlink => return Err(Errno::ELOOP),
            _ => return Err(Errno::ENXIO),
        }
        let file = inode.kind() == FileKind::File;
        // Before this handle makes the length unknown.
        let length = self.length(context.instance, ino);
        let empty = length.is_some_and(|length| length.known && length.size == 0);
        self.add_handle(context.session, context.instance, handle, ino, mode)?;
        if mode.truncate && file {
            let set = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            let outcome = SlotResult::Opened(ino, false);
            if empty {
                let names = &self.names(context.instance)?.names;
                let change = names.plan_set(&context.who, ino, &set, true, self.now.wall)?;
                self.change(context, change, outcome);
            } else if self.set_attr(context, ino, Some(handle), &set, outcome, Some(mode))? {
                return Ok(None);
            }
        }
        self.opened(context, ino, mode, false)
    }

    /// A handle that is open already was checked when it was opened, for no more than it was
    /// opened for. `None`: it is not open.
    pub(super) fn was_checked(
        &self,
        session: SessionId,
        handle: HandleId,
        mode: OpenMode,
    ) -> Option<Result<(), Errno>> {
        let known = self.attached.get(&session)?.handles.get(&handle)?.mode;
        let beyond = (mode.read && !known.read) || ((mode.write || mode.truncate) && !known.write);
        Some(if beyond { Err(Errno::EACCES) } else { Ok(()) })
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of `Request::Create`")]
    pub(super) fn create(
        &mut self,
        context: &Context,
        parent: Ino,
        name: &[u8],
        mode: u16,
        exclusive: bool,
        handle: HandleId,
        open: OpenMode,
    ) -> Result<Option<Reply>, Errno> {
        let instance = self.names(context.instance)?;
        match instance.names.lookup(&context.who, parent, name) {
            Ok(_) if exclusive => return Err(Errno::EEXIST),
            Ok(ino) => {
                if let Some(elsewhere) = self.elsewhere(context.instance, parent, name, ino) {
                    return Ok(Some(elsewhere));
                }
                self.need_room(self.room_for(
                    context,
                    &Request::File(FileRequest::Open { ino, handle, open }),
                ))?;
                return self.open(context, ino, handle, open);
            }
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(error),
        }
        self.need_room(LogSpace::Normal)?;
        let new = NewInode::Node(FileKind::File, 0);
        let mut change =
            instance
                .names
                .plan_make(&context.who, parent, name, new, mode, self.now.wall)?;
        let Change::Make { inode, .. } = &mut change else {
            return Err(Errno::EIO);
        };
        inode.opened = open.write;
        let ino = inode.ino;
        self.check_inodes(context.instance)?;
        self.check_handles(context.session, handle)?;
        let mut descriptor = None;
        if open.descriptor && context.local {
            let object = ObjectId {
                instance: context.instance,
                ino,
            };
            descriptor = Some(self.object_for(object, open)?);
        }
        self.change(context, change, SlotResult::Opened(ino, true));
        self.add_handle(context.session, context.instance, handle, ino, open)?;
        self.say_opened(context, ino, open, true, descriptor)
    }

    pub(super) fn opened(
        &mut self,
        context: &Context,
        ino: Ino,
        mode: OpenMode,
        created: bool,
    ) -> Result<Option<Reply>, Errno> {
        let object = ObjectId {
            instance: context.instance,
            ino,
        };
        let file = self.names(context.instance)?.names.find(ino)?.kind() == FileKind::File;
        let mut descriptor = None;
        if mode.descriptor && context.local && file {
            descriptor = Some(self.object_for(object, mode)?);
        }
        self.say_opened(context, ino, mode, created, descriptor)
    }

    fn say_opened(
        &mut self,
        context: &Context,
        ino: Ino,
        mode: OpenMode,
        created: bool,
        descriptor: Option<O::Descriptor>,
    ) -> Result<Option<Reply>, Errno> {
        let reply = Reply::Opened {
            attr: self.attr(context.instance, ino)?,
            created,
            capability: self.permit(context.instance, ino, mode)?,
        };
        self.reply_with(context.conn, context.seq, reply, descriptor);
        Ok(None)
    }

    fn check_handles(&self, session: SessionId, handle: HandleId) -> Result<(), Errno> {
        let attached = self.attached.get(&session).ok_or(Errno::ESTALE)?;
        let full = attached.handles.len() >= self.limits.max_session_handles;
        if full && !attached.handles.contains_key(&handle) {
            Err(Errno::EMFILE)
        } else {
            Ok(())
        }
    }

    pub(super) fn add_handle(
        &mut self,
        session: SessionId,
        instance: InstanceId,
        handle: HandleId,
        ino: Ino,
        mode: OpenMode,
    ) -> Result<(), Errno> {
        self.insert_handle(session, instance, handle, ino, mode, false)
    }

    /// `piece`: the handle is for no more than the data object.
    pub(super) fn insert_handle(
        &mut self,
        session: SessionId,
        instance: InstanceId,
        handle: HandleId,
        ino: Ino,
        mode: OpenMode,
        piece: bool,
    ) -> Result<(), Errno> {
        self.check_handles(session, handle)?;
        let attached = self.attached.get_mut(&session).ok_or(Errno::ESTALE)?;
        if let Some(known) = attached.handles.get(&handle) {
            return if known.ino == ino {
                Ok(())
            } else {
                Err(Errno::EINVAL)
            };
        }
        let (bulk, passed) = (attached.bulk, mode.descriptor && attached.local);
        if mode.write && !piece {
            self.writer_comes(instance, ino)?;
        }
        let open = Handle {
            ino,
            mode,
            grant: 0,
            ahead: FIRST_AHEAD,
            piece,
        };
        if let Some(attached) = self.attached.get_mut(&session) {
            attached.handles.insert(handle, open);
        }
        *self.runtime(instance).opens.entry(ino).or_default() += 1;
        if bulk || (passed && mode.write) {
            let object = ObjectId { instance, ino };
            let mode = OpenMode {
                descriptor: passed,
                ..mode
            };
            self.effects
                .push(Effect::BulkOpen(session, handle, object, mode));
        }
        Ok(())
    }

    pub(super) fn handle(&self, session: SessionId, handle: HandleId) -> Result<&Handle, Errno> {
        let attached: &Attached = self.attached.get(&session).ok_or(Errno::ESTALE)?;
        attached.handles.get(&handle).ok_or(Errno::EBADF)
    }

    pub(super) fn close(&mut self, context: &Context, handle: HandleId) -> Result<Reply, Errno> {
        let attached = self
            .attached
            .get_mut(&context.session)
            .ok_or(Errno::ESTALE)?;
        // A repeated close finds nothing, and that is what it asked for.
        if let Some(open) = attached.handles.remove(&handle) {
            self.released(context.session, context.instance, handle, open);
        }
        Ok(Reply::Done)
    }

    /// A handle is gone.
    pub(super) fn released(
        &mut self,
        session: SessionId,
        instance: InstanceId,
        handle: HandleId,
        open: Handle,
    ) {
        self.effects.push(Effect::BulkClose(session, handle));
        self.unlock_append(instance, open.ino, (session, handle));
        if !open.piece {
            self.close_locks(session, instance, open.ino, handle);
        }
        let runtime = self.runtime(instance);
        runtime.space.regrant(open.grant, 0);
        if let Some(count) = runtime.opens.get_mut(&open.ino) {
            *count -= 1;
            if *count == 0 {
                runtime.opens.remove(&open.ino);
            }
        }
        if open.mode.write {
            let object = ObjectId {
                instance,
                ino: open.ino,
            };
            // Nothing is sealed of what is empty.
            if self.recharge(object) != Some(0) {
                self.effects.push(Effect::ObjectWritten(object));
            }
        }
        self.drop_if_unused(instance, open.ino);
        if open.mode.write && !open.piece {
            self.writer_goes(instance, open.ino);
        }
    }

    /// Drop an inode that has no names and is not open.
    pub(super) fn drop_if_unused(&mut self, instance: InstanceId, ino: Ino) {
        let orphan = self.names(instance).is_ok_and(|i| i.names.is_orphan(ino));
        if !orphan || self.runtime(instance).opens.contains_key(&ino) {
            return;
        }
        // Someone may have it open and only not have come back since this daemon started.
        if !self.settled() {
            return;
        }
        if self.room == LogSpace::Exhausted {
            self.collected = false; // once there is room
            return;
        }
        let length = self.names(instance).ok().and_then(|i| {
            let inode = i.names.get(ino)?;
            inode.length().copied()
        });
        self.log(Event::Namespace(instance, Change::DropInode { ino }), None);
        let needed = self.last;
        if let Some(length) = length {
            self.forget_length(instance, ino);
            if length.may_have_pieces {
                let object = ObjectId { instance, ino };
                self.doomed.push_back((needed, Doomed::Pieces(object)));
            }
        }
        let runtime = self.runtime(instance);
        runtime.fresh.remove(&ino);
        if runtime.space.has_object(ino) {
            runtime.space.discharge(ino);
            self.doomed
                .push_back((needed, Doomed::Object(ObjectId { instance, ino })));
        }
    }
}

/// May an inode be opened so?
pub(super) fn may_open(
    who: &Credentials,
    inode: &crate::namespace::Inode,
    mode: OpenMode,
) -> Result<(), Errno> {
    let mut want = 0;
    if mode.read {
        want |= READ;
    }
    if mode.write || mode.truncate {
        want |= WRITE;
    }
    // Opened for neither: a place to look names up from.
    if want == 0 && inode.dir().is_some() {
        want = EXEC;
    }
    who.check_access(inode, want)
}
