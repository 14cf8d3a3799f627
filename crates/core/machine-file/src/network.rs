//! The interconnect of a machine: groups of routers, the links within and between them, and its routing.

use forebay_units::{Bytes, Rate, Time};
use serde::Serialize;

/// The classes of links, in the order in which statistics list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkClass {
    /// Node to its router and back (PCIe, NIC).
    Node,
    /// Rank-1 ("green"): all routers of a chassis, all-to-all. In a group of leaf and spine routers: those
    /// between each leaf and each spine.
    Rank1,
    /// Rank-2 ("black"): the same slot in all chassis of a group, all-to-all.
    Rank2,
    /// Rank-3 ("blue"): optical links between groups; in a fat tree, between spine and core routers.
    Global,
}

/// The structure of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Structure {
    /// Groups of chassis x slots routers, all of which may have nodes and links to other groups (Kim et
    /// al., ISCA 2008). With one chassis the groups are one-dimensional: each router has a link to each
    /// other router of its group, as in Slingshot.
    #[default]
    Dragonfly,
    /// Groups of leaf routers, which have the nodes, and spine routers, which have the links to other
    /// groups; a link joins each leaf and each spine (Shpiner et al., HiPINEB 2017).
    DragonflyPlus,
    /// Groups of leaf and spine routers, joined by core routers: spine s of each group has a link to each
    /// core router of plane s. One group without core routers is a tree of two levels.
    FatTree,
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

/// The places over which the detours of a dragonfly lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detour {
    /// A random router of a random third group. Within a group: a random other router.
    #[default]
    Router,
    /// A random third group, by its shortest path from one link to the next. None within a group.
    Group,
    /// The router of a random node of the machine: none if it is in the source's group, and a longer way
    /// within the destination's group if it is there. None within a group.
    AnyNode,
}

/// The links over which progressive adaptive routing takes detours behind the first router of a dragonfly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LateDetour {
    /// Any link of the group.
    #[default]
    AnyLink,
    /// The router's own ones.
    OwnLink,
}

/// The order in which packets leave the input buffer of a virtual channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputQueues {
    /// A queue for each output: a packet waits for its own link only.
    #[default]
    VirtualOutput,
    /// One queue: behind a packet that waits for credits all others wait (head-of-line blocking).
    Fifo,
}

/// Parameters of routing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoutingSpec {
    /// The default algorithm of this machine.
    pub algorithm: Routing,
    /// The place over which a detour leads.
    pub detour: Detour,
    /// The links of a late detour.
    pub late_detour: LateDetour,
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
    /// The structure.
    pub structure: Structure,
    /// Number of groups G.
    pub groups: u32,
    /// Chassis a group: the rank-2 dimension. 1 in groups of leaf and spine routers.
    pub chassis_per_group: u32,
    /// Routers a chassis: the rank-1 dimension. In groups of leaf and spine routers, the leaves.
    pub routers_per_chassis: u32,
    /// Spine routers a group, after its other routers in their numbers; 0 in a dragonfly.
    pub spines_per_group: u32,
    /// Core routers to which each spine router of a fat tree has a link: those of a plane.
    pub cores_per_plane: u32,
    /// Node ports per router.
    pub node_ports_per_router: u32,
    /// Sockets for rank-3 cables per group, spread evenly over its routers, or its spines
    /// (Aries: 240 for 96 routers, five for each two routers).
    pub cable_sockets_per_group: u32,
    /// Rank-3 cables between each two groups; in a fat tree, between a group and a plane.
    pub cables_per_group_pair: u32,
    /// Neighbouring routers that share a socket: a cable carries one link for each of them.
    pub routers_per_cable: u32,
    /// The arrangement of the rank-3 cables.
    pub arrangement: Arrangement,
    /// The sockets that these cables take.
    pub plugging: Plugging,
    /// From a packet's head at a router's input to its head at the output, unloaded.
    pub router_traversal: Time,
    /// Order of the packets in a router's input buffers.
    pub input_queues: InputQueues,
    /// Largest packet: messages are cut into packets of this size.
    pub packet: Bytes,
    /// Network interfaces of nodes.
    pub nic: NicSpec,
    /// Node links, both ways.
    pub node: LinkSpec,
    /// Rank-1 links.
    pub rank1: LinkSpec,
    /// Rank-2 links; as those of rank 1 where groups have one dimension.
    pub rank2: LinkSpec,
    /// Rank-3 links.
    pub global: LinkSpec,
    /// Routing algorithm and thresholds.
    pub routing: RoutingSpec,
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

