//! A client that writes the file in sequence, and delays its writes under leases, as the client library does.
//! Its requests, replies and recalls are lost, and its writes held back in data connections.

use crate::oracle::{CELLS, Oracle};
use crate::support::daemon::{INSTANCE, hello};
use crate::world::World;
use forebay_protocol::message::{
    CacheRecall, EVENT_SLOT, FileRequest, LockRequest, OpenMode, RECOVERY_SLOT, SessionToken,
    TrailingField,
};
use forebay_protocol::placement::Capability;
use forebay_protocol::{Errno, HandleId, LeaseId, NodeIndex, Reply, Request};
use forebay_store::node::ConnId;
use std::collections::{BTreeMap, VecDeque};

const MODE: OpenMode = OpenMode { read: true, write: true, ..OpenMode::NONE };
/// The slots of requests for the program, and of those for leases.
const PROGRAM: u32 = 0;
const LEASES: u32 = 1;
/// Time since the last confirmation for which writes are delayed.
const MAX_SILENCE_NS: u64 = 1_000_000_000;
const CONFIRMATION_NS: u64 = 400_000_000;
/// Most writes that are delayed.
const MAX_PENDING: usize = 6;

/// The session with a node.
#[derive(Debug, Default)]
struct Session {
    token: Option<SessionToken>,
    /// The start and the boot that its handles are open in.
    epoch: u64,
    boot: u64,
    /// Connections and numbers of the last calls, by slot.
    conns: BTreeMap<u32, ConnId>,
    seqs: BTreeMap<u32, u64>,
    /// The data connection, by the start of the daemon that it was made to.
    data: Option<u64>,
    is_open: bool,
    has_space: bool,
    /// The lease that the node may recall.
    held: Option<LeaseId>,
    /// The lease under which pending writes were delayed.
    last: Option<LeaseId>,
    may_delay: bool,
    confirmed_ns: u64,
    /// The recalled lease that is given back when its writes are over, and those that are.
    returning: Option<LeaseId>,
    returned: Vec<LeaseId>,
    is_awaiting: bool,
}

/// A write that is not carried out, as far as the client knows.
#[derive(Debug)]
struct Pending {
    cell: u64,
    number: u64,
    /// The program was told that it was carried out.
    is_delayed: bool,
}

/// A write on its way over a data connection.
#[derive(Debug)]
struct InFlight {
    node: NodeIndex,
    starts: u64,
    session: SessionToken,
    handle: HandleId,
    cell: u64,
    number: u64,
}

#[derive(Debug)]
pub struct Writer {
    number: usize,
    sessions: BTreeMap<NodeIndex, Session>,
    /// The open file.
    handle: Option<HandleId>,
    capability: Option<Capability>,
    handles: u64,
    next: u64,
    pending: VecDeque<Pending>,
    in_flight: Option<InFlight>,
    /// Writes of broken connections, which may be carried out until the connection is replaced.
    broken: Vec<InFlight>,
    /// The first pending write was refused, and its object opened again.
    has_reopened: bool,
    is_lost: bool,
    is_closing: bool,
    /// The call of the program that waits for a reply, and when it was sent.
    waiting: Option<(NodeIndex, ConnId, u64)>,
    /// Since when there are pending writes.
    pending_since_ns: u64,
    pub delayed: u64,
}

impl Writer {
    pub fn new(number: usize) -> Writer {
        Writer {
            number,
            sessions: BTreeMap::new(),
            handle: None,
            capability: None,
            handles: 0,
            next: 0,
            pending: VecDeque::new(),
            in_flight: None,
            broken: Vec::new(),
            has_reopened: false,
            is_lost: false,
            is_closing: false,
            waiting: None,
            pending_since_ns: 0,
            delayed: 0,
        }
    }

    pub fn is_done(&self) -> bool {
        self.handle.is_none() && self.pending.is_empty() && self.waiting.is_none()
    }

    pub fn act(&mut self, world: &mut World) {
        self.go_on(world);
        if self.pending.iter().any(|write| !write.is_delayed) || self.waiting.is_some() {
            return; // the program waits
        }
        match world.random.below(100) {
            _ if self.is_closing => {}
            0 => self.is_closing = true,
            _ if self.handle.is_none() || self.is_lost => {}
            1..60 => self.write(world),
            60..63 => self.next = world.random.below(CELLS),
            _ => {}
        }
    }

