//! Ranges of files: reserving, clearing, finding holes, copying, making durable.

use super::File;
use super::part::Part;
use crate::truncations::{BootIds, may_be_undone};
use crate::unsynced::PendingSync;
use forebay_policy::layout::Layout;
use forebay_protocol::message::Allocate;
use forebay_protocol::message::FileRequest;
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::{Errno, HandleId, Ino, NodeIndex, Request};
use rustix::fs::SeekFrom;

impl File {
    /// Make the data durable, and the attributes too unless `data_only`: all of the file's data on
    /// all nodes, whoever wrote them.
    pub fn fsync(&self, data_only: bool) -> Result<(), Errno> {
        let request = Request::File(FileRequest::Sync {
            handle: Some(self.home.handle),
            data_only,
        });
        // What has become durable stays as it is.
        self.fs.sessions.fence_writes()?;
        let parts = self.parts().map(|part| (part, part.unsynced.take()));
        let taken: Vec<(&Part, PendingSync)> = parts.collect();
        let cut = self.fs.sessions.truncations.take(self.ino);
        let nodes: Vec<NodeIndex> = taken.iter().map(|(part, _)| part.node).collect();
        let others = if self.fs.sessions.striped() && (self.mode.read || self.mode.write) {
            self.sync_others(&request, &nodes)
        } else {
            Ok(Vec::new())
        };
        let synced = others.and_then(|others| {
            let request = match self.sync_object(data_only)? {
                true => Request::File(FileRequest::SyncMetadata {
                    handle: self.home.handle,
                }),
                false => request,
            };
            self.fs.call(self.home.node, request)?;
            Ok(others)
        });
        if let Some(cut) = cut {
            match &synced {
                Ok(others) => self.check_cut(&cut, others)?,
                Err(_) => self.fs.sessions.truncations.put_back(self.ino, cut),
            }
        }
        for (part, taken) in taken {
            if synced.is_err() {
                part.unsynced.put_back(taken);
            } else if taken.is_lost(self.fs.sessions.session(part.node)?.boot_id()) {
                tracing::error!(ino = %self.ino, node = part.node.0,
                    "the storage node was started anew, and data that were not synced are gone");
                return Err(Errno::EIO);
            }
        }
        synced.map(|_| ())
    }

    /// Make the data object durable that is the whole file. `false`: its daemon has to.
    fn sync_object(&self, data_only: bool) -> Result<bool, Errno> {
        let Some(object) = self.descriptor() else {
            return Ok(false);
        };
        match data_only {
            true => rustix::fs::fdatasync(object)?,
            false => rustix::fs::fsync(object)?,
        }
        Ok(true)
    }

    /// Was the file cut and the old end may be back, at home or on `others` that hold some of it?
    fn check_cut(&self, cut: &BootIds, others: &[NodeIndex]) -> Result<(), Errno> {
        for node in others.iter().chain([&self.home.node]) {
            if may_be_undone(cut, *node, self.fs.sessions.session(*node)?.boot_id()) {
                tracing::error!(ino = %self.ino, node = node.0,
                    "the storage node was started anew, and what was cut off the file may be back");
                return Err(Errno::EIO);
            }
        }
        Ok(())
    }

    /// Make durable what other nodes than home hold, and what there is on `written` ones. Also where
    /// the object is empty: if the file was cut, a power cut there would bring its old end back.
    /// Returns the nodes.
    fn sync_others(
        &self,
        request: &Request,
        written: &[NodeIndex],
    ) -> Result<Vec<NodeIndex>, Errno> {
        let objects = self.fs.objects_of(&[self.ino])?;
        let holds = |(node, object): (NodeIndex, Vec<Option<_>>)| {
            let some = object.iter().any(Option::is_some) || written.contains(&node);
            (node != self.home.node && some).then_some(node)
        };
        let nodes: Vec<NodeIndex> = objects.into_iter().filter_map(holds).collect();
        self.open_parts(nodes.iter().copied())?;
        for node in &nodes {
            self.part(*node)?;
        }
        let mut again = Vec::new();
        let mut failed = None;
        let requests = nodes.iter().map(|node| (*node, request.clone()));
        self.fs
            .sessions
            .call_nodes(None, requests, |node, said| match said {
                Ok(_) => {}
                Err(Errno::EBADF | Errno::ESTALE) => again.push(node),
                Err(errno) => failed = Some(errno),
            });
        for node in again {
            self.open_part(node)?;
            self.fs.call(node, request.clone())?;
        }
        failed.map_or(Ok(nodes), Err)
    }

    /// Reserve, free or clear a range.
    pub fn allocate(&self, offset: u64, length: u64, what: Allocate) -> Result<(), Errno> {
        self.fs.sessions.fence_writes()?;
        if !self.fs.sessions.striped() {
            return self.allocate_part(&self.home, offset, length, what);
        }
        if !self.mode.write {
            return Err(Errno::EBADF);
        }
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        if end > i64::MAX as u64 {
            return Err(Errno::EFBIG);
        }
        // The length changes last: nothing has happened to it if a node is full.
        let (quietly, extends) = match what {
            Allocate::Reserve { keep_size } => (Allocate::Reserve { keep_size: true }, !keep_size),
            Allocate::Zero { keep_size } => (Allocate::Zero { keep_size: true }, !keep_size),
            Allocate::PunchHole => (Allocate::PunchHole, false),
        };
        let layout = self.fs.sessions.layout();
        for node in self.fs.sessions.nodes() {
            let from = layout.object_length(self.ino, node, offset);
            let to = layout.object_length(self.ino, node, end);
            if to > from {
                self.allocate_part(self.part(node)?, from, to - from, quietly)?;
            }
        }
        if extends && let Some(last) = layout.extents(self.ino, end - 1, 1).next() {
            let reserve = Allocate::Reserve { keep_size: false };
            let part = self.part(last.node)?;
            self.allocate_part(part, last.object_offset, last.length, reserve)?;
        }
        Ok(())
    }

