//! One daemon, its crashes and recoveries, and the history that they are compared with.

use crate::clients::Client;
use crate::support::daemon::{
    Daemon, INSTANCE, Output, Sent, SyncRequest, at, by_inode, call, connected, hello, replying,
    spec,
};
use crate::support::object_faults::FaultRates;
use crate::support::seeds::Random;
use forebay_protocol::message::{AdminRequest, InodeRequest};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, Errno, Ino, Reply, Request};
use forebay_store::log::{LogSpace, RecoveryError, segment_first_sequence};
use forebay_store::node::{ConnId, Input, NodeState, Record};
use forebay_store::objects::{ObjectId, Objects};
use forebay_store::recovery;
use forebay_store::storage::Storage;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

pub const CAPACITY: u64 = 256 << 10;
/// So small that it is full soon.
const SEGMENT_BYTES: u64 = 6 << 10;
const LEASE_NS: u64 = 5_000_000_000;

/// Starts from the checkpoint before the newest one.
pub static DAMAGED_CHECKPOINTS: AtomicU64 = AtomicU64::new(0);
/// Files that have lost data.
pub static LOST_DATA: AtomicU64 = AtomicU64::new(0);

pub struct World {
    pub random: Random,
    pub daemon: Daemon,
    clock_ns: u64,
    next_conn: u64,
    clients: Vec<Client>,
    /// The state that the records so far lead to, and its fingerprint after each of them.
    mirror: NodeState,
    fingerprints: Vec<u64>,
    /// The last records that were written, and synced, before a reply.
    written: u64,
    synced: u64,
    /// Contents of files when they were last synced.
    synced_data: BTreeMap<Ino, Vec<u8>>,
    /// Truncations that wait in the daemon, by connection and number of the call.
    waiting_truncations: BTreeMap<(ConnId, u64), (Ino, u64)>,
    has_power_cuts: bool,
    /// Whether data sometimes cannot be written back.
    pub has_object_faults: bool,
    /// Files that have lost data of which their writer was not told.
    pub lost: BTreeSet<Ino>,
    /// Files that have lost data.
    pub incomplete: BTreeSet<Ino>,
    /// Space for the next checkpoint was reserved.
    has_spares: bool,
    /// Bytes that files may take beyond the capacity: a crash has undone removals or truncations whose
    /// space had been granted to others.
    undone: u64,
}

