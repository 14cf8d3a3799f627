//! The daemon's host: disk, crashes, recovery, and what is known about the past.

use crate::clients::{Client, Sent};
use crate::seeds::{Random, root};
use crate::short::note_room;
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::message::{AdminRequest, InodeRequest};
use forebay_protocol::{Call, Errno, Ino, InstanceId, Reply, Request, Timestamp};
use forebay_store::log::{Log, LogSpace};
use forebay_store::node::{
    ConnId, Effect, Input, Limits, NodeState, Now, Record, Shard, fetch_reply_in_memory,
};
use forebay_store::objects::{MemoryObjects, ObjectId, Objects};
use forebay_store::recovery;
use forebay_store::storage::{Fault, MemoryStorage, Storage};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

pub const INSTANCE: InstanceId = InstanceId(7);
pub const CAPACITY: u64 = 256 << 10;
/// So small that it is full soon.
const SEGMENT: u64 = 6 << 10;

struct Running {
    shard: Shard<MemoryObjects>,
    log: Log<MemoryStorage>,
}

pub struct World {
    pub random: Random,
    storage: MemoryStorage,
    objects: MemoryObjects,
    running: Option<Running>,
    clock: u64,
    next_conn: u64,
    clients: Vec<Client>,
    /// The state that the records so far lead to, and its fingerprint after each of them.
    mirror: NodeState,
    prints: Vec<u64>,
    /// Records that were written and answered for; records that were synced and answered for.
    written: u64,
    synced: u64,
    /// Contents of files when they were last synced.
    synced_data: BTreeMap<Ino, Vec<u8>>,
    power_cuts: bool,
    /// How full the disk may become.
    capacity: Option<u64>,
    /// Space for the next checkpoint was kept.
    provided: bool,
    /// What the log had room for when the last input came.
    pub room: LogSpace,
    /// What files may take beyond the capacity: a crash has undone that they were removed or cut, and
    /// their space had been given away.
    undone: u64,
}