    fn allocate_part(
        &self,
        part: &Part,
        offset: u64,
        length: u64,
        what: Allocate,
    ) -> Result<(), Errno> {
        let request = Request::File(FileRequest::Allocate {
            handle: part.handle,
            offset,
            length,
            what,
        });
        self.with_part(part, || {
            let ask = || self.fs.call(part.node, request.clone());
            let mut reply = ask();
            if reply == Err(Errno::ENOSPC) && self.fs.return_reservations(part.node, HandleId(0)) {
                reply = ask();
            }
            if reply == Err(Errno::ENOSPC) && self.fs.may_flush_removals() {
                self.fs.flush_removals(|| {
                    reply = ask();
                    reply != Err(Errno::ENOSPC)
                });
            }
            reply
        })
        .map(|_| ())
    }

    /// The next byte at or behind `offset` that is in a hole, or that is not. `ENXIO`: none is.
    pub fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        if !self.fs.sessions.striped() {
            return match &self.home.local {
                Some(file) => seek_object(file, offset, hole)?.ok_or(Errno::ENXIO),
                None => self.seek_without_holes(offset, hole),
            };
        }
        let mut parts = Vec::new();
        self.open_parts(self.fs.sessions.nodes())?;
        for node in self.fs.sessions.nodes() {
            parts.push(self.part(node)?);
        }
        if parts.iter().any(|part| part.local.is_none()) {
            return self.seek_without_holes(offset, hole);
        }
        let size = self.length()?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let layout = self.fs.sessions.layout();
        if hole {
            return self.seek_hole(layout, offset, size);
        }
        let mut next = None;
        for part in parts {
            let from = layout.object_length(self.ino, part.node, offset);
            if let Some(file) = &part.local
                && let Some(at) = seek_object(file, from, false)?
            {
                let place = file_offset(layout, self.ino, part.node, at);
                next = Some(next.map_or(place, |known: u64| known.min(place)));
            }
        }
        next.filter(|at| *at < size).ok_or(Errno::ENXIO)
    }

    fn seek_hole(&self, layout: Layout, offset: u64, size: u64) -> Result<u64, Errno> {
        for piece in layout.extents(self.ino, offset, size - offset) {
            let part = self.part(piece.node)?;
            let Some(file) = &part.local else {
                continue;
            };
            // Behind the end of the object there is nothing but hole; a block that it fills in part
            // counts as data, as on other file systems.
            let at = match seek_object(file, piece.object_offset, true)? {
                Some(at) if at == file.metadata()?.len() => at.next_multiple_of(BLOCK_BYTES),
                Some(at) => at,
                None => piece.object_offset,
            };
            if at < piece.object_offset + piece.length {
                return Ok(piece.offset + (at - piece.object_offset));
            }
        }
        Ok(size)
    }

    /// Holes are an optimization: a file may always be taken to have none but its end.
    fn seek_without_holes(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.length()?;
        if offset >= size {
            Err(Errno::ENXIO)
        } else {
            Ok(if hole { size } else { offset })
        }
    }

    /// Draw the space for `length` bytes that are about to be written at `offset` through the
    /// [`descriptor`](File::descriptor). `ENOSPC`: the instance has no room for all of them.
    pub fn reserve_space(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.check_write(offset, usize::try_from(length).map_err(|_| Errno::EFBIG)?)?;
        self.list();
        let cost = block_bytes(offset, length);
        while !self.home.take_reserved(cost) {
            if self.home.extend_reservation(&self.fs, cost)? < cost {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(())
    }

    /// Copy within the instance; less than asked for at the end of this file. `EXDEV`: the two
    /// cannot be copied between directly.
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
        let length = length
            .min(self.length()?.saturating_sub(offset))
            .min(1 << 30);
        if length == 0 {
            return Ok(0);
        }
        to.reserve_space(to_offset, length)?;
        let (mut from, mut into) = (offset, to_offset);
        let copied = rustix::fs::copy_file_range(
            source,
            Some(&mut from),
            target,
            Some(&mut into),
            length as usize,
        )?;
        Ok(copied as u64)
    }
}

/// Where byte `at` of the data object on `node` lies in the file.
fn file_offset(layout: Layout, ino: Ino, node: NodeIndex, at: u64) -> u64 {
    layout.file_end(ino, node, at + 1) - 1
}

/// The next hole or data at or behind `offset`; `None` behind the end.
fn seek_object(file: &std::fs::File, offset: u64, hole: bool) -> Result<Option<u64>, Errno> {
    let to = if hole {
        SeekFrom::Hole(offset)
    } else {
        SeekFrom::Data(offset)
    };
    match rustix::fs::seek(file, to) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
