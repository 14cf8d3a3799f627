//! Lengths are settled, and files are resized on all nodes.

use crate::context::{Context, Requester};
use crate::log::LogSpace;
use crate::namespace::{Change, FileLength, PieceNodes};
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use crate::volume::Volume;
use crate::volume::tasks::{Goal, TaskRequest};
use forebay_policy::layout::FIRST_WIDTH;
use forebay_protocol::message::{OpenMode, SetAttr};
use forebay_protocol::{Errno, HandleId, Ino, NodeIndex};
use std::collections::BTreeMap;

/// Delay after the last write handle is closed, so that files are settled together.
const SETTLE_DELAY_NS: u64 = 20_000_000;
impl<O: Objects> Volume<O> {
    /// The recorded length of a striped file whose metadata is here.
    pub fn length(&self, ino: Ino) -> Option<FileLength> {
        self.names().get(ino)?.length().copied()
    }

    /// A write handle is opened: from now on the objects determine the length.
    pub fn begin_writing(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        length: FileLength,
    ) -> Result<(), Errno> {
        if node.log_space == LogSpace::Exhausted
            && (length.known || length.pieces == PieceNodes::None)
        {
            return Err(Errno::ENOSPC);
        }
        self.unsettle(node, ino, FIRST_WIDTH);
        self.lengths.remove_unsettled(ino);
        self.tasks.cancel_settling(ino);
        Ok(())
    }

    /// Record that the objects determine the length of a file, and that the `width` first nodes may
    /// have one.
    fn unsettle(&mut self, node: &mut Context<O>, ino: Ino, width: u16) {
        let Some(length) = self.length(ino) else {
            return;
        };
        let pieces = length.pieces.with_first(width);
        if length.known || pieces != length.pieces {
            let length = FileLength { known: false, pieces, ..length };
            let times = None;
            let change = Change::SetLength { ino, length, times };
            self.log(node, VolumeEvent::Namespace(change), None);
        }
    }

    /// The pieces of a file are extended to the node at `position` of its rounds, if they do not reach
    /// it yet. [`granted_width`](Volume::granted_width) follows when that is durable.
    pub fn extend_pieces(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        position: u16,
    ) -> Result<(), Errno> {
        let placement = &self.state.spec.placement;
        let nodes = placement.nodes;
        let pieces = self.length(ino).ok_or(Errno::EINVAL)?.pieces;
        if position >= nodes {
            return Err(Errno::EINVAL);
        }
        let width = placement.layout().width_for(position);
        if pieces.width(nodes) > position {
            return Ok(());
        }
        node.require_log_space(LogSpace::Normal)?;
        self.unsettle(node, ino, width);
        self.lengths.note_extension(ino, pieces, node.journal.last());
        Ok(())
    }

    /// The number of first nodes that a client may write to. If the record of an extension were lost in a
    /// power cut, pieces on the nodes beyond would be unknown until these nodes check them: what is
    /// not durable does not count.
    pub fn granted_width(&self, node: &Context<O>, ino: Ino, length: FileLength) -> u16 {
        let pieces = match self.lengths.extension(ino) {
            Some((before, record)) if !node.journal.is_durable(record) => before,
            _ => length.pieces,
        };
        pieces.width(self.state.spec.placement.nodes)
    }

    /// Another node has a piece of a file. A power cut may have undone the record of that.
    pub fn note_piece(&mut self, node: &mut Context<O>, from: NodeIndex, ino: Ino) {
        let placement = &self.state.spec.placement;
        let layout = placement.layout();
        let position = layout.position(ino, from);
        let length = self.length(ino);
        if length.is_some_and(|length| length.pieces.width(placement.nodes) <= position) {
            self.unsettle(node, ino, layout.width_for(position));
            self.settle_soon(node, ino);
        }
    }

    /// Settle the length of a file together with others.
    pub fn settle_soon(&mut self, node: &mut Context<O>, ino: Ino) {
        self.lengths.add_unsettled(ino);
        let soon_ns = node.now.steady_ns.saturating_add(SETTLE_DELAY_NS);
        node.settle_at_ns.get_or_insert(soon_ns);
    }

    /// A file is dropped: it needs no length.
    pub fn forget_length(&mut self, ino: Ino) {
        self.lengths.remove_unsettled(ino);
        self.lengths.forget_extension(ino, u64::MAX);
        self.tasks.cancel_settling(ino);
    }

    /// Settle lengths, once clients have had the time to open their files again after a start.
    pub fn settle_lengths(&mut self, node: &mut Context<O>) {
        if !self.lengths.any_unsettled() || !node.handles_are_restored(self.id()) {
            return;
        }
        let mut tasks: BTreeMap<NodeIndex, Vec<(u64, Ino)>> = BTreeMap::new();
        for ino in self.lengths.next_batch(&self.tasks.inos()) {
            // One that cannot be measured here is retried later.
            let Ok(task) = self.begin_task(node, ino, Goal::Settle, None) else { continue };
            for other in self.tasks.waiting(task) {
                tasks.entry(other).or_default().push((task, ino));
            }
            if self.tasks.waiting(task).is_empty() {
                self.finish_task(node, task);
            }
        }
        for (other, tasks) in tasks {
            self.query_objects(node, other, &tasks);
        }
    }

    /// Begin to set the length or the times of a striped file, if that needs the other nodes.
    /// `false`: it does not.
    pub fn begin_set_attributes(
        &mut self,
        node: &mut Context<O>,
        requester: &Requester,
        ino: Ino,
        set: &SetAttr,
        (change, result): (&Change, SlotResult),
        open: Option<(HandleId, OpenMode)>,
    ) -> Result<bool, Errno> {
        let Some(length) = self.length(ino) else {
            return Ok(false);
        };
        let goal = match (set.size, set.mtime) {
            (Some(size), _) if length.known && length.size == size => return Ok(false),
            (Some(size), _) => Goal::Resize(size),
            (None, Some(_)) if !length.known => Goal::Times,
            _ => return Ok(false),
        };
        if let Goal::Resize(size) = goal {
            // The last byte will be in an object.
            let layout = self.state.spec.placement.layout();
            self.unsettle(node, ino, layout.width_for(layout.last_position(size)));
            self.tasks.cancel_settling(ino);
        }
        let request =
            TaskRequest { origin: requester.origin, change: change.clone(), result, open };
        let task = self.begin_task(node, ino, goal, Some(request))?;
        self.query_all(node, task);
        Ok(true)
    }
}
