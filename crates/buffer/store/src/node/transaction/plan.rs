//! What a request that concerns several nodes needs of each of them, and in which order.

use crate::log::LogSpace;
use crate::namespace::{Change, Namespace};
use crate::node::{Context, Shard};
use crate::objects::Objects;
use forebay_protocol::Credentials;
use forebay_protocol::message::NameRequest;
use forebay_protocol::message::{NewInode, OnExisting};
use forebay_protocol::peer::{Step, StepResult};
use forebay_protocol::{Errno, FileKind, Ino, NodeIndex, Reply, Request, Timestamp};

/// A name in a directory.
type Place = (Ino, Vec<u8>);

/// What is to be done.
#[derive(Clone, Debug)]
pub(in crate::node) enum Plan {
    /// Make a directory on another node.
    MakeDir {
        at: Place,
        step: Step,
        node: NodeIndex,
        made: Option<Ino>,
    },
    /// Remove a name of an inode on another node.
    Remove {
        at: Place,
        ino: Ino,
        dir: bool,
        owner_only: bool,
    },
    /// Name an inode on another node.
    Link {
        at: Place,
        ino: Ino,
        kind: Option<FileKind>,
    },
    /// Change a name.
    Rename(Rename),
}

/// A change of name.
#[derive(Clone, Debug)]
pub(in crate::node) struct Rename {
    pub(super) from: Place,
    to: Place,
    existing: OnExisting,
    moving: (Ino, FileKind),
    owner_only: bool,
    replaced: Option<(Ino, FileKind)>,
    replaced_owner_only: bool,
}

/// What comes next.
pub(in crate::node) enum Next {
    Wave(Vec<(NodeIndex, Step)>),
    Walk(Vec<(Ino, Ino)>),
    Decide,
    /// There is nothing to do.
    Nothing,
}

impl<O: Objects> Shard<O> {
    /// Does this request need a transaction? The first checks are made here, and what fails them
    /// fails.
    pub(in crate::node) fn transaction(
        &self,
        context: &Context,
        request: &Request,
    ) -> Result<Option<Plan>, Errno> {
        let instance = self.names(context.instance)?;
        if !instance.spec.placement.is_distributed() {
            return Ok(None);
        }
        let plan = self.plan_transaction(context, request)?;
        match &plan {
            Some(Plan::Remove { .. }) => self.need_room(LogSpace::ReserveOnly)?,
            Some(_) => self.need_room(LogSpace::Normal)?,
            None => {}
        }
        Ok(plan)
    }

    /// The plan for a request that concerns other nodes, too.
    fn plan_transaction(
        &self,
        context: &Context,
        request: &Request,
    ) -> Result<Option<Plan>, Errno> {
        let names = &self.names(context.instance)?.names;
        match request {
            Request::Name(NameRequest::Mknod {
                parent,
                name,
                new: NewInode::Dir,
                mode,
            }) => self.plan_dir(context, (*parent, name), *mode),
            Request::Name(NameRequest::Unlink { parent, name })
                if is_elsewhere(names, *parent, name) =>
            {
                plan_removal(names, &context.who, (*parent, name), false).map(Some)
            }
            Request::Name(NameRequest::RmDir { parent, name })
                if is_elsewhere(names, *parent, name) =>
            {
                plan_removal(names, &context.who, (*parent, name), true).map(Some)
            }
            Request::Name(NameRequest::Link { ino, parent, name }) if !names.owns(*ino) => {
                names.check_new_entry(&context.who, *parent, name)?;
                Ok(Some(Plan::Link {
                    at: (*parent, name.clone()),
                    ino: *ino,
                    kind: None,
                }))
            }
            Request::Name(NameRequest::Rename {
                parent,
                name,
                to,
                to_name,
                existing,
            }) => {
                let (from, to) = ((*parent, name.as_slice()), (*to, to_name.as_slice()));
                if is_local_rename(names, from, to, *existing) {
                    return Ok(None);
                }
                plan_rename(names, &context.who, from, to, *existing).map(Some)
            }
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(
                NameRequest::Lookup { .. }
                | NameRequest::ReadLink { .. }
                | NameRequest::ReadDir { .. }
                | NameRequest::Mknod { .. }
                | NameRequest::Create { .. }
                | NameRequest::PutFile { .. }
                | NameRequest::Unlink { .. }
                | NameRequest::RmDir { .. }
                | NameRequest::Link { .. },
            )
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_) => Ok(None),
        }
    }

    /// A directory may have its home on another node than its name.
    fn plan_dir(
        &self,
        context: &Context,
        (parent, name): (Ino, &[u8]),
        mode: u16,
    ) -> Result<Option<Plan>, Errno> {
        let instance = self.names(context.instance)?;
        let place = &instance.spec.placement;
        let node = place.layout().metadata_node_for_dir(parent, name);
        if node == place.node {
            return Ok(None);
        }
        let (who, now) = (&context.who, self.now.wall);
        let names = &instance.names;
        let planned = names.plan_make(who, parent, name, NewInode::Dir, mode, now)?;
        let Change::Make { inode, .. } = planned else {
            return Err(Errno::EIO);
        };
        let step = Step::MakeDir {
            parent,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
        };
        Ok(Some(Plan::MakeDir {
            at: (parent, name.to_vec()),
            step,
            node,
            made: None,
        }))
    }
}

