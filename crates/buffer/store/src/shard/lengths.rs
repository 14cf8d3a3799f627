//! How long striped files are: their homes know, or ask the data objects.
//!
//! While somebody has a file open for writing, its length is what its objects say, and whoever
//! wants to know asks them. When the last writer has closed it, or is gone, home asks them and
//! writes down the answer. Resizing is done by home, which tells the other nodes.

use super::{Context, Event, Instance, Outcome, Shard, Spread};
use crate::namespace::{Change, Length, Lock};
use crate::objects::{ObjectId, Objects};
use forebay_wire::message::{OpenMode, SetAttr};
use forebay_wire::peer::{Say, TxId};
use forebay_wire::place::ObjectInfo;
use forebay_wire::{Errno, HandleId, Ino, InstanceId, Node, Reply, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Files that one message asks about.
const BATCH: usize = 1024;
/// Files whose lengths are being settled at a time.
const MOST: usize = 8 * BATCH;
/// How long after its last writer has gone a file's length is settled, together with those of
/// others, in nanoseconds.
const DELAY: u64 = 20_000_000;

/// Why all objects of a file are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Nobody writes to it any more.
    Settle,
    /// Its times are being set: the last write so far must be known to tell later ones.
    Times,
    /// It gets this length.
    Resize(u64),
}

/// Something that all objects of a file are asked.
#[derive(Debug)]
pub(super) struct Task {
    ino: Ino,
    goal: Goal,
    waiting: BTreeSet<Node>,
    objects: BTreeMap<Node, Option<ObjectInfo>>,
    asker: Option<Asker>,
}

/// Who waits for a task, and what happens then.
#[derive(Debug)]
pub(super) struct Asker {
    context: Context,
    change: Change,
    outcome: Outcome,
    /// It is an open that cuts the file.
    open: Option<OpenMode>,
}

impl Spread {
    /// The daemon starts: whose length was not settled.
    pub(super) fn adopt(&mut self, instance: &Instance) {
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
    pub(super) fn length(&self, instance: InstanceId, ino: Ino) -> Option<Length> {
        let names = &self.names(instance).ok()?.names;
        names.get(ino)?.length().copied()
    }

    /// A handle for writing is opened: from now on the objects say how long the file is.
    pub(super) fn writer_comes(&mut self, instance: InstanceId, ino: Ino) -> Result<(), Errno> {
        let Some(length) = self.length(instance, ino) else {
            return Ok(());
        };
        if !self.room && length.known {
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
                self.runtime(instance).spread.unsettled.insert(ino);
                if self.settle_due == 0 {
                    self.settle_due = self.now.steady.saturating_add(DELAY);
                }
            }
        }
    }

