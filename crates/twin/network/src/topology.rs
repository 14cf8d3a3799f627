//! The links of a dragonfly, as tables that the fabric reads.
//!
//! Routers of a group form a grid of chassis × slots. Ports of a router, in this order: rank-1 by
//! the slot they lead to, rank-2 by chassis, rank-3, nodes. (The rank-1 port to the router's own
//! slot and the rank-2 port to its own chassis exist as numbers only.)

use forebay_machine_file::machine::{Arrangement, LinkClass, Machine, Network, Plugging};

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

/// A dragonfly: groups of chassis × slots routers, rank-3 links between groups, nodes.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Number of groups.
    pub groups: u16,
    /// Chassis per group.
    pub chassis: u16,
    /// Routers per chassis.
    pub slots: u16,
    /// Parallel links between each pair of groups.
    pub parallel: u16,
    /// First rank-3 port of a router.
    pub first_global: u8,
    /// First node port of a router.
    pub first_node: u8,
    /// Ports per router.
    pub ports: u8,
    /// Links from group g to group h: `links[(g × groups + h) × parallel ..][.. parallel]`.
    links: Vec<GlobalLink>,
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
        let sockets = sockets_per_router(network, routers);
        let max_sockets = sockets.iter().copied().max().unwrap_or(0);
        let first_global = network.routers_per_chassis + network.chassis_per_group;
        let first_node = first_global + max_sockets;
        let ports = first_node + network.node_ports_per_router;
        assert!(ports <= 255, "{ports} ports on a router");
        let mut topology = Topology {
            groups: network.groups as u16,
            chassis: network.chassis_per_group as u16,
            slots: network.routers_per_chassis as u16,
            parallel: network.links_per_group_pair as u16,
            first_global: first_global as u8,
            first_node: first_node as u8,
            ports: ports as u8,
            links: Vec::new(),
            far_ends: vec![(u16::MAX, 0, 0); (network.groups * routers * max_sockets) as usize],
            locations: Vec::new(),
            members: vec![Vec::new(); network.groups as usize],
        };
        topology.lay_cables(network, &sockets);
        topology.place_nodes(machine);
        topology
    }

    fn lay_cables(&mut self, network: &Network, sockets: &[u32]) {
        let (groups, parallel) = (network.groups, network.links_per_group_pair);
        let used = parallel * groups.saturating_sub(1);
        let sockets_in_order = sockets_in_order(sockets, used, self.first_global, network.plugging);
        let none = GlobalLink { router: 0, port: 0, far_router: 0, far_port: 0 };
        self.links = vec![none; (groups * groups * parallel) as usize];
        for g in 0..groups {
            for h in (0..groups).filter(|&h| h != g) {
                for round in 0..parallel {
                    let there = round * (groups - 1) + offset(network.arrangement, g, h, groups);
                    let back = round * (groups - 1) + offset(network.arrangement, h, g, groups);
                    let ((router, port), (far_router, far_port)) =
                        (sockets_in_order[there as usize], sockets_in_order[back as usize]);
                    let link = GlobalLink { router, port, far_router, far_port };
                    self.links[((g * groups + h) * parallel + round) as usize] = link;
                    let index = self.far_end_index(g as u16, router, port);
                    self.far_ends[index] = (h as u16, far_router, far_port);
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

    /// The output port on the path from one router to another (not the same) of the group: rank-1
    /// first, then rank-2.
    #[inline]
    pub fn local_port_toward(&self, from: u16, to: u16) -> u8 {
        let (slot, to_slot) = (from % self.slots, to % self.slots);
        if slot != to_slot { to_slot as u8 } else { (self.slots + to / self.slots) as u8 }
    }

    /// Links on the path from one router to another of the group: 0, 1 or 2.
    #[inline]
    pub fn distance(&self, from: u16, to: u16) -> u32 {
        u32::from(from % self.slots != to % self.slots)
            + u32::from(from / self.slots != to / self.slots)
    }

    /// The router that a rank-1 or rank-2 port leads to.
    pub fn neighbour(&self, router: u16, port: u8) -> u16 {
        let port = u16::from(port);
        if port < self.slots {
            router / self.slots * self.slots + port
        } else {
            (port - self.slots) * self.slots + router % self.slots
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

/// Rank-3 sockets of each router of a group: the group's sockets, distributed evenly.
fn sockets_per_router(network: &Network, routers: u32) -> Vec<u32> {
    let total = network.global_ports_per_group;
    let share = |r: u32| (u64::from(r) * u64::from(total) / u64::from(routers)) as u32;
    (0..routers).map(|r| share(r + 1) - share(r)).collect()
}

/// Router and port of each of a group's `used` links, in the order of their numbers in the
/// arrangement.
fn sockets_in_order(
    sockets: &[u32],
    used: u32,
    first_global: u8,
    plugging: Plugging,
) -> Vec<(u16, u8)> {
    let all: Vec<(u16, u8)> = (0u16..)
        .zip(sockets)
        .flat_map(|(router, &n)| (0..n).map(move |s| (router, first_global + s as u8)))
        .collect();
    assert!(used as usize <= all.len(), "{used} rank-3 links for {} sockets", all.len());
    let socket = |i: u32| match plugging {
        Plugging::InOrder => i as usize,
        Plugging::Spread => (u64::from(i) * all.len() as u64 / u64::from(used)) as usize,
    };
    (0..used).map(|i| all[socket(i)]).collect()
}

/// The number of the link from group g to group h among a group's G − 1 links of one round.
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
