//! How long striped files are: their homes know, or ask the data objects.
//!
//! While somebody has a file open for writing, its length is what its objects say, and whoever
//! wants to know asks them. When the last writer has closed it, or is gone, home asks them and
//! writes down the answer. Resizing is done by home, which tells the other nodes.

use super::tasks::{Asker, Goal};
use super::{Context, Event, Shard, SlotResult, Spread, VolumeState};
use crate::log::LogSpace;
use crate::namespace::{Change, FileLength};
use crate::objects::Objects;
use forebay_protocol::message::{OpenMode, SetAttr};
use forebay_protocol::{Errno, HandleId, Ino, InstanceId, NodeIndex, Timestamp};
use std::collections::BTreeSet;

/// Files whose lengths are being settled at a time.
const MOST: usize = 8192;
/// How long after its last writer has gone a file's length is settled, together with those of
/// others, in nanoseconds.
const DELAY: u64 = 20_000_000;

impl Spread {
    /// The daemon starts: whose length was not settled.
    pub(super) fn adopt(&mut self, instance: &VolumeState) {
        let open = instance
            .names
            .iter()
            .filter(|(_, inode)| inode.length().is_some_and(|length| !length.known));
        self.unsettled = open.map(|(ino, _)| ino).collect();
        for (tx, prepared) in &instance.prepared {
            for lock in prepared.waves.iter().flat_map(|wave| &wave.locks) {
                self.locks.take(lock.clone(), *tx);
            }
        }
        for (tx, nodes) in &instance.decided {
            self.recall(*tx, nodes);
        }
    }
}

impl<O: Objects> Shard<O> {
    /// What is known of the length of a striped file that this node is the home of.
    pub(super) fn length(&self, instance: InstanceId, ino: Ino) -> Option<FileLength> {
        let names = &self.names(instance).ok()?.names;
        names.get(ino)?.length().copied()
    }

    /// A handle for writing is opened: from now on the objects say how long the file is.
    pub(super) fn writer_comes(&mut self, instance: InstanceId, ino: Ino) -> Result<(), Errno> {
        let Some(length) = self.length(instance, ino) else {
            return Ok(());
        };
        if self.room == LogSpace::Exhausted && (length.known || !length.may_have_pieces) {
            return Err(Errno::ENOSPC);
        }
        self.unsettle(instance, ino);
        let spread = &mut self.runtime(instance).spread;
        *spread.writers.entry(ino).or_default() += 1;
        spread.unsettled.remove(&ino);
        spread
            .tasks
            .retain(|_, task| task.ino != ino || task.goal != Goal::Settle);
        Ok(())
    }