fn fingerprint(state: &NodeState) -> u64 {
    let mut hasher = DefaultHasher::new();
    postcard::to_stdvec(state).unwrap().hash(&mut hasher);
    hasher.finish()
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::of(seed);
        let has_power_cuts = random.one_in(2);
        let clients = (0..3).map(|number| Client::new(number, !has_power_cuts)).collect();
        let mut world = World {
            random,
            daemon: Daemon::new(seed, SEGMENT_BYTES, LEASE_NS),
            clock_ns: 0,
            next_conn: 1,
            clients,
            mirror: NodeState::default(),
            fingerprints: vec![fingerprint(&NodeState::default())],
            written: 0,
            synced: 0,
            synced_data: BTreeMap::new(),
            waiting_truncations: BTreeMap::new(),
            has_power_cuts,
            has_object_faults: false,
            lost: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            has_spares: false,
            undone: 0,
        };
        world.start();
        world.create_instance();
        world.has_object_faults = world.random.one_in(3);
        if world.has_object_faults {
            let rates = FaultRates { write_back: 200, ..FaultRates::default() };
            world.daemon.objects.set_faults(seed, rates);
        }
        world
    }

    pub fn length(&mut self) -> u64 {
        150 + self.random.below(400)
    }

    /// Records that the log had space for at the last input.
    pub fn log_space(&self) -> LogSpace {
        self.daemon.log_space
    }

    /// One event.
    pub fn act(&mut self) {
        self.clock_ns += 1 + self.random.below(50_000_000);
        match self.random.below(100) {
            0 => self.crash(),
            1 => {
                let crash_after_ops = Some(1 + self.random.below(20));
                self.daemon.set_fault(crash_after_ops);
            }
            2 => {
                let segments = Some(self.random.below(7));
                self.daemon.set_disk_segments(segments);
            }
            3 => self.daemon.set_disk_segments(None),
            4 => self.input(Input::Tick),
            5 => self.sync_log(),
            6 | 7 => self.write_checkpoint(),
            8 => self.ensure_spares(),
            _ => {
                let chosen = self.random.below(self.clients.len() as u64) as usize;
                self.client(chosen);
            }
        }
    }

    /// Every client gets a reply, and all is checked once more.
    pub fn finish(&mut self) {
        self.daemon.set_disk_segments(None);
        self.ensure_spares();
        self.input(Input::Tick);
        assert_eq!(self.log_space(), LogSpace::Normal);
        for chosen in 0..self.clients.len() {
            for _ in 0..5 {
                self.client(chosen);
            }
        }
        self.crash();
        self.daemon.set_disk_segments(None);
        for chosen in 0..self.clients.len() {
            for _ in 0..3 {
                self.client(chosen);
            }
        }
    }

    fn client(&mut self, chosen: usize) {
        let mut client = std::mem::replace(&mut self.clients[chosen], Client::new(99, false));
        client.act(self);
        self.clients[chosen] = client;
    }

    fn create_instance(&mut self) {
        let conn = self.connect();
        self.deliver(conn, call(1, hello(None, None, 0)));
        let spec = spec(CAPACITY, 60, Placement::single_node());
        let created =
            self.deliver(conn, call(2, Request::Admin(AdminRequest::CreateInstance(spec))));
        assert!(matches!(created, Some(sent) if sent.reply == Reply::Done));
        self.sync_log();
    }

    /// A new connection. While the daemon is down, it is one that the daemon does not know.
    pub fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.input(connected(conn));
        conn
    }

    /// Deliver a call. Returns the reply, unless the daemon dies.
    pub fn deliver(&mut self, conn: ConnId, call: Call) -> Option<Sent> {
        let from = [conn, replying(conn, &call)];
        let replies = self.step(Input::Call(conn, call))?;
        let mut replies = replies.into_iter().filter(|(to, _)| from.contains(to));
        let (_, sent) = replies.next()?;
        // A daemon that has started again does not know the connection: it is broken.
        (sent.reply != Reply::Failed(Errno::ENOTCONN)).then_some(sent)
    }

    pub fn input(&mut self, input: Input) {
        self.step(input);
    }

    fn step(&mut self, input: Input) -> Option<Vec<(ConnId, Sent)>> {
        if let Input::Call(conn, call) = &input
            && let Request::Inode(InodeRequest::SetAttr { ino, set, .. }) = by_inode(&call.request)
            && let Some(size) = set.size
        {
            self.may_be_truncated(ino, size); // from here on
            self.waiting_truncations.insert((*conn, call.seq), (ino, size));
        }
        self.daemon.node()?;
        let outputs = self.daemon.step(at(self.clock_ns), input);
        self.note_records();
        self.note_lost();
        let Some(outputs) = outputs else {
            self.crash();
            return None;
        };
        self.written = self.daemon.last_record().unwrap();
        assert_eq!(self.written, self.fingerprints.len() as u64 - 1);
        let mut replies = Vec::new();
        for output in outputs {
            match output {
                Output::Reply(conn, sent) => {
                    // Others may have synced the file while the call waited.
                    if let Some((ino, size)) = self.waiting_truncations.remove(&(conn, sent.seq)) {
                        self.may_be_truncated(ino, size);
                    }
                    replies.push((conn, sent));
                }
                Output::Sync(request) => replies.push(self.sync(&request)?),
                Output::SyncLog
                | Output::Message { .. }
                | Output::DataConnection(..)
                | Output::Disconnect(_) => {}
            }
        }
        self.check_capacity();
        Some(replies)
    }

    fn may_be_truncated(&mut self, ino: Ino, size: u64) {
        if let Some(data) = self.synced_data.get_mut(&ino) {
            data.truncate(size as usize);
        }
    }

    /// Apply the records of a step to the mirror.
    fn note_records(&mut self) {
        for bytes in self.daemon.take_records() {
            let record: Record = postcard::from_bytes(&bytes).unwrap();
            self.mirror.apply(&record).unwrap();
            self.fingerprints.push(fingerprint(&self.mirror));
        }
    }

    /// `None`: the daemon dies.
    fn sync(&mut self, request: &SyncRequest) -> Option<(ConnId, Sent)> {
        let objects = self.daemon.sync_objects(request);
        self.note_lost();
        let Some(synced) = self.daemon.sync_log() else {
            self.crash();
            return None;
        };
        self.synced = synced;
        let reply = match &objects {
            Ok(_) => Reply::Done,
            Err(errno) => Reply::Failed(*errno),
        };
        for object in objects.unwrap_or_default() {
            let data = self.daemon.objects.object_contents(object).unwrap_or_default();
            self.synced_data.insert(object.ino, data);
        }
        let sent = Sent { seq: request.seq, reply, object: None, cacheable: false };
        Some((request.conn, sent))
    }

    fn note_lost(&mut self) {
        for object in self.daemon.objects.take_lost() {
            LOST_DATA.fetch_add(1, Ordering::Relaxed);
            self.lost.insert(object.ino);
            self.incomplete.insert(object.ino);
        }
    }

    fn sync_log(&mut self) {
        if self.daemon.node().is_none() {
            return;
        }
        match self.daemon.sync_log() {
            None => self.crash(),
            Some(synced) => {
                self.synced = synced;
                self.input(Input::LogSynced(synced));
            }
        }
    }

    fn write_checkpoint(&mut self) {
        let storage = &self.daemon.storage;
        let names = storage.list_files().unwrap();
        let covered = names.iter().filter_map(|name| recovery::checkpoint_sequence(name)).max();
        let first = |name: &String| segment_first_sequence(name);
        let is_open = |first: &u64| *first > covered.unwrap_or(0);
        let segments = names.iter().filter_map(first).filter(is_open);
        let is_possible = self.has_spares && segments.count() <= 2;
        match self.daemon.write_checkpoint() {
            Ok(written) => self.has_spares &= !written,
            Err(_) if storage.has_crashed() => self.crash(),
            // The disk is full: the checkpoint is retried later.
            Err(RecoveryError::Io(error)) => {
                assert!(!is_possible, "space was reserved for a checkpoint: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn ensure_spares(&mut self) {
        let reserved = self.daemon.ensure_spares();
        if self.daemon.storage.has_crashed() {
            return self.crash();
        }
        self.has_spares |= reserved.is_ok();
    }

    /// The process dies or the power fails; then the daemon starts again, and all is compared.
    fn crash(&mut self) {
        let before = self.space_of_files();
        self.has_spares = false;
        self.waiting_truncations.clear();
        let power_cut = self.has_power_cuts && self.random.one_in(2);
        self.daemon.stop(power_cut);
        let lowest = if power_cut { self.synced } else { self.written };
        // Recovery may die as well, again and again.
        while self.random.one_in(3) {
            self.daemon.fail_recovery(1 + self.random.below(4));
        }
        self.start();
        let last = self.daemon.last_record().unwrap() - 1;
        assert!(last >= lowest, "records {last} to {lowest} are lost");
        self.check_data();
        let more = |(ino, space): (&Ino, &u64)| {
            space.saturating_sub(before.get(ino).copied().unwrap_or(0))
        };
        self.undone += self.space_of_files().iter().map(more).sum::<u64>();
    }

    /// Recover and start. The recovered state must be the one after some record.
    fn start(&mut self) {
        let seed = self.random.below(u64::MAX);
        if self.random.one_in(4) && self.daemon.damage_newest_checkpoint(seed) {
            DAMAGED_CHECKPOINTS.fetch_add(1, Ordering::Relaxed);
        }
        let state =
            self.daemon.start(at(self.clock_ns), seed).expect("a full disk has space to start");
        let last = self.daemon.last_record().unwrap() - 1; // before the record of this start
        let expected = self.fingerprints.get(last as usize);
        assert_eq!(
            Some(&fingerprint(&state)),
            expected,
            "the state after record {last} is another one"
        );
        self.fingerprints.truncate(last as usize + 1);
        self.mirror = state;
        self.note_records();
        self.written = last + 1;
        self.synced = last + 1;
    }

    /// A client writes: synced data after `offset` does not count any more.
    pub fn write(&mut self, object: ObjectId, offset: u64, data: &[u8]) -> bool {
        if let Some(synced) = self.synced_data.get_mut(&object.ino) {
            synced.truncate(offset as usize);
        }
        self.daemon.objects.write_object(object, offset, data).is_ok()
    }

    fn check_data(&mut self) {
        let volume = self.daemon.node().and_then(|node| node.volume(INSTANCE));
        let Some(volume) = volume else {
            return;
        };
        for (ino, data) in &self.synced_data {
            if volume.names.get(*ino).is_some() {
                let (instance, ino) = (INSTANCE, *ino);
                let now = self.daemon.objects.object_contents(ObjectId { instance, ino });
                let now = now.unwrap_or_else(|| panic!("the data of file {ino} is lost"));
                assert!(now.len() >= data.len() && now[..data.len()] == data[..], "file {ino}");
            }
        }
        for (ino, _) in self.daemon.objects.list_objects(INSTANCE).unwrap() {
            let inode = volume.names.get(ino);
            assert!(inode.is_some(), "object {ino} belongs to no file");
        }
    }

    /// The space of all files' objects. Those of removed files stay until their removal is durable.
    fn space_of_files(&self) -> BTreeMap<Ino, u64> {
        let volume = self.daemon.node().and_then(|node| node.volume(INSTANCE));
        let Some(volume) = volume else {
            return BTreeMap::new();
        };
        let objects = self.daemon.objects.list_objects(INSTANCE).unwrap();
        let mut objects: BTreeMap<Ino, u64> = objects.into_iter().collect();
        objects.retain(|ino, _| volume.names.get(*ino).is_some());
        objects
    }

    fn check_capacity(&mut self) {
        let taken: u64 = self.space_of_files().values().sum();
        assert!(taken <= CAPACITY + self.undone, "{taken} bytes are taken");
        // It shrinks as they do: nothing more is granted meanwhile.
        self.undone = self.undone.min(taken.saturating_sub(CAPACITY));
    }
}
