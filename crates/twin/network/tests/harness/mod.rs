//! Small dragonflies, and a model that sends given messages through the fabric.
#![allow(dead_code, reason = "each test file uses its part")]

use forebay_engine::{Context, Partition, Picoseconds, Queue, Simulation};
use forebay_machine_file::machine::{
    AdaptiveBias, Aggregators, Arrangement, Client, Detour, InputQueues, LateDetour, LinkSpec,
    Machine, Network, NicSpec, Node, NodeKind, Plugging, ProcessRates, Routing, RoutingSpec,
    SharedWrites, Structure,
};
use forebay_network::{
    Delivery, DeliveryStatistics, Fabric, LinkStatistics, Message, MessageClass, NetEvent,
    NetMessage, Packet, Topology, lookahead,
};
use forebay_random::RandomSequence;
use forebay_units::{Bytes, Rate, Time};
use std::sync::Arc;

/// Shape of a test machine.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub groups: u32,
    pub chassis: u32,
    pub slots: u32,
    pub nodes_per_router: u32,
    pub sockets: u32,
    /// Cables between each two groups.
    pub parallel: u32,
    /// Routers that share a socket.
    pub per_cable: u32,
    pub arrangement: Arrangement,
    pub plugging: Plugging,
}

pub const SMALL: Shape = Shape {
    groups: 4,
    chassis: 2,
    slots: 4,
    nodes_per_router: 2,
    sockets: 8,
    parallel: 1,
    per_cable: 1,
    arrangement: Arrangement::Absolute,
    plugging: Plugging::Spread,
};

const NS: u64 = 1_000;

/// Node 8 GB/s 100 ns; rank-1 5 GB/s 10 ns; rank-2 15 GB/s 20 ns; rank-3 20 GB/s 150 ns;
/// traversal 100 ns; packets of 4,000 bytes.
pub fn machine(shape: Shape, routing: Routing) -> Machine {
    let link = |gb: u64, tiles, ns: u64, kib: u64| LinkSpec {
        rate: Rate(gb * 1_000_000_000),
        raw_rate: Rate(gb * 1_000_000_000),
        tiles,
        latency: Time(ns * NS),
        buffer: Bytes(kib * 1024),
    };
    let routers = shape.groups * shape.chassis * shape.slots;
    let nodes = (0..routers)
        .flat_map(|router| {
            (0..shape.nodes_per_router).map(move |_| Node::new(NodeKind::Compute, router))
        })
        .collect();
    Machine {
        name: "test".into(),
        title: String::new(),
        notes: String::new(),
        network: Network {
            structure: Structure::Dragonfly,
            spines_per_group: 0,
            cores_per_plane: 0,
            groups: shape.groups,
            chassis_per_group: shape.chassis,
            routers_per_chassis: shape.slots,
            node_ports_per_router: shape.nodes_per_router,
            cable_sockets_per_group: shape.sockets,
            cables_per_group_pair: shape.parallel,
            routers_per_cable: shape.per_cable,
            arrangement: shape.arrangement,
            plugging: shape.plugging,
            router_traversal: Time(100 * NS),
            input_queues: InputQueues::VirtualOutput,
            packet: Bytes(4_000),
            nic: NicSpec::default(),
            node: link(8, 1, 100, 32),
            rank1: link(5, 1, 10, 16),
            rank2: link(15, 3, 20, 32),
            global: link(20, 4, 150, 64),
            routing: RoutingSpec {
                algorithm: routing,
                detour: Detour::Router,
                late_detour: LateDetour::AnyLink,
                candidates: 2,
                bias: AdaptiveBias::Adaptive0,
                rank1_threshold: Time(1_000 * NS),
                rank2_threshold: Time(1_000 * NS),
                global_threshold: Time(1_000 * NS),
                small_bias: Time(1_000 * NS),
                large_bias: 4,
            },
        },
        nodes,
        burst_buffer: None,
        client: Client {
            name: String::new(),
            write_rate: Rate(8_000_000_000),
            read_rate: Rate(8_000_000_000),
            process: ProcessRates::default(),
            requests_per_node: 1,
            cache: Bytes(1),
            uncached_percent: 100,
            call_overhead: Time(0),
            max_request: Bytes(512 * 1024),
            requests_in_flight: 1,
            control_message: Bytes(128),
            mpi_overhead: Time(0),
            collective_round: Time(0),
            shared_memory_latency: Time(0),
            mpi_envelope: Bytes(1),
            eager_limit: Bytes(8192),
            collective_buffer: Bytes(16 << 20),
            aggregators: Aggregators::PerNode,
            shared_writes: SharedWrites::Parallel,
            copy_rate: Rate(8_000_000_000),
        },
        client_types: Vec::new(),
        pfs: None,
        provenance: Vec::new(),
        files: Vec::new(),
    }
}

