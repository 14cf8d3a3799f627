//! The steps that a request which concerns several nodes takes on each of them, and their order.

use crate::context::{Context, Requester};
use crate::log::LogSpace;
use crate::namespace::{Change, Namespace};
use crate::objects::Objects;
use crate::volume::Volume;
use forebay_protocol::message::{NameRequest, NewInode, OnExisting};
use forebay_protocol::peer::{Step, StepResult};
use forebay_protocol::{Credentials, Errno, FileKind, Ino, NodeIndex, Request, Timestamp};

/// A name in a directory.
type NameAt = (Ino, Vec<u8>);

#[derive(Clone, Debug)]
pub enum Plan {
    /// Make a directory on another node.
    MakeDir { at: NameAt, step: Step, node: NodeIndex, made: Option<Ino> },
    /// Remove a name of an inode on another node.
    Remove { at: NameAt, ino: Ino, dir: bool, owner_only: bool },
    /// Add a name of an inode on another node.
    Link { at: NameAt, ino: Ino, kind: Option<FileKind> },
    /// Rename an inode, or exchange two.
    Rename(Rename),
}

#[derive(Clone, Debug)]
pub struct Rename {
    from: NameAt,
    to: NameAt,
    existing: OnExisting,
    moving: (Ino, FileKind),
    owner_only: bool,
    replaced: Option<(Ino, FileKind)>,
    replaced_owner_only: bool,
}

/// The next part of a transaction.
pub enum Next {
    /// Steps that nodes are to be prepared for.
    Round(Vec<(NodeIndex, Step)>),
    /// Paths to walk: from a directory up to the root, on which another directory must not be.
    Walk(Vec<(Ino, Ino)>),
    Decide,
    /// The request changes nothing.
    Nothing,
}

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
        mode: u16,
    ) -> Result<Option<Plan>, Errno> {
        let placement = &self.state.spec.placement;
        let node = placement.layout().metadata_node_for_dir(parent, name);
        if node == placement.node {
            return Ok(None);
        }
        let inode = self.names().plan_make(user, parent, name, NewInode::Dir, mode)?;
        Ok(Some(Plan::MakeDir {
            at: (parent, name.to_vec()),
            step: Step::MakeDir { parent, mode: inode.mode, uid: inode.uid, gid: inode.gid },
            node,
            made: None,
        }))
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

impl Plan {
    /// The name that the coordinator locks at the beginning.
    pub fn first_name(&self) -> &NameAt {
        match self {
            Plan::MakeDir { at, .. } | Plan::Remove { at, .. } | Plan::Link { at, .. } => at,
            Plan::Rename(rename) => &rename.from,
        }
    }

    /// The next part after `round` rounds and walks, the last of which found `found`.
    pub fn next(&mut self, round: u8, found: &[StepResult]) -> Result<Next, Errno> {
        match self {
            Plan::MakeDir { step, node, made, .. } => match (round, found) {
                (0, _) => Ok(Next::Round(vec![(*node, step.clone())])),
                (_, [StepResult::Inode(ino, _)]) => {
                    *made = Some(*ino);
                    Ok(Next::Decide)
                }
                _ => Err(Errno::EPROTO),
            },
            Plan::Remove { ino, dir, owner_only, .. } => {
                let step = Step::RemoveLink { ino: *ino, dir: *dir, owner_only: *owner_only };
                Ok(match round {
                    0 => Next::Round(vec![(ino.metadata_node(), step)]),
                    _ => Next::Decide,
                })
            }
            Plan::Link { ino, kind, .. } => match (round, found) {
                (0, _) => {
                    let step = Step::AddLink { ino: *ino };
                    Ok(Next::Round(vec![(ino.metadata_node(), step)]))
                }
                (_, [StepResult::Inode(_, is)]) => {
                    *kind = Some(*is);
                    Ok(Next::Decide)
                }
                _ => Err(Errno::EPROTO),
            },
            Plan::Rename(rename) => rename.next(round, found),
        }
    }

    /// The change of a name on the coordinator, and the inode that got the name.
    pub fn conclusion(&self, now: Timestamp) -> (Change, Option<(Ino, FileKind)>) {
        let entry = |at: &NameAt, put| Change::SetEntry { dir: at.0, name: at.1.clone(), put, now };
        match self {
            Plan::MakeDir { at, made, .. } => {
                let ino = made.unwrap_or_else(|| unreachable!("the directory was prepared"));
                let inode = Some((ino, FileKind::Dir));
                (entry(at, inode), inode)
            }
            Plan::Remove { at, .. } => (entry(at, None), None),
            Plan::Link { at, ino, kind } => {
                let kind = kind.unwrap_or_else(|| unreachable!("the inode was prepared"));
                let inode = Some((*ino, kind));
                (entry(at, inode), inode)
            }
            Plan::Rename(rename) => {
                let is_exchange = rename.existing == OnExisting::Exchange;
                let back = rename.replaced.filter(|_| is_exchange);
                (entry(&rename.from, back), None)
            }
        }
    }
}

impl Rename {
    fn next(&mut self, round: u8, found: &[StepResult]) -> Result<Next, Errno> {
        let across = self.from.0 != self.to.0;
        match round {
            0 => {
                let may_be_dir =
                    self.moving.1 == FileKind::Dir || self.existing == OnExisting::Exchange;
                let lock = (across && may_be_dir).then_some((NodeIndex(0), Step::LockRenames));
                Ok(Next::Round(lock.into_iter().collect()))
            }
            1 => {
                let step = Step::InsertEntry {
                    dir: self.to.0,
                    name: self.to.1.clone(),
                    ino: self.moving.0,
                    kind: self.moving.1,
                    existing: self.existing,
                };
                Ok(Next::Round(vec![(self.to.0.metadata_node(), step)]))
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
            3 => Ok(Next::Round(self.moves(across))),
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

    /// The steps that change the inodes.
    fn moves(&self, across: bool) -> Vec<(NodeIndex, Step)> {
        let step = |(ino, kind): (Ino, FileKind), to: Ino, owner_only| Step::ChangeParent {
            ino,
            parent: (across && kind == FileKind::Dir).then_some(to),
            owner_only,
        };
        let mut steps =
            vec![(self.moving.0.metadata_node(), step(self.moving, self.to.0, self.owner_only))];
        if let Some(replaced) = self.replaced {
            let owner_only = self.replaced_owner_only;
            let step = match self.existing {
                OnExisting::Exchange => step(replaced, self.from.0, owner_only),
                OnExisting::Replace | OnExisting::Fail => Step::RemoveLink {
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
