//! Small files that come and go whole, with one request each.

use super::{Context, Effect, Shard, SlotResult};
use crate::namespace::{Access, Body, Change, FileLength, READ};
use crate::objects::{FetchedObject, MemoryObjects, ObjectId, Objects};
use forebay_protocol::layout::block_bytes;
use forebay_protocol::message::{MAX_INLINE_FILE_BYTES, SetAttr};
use forebay_protocol::{Attr, Errno, FileKind, Ino, Reply};

impl<O: Objects> Shard<O> {
    /// Make a file with all that belongs to it. The object comes first: one that no inode refers to
    /// is removed at the next start.
    pub(super) fn put(
        &mut self,
        context: &Context,
        at: (Ino, &[u8]),
        set: &SetAttr,
        data: &[u8],
    ) -> Result<Reply, Errno> {
        if data.len() > MAX_INLINE_FILE_BYTES {
            return Err(Errno::EFBIG);
        }
        let instance = self.names(context.instance)?;
        let (place, capacity) = (&instance.spec.placement, instance.spec.capacity);
        let (layout, spread) = (place.layout(), place.is_distributed());
        if spread && data.len() as u64 > layout.stripe_bytes() {
            return Err(Errno::EOPNOTSUPP);
        }
        let now = self.now.wall;
        let names = &instance.names;
        let mut whole = names.plan_put(&context.who, at, set, &layout, now)?;
        self.check_inodes(context.instance)?;
        let object = ObjectId {
            instance: context.instance,
            ino: whole.ino,
        };
        let mut stat = None;
        if !data.is_empty() {
            let cost = block_bytes(0, data.len() as u64);
            let space = &self.runtime(context.instance).space;
            if space.available(capacity, cost, 0) < cost {
                return Err(Errno::ENOSPC);
            }
            let (atime, mtime) = whole.times;
            let made = self.objects.put_object(object, data, atime, mtime)?;
            let runtime = self.runtime(context.instance);
            runtime.space.charge(whole.ino, made.space);
            runtime.fresh.insert(whole.ino);
            self.contents += 1;
            stat = Some(made);
        }
        if let Change::Put { length, .. } = &mut whole.change {
            let made = stat.unwrap_or_default();
            *length = spread.then_some(FileLength {
                size: made.size,
                space: made.space,
                mtime_seen: made.mtime,
                known: true,
                may_have_pieces: false,
            });
        }
        self.change(context, whole.change, SlotResult::Attr(whole.ino));
        if let Some(ino) = whole.replaced {
            self.drop_if_unused(context.instance, ino);
        }
        let inode = self.names(context.instance)?.names.find(whole.ino)?;
        let mut attr = inode.attr(whole.ino);
        if let Some(stat) = stat.filter(|_| !spread) {
            super::attr::add(&mut attr, &stat);
        }
        Ok(Reply::Attr(attr))
    }

    /// A file's attributes and contents, as they are at one moment. The object is read by the
    /// driver, who need not keep others waiting for its disk.
    pub(super) fn fetch(&mut self, context: &Context, ino: Ino) -> Result<Option<Reply>, Errno> {
        let instance = self.names(context.instance)?;
        let inode = instance.names.find(ino)?;
        context.who.check_access(inode, READ)?;
        match inode.kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(Errno::EISDIR),
            FileKind::Symlink => return Err(Errno::ELOOP),
            _ => return Err(Errno::ENXIO),
        }
        let mut length = None;
        if let Body::Striped(known) = &inode.body {
            let layout = instance.spec.placement.layout();
            let here = layout.node_of_stripe(ino, 0) == instance.names.node();
            let one = known.known
                && known.size <= layout.stripe_bytes().min(MAX_INLINE_FILE_BYTES as u64);
            if !one || (!here && known.size > 0) {
                return Err(Errno::EOPNOTSUPP);
            }
            length = Some(known.size);
        }
        let attr = inode.attr(ino);
        let object = ObjectId {
            instance: context.instance,
            ino,
        };
        let runtime = self.runtime.get(&context.instance);
        if !runtime.is_some_and(|runtime| runtime.space.has_object(ino)) {
            let nothing = FetchedObject::default();
            return Ok(Some(fetch_reply(attr, length, Ok(Some(nothing)))));
        }
        self.effects.push(Effect::FetchObject {
            conn: context.conn,
            seq: context.seq,
            object,
            attr: Box::new(attr),
            length,
        });
        Ok(None)
    }
}

/// The answer to a [`InodeRequest::GetFile`](InodeRequest::GetFile) where objects are in memory, from
/// what [`Effect::Fetch`] says.
pub fn fetch_reply_in_memory(
    objects: &MemoryObjects,
    object: ObjectId,
    attr: Attr,
    length: Option<u64>,
) -> Reply {
    fetch_reply(
        attr,
        length,
        objects.fetch_object(object, MAX_INLINE_FILE_BYTES),
    )
}

/// The answer to a [`InodeRequest::GetFile`](InodeRequest::GetFile), from what
/// [`Effect::Fetch`] says and what the object is: `None` if it is too long or being written.
pub fn fetch_reply(
    mut attr: Attr,
    length: Option<u64>,
    object: Result<Option<FetchedObject>, Errno>,
) -> Reply {
    let FetchedObject { stat, mut data } = match object {
        Ok(Some(object)) => object,
        Ok(None) => return Reply::Failed(Errno::EOPNOTSUPP),
        // The file was removed meanwhile.
        Err(Errno::ENOENT) => return Reply::Failed(Errno::ESTALE),
        Err(errno) => return Reply::Failed(errno),
    };
    match (length, stat) {
        // Behind the object's end there is a hole.
        (Some(length), _) => data.resize(length as usize, 0),
        (None, Some(stat)) => super::attr::add(&mut attr, &stat),
        (None, None) => {}
    }
    Reply::FileContents { attr, data }
}
