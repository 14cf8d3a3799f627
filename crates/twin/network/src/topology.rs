//! The links of a dragonfly, as tables that the fabric reads.
//!
//! Routers of a group form a grid of chassis × slots. Ports of a router, in this order: rank-1 by
//! the slot they lead to, rank-2 by chassis, rank-3, nodes. (The rank-1 port to the router's own
//! slot and the rank-2 port to its own chassis exist as numbers only.)

use forebay_engine::prefetch;
use forebay_machine_file::machine::{
    Arrangement, LinkClass, MAX_PORTS, Machine, Network, Plugging,
};
use forebay_random::below;

/// A node's location in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLocation {
    /// Group.
    pub group: u16,
    /// Router within the group: chassis × slots + slot.
    pub router: u16,
    /// Port of the router to which the node is attached, counted over all ports of the router.
    pub port: u8,
    /// Number of the node within its group.
    pub local: u16,
}

/// Both ends of a rank-3 link, as seen from one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalLink {
    /// Router of this group.
    pub router: u16,
    /// Its port, counted over all ports of the router.
    pub port: u8,
    /// Router of the other group.
    pub far_router: u16,
    /// Its port.
    pub far_port: u8,
}

/// Parallel links that fit the bits of a mask.
const MAX_MASKED: u16 = 64;

/// A dragonfly: groups of chassis × slots routers, rank-3 links between groups, nodes.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Number of groups.
    pub groups: u16,
    /// Chassis per group.
    pub chassis: u16,
    /// Routers per chassis.
    pub slots: u16,
    /// Parallel links between each pair of groups: cables × links of a cable.
    pub parallel: u16,
    /// First rank-3 port of a router.
    pub first_global: u8,
    /// First node port of a router.
    pub first_node: u8,
    /// Ports per router.
    pub ports: u8,
    /// Links from group g to group h: `links[(g × groups + h) × parallel ..][.. parallel]`.
    links: Vec<GlobalLink>,
    /// For router r of group g and group h, at `(g × routers + r) × groups + h`: the links from g to
    /// h that begin at the router, and those that begin one local link away, as bits of their
    /// numbers. Empty with more than [`MAX_MASKED`] parallel links.
    near: Vec<[u64; 2]>,
    /// (slot, chassis) of each router of a group.
    coordinates: Vec<(u16, u16)>,
    /// The same by port: `far_ends[(g × routers + r) × (first_node − first_global) + port −
    /// first_global]` is (group, router, port) of the other end; group `u16::MAX`: no cable.
    far_ends: Vec<(u16, u16, u8)>,
    locations: Vec<NodeLocation>,
    /// Nodes of each group, by their number within the group.
    members: Vec<Vec<u32>>,
}

impl Topology {
    /// The topology of a valid machine.
    ///
    /// # Panics
    /// If the machine violates a limit that machine files are checked for (more links than sockets,
    /// more nodes on a router than ports, more than 255 ports on a router).
    pub fn new(machine: &Machine) -> Self {
        let network = &machine.network;
        let routers = machine.routers_per_group();
        let sockets = network.socket_counts();
        let max_sockets = sockets.iter().copied().max().unwrap_or(0);
        let first_global = network.routers_per_chassis + network.chassis_per_group;
        let first_node = first_global + max_sockets;
        let ports = network.ports_per_router();
        assert!(ports <= MAX_PORTS, "{ports} ports on a router");
        let mut topology = Topology {
            groups: network.groups as u16,
            chassis: network.chassis_per_group as u16,
            slots: network.routers_per_chassis as u16,
            parallel: network.links_per_group_pair() as u16,
            first_global: first_global as u8,
            first_node: first_node as u8,
            ports: ports as u8,
            links: Vec::new(),
            near: Vec::new(),
            coordinates: (0..routers)
                .map(|r| {
                    let slots = network.routers_per_chassis;
                    ((r % slots) as u16, (r / slots) as u16)
                })
                .collect(),
            far_ends: vec![(u16::MAX, 0, 0); (network.groups * routers * max_sockets) as usize],
            locations: Vec::new(),
            members: vec![Vec::new(); network.groups as usize],
        };
        topology.lay_cables(network, &sockets);
        topology.index_near_links();
        topology.place_nodes(machine);
        topology
    }

