//! The links of a network, as tables that the fabric reads.
//!
//! In a dragonfly the routers of a group form a grid of chassis × slots. Ports of a router, in this
//! order: rank-1 by the slot they lead to, rank-2 by chassis, rank-3, nodes. (The rank-1 port to the
//! router's own slot and the rank-2 port to its own chassis exist as numbers only.)
//!
//! Groups of leaf and spine routers have the leaves first. The ports of a leaf are numbered by the
//! spines they lead to, those of a spine by the leaves; then rank-3, which spines have, and nodes, which
//! leaves have. The core routers of a fat tree are groups of their own, without nodes, behind the others:
//! one for each plane, which is the core routers that have links to the same spine of each group. They
//! have rank-3 ports only, numbered by groups.

mod cables;
mod interfaces;
mod paths;

pub(crate) use interfaces::Interfaces;

use forebay_machine_file::machine::{LinkClass, MAX_PORTS, Machine, Structure};

/// The location of a node, or of one of its network interfaces. That of a node with several interfaces is
/// the location of its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLocation {
    /// Group.
    pub group: u16,
    /// Router within the group: chassis × slots + slot.
    pub router: u16,
    /// Port of the router to which it is attached, counted over all ports of the router.
    pub port: u8,
    /// Number of the node, or of the interface, within its group.
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

