//! The interconnect of a machine: a dragonfly of groups, chassis and routers, and its routing.

use forebay_units::{Bytes, Rate, Time};
use serde::Serialize;

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