    fn lay_cables(&mut self, network: &Network, sockets: &[u32]) {
        let (groups, cables) = (network.groups, network.cables_per_group_pair);
        let per_cable = network.routers_per_cable;
        let order = sockets_in_order(network, sockets);
        let none = GlobalLink { router: 0, port: 0, far_router: 0, far_port: 0 };
        self.links = vec![none; (groups * groups * u32::from(self.parallel)) as usize];
        // The number of cable `round` from g to h among all of group g.
        let number = |g: u32, h: u32, round: u32| {
            let offset = offset(network.arrangement, g, h, groups);
            match network.plugging {
                Plugging::InOrder | Plugging::Spread => round * (groups - 1) + offset,
                Plugging::AcrossChassis => offset * cables + round,
            }
        };
        for g in 0..groups {
            for h in (0..groups).filter(|&h| h != g) {
                for round in 0..cables {
                    let near = order[number(g, h, round) as usize];
                    let far = order[number(h, g, round) as usize];
                    for link in 0..per_cable {
                        let (router, port) = self.port_of_socket(near, per_cable, link);
                        let (far_router, far_port) = self.port_of_socket(far, per_cable, link);
                        let parallel = u32::from(self.parallel);
                        let index = (g * groups + h) * parallel + round * per_cable + link;
                        self.links[index as usize] =
                            GlobalLink { router, port, far_router, far_port };
                        let index = self.far_end_index(g as u16, router, port);
                        self.far_ends[index] = (h as u16, far_router, far_port);
                    }
                }
            }
        }
    }

    /// Router and port of one of a cable's links.
    fn port_of_socket(&self, (set, socket): (u32, u32), per_cable: u32, link: u32) -> (u16, u8) {
        ((set * per_cable + link) as u16, self.first_global + socket as u8)
    }

    fn index_near_links(&mut self) {
        if self.parallel > MAX_MASKED {
            return;
        }
        let (groups, routers) = (usize::from(self.groups), usize::from(self.routers()));
        self.near.reserve_exact(groups * groups * routers);
        for g in 0..self.groups {
            for router in 0..self.routers() {
                for h in 0..self.groups {
                    let mut masks = [0; 2];
                    for (bit, link) in self.links(g, h).iter().enumerate().filter(|_| g != h) {
                        if let Some(mask) =
                            masks.get_mut(self.distance(router, link.router) as usize)
                        {
                            *mask |= 1 << bit;
                        }
                    }
                    self.near.push(masks);
                }
            }
        }
    }

    fn place_nodes(&mut self, machine: &Machine) {
        let routers = machine.routers_per_group();
        let mut taken = vec![0u8; machine.routers() as usize];
        for (number, node) in (0..).zip(&machine.nodes) {
            let group = node.router / routers;
            let members = &mut self.members[group as usize];
            let port = &mut taken[node.router as usize];
            self.locations.push(NodeLocation {
                group: group as u16,
                router: (node.router % routers) as u16,
                port: self.first_node + *port,
                local: members.len() as u16,
            });
            members.push(number);
            *port += 1;
            assert!(
                self.first_node + *port <= self.ports,
                "too many nodes on router {}",
                node.router
            );
        }
    }

    /// Routers per group.
    #[inline]
    pub fn routers(&self) -> u16 {
        self.chassis * self.slots
    }

    /// The location of a node.
    #[inline]
    pub fn location(&self, node: u32) -> NodeLocation {
        self.locations[node as usize]
    }

