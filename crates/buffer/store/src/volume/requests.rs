//! A request of a client, from its arrival at the volume to the sub-state it is about.

use super::Volume;
use super::files::CreateFile;
use crate::context::{Context, Handled, Origin, Outcome, Requester};
use crate::namespace::{Access, Body, EXEC, READ, WRITE};
use crate::objects::Objects;
use crate::state::SlotResult;
use forebay_protocol::message::{
    FileRequest, FoundExtent, InodeRequest, LockRequest, MAX_CLOSED_HANDLES, NameRequest,
    PathOperation, StatFs, TrailingField, XattrMode,
};
use forebay_protocol::{Call, Credentials, Errno, Ino, Reply, Request};

impl<O: Objects> Volume<O> {
    /// Whether a request must wait for the end of a transaction, a task or another client's append.
    /// `is_repeated`: it is the last change made through its slot.
    pub fn blocks(&self, origin: &Origin, is_repeated: bool, request: &Request) -> bool {
        // Its transaction may not have been applied everywhere.
        if is_repeated && self.coordinator.has_recalled() {
            return true;
        }
        if is_repeated && self.is_in_progress(origin) {
            return true;
        }
        if let Request::File(FileRequest::AppendLock { handle }) = request {
            return self.handles.append_is_blocked(origin.session, *handle);
        }
        !self.tx_locks.is_empty() && self.tx_locks.block(self.names(), request)
    }

    /// Whether a call has a transaction or task that other nodes have not completed. Names and inodes
    /// of a repeated call do not tell: its path may lead elsewhere by now.
    pub fn is_in_progress(&self, origin: &Origin) -> bool {
        let own = |other: &Origin| {
            (other.session, other.slot, other.seq) == (origin.session, origin.slot, origin.seq)
        };
        self.tasks.origins().any(|other| own(&other))
            || self.coordinator.calls().any(|requester| own(&requester.origin))
    }

    /// Whether a call has made a file without a name that does not exist any more, because nobody had it open
    /// after a restart. The repetition of the call makes another one.
    pub fn is_dropped(&self, request: &Request, result: SlotResult) -> bool {
        let request = match request {
            Request::Name(request) => request,
            Request::Path(path) => match &path.operation {
                PathOperation::Name(request) => request,
                PathOperation::Inode(_) | PathOperation::File(_) => return false,
            },
            _ => return false,
        };
        matches!((request, result), (NameRequest::CreateUnnamed { .. }, SlotResult::Opened(ino, true))
            if self.names().get(ino).is_none())
    }

    /// Reply to the repetition of a call that led to `result`.
    pub fn repeat(
        &mut self,
        node: &mut Context<O>,
        origin: &Origin,
        user: impl FnOnce() -> Result<Credentials, Errno>,
        request: &Request,
        result: SlotResult,
    ) -> Handled<O> {
        let reply = match result {
            SlotResult::Done => Reply::Done,
            SlotResult::Referral(ino, kind) => Reply::Referral { ino, kind },
            SlotResult::Attr(ino) => Reply::Attr(self.attr(ino)?),
            SlotResult::Opened(ino, created) => {
                let (Request::Name(
                    NameRequest::Create { handle, open, .. }
                    | NameRequest::CreateUnnamed { handle, open, .. },
                )
                | Request::File(FileRequest::Open { handle, open, .. })) = request
                else {
                    return Err(Errno::ESTALE);
                };
                let handle = (*handle, *open);
                return self.repeat_open(node, origin, user, (ino, created), handle);
            }
        };
        Ok(Outcome::Reply(reply))
    }