    /// Note that the objects say how long a file is.
    fn unsettle(&mut self, instance: InstanceId, ino: Ino) {
        if let Some(length) = self.length(instance, ino)
            && (length.known || !length.used)
        {
            let length = Length {
                known: false,
                used: true,
                ..length
            };
            let times = None;
            self.log(
                Event::Names(instance, Change::Length { ino, length, times }),
                None,
            );
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
        if self.settle_due > 0 && self.settle_due <= self.now.steady {
            self.settle_due = 0;
            let instances: Vec<_> = self.state.instances.keys().copied().collect();
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
        let Ok(place) = self.names(instance).map(|i| &i.spec.place) else {
            return;
        };
        let (own, nodes) = (place.node, place.nodes);
        for node in (0..nodes).map(Node).filter(|node| *node != own) {
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
        (change, outcome): (&Change, Outcome),
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

    fn add_task(
        &mut self,
        instance: InstanceId,
        ino: Ino,
        goal: Goal,
        asker: Option<Asker>,
    ) -> Result<u64, Errno> {
        let place = &self.names(instance)?.spec.place;
        let (own, nodes) = (place.node, place.nodes);
        let info = self.do_own_part(ObjectId { instance, ino }, goal)?;
        self.tasks += 1;
        let id = self.tasks;
        let task = Task {
            ino,
            goal,
            waiting: (0..nodes).map(Node).filter(|node| *node != own).collect(),
            objects: BTreeMap::from([(own, info)]),
            asker,
        };
        let spread = &mut self.runtime(instance).spread;
        if goal != Goal::Settle {
            spread.locks.take(Lock::Inode(ino), TxId(id));
        }
        spread.tasks.insert(id, task);
        Ok(id)
    }

    fn ask_objects(&mut self, instance: InstanceId, node: Node, tasks: &[(u64, Ino)]) {
        for some in tasks.chunks(BATCH) {
            self.tell(instance, node, Say::Stat(some.to_vec()));
        }
    }

    fn ask_object(&mut self, instance: InstanceId, node: Node, task: u64) {
        let tasks = &self.runtime(instance).spread.tasks;
        let Some(known) = tasks.get(&task) else {
            return;
        };
        let ino = known.ino;
        let oldest = tasks.keys().next().copied().unwrap_or(task);
        let say = match known.goal {
            Goal::Settle | Goal::Times => Say::Stat(vec![(task, ino)]),
            Goal::Resize(length) => Say::Resize {
                task,
                oldest,
                ino,
                length,
            },
        };
        self.tell(instance, node, say);
    }

    pub(super) fn remind_of_tasks(&mut self, instance: InstanceId, node: Node) {
        let tasks = self.runtime(instance).spread.tasks.iter();
        let waiting = tasks.filter(|(_, task)| task.waiting.contains(&node));
        let mut stat = Vec::new();
        let mut resize = Vec::new();
        for (id, task) in waiting {
            match task.goal {
                Goal::Resize(_) => resize.push(*id),
                Goal::Settle | Goal::Times => stat.push((*id, task.ino)),
            }
        }
        self.ask_objects(instance, node, &stat);
        for id in resize {
            self.ask_object(instance, node, id);
        }
    }

    pub(super) fn object_told(
        &mut self,
        instance: InstanceId,
        from: Node,
        id: u64,
        info: Result<Option<ObjectInfo>, Errno>,
    ) {
        let tasks = &mut self.runtime(instance).spread.tasks;
        let Some(task) = tasks.get_mut(&id) else {
            return;
        };
        match info {
            Ok(info) => {
                if task.waiting.remove(&from) {
                    task.objects.insert(from, info);
                }
                // Without room in the log it is asked again later.
                if !task.waiting.is_empty() {
                    return;
                }
                if !self.room {
                    if let Some(task) = self.runtime(instance).spread.tasks.get_mut(&id) {
                        task.waiting.insert(from);
                    }
                    return;
                }
                if let Some(task) = self.end_task(instance, id) {
                    self.finish_task(instance, task);
                }
            }
            Err(errno) if task.asker.is_some() => {
                if let Some(task) = self.end_task(instance, id) {
                    if !self.is_written(instance, task.ino) {
                        self.runtime(instance).spread.unsettled.insert(task.ino);
                    }
                    if let Some(asker) = task.asker {
                        let context = asker.context;
                        self.reply(context.conn, context.seq, Reply::Failed(errno));
                    }
                }
            }
            Err(errno) => tracing::warn!(%errno, "a data object cannot be measured"),
        }
    }

    fn end_task(&mut self, instance: InstanceId, id: u64) -> Option<Task> {
        let spread = &mut self.runtime(instance).spread;
        let task = spread.tasks.remove(&id)?;
        if task.goal != Goal::Settle {
            spread.locks.release(TxId(id));
            self.unlocked = true;
        }
        Some(task)
    }

    fn is_written(&mut self, instance: InstanceId, ino: Ino) -> bool {
        let spread = &self.runtime(instance).spread;
        spread.writers.contains_key(&ino)
    }

    /// All objects have answered.
    fn finish_task(&mut self, instance: InstanceId, task: Task) {
        let written = self.is_written(instance, task.ino);
        let found = self.names(instance).and_then(|names| {
            let inode = names.names.find(task.ino)?;
            let known = *inode.length().ok_or(Errno::ESTALE)?;
            Ok((names.spec.place.layout(), inode.attr(task.ino), known))
        });
        let (layout, mut attr, known) = match (found, &task.asker) {
            (Ok(found), _) => found,
            (Err(errno), Some(asker)) => {
                return self.reply(asker.context.conn, asker.context.seq, Reply::Failed(errno));
            }
            (Err(_), None) => return,
        };
        if task.goal == Goal::Settle && (written || known.known) {
            return;
        }
        let latest = task.objects.values().flatten().map(|object| object.mtime);
        let latest = latest.max().unwrap_or_default();
        attr.unsettled = Some(known.seen);
        attr.settle(&layout, task.objects);
        let settled = match task.goal {
            Goal::Times => known.known,
            Goal::Settle | Goal::Resize(_) => !written,
        };
        let length = Length {
            size: attr.size,
            space: attr.blocks * 512,
            seen: known.seen.max(latest),
            known: settled,
            used: true,
        };
        let times = Some((attr.mtime, attr.ctime)).filter(|_| task.goal == Goal::Settle);
        let ino = task.ino;
        self.log(
            Event::Names(instance, Change::Length { ino, length, times }),
            None,
        );
        if settled {
            self.runtime(instance).spread.unsettled.remove(&ino);
        }
        if let Some(asker) = task.asker {
            self.answer_asker(ino, asker);
        }
    }

    fn answer_asker(&mut self, ino: Ino, asker: Asker) {
        let Asker {
            context,
            change,
            outcome,
            open,
        } = asker;
        self.change(&context, change, outcome);
        let replied = match open {
            Some(mode) => self.opened(&context, ino, mode, false),
            None => self
                .attr(context.instance, ino)
                .map(|attr| Some(Reply::Attr(attr))),
        };
        match replied {
            Ok(Some(reply)) => self.reply(context.conn, context.seq, reply),
            Ok(None) => {}
            Err(errno) => self.reply(context.conn, context.seq, Reply::Failed(errno)),
        }
    }

    /// A handle for the part of a file that lies here.
    pub(super) fn add_piece_handle(
        &mut self,
        session: forebay_wire::SessionId,
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