    /// Ends what was begun, and closes the file.
    pub fn finish(&mut self, world: &mut World) {
        self.is_closing |= self.handle.is_some();
        self.go_on(world);
    }

    fn go_on(&mut self, world: &mut World) {
        for node in world.nodes() {
            self.take_events(world, node);
        }
        self.pass_broken(world);
        self.send_first(world);
        if self.is_closing && self.pending.is_empty() && self.in_flight.is_none() {
            self.close(world);
        } else if self.handle.is_none()
            && (self.waiting.is_some() || (world.has_faults && world.random.one_in(30)))
        {
            self.open(world);
        }
    }

    fn session(&mut self, node: NodeIndex) -> &mut Session {
        self.sessions.entry(node).or_default()
    }

    fn is_pending_on(&self, world: &World, node: NodeIndex) -> bool {
        let mut delayed = self.pending.iter().filter(|write| write.is_delayed);
        delayed.any(|write| world.extent(write.cell).node == node)
    }

    /// A call whose reply follows at once, unless it, or the call, is lost with the connection.
    fn ask(
        &mut self,
        world: &mut World,
        (node, slot): (NodeIndex, u32),
        request: Request,
    ) -> Option<Reply> {
        let conn = *self.session(node).conns.get(&slot)?;
        let seq = self.session(node).seqs.entry(slot).or_insert(1);
        *seq += 1;
        let seq = *seq;
        let fate = if world.has_faults { world.random.below(24) } else { 23 };
        let is_cut = world.is_cut(self.number, node);
        let reply = if fate == 0 || is_cut { None } else { world.ask(conn, seq, request) };
        let reply = reply.filter(|_| fate != 1);
        if reply.is_none() {
            self.break_connection(world, node, slot);
        }
        reply
    }

    fn break_connection(&mut self, world: &mut World, node: NodeIndex, slot: u32) {
        if let Some(conn) = self.session(node).conns.remove(&slot) {
            world.disconnect(conn);
        }
        if slot == EVENT_SLOT {
            self.session(node).is_awaiting = false;
        }
    }

    /// A connection to a node that knows the open handles.
    fn connected(&mut self, world: &mut World, node: NodeIndex, slot: u32) -> Option<ConnId> {
        if world.is_cut(self.number, node) {
            return None;
        }
        if let Some(conn) = self.session(node).conns.get(&slot).copied() {
            if world.is_open(conn) {
                return Some(conn);
            }
            self.break_connection(world, node, slot);
        }
        let token = self.session(node).token;
        let mut attached = self.attach(world, node, slot, token);
        let is_over = attached == Some(Reply::Failed(Errno::ESTALE));
        if is_over && token.is_some() {
            let session = self.session(node);
            (session.token, session.epoch, session.boot) = (None, 0, 0);
            self.break_connection(world, node, slot);
            attached = self.attach(world, node, slot, None);
        }
        let Some(Reply::Attached { token, epoch, boot, keeps_write_leases, .. }) = attached else {
            self.break_connection(world, node, slot);
            return None;
        };
        assert!(keeps_write_leases.0);
        self.session(node).token = Some(token);
        if self.session(node).epoch != epoch {
            let is_same = self.session(node).boot == boot;
            if self.recover(world, node, is_same).is_none() {
                self.break_connection(world, node, slot);
                self.break_connection(world, node, RECOVERY_SLOT);
                return None;
            }
            let session = self.session(node);
            (session.epoch, session.boot, session.data) = (epoch, boot, None);
        }
        self.session(node).conns.get(&slot).copied()
    }

    fn attach(
        &mut self,
        world: &mut World,
        node: NodeIndex,
        slot: u32,
        token: Option<SessionToken>,
    ) -> Option<Reply> {
        let conn = world.connect(node);
        self.session(node).conns.insert(slot, conn);
        self.ask(world, (node, slot), hello(Some(INSTANCE), token, slot))
    }

