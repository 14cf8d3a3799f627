//! The hosts of the daemons, the network between them, and what goes wrong with both.

use crate::clients::Client;
use crate::seeds::{Random, root};
use crate::short::note_room;
use forebay_protocol::message::{AdminRequest, SessionRequest};
use forebay_protocol::message::{Attach, InstanceSpec, PROTOCOL_VERSION, SessionToken};
use forebay_protocol::peer::{Incarnation, PeerMessage};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, Ino, InstanceId, NodeIndex, Reply, Request, Timestamp};
use forebay_store::log::{Log, LogSpace};
use forebay_store::node::{
    ConnId, Effect, Input, Limits, NodeState, Now, Shard, fetch_reply_in_memory,
};
use forebay_store::objects::{MemoryObjects, ObjectId, Objects};
use forebay_store::recovery;
use forebay_store::storage::{Fault, MemoryStorage};
use std::collections::BTreeMap;

pub const INSTANCE: InstanceId = InstanceId(7);
pub const STRIPE: u64 = 4096;
/// So small that it is full soon.
const SEGMENT: u64 = 3 << 10;
const LEASE: u64 = 60_000_000_000;

/// A reply on its way to a client.
pub struct Sent {
    pub seq: u64,
    pub reply: Reply,
    pub object: Option<ObjectId>,
}

struct Running {
    shard: Shard<MemoryObjects>,
    log: Log<MemoryStorage>,
    /// Someone waits for the log to be durable.
    sync_wanted: bool,
    /// The connection over which other daemons' messages come.
    peers: ConnId,
}

pub struct Host {
    storage: MemoryStorage,
    pub objects: MemoryObjects,
    running: Option<Running>,
    /// How full its log's disk may become.
    capacity: Option<u64>,
    /// How often the daemon has started.
    starts: u64,
}

impl Host {
    fn set_fault(&mut self, die_after: Option<u64>) {
        let capacity = self.capacity;
        self.storage.set_fault(Fault {
            crash_after_ops: die_after,
            capacity_bytes: capacity,
        });
    }
}

pub struct World {
    pub random: Random,
    pub hosts: Vec<Host>,
    pub clock: u64,
    next_conn: u64,
    pub clients: Vec<Client>,
    network: Vec<(NodeIndex, PeerMessage)>,
    /// Messages that are held up for long.
    late: Vec<(NodeIndex, PeerMessage)>,
    replies: BTreeMap<ConnId, Sent>,
    /// Connections, and the starts of daemons that know them.
    conns: BTreeMap<ConnId, (NodeIndex, u64)>,
    pub power_cuts: bool,
    /// Objects as they were when they were last synced.
    pub synced: BTreeMap<(NodeIndex, Ino), Vec<u8>>,
}

pub fn hello(instance: Option<InstanceId>, resume: Option<SessionToken>) -> Request {
    Request::Session(SessionRequest::Attach(Attach {
        version: PROTOCOL_VERSION,
        instance,
        token: resume,
        slot: 0,
        data_connection: false,
        single_cache: false,
    }))
}

