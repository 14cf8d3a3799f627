//! Requests about files and directories.

use super::{Context, Effect, Event, Shard, SlotResult};
use crate::namespace::{Body, Change, EXEC, READ, WRITE};
use crate::objects::{ObjectId, Objects};
use forebay_protocol::message::{MAX_CLOSED_HANDLES, XattrMode};
use forebay_protocol::{Errno, HandleId, Ino, Reply, Request};

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
                who.check_access(names.find(ino)?, mask & (READ | WRITE | EXEC))?;
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
                who.check_access(names.find(ino)?, READ)?;
                self.read_dir(context, ino, cookie, bytes, attrs)?
            }
            Request::GetXattr { ino, name } => {
                let inode = names.find(ino)?;
                if name.starts_with(b"user.") {
                    who.check_access(inode, READ)?;
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
            Request::AwaitLocks { known: told } => return self.await_locks(context, &told),
            Request::CancelLock { ticket } => self.cancel_lock(context, ticket),
            Request::Permit { handle } => self.new_permit(context, handle)?,
            Request::Close { handle, .. } => self.close(context, handle)?,
            Request::CloseAll { handles } if handles.len() > MAX_CLOSED_HANDLES => {
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
        let reply = match request {
            Request::Make {
                parent,
                name,
                new,
                mode,
            } => self.make(context, parent, &name, new, mode)?,
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
            } => self.put(context, (parent, &name), &set, &data)?,
            Request::Link { ino, parent, name } => self.link(context, ino, parent, &name)?,
            Request::Unlink { parent, name } => self.remove(context, parent, &name, false)?,
            Request::RmDir { parent, name } => self.remove(context, parent, &name, true)?,
            Request::Rename {
                parent,
                name,
                to,
                to_name,
                existing,
            } => self.rename(context, (parent, &name), (to, &to_name), existing)?,
            Request::SetAttr { ino, handle, set } => {
                if self.set_attr(context, ino, handle, &set, SlotResult::Attr(ino), None)? {
                    return Ok(None);
                }
                Reply::Attr(self.attr(context.instance, ino)?)
            }
            Request::SetXattr {
                ino,
                name,
                value,
                mode,
            } => self.set_xattr(context, ino, &name, Some(&value), mode)?,
            Request::RemoveXattr { ino, name } => {
                self.set_xattr(context, ino, &name, None, XattrMode::Replace)?
            }
            Request::Open { ino, handle, open } => return self.open(context, ino, handle, open),
            Request::OpenObject {
                handle,
                capability: permit,
                open,
            } => return self.open_object(context, handle, &permit, open),
            Request::Reserve {
                handle,
                returned,
                want,
            } => self.reserve(context, handle, returned, want)?,
            Request::Allocate {
                handle,
                offset,
                length,
                what,
            } => self.allocate(context, handle, offset, length, what)?,
            // Bulk data has its own connections; administration its own sessions.
            _ => return Err(Errno::EOPNOTSUPP),
        };
        Ok(Some(reply))
    }

    /// Carry out a planned change and remember its outcome for the slot.
    pub(super) fn change(&mut self, context: &Context, change: Change, outcome: SlotResult) {
        let request = (context.session, context.slot, context.seq, outcome);
        self.log(Event::Namespace(context.instance, change), Some(request));
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
            put_count: contents,
        });
        Ok(None)
    }
}