fn print(state: &NodeState) -> u64 {
    let mut hasher = DefaultHasher::new();
    postcard::to_stdvec(state).unwrap().hash(&mut hasher);
    hasher.finish()
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::of(seed);
        let power_cuts = random.one_in(2);
        let clients = (0..3)
            .map(|number| Client::new(number, !power_cuts))
            .collect();
        let mut world = World {
            storage: MemoryStorage::new(seed),
            random,
            objects: MemoryObjects::default(),
            running: None,
            clock: 0,
            next_conn: 1,
            clients,
            mirror: NodeState::default(),
            prints: vec![print(&NodeState::default())],
            written: 0,
            synced: 0,
            synced_data: BTreeMap::new(),
            undone: 0,
            power_cuts,
            capacity: None,
            provided: false,
            room: LogSpace::Normal,
        };
        world.start();
        world.make_instance();
        world
    }

    pub fn length(&mut self) -> u64 {
        150 + self.random.below(400)
    }

    fn now(&self) -> Now {
        Now {
            wall: Timestamp::from_nanos(self.clock),
            steady_ns: self.clock,
        }
    }

    /// One thing happens.
    pub fn act(&mut self) {
        self.clock += 1 + self.random.below(50_000_000);
        match self.random.below(100) {
            0 => self.crash(),
            1 => {
                let die_after = Some(1 + self.random.below(20));
                self.set_fault(die_after);
            }
            2 => {
                self.capacity = Some(self.random.below(7) * SEGMENT);
                self.set_fault(None);
            }
            3 => self.make_room(),
            4 => self.input(Input::Tick),
            5 => self.sync_log(),
            6 | 7 => self.checkpoint(),
            8 => self.keep_spares(),
            _ => {
                let chosen = self.random.below(self.clients.len() as u64) as usize;
                self.client(chosen);
            }
        }
    }

    fn set_fault(&mut self, die_after: Option<u64>) {
        let capacity = self.capacity;
        self.storage.set_fault(Fault {
            crash_after_ops: die_after,
            capacity_bytes: capacity,
        });
    }

    /// The disk is full no more.
    fn make_room(&mut self) {
        self.capacity = None;
        self.set_fault(None);
    }

    /// The dust settles: every client gets an answer, and all is checked once more.
    pub fn finish(&mut self) {
        self.make_room();
        self.keep_spares();
        self.input(Input::Tick);
        assert_eq!(self.room, LogSpace::Normal);
        for chosen in 0..self.clients.len() {
            for _ in 0..5 {
                self.client(chosen);
            }
        }
        self.crash();
        self.make_room();
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

    fn make_instance(&mut self) {
        let conn = self.connect();
        let hello = crate::clients::hello(None, None, 0);
        self.deliver(
            conn,
            Call {
                seq: 1,
                caller: None,
                request: hello,
            },
        );
        let spec = InstanceSpec {
            id: INSTANCE,
            uid: 0,
            gid: 0,
            mode: 0o755,
            capacity: CAPACITY,
            inodes: 60,
            placement: forebay_protocol::placement::Placement::single_node(),
        };
        let call = Call {
            seq: 2,
            caller: None,
            request: Request::Admin(AdminRequest::CreateInstance(spec)),
        };
        assert!(matches!(
            self.deliver(conn, call),
            Some(Sent {
                reply: Reply::Done,
                ..
            })
        ));
        self.sync_log();
    }

    /// A new connection; `None` while the daemon is down is a number it will not know.
    pub fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.input(Input::Connected(conn, root()));
        conn
    }

    /// Deliver a call and return the reply, unless the daemon dies over it.
    pub fn deliver(&mut self, conn: ConnId, call: Call) -> Option<Sent> {
        let replies = self.step(Input::Call(conn, call))?;
        let sent = replies
            .into_iter()
            .find(|(to, _)| *to == conn)
            .map(|(_, sent)| sent)?;
        // A connection that a restarted daemon does not know is a broken one.
        (sent.reply != Reply::Failed(Errno::ENOTCONN)).then_some(sent)
    }

    pub fn input(&mut self, input: Input) {
        self.step(input);
    }

    fn step(&mut self, input: Input) -> Option<Vec<(ConnId, Sent)>> {
        if let Input::Call(
            _,
            Call {
                request: Request::Inode(InodeRequest::SetAttr { ino, set, .. }),
                ..
            },
        ) = &input
            && let (Some(data), Some(size)) = (self.synced_data.get_mut(ino), set.size)
        {
            data.truncate(size as usize); // from here on it may be cut
        }
        let now = self.now();
        let running = self.running.as_mut()?;
        // An error is the death of the process, which is seen below.
        self.room = running.log.ensure_headroom().unwrap_or(LogSpace::Exhausted);
        running.shard.set_log_room(self.room);
        note_room(self.room);
        let mut effects = Vec::new();
        running.shard.step(now, input, &mut effects);
        if self.commit().is_none() || self.storage.has_crashed() {
            self.crash();
            return None;
        }
        let mut replies = Vec::new();
        for effect in effects {
            match effect {
                Effect::Reply {
                    conn,
                    seq,
                    reply,
                    descriptor,
                    ..
                } => {
                    replies.push((
                        conn,
                        Sent {
                            seq,
                            reply,
                            object: descriptor,
                        },
                    ));
                }
                Effect::FetchObject {
                    conn,
                    seq,
                    object,
                    attr,
                    length,
                } => {
                    let reply = fetch_reply_in_memory(&self.objects, object, *attr, length);
                    let object = None;
                    replies.push((conn, Sent { seq, reply, object }));
                }
                Effect::Sync {
                    conn,
                    seq,
                    object,
                    put_count: contents,
                    ..
                } => {
                    if contents > 0 {
                        self.objects.sync_all_objects();
                    }
                    if let Some(object) = object {
                        self.objects.sync_object(object);
                    }
                    let running = self.running.as_mut()?;
                    if running.log.sync().is_err() {
                        self.crash();
                        return None;
                    }
                    self.synced = running.log.last_sequence();
                    let all = self.objects.list_objects(INSTANCE).unwrap_or_default();
                    for (ino, _) in all.into_iter().filter(|_| contents > 0) {
                        let instance = INSTANCE;
                        let data = self.objects.object_contents(ObjectId { instance, ino });
                        self.synced_data.insert(ino, data.unwrap_or_default());
                    }
                    if let Some(object) = object {
                        let data = self.objects.object_contents(object).unwrap_or_default();
                        self.synced_data.insert(object.ino, data);
                    }
                    replies.push((
                        conn,
                        Sent {
                            seq,
                            reply: Reply::Done,
                            object: None,
                        },
                    ));
                }
                _ => {}
            }
        }
        self.check_capacity();
        Some(replies)
    }

    /// Write what the shard has to log, and note where it leads.
    fn commit(&mut self) -> Option<()> {
        let running = self.running.as_mut()?;
        for bytes in running.shard.take_records() {
            let record: Record = postcard::from_bytes(&bytes).unwrap();
            self.mirror.apply(&record).unwrap();
            self.prints.push(print(&self.mirror));
            running.log.append(&bytes).ok()?;
        }
        assert_eq!(running.log.last_sequence(), self.prints.len() as u64 - 1);
        running.log.flush().ok()?;
        self.written = running.log.last_sequence();
        Some(())
    }

    fn sync_log(&mut self) {
        let Some(running) = self.running.as_mut() else {
            return;
        };
        if running.log.sync().is_err() {
            return self.crash();
        }
        self.synced = running.log.last_sequence();
        let sequence = self.synced;
        self.input(Input::LogSynced(sequence));
    }

    fn checkpoint(&mut self) {
        let Some(running) = self.running.as_ref() else {
            return;
        };
        let start = running.log.segment_start_sequence();
        let names = self.storage.list_files().unwrap();
        let segments = names.iter().filter(|name| name.starts_with("log."));
        let provided = self.provided && segments.count() <= 2;
        match recovery::write_checkpoint(&self.storage, start) {
            Ok(made) => self.provided &= !made,
            Err(_) if self.storage.has_crashed() => self.crash(),
            // A full disk: the checkpoint comes another time.
            Err(forebay_store::log::RecoveryError::Io(error)) => {
                assert!(!provided, "space was kept for a checkpoint: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn keep_spares(&mut self) {
        let kept = recovery::ensure_spares(&self.storage, SEGMENT);
        if self.storage.has_crashed() {
            return self.crash();
        }
        self.provided |= kept.is_ok();
    }

    /// The process dies or the power goes; then the daemon starts again and all is compared.
    fn crash(&mut self) {
        let before = self.taken();
        self.running = None;
        self.provided = false;
        let lowest = if self.power_cuts && self.random.one_in(2) {
            self.storage.power_cut();
            self.objects.power_cut();
            self.synced
        } else {
            self.storage.restart_process();
            self.written
        };
        // Recovery may die as well, again and again.
        while self.random.one_in(3) {
            let die_after = Some(1 + self.random.below(4));
            self.set_fault(die_after);
            let died = recovery::recover_state(self.storage.clone(), SEGMENT);
            let _ = died.map(|(_, mut log)| log.ensure_start_headroom());
            self.storage.restart_process();
        }
        let (state, log) = recovery::recover_state(self.storage.clone(), SEGMENT).unwrap();
        let last = log.last_sequence();
        assert!(last >= lowest, "records {last} to {lowest} are lost");
        let expected = self
            .prints
            .get(last as usize)
            .expect("a record nobody wrote");
        assert_eq!(
            print(&state),
            *expected,
            "the state after record {last} is another one"
        );
        self.prints.truncate(last as usize + 1);
        self.mirror = state.clone();
        self.resume(state, log);
        self.check_data();
        let more = |(ino, space): (&Ino, &u64)| {
            space.saturating_sub(before.get(ino).copied().unwrap_or(0))
        };
        self.undone += self.taken().iter().map(more).sum::<u64>();
    }

    fn start(&mut self) {
        let (state, log) = recovery::recover_state(self.storage.clone(), SEGMENT).unwrap();
        recovery::ensure_spares(&self.storage, SEGMENT).unwrap();
        self.resume(state, log);
    }

    fn resume(&mut self, state: NodeState, mut log: Log<MemoryStorage>) {
        // However full the disk is.
        log.ensure_start_headroom().expect("a start has room");
        let limits = Limits {
            lease_ns: 5_000_000_000,
            ..Limits::default()
        };
        let objects = self.objects.clone();
        let now = self.now();
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.random.below(u64::MAX).to_le_bytes());
        let shard =
            Shard::start(state, log.last_sequence(), objects, limits, None, now, seed).unwrap();
        self.running = Some(Running { shard, log });
        self.commit()
            .expect("the first record of a daemon is written without a fault");
        let log = self.running.as_mut().map(|running| &mut running.log);
        log.map(Log::sync)
            .transpose()
            .expect("and made durable before anybody is answered");
        self.synced = self.synced.min(self.written);
    }

    /// A client writes: what was synced behind `offset` no longer counts.
    pub fn write(&mut self, object: ObjectId, offset: u64, data: &[u8]) -> bool {
        if let Some(synced) = self.synced_data.get_mut(&object.ino) {
            synced.truncate(offset as usize);
        }
        self.objects.write_object(object, offset, data).is_ok()
    }

    fn check_data(&mut self) {
        let Some(running) = &self.running else { return };
        let Some(instance) = running.shard.state().volumes.get(&INSTANCE) else {
            return;
        };
        for (ino, data) in &self.synced_data {
            if instance.names.get(*ino).is_some() {
                let object = ObjectId {
                    instance: INSTANCE,
                    ino: *ino,
                };
                let now = self.objects.object_contents(object);
                let now = now.unwrap_or_else(|| panic!("the data of file {ino} is gone"));
                assert!(
                    now.len() >= data.len() && now[..data.len()] == data[..],
                    "file {ino}"
                );
            }
        }
        for (ino, _) in self.objects.list_objects(INSTANCE).unwrap() {
            assert!(
                instance.names.get(ino).is_some(),
                "object {ino} belongs to no file"
            );
        }
    }

    /// The space of all files' objects. Those of removed files stay until their removal is durable.
    fn taken(&self) -> BTreeMap<Ino, u64> {
        let state = self.running.as_ref().map(|running| running.shard.state());
        let instance = state.and_then(|state| state.volumes.get(&INSTANCE));
        let Some(instance) = instance else {
            return BTreeMap::new();
        };
        let objects = self.objects.list_objects(INSTANCE).unwrap().into_iter();
        let live = objects.filter(|(ino, _)| instance.names.get(*ino).is_some());
        live.collect()
    }

    fn check_capacity(&mut self) {
        let taken: u64 = self.taken().values().sum();
        assert!(taken <= CAPACITY + self.undone, "{taken} bytes are taken");
        // It goes as they do: nothing more is promised meanwhile.
        self.undone = self.undone.min(taken.saturating_sub(CAPACITY));
    }
}