fn call(seq: u64, request: Request) -> Call {
    Call {
        seq,
        caller: None,
        request,
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::of(seed);
        let power_cuts = random.one_in(3);
        let nodes = 2 + random.below(3);
        let hosts = (0..nodes).map(|node| Host {
            storage: MemoryStorage::new(seed.wrapping_mul(31).wrapping_add(node)),
            objects: MemoryObjects::default(),
            running: None,
            capacity: None,
            starts: 0,
        });
        let mut world = World {
            random,
            hosts: hosts.collect(),
            clock: 1_000_000_000,
            next_conn: 1,
            clients: (0..3).map(Client::new).collect(),
            network: Vec::new(),
            late: Vec::new(),
            replies: BTreeMap::new(),
            conns: BTreeMap::new(),
            power_cuts,
            synced: BTreeMap::new(),
        };
        for node in world.nodes() {
            world.start(node);
        }
        world.make_instance();
        for number in 0..world.clients.len() {
            world.with_client(number, Client::make_home);
        }
        world
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.hosts.len() as u16).map(NodeIndex)
    }

    pub fn length(&mut self) -> u64 {
        300 + self.random.below(500)
    }

    fn host(&mut self, node: NodeIndex) -> &mut Host {
        &mut self.hosts[usize::from(node.0)]
    }

    /// The state of a daemon that runs.
    pub fn state(&self, node: NodeIndex) -> Option<&NodeState> {
        let host = &self.hosts[usize::from(node.0)];
        host.running.as_ref().map(|running| running.shard.state())
    }

    /// How often a daemon has started, also if a power cut took back that it had.
    pub fn epoch(&self, node: NodeIndex) -> u64 {
        self.hosts[usize::from(node.0)].starts
    }

    fn now(&self) -> Now {
        Now {
            wall: Timestamp::from_nanos(self.clock),
            steady_ns: self.clock,
        }
    }

    fn make_instance(&mut self) {
        let nodes = self.hosts.len() as u16;
        for node in self.nodes() {
            let conn = self.connect(node);
            self.send(node, conn, call(1, hello(None, None)));
            let place = Placement {
                node,
                nodes,
                stripe_bytes: STRIPE,
                secret: [3; 32],
                peers: (0..nodes).map(|node| format!("/{node}")).collect(),
            };
            let spec = InstanceSpec {
                id: INSTANCE,
                uid: 0,
                gid: 0,
                mode: 0o755,
                capacity: 1 << 30,
                inodes: 10_000,
                placement: place,
            };
            self.replies.remove(&conn);
            self.send(
                node,
                conn,
                call(2, Request::Admin(AdminRequest::CreateInstance(spec))),
            );
            assert!(matches!(self.replies.remove(&conn), Some(sent) if sent.reply == Reply::Done));
            self.sync_log(node);
        }
    }

    /// One thing happens.
    pub fn act(&mut self) {
        self.clock += 1 + self.random.below(60_000_000);
        let node = NodeIndex(self.random.below(self.hosts.len() as u64) as u16);
        match self.random.below(200) {
            0 => self.crash(node),
            1 => {
                let die_after = Some(1 + self.random.below(20));
                self.host(node).set_fault(die_after);
            }
            2 => {
                self.host(node).capacity = Some(self.random.below(7) * SEGMENT);
                self.host(node).set_fault(None);
            }
            3 => self.make_room(node),
            4 => self.keep(node),
            5..14 => self.input(node, Input::Tick),
            14..40 => {
                let wanted = self.host(node).running.as_ref();
                if wanted.is_some_and(|running| running.sync_wanted) || self.random.one_in(5) {
                    self.sync_log(node);
                }
            }
            40..130 => self.pass_message(),
            _ => {
                let chosen = self.random.below(self.clients.len() as u64) as usize;
                self.with_client(chosen, Client::act);
            }
        }
    }

    /// A node's disk is full no more.
    fn make_room(&mut self, node: NodeIndex) {
        self.host(node).capacity = None;
        self.host(node).set_fault(None);
    }

    fn with_client(&mut self, number: usize, act: impl FnOnce(&mut Client, &mut World)) {
        let mut client = std::mem::replace(&mut self.clients[number], Client::new(99));
        act(&mut client, self);
        self.clients[number] = client;
    }

    /// One message that is under way arrives, or is lost, or arrives and will do so again.
    fn pass_message(&mut self) {
        if self.network.is_empty() {
            return;
        }
        // Mostly in order, sometimes not.
        let chosen = if self.random.one_in(4) {
            self.random.below(self.network.len() as u64) as usize
        } else {
            0
        };
        match self.random.below(12) {
            0 => {
                self.network.remove(chosen);
            }
            1 => {
                let (to, message) = self.network[chosen].clone();
                self.deliver(to, message);
            }
            2 => {
                let message = self.network.remove(chosen);
                self.late.push(message);
            }
            _ => {
                let (to, message) = self.network.remove(chosen);
                self.deliver(to, message);
            }
        }
        if !self.late.is_empty() && self.random.one_in(40) {
            let chosen = self.random.below(self.late.len() as u64) as usize;
            let (to, message) = self.late.swap_remove(chosen);
            self.deliver(to, message);
        }
    }

    /// The present start of a node, from the last thing it said.
    pub fn last_sender(&self, node: NodeIndex) -> Option<Incarnation> {
        let mut said = self.network.iter().rev();
        let last = said.find(|(_, message)| message.from == node);
        last.map(|(_, message)| message.sender)
    }

    pub fn deliver(&mut self, to: NodeIndex, message: PeerMessage) {
        if let Some(running) = &self.host(to).running {
            let conn = running.peers;
            let request = Request::Peer(Box::new(message));
            self.input(to, Input::Call(conn, call(1, request)));
        }
    }

    /// The dust settles: all that waits is answered, and everything is checked.
    pub fn finish(&mut self) {
        for node in self.nodes() {
            self.make_room(node);
            self.keep(node);
        }
        for number in 0..self.clients.len() {
            for _ in 0..400 {
                if self.clients[number].is_idle() {
                    break;
                }
                self.settle(1);
                self.with_client(number, Client::go_on);
            }
            assert!(
                self.clients[number].is_idle(),
                "{} is not answered",
                self.clients[number].waiting()
            );
        }
        for number in 0..self.clients.len() {
            self.with_client(number, Client::leave);
        }
        for node in self.nodes() {
            if self.random.one_in(3) {
                self.crash(node);
            }
        }
        self.clock += 2 * LEASE;
        self.settle(10);
        self.check();
    }

    /// Everything under way arrives and becomes durable, and time passes.
    pub fn settle(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.clock += 500_000_000;
            for node in self.nodes() {
                // Not all at once, or two transactions would get in each other's way for ever.
                self.clock += self.random.below(100_000_000);
                self.input(node, Input::Tick);
                self.pass_all();
            }
        }
    }

    fn pass_all(&mut self) {
        for _ in 0..50 {
            for node in self.nodes() {
                self.sync_log(node);
            }
            for (to, message) in std::mem::take(&mut self.network) {
                self.deliver(to, message);
            }
            if self.network.is_empty() {
                break;
            }
        }
    }

    /// A new connection.
    pub fn connect(&mut self, node: NodeIndex) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.conns.insert(conn, (node, self.epoch(node)));
        self.input(node, Input::Connected(conn, root()));
        conn
    }

    /// Does the daemon still know a connection? Otherwise it has been closed.
    pub fn is_open(&self, conn: ConnId) -> bool {
        let known = self.conns.get(&conn);
        known.is_some_and(|(node, epoch)| self.epoch(*node) == *epoch)
    }

    pub fn disconnect(&mut self, node: NodeIndex, conn: ConnId) {
        self.replies.remove(&conn);
        self.conns.remove(&conn);
        self.input(node, Input::Disconnected(conn));
    }

    /// Deliver a call; the reply, if it comes at all, comes when it comes.
    pub fn send(&mut self, node: NodeIndex, conn: ConnId, call: Call) {
        self.input(node, Input::Call(conn, call));
    }

    /// What has come back on a connection.
    pub fn take_reply(&mut self, conn: ConnId) -> Option<Sent> {
        self.replies.remove(&conn)
    }

    pub fn input(&mut self, node: NodeIndex, input: Input) {
        let now = self.now();
        let Some(running) = self.host(node).running.as_mut() else {
            return;
        };
        // An error is the death of the process, which is seen below.
        let room = running.log.ensure_headroom().unwrap_or(LogSpace::Exhausted);
        running.shard.set_log_room(room);
        note_room(room);
        let mut effects = Vec::new();
        running.shard.step(now, input, &mut effects);
        if self.commit(node).is_none() || self.host(node).storage.has_crashed() {
            return self.crash(node);
        }
        for effect in effects {
            match effect {
                Effect::Reply {
                    conn,
                    seq,
                    reply,
                    descriptor: object,
                    ..
                } => {
                    self.replies.insert(conn, Sent { seq, reply, object });
                }
                Effect::FetchObject {
                    conn,
                    seq,
                    object,
                    attr,
                    length,
                } => {
                    let objects = &self.host(node).objects;
                    let reply = fetch_reply_in_memory(objects, object, *attr, length);
                    let object = None;
                    self.replies.insert(conn, Sent { seq, reply, object });
                }
                Effect::Sync {
                    conn,
                    seq,
                    object,
                    put_count: contents,
                    ..
                } => {
                    if contents > 0 {
                        let objects = self.host(node).objects.clone();
                        objects.sync_all_objects();
                        for (ino, _) in objects.list_objects(INSTANCE).unwrap_or_default() {
                            self.note_synced(node, ino);
                        }
                    }
                    if let Some(object) = object {
                        self.host(node).objects.sync_object(object);
                        self.note_synced(node, object.ino);
                    }
                    if !self.sync_log(node) {
                        return;
                    }
                    let (reply, object) = (Reply::Done, None);
                    self.replies.insert(conn, Sent { seq, reply, object });
                }
                Effect::SendToPeer { node, message, .. } => self.network.push((node, *message)),
                Effect::SyncLog => {
                    if let Some(running) = &mut self.host(node).running {
                        running.sync_wanted = true;
                    }
                }
                _ => {}
            }
        }
    }

    fn commit(&mut self, node: NodeIndex) -> Option<()> {
        let running = self.host(node).running.as_mut()?;
        for bytes in running.shard.take_records() {
            running.log.append(&bytes).ok()?;
        }
        running.log.flush().ok()
    }

    /// `false`: the daemon died of it.
    fn sync_log(&mut self, node: NodeIndex) -> bool {
        let Some(running) = self.host(node).running.as_mut() else {
            return false;
        };
        if running.log.sync().is_err() {
            self.crash(node);
            return false;
        }
        running.sync_wanted = false;
        let sequence = running.log.last_sequence();
        self.input(node, Input::LogSynced(sequence));
        true
    }

    /// What the daemon's keeper does.
    fn keep(&mut self, node: NodeIndex) {
        let host = self.host(node);
        let Some(running) = host.running.as_ref() else {
            return;
        };
        let start = running.log.segment_start_sequence();
        let _ = recovery::write_checkpoint(&host.storage, start);
        let _ = recovery::ensure_spares(&host.storage, SEGMENT);
        if host.storage.has_crashed() {
            self.crash(node);
        }
    }

    /// The daemon's process dies or its power goes, and it starts again at once.
    fn crash(&mut self, node: NodeIndex) {
        let cut = self.power_cuts && self.random.one_in(2);
        let host = self.host(node);
        let died = host.storage.has_crashed();
        let before = host.running.take();
        if cut {
            host.storage.power_cut();
            host.objects.power_cut();
        } else {
            host.storage.restart_process();
        }
        self.start(node);
        if let (Some(before), false, false) = (before, cut, died) {
            let (before, after) = (before.shard.state(), self.state(node).unwrap());
            let mut before = before.clone();
            let start = forebay_store::node::Record {
                event: forebay_store::node::Event::Start,
                request: None,
            };
            before.apply(&start).unwrap();
            assert_eq!(&before, after, "recovery leads to another state");
        }
        self.check_synced(node);
    }

    fn start(&mut self, node: NodeIndex) {
        let now = self.now();
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.random.below(u64::MAX).to_le_bytes());
        let peers = ConnId(self.next_conn);
        self.next_conn += 1;
        let host = self.host(node);
        let (state, mut log) = recovery::recover_state(host.storage.clone(), SEGMENT).unwrap();
        let _ = recovery::ensure_spares(&host.storage, SEGMENT);
        // However full the disk is.
        log.ensure_start_headroom().expect("a start has room");
        let limits = Limits {
            lease_ns: LEASE,
            ..Limits::default()
        };
        let objects = host.objects.clone();
        let mut shard =
            Shard::start(state, log.last_sequence(), objects, limits, None, now, seed).unwrap();
        shard.step(now, Input::Connected(peers, root()), &mut Vec::new());
        host.starts += 1;
        host.running = Some(Running {
            shard,
            log,
            sync_wanted: false,
            peers,
        });
        self.commit(node)
            .expect("the first record of a daemon is written without a fault");
        let log = self
            .host(node)
            .running
            .as_mut()
            .map(|running| &mut running.log);
        log.map(Log::sync)
            .transpose()
            .expect("and made durable before anybody is answered");
    }
}
