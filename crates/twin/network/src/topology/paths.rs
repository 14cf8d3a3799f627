//! Shortest paths within groups and between them.

use super::{GlobalLink, MAX_MASKED, Topology};
use forebay_engine::prefetch;
use forebay_machine_file::machine::Structure;
use forebay_random::below;
use std::ops::Range;

impl Topology {
    pub(super) fn index_near_links(&mut self) {
        if self.parallel > MAX_MASKED || self.structure == Structure::FatTree {
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

    /// The output ports with which the shortest paths from one router of the group to another (not
    /// the same) begin: by rank-1, and by rank-2; the same port twice if only one does. From a leaf to a
    /// leaf, or a spine to a spine, paths begin with all ports: see [`Topology::routers_between`].
    #[inline]
    pub fn local_ports_toward(&self, from: u16, to: u16) -> (u8, u8) {
        if self.has_spines() {
            let port = self.spine_port_toward(to);
            return (port, port);
        }
        self.mesh_ports_toward(from, to)
    }

    /// The port of each router of a group with spines that leads to its neighbour `to`.
    #[inline]
    pub(crate) fn spine_port_toward(&self, to: u16) -> u8 {
        self.coordinates[usize::from(to)].0 as u8
    }

    /// [`Topology::local_ports_toward`] in a group without spines.
    #[inline]
    pub(crate) fn mesh_ports_toward(&self, from: u16, to: u16) -> (u8, u8) {
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
        if self.has_spines() {
            return if chassis != to_chassis { 1 } else { 2 * u32::from(slot != to_slot) };
        }
        u32::from(slot != to_slot) + u32::from(chassis != to_chassis)
    }

    /// The routers over which the paths lead from one router of a group with spines to another: the
    /// spines between two leaves, the leaves between two spines; `None` between neighbours.
    #[inline]
    pub fn routers_between(&self, from: u16, to: u16) -> Option<Range<u16>> {
        let (leaf, to_leaf) = (from < self.slots, to < self.slots);
        match (self.has_spines() && leaf == to_leaf, leaf) {
            (true, true) => Some(self.slots..self.slots + self.spines),
            (true, false) => Some(0..self.slots),
            (false, _) => None,
        }
    }

    /// One of the links from group `from.0` that lie on shortest paths from router `from.1` to router
    /// `to.1` of another group, `to.0`: the one that `random` picks. In a fat tree they lead to the core
    /// routers, or from one to the group.
    pub fn shortest_link(&self, from: (u16, u16), to: (u16, u16), random: u64) -> &GlobalLink {
        if self.structure == Structure::FatTree {
            return self.tree_link(from, to.0, random);
        }
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

    /// Prefetches the rows that [`Topology::shortest_link`] reads for a packet from a router to an interface.
    #[inline]
    pub(crate) fn prefetch_near_links(&self, from: (u16, u16), interface: u32) {
        let to = self.interface(interface);
        if to.group != from.0 && !self.near.is_empty() {
            prefetch(&self.near[self.near_row(from, to.group)]);
            prefetch(&self.near[self.near_row((to.group, to.router), from.0)]);
        }
    }

    /// Links on a shortest path between two routers with nodes, each given by its group and its number
    /// there.
    pub fn links_between(&self, from: (u16, u16), to: (u16, u16)) -> u32 {
        if from.0 == to.0 {
            return self.distance(from.1, to.1);
        }
        let link = self.shortest_link(from, to, 0);
        match self.structure {
            Structure::Dragonfly | Structure::DragonflyPlus => {
                self.distance(from.1, link.router) + 1 + self.distance(link.far_router, to.1)
            }
            // Up to a spine and a core router, and down.
            Structure::FatTree => 4,
        }
    }

    /// The link from a core router to a group, or one of those from a group to all core routers.
    fn tree_link(&self, from: (u16, u16), to: u16, random: u64) -> &GlobalLink {
        if self.is_plane(from.0) {
            return &self.links(from.0, to)[usize::from(from.1)];
        }
        let planes = self.groups - self.node_groups;
        let chosen = below(random, u64::from(planes) * u64::from(self.parallel)) as u16;
        let (plane, core) = (self.node_groups + chosen / self.parallel, chosen % self.parallel);
        &self.links(from.0, plane)[usize::from(core)]
    }

    /// The `n`-th link from a router to a group, of those that begin at the router; `None` if there
    /// are not so many.
    pub(crate) fn link_at(&self, from: (u16, u16), to: u16, n: u64) -> Option<&GlobalLink> {
        self.links(from.0, to).iter().filter(|link| link.router == from.1).nth(n as usize)
    }

    /// Links that begin at a router and lead to a group.
    pub(crate) fn count_links_at(&self, from: (u16, u16), to: u16) -> u64 {
        if self.near.is_empty() {
            return self.links(from.0, to).iter().filter(|l| l.router == from.1).count() as u64;
        }
        self.near_links(from, to)[0].count_ones().into()
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
