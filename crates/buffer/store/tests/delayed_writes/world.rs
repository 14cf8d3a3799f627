//! The daemons of an instance, the file, and the network.

use crate::oracle::{CELL_BYTES, CELLS, Oracle};
use crate::support::daemon::{
    Daemon, INSTANCE, Output, Sent, SyncRequest, at, call, connected, hello, spec,
};
use crate::support::seeds::{Random, root};
use forebay_policy::layout::{Extent, Layout};
use forebay_protocol::message::{AdminRequest, DataRequest, NameRequest, NewInode, SessionRequest};
use forebay_protocol::peer::PeerMessage;
use forebay_protocol::placement::Placement;
use forebay_protocol::{
    Errno, FileKind, HandleId, Ino, NodeIndex, Reply, Request, SessionId, Timestamp,
};
use forebay_store::node::{ConnId, Input};
use forebay_store::objects::ObjectId;
use std::collections::BTreeMap;

const NODES: u16 = 3;
const STRIPE_BYTES: u64 = 4096;
const SEGMENT_BYTES: u64 = 1 << 20;
/// Time within which a writer uses a node again from which it was separated.
const MAX_PAUSE_NS: u64 = 1_000_000_000;
/// So short that sessions expire.
pub const LEASE_NS: u64 = 5_000_000_000;

struct Host {
    daemon: Daemon,
    /// The connection on which messages of other daemons arrive.
    peers: ConnId,
    /// Starts of the daemon, and boots of the host.
    starts: u64,
    boots: u64,
}

