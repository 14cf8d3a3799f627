//! The requests that take a transaction: those that concern other nodes.

use super::plan::{Plan, Rename};
use crate::context::{Context, Requester};
use crate::log::LogSpace;
use crate::namespace::Namespace;
use crate::objects::Objects;
use crate::volume::Volume;
use forebay_protocol::message::{CreateMode, NameRequest, NewInode, OnExisting};
use forebay_protocol::peer::Step;
use forebay_protocol::{Credentials, Errno, FileKind, Ino, Request};

impl<O: Objects> Volume<O> {
    /// The transaction that a request takes, if it concerns other nodes. The first checks are made here;
    /// a request that fails them fails.
    pub fn plan_transaction(
        &self,
        node: &Context<O>,
        requester: &Requester,
        request: &Request,
    ) -> Result<Option<Plan>, Errno> {
        let Request::Name(request) = request else {
            return Ok(None);
        };
        let (names, user) = (self.names(), &requester.user);
        let plan = match request {
            NameRequest::Mknod { parent, name, new: NewInode::Dir, mode } => {
                self.plan_make_dir(user, (*parent, name), *mode)?
            }
            NameRequest::Unlink { parent, name } if is_elsewhere(names, *parent, name) => {
                Some(plan_removal(names, user, (*parent, name), false)?)
            }
            NameRequest::RmDir { parent, name } if is_elsewhere(names, *parent, name) => {
                Some(plan_removal(names, user, (*parent, name), true)?)
            }
            NameRequest::Link { ino, parent, name } if !names.owns(*ino) => {
                names.check_new_entry(user, *parent, name)?;
                Some(Plan::Link { at: (*parent, name.clone()), ino: *ino, kind: None })
            }
            NameRequest::Rename { parent, name, to, to_name, existing } => {
                let (from, to) = ((*parent, name.as_slice()), (*to, to_name.as_slice()));
                if is_local_rename(names, from, to, *existing) {
                    None
                } else {
                    Some(plan_rename(names, user, from, to, *existing)?)
                }
            }
            NameRequest::Mknod { .. }
            | NameRequest::Unlink { .. }
            | NameRequest::RmDir { .. }
            | NameRequest::Link { .. }
            | NameRequest::Lookup { .. }
            | NameRequest::ReadLink { .. }
            | NameRequest::ReadDir { .. }
            | NameRequest::Create { .. }
            | NameRequest::CreateUnnamed { .. }
            | NameRequest::PutFile { .. } => None,
        };
        match &plan {
            Some(Plan::Remove { .. }) => node.require_log_space(LogSpace::ReserveOnly)?,
            Some(Plan::MakeDir { .. } | Plan::Link { .. } | Plan::Rename(_)) => {
                node.require_log_space(LogSpace::Normal)?;
            }
            None => {}
        }
        Ok(plan)
    }

    /// A directory may be on another node than its name.
    fn plan_make_dir(
        &self,
        user: &Credentials,
        (parent, name): (Ino, &[u8]),
        mode: CreateMode,
    ) -> Result<Option<Plan>, Errno> {
        let placement = &self.state.spec.placement;
        let node = placement.layout().metadata_node_for_dir(parent, name);
        if node == placement.node {
            return Ok(None);
        }
        let (inode, acls) = self.names().plan_make(user, parent, name, NewInode::Dir, mode)?;
        let (mode, uid, gid) = (inode.mode, inode.uid, inode.gid);
        let step = if acls.0.is_empty() {
            Step::MakeDir { parent, mode, uid, gid }
        } else {
            Step::MakeDirWithAcls { parent, mode, uid, gid, acls: acls.0 }
        };
        Ok(Some(Plan::MakeDir { at: (parent, name.to_vec()), step, node, made: None }))
    }
}

/// Plan the removal of a name of an inode on another node: of a directory if `dir`, of another inode
/// otherwise.
fn plan_removal(
    names: &Namespace,
    user: &Credentials,
    (parent, name): (Ino, &[u8]),
    dir: bool,
) -> Result<Plan, Errno> {
    let (ino, kind, owner_only) = names.check_entry_removal(user, parent, name)?;
    match (dir, kind == FileKind::Dir) {
        (true, false) => return Err(Errno::ENOTDIR),
        (false, true) => return Err(Errno::EISDIR),
        (true, true) | (false, false) => {}
    }
    Ok(Plan::Remove { at: (parent, name.to_vec()), ino, dir, owner_only })
}

fn plan_rename(
    names: &Namespace,
    user: &Credentials,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    existing: OnExisting,
) -> Result<Plan, Errno> {
    names.check_rename(from.1, to.1)?;
    let (ino, kind, owner_only) = names.check_entry_removal(user, from.0, from.1)?;
    Ok(Plan::Rename(Rename {
        from: (from.0, from.1.to_vec()),
        to: (to.0, to.1.to_vec()),
        existing,
        moving: (ino, kind),
        owner_only,
        replaced: None,
        replaced_owner_only: false,
    }))
}

fn entry(names: &Namespace, dir: Ino, name: &[u8]) -> Option<(Ino, FileKind)> {
    let entry = names.get(dir)?.dir()?.entry(name)?;
    Some((entry.ino, entry.kind))
}

/// Whether a name here leads to an inode on another node.
fn is_elsewhere(names: &Namespace, dir: Ino, name: &[u8]) -> bool {
    entry(names, dir, name).is_some_and(|(ino, _)| !names.owns(ino))
}

/// Whether a rename concerns only this node. A directory that gets another parent never does: the
/// directories above its new place must be checked.
fn is_local_rename(
    names: &Namespace,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    existing: OnExisting,
) -> bool {
    let source = entry(names, from.0, from.1);
    let target = entry(names, to.0, to.1);
    let own = |what: Option<(Ino, FileKind)>| what.is_none_or(|(ino, _)| names.owns(ino));
    let dir = |what: Option<(Ino, FileKind)>| what.is_some_and(|(_, kind)| kind == FileKind::Dir);
    let exchange = existing == OnExisting::Exchange;
    let moves_dir = from.0 != to.0 && (dir(source) || (exchange && dir(target)));
    names.owns(to.0) && own(source) && own(target) && !moves_dir
}