    /// Nodes of a group, by their number within the group.
    pub fn nodes_of_group(&self, group: u16) -> &[u32] {
        &self.members[usize::from(group)]
    }

    /// The node attached to a router's port.
    pub fn node_at(&self, group: u16, router: u16, port: u8) -> Option<u32> {
        let mut nodes = self.nodes_of_group(group).iter().copied();
        nodes.find(|&node| {
            let location = self.location(node);
            location.router == router && location.port == port
        })
    }

    /// Nodes of the machine.
    pub fn nodes(&self) -> usize {
        self.locations.len()
    }

    /// The parallel links from one group to another.
    #[inline]
    pub fn links(&self, from: u16, to: u16) -> &[GlobalLink] {
        let parallel = usize::from(self.parallel);
        let first = (usize::from(from) * usize::from(self.groups) + usize::from(to)) * parallel;
        &self.links[first..first + parallel]
    }

    /// The other end (group, router, port) of a rank-3 port; `None` without a cable.
    pub fn far_end(&self, group: u16, router: u16, port: u8) -> Option<(u16, u16, u8)> {
        let end = self.far_ends[self.far_end_index(group, router, port)];
        (end.0 != u16::MAX).then_some(end)
    }

    fn far_end_index(&self, group: u16, router: u16, port: u8) -> usize {
        let router = usize::from(group) * usize::from(self.routers()) + usize::from(router);
        router * usize::from(self.first_node - self.first_global)
            + usize::from(port - self.first_global)
    }

    /// The output ports with which the shortest paths from one router of the group to another (not
    /// the same) begin: by rank-1, and by rank-2; the same port twice if only one does.
    #[inline]
    pub fn local_ports_toward(&self, from: u16, to: u16) -> (u8, u8) {
        let ((slot, chassis), (to_slot, to_chassis)) =
            (self.coordinates[usize::from(from)], self.coordinates[usize::from(to)]);
        let (rank1, rank2) = (to_slot as u8, (self.slots + to_chassis) as u8);
        if slot == to_slot {
            (rank2, rank2)
        } else if chassis == to_chassis {
            (rank1, rank1)
        } else {
            (rank1, rank2)
        }
    }

    /// Links on the path from one router to another of the group: 0, 1 or 2.
    #[inline]
    pub fn distance(&self, from: u16, to: u16) -> u32 {
        let ((slot, chassis), (to_slot, to_chassis)) =
            (self.coordinates[usize::from(from)], self.coordinates[usize::from(to)]);
        u32::from(slot != to_slot) + u32::from(chassis != to_chassis)
    }

    /// One of the links from group `from.0` to group `to.0` that lie on shortest paths from router
    /// `from.1` to router `to.1`: the one that `random` picks.
    pub fn shortest_link(&self, from: (u16, u16), to: (u16, u16), random: u64) -> &GlobalLink {
        let links = self.links(from.0, to.0);
        if self.near.is_empty() {
            let length = |link: &GlobalLink| {
                self.distance(from.1, link.router) + self.distance(link.far_router, to.1)
            };
            let shortest = links.iter().map(length).min().unwrap_or(0);
            let count = links.iter().filter(|l| length(l) == shortest).count() as u64;
            let chosen = below(random, count) as usize;
            return links.iter().filter(|l| length(l) == shortest).nth(chosen).unwrap_or(&links[0]);
        }
        let near = self.near_links(from, to.0);
        let far = self.near_links(to, from.0);
        // Links by the sum of their distances: 0 + 0; 0 + 1; 1 + 1 or 0 + 2; 1 + 2; 2 + 2.
        let any = u64::MAX >> (u64::BITS - u32::from(self.parallel));
        let (near2, far2) = (any & !(near[0] | near[1]), any & !(far[0] | far[1]));
        let by_length = [
            near[0] & far[0],
            (near[0] & far[1]) | (near[1] & far[0]),
            (near[1] & far[1]) | (near[0] & far2) | (near2 & far[0]),
            (near[1] & far2) | (near2 & far[1]),
        ];
        let mask = by_length.into_iter().find(|mask| *mask != 0).unwrap_or(any);
        &links[nth_bit(mask, below(random, mask.count_ones().into()) as u32) as usize]
    }

