//! Requests that change names, and extended attributes.

use super::{Context, Shard, SlotResult};
use crate::namespace::Change;
use crate::objects::Objects;
use forebay_protocol::message::{NewInode, OnExisting, XattrMode};
use forebay_protocol::{Errno, FileKind, Ino, InstanceId, Reply};

impl<O: Objects> Shard<O> {
    pub(super) fn make(
        &mut self,
        context: &Context,
        parent: Ino,
        name: &[u8],
        new: NewInode,
        mode: u16,
    ) -> Result<Reply, Errno> {
        let names = &self.names(context.instance)?.names;
        let change = names.plan_make(&context.who, parent, name, new, mode, self.now.wall)?;
        self.check_inodes(context.instance)?;
        let Change::Make { inode, .. } = &change else {
            return Err(Errno::EIO);
        };
        let ino = inode.ino;
        self.change(context, change, SlotResult::Attr(ino));
        Ok(Reply::Attr(self.attr(context.instance, ino)?))
    }

    pub(super) fn link(
        &mut self,
        context: &Context,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Reply, Errno> {
        let names = &self.names(context.instance)?.names;
        let change = names.plan_link(&context.who, ino, parent, name, self.now.wall)?;
        self.change(context, change, SlotResult::Attr(ino));
        Ok(Reply::Attr(self.attr(context.instance, ino)?))
    }

    /// Take a name away, which must be that of a directory if `dir`, and of something else if not.
    pub(super) fn remove(
        &mut self,
        context: &Context,
        parent: Ino,
        name: &[u8],
        dir: bool,
    ) -> Result<Reply, Errno> {
        let names = &self.names(context.instance)?.names;
        let ino = names.lookup(&context.who, parent, name);
        let change = names.plan_remove(&context.who, parent, name, dir, self.now.wall)?;
        self.change(context, change, SlotResult::Done);
        self.drop_if_unused(context.instance, ino?);
        Ok(Reply::Done)
    }

    pub(super) fn rename(
        &mut self,
        context: &Context,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        existing: OnExisting,
    ) -> Result<Reply, Errno> {
        let names = &self.names(context.instance)?.names;
        let replaced = names.lookup(&context.who, to.0, to.1).ok();
        let plan = names.plan_rename(&context.who, from, to, existing, self.now.wall)?;
        if let Some(change) = plan {
            self.change(context, change, SlotResult::Done);
            if let Some(ino) = replaced {
                self.drop_if_unused(context.instance, ino);
            }
        }
        Ok(Reply::Done)
    }

    /// Set an extended attribute, or remove it without a `value`.
    pub(super) fn set_xattr(
        &mut self,
        context: &Context,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<Reply, Errno> {
        let names = &self.names(context.instance)?.names;
        let change = names.plan_xattr(&context.who, ino, name, value, mode, self.now.wall)?;
        self.change(context, change, SlotResult::Done);
        Ok(Reply::Done)
    }

    /// The reply about an entry whose inode's home is another node.
    pub(super) fn elsewhere(
        &self,
        instance: InstanceId,
        parent: Ino,
        name: &[u8],
        ino: Ino,
    ) -> Option<Reply> {
        let names = &self.names(instance).ok()?.names;
        if names.owns(ino) {
            return None;
        }
        let entry = names.get(parent)?.dir()?.entry(name);
        // Otherwise it is the directory above.
        let kind = entry.map_or(FileKind::Dir, |entry| entry.kind);
        Some(Reply::Referral { ino, kind })
    }

    pub(super) fn check_inodes(&self, instance: InstanceId) -> Result<(), Errno> {
        let instance = self.names(instance)?;
        if instance.names.len() as u64 >= instance.spec.inodes {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }
}