pub struct World {
    pub random: Random,
    pub clock_ns: u64,
    pub has_faults: bool,
    pub oracle: Oracle,
    pub file: Ino,
    hosts: Vec<Host>,
    next_conn: u64,
    has_power_cuts: bool,
    /// No daemon dies.
    is_quiet: bool,
    network: Vec<(NodeIndex, PeerMessage)>,
    /// Time until which a pair of daemons is separated.
    separated: BTreeMap<(NodeIndex, NodeIndex), u64>,
    /// Time until which a writer is separated from a node.
    cuts: BTreeMap<(usize, NodeIndex), u64>,
    replies: BTreeMap<ConnId, Vec<Sent>>,
    /// Connections, and the starts of daemons that know them.
    conns: BTreeMap<ConnId, (NodeIndex, u64)>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = Random::of(seed);
        let (has_power_cuts, is_quiet) = (random.one_in(3), random.one_in(4));
        let host = |node: u16| Host {
            daemon: Daemon::new(seed * 31 + u64::from(node), SEGMENT_BYTES, LEASE_NS),
            peers: ConnId(0),
            starts: 0,
            boots: 0,
        };
        let mut world = World {
            random,
            clock_ns: 1_000_000_000,
            has_faults: true,
            oracle: Oracle::default(),
            file: Ino::ROOT,
            hosts: (0..NODES).map(host).collect(),
            next_conn: 1,
            has_power_cuts,
            is_quiet,
            network: Vec::new(),
            separated: BTreeMap::new(),
            cuts: BTreeMap::new(),
            replies: BTreeMap::new(),
            conns: BTreeMap::new(),
        };
        world.nodes().for_each(|node| world.start(node));
        world.make_file();
        world
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..NODES).map(NodeIndex)
    }

    fn layout() -> Layout {
        Layout::new(NODES, STRIPE_BYTES).unwrap()
    }

    /// Where a cell is.
    pub fn extent(&self, cell: u64) -> Extent {
        let mut extents = World::layout().extents(self.file, cell * CELL_BYTES, CELL_BYTES);
        extents.next().unwrap()
    }

    pub fn cells_on(&self, node: NodeIndex) -> Vec<u64> {
        (0..CELLS).filter(|cell| self.extent(*cell).node == node).collect()
    }

    /// Starts of a daemon, and boots of its host.
    pub fn starts(&self, node: NodeIndex) -> u64 {
        self.host(node).starts
    }

    fn host(&self, node: NodeIndex) -> &Host {
        &self.hosts[usize::from(node.0)]
    }

    fn host_mut(&mut self, node: NodeIndex) -> &mut Host {
        &mut self.hosts[usize::from(node.0)]
    }

    fn make_file(&mut self) {
        for node in self.nodes() {
            let conn = self.connect(node);
            self.ask(conn, 1, hello(None, None, 0));
            let placement = Placement {
                node,
                nodes: NODES,
                stripe_bytes: STRIPE_BYTES,
                secret: [3; 32],
                peers: (0..NODES).map(|node| format!("/{node}")).collect(),
            };
            let spec = spec(1 << 30, 10_000, placement);
            let create = Request::Admin(AdminRequest::CreateInstance(spec));
            assert_eq!(self.ask(conn, 2, create), Some(Reply::Done));
        }
        let root = Ino::ROOT.metadata_node();
        let conn = self.connect(root);
        self.ask(conn, 1, hello(Some(INSTANCE), None, 0));
        let make = Request::Name(NameRequest::Mknod {
            parent: Ino::ROOT,
            name: b"f".to_vec(),
            new: NewInode::Node(FileKind::File, 0),
            mode: 0o644.into(),
        });
        let Some(Reply::Attr(attr)) = self.ask(conn, 2, make) else {
            panic!("no file");
        };
        self.file = attr.ino;
        self.ask(conn, 3, Request::Session(SessionRequest::Detach));
        self.nodes().for_each(|node| self.sync_log(node));
    }

    /// Time passes, and something happens to daemons or messages.
    pub fn act(&mut self) {
        let longest_ns = if self.random.one_in(50) { 300_000_000 } else { 15_000_000 };
        self.clock_ns += 1 + self.random.below(longest_ns);
        for node in self.nodes() {
            let deadline_ns =
                self.host(node).daemon.node().and_then(|node| node.next_deadline_ns());
            if deadline_ns.is_some_and(|at_ns| at_ns <= self.clock_ns) || self.random.one_in(20) {
                self.input(node, Input::Tick);
            }
            if self.random.one_in(4) {
                self.sync_log(node);
            }
        }
        for _ in 0..self.network.len().min(4) {
            self.pass_message();
        }
        if !self.has_faults {
            return;
        }
        let node = NodeIndex(self.random.below(NODES.into()) as u16);
        match self.random.below(300) {
            0 if !self.is_quiet => self.crash(node),
            3 => {
                let other = NodeIndex(self.random.below(NODES.into()) as u16);
                let until_ns = self.clock_ns + self.random.below(3_000_000_000);
                self.separated.insert((node.min(other), node.max(other)), until_ns);
            }
            4..7 => {
                let writer = self.random.below(2) as usize;
                let longest_ns = if self.random.one_in(6) { 2 * LEASE_NS } else { 2_500_000_000 };
                let until_ns = self.clock_ns + self.random.below(longest_ns);
                let is_all = self.random.one_in(3);
                for other in self.nodes().filter(|other| is_all || *other == node) {
                    self.cuts.insert((writer, other), until_ns);
                }
            }
            _ => {}
        }
    }

    /// Whether a writer is separated from a node.
    pub fn is_cut(&self, writer: usize, node: NodeIndex) -> bool {
        let until_ns = self.cuts.get(&(writer, node));
        self.has_faults && until_ns.is_some_and(|until_ns| self.clock_ns < *until_ns)
    }

    /// Whether a writer is separated from a node, or was until a moment ago.
    pub fn is_silent(&self, writer: usize, node: NodeIndex) -> bool {
        let until_ns = self.cuts.get(&(writer, node));
        until_ns.is_some_and(|until_ns| self.clock_ns < *until_ns + MAX_PAUSE_NS)
    }

    /// Whether a writer was separated from any node, or any power failed, since a time.
    pub fn is_disturbed_since(&self, writer: usize, since_ns: u64) -> bool {
        let mut cuts = self.nodes().filter_map(|node| self.cuts.get(&(writer, node)));
        self.has_power_cuts || cuts.any(|until_ns| *until_ns >= since_ns)
    }

    fn pass_message(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let chosen = if self.random.one_in(4) {
            self.random.below(self.network.len() as u64) as usize
        } else {
            0
        };
        let (to, message) = self.network[chosen].clone();
        let fate = if self.has_faults { self.random.below(12) } else { 11 };
        if fate != 1 {
            self.network.remove(chosen);
        }
        let pair = (to.min(message.from), to.max(message.from));
        let is_separated = self.separated.get(&pair).is_some_and(|at_ns| self.clock_ns < *at_ns);
        match fate {
            0 => {}
            2 => self.network.push((to, message)), // later
            _ if is_separated && self.has_faults => {}
            _ => {
                let conn = self.host(to).peers;
                self.send(conn, 1, Request::Peer(Box::new(message)));
            }
        }
    }

    pub fn connect(&mut self, node: NodeIndex) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.conns.insert(conn, (node, self.starts(node)));
        self.input(node, Input::Connected(conn, root(false)));
        conn
    }

    /// Whether the daemon still knows a connection.
    pub fn is_open(&self, conn: ConnId) -> bool {
        let known = self.conns.get(&conn);
        known.is_some_and(|(node, starts)| self.starts(*node) == *starts)
    }

    pub fn disconnect(&mut self, conn: ConnId) {
        self.replies.remove(&conn);
        if self.is_open(conn)
            && let Some((node, _)) = self.conns.remove(&conn)
        {
            self.input(node, Input::Disconnected(conn));
        }
        self.conns.remove(&conn);
    }

    pub fn send(&mut self, conn: ConnId, seq: u64, request: Request) {
        if self.is_open(conn) {
            let (node, _) = self.conns[&conn];
            self.input(node, Input::Call(conn, call(seq, request)));
        }
    }

    /// The reply to a call, if it has arrived.
    pub fn reply(&mut self, conn: ConnId, seq: u64) -> Option<Reply> {
        let replies = self.replies.get_mut(&conn)?;
        let index = replies.iter().position(|sent| sent.seq == seq)?;
        Some(replies.swap_remove(index).reply)
    }

    pub fn ask(&mut self, conn: ConnId, seq: u64, request: Request) -> Option<Reply> {
        self.send(conn, seq, request);
        self.reply(conn, seq)
    }

    /// A write that arrives over a data connection.
    pub fn write(
        &mut self,
        node: NodeIndex,
        (session, handle): (SessionId, HandleId),
        offset: u64,
        data: &[u8],
    ) -> Reply {
        let request = Request::Data(DataRequest::Write { handle, offset, append: false });
        let now = Timestamp::from_nanos(self.clock_ns);
        self.host_mut(node).daemon.data_call(now, session, &request, data).0
    }

    /// Reads a cell over a data connection.
    pub fn read(&mut self, cell: u64, (session, handle): (SessionId, HandleId)) -> bool {
        let extent = self.extent(cell);
        let (offset, length) = (extent.object_offset, extent.length as u32);
        let request = Request::Data(DataRequest::Read { handle, offset, length });
        let now = Timestamp::from_nanos(self.clock_ns);
        let daemon = &mut self.host_mut(extent.node).daemon;
        let (reply, data) = daemon.data_call(now, session, &request, &[]);
        if reply == Reply::Data {
            self.oracle.read(cell, &data);
        }
        reply != Reply::Failed(Errno::EBADF)
    }

    /// Reads all cells where they are.
    pub fn read_all(&mut self) {
        for cell in 0..CELLS {
            let extent = self.extent(cell);
            let object = ObjectId { instance: INSTANCE, ino: self.file };
            let contents = self.host(extent.node).daemon.objects.object_contents(object);
            let contents = contents.unwrap_or_default();
            let from = contents.get(extent.object_offset as usize..).unwrap_or_default();
            let data = from[..from.len().min(CELL_BYTES as usize)].to_vec();
            self.oracle.read(cell, &data);
        }
    }

    fn input(&mut self, node: NodeIndex, input: Input) {
        let now = at(self.clock_ns);
        let outputs = self.host_mut(node).daemon.step(now, input);
        let mut is_sync_due = false;
        for output in outputs.expect("the storage has no faults") {
            match output {
                Output::Reply(conn, sent) => self.replies.entry(conn).or_default().push(sent),
                Output::Message { node: to, message, .. } => self.network.push((to, message)),
                Output::SyncLog => is_sync_due = true,
                Output::Disconnect(conn) => {
                    self.conns.remove(&conn);
                }
                Output::Sync(SyncRequest { conn, seq, .. }) => {
                    let sent = Sent { seq, reply: Reply::Done, object: None, cacheable: false };
                    self.replies.entry(conn).or_default().push(sent);
                    is_sync_due = true;
                }
                Output::DataConnection(..) => {}
            }
        }
        if is_sync_due {
            self.sync_log(node);
        }
    }

    fn sync_log(&mut self, node: NodeIndex) {
        let synced = self.host_mut(node).daemon.sync_log().expect("the storage has no faults");
        self.input(node, Input::LogSynced(synced));
    }

    /// The daemon's process dies or its power fails, and it starts again at once.
    fn crash(&mut self, node: NodeIndex) {
        let power_cut = self.has_power_cuts && self.random.one_in(2);
        let host = self.host_mut(node);
        // The log may be older than the data.
        host.daemon.objects.sync_all_objects();
        host.daemon.stop(power_cut);
        host.boots += u64::from(power_cut);
        self.start(node);
    }

    fn start(&mut self, node: NodeIndex) {
        let now = at(self.clock_ns);
        let peers = ConnId(self.next_conn);
        self.next_conn += 1;
        let seed = self.random.below(u64::MAX);
        let host = self.host_mut(node);
        host.daemon.start(now, seed).unwrap();
        host.daemon.take_records();
        host.starts += 1;
        host.peers = peers;
        let starts = host.starts;
        self.conns.insert(peers, (node, starts));
        self.input(node, connected(peers));
    }
}
