//! A client without faults that uses the file at once, each time in a new session. It gives up when a
//! node restarts.

use crate::oracle::{CELL_BYTES, CELLS, Oracle};
use crate::support::daemon::{INSTANCE, hello};
use crate::world::World;
use forebay_protocol::message::{
    FileRequest, InodeRequest, OpenMode, SessionRequest, SetAttr, TrailingField,
};
use forebay_protocol::placement::Capability;
use forebay_protocol::{HandleId, NodeIndex, Reply, Request, SessionId};
use forebay_store::node::ConnId;
use std::collections::{BTreeMap, VecDeque};

const HANDLE: HandleId = HandleId(1);
const READ: OpenMode = OpenMode { read: true, ..OpenMode::NONE };
const WRITE: OpenMode = OpenMode { write: true, ..READ };
/// Longest wait for the reply to a request, whatever its cause.
const MAX_WAIT_NS: u64 = 40_000_000_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(OpenMode),
    OpenObject(NodeIndex, OpenMode),
    Reserve(NodeIndex),
    Write(u64),
    Read(u64),
    /// Sets the length, in cells.
    Resize(u64),
    Stat(NodeIndex),
    Leave,
}

#[derive(Debug)]
struct Waiting {
    conn: ConnId,
    seq: u64,
    since_ns: u64,
    /// The time in events.
    begun: u64,
    /// The truncation that it carries out.
    change: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Observer {
    steps: VecDeque<Step>,
    sessions: BTreeMap<NodeIndex, (ConnId, SessionId, u64)>,
    capability: Option<Capability>,
    waiting: Option<Waiting>,
    /// Writers that were separated from a node since the request was sent.
    silent: Vec<usize>,
}

impl Observer {
    pub fn is_done(&self) -> bool {
        self.steps.is_empty()
    }

    pub fn act(&mut self, world: &mut World) {
        if self.steps.is_empty() && world.random.one_in(16) {
            self.choose(world);
        }
        self.finish(world);
    }

    pub fn finish(&mut self, world: &mut World) {
        for node in world.nodes() {
            let silent = (0..2).filter(|writer| world.is_silent(*writer, node));
            self.silent.extend(silent);
        }
        if let Some(step) = self.steps.front().copied() {
            match self.go_on(world, step) {
                Some(true) => drop(self.steps.pop_front()),
                Some(false) => {}
                None => self.give_up(world),
            }
        }
    }

    fn choose(&mut self, world: &mut World) {
        let home = world.file.metadata_node();
        let cell = world.random.below(CELLS);
        let node = world.extent(cell).node;
        self.steps = match world.random.below(8) {
            0 | 1 => world.nodes().map(Step::Stat).collect(),
            2 => VecDeque::from([Step::Resize(cell)]),
            3 => VecDeque::from([Step::Open(OpenMode { truncate: true, ..WRITE })]),
            4 | 5 => {
                let mut steps = VecDeque::from([Step::Open(READ)]);
                for node in world.nodes().filter(|node| *node != home) {
                    steps.push_back(Step::OpenObject(node, READ));
                }
                steps.extend((0..CELLS).map(Step::Read));
                steps
            }
            _ => {
                let open = (node != home).then_some(Step::OpenObject(node, WRITE));
                let steps = [Step::Open(WRITE)].into_iter().chain(open);
                steps.chain([Step::Reserve(node), Step::Write(cell), Step::Read(cell)]).collect()
            }
        };
        self.steps.push_back(Step::Leave);
        (self.silent, self.capability) = (Vec::new(), None);
    }

