//! Small files that are stored and fetched whole, with one request each.

use super::Volume;
use super::object_reply::{add_object_info, fetch_reply};
use crate::context::{Context, Handled, Outcome, Requester};
use crate::driver::Effect;
use crate::log::LogSpace;
use crate::namespace::{Access, Body, Change, FileLength, PieceNodes, PlannedPut, READ};
use crate::objects::{FetchedObject, Objects};
use crate::state::SlotResult;
use forebay_protocol::message::{MAX_INLINE_FILE_BYTES, SetAttr};
use forebay_protocol::space::block_bytes;
use forebay_protocol::{Credentials, Errno, FileKind, Ino, Reply};

impl<O: Objects> Volume<O> {
    /// Plan to store a file, and check that there is space for it.
    pub fn plan_file(
        &self,
        node: &Context<O>,
        user: &Credentials,
        at: (Ino, &[u8]),
        set: &SetAttr,
        data: &[u8],
    ) -> Result<PlannedPut, Errno> {
        node.require_log_space(LogSpace::Normal)?;
        if data.len() > MAX_INLINE_FILE_BYTES {
            return Err(Errno::EFBIG);
        }
        let placement = &self.state.spec.placement;
        let layout = placement.layout();
        if placement.is_distributed() && data.len() as u64 > layout.stripe_bytes() {
            return Err(Errno::EOPNOTSUPP);
        }
        let planned = self.names().plan_put(user, at, set, &layout, node.now.wall)?;
        self.check_inode_limit()?;
        self.check_memory(node, &planned.change.clone().with_acls(planned.acls.clone()))?;
        let cost = block_bytes(0, data.len() as u64);
        if self.space.available(self.state.spec.capacity, cost, 0) < cost {
            return Err(Errno::ENOSPC);
        }
        Ok(planned)
    }

    /// Store a file with contents, attributes and name. The object comes first: one without an inode is
    /// removed at the next start. That of a file which replaces another one was stored before.
    pub fn put(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        at: (Ino, &[u8]),
        set: &SetAttr,
        data: &[u8],
    ) -> Handled<O> {
        let staged = self.replacements.take_staged((requester.origin.conn, requester.origin.seq));
        // What is stored already is charged.
        let more = if staged.is_some() { &[] } else { data };
        let mut planned = match (self.plan_file(node, &requester.user, at, set, more), staged) {
            (Err(errno), Some(staged)) => {
                self.remove_staged(staged);
                return Err(errno);
            }
            (planned, _) => planned?,
        };
        if let Some(staged) = staged {
            planned.use_object(staged.ino, staged.times);
        }
        let (ino, is_striped) = (planned.ino, self.is_striped());
        let mut stat = staged.map(|staged| staged.object);
        if !data.is_empty() && staged.is_none() {
            let stored = self.objects.put_object(self.object(ino), data, planned.times)?;
            self.space.add_object(ino, stored.space);
            node.put_count += 1;
            stat = Some(stored);
        }
        if let Change::Put { length, .. } = &mut planned.change {
            let stored = stat.unwrap_or_default();
            *length = is_striped.then_some(FileLength {
                size: stored.size,
                space: stored.space,
                mtime_seen: stored.mtime,
                known: true,
                pieces: PieceNodes::None,
            });
        }
        let change = planned.change.with_acls(planned.acls);
        self.log_change(node, &requester.origin, change, SlotResult::Attr(ino));
        if let Some(replaced) = planned.replaced {
            self.drop_if_unused(node, replaced);
        }
        let mut attr = self.names().find(ino)?.attr(ino);
        if let Some(stat) = stat.filter(|_| !is_striped) {
            add_object_info(&mut attr, &stat);
        }
        Ok(Outcome::Reply(Reply::Attr(attr)))
    }

    /// Fetch attributes and contents of a file, consistent with each other. The driver reads the
    /// object; other requests need not wait for the device.
    pub fn fetch(&self, node: &mut Context<O>, requester: &Requester, ino: Ino) -> Handled<O> {
        let inode = self.names().find(ino)?;
        requester.user.check_access(inode, READ)?;
        match inode.kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(Errno::EISDIR),
            FileKind::Symlink => return Err(Errno::ELOOP),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                return Err(Errno::ENXIO);
            }
        }
        let mut length = None;
        if let Body::Striped(known) = &inode.body {
            let layout = self.state.spec.placement.layout();
            let is_here = layout.node_of_stripe(ino, 0) == self.names().node();
            let max_size = layout.stripe_bytes().min(MAX_INLINE_FILE_BYTES as u64);
            let is_one_piece = known.known && known.size <= max_size;
            if !is_one_piece || (!is_here && known.size > 0) {
                return Err(Errno::EOPNOTSUPP);
            }
            length = Some(known.size);
        }
        let attr = inode.attr(ino);
        if !self.space.has_object(ino) {
            let empty = FetchedObject::default();
            return Ok(Outcome::Reply(fetch_reply(attr, length, Ok(Some(empty)))));
        }
        node.effects.push(Effect::FetchObject {
            conn: requester.origin.conn,
            seq: requester.origin.seq,
            object: self.object(ino),
            attr: Box::new(attr),
            length,
            tag: None,
        });
        Ok(Outcome::Deferred)
    }
}
