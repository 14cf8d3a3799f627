//! Files that get the name of another file. Their data are made durable, on all nodes that may have any,
//! before the name is: otherwise a power failure could leave neither the old data nor the new. A small
//! file that is stored whole is stored without a name first.
//!
//! Names become durable within a second, data by the system's writeback within half a minute.

use super::Volume;
use crate::context::Context;
use crate::driver::{ConnId, Effect};
use crate::objects::Objects;
use crate::volume::tasks::ANSWER_TIMEOUT_NS;
use forebay_protocol::message::{NameRequest, OnExisting};
use forebay_protocol::peer::PeerPayload;
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Call, Credentials, Errno, FileKind, Ino, NodeIndex, Request, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A sync of one file: the node that needs it, and a number that this node drew.
type SyncId = (NodeIndex, u64);

/// Calls that wait until the data of a file are durable.
#[derive(Debug, Default)]
struct FileSync {
    /// Distinguishes the sync in progress from others of this node.
    number: u64,
    /// Nodes that have not made their objects durable, and when each was last heard of.
    waiting: BTreeMap<NodeIndex, u64>,
    /// Calls for the sync in progress, which began after they came.
    current: Vec<(ConnId, Call)>,
    /// Calls for the next one: the data may have changed since the sync in progress began.
    next: Vec<(ConnId, Call)>,
}

/// The object of a small file that is to replace another one. It has no inode yet: a start would remove it.
#[derive(Clone, Copy, Debug)]
pub struct StagedFile {
    /// The call.
    seq: u64,
    pub ino: Ino,
    pub object: ObjectInfo,
    /// Its `atime` and `mtime`.
    pub times: (Timestamp, Timestamp),
}

/// Syncs that wait until an object of this node is durable.
#[derive(Debug, Default)]
struct ObjectSync {
    /// Those that came before the sync in progress.
    current: BTreeSet<SyncId>,
    next: BTreeSet<SyncId>,
}

/// The files whose data are being made durable. A connection has one call in flight, so the number of
/// calls that wait is bounded, and with it the number of files, on all nodes.
#[derive(Debug, Default)]
pub struct Replacements {
    /// Files that calls on this node wait for.
    files: BTreeMap<Ino, FileSync>,
    /// Objects on this node.
    objects: BTreeMap<Ino, ObjectSync>,
    /// Contents of files that are to replace others, by the connection of the call.
    staged: BTreeMap<ConnId, StagedFile>,
    /// The last call on each connection for which a file was made durable, and the file.
    synced: BTreeMap<ConnId, (u64, Ino)>,
}

impl Replacements {
    /// Remove all calls.
    pub fn take_calls(&mut self) -> impl Iterator<Item = (ConnId, u64)> {
        let files = std::mem::take(&mut self.files).into_values();
        let calls = files.flat_map(|file| file.current.into_iter().chain(file.next));
        calls.map(|(conn, call)| (conn, call.seq))
    }

    /// A connection is closed; its call will be repeated on another one.
    pub fn drop_calls_of(&mut self, conn: ConnId) {
        for file in self.files.values_mut() {
            file.current.retain(|(of, _)| *of != conn);
            file.next.retain(|(of, _)| *of != conn);
        }
        self.synced.remove(&conn);
    }

    /// Whether a file was made durable for a call.
    pub fn is_synced(&self, (conn, seq): (ConnId, u64), ino: Ino) -> bool {
        self.synced.get(&conn) == Some(&(seq, ino))
    }

    /// Whether an object belongs to a file without an inode.
    pub fn is_staged(&self, ino: Ino) -> bool {
        self.staged.values().any(|staged| staged.ino == ino)
    }

    /// Take the object that was stored for a call.
    pub fn take_staged(&mut self, (conn, seq): (ConnId, u64)) -> Option<StagedFile> {
        let staged = *self.staged.get(&conn).filter(|staged| staged.seq == seq)?;
        self.staged.remove(&conn);
        Some(staged)
    }

    /// Whether a sync on a node other than `own` has not ended.
    pub fn await_other_nodes(&self, own: NodeIndex) -> bool {
        self.files.values().any(|file| file.waiting.keys().any(|node| *node != own))
    }

    /// The file whose sync in progress has this number.
    fn find(&mut self, number: u64) -> Option<(Ino, &mut FileSync)> {
        let mut files = self.files.iter_mut();
        files.find(|(_, file)| file.number == number).map(|(ino, file)| (*ino, file))
    }