    /// A handle for writing is gone.
    pub(super) fn writer_goes(&mut self, instance: InstanceId, ino: Ino) {
        let spread = &mut self.runtime(instance).spread;
        let Some(count) = spread.writers.get_mut(&ino) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            spread.writers.remove(&ino);
            if self.length(instance, ino).is_some() {
                self.settle_soon(instance, ino);
            }
        }
    }

    /// Note that the objects say how long a file is.
    fn unsettle(&mut self, instance: InstanceId, ino: Ino) {
        if let Some(length) = self.length(instance, ino)
            && (length.known || !length.may_have_pieces)
        {
            let length = FileLength {
                known: false,
                may_have_pieces: true,
                ..length
            };
            let times = None;
            self.log(
                Event::Namespace(instance, Change::SetLength { ino, length, times }),
                None,
            );
        }
    }

    /// Another node has an object of a file. A power cut may have taken from this node that it can.
    pub(super) fn has_piece(&mut self, instance: InstanceId, ino: Ino) {
        if self
            .length(instance, ino)
            .is_some_and(|length| !length.may_have_pieces)
        {
            self.unsettle(instance, ino);
            self.settle_soon(instance, ino);
        }
    }

    fn settle_soon(&mut self, instance: InstanceId, ino: Ino) {
        self.runtime(instance).spread.unsettled.insert(ino);
        if self.settle_due == 0 {
            self.settle_due = self.now.steady_ns.saturating_add(DELAY);
        }
    }

    /// A file that is no more needs no length.
    pub(super) fn forget_length(&mut self, instance: InstanceId, ino: Ino) {
        let spread = &mut self.runtime(instance).spread;
        spread.unsettled.remove(&ino);
        spread.writers.remove(&ino);
        spread
            .tasks
            .retain(|_, task| task.ino != ino || task.goal != Goal::Settle);
    }

    /// Settle the lengths of files whose last writers have gone.
    pub(super) fn settle_if_due(&mut self) {
        if self.settle_due > 0 && self.settle_due <= self.now.steady_ns {
            self.settle_due = 0;
            let instances: Vec<_> = self.state.volumes.keys().copied().collect();
            for instance in instances {
                self.settle_lengths(instance);
            }
        }
    }

    /// Settle lengths, once clients have had the time to open their files again after a start.
    pub(super) fn settle_lengths(&mut self, instance: InstanceId) {
        if !self.settled() {
            return;
        }
        let spread = &self.runtime(instance).spread;
        if spread.unsettled.is_empty() {
            return;
        }
        let busy: BTreeSet<Ino> = spread.tasks.values().map(|task| task.ino).collect();
        let idle = spread.unsettled.iter().filter(|ino| !busy.contains(ino));
        let some: Vec<Ino> = idle
            .copied()
            .take(MOST.saturating_sub(busy.len()))
            .collect();
        let mut tasks = Vec::new();
        for ino in some {
            // What cannot be measured here is tried again later.
            if let Ok(task) = self.add_task(instance, ino, Goal::Settle, None) {
                tasks.push((task, ino));
            }
        }
        let Ok(place) = self.names(instance).map(|i| &i.spec.placement) else {
            return;
        };
        let (own, nodes) = (place.node, place.nodes);
        for node in (0..nodes).map(NodeIndex).filter(|node| *node != own) {
            self.ask_objects(instance, node, &tasks);
        }
    }

    /// Have the length or times of a striped file set, if that needs the other nodes. `false`: it
    /// does not.
    pub(super) fn set_striped(
        &mut self,
        context: &Context,
        ino: Ino,
        wish: &SetAttr,
        (change, outcome): (&Change, SlotResult),
        open: Option<OpenMode>,
    ) -> Result<bool, Errno> {
        let Some(length) = self.length(context.instance, ino) else {
            return Ok(false);
        };
        let goal = match (wish.size, wish.mtime) {
            (Some(size), _) if length.known && length.size == size => return Ok(false),
            (Some(size), _) => Goal::Resize(size),
            (None, Some(_)) if !length.known => Goal::Times,
            _ => return Ok(false),
        };
        let asker = Asker {
            context: context.clone(),
            change: change.clone(),
            outcome,
            open,
        };
        if let Goal::Resize(_) = goal {
            self.unsettle(context.instance, ino);
            self.forget_length_tasks(context.instance, ino);
        }
        let instance = context.instance;
        let task = self.add_task(instance, ino, goal, Some(asker))?;
        let waiting = self.runtime(instance).spread.tasks.get(&task);
        let waiting = waiting.map_or_else(BTreeSet::new, |task| task.waiting.clone());
        for node in waiting {
            self.ask_object(instance, node, task);
        }
        Ok(true)
    }

    /// What is under way to settle a length is overtaken.
    fn forget_length_tasks(&mut self, instance: InstanceId, ino: Ino) {
        let tasks = &mut self.runtime(instance).spread.tasks;
        tasks.retain(|_, task| task.ino != ino || task.goal != Goal::Settle);
    }

    /// A handle for the part of a file that lies here.
    pub(super) fn add_piece_handle(
        &mut self,
        session: forebay_protocol::SessionId,
        instance: InstanceId,
        handle: HandleId,
        ino: Ino,
        mode: OpenMode,
    ) -> Result<(), Errno> {
        self.insert_handle(session, instance, handle, ino, mode, true)
    }
}

/// The time that foreign objects have until they are written to, so that making them is not taken
/// for a write.
pub(super) const NEVER: Timestamp = Timestamp { secs: 0, nanos: 0 };