/// Shape of a machine whose groups have leaf and spine routers.
#[derive(Clone, Copy, Debug)]
pub struct Spined {
    pub groups: u32,
    pub leaves: u32,
    pub spines: u32,
    pub nodes_per_leaf: u32,
    /// Core routers of a plane in a fat tree; in a dragonfly+, cables between each two groups, which are
    /// on the spines in turn.
    pub upper: u32,
}

impl Spined {
    pub fn nodes(self) -> u32 {
        self.groups * self.leaves * self.nodes_per_leaf
    }

    /// A dragonfly+ with the links of [`machine`].
    pub fn dragonfly_plus(self, routing: Routing) -> Machine {
        let mut machine = self.machine(routing);
        let network = &mut machine.network;
        network.structure = Structure::DragonflyPlus;
        network.cables_per_group_pair = self.upper;
        network.cable_sockets_per_group = self.upper * (self.groups - 1);
        machine
    }

    /// A fat tree with the links of [`machine`].
    pub fn fat_tree(self, routing: Routing) -> Machine {
        let mut machine = self.machine(routing);
        let network = &mut machine.network;
        network.structure = Structure::FatTree;
        network.cores_per_plane = self.upper;
        network.cables_per_group_pair = self.upper;
        network.cable_sockets_per_group = self.upper * self.spines;
        machine
    }

    fn machine(self, routing: Routing) -> Machine {
        let shape = Shape {
            groups: self.groups,
            chassis: 1,
            slots: self.leaves,
            nodes_per_router: self.nodes_per_leaf,
            plugging: Plugging::InOrder,
            ..SMALL
        };
        let mut machine = machine(shape, routing);
        machine.network.spines_per_group = self.spines;
        for node in &mut machine.nodes {
            let (group, leaf) = (node.router / self.leaves, node.router % self.leaves);
            node.router = group * (self.leaves + self.spines) + leaf;
        }
        machine
    }
}

/// Gives each node `interfaces` interfaces on as many neighbouring routers; only every `interfaces`-th
/// router keeps nodes of its own.
pub fn widen(machine: &mut Machine, interfaces: u8) {
    machine.nodes.retain(|node| node.router % u32::from(interfaces) == 0);
    for node in &mut machine.nodes {
        (node.interfaces, node.routers) = (interfaces, interfaces);
    }
}

/// Gives all links buffers of one packet, and adaptive routing no thresholds: any cycle of waiting packets
/// would close within microseconds.
pub fn make_tight(machine: &mut Machine) {
    let network = &mut machine.network;
    for link in [&mut network.node, &mut network.rank1, &mut network.rank2, &mut network.global] {
        link.buffer.0 = network.packet.0;
    }
    network.routing.rank1_threshold.0 = 0;
    network.routing.rank2_threshold.0 = 0;
    network.routing.global_threshold.0 = 0;
}

/// All combinations of routing, detours and input queues.
pub fn all_choices() -> Vec<(Routing, Detour, InputQueues)> {
    let mut choices = Vec::new();
    for (_, routing) in Routing::NAMES {
        for (_, detour) in Detour::NAMES {
            choices
                .extend(InputQueues::NAMES.iter().map(|(_, queues)| (*routing, *detour, *queues)));
        }
    }
    choices
}

/// Messages of up to `bytes` from each of `nodes` nodes to random others, `count` from each.
pub fn random_messages(nodes: u32, count: u32, bytes: u64, seed: u64) -> Vec<TestMessage> {
    let mut random = RandomSequence::new(seed);
    let mut messages = Vec::new();
    for from in 0..nodes {
        for i in 0..count {
            let to = (from + 1 + random.below(nodes - 1)) % nodes;
            messages.push(TestMessage {
                from,
                to,
                bytes: 1 + u64::from(random.below(bytes as u32)),
                at: u64::from(i) * 10_000,
                response: false,
            });
        }
    }
    messages
}

