//! A storage daemon in virtual time on a simulated disk. It carries out the effects of a node, for all
//! simulations; effects that take time, or that can fail on the way, are returned to the simulation.

use super::log_space::note_log_space;
use super::memory_objects::MemoryObjects;
use super::memory_storage::{Fault, MemoryStorage};
use super::seeds::root;
use forebay_protocol::message::{
    Attach, BatchRequest, ClientHost, DataRequest, FileRequest, HostFence, InodeRequest,
    InstanceSpec, NameRequest, OpenMode, PROTOCOL_VERSION, PathOperation, PathRequest, PathRest,
    SessionRequest, SessionToken, TrailingField,
};
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::placement::Placement;
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::{
    Call, Errno, HandleId, Ino, InstanceId, NodeIndex, Reply, Request, SessionId, Timestamp,
};
use forebay_store::log::{Log, LogSpace, RecoveryError};
use forebay_store::node::{ConnId, Effect, Input, Limits, Node, NodeState, Now, ObjectSync};
use forebay_store::objects::{ObjectId, Objects};
use forebay_store::recovery;
use forebay_store::storage::Storage;
use forebay_store::sync_failures::{HandleSyncs, boot_after};
use std::collections::BTreeMap;

/// The only instance of the store's own simulations.
pub const INSTANCE: InstanceId = InstanceId(7);

/// A reply on its way to a client.
#[derive(Debug)]
pub struct Sent {
    pub seq: u64,
    pub reply: Reply,
    pub object: Option<ObjectId>,
    /// Whether the client may cache it.
    pub cacheable: bool,
}

/// A request to make an object, or all files that were stored whole, and the log durable.
#[derive(Clone, Debug)]
pub struct SyncRequest {
    pub conn: ConnId,
    pub seq: u64,
    pub object: Option<ObjectSync>,
    pub all_puts: bool,
}

/// An effect that the simulation carries out.
#[derive(Debug)]
pub enum Output {
    Reply(ConnId, Sent),
    Sync(SyncRequest),
    /// Some call waits for the log to be durable.
    SyncLog,
    Message {
        address: String,
        node: NodeIndex,
        message: PeerMessage,
    },
    /// The connection becomes the session's data connection in this slot.
    DataConnection(ConnId, SessionId, u32),
    Disconnect(ConnId),
}

/// A handle that data connections may use.
struct OpenObject {
    object: ObjectId,
    mode: OpenMode,
    grant: u64,
    /// Failures to write the object back of which its file has told.
    seen_failures: u64,
    syncs: HandleSyncs,
}

struct Running {
    node: Node<MemoryObjects>,
    log: Log<MemoryStorage>,
    opens: BTreeMap<(SessionId, HandleId), OpenObject>,
}

pub struct Daemon {
    pub storage: MemoryStorage,
    pub objects: MemoryObjects,
    segment_bytes: u64,
    lease_ns: u64,
    /// Identifies the boot of the host; increases with every power cut.
    boot: u64,
    /// Failed syncs so far, and whether all syncs of files that were stored whole fail.
    failed_syncs: u64,
    puts_fail: bool,
    /// How often objects had lost data before the daemon was started.
    losses_before: u64,
    running: Option<Running>,
    /// Records since they were last taken.
    records: Vec<Vec<u8>>,
    /// Records that the log had space for at the last input.
    pub log_space: LogSpace,
    /// Capacity of the log's disk, if it is limited.
    capacity_bytes: Option<u64>,
}

impl Daemon {
    pub fn new(seed: u64, segment_bytes: u64, lease_ns: u64) -> Daemon {
        Daemon {
            storage: MemoryStorage::new(seed),
            objects: MemoryObjects::default(),
            segment_bytes,
            lease_ns,
            boot: 1,
            failed_syncs: 0,
            puts_fail: false,
            losses_before: 0,
            running: None,
            records: Vec::new(),
            log_space: LogSpace::Normal,
            capacity_bytes: None,
        }
    }

    /// The node, while the daemon runs.
    pub fn node(&self) -> Option<&Node<MemoryObjects>> {
        self.running.as_ref().map(|running| &running.node)
    }

