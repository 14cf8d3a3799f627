//! Network interfaces of nodes.
//!
//! Interfaces are numbered node by node. Where each node has one, they have the numbers of the nodes.

use super::{NodeLocation, Topology};
use forebay_machine_file::machine::Machine;

/// The interfaces of all nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interfaces {
    /// By the number of the interface.
    locations: Vec<NodeLocation>,
    /// `None` if each node has one.
    several: Option<Box<Several>>,
}

/// Interfaces and nodes, where some nodes have several interfaces.
#[derive(Clone, Debug, Default)]
struct Several {
    /// First interface of each node; then the number of interfaces.
    first: Vec<u32>,
    nodes: Vec<NodeLocation>,
    node_of: Vec<u32>,
    /// Interfaces of each group, by their number within the group.
    members: Vec<Vec<u32>>,
}

impl Topology {
    /// Attaches all nodes to their routers.
    pub(super) fn place_nodes(&mut self, machine: &Machine) {
        let routers = machine.routers_per_group();
        let mut taken = vec![0u8; machine.routers() as usize];
        let mut several =
            Several { members: vec![Vec::new(); usize::from(self.groups)], ..Several::default() };
        for (number, node) in (0..).zip(&machine.nodes) {
            let group = node.router / routers;
            let members = &mut self.members[group as usize];
            let local = members.len() as u16;
            members.push(number);
            several.first.push(self.interfaces.locations.len() as u32);
            for router in node.routers_of_interfaces() {
                let port = &mut taken[router as usize];
                let of_group = &mut several.members[group as usize];
                self.interfaces.locations.push(NodeLocation {
                    group: group as u16,
                    router: (router % routers) as u16,
                    port: self.first_node + *port,
                    local: of_group.len() as u16,
                });
                of_group.push(several.node_of.len() as u32);
                several.node_of.push(number);
                *port += 1;
                assert!(self.first_node + *port <= self.ports, "too many nodes on router {router}");
            }
            let first = several.first[number as usize] as usize;
            several.nodes.push(NodeLocation { local, ..self.interfaces.locations[first] });
        }
        several.first.push(self.interfaces.locations.len() as u32);
        let has_several = several.node_of.len() > several.nodes.len();
        self.interfaces.several = has_several.then(|| Box::new(several));
    }

    /// The location of a node.
    #[inline]
    pub fn location(&self, node: u32) -> NodeLocation {
        match &self.interfaces.several {
            None => self.interfaces.locations[node as usize],
            Some(several) => several.nodes[node as usize],
        }
    }

    /// The location of an interface.
    #[inline]
    pub(crate) fn interface(&self, number: u32) -> NodeLocation {
        self.interfaces.locations[number as usize]
    }

    /// Whether some node has several interfaces.
    #[inline]
    pub(crate) fn has_several_interfaces(&self) -> bool {
        self.interfaces.several.is_some()
    }

    /// Interfaces of a node: the first one, and their number.
    pub(crate) fn interfaces_of(&self, node: u32) -> (u32, u32) {
        match &self.interfaces.several {
            None => (node, 1),
            Some(several) => {
                let first = several.first[node as usize];
                (first, several.first[node as usize + 1] - first)
            }
        }
    }

    /// Number of interfaces of a node.
    pub fn count_interfaces_of(&self, node: u32) -> u32 {
        self.interfaces_of(node).1
    }

    /// The node of an interface.
    #[inline]
    pub fn node_of_interface(&self, interface: u32) -> u32 {
        match &self.interfaces.several {
            None => interface,
            Some(several) => several.node_of[interface as usize],
        }
    }

    /// Interfaces of a group, by their number within the group.
    pub(crate) fn interfaces_of_group(&self, group: u16) -> &[u32] {
        match &self.interfaces.several {
            None => self.nodes_of_group(group),
            Some(several) => &several.members[usize::from(group)],
        }
    }

    /// The node of an interface, given by its number within a group.
    pub fn sender(&self, group: u16, interface: u16) -> u32 {
        self.node_of_interface(self.interfaces_of_group(group)[usize::from(interface)])
    }

    /// The interface attached to a router's port.
    pub(crate) fn interface_at(&self, group: u16, router: u16, port: u8) -> Option<u32> {
        let mut interfaces = self.interfaces_of_group(group).iter().copied();
        interfaces.find(|&interface| {
            let location = self.interface(interface);
            location.router == router && location.port == port
        })
    }

    /// The node attached to a router's port.
    pub fn node_at(&self, group: u16, router: u16, port: u8) -> Option<u32> {
        self.interface_at(group, router, port).map(|interface| self.node_of_interface(interface))
    }

    /// Nodes of the machine.
    pub fn nodes(&self) -> usize {
        self.interfaces.several.as_ref().map_or(self.interfaces(), |several| several.nodes.len())
    }

    /// Interfaces of all nodes.
    pub fn interfaces(&self) -> usize {
        self.interfaces.locations.len()
    }
}