    /// Opens the handle again, and claims the lease under which writes are delayed.
    fn recover(&mut self, world: &mut World, node: NodeIndex, is_same: bool) -> Option<()> {
        self.session(node).may_delay = false;
        self.session(node).has_space = false;
        let Some(handle) = self.handle else {
            return Some(());
        };
        let recovery = (node, RECOVERY_SLOT);
        let token = self.session(node).token;
        self.attach(world, node, RECOVERY_SLOT, token)?;
        if self.session(node).is_open {
            let open = MODE;
            let request = if node == world.file.metadata_node() {
                FileRequest::Open { ino: world.file, handle, open }
            } else {
                FileRequest::OpenObject { handle, capability: self.capability?, open }
            };
            if let Reply::Failed(_) = self.ask(world, recovery, request.into())? {
                self.session(node).is_open = false;
            }
        }
        if self.is_pending_on(world, node) && !self.is_lost {
            let claim = Request::Lock(LockRequest::WriteLease { handle });
            let claimed = if is_same { lease(self.ask(world, recovery, claim)?) } else { None };
            match claimed {
                Some(id) => {
                    let session = self.session(node);
                    (session.held, session.last) = (Some(id), Some(id));
                }
                None => self.lose(world),
            }
        } else {
            self.session(node).held = None;
        }
        self.break_connection(world, node, RECOVERY_SLOT);
        Some(())
    }

    /// The writes that are delayed fail, except one that is on its way.
    fn lose(&mut self, world: &mut World) {
        let is_excused = world.is_disturbed_since(self.number, self.pending_since_ns);
        let any = self.pending.iter().any(|write| write.is_delayed);
        assert!(is_excused || !any, "writes of a client that runs are lost: {self:?}");
        self.is_lost = true;
        let kept = usize::from(self.in_flight.is_some());
        for write in self.pending.drain(kept..) {
            if write.is_delayed {
                world.oracle.fail(write.number);
            }
        }
    }

    fn take_events(&mut self, world: &mut World, node: NodeIndex) {
        if self.session(node).held.is_none() && !self.session(node).is_awaiting {
            return;
        }
        let Some(conn) = self.connected(world, node, EVENT_SLOT) else {
            return;
        };
        let seq = self.session(node).seqs[&EVENT_SLOT];
        if self.session(node).is_awaiting
            && let Some(reply) = world.reply(conn, seq)
        {
            self.session(node).is_awaiting = false;
            let Reply::Events { recalled, .. } = reply else {
                return self.break_connection(world, node, EVENT_SLOT);
            };
            if world.has_faults && world.random.one_in(8) {
                return self.break_connection(world, node, EVENT_SLOT); // the events are lost
            }
            for id in recalled {
                let session = self.session(node);
                if session.held == Some(id) {
                    (session.may_delay, session.returning) = (false, Some(id));
                } else {
                    session.returned.push(id);
                }
            }
        }
        if let Some(id) = self.session(node).returning {
            if self.is_pending_on(world, node) && self.session(node).held == Some(id) {
                let extension = LockRequest::WriteLease { handle: self.handle.unwrap() };
                if self.connected(world, node, LEASES).is_some() {
                    self.ask(world, (node, LEASES), extension.into());
                }
                return;
            }
            let session = self.session(node);
            session.returning = None;
            session.returned.push(id);
            session.held = session.held.filter(|held| *held != id);
        }
        if !self.session(node).is_awaiting && self.session(node).conns.contains_key(&EVENT_SLOT) {
            let returned = std::mem::take(&mut self.session(node).returned);
            let cache = CacheRecall::Ignored;
            let request = LockRequest::AwaitEvents { known: Vec::new(), returned, cache };
            let seq = self.session(node).seqs.entry(EVENT_SLOT).or_insert(1);
            *seq += 1;
            let seq = *seq;
            self.session(node).is_awaiting = true;
            world.send(conn, seq, request.into());
        }
    }

    /// Whether there is a lease on the object of a node, which is requested or confirmed if necessary.
    fn is_leased(&mut self, world: &mut World, node: NodeIndex) -> bool {
        let session = self.session(node);
        let age_ns = world.clock_ns - session.confirmed_ns;
        if session.may_delay && age_ns < CONFIRMATION_NS {
            return true;
        }
        let sent_ns = world.clock_ns;
        let epoch = session.epoch;
        let request = LockRequest::WriteLease { handle: self.handle.unwrap() };
        if self.connected(world, node, LEASES).is_none() || self.session(node).epoch != epoch {
            return false;
        }
        let granted = self.ask(world, (node, LEASES), request.into()).and_then(lease);
        let is_pending = self.is_pending_on(world, node);
        let session = self.session(node);
        let Some(id) = granted.filter(|id| session.returning != Some(*id)) else {
            session.may_delay = false;
            return false;
        };
        if is_pending && session.last != Some(id) {
            self.lose(world);
            return false;
        }
        (session.held, session.last, session.may_delay) = (Some(id), Some(id), true);
        session.confirmed_ns = sent_ns;
        true
    }

