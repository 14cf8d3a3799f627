//! Requests about files and directories.

use super::{Context, Effect, Event, Outcome, Shard};
use crate::namespace::{Body, Change, EXEC, READ, WRITE};
use crate::objects::{ObjectId, Objects};
use forebay_wire::message::{Allocate, MOST_CLOSED, XattrMode};
use forebay_wire::{Errno, HandleId, Ino, InstanceId, Kind, Reply, Request};

impl<O: Objects> Shard<O> {
    pub(super) fn file_request(
        &mut self,
        context: &Context,
        request: Request,
    ) -> Result<Option<Reply>, Errno> {
        let instance = context.instance;
        let names = &self.names(instance)?.names;
        let who = &context.who;
        let reply = match request {
            Request::Lookup { parent, name } => {
                let ino = names.lookup(who, parent, &name)?;
                match self.elsewhere(instance, parent, &name, ino) {
                    Some(elsewhere) => elsewhere,
                    None => Reply::Attr(self.attr(instance, ino)?),
                }
            }
            Request::GetAttr { ino } => Reply::Attr(self.attr(instance, ino)?),
            Request::GetAttrs { inos } => Reply::Attrs(self.attrs(instance, &inos)?),
            Request::Fetch { ino } => return self.fetch(context, ino),
            Request::Access { ino, mask } => {
                who.may(names.find(ino)?, mask & (READ | WRITE | EXEC))?;
                Reply::Done
            }
            Request::ReadLink { ino } => match &names.find(ino)?.body {
                Body::Symlink(target) => Reply::Bytes(target.clone()),
                _ => return Err(Errno::EINVAL),
            },
            Request::ReadDir {
                ino,
                cookie,
                bytes,
                attrs,
            } => {
                who.may(names.find(ino)?, READ)?;
                self.read_dir(context, ino, cookie, bytes, attrs)?
            }
            Request::GetXattr { ino, name } => {
                let inode = names.find(ino)?;
                if name.starts_with(b"user.") {
                    who.may(inode, READ)?;
                }
                Reply::Bytes(inode.xattrs.get(&name).cloned().ok_or(Errno::ENODATA)?)
            }
            Request::ListXattr { ino } => {
                Reply::Names(names.find(ino)?.xattrs.keys().cloned().collect())
            }
            Request::StatFs => {
                let spec = &self.names(instance)?.spec;
                Reply::StatFs {
                    capacity: spec.capacity,
                    used: self.runtime.get(&instance).map_or(0, |r| r.space.used()),
                    inodes: spec.inodes,
                    inodes_used: names.len() as u64,
                }
            }
            Request::StatObjects { inos } => Reply::Objects(self.infos(instance, &inos)?),
            Request::AppendLock { handle } => self.lock_append(context, handle)?,
            Request::AppendUnlock { handle } => {
                let ino = self.handle(context.session, handle)?.ino;
                self.unlock_append(instance, ino, (context.session, handle));
                Reply::Done
            }
            Request::Lock {
                handle,
                lock,
                ticket,
            } => self.lock_file(context, handle, lock, ticket)?,
            Request::Unlock {
                handle,
                owner,
                start,
                end,
            } => self.unlock_file(context, handle, owner, (start, end))?,
            Request::TestLock { handle, lock } => self.test_lock(context, handle, lock)?,
            Request::AwaitLocks { told } => return self.await_locks(context, &told),
            Request::CancelLock { ticket } => self.cancel_lock(context, ticket),
            Request::Permit { handle } => self.new_permit(context, handle)?,
            Request::Close { handle, .. } => self.close(context, handle)?,
            Request::CloseAll { handles } if handles.len() > MOST_CLOSED => {
                return Err(Errno::EINVAL);
            }
            Request::CloseAll { handles } => {
                for handle in handles {
                    self.close(context, handle)?;
                }
                Reply::Done
            }
            Request::Sync { handle, data_only } => {
                return self.sync(context, handle, data_only, false);
            }
            Request::SyncRest { handle } => {
                // Others are not taken at their word.
                return self.sync(context, Some(handle), context.local, context.local);
            }
            other => return self.changing_request(context, other),
        };
        Ok(Some(reply))
    }

