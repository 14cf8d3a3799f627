//! The event queue of the simulation.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use forebay_control::controller::{self, Controller, Outcome, Request, RequestId, Settings};
use forebay_control::messages::{ComputeCommand, StampedCommand, StorageCommand, UnixMillis};
use forebay_control::{compute_node, storage_node};
use forebay_protocol::Call;
use forebay_protocol::peer::PeerMessage;
use forebay_store::node::ConnId;
use forebay_units::Bytes;

use crate::actor_thread::{ActorId, ActorWait, LinkId, Machine, Shared, SimReply};
use crate::actors::Actor;
use crate::faults::Faults;
use crate::journals::Journals;
use crate::machines::{Compute, MachineId, Records, Storage, apply_changes, to_rows};
use crate::network::{Link, Wake, address};
use crate::oracle::Oracle;
use crate::pfs::Pfs;
use crate::random::Random;
use crate::requests::envelope;
use crate::storage::{LEASE_NS, SEGMENT_BYTES};
use crate::store_support::daemon::{Daemon, SyncRequest};
use crate::users::{SimUser, Step};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;
const GRANULE: u64 = 1 << 20;
pub const NODES: usize = 4;
pub const HOSTS: usize = 3;
/// Limit on the time of a history.
const END: u64 = 2500 * SECOND;

/// A scheduled event.
#[derive(Clone, Debug)]
pub enum Event {
    ToController(Box<controller::ControllerInput>),
    ToStorageNode(usize, StampedCommand<StorageCommand>),
    ToComputeNode(usize, StampedCommand<ComputeCommand>),
    ToUser(RequestId, Outcome),
    Peer(usize, Box<PeerMessage>),
    Tick(MachineId),
    Users,
    /// A node's log becomes durable, unless the node has crashed since.
    Sync(usize, u64, Option<SyncRequest>),
    ConnectArrives(ActorId, u64, usize),
    Wake(ActorId, u64, Wake),
    CallArrives(LinkId, Call, Vec<u8>),
    DaemonEnd(LinkId),
    ReplyArrives(LinkId, SimReply),
    ClientEnd(LinkId),
}

pub struct World {
    pub now: u64,
    pub random: Random,
    pub faults: Faults,
    trace: bool,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    pub steps: u64,
    /// A fingerprint of the history.
    pub history: u64,
    pub shared: Arc<Shared>,
    pub waits: (Sender<ActorWait>, Receiver<ActorWait>),
    pub actors: BTreeMap<ActorId, Actor>,
    pub next_actor: ActorId,
    pub links: BTreeMap<LinkId, Link>,
    pub next_link: LinkId,
    pub controller: Option<Controller>,
    pub controller_down: u64,
    pub controller_records: Records,
    pub nodes: Vec<Storage>,
    /// Whether the first node is one of an earlier release, which shares no stages.
    pub has_old_node: bool,
    /// Nodes that were given up at the last step of the controller.
    pub given_up: [bool; NODES],
    pub hosts: Vec<Compute>,
    /// Time until which machines are unreachable.
    pub isolated: BTreeMap<MachineId, u64>,
    /// Time until which two machines, in ascending order, cannot reach each other.
    pub cut_pairs: BTreeMap<(MachineId, MachineId), u64>,
    pub pfs: Pfs,
    pub pfs_back: u64,
    pub users: Vec<SimUser>,
    settings: Settings,
    pub oracle: Oracle,
}

/// Of the controller: in three of four histories, nodes share stages.
fn settings(seed: u64) -> Settings {
    let nodes_per_stage = if seed.is_multiple_of(4) { 1 } else { 8 };
    Settings {
        offline_after_ms: 8000,
        retry_interval_ms: 1000,
        host_dead_after_ms: 40_000,
        request_timeout_ms: 60_000,
        staging_timeout_ms: 120_000,
        reply_retention_ms: 300_000,
        operator: 900,
        stripe_bytes: 4096,
        max_nodes_per_stage: nodes_per_stage,
        ..Settings::default()
    }
}

pub fn host_name(index: usize) -> String {
    format!("nid{index:05}")
}

impl World {
    pub fn new(seed: u64, faults: Faults, trace: bool) -> World {
        let mut random = Random::new(seed);
        let mut oracle = Oracle::default();
        let power = &oracle.losses.power;
        let loses_data = faults.power || faults.objects.write_back > 0;
        power.store(loses_data, Ordering::Relaxed);
        let shared = Shared::new(seed);
        let pfs = Pfs::new(Machine(shared.clone()));
        let hosts: Vec<String> = (0..HOSTS).map(host_name).collect();
        let persistents = random.below(3);
        let users = (0..persistents + 2 + random.below(4))
            .map(|index| {
                let numbers = (index, persistents);
                SimUser::new(numbers, faults.batches, &hosts, &mut random, &mut oracle, &pfs)
            })
            .collect();
        let nodes = (0..NODES).map(|_| Storage {
            life: 0,
            down_until: 0,
            granules: 6 + random.below(8),
            daemon: Daemon::new(random.next(), SEGMENT_BYTES, LEASE_NS),
            peers: ConnId(0),
            data_slots: BTreeMap::new(),
            journals: Journals::new(Machine(shared.clone())),
            records: Records::new(),
            fragments: BTreeMap::new(),
            node: None,
            orders: Default::default(),
            movers: BTreeMap::new(),
        });
        let nodes = nodes.collect();
        let host = |_| Compute {
            life: 0,
            down_until: 0,
            node: None,
            plans: BTreeMap::new(),
            mounts: Arc::new(Mutex::default()),
            using: BTreeMap::new(),
        };
        let mut world = World {
            now: 0,
            random,
            faults,
            trace,
            queue: BTreeMap::new(),
            sequence: 0,
            steps: 0,
            history: 0,
            shared,
            waits: channel(),
            actors: BTreeMap::new(),
            next_actor: 0,
            links: BTreeMap::new(),
            next_link: 0,
            controller: None,
            controller_down: 0,
            controller_records: Records::new(),
            nodes,
            has_old_node: seed % 8 == 7,
            given_up: [false; NODES],
            hosts: (0..HOSTS).map(host).collect(),
            isolated: BTreeMap::new(),
            cut_pairs: BTreeMap::new(),
            pfs,
            pfs_back: 0,
            users,
            settings: settings(seed),
            oracle,
        };
        world.prepare();
        world
    }