    /// Files with a node that has been silent for too long.
    fn timed_out(&self, own: NodeIndex, now_ns: u64) -> Vec<Ino> {
        let is_late = |(node, heard_ns): (&NodeIndex, &u64)| {
            *node != own && heard_ns.saturating_add(ANSWER_TIMEOUT_NS) < now_ns
        };
        let late = self.files.iter().filter(|(_, file)| file.waiting.iter().any(is_late));
        late.map(|(ino, _)| *ino).collect()
    }
}

impl<O: Objects> Volume<O> {
    /// The file that a request would give the name of another one, unless its data are known to be
    /// durable. If the files are on other nodes, the transaction finds out.
    pub fn file_to_sync_first(&self, request: &Request, call: (ConnId, u64)) -> Option<Ino> {
        let Request::Name(NameRequest::Rename { parent, name, to, to_name, existing }) = request
        else {
            return None;
        };
        if *existing != OnExisting::Replace {
            return None;
        }
        let file = |dir: Ino, name: &[u8]| {
            let ino = self.names().get(dir)?.dir()?.get(name)?;
            (self.names().get(ino)?.kind() == FileKind::File).then_some(ino)
        };
        let (source, target) = (file(*parent, name)?, file(*to, to_name)?);
        let has_data = source != target && !self.nodes_with_data(source).is_empty();
        (has_data && !self.replacements.is_synced(call, source)).then_some(source)
    }

    /// Store the contents of a small file that would replace another one, under a number of its own.
    /// Returns the number, unless the contents are durable already. A request that would fail does so when it
    /// is carried out.
    pub fn stage_replacement(
        &mut self,
        node: &mut Context<O>,
        user: &Credentials,
        request: &Request,
        (conn, seq): (ConnId, u64),
    ) -> Result<Option<Ino>, Errno> {
        let Request::Name(NameRequest::PutFile { parent, name, set, data }) = request else {
            return Ok(None);
        };
        if let Some(staged) = self.replacements.staged.get(&conn).filter(|file| file.seq == seq) {
            let is_synced = self.replacements.is_synced((conn, seq), staged.ino);
            return Ok((!is_synced).then_some(staged.ino));
        }
        let Ok(planned) = self.plan_file(node, user, (*parent, name), set, data) else {
            return Ok(None);
        };
        if data.is_empty() || planned.replaced.is_none() {
            return Ok(None);
        }
        self.discard_staged(conn);
        let (ino, times) = (planned.ino, planned.times);
        let object = self.objects.put_object(self.object(ino), data, times)?;
        self.state.names.reserve_ino(ino);
        self.space.add_object(ino, object.space);
        self.account_memory(&mut node.memory);
        self.replacements.staged.insert(conn, StagedFile { seq, ino, object, times });
        Ok(Some(ino))
    }

    /// Remove what was stored for a call on a connection.
    pub fn discard_staged(&mut self, conn: ConnId) {
        if let Some(staged) = self.replacements.staged.remove(&conn) {
            self.remove_staged(staged);
        }
    }

    /// Remove the object of a file that gets no inode.
    pub fn remove_staged(&mut self, staged: StagedFile) {
        let bytes = self.space.remove_object(staged.ino).unwrap_or(0);
        if let Err(error) = self.objects.remove(self.object(staged.ino), bytes) {
            tracing::warn!(%error, "cannot remove a data object; the next start retries");
        }
    }

    /// The nodes that may have data of a file.
    fn nodes_with_data(&self, ino: Ino) -> Vec<NodeIndex> {
        let own = self.state.spec.placement.node;
        if !self.is_striped() || self.replacements.is_staged(ino) {
            return self.space.has_object(ino).then_some(own).into_iter().collect();
        }
        match self.length(ino) {
            Some(length) if length.known && length.size == 0 => Vec::new(),
            Some(length) => {
                let others = self.other_nodes_with(ino, length.pieces);
                std::iter::once(own).chain(others).collect()
            }
            // The file's metadata node is another one.
            None => std::iter::once(own).chain(self.other_nodes()).collect(),
        }
    }

    /// Carry out a call when the data of a file are durable.
    pub fn await_durable_data(&mut self, node: &mut Context<O>, ino: Ino, call: (ConnId, Call)) {
        match self.replacements.files.get_mut(&ino) {
            Some(in_progress) => in_progress.next.push(call),
            None => self.begin_file_sync(node, ino, vec![call]),
        }
    }

