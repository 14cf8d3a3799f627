//! A request of a client, from its arrival at the volume to the sub-state it is about.

use super::Volume;
use super::files::CreateFile;
use crate::context::{Handled, NodeContext, Origin, Outcome, Requester};
use crate::namespace::{Body, Credentials, EXEC, READ, WRITE};
use crate::objects::Objects;
use crate::state::SlotResult;
use forebay_protocol::message::{MAX_CLOSED_HANDLES, XattrMode};
use forebay_protocol::{Call, Errno, Ino, Reply, Request};

impl Volume {
    /// Whether a request must wait for the end of a transaction, a task or another client's append.
    /// `is_repeated`: it is the last change made through its slot.
    pub fn blocks(&self, origin: &Origin, is_repeated: bool, request: &Request) -> bool {
        // Its transaction may not have been applied everywhere.
        if is_repeated && self.coordinator.has_recalled() {
            return true;
        }
        if let Request::AppendLock { handle } = request {
            return self.handles.append_is_blocked(origin.session, *handle);
        }
        !self.tx_locks.is_empty() && self.tx_locks.block(self.names(), request)
    }

    /// Reply to the repetition of a call that led to `result`.
    pub fn repeat<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        origin: &Origin,
        who: impl FnOnce() -> Result<Credentials, Errno>,
        request: &Request,
        result: SlotResult,
    ) -> Handled<O> {
        let reply = match result {
            SlotResult::Done => Reply::Done,
            SlotResult::Referral(ino, kind) => Reply::Referral { ino, kind },
            SlotResult::Attr(ino) => Reply::Attr(self.attr(node, ino)?),
            SlotResult::Opened(ino, created) => {
                let (Request::Create { handle, open, .. } | Request::Open { handle, open, .. }) =
                    request
                else {
                    return Err(Errno::ESTALE);
                };
                let handle = (*handle, *open);
                return self.repeat_open(node, origin, who, (ino, created), handle);
            }
        };
        Ok(Outcome::Reply(reply))
    }

    /// Carry out a call.
    pub fn call<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        requester: Requester,
        call: Call,
    ) -> Handled<O> {
        if self.is_striped()
            && let Some(plan) = self.plan_transaction(node, &requester, &call.request)?
        {
            self.begin_transaction(node, requester, call, plan);
            return Ok(Outcome::Deferred);
        }
        self.request(node, &requester, call.request)
    }

    fn request<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        requester: &Requester,
        request: Request,
    ) -> Handled<O> {
        let session = requester.origin.session;
        let reply = match request {
            Request::Lookup { parent, name } => return self.lookup(node, requester, parent, &name),
            Request::GetAttr { ino } => Reply::Attr(self.attr(node, ino)?),
            Request::GetAttrs { inos } => Reply::Attrs(self.attrs(node, &inos)?),
            Request::Fetch { ino } => return self.fetch(node, requester, ino),
            Request::Access { ino, mask } => {
                let inode = self.names().find(ino)?;
                let wanted = mask & (READ | WRITE | EXEC);
                requester.who.check_access(inode, wanted)?;
                Reply::Done
            }
            Request::ReadLink { ino } => self.read_link(ino)?,
            Request::ReadDir {
                ino,
                cookie,
                bytes,
                attrs,
            } => return self.read_dir(node, requester, ino, cookie, (bytes, attrs)),
            Request::GetXattr { ino, name } => self.get_xattr(requester, ino, &name)?,
            Request::ListXattr { ino } => {
                let xattrs = &self.names().find(ino)?.xattrs;
                Reply::Names(xattrs.keys().cloned().collect())
            }
            Request::StatFs => Reply::StatFs {
                capacity: self.state.spec.capacity,
                used: self.space.used(),
                inodes: self.state.spec.inodes,
                inodes_used: self.names().len() as u64,
            },
            Request::StatObjects { inos } => Reply::Objects(self.object_infos(node, &inos)?),
            Request::AppendLock { handle } => {
                self.handles.lock_append(session, handle)?;
                Reply::Done
            }
            Request::AppendUnlock { handle } => {
                let ino = self.handles.get(session, handle)?.ino();
                self.unlock_append(node, ino, (session, handle));
                Reply::Done
            }
            Request::Lock {
                handle,
                lock,
                ticket,
            } => return self.lock_file(node, requester, handle, lock, ticket),
            Request::Unlock {
                handle,
                owner,
                start,
                end,
            } => return self.unlock_file(node, requester, (handle, owner), (start, end)),
            Request::TestLock { handle, lock } => {
                return self.test_lock::<O>(requester, handle, lock);
            }
            Request::AwaitLocks { known } => return self.await_locks(node, requester, &known),
            Request::CancelLock { ticket } => return self.cancel_lock::<O>(requester, ticket),
            Request::Permit { handle } => return self.renew_capability(node, requester, handle),
            Request::Close { handle, .. } => {
                self.close(node, session, handle);
                Reply::Done
            }
            Request::CloseAll { handles } if handles.len() > MAX_CLOSED_HANDLES => {
                return Err(Errno::EINVAL);
            }
            Request::CloseAll { handles } => {
                for handle in handles {
                    self.close(node, session, handle);
                }
                Reply::Done
            }
            Request::Sync { handle, data_only } => {
                return self.sync(node, requester, handle, (data_only, false));
            }
            Request::SyncRest { handle } => {
                // Only a client on this host can have synced the data.
                let by_client = requester.origin.is_local;
                return self.sync(node, requester, Some(handle), (by_client, by_client));
            }
            Request::Make {
                parent,
                name,
                new,
                mode,
            } => return self.make(node, requester, (parent, &name), new, mode),
            Request::Create {
                parent,
                name,
                mode,
                exclusive,
                handle,
                open,
            } => {
                let file = CreateFile {
                    parent,
                    name: &name,
                    mode,
                    exclusive,
                    handle,
                    open,
                };
                return self.create(node, requester, &file);
            }
            Request::Put {
                parent,
                name,
                set,
                data,
            } => return self.put(node, requester, (parent, &name), &set, &data),
            Request::Link { ino, parent, name } => {
                return self.link(node, requester, ino, (parent, &name));
            }
            Request::Unlink { parent, name } => {
                return self.remove(node, requester, (parent, &name), false);
            }
            Request::RmDir { parent, name } => {
                return self.remove(node, requester, (parent, &name), true);
            }
            Request::Rename {
                parent,
                name,
                to,
                to_name,
                existing,
            } => return self.rename(node, requester, (parent, &name), (to, &to_name), existing),
            Request::SetAttr { ino, handle, set } => {
                return self.handle_set_attr(node, requester, (ino, handle), &set);
            }
            Request::SetXattr {
                ino,
                name,
                value,
                mode,
            } => return self.set_xattr(node, requester, (ino, &name), Some(&value), mode),
            Request::RemoveXattr { ino, name } => {
                let mode = XattrMode::Replace;
                return self.set_xattr(node, requester, (ino, &name), None, mode);
            }
            Request::Open { ino, handle, open } => {
                return self.open(node, requester, ino, handle, open);
            }
            Request::OpenObject {
                handle,
                capability,
                open,
            } => return self.open_piece(node, requester, handle, &capability, open),
            Request::Reserve {
                handle,
                returned,
                want,
            } => return self.reserve(node, requester, handle, (returned, want)),
            Request::Allocate {
                handle,
                offset,
                length,
                what,
            } => return self.allocate(node, requester, handle, (offset, length), what),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        Ok(Outcome::Reply(reply))
    }

    fn read_link(&self, ino: Ino) -> Result<Reply, Errno> {
        match &self.names().find(ino)?.body {
            Body::Symlink(target) => Ok(Reply::Bytes(target.clone())),
            Body::File | Body::Striped(_) | Body::Dir(_) | Body::Special(..) => Err(Errno::EINVAL),
        }
    }

    fn get_xattr(&self, requester: &Requester, ino: Ino, name: &[u8]) -> Result<Reply, Errno> {
        let inode = self.names().find(ino)?;
        if name.starts_with(b"user.") {
            requester.who.check_access(inode, READ)?;
        }
        let value = inode.xattrs.get(name).cloned();
        value.map(Reply::Bytes).ok_or(Errno::ENODATA)
    }
}
