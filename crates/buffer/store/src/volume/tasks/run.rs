//! Tasks begin, are answered by the other nodes, and end.

use super::{Goal, Progress, Task, TaskRequest};
use crate::context::{Context, Handled, Outcome};
use crate::log::LogSpace;
use crate::namespace::{Change, FileLength, SetInode, TxLock};
use crate::objects::Objects;
use crate::state::VolumeEvent;
use crate::volume::Volume;
use crate::volume::tx_locks::TxLockOwner;
use forebay_protocol::message::Provisional;
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Errno, Ino, NodeIndex, Reply, Timestamp};
use std::collections::BTreeMap;

/// Files in one message.
const MAX_BATCH: usize = 1024;
impl<O: Objects> Volume<O> {
    /// Begin a task, and do this node's part of it.
    pub fn begin_task(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        goal: Goal,
        request: Option<TaskRequest>,
    ) -> Result<u64, Errno> {
        let info = self.do_own_part(node, ino, goal)?;
        let pieces = self.length(ino).ok_or(Errno::ESTALE)?.pieces;
        let id = self.tasks.add(Task {
            ino,
            goal,
            waiting: self.other_nodes_with(ino, pieces).collect(),
            objects: BTreeMap::from([(self.names().node(), info)]),
            request,
            since_ns: node.now.steady_ns,
        });
        if goal != Goal::Settle {
            self.tx_locks.take(TxLock::Inode(ino), TxLockOwner::Task(id));
        }
        Ok(id)
    }

    /// Ask a node to stat its objects for several tasks.
    pub fn query_objects(&mut self, node: &mut Context<O>, to: NodeIndex, tasks: &[(u64, Ino)]) {
        for batch in tasks.chunks(MAX_BATCH) {
            self.send(node, to, PeerPayload::StatObjects(batch.to_vec()));
        }
    }

    /// Ask the other nodes with pieces for their parts of a task; it is over if there are none.
    pub fn query_all(&mut self, node: &mut Context<O>, id: u64) {
        let waiting = self.tasks.waiting(id);
        for other in &waiting {
            if let Some(query) = self.tasks.query(id) {
                self.send(node, *other, query);
            }
        }
        if waiting.is_empty() {
            self.finish_task(node, id);
        }
    }

    pub fn retransmit_tasks(&mut self, node: &mut Context<O>, to: NodeIndex) {
        let (mut stat, mut resize) = (Vec::new(), Vec::new());
        for (id, task) in &self.tasks.tasks {
            if !task.waiting.contains(&to) {
                continue;
            }
            match task.goal {
                Goal::Resize(_) => resize.push(*id),
                Goal::Settle | Goal::Times => stat.push((*id, task.ino)),
            }
        }
        self.query_objects(node, to, &stat);
        for id in resize {
            if let Some(query) = self.tasks.query(id) {
                self.send(node, to, query);
            }
        }
    }

    /// A node has done its part of a task, or failed.
    pub fn object_reported(
        &mut self,
        node: &mut Context<O>,
        from: NodeIndex,
        id: u64,
        info: Result<Option<ObjectInfo>, Errno>,
    ) {
        match info {
            Ok(info) => match self.tasks.note_answer(id, from, info) {
                Progress::Waiting => {}
                Progress::Complete if node.log_space == LogSpace::Exhausted => {
                    self.tasks.ask_again(id, from);
                }
                Progress::Complete => self.finish_task(node, id),
            },
            Err(errno) if self.tasks.has_request(id) => self.fail_task(node, id, errno),
            Err(_) if !self.tasks.tasks.contains_key(&id) => {}
            Err(errno) => tracing::warn!(%errno, "cannot stat a data object"),
        }
    }

    fn end_task(&mut self, node: &mut Context<O>, id: u64) -> Option<Task> {
        let task = self.tasks.tasks.remove(&id)?;
        if task.goal != Goal::Settle {
            self.tx_locks.release(TxLockOwner::Task(id));
            node.parked.note_unlocked(self.id());
        }
        Some(task)
    }

