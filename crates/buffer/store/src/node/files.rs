//! Requests about files and directories.

use super::{Context, Effect, Event, Shard, SlotResult};
use crate::namespace::{Access, Body, Change, EXEC, READ, WRITE};
use crate::objects::{ObjectId, Objects};
use forebay_protocol::message::{FileRequest, InodeRequest, LockRequest, NameRequest};
use forebay_protocol::message::{MAX_CLOSED_HANDLES, XattrMode};
use forebay_protocol::{Errno, HandleId, Ino, Reply, Request};

impl<O: Objects> Shard<O> {
    /// Carries out a request about files and directories.
    pub(super) fn file_request(
        &mut self,
        context: &Context,
        request: Request,
    ) -> Result<Option<Reply>, Errno> {
        self.need_room(self.room_for(context, &request))?;
        match request {
            Request::Name(request) => self.name_request(context, request),
            Request::Inode(request) => self.inode_request(context, request),
            Request::File(request) => self.open_file_request(context, request),
            Request::Lock(request) => self.lock_request(context, request),
            // Data have connections of their own; administration has sessions of its own.
            Request::Session(_) | Request::Admin(_) | Request::Data(_) | Request::Peer(_) => {
                Err(Errno::EOPNOTSUPP)
            }
        }
    }

    fn name_request(
        &mut self,
        context: &Context,
        request: NameRequest,
    ) -> Result<Option<Reply>, Errno> {
        let instance = context.instance;
        let names = &self.names(instance)?.names;
        let who = &context.who;
        let reply = match request {
            NameRequest::Lookup { parent, name } => {
                let ino = names.lookup(who, parent, &name)?;
                match self.elsewhere(instance, parent, &name, ino) {
                    Some(elsewhere) => elsewhere,
                    None => Reply::Attr(self.attr(instance, ino)?),
                }
            }
            NameRequest::ReadLink { ino } => match &names.find(ino)?.body {
                Body::Symlink(target) => Reply::Bytes(target.clone()),
                _ => return Err(Errno::EINVAL),
            },
            NameRequest::ReadDir {
                ino,
                cookie,
                bytes,
                attrs,
            } => {
                who.check_access(names.find(ino)?, READ)?;
                self.read_dir(context, ino, cookie, bytes, attrs)?
            }
            NameRequest::Mknod {
                parent,
                name,
                new,
                mode,
            } => self.make(context, parent, &name, new, mode)?,
            NameRequest::Create {
                parent,
                name,
                mode,
                exclusive,
                handle,
                open,
            } => {
                return self.create(context, parent, &name, mode, exclusive, handle, open);
            }
            NameRequest::PutFile {
                parent,
                name,
                set,
                data,
            } => self.put(context, (parent, &name), &set, &data)?,
            NameRequest::Link { ino, parent, name } => self.link(context, ino, parent, &name)?,
            NameRequest::Unlink { parent, name } => self.remove(context, parent, &name, false)?,
            NameRequest::RmDir { parent, name } => self.remove(context, parent, &name, true)?,
            NameRequest::Rename {
                parent,
                name,
                to,
                to_name,
                existing,
            } => self.rename(context, (parent, &name), (to, &to_name), existing)?,
        };
        Ok(Some(reply))
    }