    /// Adds the pool and its nodes, and starts all timers.
    fn prepare(&mut self) {
        let mut controller = Controller::restore(self.settings.clone(), Vec::new()).unwrap();
        let mut requests = vec![Request::AddPool {
            name: "wlm_pool".into(),
            granularity: Bytes(GRANULE),
            equalize_fragments: self.random.chance(300),
        }];
        for (index, node) in self.nodes.iter().enumerate() {
            requests.push(Request::AddNode {
                name: format!("bb{index}"),
                pool: "wlm_pool".into(),
                granules: node.granules,
                address: Some(address(index).to_string()),
            });
        }
        for (number, request) in (1..).zip(requests) {
            let envelope = envelope(number, request);
            let input = controller::ControllerInput::Request(Box::new(envelope));
            for effect in controller.step(UnixMillis(0), input) {
                match effect {
                    controller::ControllerEffect::Persist(changes) => {
                        apply_changes(&mut self.controller_records, changes);
                    }
                    controller::ControllerEffect::Reply(_, outcome) => {
                        assert!(outcome.is_ok(), "{outcome:?}");
                    }
                    controller::ControllerEffect::SendToStorageNode(..)
                    | controller::ControllerEffect::SendToComputeNode(..) => {}
                }
            }
        }
        let places = (0..NODES).map(MachineId::Node);
        let places = places.chain((0..HOSTS).map(MachineId::Host));
        for place in places.chain([MachineId::Controller]) {
            let first = 1 + self.random.below(SECOND);
            self.schedule(first, Event::Tick(place));
        }
        self.schedule(MS, Event::Users);
    }

    pub fn run(&mut self) {
        while let Some(((when, _), event)) = self.queue.pop_first() {
            assert!(when < END, "{}", self.unfinished());
            self.now = when;
            self.shared.set(when);
            self.process_event(event);
            self.flush();
            if matches!(self.queue.first_key_value(), Some(((next, _), _)) if *next == when) {
                continue;
            }
            if self.users.iter().all(|user| user.step == Step::Ended) && self.is_empty() {
                break;
            }
        }
        for id in self.actors.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
    }

    fn process_event(&mut self, event: Event) {
        self.history = self.history.wrapping_mul(0x100_0000_01b3) ^ self.now;
        match event {
            Event::ToController(input) => self.controller_step(*input),
            Event::ToStorageNode(index, command) => {
                self.node_step(index, storage_node::StorageInput::Command(command));
            }
            Event::ToComputeNode(index, command) => {
                self.host_step(index, compute_node::ComputeInput::Command(command));
            }
            Event::ToUser(id, outcome) => self.answered(id, &outcome),
            Event::Peer(node, message) => self.peer_message(node, message),
            Event::Tick(place) => {
                self.tick(place);
                let next = self.now + SECOND;
                self.schedule(next, Event::Tick(place));
            }
            Event::Users => {
                self.users_act();
                let next = self.now + 200 * MS;
                self.schedule(next, Event::Users);
            }
            Event::Sync(node, life, request) => {
                if self.nodes[node].life == life {
                    self.sync(node, request);
                }
            }
            Event::ConnectArrives(actor, wait, node) => self.connect_arrives(actor, wait, node),
            Event::Wake(actor, wait, wake) => self.wake(actor, wait, wake),
            Event::CallArrives(link, call, payload) => self.deliver_call(link, call, payload),
            Event::DaemonEnd(link) => self.daemon_end(link),
            Event::ReplyArrives(link, reply) => self.deliver_reply(link, reply),
            Event::ClientEnd(link) => self.client_end(link),
        }
    }

    fn tick(&mut self, place: MachineId) {
        match place {
            MachineId::Node(index) => self.tick_node(index),
            MachineId::Host(index) => self.tick_host(index),
            MachineId::Controller => {
                if self.controller.is_none() && self.now >= self.controller_down {
                    self.trace_line(|| "controller starts".into());
                    let rows = to_rows(&self.controller_records);
                    self.controller =
                        Some(Controller::restore(self.settings.clone(), rows).unwrap());
                }
                self.controller_step(controller::ControllerInput::Tick);
                self.outages();
            }
        }
    }

    pub fn trace_line(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>8} {}", self.now / MS, what());
        }
    }

    pub fn schedule(&mut self, when: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), event);
    }
}
