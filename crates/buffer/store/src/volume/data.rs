//! The data objects of files: created when they are needed, and the space that writers reserve.

use super::Volume;
use super::lengths::NEVER;
use crate::context::{Context, Handled, Outcome, Requester};
use crate::driver::{Effect, ObjectSync};
use crate::log::LogSpace;
use crate::objects::{Objects, Times};
use crate::shared_space::SharedSpace;
use forebay_protocol::message::{Allocate, OpenMode};
use forebay_protocol::{Errno, HandleId, Ino, Reply, Timestamp};

impl<O: Objects> Volume<O> {
    /// Open the data object of a file, which is created if there is none.
    pub fn open_object(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        mode: OpenMode,
    ) -> Result<O::Descriptor, Errno> {
        let object = self.object(ino);
        if self.space.has_object(ino) {
            return self.objects.open(object, mode);
        }
        let times = self.times_of_new_object(ino, node.now.wall);
        let descriptor = self.objects.create_open(object, times, mode)?;
        self.object_created(ino);
        Ok(descriptor)
    }

    /// Create the data object of a file if there is none.
    pub fn ensure_object(&mut self, node: &mut Context<O>, ino: Ino) -> Result<(), Errno> {
        if self.space.has_object(ino) {
            return Ok(());
        }
        let times = self.times_of_new_object(ino, node.now.wall);
        self.objects.create(self.object(ino), times)?;
        self.object_created(ino);
        Ok(())
    }

    /// Last read and last write of an object that is created.
    fn times_of_new_object(&self, ino: Ino, now: Timestamp) -> Times {
        match self.names().get(ino) {
            Some(inode) => (inode.atime, inode.mtime),
            None if !self.names().owns(ino) => (NEVER, NEVER),
            None => (now, now),
        }
    }

    fn object_created(&mut self, ino: Ino) {
        self.space.add_object(ino, 0);
        if !self.names().owns(ino) {
            self.pieces.check_later(ino);
        }
    }

    /// As [`ensure_object`](Volume::ensure_object), but a piece is only created when it is opened, with
    /// a capability: later, it may have been removed with its file.
    fn require_object(&mut self, node: &mut Context<O>, ino: Ino) -> Result<(), Errno> {
        if !self.space.has_object(ino) && !self.names().owns(ino) {
            return Err(Errno::ESTALE);
        }
        self.ensure_object(node, ino)
    }

    /// Update the space that an object takes. Returns its length, if it can be determined.
    pub fn recharge(&mut self, ino: Ino) -> Option<u64> {
        if !self.space.has_object(ino) {
            return Some(0);
        }
        let stat = self.objects.stat(self.object(ino)).ok()?;
        self.space.charge(ino, stat.space);
        Some(stat.size)
    }

    /// The file that a handle writes to, with its object created. `EBADF`: it is not open for writing.
    fn file_to_write(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        id: HandleId,
    ) -> Result<Ino, Errno> {
        let handle = self.handles.get(requester.origin.session, id)?;
        if !handle.mode.write {
            return Err(Errno::EBADF);
        }
        let ino = handle.ino;
        self.require_object(node, ino)?;
        self.recharge(ino);
        Ok(ino)
    }

    /// Grant more space to a writer, which returns the unused part of its grant.
    pub fn reserve(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        id: HandleId,
        (returned, want): (u64, u64),
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (capacity, session) = (self.state.spec.capacity, requester.origin.session);
        self.file_to_write(node, requester, id)?;
        let handle = self.handles.get_mut(session, id)?;
        let (before, ahead) = handle.grant();
        let kept = returned.min(before);
        self.space.release(before - kept);
        let more = match want {
            0 => 0,
            _ => self.space.grant(capacity, want, ahead),
        };
        let granted = kept + more;
        handle.set_grant(granted);
        if !requester.origin.passes_descriptors {
            node.effects.push(Effect::BulkGrant(session, id, granted));
        }
        if granted == 0 && want > 0 {
            Err(Errno::ENOSPC)
        } else {
            Ok(Outcome::Reply(Reply::SpaceGranted(granted)))
        }
    }

    /// Reserve, free or clear a range of an object.
    pub fn allocate(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        id: HandleId,
        (offset, length): (u64, u64),
        what: Allocate,
    ) -> Handled<O> {
        let frees = matches!(what, Allocate::PunchHole);
        node.require_log_space(if frees { LogSpace::ReserveOnly } else { LogSpace::Normal })?;
        let handle = self.handles.get(requester.origin.session, id)?;
        if !handle.mode.write {
            return Err(Errno::EBADF);
        }
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64);
        let end = end.ok_or(Errno::EFBIG)?;
        let ino = self.file_to_write(node, requester, id)?;
        let object = self.object(ino);
        let before = self.objects.stat(object)?;
        // Data in the range counts as allocated without a closer look only if the object has no holes.
        let covered = if before.space >= before.size && offset < before.size {
            length.min(before.size - offset)
        } else {
            0
        };
        let shared = self.space.shared().cloned();
        let _granting = shared.as_ref().map(SharedSpace::begin_grant);
        let (used, limit) = (self.space.used(), self.space.limit(self.state.spec.capacity));
        // More than the capacity can be in use: the flash's file system needs space for its maps of extents.
        let is_full = |covered| {
            let needed = length - covered;
            !frees && needed > 0 && used.saturating_add(needed) > limit
        };
        if is_full(covered) && is_full(self.objects.bytes_with_blocks(object, offset..end)?) {
            return Err(Errno::ENOSPC);
        }
        self.objects.allocate(object, offset..end, what)?;
        self.recharge(ino);
        self.publish_space();
        Ok(Outcome::Reply(Reply::Done))
    }

    /// The existence of a file's object is durable.
    pub fn object_durable(&mut self, ino: Ino) {
        self.space.remove_fresh(ino);
    }

    /// Make a file durable, or all files and names without a `handle`. `by_client`: the client has
    /// made the data durable.
    pub fn sync(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        handle: Option<HandleId>,
        (data_only, by_client): (bool, bool),
    ) -> Handled<O> {
        let session = requester.origin.session;
        let mut object = None;
        if let Some(handle) = handle {
            let ino = self.handles.get(session, handle)?.ino;
            if self.space.has_object(ino) {
                let is_new = self.space.is_fresh(ino);
                let opened = (session, handle);
                let call = (requester.origin.slot, requester.origin.seq);
                let sync = ObjectSync { object: self.object(ino), opened, call, data_only, is_new };
                object = (is_new || !by_client).then_some(sync);
            }
        }
        node.effects.push(Effect::Sync {
            conn: requester.origin.conn,
            seq: requester.origin.seq,
            object,
            put_count: match handle {
                Some(_) => 0,
                None => node.put_count,
            },
        });
        Ok(Outcome::Deferred)
    }
}
