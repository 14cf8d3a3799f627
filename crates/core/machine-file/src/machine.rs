//! A machine: dragonfly network, nodes on its routers, burst buffers, clients.

use forebay_policy::layout::StripeOrder;
use forebay_units::{Bytes, Rate, Time};
use serde::Serialize;

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeKind {
    /// Runs jobs; its DVS-like client reaches the burst buffers.
    Compute,
    /// Carries flash and serves it (a DataWarp node).
    BurstBuffer,
    /// Forwards to the parallel file system (a Lustre network router).
    Lnet,
    /// Login, management, scheduler: without simulated traffic.
    Service,
}

/// The classes of links, in the order in which statistics list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkClass {
    /// Node to its router and back (PCIe, NIC).
    Node,
    /// Rank-1 ("green"): all routers of a chassis, all-to-all.
    Rank1,
    /// Rank-2 ("black"): the same slot in all chassis of a group, all-to-all.
    Rank2,
    /// Rank-3 ("blue"): optical links between groups.
    Global,
}

/// One class of links; rates and buffers are for each direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkSpec {
    /// Payload rate of one link: its raw rate less headers, checksums and responses.
    pub rate: Rate,
    /// Signalling rate of one link = tiles × rate of a tile.
    pub raw_rate: Rate,
    /// Tiles joined to one link (3 for Aries rank-2).
    pub tiles: u32,
    /// From the first bit leaving the sender to the first bit at the receiver.
    pub latency: Time,
    /// Receive buffer of each virtual channel at the far end of the link.
    pub buffer: Bytes,
}

/// The numbering of the rank-3 links between groups
/// (Hastings et al., "Comparing global link arrangements for Dragonfly networks", CLUSTER 2015).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// Link k of group g goes to group k (k < g) or k + 1.
    Absolute,
    /// Link k of group g goes to group g + k + 1 (mod G).
    Relative,
    /// Links go to g + 1, g − 1, g + 2, g − 2, … (mod G).
    Circulant,
}

/// The sockets of a group to which its rank-3 links are connected, if there are more sockets than
/// links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plugging {
    /// The first ones, router by router: link k of h links a router is on router ⌊k / h⌋, as the
    /// arrangements are defined. Few routers are gateways.
    InOrder,
    /// Evenly over all routers.
    Spread,
    /// The cables of one pair of groups next to each other: first in all chassis, then in the next
    /// slots, and when all routers have one, from the first slots again.
    AcrossChassis,
}

/// The routing algorithm of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Shortest path; a random one of the parallel global links.
    Minimal,
    /// Through a random intermediate group (inside a group: a random router).
    Valiant,
    /// Minimal or Valiant, decided at the source router from its own queues.
    UgalL,
    /// Minimal at first; may change to Valiant at any router of the source group.
    ProgressiveAdaptive,
}

/// The bias of adaptive routing towards minimal paths: the comparison of the queues (in time) in
/// front of the best detour and of the best minimal path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdaptiveBias {
    /// No bias: the detour's queue is shorter.
    Adaptive0,
    /// Bias that grows with the path: no bias at the first router, and a factor of two for each
    /// link that the packet has crossed since.
    Adaptive1,
    /// Small bias: the detour's queue is shorter by more than a constant.
    Adaptive2,
    /// Large bias: the detour's queue is shorter by more than a factor.
    Adaptive3,
    /// The rule of CODES: no bias, and as queue all bytes for which no credit has returned, those
    /// on the link and in the buffer behind it included. Only the first link of a path counts.
    Codes,
    /// The rule of UGAL (Kim et al., ISCA 2008) as in BookSim2, with queues as for CODES: the detour's
    /// queue, times the factor of [`AdaptiveBias::Adaptive3`] and plus the constant of
    /// [`AdaptiveBias::Adaptive2`], is shorter.
    Ugal,
}

/// Parameters of adaptive routing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoutingSpec {
    /// The default algorithm of this machine.
    pub algorithm: Routing,
    /// Minimal and non-minimal candidates for each decision (each 1..=4).
    pub candidates: u32,
    /// The comparison of a detour with the minimal path.
    pub bias: AdaptiveBias,
    /// Queue, as the time to transmit it, that a minimal path which begins with a rank-1 link must
    /// exceed before a detour is considered.
    pub rank1_threshold: Time,
    /// The same for a path that begins with a rank-2 link.
    pub rank2_threshold: Time,
    /// The same for a path that begins with a rank-3 link.
    pub global_threshold: Time,
    /// Time added to a detour's queue by [`AdaptiveBias::Adaptive2`].
    pub small_bias: Time,
    /// Factor of a detour's queue with [`AdaptiveBias::Adaptive3`].
    pub large_bias: u32,
}

