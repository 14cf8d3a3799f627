//! Requests that change names and extended attributes.

use super::Volume;
use crate::context::{Context, Handled, Outcome, Requester};
use crate::log::LogSpace;
use crate::namespace::Change;
use crate::objects::Objects;
use crate::state::SlotResult;
use forebay_protocol::message::{CreateMode, NewInode, OnExisting, XattrMode};
use forebay_protocol::{Errno, FileKind, Ino, Reply, Timestamp};

impl<O: Objects> Volume<O> {
    pub fn lookup(&self, requester: &Requester, parent: Ino, name: &[u8]) -> Handled<O> {
        let ino = self.names().lookup(&requester.user, parent, name)?;
        Ok(Outcome::Reply(match self.elsewhere(parent, name, ino) {
            Some(elsewhere) => elsewhere,
            None => Reply::Attr(self.attr(ino)?),
        }))
    }

    /// Create an inode that is not opened.
    pub fn make(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (parent, name): (Ino, &[u8]),
        new: NewInode,
        mode: CreateMode,
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (names, user) = (self.names(), &requester.user);
        let (inode, acls) = names.plan_make(user, parent, name, new, mode)?;
        self.check_inode_limit()?;
        let (ino, name, now) = (inode.ino, name.to_vec(), node.now.wall);
        let change = Change::Make { parent, name, inode, now }.with_acls(acls);
        self.check_memory(node, &change)?;
        self.log_change(node, &requester.origin, change, SlotResult::Attr(ino));
        Ok(Outcome::Reply(Reply::Attr(self.attr(ino)?)))
    }

    pub fn link(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        ino: Ino,
        (parent, name): (Ino, &[u8]),
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (names, user) = (self.names(), &requester.user);
        let change = names.plan_link(user, ino, parent, name, node.now.wall)?;
        self.check_memory(node, &change)?;
        self.log_change(node, &requester.origin, change, SlotResult::Attr(ino));
        Ok(Outcome::Reply(Reply::Attr(self.attr(ino)?)))
    }

    /// Remove a name: of a directory if `dir`, of another inode otherwise.
    pub fn remove(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (parent, name): (Ino, &[u8]),
        dir: bool,
    ) -> Handled<O> {
        node.require_log_space(LogSpace::ReserveOnly)?;
        let now = self.time_of_entry(node, requester, parent);
        let (names, user) = (self.names(), &requester.user);
        let change = names.plan_remove(user, parent, name, dir, now)?;
        let ino = names.lookup(user, parent, name)?;
        self.log_change(node, &requester.origin, change, SlotResult::Done);
        self.drop_if_unused(node, ino);
        Ok(Outcome::Reply(Reply::Done))
    }

    /// The time of a change of an entry. Changes under a delegation may arrive in another order than the
    /// client has reported them.
    pub fn time_of_entry(
        &self,
        node: &Context<O>,
        requester: &Requester,
        parent: Ino,
    ) -> Timestamp {
        let Some(reported) = requester.reported_at else {
            return node.now.wall;
        };
        self.names().get(parent).map_or(reported, |parent| parent.ctime.max(reported))
    }

    pub fn rename(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        existing: OnExisting,
    ) -> Handled<O> {
        node.require_log_space(LogSpace::Normal)?;
        let (names, user) = (self.names(), &requester.user);
        let replaced = names.lookup(user, to.0, to.1).ok();
        let planned = names.plan_rename(user, from, to, existing, node.now.wall)?;
        if let Some(change) = planned {
            self.check_memory(node, &change)?;
            self.log_change(node, &requester.origin, change, SlotResult::Done);
            if let Some(ino) = replaced {
                self.drop_if_unused(node, ino);
            }
        }
        Ok(Outcome::Reply(Reply::Done))
    }

    /// Set an extended attribute, or remove it without a `value`.
    pub fn set_xattr(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (ino, name): (Ino, &[u8]),
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Handled<O> {
        node.require_log_space(match value {
            Some(_) => LogSpace::Normal,
            None => LogSpace::ReserveOnly,
        })?;
        let (names, user) = (self.names(), &requester.user);
        let change = names.plan_xattr(user, ino, name, value, mode, node.now.wall)?;
        self.check_memory(node, &change)?;
        self.log_change(node, &requester.origin, change, SlotResult::Done);
        Ok(Outcome::Reply(Reply::Done))
    }

    /// The reply about an entry whose inode is on another node.
    pub fn elsewhere(&self, parent: Ino, name: &[u8], ino: Ino) -> Option<Reply> {
        if self.names().owns(ino) {
            return None;
        }
        let entry = self.names().get(parent)?.dir()?.entry(name);
        // Without an entry, the name is `..`.
        let kind = entry.map_or(FileKind::Dir, |entry| entry.kind);
        Some(Reply::Referral { ino, kind })
    }

    /// `ENOSPC` if the volume has as many inodes as it may.
    pub fn check_inode_limit(&self) -> Result<(), Errno> {
        if self.names().len() as u64 >= self.state.spec.inodes {
            Err(Errno::ENOSPC)
        } else {
            Ok(())
        }
    }
}