    /// Requests that alter something and therefore need room in the log.
    fn changing_request(
        &mut self,
        context: &Context,
        request: Request,
    ) -> Result<Option<Reply>, Errno> {
        self.need_room(self.room_for(context, &request))?;
        let instance = context.instance;
        let names = &self.names(instance)?.names;
        let (who, now) = (&context.who, self.now.wall);
        let change = match request {
            Request::Make {
                parent,
                name,
                new,
                mode,
            } => {
                let change = names.plan_make(who, parent, &name, new, mode, now)?;
                self.check_inodes(instance)?;
                let Change::Make { inode, .. } = &change else {
                    return Err(Errno::EIO);
                };
                let ino = inode.ino;
                self.change(context, change, Outcome::Attr(ino));
                return Ok(Some(Reply::Attr(self.attr(instance, ino)?)));
            }
            Request::Link { ino, parent, name } => {
                let change = names.plan_link(who, ino, parent, &name, now)?;
                self.change(context, change, Outcome::Attr(ino));
                return Ok(Some(Reply::Attr(self.attr(instance, ino)?)));
            }
            Request::SetAttr { ino, handle, set } => {
                if self.set_attr(context, ino, handle, &set, Outcome::Attr(ino), None)? {
                    return Ok(None);
                }
                return Ok(Some(Reply::Attr(self.attr(instance, ino)?)));
            }
            Request::Create {
                parent,
                name,
                mode,
                exclusive,
                handle,
                open,
            } => {
                return self.create(context, parent, &name, mode, exclusive, handle, open);
            }
            Request::Put {
                parent,
                name,
                set,
                data,
            } => return self.put(context, (parent, &name), &set, &data).map(Some),
            Request::Open { ino, handle, open } => {
                return self.open(context, ino, handle, open);
            }
            Request::OpenObject {
                handle,
                permit,
                open,
            } => {
                return self.open_object(context, handle, &permit, open);
            }
            Request::Reserve {
                handle,
                returned,
                want,
            } => {
                return self.reserve(context, handle, returned, want).map(Some);
            }
            Request::Allocate {
                handle,
                offset,
                length,
                what,
            } => {
                return self
                    .allocate(context, handle, offset, length, what)
                    .map(Some);
            }
            Request::Unlink { parent, name } => {
                let ino = names.lookup(who, parent, &name);
                let change = names.plan_remove(who, parent, &name, false, now)?;
                self.change(context, change, Outcome::Done);
                self.drop_if_unused(instance, ino?);
                return Ok(Some(Reply::Done));
            }
            Request::RmDir { parent, name } => {
                let ino = names.lookup(who, parent, &name);
                let change = names.plan_remove(who, parent, &name, true, now)?;
                self.change(context, change, Outcome::Done);
                self.drop_if_unused(instance, ino?);
                return Ok(Some(Reply::Done));
            }
            Request::Rename {
                parent,
                name,
                to,
                to_name,
                existing,
            } => {
                let replaced = names.lookup(who, to, &to_name).ok();
                let plan =
                    names.plan_rename(who, (parent, &name), (to, &to_name), existing, now)?;
                if let Some(change) = plan {
                    self.change(context, change, Outcome::Done);
                    if let Some(ino) = replaced {
                        self.drop_if_unused(instance, ino);
                    }
                }
                return Ok(Some(Reply::Done));
            }
            Request::SetXattr {
                ino,
                name,
                value,
                mode,
            } => names.plan_xattr(who, ino, &name, Some(&value), mode, now)?,
            Request::RemoveXattr { ino, name } => {
                names.plan_xattr(who, ino, &name, None, XattrMode::Replace, now)?
            }
            // Bulk data has its own connections; administration its own sessions.
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.change(context, change, Outcome::Done);
        Ok(Some(Reply::Done))
    }

    /// The reply about an entry whose inode's home is another node.
    pub(super) fn elsewhere(
        &self,
        instance: InstanceId,
        parent: Ino,
        name: &[u8],
        ino: Ino,
    ) -> Option<Reply> {
        let names = &self.names(instance).ok()?.names;
        if names.owns(ino) {
            return None;
        }
        let entry = names.get(parent)?.dir()?.entry(name);
        // Otherwise it is the directory above.
        let kind = entry.map_or(Kind::Dir, |entry| entry.kind);
        Some(Reply::Elsewhere { ino, kind })
    }

    /// Carry out a planned change and remember its outcome for the slot.
    pub(super) fn change(&mut self, context: &Context, change: Change, outcome: Outcome) {
        let request = (context.session, context.slot, context.seq, outcome);
        self.log(Event::Names(context.instance, change), Some(request));
    }

    pub(super) fn check_inodes(&self, instance: InstanceId) -> Result<(), Errno> {
        let instance = self.names(instance)?;
        if instance.names.len() as u64 >= instance.spec.inodes {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    fn sync(
        &mut self,
        context: &Context,
        handle: Option<HandleId>,
        data_only: bool,
        by_client: bool,
    ) -> Result<Option<Reply>, Errno> {
        let mut object = None;
        let mut fresh = false;
        if let Some(handle) = handle {
            let ino: Ino = self.handle(context.session, handle)?.ino;
            let instance = context.instance;
            // Only files have objects, those of other nodes too.
            if self.runtime(instance).space.has_object(ino) {
                fresh = self.runtime(instance).fresh.remove(&ino);
                let left = fresh || !by_client;
                object = left.then_some(ObjectId { instance, ino });
            }
        }
        let contents = if handle.is_none() { self.contents } else { 0 };
        let (conn, seq) = (context.conn, context.seq);
        self.effects.push(Effect::Sync {
            conn,
            seq,
            object,
            data_only,
            fresh,
            contents,
        });
        Ok(None)
    }

    fn allocate(
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