    fn fail_task(&mut self, node: &mut Context<O>, id: u64, errno: Errno) {
        let Some(task) = self.end_task(node, id) else {
            return;
        };
        if !self.handles.is_written(task.ino) {
            self.lengths.add_unsettled(task.ino);
        }
        if let Some(request) = task.request {
            node.reply_to(&request.origin, Reply::Failed(errno));
        }
    }

    /// Return requests that wait for a node which does not answer, or has no part of the instance any
    /// more.
    pub fn time_out_tasks(&mut self, node: &mut Context<O>) {
        for id in self.tasks.timed_out(node.now.steady_ns) {
            self.fail_task(node, id, Errno::EAGAIN);
        }
    }

    /// All nodes have done their parts of a task.
    pub fn finish_task(&mut self, node: &mut Context<O>, id: u64) {
        let Some(mut task) = self.end_task(node, id) else {
            return;
        };
        assert!(task.waiting.is_empty(), "all nodes with pieces have answered");
        let handled = self.apply_task(node, &mut task);
        if let Some(request) = task.request {
            let origin = request.origin;
            let handled = handled.and_then(|()| self.finish_request(node, task.ino, request));
            node.finish(origin.conn, origin.seq, handled);
        }
    }

    /// Record the length that a task has led to. `ESTALE`: the file was removed.
    fn apply_task(&mut self, node: &mut Context<O>, task: &mut Task) -> Result<(), Errno> {
        let ino = task.ino;
        let inode = self.names().find(ino)?;
        let known = *inode.length().ok_or(Errno::ESTALE)?;
        let is_written = self.handles.is_written(ino);
        let last_read = task.objects.values().flatten().map(|object| object.atime).max();
        if task.goal == Goal::Settle && (is_written || known.known) {
            if !is_written {
                self.lengths.remove_unsettled(ino);
                self.record_access(node, ino, last_read);
            }
            return Ok(());
        }
        let latest = task.objects.values().flatten().map(|object| object.mtime);
        let latest = latest.max().unwrap_or_default();
        let mut attr = inode.attr(ino);
        let width = known.pieces.width(self.state.spec.placement.nodes);
        attr.provisional = Some(Provisional { mtime_seen: known.mtime_seen, width });
        attr.merge_objects(&self.state.spec.placement.layout(), std::mem::take(&mut task.objects));
        let is_settled = match task.goal {
            Goal::Times => known.known,
            Goal::Settle => !is_written,
            // A writer that has closed it meanwhile may have written to objects that had their new lengths.
            Goal::Resize(_) => !is_written && !self.lengths.is_unsettled(ino),
        };
        let length = FileLength {
            size: attr.size,
            space: attr.blocks * 512,
            mtime_seen: known.mtime_seen.max(latest),
            known: is_settled,
            pieces: known.pieces,
        };
        let times = Some((attr.mtime, attr.ctime)).filter(|_| task.goal == Goal::Settle);
        let change = Change::SetLength { ino, length, times };
        self.log(node, VolumeEvent::Namespace(change), None);
        if is_settled {
            self.lengths.remove_unsettled(ino);
            self.record_access(node, ino, last_read);
        } else if !is_written {
            self.settle_soon(node, ino);
        }
        Ok(())
    }

    /// Record that a striped file was read. The file systems of its objects know when; a close leads here.
    fn record_access(&mut self, node: &mut Context<O>, ino: Ino, last_read: Option<Timestamp>) {
        let (Some(at), LogSpace::Normal) = (last_read, node.log_space) else {
            return;
        };
        let Some(inode) = self.names().get(ino).filter(|inode| inode.is_newer_access(at)) else {
            return;
        };
        // Reading changes no other time.
        let set = SetInode { atime: Some(at), ctime: inode.ctime, ..SetInode::default() };
        let change = Change::SetAttributes { ino, set };
        self.log(node, VolumeEvent::Namespace(change), None);
    }

    /// Carry out the rest of a request for which all objects of a file are done.
    fn finish_request(
        &mut self,
        node: &mut Context<O>,
        ino: Ino,
        request: TaskRequest,
    ) -> Handled<O> {
        self.log_change(node, &request.origin, request.change, request.result);
        match request.open {
            Some(opened) => self.opened(node, &request.origin, ino, opened, false),
            None => Ok(Outcome::Reply(Reply::Attr(self.attr(ino)?))),
        }
    }
}
