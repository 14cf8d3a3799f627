//! Steps of transactions: checked, and planned as changes and locks.

use super::plan::{EXEC, WRITE, check_name, check_new_link};
use super::{Access, Change, Entry, Inode, Namespace};
use forebay_protocol::Credentials;
use forebay_protocol::acl::InheritedAcls;
use forebay_protocol::message::OnExisting;
use forebay_protocol::peer::{Step, StepResult};
use forebay_protocol::{Errno, FileKind, Ino, Timestamp};
use serde::{Deserialize, Serialize};

/// A lock that a transaction holds until it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TxLock {
    /// On a name in a directory.
    Name(Ino, Vec<u8>),
    /// On an inode: its link count, and its use as a directory.
    Inode(Ino),
    /// On the right to move directories.
    Renames,
}

/// A step that can be carried out.
#[derive(Debug)]
pub struct PreparedStep {
    /// The changes that it consists of.
    pub changes: Vec<Change>,
    /// The findings for the coordinator.
    pub found: StepResult,
}

/// The lock that a step takes.
pub fn lock_for_step(step: &Step) -> Option<TxLock> {
    match step {
        Step::MakeDir { .. } | Step::MakeDirWithAcls { .. } => None,
        Step::InsertEntry { dir, name, .. } => Some(TxLock::Name(*dir, name.clone())),
        Step::RemoveLink { ino, .. } | Step::AddLink { ino } | Step::ChangeParent { ino, .. } => {
            Some(TxLock::Inode(*ino))
        }
        Step::LockRenames => Some(TxLock::Renames),
    }
}

impl Namespace {
    /// Check a step, and plan its changes.
    pub fn prepare_step(
        &self,
        user: &Credentials,
        step: &Step,
        now: Timestamp,
    ) -> Result<PreparedStep, Errno> {
        match step {
            Step::MakeDir { parent, mode, uid, gid } => {
                let attributes = (*mode, *uid, *gid);
                Ok(self.prepare_dir(*parent, attributes, InheritedAcls::default(), now))
            }
            Step::MakeDirWithAcls { parent, mode, uid, gid, acls } => {
                let acls = InheritedAcls(acls.clone());
                Ok(self.prepare_dir(*parent, (*mode, *uid, *gid), acls, now))
            }
            Step::InsertEntry { dir, name, ino, kind, existing } => {
                let (old, owner_only) = self.may_enter(user, *dir, name, *kind, *existing)?;
                let change = Change::SetEntry {
                    dir: *dir,
                    name: name.clone(),
                    put: Some((*ino, *kind)),
                    now,
                };
                Ok(PreparedStep {
                    changes: vec![change],
                    found: StepResult::Entry(old, owner_only),
                })
            }
            Step::RemoveLink { ino, dir, owner_only } => {
                let inode = self.find(*ino)?;
                check_owner(user, inode, *owner_only)?;
                match (inode.dir(), *dir) {
                    (Some(_), false) => return Err(Errno::EISDIR),
                    (None, true) => return Err(Errno::ENOTDIR),
                    (Some(entries), true) if !entries.is_empty() => return Err(Errno::ENOTEMPTY),
                    (Some(_), true) | (None, false) => {}
                }
                Ok(ready(Change::RemoveName { ino: *ino, now }))
            }
            Step::AddLink { ino } => {
                let inode = self.find(*ino)?;
                check_new_link(inode)?;
                Ok(PreparedStep {
                    changes: vec![Change::AddName { ino: *ino, now }],
                    found: StepResult::Inode(*ino, inode.kind()),
                })
            }
            Step::ChangeParent { ino, parent, owner_only } => {
                let inode = self.find(*ino)?;
                check_owner(user, inode, *owner_only)?;
                if parent.is_some() {
                    inode.dir().ok_or(Errno::ENOTDIR)?;
                    user.check_access(inode, WRITE)?;
                }
                Ok(ready(Change::MoveInode { ino: *ino, parent: *parent, now }))
            }
            Step::LockRenames => Ok(PreparedStep { changes: Vec::new(), found: StepResult::Ready }),
        }
    }

    /// Plan a directory whose name is on another node.
    fn prepare_dir(
        &self,
        parent: Ino,
        (mode, uid, gid): (u16, u32, u32),
        acls: InheritedAcls,
        now: Timestamp,
    ) -> PreparedStep {
        let ino = self.next_ino();
        let change = Change::MakeDir { ino, parent, mode, uid, gid, now }.with_acls(acls);
        PreparedStep { changes: vec![change], found: StepResult::Inode(ino, FileKind::Dir) }
    }

    /// Check that an inode of this kind may get a name. Returns the inode that has the name, and whether
    /// only its owner may remove that.
    fn may_enter(
        &self,
        user: &Credentials,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        existing: OnExisting,
    ) -> Result<(Option<(Ino, FileKind)>, bool), Errno> {
        check_name(name)?;
        let (inode, entries) = self.find_dir(dir)?;
        user.check_access(inode, EXEC)?;
        let old = entries.entry(name).map(|entry| (entry.ino, entry.kind));
        match (existing, old) {
            (OnExisting::Fail, Some(_)) => return Err(Errno::EEXIST),
            (OnExisting::Exchange, None) => return Err(Errno::ENOENT),
            (OnExisting::Replace, _)
            | (OnExisting::Fail, None)
            | (OnExisting::Exchange, Some(_)) => {}
        }
        self.writable_dir(user, dir)?;
        if existing == OnExisting::Replace
            && let Some((_, old)) = old
        {
            match (kind == FileKind::Dir, old == FileKind::Dir) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) | (false, false) => {}
            }
        }
        Ok((old, self.owner_only(user, inode)))
    }

    /// Check that `user` may remove an entry. Returns its inode and kind, and whether only the inode's owner
    /// may remove it.
    pub fn check_entry_removal(
        &self,
        user: &Credentials,
        dir: Ino,
        name: &[u8],
    ) -> Result<(Ino, FileKind, bool), Errno> {
        let entry = self.lookup_entry(user, dir, name)?;
        let found = (entry.ino, entry.kind);
        let (inode, _) = self.writable_dir(user, dir)?;
        Ok((found.0, found.1, self.owner_only(user, inode)))
    }

    /// An entry by a name other than `.` and `..`.
    pub fn lookup_entry(&self, user: &Credentials, dir: Ino, name: &[u8]) -> Result<&Entry, Errno> {
        let (inode, entries) = self.find_dir(dir)?;
        user.check_access(inode, EXEC)?;
        entries.entry(name).ok_or(Errno::ENOENT)
    }

    /// Whether only their owners may remove entries of a directory.
    fn owner_only(&self, user: &Credentials, dir: &Inode) -> bool {
        dir.mode & 0o1000 != 0 && !user.is_privileged() && user.uid != dir.uid
    }
}

fn check_owner(user: &Credentials, inode: &Inode, owner_only: bool) -> Result<(), Errno> {
    if owner_only && user.uid != inode.uid {
        return Err(Errno::EPERM);
    }
    Ok(())
}

fn ready(change: Change) -> PreparedStep {
    PreparedStep { changes: vec![change], found: StepResult::Ready }
}
