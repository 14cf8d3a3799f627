//! Lengths are settled, and files are resized on all nodes.

use crate::context::{Context, Requester};
use crate::log::LogSpace;
use crate::namespace::{Change, FileLength};
use crate::objects::Objects;
use crate::state::{SlotResult, VolumeEvent};
use crate::volume::Volume;
use crate::volume::tasks::{Goal, TaskRequest};
use forebay_protocol::message::{OpenMode, SetAttr};
use forebay_protocol::{Errno, HandleId, Ino};

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
        if node.log_space == LogSpace::Exhausted && (length.known || !length.may_have_pieces) {
            return Err(Errno::ENOSPC);
        }
        self.unsettle(node, ino);
        self.lengths.remove_unsettled(ino);
        self.tasks.cancel_settling(ino);
        Ok(())
    }

    /// Record that the objects determine the length of a file.
    fn unsettle(&mut self, node: &mut Context<O>, ino: Ino) {
        let Some(length) = self.length(ino) else {
            return;
        };
        if length.known || !length.may_have_pieces {
            let length = FileLength { known: false, may_have_pieces: true, ..length };
            let times = None;
            let change = Change::SetLength { ino, length, times };
            self.log(node, VolumeEvent::Namespace(change), None);
        }
    }

    /// Another node has a piece of a file. A power cut may have undone the record of that.
    pub fn note_piece(&mut self, node: &mut Context<O>, ino: Ino) {
        let length = self.length(ino);
        if length.is_some_and(|length| !length.may_have_pieces) {
            self.unsettle(node, ino);
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
        self.tasks.cancel_settling(ino);
    }

    /// Settle lengths, once clients have had the time to open their files again after a start.
    pub fn settle_lengths(&mut self, node: &mut Context<O>) {
        if !self.lengths.any_unsettled() || !node.handles_are_restored() {
            return;
        }
        let mut tasks = Vec::new();
        for ino in self.lengths.next_batch(&self.tasks.inos()) {
            // One that cannot be measured here is retried later.
            if let Ok(task) = self.begin_task(node, ino, Goal::Settle, None) {
                tasks.push((task, ino));
            }
        }
        for other in self.other_nodes() {
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
        if let Goal::Resize(_) = goal {
            self.unsettle(node, ino);
            self.tasks.cancel_settling(ino);
        }
        let request =
            TaskRequest { origin: requester.origin, change: change.clone(), result, open };
        let task = self.begin_task(node, ino, goal, Some(request))?;
        self.query_all(node, task);
        Ok(true)
    }
}
