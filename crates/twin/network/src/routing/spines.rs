//! Routing in groups of leaf and spine routers.
//!
//! A leaf and a spine are joined by one link, and all paths between two leaves over a spine are minimal.
//! In a dragonfly+ a packet to another group goes up to a spine, over its rank-3 link, and down to the
//! destination's leaf. A detour leads over a spine of another group, which sends the packet on itself if
//! it has a link to the destination's group, and otherwise down to a leaf and up to one that has.
//! Progressive adaptive routing reconsiders at the spine of the source group, among this spine's links.
//! In a fat tree a packet goes up to a spine, up to a core router of its plane, and down; adaptive routing
//! chooses spine and core router by their queues, at the leaf and again at the spine.
//!
//! # Deadlock freedom
//!
//! In leg 0, which begins at a leaf, a packet crosses an up link, and then a rank-3
//! link or a down link. Order its buffers: up, down, rank-3. A later leg begins at a spine or a core
//! router; a packet crosses a down link, an up link, a rank-3 link, or the later ones of these: order them
//! down, up, rank-3. Legs follow each other as above, so a packet waits for buffers later in the order
//! than the one it holds. A leg needs one channel. Paths have four legs at most: source group up to
//! the detour of a spine, rest of the source group, intermediate group, destination group.

use super::RoutePlanner;
use crate::packet::Packet;
use crate::topology::GlobalLink;
use forebay_machine_file::machine::LinkClass;
use forebay_random::below;

impl RoutePlanner<'_> {
    /// Lets a packet at a spine of a fat tree, whose link to its core router has a queue of `queue` ps,
    /// take that to another core router of the plane with a shorter one.
    pub(super) fn reconsider_core(&mut self, packet: &mut Packet, mut queue: u64) {
        for _ in 1..self.spec.candidates {
            let port =
                self.topology.first_global + self.random.below(self.topology.parallel.into()) as u8;
            let other = self.queue(packet.router, port);
            if other < queue {
                (packet.exit, queue) = (port, other);
            }
        }
    }

    /// The port by which a packet leaves a leaf for another leaf over one of the spines `between` them, or
    /// a spine for another spine over a leaf: a random one, or with adaptive routing the one with the
    /// shortest queues of as many random ones as there are candidates.
    /// Between neighbours, that of their link.
    pub(super) fn spine_port(&mut self, from: u16, to: u16) -> u8 {
        let Some(between) = self.topology.routers_between(from, to) else {
            return self.topology.spine_port_toward(to);
        };
        let count = u32::from(between.end - between.start);
        let tries = if self.is_adaptive() { self.spec.candidates } else { 1 };
        let mut best: Option<(u64, u8)> = None;
        for _ in 0..tries {
            let number = self.random.below(count) as u8;
            let mut queue = self.queue(from, number);
            if self.sees_group() {
                let over = between.start + u16::from(number);
                queue += self.queue(over, self.topology.spine_port_toward(to));
            }
            if best.is_none_or(|(shortest, _)| queue < shortest) {
                best = Some((queue, number));
            }
        }
        best.map_or(0, |(_, port)| port)
    }

    /// Time to transmit the queue on the way to another router of the group, ps, and the class of the first
    /// link. Where several spines or leaves lead there, one is chosen later, by its queue.
    pub(super) fn spine_queue(&self, from: u16, to: u16) -> (u64, LinkClass) {
        let queue = match self.topology.routers_between(from, to) {
            Some(_) => 0,
            None => self.queue(from, self.topology.spine_port_toward(to)),
        };
        (queue, LinkClass::Rank1)
    }

    /// A random one of the links to a group or, in a fat tree, to a core router. At a spine, one of its
    /// own, if it has one; none at a core router.
    pub(super) fn random_spine_link(&mut self, from: u16, to: u16) -> Option<GlobalLink> {
        let topology = self.topology;
        let place = (self.group, from);
        if topology.is_plane(self.group) {
            return None;
        }
        if from < topology.slots {
            return Some(*topology.shortest_link(place, (to, 0), self.random.next_u64()));
        }
        let count = topology.count_links_at(place, to);
        let number = below(self.random.next_u64(), count.max(1));
        topology.link_at(place, to, number).copied()
    }
}