    /// Fill the disk, or make the storage fail after some operations.
    pub fn set_fault(&mut self, crash_after_ops: Option<u64>) {
        let capacity_bytes = self.capacity_bytes;
        self.storage.set_fault(Fault { crash_after_ops, capacity_bytes });
    }

    /// Set how many segments fit the disk; `None` for any number.
    pub fn set_disk_segments(&mut self, segments: Option<u64>) {
        self.capacity_bytes = segments.map(|segments| segments * self.segment_bytes);
        self.set_fault(None);
    }

    /// Replace the disk by an empty one.
    pub fn replace_disk(&mut self, seed: u64) {
        assert!(self.running.is_none(), "the disk is in use");
        self.storage = MemoryStorage::new(seed);
        self.objects = MemoryObjects::default();
    }

    /// Recover, and start. Returns the recovered state. The record of the start is durable before any
    /// call is answered.
    pub fn start(&mut self, now: Now, seed: u64) -> Result<NodeState, RecoveryError> {
        let (state, mut log) = recovery::recover_state(self.storage.clone(), self.segment_bytes)?;
        let _ = recovery::ensure_spares(&self.storage, self.segment_bytes);
        log.ensure_start_headroom()?;
        let limits = Limits { lease_ns: self.lease_ns, ..Limits::default() };
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        let (last, objects) = (log.last_sequence(), self.objects.clone());
        let mut node = Node::start(state.clone(), last, objects, limits, now, secret).unwrap();
        node.set_boot_id(boot_after(self.boot, self.failed_syncs));
        (self.puts_fail, self.losses_before) = (false, self.objects.losses());
        self.running = Some(Running { node, log, opens: BTreeMap::new() });
        let started = self.commit().and_then(|()| self.sync_log());
        started.ok_or(RecoveryError::Io(std::io::Error::other("the simulated process crashed")))?;
        Ok(state)
    }

    /// Restores the fences of a node's records, before any client is served.
    #[allow(dead_code, reason = "each simulation uses a part")]
    pub fn restore_fences(&mut self, fences: Vec<(InstanceId, Vec<HostFence>)>) {
        for (instance, hosts) in fences {
            self.running.as_mut().unwrap().node.restore_fences(instance, &hosts).unwrap();
        }
    }

    /// The process dies, or the power fails. Returns the node as it was.
    pub fn stop(&mut self, power_cut: bool) -> Option<Node<MemoryObjects>> {
        let running = self.running.take();
        if power_cut {
            self.boot += 1;
            self.storage.power_cut();
            self.objects.power_cut();
        } else {
            self.storage.restart_process();
        }
        self.records.clear();
        running.map(|running| running.node)
    }

    /// Recover, and die on the way.
    pub fn fail_recovery(&mut self, crash_after_ops: u64) {
        self.set_fault(Some(crash_after_ops));
        let died = recovery::recover_state(self.storage.clone(), self.segment_bytes);
        let _ = died.map(|(_, mut log)| log.ensure_start_headroom());
        self.storage.restart_process();
    }

    /// Damage the newest checkpoint, if the one before it, or the whole log, is there.
    pub fn damage_newest_checkpoint(&self, random: u64) -> bool {
        let names = self.storage.list_files().unwrap();
        let mut checkpoints = names.iter().filter(|name| name.starts_with("checkpoint.0"));
        let first_segment = format!("log.{:016x}", 1);
        let is_enough = checkpoints.clone().count() > 1 || names.contains(&first_segment);
        let Some(newest) = checkpoints.next_back().filter(|_| is_enough) else {
            return false;
        };
        let length = self.storage.read_file(newest).unwrap().len() as u64;
        self.storage.flip_bit(newest, random % length, (random >> 32) as u8);
        true
    }