/// The removal of a name of something whose home is another node: of a directory if `dir`, else of
/// anything else.
fn plan_removal(
    names: &Namespace,
    who: &Credentials,
    (parent, name): (Ino, &[u8]),
    dir: bool,
) -> Result<Plan, Errno> {
    let (ino, kind, owner_only) = names.check_entry_removal(who, parent, name)?;
    match (dir, kind == FileKind::Dir) {
        (true, false) => return Err(Errno::ENOTDIR),
        (false, true) => return Err(Errno::EISDIR),
        _ => {}
    }
    Ok(Plan::Remove {
        at: (parent, name.to_vec()),
        ino,
        dir,
        owner_only,
    })
}

fn plan_rename(
    names: &Namespace,
    who: &Credentials,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    existing: OnExisting,
) -> Result<Plan, Errno> {
    names.check_rename(from.1, to.1)?;
    let (ino, kind, owner_only) = names.check_entry_removal(who, from.0, from.1)?;
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

impl Plan {
    /// What comes after `wave` waves, the last of which found this.
    pub(super) fn next(&mut self, wave: u8, found: &[StepResult]) -> Result<Next, Errno> {
        match self {
            Plan::MakeDir {
                step, node, made, ..
            } => match (wave, found) {
                (0, _) => Ok(Next::Wave(vec![(*node, step.clone())])),
                (_, [StepResult::Inode(ino, _)]) => {
                    *made = Some(*ino);
                    Ok(Next::Decide)
                }
                _ => Err(Errno::EPROTO),
            },
            Plan::Remove {
                ino,
                dir,
                owner_only,
                ..
            } => {
                let step = Step::RemoveLink {
                    ino: *ino,
                    dir: *dir,
                    owner_only: *owner_only,
                };
                Ok(match wave {
                    0 => Next::Wave(vec![(ino.metadata_node(), step)]),
                    _ => Next::Decide,
                })
            }
            Plan::Link { ino, kind, .. } => match (wave, found) {
                (0, _) => {
                    let step = Step::AddLink { ino: *ino };
                    Ok(Next::Wave(vec![(ino.metadata_node(), step)]))
                }
                (_, [StepResult::Inode(_, is)]) => {
                    *kind = Some(*is);
                    Ok(Next::Decide)
                }
                _ => Err(Errno::EPROTO),
            },
            Plan::Rename(rename) => rename.next(wave, found),
        }
    }

    /// What changes where the names are that the coordinator itself has, and the reply.
    pub(in crate::node) fn conclusion(&self, now: Timestamp) -> (Vec<Change>, Reply) {
        let entry = |at: &Place, put| Change::SetEntry {
            dir: at.0,
            name: at.1.clone(),
            put,
            now,
        };
        match self {
            Plan::MakeDir { at, made, .. } => {
                let ino = made.unwrap_or_default();
                let reply = Reply::Referral {
                    ino,
                    kind: FileKind::Dir,
                };
                (vec![entry(at, Some((ino, FileKind::Dir)))], reply)
            }
            Plan::Remove { at, .. } => (vec![entry(at, None)], Reply::Done),
            Plan::Link { at, ino, kind } => {
                let (ino, kind) = (*ino, kind.unwrap_or(FileKind::File));
                (
                    vec![entry(at, Some((ino, kind)))],
                    Reply::Referral { ino, kind },
                )
            }
            Plan::Rename(rename) => {
                let back = rename
                    .replaced
                    .filter(|_| rename.existing == OnExisting::Exchange);
                (vec![entry(&rename.from, back)], Reply::Done)
            }
        }
    }
}

impl Rename {
    fn next(&mut self, wave: u8, found: &[StepResult]) -> Result<Next, Errno> {
        let across = self.from.0 != self.to.0;
        match wave {
            0 => {
                let may_be_dir =
                    self.moving.1 == FileKind::Dir || self.existing == OnExisting::Exchange;
                let lock = (across && may_be_dir).then_some((NodeIndex(0), Step::LockRenames));
                Ok(Next::Wave(lock.into_iter().collect()))
            }
            1 => {
                let step = Step::InsertEntry {
                    dir: self.to.0,
                    name: self.to.1.clone(),
                    ino: self.moving.0,
                    kind: self.moving.1,
                    existing: self.existing,
                };
                Ok(Next::Wave(vec![(self.to.0.metadata_node(), step)]))
            }
            2 => {
                let [StepResult::Entry(replaced, owner_only)] = found else {
                    return Err(Errno::EPROTO);
                };
                (self.replaced, self.replaced_owner_only) = (*replaced, *owner_only);
                if replaced.is_some_and(|(ino, _)| ino == self.moving.0) {
                    return Ok(Next::Nothing);
                }
                Ok(Next::Walk(self.walks(across)))
            }
            3 => Ok(Next::Wave(self.moves(across))),
            _ => Ok(Next::Decide),
        }
    }

    /// Which directories must not be met on the way up from where.
    fn walks(&self, across: bool) -> Vec<(Ino, Ino)> {
        let mut walks = Vec::new();
        if across && self.moving.1 == FileKind::Dir {
            walks.push((self.to.0, self.moving.0));
        }
        if let Some((ino, FileKind::Dir)) = self.replaced
            && across
            && self.existing == OnExisting::Exchange
        {
            walks.push((self.from.0, ino));
        }
        walks
    }

    /// What becomes of the inodes.
    fn moves(&self, across: bool) -> Vec<(NodeIndex, Step)> {
        let step = |(ino, kind): (Ino, FileKind), to: Ino, owner_only| Step::ChangeParent {
            ino,
            parent: (across && kind == FileKind::Dir).then_some(to),
            owner_only,
        };
        let mut steps = vec![(
            self.moving.0.metadata_node(),
            step(self.moving, self.to.0, self.owner_only),
        )];
        if let Some(replaced) = self.replaced {
            let owner_only = self.replaced_owner_only;
            let step = match self.existing {
                OnExisting::Exchange => step(replaced, self.from.0, owner_only),
                _ => Step::RemoveLink {
                    ino: replaced.0,
                    dir: replaced.1 == FileKind::Dir,
                    owner_only,
                },
            };
            steps.push((replaced.0.metadata_node(), step));
        }
        steps
    }
}

fn entry(names: &Namespace, dir: Ino, name: &[u8]) -> Option<(Ino, FileKind)> {
    let entry = names.get(dir)?.dir()?.entry(name)?;
    Some((entry.ino, entry.kind))
}

/// Does a name here lead to an inode on another node?
fn is_elsewhere(names: &Namespace, dir: Ino, name: &[u8]) -> bool {
    entry(names, dir, name).is_some_and(|(ino, _)| !names.owns(ino))
}

/// Does a change of name concern nothing but what is here? Directories that get another parent
/// never do: what they are below must be looked up.
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
