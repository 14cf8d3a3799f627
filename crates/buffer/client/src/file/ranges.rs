//! Ranges of files: syncing, allocating, clearing, finding holes, copying.

use super::File;
use super::part::Part;
use crate::session::SessionReply;
use crate::truncations::{BootIds, may_be_undone};
use crate::unsynced::PendingSync;
use forebay_net::extents::next_extent;
use forebay_protocol::message::{Allocate, FileRequest};
use forebay_protocol::space::BLOCK_BYTES;
use forebay_protocol::{Errno, NodeIndex};
use std::os::fd::AsFd;

/// Maximum bytes of one `copy_file_range`.
const MAX_COPY_BYTES: u64 = 1 << 30;

impl File {
    /// Writes the data to stable storage, and the attributes too unless `data_only`: all data of the
    /// file on all nodes, whichever client wrote them.
    pub fn fsync(&self, data_only: bool) -> Result<(), Errno> {
        let parts = &self.parts;
        let sessions = &parts.attachment.sessions;
        self.flush()?;
        // A pending old write must not change data that this call makes durable.
        sessions.fence_writes()?;
        let pending: Vec<(&Part, PendingSync)> =
            parts.open_all().map(|part| (part, part.unsynced.take())).collect();
        let truncated = sessions.truncations.take(parts.ino);
        let synced = self.sync_parts(&pending, data_only);
        if let Some(truncated) = truncated {
            match &synced {
                Ok(others) => self.check_truncation(&truncated, others)?,
                Err(_) => sessions.truncations.put_back(parts.ino, truncated),
            }
        }
        for (part, pending) in pending {
            if synced.is_err() {
                part.unsynced.put_back(pending);
            } else if pending.is_lost(parts.session(part.node)?.boot_id()) {
                tracing::error!(ino = %parts.ino, node = part.node.0,
                    "fsync failed: the storage node restarted, and unsynced data are lost");
                return Err(Errno::EIO);
            }
        }
        synced.map(|_| ())
    }

    /// Syncs all data objects, then the file itself. Returns the other nodes that hold objects.
    fn sync_parts(
        &self,
        pending: &[(&Part, PendingSync)],
        data_only: bool,
    ) -> Result<Vec<NodeIndex>, Errno> {
        let handle = self.handle();
        let mut request = FileRequest::Sync { handle: Some(handle), data_only };
        let is_file = self.mode.read || self.mode.write;
        let mut others = Vec::new();
        if is_file && !self.parts.is_single_object() {
            // The kernel reports errors of these writes to the descriptors that made them.
            for object in pending.iter().filter_map(|(part, _)| part.object.as_ref()) {
                sync_object(object, data_only)?;
            }
            let written: Vec<NodeIndex> = pending.iter().map(|(part, _)| part.node).collect();
            others = self.sync_others(&request, &written)?;
        }
        if let Some(object) = self.descriptor() {
            sync_object(object, data_only)?;
            request = FileRequest::SyncMetadata { handle };
        }
        self.requester.call::<()>(self.parts.primary.node, request)?;
        Ok(others)
    }

    /// Fails if the file was truncated, and a restart of its metadata node or of `others` may have
    /// brought back what was cut off.
    fn check_truncation(&self, truncated: &BootIds, others: &[NodeIndex]) -> Result<(), Errno> {
        for node in others.iter().chain([&self.parts.primary.node]) {
            if may_be_undone(truncated, *node, self.parts.session(*node)?.boot_id()) {
                tracing::error!(ino = %self.parts.ino, node = node.0,
                    "fsync failed: the storage node restarted, and may have undone a truncation");
                return Err(Errno::EIO);
            }
        }
        Ok(())
    }

    /// Syncs the objects on other nodes than the metadata node, and returns these nodes. Nodes in
    /// `written` are synced even if the object is empty: if the file was truncated, a power failure
    /// there would undo that.
    fn sync_others(
        &self,
        request: &FileRequest,
        written: &[NodeIndex],
    ) -> Result<Vec<NodeIndex>, Errno> {
        let parts = &self.parts;
        let objects = self.requester.objects_of(parts.ino)?;
        let holds_some = |(node, object): (NodeIndex, Option<_>)| {
            let some = object.is_some() || written.contains(&node);
            (node != parts.primary.node && some).then_some(node)
        };
        let nodes: Vec<NodeIndex> = objects.into_iter().filter_map(holds_some).collect();
        parts.open_parts(nodes.iter().copied())?;
        for node in &nodes {
            parts.part(*node)?;
        }
        let mut forgotten = Vec::new();
        let mut failed = None;
        let requests = nodes.iter().map(|node| (*node, request.clone()));
        let sessions = &parts.attachment.sessions;
        sessions.call_nodes(None, requests, |node, reply| match reply {
            Ok(SessionReply::<()> { .. }) => {}
            Err(Errno::EBADF | Errno::ESTALE) => forgotten.push(node),
            Err(errno) => failed = Some(errno),
        });
        for node in forgotten {
            parts.open_part(node)?;
            self.requester.call::<()>(node, request.clone())?;
        }
        failed.map_or(Ok(nodes), Err)
    }