    /// Take one input. `None`: the daemon is down, or dies of it.
    pub fn step(&mut self, now: Now, input: Input) -> Option<Vec<Output>> {
        let running = self.running.as_mut()?;
        // An error ends the process, which is detected below.
        let space = running.log.ensure_headroom();
        self.log_space = space.unwrap_or(LogSpace::Exhausted);
        running.node.set_log_space(self.log_space);
        note_log_space(self.log_space);
        let mut effects = Vec::new();
        running.node.step(now, input, &mut effects);
        // The device makes an object durable at once.
        let mut next = 0;
        while let Some(effect) = effects.get(next) {
            if let Effect::SyncObject(object) = effect {
                let object = *object;
                let synced = self.objects.sync_object(object);
                effects.remove(next);
                running.node.step(now, Input::ObjectSynced(object, synced), &mut effects);
            } else {
                next += 1;
            }
        }
        self.commit()?;
        if self.storage.has_crashed() {
            return None;
        }
        Some(effects.into_iter().filter_map(|effect| self.carry_out(effect)).collect())
    }

    fn carry_out(&mut self, effect: Effect<ObjectId>) -> Option<Output> {
        let opens = &mut self.running.as_mut()?.opens;
        match effect {
            Effect::BulkOpen(session, handle, object, mode) => {
                let objects = &self.objects;
                opens.entry((session, handle)).or_insert_with(|| OpenObject {
                    object,
                    mode,
                    grant: 0,
                    seen_failures: objects.failures_before(object),
                    syncs: HandleSyncs::default(),
                });
            }
            Effect::BulkGrant(session, handle, bytes) => {
                if let Some(open) = opens.get_mut(&(session, handle)) {
                    open.grant = bytes;
                }
            }
            Effect::BulkClose(session, handle) => drop(opens.remove(&(session, handle))),
            Effect::ObjectWritten(_) | Effect::BulkEnd(_) => {}
            Effect::InvalidateChecksums(_) | Effect::Scrub { .. } => {
                unreachable!("no simulated object has checksums")
            }
            other => return Some(self.output(other)),
        }
        None
    }

    fn output(&self, effect: Effect<ObjectId>) -> Output {
        match effect {
            Effect::Reply { conn, seq, reply, descriptor: object, cacheable } => {
                Output::Reply(conn, Sent { seq, reply, object, cacheable })
            }
            Effect::FetchObject { conn, seq, object, attr, length, .. } => {
                let reply = self.objects.fetch(object, *attr, length);
                Output::Reply(conn, Sent { seq, reply, object: None, cacheable: false })
            }
            Effect::Sync { conn, seq, object, put_count, .. } => {
                Output::Sync(SyncRequest { conn, seq, object, all_puts: put_count > 0 })
            }
            Effect::SyncLog => Output::SyncLog,
            Effect::SendToPeer { address, node, message } => {
                Output::Message { address, node, message: *message }
            }
            Effect::BulkConnection(conn, session, slot) => {
                Output::DataConnection(conn, session, slot)
            }
            Effect::Disconnect(conn) => Output::Disconnect(conn),
            Effect::InvalidateChecksums(_)
            | Effect::SyncObject(_)
            | Effect::ObjectWritten(_)
            | Effect::Scrub { .. }
            | Effect::BulkOpen(..)
            | Effect::BulkGrant(..)
            | Effect::BulkEnd(_)
            | Effect::BulkClose(..) => unreachable!("carried out by the daemon"),
        }
    }

    /// Carry out a request of a data connection.
    pub fn data_call(
        &mut self,
        now: Timestamp,
        session: SessionId,
        request: &Request,
        payload: &[u8],
    ) -> (Reply, Vec<u8>) {
        let Some(running) = &mut self.running else {
            return (Reply::Failed(Errno::EIO), Vec::new());
        };
        let outcome = match request {
            Request::Data(DataRequest::Read { handle, offset, length }) => {
                match running.opens.get(&(session, *handle)) {
                    _ if self.objects.check_transfer().is_err() => Err(Errno::EIO),
                    Some(open) if open.mode.read => {
                        let bytes = self.objects.object_contents(open.object).unwrap_or_default();
                        let from = bytes.get(*offset as usize..).unwrap_or_default();
                        let count = from.len().min(*length as usize);
                        return (Reply::Data, from[..count].to_vec());
                    }
                    _ => Err(Errno::EBADF),
                }
            }
            Request::Data(DataRequest::Write { handle, offset, append }) => {
                match running.opens.get_mut(&(session, *handle)) {
                    _ if self.objects.check_transfer().is_err() => Err(Errno::EIO),
                    Some(open) if open.mode.write => {
                        write_data(&mut self.objects, open, now, (*offset, *append), payload)
                    }
                    _ => Err(Errno::EBADF),
                }
            }
            _ => Err(Errno::EOPNOTSUPP),
        };
        (outcome.unwrap_or_else(Reply::Failed), Vec::new())
    }