    /// Whether a step is over; `None` if it failed.
    fn go_on(&mut self, world: &mut World, step: Step) -> Option<bool> {
        let file = world.file;
        let home = file.metadata_node();
        let (node, request) = match step {
            Step::Read(cell) => {
                let (_, session, _) = self.session(world, world.extent(cell).node)?;
                return world.read(cell, (session, HANDLE)).then_some(true);
            }
            Step::Write(cell) => return self.write(world, cell).then_some(true),
            Step::Leave => {
                for (conn, _, seq) in std::mem::take(&mut self.sessions).into_values() {
                    world.send(conn, seq + 1, Request::Session(SessionRequest::Detach));
                    world.disconnect(conn);
                }
                return Some(true);
            }
            Step::Open(open) => {
                (home, FileRequest::Open { ino: file, handle: HANDLE, open }.into())
            }
            Step::OpenObject(node, open) => {
                let capability = self.capability?;
                (node, FileRequest::OpenObject { handle: HANDLE, capability, open }.into())
            }
            Step::Reserve(node) => (
                node,
                FileRequest::ReserveSpace {
                    handle: HANDLE,
                    returned: 0,
                    want: 1 << 16,
                    lent: TrailingField(0),
                }
                .into(),
            ),
            Step::Resize(cells) => {
                let size = Some(cells * CELL_BYTES);
                let set = SetAttr { size, ..SetAttr::default() };
                (home, InodeRequest::SetAttr { ino: file, handle: None, set }.into())
            }
            Step::Stat(node) => (node, InodeRequest::StatObjects { inos: vec![file] }.into()),
        };
        let Some(waiting) = &self.waiting else {
            return self.send(world, node, step, request).map(|()| false);
        };
        let (conn, seq) = (waiting.conn, waiting.seq);
        let waits_ns = world.clock_ns - waiting.since_ns;
        if !world.is_open(conn) {
            return None;
        }
        let Some(reply) = world.reply(conn, seq) else {
            assert!(waits_ns < MAX_WAIT_NS, "{step:?} waits for {waits_ns} ns");
            return Some(false);
        };
        let Waiting { begun, change, .. } = self.waiting.take()?;
        match reply {
            Reply::Failed(_) => return None,
            Reply::Opened { capability, .. } => self.capability = capability,
            Reply::Objects(objects) => {
                let size = objects[0].map_or(0, |object| object.size);
                let is_covered = |cell: u64| world.extent(cell).object_offset + CELL_BYTES <= size;
                let cells = world.cells_on(node).into_iter();
                let covered = cells.map(|cell| (cell, is_covered(cell))).collect();
                world.oracle.stat(covered, begun, self.silent.clone());
            }
            _ => {}
        }
        change.into_iter().for_each(|change| world.oracle.acknowledge(change));
        Some(true)
    }

    fn send(
        &mut self,
        world: &mut World,
        node: NodeIndex,
        step: Step,
        request: Request,
    ) -> Option<()> {
        let (conn, session, seq) = self.session(world, node)?;
        self.sessions.insert(node, (conn, session, seq + 1));
        let change = match step {
            Step::Resize(cells) => Some(world.oracle.begin_truncation(cells)),
            Step::Open(open) if open.truncate => Some(world.oracle.begin_truncation(0)),
            _ => None,
        };
        let begun = world.oracle.now();
        self.silent = (0..2).filter(|writer| world.is_silent(*writer, node)).collect();
        world.send(conn, seq + 1, request);
        let since_ns = world.clock_ns;
        self.waiting = Some(Waiting { conn, seq: seq + 1, since_ns, begun, change });
        Some(())
    }

    fn write(&mut self, world: &mut World, cell: u64) -> bool {
        let extent = world.extent(cell);
        let Some((_, session, _)) = self.session(world, extent.node) else {
            return false;
        };
        let number = world.oracle.begin_write(cell, None);
        let data = Oracle::data(number);
        let reply = world.write(extent.node, (session, HANDLE), extent.object_offset, &data);
        let is_written = matches!(reply, Reply::Written { .. });
        if is_written {
            world.oracle.acknowledge(number);
        }
        is_written
    }

    /// The session with a node: connection, number, and number of the last call.
    fn session(&mut self, world: &mut World, node: NodeIndex) -> Option<(ConnId, SessionId, u64)> {
        if let Some(session) = self.sessions.get(&node) {
            return world.is_open(session.0).then_some(*session);
        }
        let conn = world.connect(node);
        let reply = world.ask(conn, 1, hello(Some(INSTANCE), None, 0));
        let Some(Reply::Attached { token, .. }) = reply else {
            world.disconnect(conn);
            return None;
        };
        self.sessions.insert(node, (conn, token.session, 1));
        Some((conn, token.session, 1))
    }

    /// Its last change may be carried out or not.
    fn give_up(&mut self, world: &mut World) {
        self.steps.clear();
        self.waiting = None;
        for (conn, ..) in std::mem::take(&mut self.sessions).into_values() {
            world.disconnect(conn);
        }
    }
}