    /// Reserves, frees or clears a range.
    pub fn allocate(&self, offset: u64, length: u64, what: Allocate) -> Result<(), Errno> {
        let parts = &self.parts;
        self.finish_writes();
        parts.attachment.sessions.fence_writes()?;
        self.check_write(offset, length)?;
        let end = offset + length;
        let layout = parts.layout;
        // The last extent is in the object that determines the length of the file.
        let last = length
            .checked_sub(1)
            .and_then(|_| layout.extents(parts.ino, end - 1, 1).next())
            .ok_or(Errno::EINVAL)?;
        let first = layout.extents(parts.ino, offset, length).next();
        if let Some(only) = first.filter(|first| first.length == length) {
            let part = parts.part(only.node)?;
            return self.allocate_in_part(part, only.object_offset, length, what);
        }
        // The length changes last, so that it is unchanged if a node is full.
        let (in_place, extends) = match what {
            Allocate::Reserve { keep_size } => (Allocate::Reserve { keep_size: true }, !keep_size),
            Allocate::Zero { keep_size } => (Allocate::Zero { keep_size: true }, !keep_size),
            Allocate::PunchHole => (Allocate::PunchHole, false),
        };
        let mut allocated = 0;
        for node in parts.attachment.sessions.nodes() {
            let from = layout.object_length(parts.ino, node, offset);
            let to = layout.object_length(parts.ino, node, end);
            if to > from {
                self.allocate_in_part(parts.part(node)?, from, to - from, in_place)?;
                allocated += to - from;
            }
        }
        assert_eq!(allocated, length, "the objects cover the range");
        if extends {
            let extend = Allocate::Reserve { keep_size: false };
            let part = parts.part(last.node)?;
            self.allocate_in_part(part, last.object_offset, last.length, extend)?;
        }
        Ok(())
    }

    fn allocate_in_part(
        &self,
        part: &Part,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> Result<(), Errno> {
        let request = FileRequest::Allocate { handle: part.handle, offset, length, what };
        let allocate = || self.requester.call(part.node, request.clone());
        let is_full = |reply: &Result<(), Errno>| matches!(reply, Err(Errno::ENOSPC));
        let reservations = &self.parts.attachment.reservations;
        self.parts.with_part(part, || {
            let result = reservations.with_space(part.node, None, allocate, is_full);
            match is_full(&result) && reservations.extend_share(&part.reservation, length) {
                true => allocate(),
                false => result,
            }
        })
    }

    /// The next byte at or after `offset` that is in a hole, or that is data. `ENXIO` if there is
    /// none.
    pub fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let parts = &self.parts;
        self.finish_writes();
        if let Some(object) = parts.primary.object.as_ref().filter(|_| parts.is_single_object()) {
            return next_extent(object, offset, hole)?.at.ok_or(Errno::ENXIO);
        }
        let nodes = || parts.attachment.sessions.nodes();
        parts.open_parts(nodes())?;
        let size = self.length()?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let mut next = None;
        for node in nodes() {
            let part = parts.part(node)?;
            let from = parts.layout.object_length(parts.ino, node, offset);
            let found = match &part.object {
                Some(object) => next_extent(object, from, hole)?,
                None => {
                    let seek = || {
                        let request = FileRequest::Seek { handle: part.handle, offset: from, hole };
                        self.requester.call(node, request)
                    };
                    parts.with_part(part, seek)?
                }
            };
            let at = match found.at {
                // After the end of the object everything is a hole. A block that it fills in part
                // counts as data, as on other file systems.
                Some(at) if hole && at == found.length => Some(at.next_multiple_of(BLOCK_BYTES)),
                None if hole => Some(from),
                at => at,
            };
            if let Some(at) = at {
                let position = parts.layout.file_end(parts.ino, node, at + 1) - 1;
                assert!(position >= offset);
                next = Some(next.map_or(position, |known: u64| known.min(position)));
            }
        }
        match next {
            Some(at) if at < size => Ok(at),
            // The end of a file counts as a hole.
            _ if hole => Ok(size),
            _ => Err(Errno::ENXIO),
        }
    }

    /// Reserves the space for `length` bytes to be written at `offset` through the
    /// [`descriptor`](File::descriptor). `ENOSPC` if the instance has no space for all of them.
    pub fn reserve_space(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.check_write(offset, length)?;
        let (primary, attachment) = (&self.parts.primary, &self.parts.attachment);
        primary.reserve_all(attachment, offset, length)
    }

    /// Copies within the instance. Returns less than `length` at the end of this file. `EXDEV` if
    /// the two files cannot be copied directly, as in a full instance: a write may succeed there.
    pub fn copy_file_range(
        &self,
        offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> Result<u64, Errno> {
        let (Some(source), Some(target)) = (self.descriptor(), to.descriptor()) else {
            return Err(Errno::EXDEV);
        };
        if !self.mode.read {
            return Err(Errno::EBADF);
        }
        let length = length.min(self.length()?.saturating_sub(offset)).min(MAX_COPY_BYTES);
        if length == 0 {
            return Ok(0);
        }
        match to.reserve_space(to_offset, length) {
            Err(Errno::ENOSPC) => return Err(Errno::EXDEV),
            reserved => reserved?,
        }
        let (mut from, mut into) = (offset, to_offset);
        let copied = rustix::fs::copy_file_range(
            source,
            Some(&mut from),
            target,
            Some(&mut into),
            length as usize,
        )?;
        assert!(copied as u64 <= length);
        Ok(copied as u64)
    }
}

/// Makes an object durable, except its times if `data_only`.
fn sync_object(object: impl AsFd, data_only: bool) -> Result<(), Errno> {
    let synced = if data_only { rustix::fs::fdatasync(object) } else { rustix::fs::fsync(object) };
    Ok(synced?)
}
