//! Questions to all data objects of a file, until the last has answered.

use super::{Context, Event, Shard, SlotResult};
use crate::log::LogSpace;
use crate::namespace::{Change, FileLength, TxLock};
use crate::objects::{ObjectId, Objects};
use forebay_protocol::message::OpenMode;
use forebay_protocol::peer::{PeerPayload, TxId};
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Errno, Ino, InstanceId, NodeIndex, Reply};
use std::collections::{BTreeMap, BTreeSet};

/// How long someone waits for all objects of a file or all parts of a transaction to answer, in
/// nanoseconds, before the request is given back to be tried again: clients have their own patience.
pub(super) const PATIENCE: u64 = 20_000_000_000;
/// The same for what has happened here and cannot be tried again: as long as a client's usual
/// patience.
pub(super) const DECIDED_PATIENCE: u64 = 60_000_000_000;
/// Files that one message asks about.
const BATCH: usize = 1024;

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
    pub(super) ino: Ino,
    pub(super) goal: Goal,
    pub(super) waiting: BTreeSet<NodeIndex>,
    pub(super) objects: BTreeMap<NodeIndex, Option<ObjectInfo>>,
    pub(super) asker: Option<Asker>,
    /// When it began.
    pub(super) since: u64,
}

/// Who waits for a task, and what happens then.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) context: Context,
    pub(super) change: Change,
    pub(super) outcome: SlotResult,
    /// It is an open that cuts the file.
    pub(super) open: Option<OpenMode>,
}

impl<O: Objects> Shard<O> {
    pub(super) fn add_task(
        &mut self,
        instance: InstanceId,
        ino: Ino,
        goal: Goal,
        asker: Option<Asker>,
    ) -> Result<u64, Errno> {
        let place = &self.names(instance)?.spec.placement;
        let (own, nodes) = (place.node, place.nodes);
        let info = self.do_own_part(ObjectId { instance, ino }, goal)?;
        self.tasks += 1;
        let id = self.tasks;
        let task = Task {
            ino,
            goal,
            waiting: (0..nodes)
                .map(NodeIndex)
                .filter(|node| *node != own)
                .collect(),
            objects: BTreeMap::from([(own, info)]),
            asker,
            since: self.now.steady_ns,
        };
        let spread = &mut self.runtime(instance).spread;
        if goal != Goal::Settle {
            spread.locks.take(TxLock::Inode(ino), TxId(id));
        }
        spread.tasks.insert(id, task);
        Ok(id)
    }

    pub(super) fn ask_objects(
        &mut self,
        instance: InstanceId,
        node: NodeIndex,
        tasks: &[(u64, Ino)],
    ) {
        for some in tasks.chunks(BATCH) {
            self.tell(instance, node, PeerPayload::StatObjects(some.to_vec()));
        }
    }

    pub(super) fn ask_object(&mut self, instance: InstanceId, node: NodeIndex, task: u64) {
        let tasks = &self.runtime(instance).spread.tasks;
        let Some(known) = tasks.get(&task) else {
            return;
        };
        let ino = known.ino;
        let oldest = tasks.keys().next().copied().unwrap_or(task);
        let say = match known.goal {
            Goal::Settle | Goal::Times => PeerPayload::StatObjects(vec![(task, ino)]),
            Goal::Resize(length) => PeerPayload::ResizeObject {
                task,
                oldest,
                ino,
                length,
            },
        };
        self.tell(instance, node, say);
    }

    pub(super) fn remind_of_tasks(&mut self, instance: InstanceId, node: NodeIndex) {
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
        from: NodeIndex,
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
                if self.room == LogSpace::Exhausted {
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

    /// Give requests back that wait for a node which does not answer, or has no part of the instance
    /// any more.
    pub(super) fn give_up_tasks(&mut self, instance: InstanceId, own: NodeIndex) {
        let now = self.now.steady_ns;
        let tasks = self.runtime(instance).spread.tasks.iter();
        let late: Vec<u64> = tasks
            .filter(|(_, task)| task.asker.is_some() && task.since.saturating_add(PATIENCE) < now)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.object_told(instance, own, id, Err(Errno::EAGAIN));
        }
    }

    pub(super) fn end_task(&mut self, instance: InstanceId, id: u64) -> Option<Task> {
        let spread = &mut self.runtime(instance).spread;
        let task = spread.tasks.remove(&id)?;
        if task.goal != Goal::Settle {
            spread.locks.release(TxId(id));
            self.unlocked = true;
        }
        Some(task)
    }

    pub(super) fn is_written(&mut self, instance: InstanceId, ino: Ino) -> bool {
        let spread = &self.runtime(instance).spread;
        spread.writers.contains_key(&ino)
    }

    /// All objects have answered.
    fn finish_task(&mut self, instance: InstanceId, task: Task) {
        let written = self.is_written(instance, task.ino);
        let found = self.names(instance).and_then(|names| {
            let inode = names.names.find(task.ino)?;
            let known = *inode.length().ok_or(Errno::ESTALE)?;
            Ok((names.spec.placement.layout(), inode.attr(task.ino), known))
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
        attr.provisional = Some(known.mtime_seen);
        attr.merge_objects(&layout, task.objects);
        let settled = match task.goal {
            Goal::Times => known.known,
            Goal::Settle | Goal::Resize(_) => !written,
        };
        let length = FileLength {
            size: attr.size,
            space: attr.blocks * 512,
            mtime_seen: known.mtime_seen.max(latest),
            known: settled,
            may_have_pieces: true,
        };
        let times = Some((attr.mtime, attr.ctime)).filter(|_| task.goal == Goal::Settle);
        let ino = task.ino;
        self.log(
            Event::Namespace(instance, Change::SetLength { ino, length, times }),
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
}
