//! The data objects of files: made when they are needed, and the space they take and are promised.

use super::lengths::NEVER;
use super::{Context, Effect, Shard};
use crate::objects::{ObjectId, Objects};
use forebay_protocol::message::{Allocate, OpenMode};
use forebay_protocol::{Errno, HandleId, Reply, Timestamp};

/// Largest promise of space ahead of need.
const MOST_AHEAD: u64 = 64 << 20;

impl<O: Objects> Shard<O> {
    /// Open a file's data object, which is made unless there is one.
    pub(super) fn object_for(
        &mut self,
        id: ObjectId,
        mode: OpenMode,
    ) -> Result<O::Descriptor, Errno> {
        if self.runtime(id.instance).space.has_object(id.ino) {
            return self.objects.open(id, mode);
        }
        let times = self.times_of_new(id)?;
        let descriptor = self.objects.create_open(id, times, mode)?;
        self.object_made(id)?;
        Ok(descriptor)
    }

    /// Make a file's data object unless it has one.
    pub(super) fn ensure_object(&mut self, id: ObjectId) -> Result<(), Errno> {
        if self.runtime(id.instance).space.has_object(id.ino) {
            return Ok(());
        }
        let (atime, mtime) = self.times_of_new(id)?;
        self.objects.create(id, atime, mtime)?;
        self.object_made(id)
    }

    /// Last read and last write of an object that is made now.
    fn times_of_new(&self, id: ObjectId) -> Result<(Timestamp, Timestamp), Errno> {
        let now = self.now.wall;
        Ok(match self.names(id.instance)?.names.get(id.ino) {
            Some(inode) => (inode.atime, inode.mtime),
            // Making it is not a write.
            None if !self.names(id.instance)?.names.owns(id.ino) => (NEVER, NEVER),
            None => (now, now),
        })
    }

    fn object_made(&mut self, id: ObjectId) -> Result<(), Errno> {
        let runtime = self.runtime(id.instance);
        runtime.space.charge(id.ino, 0);
        runtime.fresh.insert(id.ino);
        if !self.names(id.instance)?.names.owns(id.ino) {
            let unconfirmed = &mut self.runtime(id.instance).spread.unconfirmed;
            let home = unconfirmed.entry(id.ino.metadata_node()).or_default();
            home.insert(id.ino);
        }
        Ok(())
    }

    /// Make a file's data object unless it has one. That of another node's file is made only when
    /// it is opened, with a permit: later on it may have been removed with its file.
    pub(super) fn need_object(&mut self, id: ObjectId) -> Result<(), Errno> {
        let known = self.runtime(id.instance).space.has_object(id.ino);
        if !known && !self.names(id.instance)?.names.owns(id.ino) {
            return Err(Errno::ESTALE);
        }
        self.ensure_object(id)
    }

    /// Look how much space an object takes now. Returns its length, if that can be told.
    pub(super) fn recharge(&mut self, id: ObjectId) -> Option<u64> {
        if !self.runtime(id.instance).space.has_object(id.ino) {
            return Some(0);
        }
        let stat = self.objects.stat(id).ok()?;
        self.runtime(id.instance).space.charge(id.ino, stat.space);
        Some(stat.size)
    }

    /// Promise a writer more space; it returns what it does not use of an earlier promise.
    pub(super) fn reserve(
        &mut self,
        context: &Context,
        id: HandleId,
        returned: u64,
        want: u64,
    ) -> Result<Reply, Errno> {
        let capacity = self.names(context.instance)?.spec.capacity;
        let handle = self.handle(context.session, id)?;
        if !handle.mode.write {
            return Err(Errno::EBADF);
        }
        let (ino, before, ahead) = (handle.ino, handle.grant, handle.ahead);
        let kept = returned.min(before);
        let object = ObjectId {
            instance: context.instance,
            ino,
        };
        self.need_object(object)?;
        self.recharge(object);
        let space = &mut self.runtime(context.instance).space;
        space.regrant(before, kept);
        let more = if want == 0 {
            0
        } else {
            space.available(capacity, want, ahead)
        };
        space.regrant(kept, kept + more);
        let total = kept + more;
        if let Some(handle) = self
            .attached
            .get_mut(&context.session)
            .and_then(|a| a.handles.get_mut(&id))
        {
            handle.grant = total;
            handle.ahead = (handle.ahead * 2).min(MOST_AHEAD);
        }
        if !context.local {
            self.effects
                .push(Effect::BulkGrant(context.session, id, total));
        }
        if total == 0 && want > 0 {
            Err(Errno::ENOSPC)
        } else {
            Ok(Reply::SpaceGranted(total))
        }
    }

    /// Reserve, free or clear a range of an object.
    pub(super) fn allocate(
        &mut self,
        context: &Context,
        id: HandleId,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> Result<Reply, Errno> {
        let handle = self.handle(context.session, id)?;
        if !handle.mode.write {
            return Err(Errno::EBADF);
        }
        let ino = handle.ino;
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        if offset
            .checked_add(length)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(Errno::EFBIG);
        }
        let object = ObjectId {
            instance: context.instance,
            ino,
        };
        self.need_object(object)?;
        self.recharge(object);
        let instance = self.names(context.instance)?;
        let capacity = instance.spec.capacity;
        let used = self
            .runtime
            .get(&context.instance)
            .map_or(0, |r| r.space.used());
        let before = self.objects.stat(object)?;
        // What the range holds already counts in its favour only as far as it surely lies there.
        let covered = if before.space >= before.size && offset < before.size {
            length.min(before.size - offset)
        } else {
            0
        };
        if !matches!(what, Allocate::PunchHole) && used.saturating_add(length - covered) > capacity
        {
            return Err(Errno::ENOSPC);
        }
        self.objects.allocate(object, offset, length, what)?;
        self.recharge(object);
        Ok(Reply::Done)
    }
}