/// The network interfaces of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NicSpec {
    /// Messages of more than one packet, of one class, whose packets an interface sends in turn.
    pub interleaved_messages: u32,
}

impl Default for NicSpec {
    /// For machine files without a table `[network.nic]`: four messages.
    fn default() -> Self {
        NicSpec { interleaved_messages: 4 }
    }
}

/// The interconnect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Network {
    /// Number of groups G.
    pub groups: u32,
    /// Chassis a group: the rank-2 dimension.
    pub chassis_per_group: u32,
    /// Routers a chassis: the rank-1 dimension.
    pub routers_per_chassis: u32,
    /// Node ports per router.
    pub node_ports_per_router: u32,
    /// Sockets for rank-3 cables per group, spread evenly over its routers
    /// (Aries: 240 for 96 routers, five for each two routers).
    pub cable_sockets_per_group: u32,
    /// Rank-3 cables between each two groups.
    pub cables_per_group_pair: u32,
    /// Neighbouring routers that share a socket: a cable carries one link for each of them.
    pub routers_per_cable: u32,
    /// The arrangement of the rank-3 cables.
    pub arrangement: Arrangement,
    /// The sockets that these cables take.
    pub plugging: Plugging,
    /// From a packet's head at a router's input to its head at the output, unloaded.
    pub router_traversal: Time,
    /// Largest packet: messages are cut into packets of this size.
    pub packet: Bytes,
    /// Network interfaces of nodes.
    pub nic: NicSpec,
    /// Node links, both ways.
    pub node: LinkSpec,
    /// Rank-1 links.
    pub rank1: LinkSpec,
    /// Rank-2 links.
    pub rank2: LinkSpec,
    /// Rank-3 links.
    pub global: LinkSpec,
    /// Routing algorithm and thresholds.
    pub routing: RoutingSpec,
}

/// One burst-buffer node: NIC, server software, flash.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BurstBuffer {
    /// Rate at which the server's data path moves payload between NIC and memory, each way.
    pub data_rate: Rate,
    /// Serial cost of receiving one request and passing it to a thread.
    pub dispatch: Time,
    /// Server threads; each holds one request from dispatch to completion.
    pub threads: u32,
    /// Time for which a write holds the exclusive lock of its object (extent allocation, copy into
    /// the page cache); flash is written afterwards.
    pub lock_hold: Time,
    /// Additional time of a write to an object whose last writer was another compute node.
    pub lock_handover: Time,
    /// Block of the server's file system. In a shared file, a write that covers only a part of a
    /// block reads the block from flash first.
    pub block: Bytes,
    /// Cost of an fsync at one server, besides the wait for a thread.
    pub sync: Time,
    /// Metadata operations (open, close, stat) per second of one server.
    pub metadata_rate: u32,
    /// SSD cards in the node.
    pub cards: u32,
    /// Controllers on each card.
    pub controllers_per_card: u32,
    /// Flash channels behind each controller.
    pub channels_per_controller: u32,
    /// Sequential read rate of one card.
    pub card_read: Rate,
    /// Sequential write rate of one card.
    pub card_write: Rate,
    /// 4 KiB random reads per second of one card.
    pub card_read_iops: u64,
    /// 4 KiB random writes per second of one card.
    pub card_write_iops: u64,
    /// Idle time of a controller's channels between two commands.
    pub command_gap: Time,
    /// Latency of one read command, in addition to its transfer time.
    pub read_latency: Time,
    /// Latency of one write command, in addition to its transfer time.
    pub write_latency: Time,
    /// Capacity of one card.
    pub card_capacity: Bytes,
    /// Length of a file's stripe on one node.
    pub stripe: Bytes,
    /// Order of a file's stripes over the nodes of an instance.
    pub stripe_order: StripeOrder,
    /// Length of a run of a file's bytes on one node that lie in one object.
    pub substripe: Bytes,
    /// Objects of a file on one node, each with one lock; substripes go to them in turn.
    pub objects_per_file: u32,
    /// Length of a run of a file's bytes on one SSD controller.
    pub flash_stripe: Bytes,
}

