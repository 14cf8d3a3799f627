//! Attributes: what the inode says, and what the data object adds.

use super::{Context, Shard, SlotResult};
use crate::namespace::Body;
use crate::objects::{ObjectId, ObjectStat, Objects};
use forebay_net::frame::MAX_BODY_BYTES;
use forebay_protocol::message::{DirEntry, MAX_REQUEST_INODES, OpenMode, SetAttr};
use forebay_protocol::{Attr, Errno, HandleId, Ino, InstanceId, Reply};

/// Room that an entry of a listing takes besides its name, in bytes: with attributes and without.
const FULL: usize = 128;
const BARE: usize = 24;
/// The longest listing. Half the longest frame leaves room for the worst encoding of an entry.
const LISTING: usize = MAX_BODY_BYTES / 2;
const _: () = assert!(LISTING / FULL <= MAX_REQUEST_INODES);

/// What the data object adds to an inode's attributes.
pub(super) fn add(attr: &mut Attr, stat: &ObjectStat) {
    attr.size = stat.size;
    attr.blocks = stat.space / 512;
    // A write changes ctime too, but setting mtime must not move ctime with it.
    if stat.mtime != attr.mtime {
        attr.ctime = attr.ctime.max(stat.mtime);
    }
    attr.mtime = stat.mtime;
    attr.atime = stat.atime;
}

impl<O: Objects> Shard<O> {
    /// What `stat` shows.
    pub(super) fn attr(&self, instance: InstanceId, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.names(instance)?.names.find(ino)?;
        let mut attr = inode.attr(ino);
        let runtime = self.runtime.get(&instance);
        if matches!(inode.body, Body::File) && runtime.is_some_and(|r| r.space.has_object(ino)) {
            let stat = self.objects.stat(ObjectId { instance, ino })?;
            add(&mut attr, &stat);
        }
        Ok(attr)
    }

    /// What `stat` shows of those inodes that are there.
    pub(super) fn attrs(&self, instance: InstanceId, inos: &[Ino]) -> Result<Vec<Attr>, Errno> {
        if inos.len() > MAX_REQUEST_INODES {
            return Err(Errno::EINVAL);
        }
        let all = inos.iter().map(|ino| self.attr(instance, *ino));
        all.filter(|found| !matches!(found, Err(Errno::ESTALE | Errno::ENOENT)))
            .collect()
    }

    /// Change attributes. `outcome` is what the slot remembers. `open`: what is opened with it.
    /// `true`: other nodes have to do their parts first, and the reply comes when they have.
    pub(super) fn set_attr(
        &mut self,
        context: &Context,
        ino: Ino,
        handle: Option<HandleId>,
        wish: &SetAttr,
        outcome: SlotResult,
        open: Option<OpenMode>,
    ) -> Result<bool, Errno> {
        let writable = match handle {
            Some(id) => {
                let handle = self.handle(context.session, id)?;
                handle.ino == ino && handle.mode.write
            }
            None => false,
        };
        let names = &self.names(context.instance)?.names;
        let change = names.plan_set(&context.who, ino, wish, writable, self.now.wall)?;
        let file = matches!(names.find(ino)?.body, Body::File);
        if !file && self.set_striped(context, ino, wish, (&change, outcome), open)? {
            return Ok(true);
        }
        let object = ObjectId {
            instance: context.instance,
            ino,
        };
        if let Some(size) = wish.size
            && file
        {
            if size > 0 {
                self.ensure_object(object)?;
            }
            if self.runtime(context.instance).space.has_object(ino) {
                self.objects.truncate(object, size)?;
                self.recharge(object);
            }
        }
        if let crate::namespace::Change::SetAttributes { set, .. } = &change
            && file
            && (set.atime.is_some() || set.mtime.is_some())
            && self.runtime(context.instance).space.has_object(ino)
        {
            self.objects.set_times(object, set.atime, set.mtime)?;
        }
        self.change(context, change, outcome);
        Ok(false)
    }

    pub(super) fn read_dir(
        &self,
        context: &Context,
        ino: Ino,
        cookie: u64,
        bytes: u32,
        attrs: bool,
    ) -> Result<Reply, Errno> {
        let names = &self.names(context.instance)?.names;
        let dir = names.find(ino)?.dir().ok_or(Errno::ENOTDIR)?;
        let budget = (bytes as usize).min(LISTING);
        let mut taken = 0;
        let mut entries = Vec::new();
        let mut end = true;
        for (cookie, entry) in dir.after(cookie) {
            taken += entry.name.len() + if attrs { FULL } else { BARE };
            if taken > budget && !entries.is_empty() {
                end = false;
                break;
            }
            // What is on another node has to be asked for there.
            let attr = if attrs && names.owns(entry.ino) {
                Some(self.attr(context.instance, entry.ino)?)
            } else {
                None
            };
            entries.push(DirEntry {
                cookie,
                name: entry.name.to_vec(),
                ino: entry.ino,
                kind: entry.kind,
                attr,
            });
        }
        Ok(Reply::Entries { entries, end })
    }
}