    fn begin_file_sync(&mut self, node: &mut Context<O>, ino: Ino, calls: Vec<(ConnId, Call)>) {
        let number = node.secrets.next() as u64;
        let nodes = self.nodes_with_data(ino);
        let waiting = nodes.iter().map(|of| (*of, node.now.steady_ns)).collect();
        let file = FileSync { number, waiting, current: calls, next: Vec::new() };
        self.replacements.files.insert(ino, file);
        if nodes.is_empty() {
            return self.end_file_sync(node, ino, Ok(())); // truncated meanwhile
        }
        for of in nodes {
            if of == self.state.spec.placement.node {
                self.sync_piece(node, (of, number), ino);
            } else {
                self.send(node, of, PeerPayload::SyncObject { sync: number, ino });
            }
        }
    }

    /// Make the object of a file on this node durable, and report that to the node that needs it.
    pub fn sync_piece(&mut self, node: &mut Context<O>, id: SyncId, ino: Ino) {
        if !self.space.has_object(ino) {
            return self.report_sync(node, id, Some(Ok(())));
        }
        match self.replacements.objects.get_mut(&ino) {
            Some(object) if object.current.contains(&id) => {}
            Some(object) => drop(object.next.insert(id)),
            None => self.begin_object_sync(node, ino, BTreeSet::from([id])),
        }
        self.report_sync(node, id, None);
    }

    fn begin_object_sync(&mut self, node: &mut Context<O>, ino: Ino, ids: BTreeSet<SyncId>) {
        let object = ObjectSync { current: ids, next: BTreeSet::new() };
        self.replacements.objects.insert(ino, object);
        node.effects.push(Effect::SyncObject(self.object(ino)));
    }

    /// The object of a file on this node is durable, or that failed.
    pub fn data_synced(&mut self, node: &mut Context<O>, ino: Ino, result: Result<(), Errno>) {
        let Some(ObjectSync { current, next }) = self.replacements.objects.remove(&ino) else {
            return;
        };
        if !next.is_empty() {
            self.begin_object_sync(node, ino, next);
        }
        for id in current {
            self.report_sync(node, id, Some(result));
        }
    }

    fn report_sync(
        &mut self,
        node: &mut Context<O>,
        (to, sync): SyncId,
        result: Option<Result<(), Errno>>,
    ) {
        if to == self.state.spec.placement.node {
            self.piece_synced(node, (to, sync), result);
        } else {
            self.send(node, to, PeerPayload::ObjectSynced { sync, result });
        }
    }

    /// A node has made its object of a file durable, has failed, or (`None`) is still at it.
    pub fn piece_synced(
        &mut self,
        node: &mut Context<O>,
        (from, number): SyncId,
        result: Option<Result<(), Errno>>,
    ) {
        let Some((ino, file)) = self.replacements.find(number) else {
            return;
        };
        match result {
            None => {
                let heard_ns = file.waiting.get_mut(&from);
                heard_ns.into_iter().for_each(|heard_ns| *heard_ns = node.now.steady_ns);
            }
            Some(Ok(())) => {
                file.waiting.remove(&from);
                if file.waiting.is_empty() {
                    self.end_file_sync(node, ino, Ok(()));
                }
            }
            Some(Err(errno)) => self.end_file_sync(node, ino, Err(errno)),
        }
    }

    /// All data of a file are durable, or a node has failed.
    fn end_file_sync(&mut self, node: &mut Context<O>, ino: Ino, result: Result<(), Errno>) {
        let Some(FileSync { current, next, .. }) = self.replacements.files.remove(&ino) else {
            return;
        };
        for (conn, call) in current {
            match result {
                Ok(()) => {
                    self.replacements.synced.insert(conn, (call.seq, ino));
                    node.ready.push((conn, call));
                }
                Err(errno) => {
                    self.discard_staged(conn);
                    node.finish(conn, call.seq, Err(errno));
                }
            }
        }
        if !next.is_empty() {
            self.begin_file_sync(node, ino, next);
        }
    }

    /// Ask a node again to make its objects durable.
    pub fn retransmit_replacements(&mut self, node: &mut Context<O>, to: NodeIndex) {
        let files = self.replacements.files.iter();
        let waiting = files.filter(|(_, file)| file.waiting.contains_key(&to));
        let syncs: Vec<(Ino, u64)> = waiting.map(|(ino, file)| (*ino, file.number)).collect();
        for (ino, sync) in syncs {
            self.send(node, to, PeerPayload::SyncObject { sync, ino });
        }
    }

    /// Return calls that wait for a node which does not answer.
    pub fn time_out_replacements(&mut self, node: &mut Context<O>) {
        let own = self.state.spec.placement.node;
        for ino in self.replacements.timed_out(own, node.now.steady_ns) {
            self.end_file_sync(node, ino, Err(Errno::EAGAIN));
        }
    }
}