    fn inode_request(
        &mut self,
        context: &Context,
        request: InodeRequest,
    ) -> Result<Option<Reply>, Errno> {
        let instance = context.instance;
        let names = &self.names(instance)?.names;
        let who = &context.who;
        let reply = match request {
            InodeRequest::GetAttr { ino } => Reply::Attr(self.attr(instance, ino)?),
            InodeRequest::GetAttrs { inos } => Reply::Attrs(self.attrs(instance, &inos)?),
            InodeRequest::GetFile { ino } => return self.fetch(context, ino),
            InodeRequest::Access { ino, mask } => {
                who.check_access(names.find(ino)?, mask & (READ | WRITE | EXEC))?;
                Reply::Done
            }
            InodeRequest::GetXattr { ino, name } => {
                let inode = names.find(ino)?;
                if name.starts_with(b"user.") {
                    who.check_access(inode, READ)?;
                }
                Reply::Bytes(inode.xattrs.get(&name).cloned().ok_or(Errno::ENODATA)?)
            }
            InodeRequest::ListXattr { ino } => {
                Reply::Names(names.find(ino)?.xattrs.keys().cloned().collect())
            }
            InodeRequest::StatFs => {
                let spec = &self.names(instance)?.spec;
                Reply::StatFs {
                    capacity: spec.capacity,
                    used: self.runtime.get(&instance).map_or(0, |r| r.space.used()),
                    inodes: spec.inodes,
                    inodes_used: names.len() as u64,
                }
            }
            InodeRequest::StatObjects { inos } => Reply::Objects(self.infos(instance, &inos)?),
            InodeRequest::SetAttr { ino, handle, set } => {
                if self.set_attr(context, ino, handle, &set, SlotResult::Attr(ino), None)? {
                    return Ok(None);
                }
                Reply::Attr(self.attr(context.instance, ino)?)
            }
            InodeRequest::SetXattr {
                ino,
                name,
                value,
                mode,
            } => self.set_xattr(context, ino, &name, Some(&value), mode)?,
            InodeRequest::RemoveXattr { ino, name } => {
                self.set_xattr(context, ino, &name, None, XattrMode::Replace)?
            }
        };
        Ok(Some(reply))
    }

    fn open_file_request(
        &mut self,
        context: &Context,
        request: FileRequest,
    ) -> Result<Option<Reply>, Errno> {
        let reply = match request {
            FileRequest::Open { ino, handle, open } => {
                return self.open(context, ino, handle, open);
            }
            FileRequest::OpenObject {
                handle,
                capability,
                open,
            } => return self.open_object(context, handle, &capability, open),
            FileRequest::ReserveSpace {
                handle,
                returned,
                want,
            } => self.reserve(context, handle, returned, want)?,
            FileRequest::Allocate {
                handle,
                offset,
                length,
                what,
            } => self.allocate(context, handle, offset, length, what)?,
            FileRequest::RenewCapability { handle } => self.new_permit(context, handle)?,
            FileRequest::Close { handle, .. } => self.close(context, handle)?,
            FileRequest::CloseAll { handles } => {
                if handles.len() > MAX_CLOSED_HANDLES {
                    return Err(Errno::EINVAL);
                }
                for handle in handles {
                    self.close(context, handle)?;
                }
                Reply::Done
            }
            FileRequest::Sync { handle, data_only } => {
                return self.sync(context, handle, data_only, false);
            }
            FileRequest::SyncMetadata { handle } => {
                // A client on another host cannot have synced the data.
                return self.sync(context, Some(handle), context.local, context.local);
            }
            FileRequest::AppendLock { handle } => self.lock_append(context, handle)?,
            FileRequest::AppendUnlock { handle } => {
                let ino = self.handle(context.session, handle)?.ino;
                self.unlock_append(context.instance, ino, (context.session, handle));
                Reply::Done
            }
        };
        Ok(Some(reply))
    }

    fn lock_request(
        &mut self,
        context: &Context,
        request: LockRequest,
    ) -> Result<Option<Reply>, Errno> {
        let reply = match request {
            LockRequest::Acquire {
                handle,
                lock,
                ticket,
            } => self.lock_file(context, handle, lock, ticket)?,
            LockRequest::Release {
                handle,
                owner,
                start,
                end,
            } => self.unlock_file(context, handle, owner, (start, end))?,
            LockRequest::Test { handle, lock } => self.test_lock(context, handle, lock)?,
            LockRequest::Await { known } => return self.await_locks(context, &known),
            LockRequest::Cancel { ticket } => self.cancel_lock(context, ticket),
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
