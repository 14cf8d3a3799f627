//! A storage daemon in virtual time on a simulated disk. What a driver does with the effects of a node
//! is done here, once for all simulations; what takes time, or can go wrong on the way, is returned to
//! them.

use super::log_space::note_log_space;
use super::seeds::{Random, root};
use forebay_protocol::message::{
    Attach, InstanceSpec, PROTOCOL_VERSION, SessionRequest, SessionToken,
};
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, InstanceId, NodeIndex, Reply, Request, Timestamp};
use forebay_store::log::{Log, LogSpace};
use forebay_store::node::{
    ConnId, Effect, Input, Limits, Node, NodeState, Now, fetch_reply_in_memory,
};
use forebay_store::objects::{MemoryObjects, ObjectId, Objects};
use forebay_store::recovery;
use forebay_store::storage::{Fault, MemoryStorage};

/// The only instance.
pub const INSTANCE: InstanceId = InstanceId(7);

/// A reply on its way to a client.
#[derive(Debug)]
pub struct Sent {
    pub seq: u64,
    pub reply: Reply,
    pub object: Option<ObjectId>,
}

/// A request to make an object, or all files that were stored whole, and the log durable.
#[derive(Debug)]
pub struct SyncRequest {
    pub conn: ConnId,
    pub seq: u64,
    pub object: Option<ObjectId>,
    pub all_puts: bool,
}

/// What remains to be done of a step.
#[derive(Debug)]
pub enum Output {
    Reply(ConnId, Sent),
    Sync(SyncRequest),
    /// Some call waits for the log to be durable.
    SyncLog,
    Message(NodeIndex, PeerMessage),
    Disconnect(ConnId),
}

struct Running {
    node: Node<MemoryObjects>,
    log: Log<MemoryStorage>,
}

pub struct Daemon {
    pub storage: MemoryStorage,
    pub objects: MemoryObjects,
    segment_bytes: u64,
    lease_ns: u64,
    running: Option<Running>,
    /// Records since they were last taken.
    records: Vec<Vec<u8>>,
    /// What the log had space for at the last input.
    pub log_space: LogSpace,
    /// How full the log's disk may become.
    capacity_bytes: Option<u64>,
}

impl Daemon {
    pub fn new(seed: u64, segment_bytes: u64, lease_ns: u64) -> Daemon {
        Daemon {
            storage: MemoryStorage::new(seed),
            objects: MemoryObjects::default(),
            segment_bytes,
            lease_ns,
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

    /// Recover, and start. Returns the recovered state.
    pub fn start(&mut self, now: Now, random: &mut Random) -> NodeState {
        let (state, mut log) =
            recovery::recover_state(self.storage.clone(), self.segment_bytes).unwrap();
        let _ = recovery::ensure_spares(&self.storage, self.segment_bytes);
        // However full the disk is.
        log.ensure_start_headroom().expect("a start has space");
        let limits = Limits { lease_ns: self.lease_ns, ..Limits::default() };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&random.below(u64::MAX).to_le_bytes());
        let (last, objects) = (log.last_sequence(), self.objects.clone());
        let node = Node::start(state.clone(), last, objects, limits, now, seed).unwrap();
        self.running = Some(Running { node, log });
        self.commit().expect("the record of a start is written without a fault");
        self.sync_log().expect("and is durable before any call is answered");
        state
    }

    /// The process dies, or the power fails. Returns the node as it was.
    pub fn stop(&mut self, power_cut: bool) -> Option<Node<MemoryObjects>> {
        let running = self.running.take();
        if power_cut {
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

    /// Take one input. `None`: the daemon is down, or dies of it.
    pub fn step(&mut self, now: Now, input: Input) -> Option<Vec<Output>> {
        let running = self.running.as_mut()?;
        // An error is the death of the process, which is seen below.
        let space = running.log.ensure_headroom();
        self.log_space = space.unwrap_or(LogSpace::Exhausted);
        running.node.set_log_space(self.log_space);
        note_log_space(self.log_space);
        let mut effects = Vec::new();
        running.node.step(now, input, &mut effects);
        self.commit()?;
        if self.storage.has_crashed() {
            return None;
        }
        Some(effects.into_iter().filter_map(|effect| self.carry_out(effect)).collect())
    }

    fn carry_out(&self, effect: Effect<ObjectId>) -> Option<Output> {
        Some(match effect {
            Effect::Reply { conn, seq, reply, descriptor: object, .. } => {
                Output::Reply(conn, Sent { seq, reply, object })
            }
            Effect::FetchObject { conn, seq, object, attr, length } => {
                let reply = fetch_reply_in_memory(&self.objects, object, *attr, length);
                let object = None;
                Output::Reply(conn, Sent { seq, reply, object })
            }
            Effect::Sync { conn, seq, object, put_count, .. } => {
                Output::Sync(SyncRequest { conn, seq, object, all_puts: put_count > 0 })
            }
            Effect::SyncLog => Output::SyncLog,
            Effect::SendToPeer { node, message, .. } => Output::Message(node, *message),
            Effect::Disconnect(conn) => Output::Disconnect(conn),
            // Clients write to the objects themselves, and no simulated object has checksums.
            Effect::InvalidateChecksums(_)
            | Effect::ObjectWritten(_)
            | Effect::Scrub { .. }
            | Effect::BulkConnection(..)
            | Effect::BulkOpen(..)
            | Effect::BulkGrant(..)
            | Effect::BulkClose(..) => return None,
        })
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
    pub fn sync_objects(&mut self, request: &SyncRequest) -> Vec<ObjectId> {
        let mut synced: Vec<ObjectId> = request.object.into_iter().collect();
        if request.all_puts {
            self.objects.sync_all_objects();
            let all = self.objects.list_objects(INSTANCE).unwrap_or_default();
            let instance = INSTANCE;
            synced.extend(all.into_iter().map(|(ino, _)| ObjectId { instance, ino }));
        }
        if let Some(object) = request.object {
            self.objects.sync_object(object);
        }
        synced
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

    /// The first record of the segment that is written to.
    pub fn segment_start(&self) -> Option<u64> {
        let running = self.running.as_ref();
        running.map(|running| running.log.segment_start_sequence())
    }
}

/// A time of which both clocks show the same.
pub fn at(clock_ns: u64) -> Now {
    Now { wall: Timestamp::from_nanos(clock_ns), steady_ns: clock_ns }
}

/// A call on a client's own behalf.
pub fn call(seq: u64, request: Request) -> Call {
    Call { seq, caller: None, request }
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
    }))
}

/// The instance, with this placement.
pub fn spec(capacity: u64, inodes: u64, placement: Placement) -> InstanceSpec {
    InstanceSpec { id: INSTANCE, uid: 0, gid: 0, mode: 0o755, capacity, inodes, placement }
}

/// A connection of root.
pub fn connected(conn: ConnId) -> Input {
    Input::Connected(conn, root())
}