/// Groups of routers, rank-3 links between groups, nodes.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The structure.
    pub structure: Structure,
    /// Number of groups, the planes of core routers included.
    pub groups: u16,
    /// Groups with nodes: all but the planes.
    pub node_groups: u16,
    /// Chassis per group.
    pub chassis: u16,
    /// Routers per chassis; leaves per group.
    pub slots: u16,
    /// Spines per group.
    pub spines: u16,
    /// Most routers of a group.
    routers: u16,
    /// Parallel links between each pair of groups: cables × links of a cable. In a fat tree, between a
    /// group and a plane.
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
    /// (slot, chassis) of each router of a group; (number, 0) of leaves and (number, 1) of spines.
    coordinates: Vec<(u16, u16)>,
    /// The same by port: `far_ends[(g × routers + r) × (first_node − first_global) + port −
    /// first_global]` is (group, router, port) of the other end; group `u16::MAX`: no cable.
    far_ends: Vec<(u16, u16, u8)>,
    interfaces: Interfaces,
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
        let sockets = network.socket_counts();
        let first_node = network.local_ports() + network.global_ports();
        let ports = network.ports_per_router();
        assert!(ports <= MAX_PORTS, "{ports} ports on a router");
        let groups = network.groups + network.planes();
        let routers = machine.routers_per_group().max(network.cores_per_plane);
        let parallel = network.links_per_group_pair();
        let none = GlobalLink { router: 0, port: 0, far_router: 0, far_port: 0 };
        let mut topology = Topology {
            structure: network.structure,
            groups: groups as u16,
            node_groups: network.groups as u16,
            chassis: network.chassis_per_group as u16,
            slots: network.routers_per_chassis as u16,
            spines: network.spines_per_group as u16,
            routers: routers as u16,
            parallel: parallel as u16,
            first_global: network.local_ports() as u8,
            first_node: first_node as u8,
            ports: ports as u8,
            links: vec![none; (groups * groups * parallel) as usize],
            near: Vec::new(),
            coordinates: (0..routers)
                .map(|r| {
                    let slots = network.routers_per_chassis;
                    match r < network.node_routers_per_group() {
                        true => ((r % slots) as u16, (r / slots) as u16),
                        false => ((r - slots) as u16, 1),
                    }
                })
                .collect(),
            far_ends: vec![(u16::MAX, 0, 0); (groups * routers * network.global_ports()) as usize],
            interfaces: Interfaces::default(),
            members: vec![Vec::new(); groups as usize],
        };
        match network.structure {
            Structure::Dragonfly | Structure::DragonflyPlus => {
                topology.lay_cables(network, &sockets);
            }
            Structure::FatTree => topology.lay_core_cables(),
        }
        topology.index_near_links();
        topology.place_nodes(machine);
        topology
    }

    /// Routers per group; in a fat tree, of a group or plane at most.
    #[inline]
    pub fn routers(&self) -> u16 {
        self.routers
    }

    /// Whether groups have leaf and spine routers.
    #[inline]
    pub fn has_spines(&self) -> bool {
        self.spines > 0
    }

    /// Whether a group is a plane of core routers.
    #[inline]
    pub fn is_plane(&self, group: u16) -> bool {
        group >= self.node_groups
    }

    /// First of the routers of a group that have links to other groups.
    fn first_gateway(&self) -> u16 {
        if self.has_spines() { self.slots } else { 0 }
    }

    /// Links within a group by class: of rank 1 and rank 2, each direction counted.
    pub fn local_links(&self) -> [(LinkClass, u32); 2] {
        let (chassis, slots) = (u32::from(self.chassis), u32::from(self.slots));
        if self.has_spines() {
            return [(LinkClass::Rank1, 2 * slots * u32::from(self.spines)), (LinkClass::Rank2, 0)];
        }
        let routers = chassis * slots;
        [(LinkClass::Rank1, routers * (slots - 1)), (LinkClass::Rank2, routers * (chassis - 1))]
    }

    /// Links between groups, each direction counted.
    pub fn global_links(&self) -> u64 {
        let (groups, others) = match self.structure {
            Structure::Dragonfly | Structure::DragonflyPlus => (self.groups, self.groups - 1),
            Structure::FatTree => (self.node_groups, 2 * (self.groups - self.node_groups)),
        };
        u64::from(groups) * u64::from(others) * u64::from(self.parallel)
    }

    /// Links out of a group with nodes.
    pub fn links_out(&self) -> u32 {
        let others = match self.structure {
            Structure::Dragonfly | Structure::DragonflyPlus => self.groups - 1,
            Structure::FatTree => self.groups - self.node_groups,
        };
        u32::from(others) * u32::from(self.parallel)
    }

    /// A short name of a router: `c1s4` of chassis 1 and slot 4, `leaf 3`, `spine 0`, `core 2`.
    pub fn router_name(&self, group: u16, router: u16) -> String {
        match (self.is_plane(group), self.has_spines()) {
            (true, _) => format!("core {router}"),
            (false, true) if router < self.slots => format!("leaf {router}"),
            (false, true) => format!("spine {}", router - self.slots),
            (false, false) => format!("c{}s{}", router / self.slots, router % self.slots),
        }
    }

    /// Nodes of a group, by their number within the group.
    pub fn nodes_of_group(&self, group: u16) -> &[u32] {
        &self.members[usize::from(group)]
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

    /// The router that a rank-1 or rank-2 port leads to.
    pub fn neighbour(&self, router: u16, port: u8) -> u16 {
        let port = u16::from(port);
        let (slot, chassis) = self.coordinates[usize::from(router)];
        if self.has_spines() {
            let (first, count) = match router < self.slots {
                true => (self.slots, self.spines),
                false => (0, self.slots),
            };
            if port < count { first + port } else { router }
        } else if port < self.slots {
            chassis * self.slots + port
        } else {
            (port - self.slots) * self.slots + slot
        }
    }

    /// Class of the link at a port of a router; `None` for a port that leads to the router itself.
    pub fn class(&self, group: u16, router: u16, port: u8) -> Option<LinkClass> {
        if port >= self.first_node {
            Some(LinkClass::Node)
        } else if port >= self.first_global {
            Some(LinkClass::Global)
        } else if self.is_plane(group) || self.neighbour(router, port) == router {
            None
        } else if self.has_spines() || u16::from(port) < self.slots {
            Some(LinkClass::Rank1)
        } else {
            Some(LinkClass::Rank2)
        }
    }
}
