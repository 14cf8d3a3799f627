//! Attributes: those of the inode, and those that the data object determines.

use super::Volume;
use super::object_reply::add_object_info;
use crate::context::{Context, Handled, Outcome, Requester};
use crate::log::LogSpace;
use crate::namespace::{Access, Body, Change, EXEC, READ};
use crate::objects::Objects;
use crate::state::SlotResult;
use forebay_net::frame::MAX_BODY_BYTES;
use forebay_protocol::message::{DirEntry, MAX_REQUEST_INODES, OpenMode, SetAttr};
use forebay_protocol::{Attr, Errno, HandleId, Ino, Reply};

/// Bytes that an entry of a listing takes in addition to its name, with attributes.
const ENTRY_WITH_ATTR_BYTES: usize = 128;
/// The same without attributes.
const ENTRY_BYTES: usize = 24;
/// The longest listing. Half the longest frame leaves room for the worst encoding of an entry.
const MAX_LISTING_BYTES: usize = MAX_BODY_BYTES / 2;
const _: () = assert!(MAX_LISTING_BYTES / ENTRY_WITH_ATTR_BYTES <= MAX_REQUEST_INODES);

impl<O: Objects> Volume<O> {
    pub fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.names().find(ino)?;
        let mut attr = inode.attr(ino);
        if matches!(inode.body, Body::File) && self.space.has_object(ino) {
            let stat = self.objects.stat(self.object(ino))?;
            add_object_info(&mut attr, &stat);
        }
        Ok(attr)
    }

    /// The attributes of those inodes that exist, and whose objects can be read.
    pub fn attrs(&self, inos: &[Ino]) -> Result<Vec<Attr>, Errno> {
        if inos.len() > MAX_REQUEST_INODES {
            return Err(Errno::EINVAL);
        }
        Ok(inos.iter().filter_map(|ino| self.attr(*ino).ok()).collect())
    }

    /// A client sets attributes.
    pub fn handle_set_attr(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (ino, handle): (Ino, Option<HandleId>),
        set: &SetAttr,
    ) -> Handled<O> {
        let needed = self.space_to_set(ino, set.size);
        node.require_log_space(needed)?;
        let result = SlotResult::Attr(ino);
        if self.set_attributes(node, requester, (ino, handle), set, result, None)? {
            return Ok(Outcome::Deferred);
        }
        Ok(Outcome::Reply(Reply::Attr(self.attr(ino)?)))
    }

    /// The log space that setting attributes takes. A truncation gives space back; so may one that
    /// was in progress when the daemon stopped, and has been carried out in part.
    fn space_to_set(&self, ino: Ino, size: Option<u64>) -> LogSpace {
        let Some(size) = size else {
            return LogSpace::Normal;
        };
        let in_progress = self.length(ino).is_some_and(|length| !length.known);
        let attr = || self.attr(ino).ok();
        if in_progress || attr().is_some_and(|attr| size <= attr.size) {
            LogSpace::ReserveOnly
        } else {
            LogSpace::Normal
        }
    }

    /// Set attributes. `result` is recorded for the slot. `open`: the open that this is part of.
    /// `true`: other nodes have to do their parts first, and the reply follows.
    pub fn set_attributes(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        (ino, handle): (Ino, Option<HandleId>),
        set: &SetAttr,
        result: SlotResult,
        open: Option<(HandleId, OpenMode)>,
    ) -> Result<bool, Errno> {
        let is_writable = match handle {
            Some(id) => {
                let handle = self.handles.get(requester.origin.session, id)?;
                handle.ino == ino && handle.mode.write
            }
            None => false,
        };
        let names = self.names();
        let change = names.plan_set(&requester.user, ino, set, is_writable, node.now.wall)?;
        let is_single = matches!(names.find(ino)?.body, Body::File);
        if set.size.is_some() {
            self.remove_capabilities(node, ino);
            self.fence_silent_holder(node, ino, Some(requester.origin.session))?;
        }
        if is_single {
            self.set_object_attributes(node, ino, set.size, &change)?;
        } else if self.begin_set_attributes(node, requester, ino, set, (&change, result), open)? {
            return Ok(true);
        }
        self.log_change(node, &requester.origin, change, result);
        Ok(false)
    }

    /// Set the length and the times of the data object of a file that is not striped.
    fn set_object_attributes(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        size: Option<u64>,
        change: &Change,
    ) -> Result<(), Errno> {
        let object = self.object(ino);
        if let Some(size) = size {
            if size > 0 {
                self.ensure_object(node, ino)?;
            }
            if self.space.has_object(ino) {
                self.objects.truncate(object, size)?;
                self.recharge(ino);
            }
        }
        if let Change::SetAttributes { set, .. } = change
            && (set.atime.is_some() || set.mtime.is_some())
            && self.space.has_object(ino)
        {
            self.objects.set_times(object, set.atime, set.mtime)?;
        }
        Ok(())
    }

    pub fn read_dir(
        &self,
        requester: &Requester,
        ino: Ino,
        cookie: u64,
        (bytes, with_attrs): (u32, bool),
    ) -> Handled<O> {
        let names = self.names();
        let inode = names.find(ino)?;
        requester.user.check_access(inode, READ)?;
        // Without search permission a user learns names, but nothing of their inodes.
        let searchable = with_attrs
            && match requester.user.check_access(inode, EXEC) {
                Ok(()) => true,
                Err(Errno::EACCES) => false,
                Err(errno) => return Err(errno),
            };
        let directory = inode.dir().ok_or(Errno::ENOTDIR)?;
        let budget = (bytes as usize).min(MAX_LISTING_BYTES);
        let mut taken = 0;
        let mut entries = Vec::new();
        let mut end = true;
        let next_cookie = directory.next_cookie();
        for (cookie, entry) in directory.after(cookie) {
            taken +=
                entry.name.len() + if with_attrs { ENTRY_WITH_ATTR_BYTES } else { ENTRY_BYTES };
            if taken > budget && !entries.is_empty() {
                end = false;
                break;
            }
            // The client queries the other nodes for the attributes of their inodes. An object that
            // cannot be read does not hide the other entries.
            let attr =
                if searchable && names.owns(entry.ino) { self.attr(entry.ino).ok() } else { None };
            entries.push(DirEntry {
                cookie,
                name: entry.name.to_vec(),
                ino: entry.ino,
                kind: entry.kind,
                attr,
            });
        }
        Ok(Outcome::Reply(Reply::Entries { entries, end, next_cookie, searchable }))
    }
}