    /// Write a checkpoint, and reserve space for the next one, as the daemon does. `Ok(true)`: a
    /// checkpoint was due.
    pub fn write_checkpoint(&self) -> Result<bool, RecoveryError> {
        let start = self.running.as_ref().map(|running| running.log.segment_start_sequence());
        let written = start.map(|start| recovery::write_checkpoint(&self.storage, start));
        written.unwrap_or(Ok(false))
    }

    /// Reserve space for the next segment and the next checkpoint.
    pub fn ensure_spares(&self) -> std::io::Result<()> {
        recovery::ensure_spares(&self.storage, self.segment_bytes)
    }

    /// Write the records of a step. `None`: the storage failed.
    fn commit(&mut self) -> Option<()> {
        let running = self.running.as_mut()?;
        for record in running.node.take_records() {
            let appended = running.log.append(&record);
            self.records.push(record);
            appended.ok()?;
        }
        running.log.flush().ok()
    }

    /// The records that were written, perhaps in vain, since this was last called.
    pub fn take_records(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.records)
    }

    /// Make an object, or all, durable. Returns them.
    pub fn sync_objects(&mut self, request: &SyncRequest) -> Result<Vec<ObjectId>, Errno> {
        let synced = self.try_sync_objects(request);
        self.failed_syncs += u64::from(synced.is_err());
        synced
    }

    /// Whether a sync of all files that were stored whole has failed: then all do until a restart.
    pub fn puts_fail(&self) -> bool {
        self.puts_fail
    }

    fn try_sync_objects(&mut self, request: &SyncRequest) -> Result<Vec<ObjectId>, Errno> {
        let mut synced: Vec<ObjectId> = request.object.iter().map(|sync| sync.object).collect();
        if request.all_puts {
            // The file system reports the failures of all its files.
            self.puts_fail |= self.objects.sync_all_objects() > self.losses_before;
            if self.puts_fail {
                return Err(Errno::EIO);
            }
            for instance in self.objects.list_instances().unwrap_or_default() {
                let all = self.objects.list_objects(instance).unwrap_or_default();
                synced.extend(all.into_iter().map(|(ino, _)| ObjectId { instance, ino }));
            }
        }
        if let Some(sync) = request.object {
            let opens = self.running.as_mut().map(|running| &mut running.opens);
            let open = opens.and_then(|opens| opens.get_mut(&sync.opened));
            match open.filter(|open| open.object == sync.object) {
                Some(OpenObject { seen_failures, syncs, .. }) => syncs
                    .sync(sync.call, || self.objects.sync_opened(sync.object, seen_failures))?,
                None => self.objects.sync_object(sync.object)?,
            }
        }
        Ok(synced)
    }

    /// Make the log durable. Returns the last record; `None`: the daemon is down, or the storage failed.
    pub fn sync_log(&mut self) -> Option<u64> {
        let log = &mut self.running.as_mut()?.log;
        log.sync().ok()?;
        Some(log.last_sequence())
    }

    /// The last record that was written.
    pub fn last_record(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.log.last_sequence())
    }
}

/// Write as a data connection does, within the grant of the handle, or over blocks.
fn write_data(
    objects: &mut MemoryObjects,
    open: &mut OpenObject,
    now: Timestamp,
    (offset, append): (u64, bool),
    payload: &[u8],
) -> Result<Reply, Errno> {
    let end = objects.object_contents(open.object).map_or(0, |bytes| bytes.len() as u64);
    // The offset of an append is unknown: assume that it straddles one more block.
    let (from, at) = if append { (BLOCK_BYTES - 1, end) } else { (offset, offset) };
    let needed = block_bytes(from, payload.len() as u64);
    match open.grant.checked_sub(needed) {
        Some(rest) => open.grant = rest,
        None => {
            let range = at..at + payload.len() as u64;
            let there = objects.bytes_with_blocks(open.object, range).unwrap_or(0);
            if there < payload.len() as u64 {
                return Err(Errno::EDQUOT);
            }
        }
    }
    objects.write_object(open.object, at, payload)?;
    objects.set_times(open.object, None, Some(now))?;
    Ok(Reply::Written { count: payload.len() as u32, offset: at })
}