/// A message to send at time `at`, ps.
#[derive(Clone, Copy, Debug)]
pub struct TestMessage {
    pub from: u32,
    pub to: u32,
    pub bytes: u64,
    pub at: u64,
    pub response: bool,
}

pub struct Group {
    pub fabric: Fabric,
    messages: Arc<Vec<TestMessage>>,
    /// (packet, time of its last bit), in the order of delivery.
    pub delivered: Vec<(Packet, Picoseconds)>,
    /// Messages that wait for a free slot of the interface, per local node.
    queued: Vec<std::collections::VecDeque<u32>>,
}

#[derive(Clone, Copy)]
pub enum Event {
    Net(NetEvent),
    Send(u32),
}

impl From<NetEvent> for Event {
    fn from(event: NetEvent) -> Self {
        Event::Net(event)
    }
}

impl Group {
    fn send(&mut self, index: u32, context: &mut Context<'_, Event, NetMessage>) {
        let s = self.messages[index as usize];
        let class = if s.response { MessageClass::Response } else { MessageClass::Request };
        let message =
            Message { to: s.to, bytes: s.bytes, tag: index.into(), kind: 1, class, born: s.at };
        self.fabric.send(s.from, message, context);
    }
}

impl Partition for Group {
    type Event = Event;
    type Message = NetMessage;

    fn handle(&mut self, event: Event, context: &mut Context<'_, Event, NetMessage>) {
        match event {
            Event::Net(event) => {
                if let Some(Delivery { packet, .. }) = self.fabric.handle(event, context) {
                    self.delivered.push((packet, context.now));
                }
            }
            Event::Send(index) => {
                let local =
                    self.fabric.topology().location(self.messages[index as usize].from).local;
                self.queued[usize::from(local)].push_back(index);
                while self.fabric.free_message_slots(local) > 0
                    && let Some(next) = self.queued[usize::from(local)].pop_front()
                {
                    self.send(next, context);
                }
            }
        }
        while let Some(local) = self.fabric.drained.pop() {
            while self.fabric.free_message_slots(local) > 0
                && let Some(next) = self.queued[usize::from(local)].pop_front()
            {
                self.send(next, context);
            }
        }
    }

    fn receive(&mut self, at: Picoseconds, message: NetMessage, queue: &mut Queue<Event>) {
        self.fabric.receive(at, message, queue);
    }
}

pub struct Outcome {
    pub delivered: Vec<(Packet, Picoseconds)>,
    pub links: Vec<Vec<LinkStatistics>>,
    pub traffic: DeliveryStatistics,
    pub end: Picoseconds,
    pub events: u64,
}

/// Runs the messages through a machine until nothing is in flight; asserts that the fabric is idle
/// and that no packet was lost.
pub fn run(machine: &Machine, messages: &[TestMessage], threads: usize, seed: u64) -> Outcome {
    let topology = Arc::new(Topology::new(machine));
    let network = Arc::new(machine.network.clone());
    let messages = Arc::new(messages.to_vec());
    let groups = (0..topology.groups)
        .map(|g| Group {
            fabric: Fabric::new(topology.clone(), network.clone(), g, seed),
            messages: messages.clone(),
            delivered: Vec::new(),
            queued: vec![Default::default(); topology.nodes_of_group(g).len()],
        })
        .collect();
    let mut simulation = Simulation::new(groups, lookahead(&network), threads);
    simulation.for_each_partition(|g, _, queue| {
        for (index, s) in (0..).zip(messages.iter()) {
            if u32::from(topology.location(s.from).group) == g {
                queue.push(s.at, NetEvent::FIRST_FREE_KEY + index, Event::Send(index));
            }
        }
    });
    let statistics = simulation.run(&|_, _| true);
    let mut outcome = Outcome {
        delivered: Vec::new(),
        links: Vec::new(),
        traffic: DeliveryStatistics::default(),
        end: statistics.last_event,
        events: statistics.events,
    };
    for group in simulation.into_partitions() {
        assert!(group.fabric.is_idle(), "packets stuck: a deadlock, or a lost credit");
        outcome.links.push(group.fabric.link_statistics(statistics.last_event));
        group.fabric.deliveries.iter().for_each(|d| outcome.traffic.merge(d));
        outcome.delivered.extend(group.delivered);
    }
    assert_eq!(outcome.traffic.packets, outcome.traffic.injected_packets);
    assert_eq!(outcome.traffic.bytes, outcome.traffic.injected_bytes);
    outcome
}
