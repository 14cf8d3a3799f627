//! The steps that a request which concerns several nodes takes on each of them, and their order.

use crate::namespace::Change;
use forebay_protocol::message::OnExisting;
use forebay_protocol::peer::{Step, StepResult};
use forebay_protocol::{Errno, FileKind, Ino, NodeIndex, Timestamp};

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
    pub from: NameAt,
    pub to: NameAt,
    pub existing: OnExisting,
    pub moving: (Ino, FileKind),
    pub owner_only: bool,
    pub replaced: Option<(Ino, FileKind)>,
    pub replaced_owner_only: bool,
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

    /// The file that gets the name of another one.
    pub fn replacing_file(&self) -> Option<Ino> {
        let Plan::Rename(rename) = self else {
            return None;
        };
        let replaces_file = matches!(rename.replaced, Some((_, FileKind::File)))
            && rename.existing == OnExisting::Replace;
        (replaces_file && rename.moving.1 == FileKind::File).then_some(rename.moving.0)
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

    /// The walks up to the root, each with the directory that must not be on its path.
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