    pub fn call(&mut self, node: &mut Context<O>, requester: Requester, call: Call) -> Handled<O> {
        if self.is_striped()
            && let Some(plan) = self.plan_transaction(node, &requester, &call.request)?
        {
            self.begin_transaction(node, requester, call, plan);
            return Ok(Outcome::Deferred);
        }
        match call.request {
            Request::Name(request) => self.name_request(node, &requester, request),
            Request::Inode(request) => self.inode_request(node, &requester, request),
            Request::File(request) => self.file_request(node, &requester, request),
            Request::Lock(request) => self.lock_request(node, &requester, request),
            // Data has connections of its own, and administrators have sessions of their own. Paths
            // are resolved before.
            Request::Session(_)
            | Request::Admin(_)
            | Request::Data(_)
            | Request::Path(_)
            | Request::Peer(_)
            | Request::Delegated(_)
            | Request::Batch(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    fn name_request(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        request: NameRequest,
    ) -> Handled<O> {
        match request {
            NameRequest::Lookup { parent, name } => self.lookup(requester, parent, &name),
            NameRequest::ReadLink { ino } => match &self.names().find(ino)?.body {
                Body::Symlink(target) => Ok(Outcome::Reply(Reply::Bytes(target.clone()))),
                Body::File | Body::Striped(_) | Body::Dir(_) | Body::Special(..) => {
                    Err(Errno::EINVAL)
                }
            },
            NameRequest::ReadDir { ino, cookie, bytes, attrs } => {
                self.read_dir(requester, ino, cookie, (bytes, attrs))
            }
            NameRequest::Mknod { parent, name, new, mode } => {
                self.make(node, requester, (parent, &name), new, mode)
            }
            NameRequest::Create { parent, name, mode, exclusive, handle, open } => {
                let file = CreateFile { parent, name: &name, mode, exclusive, handle, open };
                match requester.reported_at {
                    Some(_) => self.name_prepared_file(node, requester, &file),
                    None => self.create(node, requester, &file),
                }
            }
            NameRequest::CreateUnnamed { handle, open, .. } if requester.reported_at.is_some() => {
                self.prepare_file(node, requester, (handle, open))
            }
            NameRequest::CreateUnnamed { parent, mode, linkable, handle, open } => {
                self.create_unnamed(node, requester, (parent, mode, linkable), (handle, open))
            }
            NameRequest::PutFile { parent, name, set, data } => {
                self.put(node, requester, (parent, &name), &set, &data)
            }
            NameRequest::Unlink { parent, name } => {
                self.remove(node, requester, (parent, &name), false)
            }
            NameRequest::RmDir { parent, name } => {
                self.remove(node, requester, (parent, &name), true)
            }
            NameRequest::Rename { parent, name, to, to_name, existing } => {
                self.rename(node, requester, (parent, &name), (to, &to_name), existing)
            }
            NameRequest::Link { ino, parent, name } => {
                self.link(node, requester, ino, (parent, &name))
            }
        }
    }

    fn inode_request(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        request: InodeRequest,
    ) -> Handled<O> {
        let reply = match request {
            InodeRequest::GetAttr { ino } => Reply::Attr(self.attr(ino)?),
            InodeRequest::GetAttrs { inos } => Reply::Attrs(self.attrs(&inos)?),
            InodeRequest::SetAttr { ino, handle, set } => {
                return self.handle_set_attr(node, requester, (ino, handle), &set);
            }
            InodeRequest::Access { ino, mask } => {
                let inode = self.names().find(ino)?;
                let wanted = mask & (READ | WRITE | EXEC);
                requester.user.check_access(inode, wanted)?;
                Reply::Done
            }
            InodeRequest::SetXattr { ino, name, value, mode } => {
                return self.set_xattr(node, requester, (ino, &name), Some(&value), mode);
            }
            InodeRequest::GetXattr { ino, name } => self.get_xattr(requester, ino, &name)?,
            InodeRequest::ListXattr { ino } => {
                let names = self.names().find(ino)?.xattr_names();
                let names = names.filter(|name| shows_xattr(requester, name));
                Reply::Names(names.map(<[u8]>::to_vec).collect())
            }
            InodeRequest::RemoveXattr { ino, name } => {
                let mode = XattrMode::Replace;
                return self.set_xattr(node, requester, (ino, &name), None, mode);
            }
            InodeRequest::GetFile { ino } => return self.fetch(node, requester, ino),
            InodeRequest::StatFs => Reply::StatFs(self.statfs(node)),
            InodeRequest::StatObjects { inos } => Reply::Objects(self.object_infos(&inos)?),
            InodeRequest::LendSpace { want } => {
                Reply::SpaceGranted(self.space.lend(self.state.spec.capacity, want))
            }
        };
        Ok(Outcome::Reply(reply))
    }

    /// Space and inodes. There are only as many inodes as the node has memory for.
    fn statfs(&self, node: &Context<O>) -> StatFs {
        let inodes_used = self.names().len() as u64;
        let inodes = inodes_used.saturating_add(self.free_inodes(&node.memory));
        StatFs {
            capacity: self.state.spec.capacity,
            used: self.space.used(),
            inodes: inodes.min(self.state.spec.inodes.max(inodes_used)),
            inodes_used,
            share: TrailingField(self.space.share_of(self.state.spec.capacity)),
        }
    }

    fn get_xattr(&self, requester: &Requester, ino: Ino, name: &[u8]) -> Result<Reply, Errno> {
        let inode = self.names().find(ino)?;
        if name.starts_with(b"user.") {
            requester.user.check_access(inode, READ)?;
        }
        let value = inode.xattrs.get(name).filter(|_| shows_xattr(requester, name)).cloned();
        value.map(Reply::Bytes).ok_or(Errno::ENODATA)
    }

    fn file_request(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        request: FileRequest,
    ) -> Handled<O> {
        let session = requester.origin.session;
        match request {
            FileRequest::Open { ino, handle, open } => {
                return self.open(node, requester, ino, handle, open);
            }
            FileRequest::OpenObject { handle, capability, open } => {
                return self.open_piece(node, requester, handle, &capability, open);
            }
            FileRequest::Close { handle, .. } => self.close(node, session, handle),
            FileRequest::CloseAll { handles } => {
                if handles.len() > MAX_CLOSED_HANDLES {
                    return Err(Errno::EINVAL);
                }
                for handle in handles {
                    self.close(node, session, handle);
                }
            }
            FileRequest::RenewCapability { handle, position } => {
                return self.renew_capability(node, requester, handle, position);
            }
            FileRequest::ReserveSpace { handle, returned, want, lent: TrailingField(lent) } => {
                self.space.borrow(self.state.spec.capacity, lent);
                return self.reserve(node, requester, handle, (returned, want));
            }
            FileRequest::Allocate { handle, offset, length, what } => {
                return self.allocate(node, requester, handle, (offset, length), what);
            }
            FileRequest::Seek { handle, offset, hole } => {
                let ino = self.handles.get(session, handle)?.ino;
                let found = match self.objects.seek(self.object(ino), offset, hole) {
                    // A node has an object only if something was written there.
                    Err(Errno::ENOENT) => FoundExtent::default(),
                    found => found?,
                };
                return Ok(Outcome::Reply(Reply::Extent(found)));
            }
            FileRequest::Sync { handle, data_only } => {
                return self.sync(node, requester, handle, (data_only, false));
            }
            FileRequest::SyncMetadata { handle } => {
                // Only a client that holds the descriptor can have synced the data.
                let by_client = requester.origin.passes_descriptors;
                return self.sync(node, requester, Some(handle), (by_client, by_client));
            }
            FileRequest::AppendLock { handle } => self.handles.lock_append(session, handle)?,
            FileRequest::AppendUnlock { handle } => {
                let ino = self.handles.get(session, handle)?.ino;
                self.unlock_append(node, ino, (session, handle));
            }
        }
        Ok(Outcome::Reply(Reply::Done))
    }

    fn lock_request(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        request: LockRequest,
    ) -> Handled<O> {
        match request {
            LockRequest::Acquire { handle, lock, ticket } => {
                self.lock_file(node, requester, handle, lock, ticket)
            }
            LockRequest::Release { handle, owner, start, end } => {
                self.unlock_file(node, requester, (handle, owner), (start, end))
            }
            LockRequest::Test { handle, lock } => self.test_lock(requester, handle, lock),
            LockRequest::AwaitEvents { known, returned, cache } => {
                self.await_events(node, requester, (&known, &returned), cache)
            }
            LockRequest::Cancel { ticket } => self.cancel_lock(requester, ticket),
            LockRequest::Lease { handles } => self.lease(node, requester, &handles),
            LockRequest::WriteLease { handle } => self.write_lease(node, requester, handle),
        }
    }
}

/// Whether a user sees an extended attribute of this name.
fn shows_xattr(requester: &Requester, name: &[u8]) -> bool {
    !name.starts_with(b"trusted.") || requester.user.uid == 0
}