/// The DVS-like client on a compute node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Client {
    /// Type of the nodes (`haswell`); empty if the machine has one type.
    pub name: String,
    /// Payload rate at which one node's client sends data of writes, for all its processes.
    pub write_rate: Rate,
    /// Payload rate at which one node's client takes in data of reads, for all its processes.
    pub read_rate: Rate,
    /// Maximum number of requests of one node in flight, for all its processes.
    pub requests_per_node: u32,
    /// Last-level cache of the node's processors.
    pub cache: Bytes,
    /// Share in percent of `write_rate` and `read_rate` at which data move if the buffers of the
    /// node's processes do not fit the cache together.
    pub uncached_percent: u32,
    /// Software cost of one application call (system call to request on the wire, and back).
    pub call_overhead: Time,
    /// Maximum request; longer transfers are split into concurrent requests.
    pub max_request: Bytes,
    /// Maximum number of requests of one call in flight.
    pub requests_in_flight: u32,
    /// Size of a request or acknowledgement on the wire.
    pub control_message: Bytes,
    /// Buffer of an aggregator of collective MPI-IO.
    pub collective_buffer: Bytes,
    /// Rate at which a process copies data of others on its node, and combines vectors of an MPI
    /// reduction.
    pub copy_rate: Rate,
    /// Time of a process to send an MPI message or to receive one, without the network's.
    pub mpi_overhead: Time,
    /// Latency of a message between processes of a node.
    pub shared_memory_latency: Time,
    /// Size on the wire of an MPI message without data, and the least of any.
    pub mpi_envelope: Bytes,
}

/// Compute nodes of another type than the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientType {
    /// These are the compute nodes of the groups from this one
    pub first_group: u32,
    /// to this one.
    pub last_group: u32,
    /// Their number.
    pub nodes: u32,
    /// Their client. All but name, rates, requests per node, and the costs of calls and MPI messages
    /// is equal for all types.
    pub client: Client,
}

/// The parallel file system behind the LNET nodes: facts, used by staging studies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ParallelFileSystem {
    /// Name (Lustre).
    pub name: String,
    /// Peak aggregate rate.
    pub rate: Rate,
    /// Capacity.
    pub capacity: Bytes,
    /// Object storage targets, 0 if not published.
    pub osts: u32,
}

/// One node of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its role.
    pub kind: NodeKind,
    /// Its router: group × routers per group + chassis × routers per chassis + slot.
    pub router: u32,
}

/// The source of a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Provenance {
    /// Dotted key in the machine file, as `network.rank1.rate`.
    pub key: String,
    /// The value as written.
    pub value: String,
    /// Document or data sheet.
    pub source: String,
    /// Id of the document in `[sources]`; `None` for an assumption.
    pub source_id: Option<String>,
    /// The measurement to which the number was fitted (an id of `validation/published.csv`).
    pub calibrated: Option<String>,
    /// The measurements (ids of `validation/published.csv`) that were known when the number was
    /// chosen, and that it decides.
    pub settled_in_view: Vec<String>,
}

/// A file that a machine was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name, without a path.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A valid machine: every index is in range, every count is consistent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Short name (`trinity-phase2`).
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Modelling choices, and inconsistencies of the sources.
    pub notes: String,
    /// The interconnect.
    pub network: Network,
    /// All nodes by number; numbers ascend router by router.
    #[serde(skip)]
    pub nodes: Vec<Node>,
    /// The burst-buffer nodes, if the machine has any.
    pub burst_buffer: Option<BurstBuffer>,
    /// The client on the compute nodes, except those of `client_types`.
    pub client: Client,
    /// Compute nodes of other types.
    pub client_types: Vec<ClientType>,
    /// The parallel file system.
    pub pfs: Option<ParallelFileSystem>,
    /// Source of every number.
    pub provenance: Vec<Provenance>,
    /// The files from which it was read: the machine file and its node map.
    #[serde(skip)]
    pub files: Vec<SourceFile>,
}

/// The names of a choice in machine files and on the command line.
macro_rules! named {
    ($type:ident: $($variant:ident $name:literal),*) => {
        impl $type {
            /// All choices and their names.
            pub const NAMES: &[(&str, $type)] = &[$(($name, $type::$variant)),*];

            /// Its name in machine files and on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),*
                }
            }
        }
    };
}

