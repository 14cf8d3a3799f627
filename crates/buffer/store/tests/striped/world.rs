//! The daemons of an instance, the network between them, and the faults of both.

use crate::cacher::Cacher;
use crate::clients::Client;
use crate::support::daemon::{
    Daemon, INSTANCE, Output, Sent, SyncRequest, at, call, connected, hello, spec,
};
use crate::support::seeds::Random;
use forebay_protocol::message::AdminRequest;
use forebay_protocol::peer::{Incarnation, PeerMessage};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, Ino, NodeIndex, Reply, Request};
use forebay_store::node::{ConnId, Event, Input, NodeState, Record, VolumeState};
use std::collections::BTreeMap;

pub const STRIPE_BYTES: u64 = 4096;
/// So small that it is full soon.
const SEGMENT_BYTES: u64 = 3 << 10;
const LEASE_NS: u64 = 60_000_000_000;

pub struct Host {
    pub daemon: Daemon,
    /// A call waits for the log to be durable.
    is_sync_due: bool,
    /// The connection on which messages of other daemons arrive.
    peers: ConnId,
    /// Starts of the daemon.
    starts: u64,
}

pub struct World {
    pub random: Random,
    pub hosts: Vec<Host>,
    pub clock_ns: u64,
    next_conn: u64,
    pub clients: Vec<Client>,
    cachers: Vec<Cacher>,
    network: Vec<(NodeIndex, PeerMessage)>,
    /// Messages that are delayed for long.
    delayed: Vec<(NodeIndex, PeerMessage)>,
    replies: BTreeMap<ConnId, Sent>,
    /// Connections, and the starts of daemons that know them.
    conns: BTreeMap<ConnId, (NodeIndex, u64)>,
    pub has_power_cuts: bool,
    /// Objects as they were when they were last synced.
    pub synced: BTreeMap<(NodeIndex, Ino), Vec<u8>>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::of(seed);
        let has_power_cuts = random.one_in(3);
        // On more than eight nodes files are extended while they are written.
        let nodes = if random.one_in(16) { 10 } else { 2 + random.below(3) };
        let hosts = (0..nodes).map(|node| {
            let seed = seed.wrapping_mul(31).wrapping_add(node);
            Host {
                daemon: Daemon::new(seed, SEGMENT_BYTES, LEASE_NS),
                is_sync_due: false,
                peers: ConnId(0),
                starts: 0,
            }
        });
        let mut world = World {
            random,
            hosts: hosts.collect(),
            clock_ns: 1_000_000_000,
            next_conn: 1,
            clients: (0..3).map(Client::new).collect(),
            cachers: Vec::new(),
            network: Vec::new(),
            delayed: Vec::new(),
            replies: BTreeMap::new(),
            conns: BTreeMap::new(),
            has_power_cuts,
            synced: BTreeMap::new(),
        };
        for node in world.nodes() {
            world.start(node);
        }
        world.create_instance();
        for number in 0..world.clients.len() {
            world.with_client(number, Client::make_home);
        }
        // In other histories clients are not delayed by leases.
        if world.random.one_in(2) {
            world.cachers = world.nodes().map(Cacher::new).collect();
        }
        world
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.hosts.len() as u16).map(NodeIndex)
    }

    pub fn length(&mut self) -> u64 {
        300 + self.random.below(500)
    }

    pub fn host(&self, node: NodeIndex) -> &Host {
        &self.hosts[usize::from(node.0)]
    }

    fn host_mut(&mut self, node: NodeIndex) -> &mut Host {
        &mut self.hosts[usize::from(node.0)]
    }

    /// The instance's state on a node.
    pub fn volume(&self, node: NodeIndex) -> Option<&VolumeState> {
        self.host(node).daemon.node()?.volume(INSTANCE)
    }

    /// Starts of a daemon, including those that a power cut undid.
    pub fn starts(&self, node: NodeIndex) -> u64 {
        self.host(node).starts
    }

    fn create_instance(&mut self) {
        let nodes = self.hosts.len() as u16;
        for node in self.nodes() {
            let conn = self.connect(node);
            self.send(node, conn, call(1, hello(None, None, 0)));
            let placement = Placement {
                node,
                nodes,
                stripe_bytes: STRIPE_BYTES,
                secret: [3; 32],
                peers: (0..nodes).map(|node| format!("/{node}")).collect(),
            };
            let spec = spec(1 << 30, 10_000, placement);
            self.replies.remove(&conn);
            self.send(node, conn, call(2, Request::Admin(AdminRequest::CreateInstance(spec))));
            assert!(matches!(self.replies.remove(&conn), Some(sent) if sent.reply == Reply::Done));
            self.sync_log(node);
        }
    }

    /// One event.
    pub fn act(&mut self) {
        self.clock_ns += 1 + self.random.below(60_000_000);
        self.use_caches();
        let node = NodeIndex(self.random.below(self.hosts.len() as u64) as u16);
        match self.random.below(200) {
            0 => self.crash(node),
            1 => {
                let crash_after_ops = Some(1 + self.random.below(20));
                self.host_mut(node).daemon.set_fault(crash_after_ops);
            }
            2 => {
                let segments = Some(self.random.below(7));
                self.host_mut(node).daemon.set_disk_segments(segments);
            }
            3 => self.host_mut(node).daemon.set_disk_segments(None),
            4 => self.write_checkpoint(node),
            5..14 => self.input(node, Input::Tick),
            14..40 => {
                if self.host(node).is_sync_due || self.random.one_in(5) {
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

    /// Clients check what they have cached, and one of them goes on.
    fn use_caches(&mut self) {
        let mut cachers = std::mem::take(&mut self.cachers);
        cachers.iter_mut().for_each(|cacher| cacher.serve(self));
        if !cachers.is_empty() {
            let chosen = self.random.below(cachers.len() as u64) as usize;
            cachers[chosen].act(self);
        }
        self.cachers = cachers;
    }

    /// Checks of what clients had cached.
    pub fn served_from_caches(&self) -> u64 {
        self.cachers.iter().map(|cacher| cacher.served).sum()
    }

    fn with_client(&mut self, number: usize, act: impl FnOnce(&mut Client, &mut World)) {
        let mut client = std::mem::replace(&mut self.clients[number], Client::new(99));
        act(&mut client, self);
        self.clients[number] = client;
    }

    /// One message in flight arrives, is lost, is delayed, or arrives and will do so again.
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
                self.delayed.push(message);
            }
            _ => {
                let (to, message) = self.network.remove(chosen);
                self.deliver(to, message);
            }
        }
        if !self.delayed.is_empty() && self.random.one_in(40) {
            let chosen = self.random.below(self.delayed.len() as u64) as usize;
            let (to, message) = self.delayed.swap_remove(chosen);
            self.deliver(to, message);
        }
    }

    /// The incarnation of a node, from its last message.
    pub fn last_sender(&self, node: NodeIndex) -> Option<Incarnation> {
        let mut messages = self.network.iter().rev();
        let last = messages.find(|(_, message)| message.from == node);
        last.map(|(_, message)| message.sender)
    }

    pub fn deliver(&mut self, to: NodeIndex, message: PeerMessage) {
        let conn = self.host(to).peers;
        let request = Request::Peer(Box::new(message));
        self.input(to, Input::Call(conn, call(1, request)));
    }

    /// All pending calls get a reply, and everything is checked.
    pub fn finish(&mut self) {
        for node in self.nodes() {
            self.host_mut(node).daemon.set_disk_segments(None);
            self.write_checkpoint(node);
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
                "{} gets no reply",
                self.clients[number].pending_request()
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
        self.clock_ns += 2 * LEASE_NS;
        self.settle(10);
        self.check();
    }

    /// Everything in flight arrives and becomes durable, and time passes.
    pub fn settle(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.clock_ns += 500_000_000;
            for node in self.nodes() {
                // Not all at once, or two transactions would conflict with each other for ever.
                self.clock_ns += self.random.below(100_000_000);
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
        self.conns.insert(conn, (node, self.starts(node)));
        self.input(node, connected(conn));
        conn
    }

    /// Whether the daemon still knows a connection. Otherwise it has been closed.
    pub fn is_open(&self, conn: ConnId) -> bool {
        let known = self.conns.get(&conn);
        known.is_some_and(|(node, starts)| self.starts(*node) == *starts)
    }

    pub fn disconnect(&mut self, node: NodeIndex, conn: ConnId) {
        self.replies.remove(&conn);
        self.conns.remove(&conn);
        self.input(node, Input::Disconnected(conn));
    }

    /// Deliver a call. The reply may follow later.
    pub fn send(&mut self, node: NodeIndex, conn: ConnId, call: Call) {
        self.input(node, Input::Call(conn, call));
    }

    /// The reply on a connection, if there is one.
    pub fn take_reply(&mut self, conn: ConnId) -> Option<Sent> {
        self.replies.remove(&conn)
    }

    pub fn input(&mut self, node: NodeIndex, input: Input) {
        let now = at(self.clock_ns);
        let Some(outputs) = self.host_mut(node).daemon.step(now, input) else {
            return self.crash(node);
        };
        for output in outputs {
            match output {
                Output::Reply(conn, sent) => drop(self.replies.insert(conn, sent)),
                Output::Sync(request) => {
                    if !self.sync(node, &request) {
                        return;
                    }
                }
                Output::Message { node: to, message, .. } => self.network.push((to, message)),
                Output::SyncLog => self.host_mut(node).is_sync_due = true,
                Output::DataConnection(..) | Output::Disconnect(_) => {}
            }
        }
    }

    /// `false`: the daemon dies.
    fn sync(&mut self, node: NodeIndex, request: &SyncRequest) -> bool {
        for object in self.host_mut(node).daemon.sync_objects(request).unwrap_or_default() {
            self.note_synced(node, object.ino);
        }
        if !self.sync_log(node) {
            return false;
        }
        let sent = Sent { seq: request.seq, reply: Reply::Done, object: None, cacheable: false };
        self.replies.insert(request.conn, sent);
        true
    }

    /// `false`: the daemon dies.
    fn sync_log(&mut self, node: NodeIndex) -> bool {
        let host = self.host_mut(node);
        host.is_sync_due = false;
        match host.daemon.sync_log() {
            None => {
                self.crash(node);
                false
            }
            Some(synced) => {
                self.input(node, Input::LogSynced(synced));
                true
            }
        }
    }

    /// Write a checkpoint, and reserve space, as the daemon does.
    fn write_checkpoint(&mut self, node: NodeIndex) {
        let daemon = &self.host(node).daemon;
        let _ = daemon.write_checkpoint();
        let _ = daemon.ensure_spares();
        if daemon.storage.has_crashed() {
            self.crash(node);
        }
    }

    /// The daemon's process dies or its power fails, and it starts again at once.
    fn crash(&mut self, node: NodeIndex) {
        let power_cut = self.has_power_cuts && self.random.one_in(2);
        let daemon = &mut self.host_mut(node).daemon;
        let has_lost_records = daemon.storage.has_crashed();
        let before = daemon.stop(power_cut);
        self.start(node);
        if let (Some(before), false, false) = (before, power_cut, has_lost_records) {
            let mut before = before.snapshot();
            let start = Record { event: Event::Start, request: None };
            before.apply(&start).unwrap();
            let mut after = self.host(node).daemon.node().unwrap().snapshot();
            reserve_same_numbers(&before, &mut after);
            assert_eq!(before, after, "recovery leads to another state");
        }
        self.check_synced(node);
    }

    fn start(&mut self, node: NodeIndex) {
        let now = at(self.clock_ns);
        let peers = ConnId(self.next_conn);
        self.next_conn += 1;
        let host = &mut self.hosts[usize::from(node.0)];
        let seed = self.random.below(u64::MAX);
        host.daemon.start(now, seed).expect("a full disk has space to start");
        host.starts += 1;
        host.is_sync_due = false;
        host.peers = peers;
        self.input(node, connected(peers));
    }
}

/// Numbers that were reserved for files whose data were being written, and that no record has, are free again.
fn reserve_same_numbers(before: &NodeState, after: &mut NodeState) {
    for (instance, volume) in &mut after.volumes {
        let next = before.volumes.get(instance).map(|volume| volume.names.next_ino());
        if let Some(next) = next.filter(|next| next.0 > volume.names.next_ino().0) {
            volume.names.reserve_ino(Ino(next.0 - 1));
        }
    }
}