    /// The program writes the next cell.
    fn write(&mut self, world: &mut World) {
        let (cell, number) = (self.next, self.number);
        let node = world.extent(cell).node;
        self.next = (cell + 1) % CELLS;
        let is_ready = self.pending.len() < MAX_PENDING && self.opened(world, node);
        let is_leased = is_ready && self.is_leased(world, node);
        let session = self.session(node);
        let is_recent = world.clock_ns - session.confirmed_ns < MAX_SILENCE_NS;
        let is_delayed = is_leased && session.may_delay && is_recent && !self.is_lost;
        if self.is_lost {
            return;
        }
        if self.pending.is_empty() {
            self.pending_since_ns = world.clock_ns;
        }
        let number = world.oracle.begin_write(cell, Some(number));
        if is_delayed {
            world.oracle.acknowledge(number);
            self.delayed += 1;
        }
        self.pending.push_back(Pending { cell, number, is_delayed });
    }

    /// Whether the object on a node is open, with space to write. A lease under which writes were delayed must
    /// be there still.
    fn opened(&mut self, world: &mut World, node: NodeIndex) -> bool {
        let Some(handle) = self.handle else {
            return false;
        };
        if self.connected(world, node, PROGRAM).is_none() {
            return false;
        }
        let home = world.file.metadata_node();
        let program = (node, PROGRAM);
        if !self.session(node).is_open {
            if node == home {
                return false; // it is not open any more
            }
            let Some(capability) = self.renewed(world) else {
                return false;
            };
            let open = FileRequest::OpenObject { handle, capability, open: MODE };
            match self.ask(world, program, open.into()) {
                Some(Reply::Object(_)) => self.session(node).is_open = true,
                _ => return false,
            }
            if self.is_pending_on(world, node) && !self.is_lost {
                let token = self.session(node).token;
                let claim = Request::Lock(LockRequest::WriteLease { handle });
                let attached = self.attach(world, node, RECOVERY_SLOT, token);
                let held = attached.and_then(|_| self.ask(world, (node, RECOVERY_SLOT), claim));
                self.break_connection(world, node, RECOVERY_SLOT);
                let Some(reply) = held else {
                    self.session(node).is_open = false; // again
                    return false;
                };
                if lease(reply).is_none_or(|id| Some(id) != self.session(node).last) {
                    self.lose(world);
                    return false;
                }
            }
        }
        if !self.session(node).has_space {
            let reserve = FileRequest::ReserveSpace {
                handle,
                returned: 0,
                want: 1 << 20,
                lent: TrailingField(0),
            };
            match self.ask(world, program, reserve.into()) {
                Some(Reply::SpaceGranted(_)) => self.session(node).has_space = true,
                Some(_) => self.session(node).is_open = false,
                None => {}
            }
        }
        self.session(node).has_space
    }

    /// A capability that has not expired.
    fn renewed(&mut self, world: &mut World) -> Option<Capability> {
        let home = world.file.metadata_node();
        self.connected(world, home, PROGRAM)?;
        let request = FileRequest::RenewCapability { handle: self.handle?, position: 0 };
        match self.ask(world, (home, PROGRAM), request.into())? {
            Reply::Capability(capability) => self.capability = Some(capability),
            _ => return None,
        }
        self.capability
    }

    /// The first pending write goes on.
    fn send_first(&mut self, world: &mut World) {
        if let Some(write) = self.in_flight.take() {
            let is_alive = world.starts(write.node) == write.starts;
            if !is_alive || (world.has_faults && world.random.one_in(16)) {
                self.session(write.node).data = None;
                self.broken.push(write);
            } else if world.random.one_in(2) && !world.is_cut(self.number, write.node) {
                self.arrive(world, &write);
            } else {
                self.in_flight = Some(write);
            }
            if self.is_lost && self.in_flight.is_none() {
                self.lose(world);
            }
            return;
        }
        if self.is_lost {
            return self.lose(world);
        }
        let Some((cell, number)) = self.pending.front().map(|write| (write.cell, write.number))
        else {
            return;
        };
        let node = world.extent(cell).node;
        let home = world.file.metadata_node();
        if !self.opened(world, node) {
            let mut is_refused = |writer: &mut Writer, node| {
                writer.connected(world, node, PROGRAM).is_some() && !writer.session(node).is_open
            };
            // The metadata node does not know the handle any more, and refuses a capability.
            if is_refused(self, home) && !self.is_lost {
                self.lose(world);
            }
            return;
        }
        // The replaced connection has written for the last time.
        let starts = world.starts(node);
        if self.session(node).data != Some(starts) {
            self.broken.retain(|write| write.node != node);
            self.session(node).data = Some(starts);
        }
        if self.is_lost {
            return;
        }
        let (session, handle) = (self.session(node).token.unwrap(), self.handle.unwrap());
        self.in_flight = Some(InFlight { node, starts, session, handle, cell, number });
    }

