//! Renames, the operation with the most rules.

use super::plan::{WRITE, check_name};
use super::{Access, Change, Inode, Namespace};
use forebay_protocol::Credentials;
use forebay_protocol::message::OnExisting;
use forebay_protocol::{Errno, Ino, Timestamp};

/// A name in a directory.
pub type EntryRef<'a> = (Ino, &'a [u8]);

impl Namespace {
    /// Plan to rename `from` to `to`. `None`: both are names of the same inode, and nothing changes.
    pub fn plan_rename(
        &self,
        user: &Credentials,
        from: EntryRef<'_>,
        to: EntryRef<'_>,
        existing: OnExisting,
        now: Timestamp,
    ) -> Result<Option<Change>, Errno> {
        self.check_rename(from.1, to.1)?;
        let source = self.lookup(user, from.0, from.1)?;
        let target = match self.lookup(user, to.0, to.1) {
            Ok(ino) => Some(ino),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        match (existing, target) {
            (OnExisting::Fail, Some(_)) => return Err(Errno::EEXIST),
            (OnExisting::Exchange, None) => return Err(Errno::ENOENT),
            (OnExisting::Replace, _)
            | (OnExisting::Fail, None)
            | (OnExisting::Exchange, Some(_)) => {}
        }
        let (from_dir, _) = self.writable_dir(user, from.0)?;
        let (to_dir, _) = self.writable_dir(user, to.0)?;
        let moving = self.find(source)?;
        self.check_sticky(user, from_dir, moving)?;
        self.may_move(user, moving, source, from.0, to.0)?;
        if let Some(target) = target {
            let replaced = self.find(target)?;
            self.check_sticky(user, to_dir, replaced)?;
            if existing == OnExisting::Exchange {
                self.may_move(user, replaced, target, to.0, from.0)?;
            } else {
                if source == target {
                    return Ok(None);
                }
                may_replace(moving, replaced)?;
            }
        }
        let (name, to_name) = (from.1.to_vec(), to.1.to_vec());
        Ok(Some(Change::Rename { parent: from.0, name, to: to.0, to_name, existing, now }))
    }

    /// Check that both names may be renamed.
    pub fn check_rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        for name in [from, to] {
            match (check_name(name), name) {
                (Err(_), b"." | b"..") => return Err(Errno::EBUSY),
                (result, _) => result?,
            }
        }
        Ok(())
    }

    /// Check that a directory may get another parent: it must be writable, because its `..` changes,
    /// and must not move below itself.
    fn may_move(
        &self,
        user: &Credentials,
        inode: &Inode,
        ino: Ino,
        from: Ino,
        to: Ino,
    ) -> Result<(), Errno> {
        if inode.dir().is_none() || from == to {
            return Ok(());
        }
        let mut at = to;
        loop {
            if at == ino {
                return Err(Errno::EINVAL);
            }
            if at == Ino::ROOT {
                break;
            }
            at = self.find_dir(at)?.1.parent;
        }
        user.check_access(inode, WRITE)
    }
}

fn may_replace(moving: &Inode, replaced: &Inode) -> Result<(), Errno> {
    match (moving.dir(), replaced.dir()) {
        (Some(_), None) => Err(Errno::ENOTDIR),
        (None, Some(_)) => Err(Errno::EISDIR),
        (Some(_), Some(dir)) if !dir.is_empty() => Err(Errno::ENOTEMPTY),
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}