    #[inline]
    fn near_links(&self, from: (u16, u16), to: u16) -> [u64; 2] {
        self.near[self.near_row(from, to)]
    }

    #[inline]
    fn near_row(&self, (group, router): (u16, u16), to: u16) -> usize {
        let row = usize::from(group) * usize::from(self.routers()) + usize::from(router);
        row * usize::from(self.groups) + usize::from(to)
    }

    /// Prefetches the rows that [`Topology::shortest_link`] reads for a packet from a router to a node.
    #[inline]
    pub(crate) fn prefetch_near_links(&self, from: (u16, u16), node: u32) {
        let to = self.location(node);
        if to.group != from.0 && !self.near.is_empty() {
            prefetch(&self.near[self.near_row(from, to.group)]);
            prefetch(&self.near[self.near_row((to.group, to.router), from.0)]);
        }
    }

    /// The router that a rank-1 or rank-2 port leads to.
    pub fn neighbour(&self, router: u16, port: u8) -> u16 {
        let port = u16::from(port);
        let (slot, chassis) = self.coordinates[usize::from(router)];
        if port < self.slots {
            chassis * self.slots + port
        } else {
            (port - self.slots) * self.slots + slot
        }
    }

    /// Class of the link at a port of a router; `None` for a port that leads to the router itself.
    pub fn class(&self, router: u16, port: u8) -> Option<LinkClass> {
        if port >= self.first_node {
            Some(LinkClass::Node)
        } else if port >= self.first_global {
            Some(LinkClass::Global)
        } else if self.neighbour(router, port) == router {
            None
        } else if u16::from(port) < self.slots {
            Some(LinkClass::Rank1)
        } else {
            Some(LinkClass::Rank2)
        }
    }
}

/// Position of the `n`-th of a mask's bits.
#[inline]
fn nth_bit(mut mask: u64, n: u32) -> u32 {
    for _ in 0..n {
        mask &= mask - 1;
    }
    mask.trailing_zeros()
}

/// The sockets of a group's cables, in the order of their numbers: set of routers, and number of the
/// socket among those of the set.
fn sockets_in_order(network: &Network, sockets: &[u32]) -> Vec<(u32, u32)> {
    let used = network.cables_per_group_pair * (network.groups - 1);
    let mut all: Vec<(u32, u32)> = (0u32..)
        .zip(sockets)
        .flat_map(|(set, &count)| (0..count).map(move |socket| (set, socket)))
        .collect();
    assert!(used as usize <= all.len(), "{used} rank-3 cables for {} sockets", all.len());
    match network.plugging {
        Plugging::InOrder => {}
        Plugging::Spread => {
            let socket = |i: u32| (u64::from(i) * all.len() as u64 / u64::from(used)) as usize;
            all = (0..used).map(|i| all[socket(i)]).collect();
        }
        Plugging::AcrossChassis => {
            let sets_per_chassis = network.routers_per_chassis / network.routers_per_cable;
            all.sort_by_key(|&(set, socket)| (socket, set % sets_per_chassis, set));
        }
    }
    all
}

/// The number of group h among the G − 1 others, seen from group g.
fn offset(arrangement: Arrangement, g: u32, h: u32, groups: u32) -> u32 {
    let ahead = (h + groups - g) % groups;
    match arrangement {
        Arrangement::Absolute => h - u32::from(h > g),
        Arrangement::Relative => ahead - 1,
        Arrangement::Circulant => {
            if ahead <= groups / 2 {
                2 * (ahead - 1)
            } else {
                2 * (groups - ahead - 1) + 1
            }
        }
    }
}