/// A time that is the same on both clocks.
pub fn at(clock_ns: u64) -> Now {
    Now { wall: Timestamp::from_nanos(clock_ns), steady_ns: clock_ns }
}

/// A call on a client's own behalf.
pub fn call(seq: u64, request: Request) -> Call {
    Call { seq, caller: None, tags: Vec::new(), request }
}

/// The first request on a connection.
pub fn hello(instance: Option<InstanceId>, token: Option<SessionToken>, slot: u32) -> Request {
    Request::Session(SessionRequest::Attach(Attach {
        version: PROTOCOL_VERSION,
        instance,
        token,
        slot,
        data_connection: false,
        single_cache: false,
        cache_checks_permissions: false,
        client: ClientHost::default(),
        delegates: TrailingField::default(),
        client_number: TrailingField::default(),
    }))
}

/// The instance, with this placement.
pub fn spec(capacity: u64, inodes: u64, placement: Placement) -> InstanceSpec {
    InstanceSpec { id: INSTANCE, uid: 0, gid: 0, mode: 0o755, capacity, inodes, placement }
}

/// A connection of root.
pub fn connected(conn: ConnId) -> Input {
    Input::Connected(conn, root(true))
}

/// A request on a directory or inode as the same operation by path, for two of three numbers.
pub fn by_path(seq: u64, request: Request) -> Request {
    let (from, operation) = match &request {
        Request::Name(
            name @ (NameRequest::Lookup { parent, .. }
            | NameRequest::Mknod { parent, .. }
            | NameRequest::Create { parent, .. }
            | NameRequest::PutFile { parent, .. }
            | NameRequest::Unlink { parent, .. }
            | NameRequest::RmDir { parent, .. }),
        ) => (*parent, PathOperation::Name(name.clone())),
        Request::Inode(inode @ InodeRequest::SetAttr { ino, .. }) => {
            (*ino, PathOperation::Inode(inode.clone()))
        }
        Request::File(file @ FileRequest::Open { ino, .. }) => {
            (*ino, PathOperation::File(file.clone()))
        }
        _ => return request,
    };
    let names = match (seq % 3, &operation) {
        (0, _) => return request,
        (1, PathOperation::Name(_)) => b"./".to_vec(),
        _ => Vec::new(),
    };
    let path = PathRest { from, names, links: 0 };
    Request::Path(Box::new(PathRequest { path, follow: true, operation }))
}

/// Requests of a batch that [`in_batch`] makes.
const BATCH: u64 = 3;

/// A call as one request of a batch, if it may be in one.
pub fn in_batch(call: Call) -> Call {
    let wanted = match call.request.clone() {
        request if !request.is_batched() => return call,
        Request::Name(request) => BatchRequest::Name(request),
        Request::Inode(request) => BatchRequest::Inode(request),
        Request::Path(request) => BatchRequest::Path(request),
        _ => return call,
    };
    let other = BatchRequest::Inode(InodeRequest::GetAttr { ino: Ino::ROOT });
    let at = |position| if position == call.seq % BATCH { wanted.clone() } else { other.clone() };
    Call { request: Request::Batch((0..BATCH).map(at).collect()), ..call }
}

/// Whence the reply to a call on `conn` comes, which may be one of [`in_batch`].
pub fn replying(conn: ConnId, call: &Call) -> ConnId {
    match call.request {
        Request::Batch(_) => conn.at_position((call.seq % BATCH) as usize),
        _ => conn,
    }
}

/// The request for which [`by_path`] made one by path.
pub fn by_inode(request: &Request) -> Request {
    match request {
        Request::Path(path) => path.operation.clone().at(path.path.from).expect("an operation"),
        request => request.clone(),
    }
}
