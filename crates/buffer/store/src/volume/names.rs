//! Requests that change names and extended attributes.

use super::Volume;
use crate::context::{Handled, NodeContext, Outcome, Requester};
use crate::log::LogSpace;
use crate::namespace::Change;
use crate::objects::Objects;
use crate::state::SlotResult;
use forebay_protocol::message::{NewInode, OnExisting, XattrMode};
use forebay_protocol::{Errno, FileKind, Ino, Reply};

impl Volume {
    /// Look a name up.
    pub(super) fn lookup<O: Objects>(
        &self,
        node: &NodeContext<O>,
        requester: &Requester,
        parent: Ino,
        name: &[u8],
    ) -> Handled<O> {
        let ino = self.names().lookup(&requester.who, parent, name)?;
        Ok(Outcome::Reply(match self.elsewhere(parent, name, ino) {
            Some(elsewhere) => elsewhere,
            None => Reply::Attr(self.attr(node, ino)?),
        }))
    }

    /// Create an inode that is not opened.
    pub(super) fn make<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        requester: &Requester,
        (parent, name): (Ino, &[u8]),
        new: NewInode,
        mode: u16,
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (names, who) = (self.names(), &requester.who);
        let change = names.plan_make(who, parent, name, new, mode, node.now.wall)?;
        self.check_inode_limit()?;
        let Change::Make { inode, .. } = &change else {
            unreachable!("plan_make plans nothing else");
        };
        let ino = inode.ino;
        self.log_change(node, &requester.origin, change, SlotResult::Attr(ino));
        Ok(Outcome::Reply(Reply::Attr(self.attr(node, ino)?)))
    }

    pub(super) fn link<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        requester: &Requester,
        ino: Ino,
        (parent, name): (Ino, &[u8]),
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (names, who) = (self.names(), &requester.who);
        let change = names.plan_link(who, ino, parent, name, node.now.wall)?;
        self.log_change(node, &requester.origin, change, SlotResult::Attr(ino));
        Ok(Outcome::Reply(Reply::Attr(self.attr(node, ino)?)))
    }

    /// Remove a name: of a directory if `dir`, of another inode otherwise.
    pub(super) fn remove<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        requester: &Requester,
        (parent, name): (Ino, &[u8]),
        dir: bool,
    ) -> Handled<O> {
        node.require_log_space(LogSpace::ReserveOnly)?;
        let (names, who) = (self.names(), &requester.who);
        let change = names.plan_remove(who, parent, name, dir, node.now.wall)?;
        let ino = names.lookup(who, parent, name)?;
        self.log_change(node, &requester.origin, change, SlotResult::Done);
        self.drop_if_unused(node, ino);
        Ok(Outcome::Reply(Reply::Done))
    }

    pub(super) fn rename<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        requester: &Requester,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        existing: OnExisting,
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (names, who) = (self.names(), &requester.who);
        let replaced = names.lookup(who, to.0, to.1).ok();
        let planned = names.plan_rename(who, from, to, existing, node.now.wall)?;
        if let Some(change) = planned {
            self.log_change(node, &requester.origin, change, SlotResult::Done);
            if let Some(ino) = replaced {
                self.drop_if_unused(node, ino);
            }
        }
        Ok(Outcome::Reply(Reply::Done))
    }

    /// Set an extended attribute, or remove it without a `value`.
    pub(super) fn set_xattr<O: Objects>(
        &mut self,
        node: &mut NodeContext<O>,
        requester: &Requester,
        (ino, name): (Ino, &[u8]),
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Handled<O> {
        node.require_log_space(match value {
            Some(_) => LogSpace::Normal,
            None => LogSpace::ReserveOnly,
        })?;
        let (names, who) = (self.names(), &requester.who);
        let change = names.plan_xattr(who, ino, name, value, mode, node.now.wall)?;
        self.log_change(node, &requester.origin, change, SlotResult::Done);
        Ok(Outcome::Reply(Reply::Done))
    }

    /// The reply about an entry whose inode is on another node.
    pub(super) fn elsewhere(&self, parent: Ino, name: &[u8], ino: Ino) -> Option<Reply> {
        if self.names().owns(ino) {
            return None;
        }
        let entry = self.names().get(parent)?.dir()?.entry(name);
        // Without an entry, the name is `..`.
        let kind = entry.map_or(FileKind::Dir, |entry| entry.kind);
        Some(Reply::Referral { ino, kind })
    }

    /// `ENOSPC` if the volume has as many inodes as it may.
    pub(super) fn check_inode_limit(&self) -> Result<(), Errno> {
        match self.names().len() as u64 >= self.state.spec.inodes {
            true => Err(Errno::ENOSPC),
            false => Ok(()),
        }
    }
}