pub(crate) use named;

named!(Structure: Dragonfly "dragonfly", DragonflyPlus "dragonfly-plus", FatTree "fat-tree");
named!(Arrangement: Absolute "absolute", Relative "relative", Circulant "circulant");
named!(Plugging: InOrder "in-order", Spread "spread", AcrossChassis "across-chassis");
named!(AdaptiveBias: Adaptive0 "adaptive-0", Adaptive1 "adaptive-1", Adaptive2 "adaptive-2",
    Adaptive3 "adaptive-3", Codes "codes", Ugal "ugal");
named!(Detour: Router "router", Group "group", AnyNode "any-node");
named!(LateDetour: AnyLink "any-link", OwnLink "own-link");
named!(InputQueues: VirtualOutput "virtual-output", Fifo "fifo");
named!(Routing:
    Minimal "minimal", Valiant "valiant", UgalL "ugal-l", ProgressiveAdaptive "progressive-adaptive");

impl Network {
    /// Rank-3 links between each two groups; in a fat tree, between a group and a plane.
    pub fn links_per_group_pair(&self) -> u32 {
        self.cables_per_group_pair * self.routers_per_cable
    }

    /// Routers of a group that may have nodes.
    pub fn node_routers_per_group(&self) -> u32 {
        self.chassis_per_group * self.routers_per_chassis
    }

    /// Routers of a group.
    pub fn routers_per_group(&self) -> u32 {
        self.node_routers_per_group() + self.spines_per_group
    }

    /// Whether groups have rank-2 links.
    pub fn has_rank2(&self) -> bool {
        self.structure == Structure::Dragonfly && self.chassis_per_group > 1
    }

    /// Planes of core routers: one for each spine of a group.
    pub fn planes(&self) -> u32 {
        if self.cores_per_plane > 0 { self.spines_per_group } else { 0 }
    }

    /// Cable sockets of each set of [`Network::routers_per_cable`] neighbouring routers of a group that
    /// have some: the group's sockets, distributed evenly.
    pub fn socket_counts(&self) -> Vec<u32> {
        let routers = match self.structure {
            Structure::Dragonfly => self.node_routers_per_group(),
            Structure::DragonflyPlus | Structure::FatTree => self.spines_per_group,
        };
        let sets = (routers / self.routers_per_cable.max(1)).max(1);
        let total = u64::from(self.cable_sockets_per_group);
        let share = |set: u32| (u64::from(set) * total / u64::from(sets)) as u32;
        (0..sets).map(|set| share(set + 1) - share(set)).collect()
    }

    /// Ports of a router for links within its group. The ports of a dragonfly's router to itself, one in
    /// each of two ranks, count, too.
    pub fn local_ports(&self) -> u32 {
        match self.structure {
            Structure::Dragonfly => self.routers_per_chassis + self.chassis_per_group,
            Structure::DragonflyPlus | Structure::FatTree => {
                self.routers_per_chassis.max(self.spines_per_group)
            }
        }
    }

    /// Most rank-3 ports of a router; a core router has one for each group.
    pub fn global_ports(&self) -> u32 {
        let of_cores = if self.planes() > 0 { self.groups } else { 0 };
        self.socket_counts().into_iter().max().unwrap_or(0).max(of_cores)
    }

    /// Ports of a router: within the group, rank-3, nodes.
    pub fn ports_per_router(&self) -> u32 {
        self.local_ports() + self.global_ports() + self.node_ports_per_router
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