named!(NodeKind: Compute "compute", BurstBuffer "burst-buffer", Lnet "lnet", Service "service");
named!(Arrangement: Absolute "absolute", Relative "relative", Circulant "circulant");
named!(Plugging: InOrder "in-order", Spread "spread", AcrossChassis "across-chassis");
named!(AdaptiveBias: Adaptive0 "adaptive-0", Adaptive1 "adaptive-1", Adaptive2 "adaptive-2",
    Adaptive3 "adaptive-3", Codes "codes", Ugal "ugal");
named!(Routing:
    Minimal "minimal", Valiant "valiant", UgalL "ugal-l", ProgressiveAdaptive "progressive-adaptive");

impl Network {
    /// Rank-3 links between each two groups.
    pub fn links_per_group_pair(&self) -> u32 {
        self.cables_per_group_pair * self.routers_per_cable
    }

    /// Cable sockets of each set of [`Network::routers_per_cable`] neighbouring routers of a group:
    /// the group's sockets, distributed evenly.
    pub fn socket_counts(&self) -> Vec<u32> {
        let routers = self.chassis_per_group * self.routers_per_chassis;
        let sets = (routers / self.routers_per_cable.max(1)).max(1);
        let total = u64::from(self.cable_sockets_per_group);
        let share = |set: u32| (u64::from(set) * total / u64::from(sets)) as u32;
        (0..sets).map(|set| share(set + 1) - share(set)).collect()
    }

    /// Ports of a router: rank-1, rank-2, rank-3, nodes. The port to itself in each of the first
    /// two ranks counts, too.
    pub fn ports_per_router(&self) -> u32 {
        let sockets = self.socket_counts().into_iter().max().unwrap_or(0);
        self.routers_per_chassis + self.chassis_per_group + sockets + self.node_ports_per_router
    }

    /// The longest time that a packet of `packet` occupies any link.
    pub fn longest_packet_time(&self, packet: Bytes) -> Time {
        let links = [&self.node, &self.rank1, &self.rank2, &self.global];
        let slowest = links.iter().map(|l| l.rate.0).min().unwrap_or(0).max(1);
        let ps = u128::from(packet.0) * 1_000_000_000_000 / u128::from(slowest);
        Time(u64::try_from(ps).unwrap_or(u64::MAX))
    }
}

/// The longest time that a packet may occupy a link: the simulation counts it in 32 bits.
pub const LONGEST_PACKET_TIME: Time = Time(4_000_000_000);
/// The most ports that a router may have: port numbers have 8 bits, and one value is reserved.
pub const MAX_PORTS: u32 = 255;

impl Machine {
    /// Routers in one group.
    pub fn routers_per_group(&self) -> u32 {
        self.network.chassis_per_group * self.network.routers_per_chassis
    }

    /// Routers in the machine.
    pub fn routers(&self) -> u32 {
        self.network.groups * self.routers_per_group()
    }

    /// The group of a node.
    pub fn group_of(&self, node: u32) -> u32 {
        self.nodes[node as usize].router / self.routers_per_group()
    }

    /// The numbers of all nodes of one kind, in ascending order.
    pub fn nodes_of_kind(&self, kind: NodeKind) -> Vec<u32> {
        (0..).zip(&self.nodes).filter(|(_, n)| n.kind == kind).map(|(i, _)| i).collect()
    }

    /// The clients of the types of compute nodes, each with the numbers of the type's nodes in
    /// ascending order.
    pub fn clients(&self) -> Vec<(&Client, Vec<u32>)> {
        let mut clients: Vec<(&Client, Vec<u32>)> = vec![(&self.client, Vec::new())];
        clients.extend(self.client_types.iter().map(|t| (&t.client, Vec::new())));
        for node in self.nodes_of_kind(NodeKind::Compute) {
            let group = self.group_of(node);
            let of_type = |t: &ClientType| (t.first_group..=t.last_group).contains(&group);
            let index = self.client_types.iter().position(of_type).map_or(0, |i| i + 1);
            clients[index].1.push(node);
        }
        clients
    }

    /// The numbers of the compute nodes of a type, in ascending order; empty for an unknown type.
    pub fn nodes_of_type(&self, name: &str) -> Vec<u32> {
        let of_type = self.clients().into_iter().find(|(client, _)| client.name == name);
        of_type.map(|(_, nodes)| nodes).unwrap_or_default()
    }

    /// Number of nodes of one kind.
    pub fn count_nodes(&self, kind: NodeKind) -> usize {
        self.nodes.iter().filter(|n| n.kind == kind).count()
    }
}