    fn arrive(&mut self, world: &mut World, write: &InFlight) {
        let extent = world.extent(write.cell);
        let data = Oracle::data(write.number);
        let holder = (write.session.session, write.handle);
        match world.write(write.node, holder, extent.object_offset, &data) {
            Reply::Written { .. } => {
                let first = self.pending.pop_front().unwrap();
                assert_eq!(first.number, write.number);
                if !first.is_delayed {
                    world.oracle.acknowledge(first.number);
                }
                self.has_reopened = false;
            }
            Reply::Failed(Errno::EDQUOT) => self.session(write.node).has_space = false,
            Reply::Failed(Errno::EBADF) => {
                let is_home = write.node == world.file.metadata_node();
                if is_home || std::mem::replace(&mut self.has_reopened, true) {
                    self.lose(world);
                } else {
                    self.session(write.node).is_open = false;
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// A write of a broken connection may be carried out as long as the daemon has not noticed that.
    fn pass_broken(&mut self, world: &mut World) {
        if self.broken.is_empty() || !world.random.one_in(3) {
            return;
        }
        let write = self.broken.remove(0);
        if world.starts(write.node) == write.starts {
            let extent = world.extent(write.cell);
            let holder = (write.session.session, write.handle);
            world.write(write.node, holder, extent.object_offset, &Oracle::data(write.number));
        }
    }

    fn open(&mut self, world: &mut World) {
        let home = world.file.metadata_node();
        if let Some((_, conn, seq)) = self.waiting {
            if !world.is_open(conn) || world.is_cut(self.number, home) {
                // It opens the file under another handle later.
                self.break_connection(world, home, PROGRAM);
                self.waiting = None;
                return;
            }
            let Some(reply) = world.reply(conn, seq) else {
                return;
            };
            self.waiting = None;
            if let Reply::Opened { capability, .. } = reply {
                self.capability = capability;
                self.handle = Some(HandleId(self.handles));
                self.session(home).is_open = true;
                (self.is_lost, self.has_reopened) = (false, false);
            }
            return;
        }
        let Some(conn) = self.connected(world, home, PROGRAM) else {
            return;
        };
        self.handles += 1;
        let seq = self.session(home).seqs.entry(PROGRAM).or_insert(1);
        *seq += 1;
        let seq = *seq;
        let handle = HandleId(self.handles);
        let open = FileRequest::Open { ino: world.file, handle, open: MODE };
        self.waiting = Some((home, conn, seq));
        world.send(conn, seq, open.into());
    }

    /// Closes the file, on its metadata node last.
    fn close(&mut self, world: &mut World) {
        let Some(handle) = self.handle else {
            self.is_closing = false;
            return;
        };
        let home = world.file.metadata_node();
        let others = world.nodes().filter(|node| *node != home);
        for node in others.chain([home]) {
            if !self.session(node).is_open && self.session(node).held.is_none() {
                continue;
            }
            if self.connected(world, node, PROGRAM).is_none() {
                return;
            }
            let close = FileRequest::Close { handle, returned: 0 };
            if self.ask(world, (node, PROGRAM), close.into()).is_none() {
                return;
            }
            let session = self.session(node);
            (session.is_open, session.has_space, session.may_delay) = (false, false, false);
            (session.held, session.last, session.returning) = (None, None, None);
        }
        (self.handle, self.is_closing, self.is_lost) = (None, false, false);
    }
}

fn lease(reply: Reply) -> Option<LeaseId> {
    match reply {
        Reply::Leases(leases) => leases.first().copied().flatten(),
        _ => None,
    }
}
