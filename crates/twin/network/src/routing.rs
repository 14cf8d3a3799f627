//! Routing of packets: minimal, Valiant, UGAL-L, progressive adaptive.
//!
//! This describes dragonflies; [`spines`] has groups of leaf and spine routers.
//!
//! A path consists of *legs*. In each leg a packet crosses at most one rank-1 and one rank-2 link, in
//! either order, then at most one rank-3 link; the leg ends behind the rank-3 link, at an
//! intermediate router, or at the destination's router. The longest paths have four legs: source
//! group, intermediate group up to a random router, rest of the intermediate group, destination
//! group; or, with a late detour, source group up to the detour, rest of the source group,
//! intermediate group, destination group. A detour over any node may lead over one of the destination's
//! group: source group, destination group up to that node's router, rest of it.
//!
//! # Deadlock freedom
//!
//! Requests and responses have channels of their own, so neither waits for the other's buffers, and
//! each class can be looked at alone. A leg of a response crosses rank-1 before rank-2 and has one
//! channel. A leg of a request has two: the packet travels on the first one, except on a rank-1 link
//! behind a rank-2 link of the same leg, where it travels on the second.
//!
//! Order the buffers of a class by leg, and those of a leg like this: rank-1 first channel, rank-2, rank-1
//! second channel, rank-3. A packet holds a buffer and waits for one that is later in this order:
//! within a leg by the rules above, and the next leg comes later. Nodes accept every packet
//! immediately, so nothing waits for a node link. Hence no cycle of waiting packets can form, and
//! the packet that holds the last buffer in the order always moves on. In first-in first-out buffers a
//! packet also waits for those before it in its own buffer, of which the first waits for a later one.
//!
//! # Adaptive decisions
//!
//! The queue of a link is the time until the packets that wait for it have been transmitted. Packets on
//! the link or in the buffer behind it do not count, so an uncongested link has no queue however long
//! it is. The queue of a path is the sum of the queues of its links in the group, up to and
//! including the rank-3 link by which it leaves: Aries routers distribute their loads to each
//! other and add those of the near and the far end (white paper WP-Aries01-1112). That the loads
//! of the whole group are known, and without delay, is an assumption; it is the state that
//! piggyback routing distributes (Jiang, Kim, Dally, ISCA 2009).
//!
//! With the queue of the first link alone, a source router does not see a congested gateway, and a
//! gateway compares its rank-3 link with local links that are free: adversarial traffic detours too
//! late, and uniform traffic too often.
//!
//! A detour over another group crosses a second rank-3 link, whose queue is not known. It counts as
//! long as that of the first.
//!
//! The rules of peer simulators, [`AdaptiveBias::Codes`] and [`AdaptiveBias::Ugal`], compare the queues of
//! the first links alone, with the bytes on the link and in the buffer behind it.

mod detours;
mod spines;

use crate::nic::MessageClass;
use crate::packet::{INTERMEDIATE, Packet, Route};
use crate::port::LinkCost;
use crate::port_table::PortTable;
use crate::topology::{GlobalLink, Topology};
use forebay_machine_file::machine::{
    AdaptiveBias, LateDetour, LinkClass, Routing, RoutingSpec, Structure,
};
use forebay_random::RandomSequence;

/// Chooses paths from the queues of one group's ports.
pub(crate) struct RoutePlanner<'a> {
    pub topology: &'a Topology,
    pub ports: &'a PortTable,
    pub costs: &'a [LinkCost; 4],
    pub spec: &'a RoutingSpec,
    pub group: u16,
    /// Time at which the packet could leave its router, ps.
    pub ready: u64,
    pub random: &'a mut RandomSequence,
}

/// A path that a packet could take from its router.
#[derive(Clone, Copy)]
struct Candidate {
    target: u16,
    exit: u8,
    /// Time to transmit the queues of its links in this group, ps.
    queue: u64,
    /// Class of the first link.
    class: LinkClass,
}

impl RoutePlanner<'_> {
    /// Begins a leg at `packet.router`: sets its target router and exit port.
    pub fn plan_leg(&mut self, packet: &mut Packet) {
        let destination = self.topology.interface(packet.dst);
        let fresh = packet.route() == Route::Unrouted;
        if fresh {
            packet.set_route(Route::Minimal);
        } else if packet.leg == 1
            && packet.route() == Route::Detour
            && let Some(via) = self.intermediate_router(destination.group)
            && via != packet.router
        {
            (packet.target, packet.exit) = (via, INTERMEDIATE);
            return;
        }
        if destination.group == self.group {
            (packet.target, packet.exit) = (destination.router, destination.port);
            if fresh && destination.router != packet.router {
                self.consider_local_detour(packet);
            }
            return;
        }
        let to = (destination.group, destination.router);
        if fresh {
            self.leave_source(packet, to);
            return;
        }
        // In the intermediate group, or at a core router.
        let best = self.best_link(packet.router, to);
        (packet.target, packet.exit) = (best.target, best.exit);
    }

    /// Whether a packet within a leg is one for [`Self::reconsider_route`].
    #[inline]
    pub fn may_reconsider(&self, packet: &Packet) -> bool {
        self.spec.algorithm == Routing::ProgressiveAdaptive
            && packet.leg == 0
            && packet.route() == Route::Minimal
            && packet.exit >= self.topology.first_global
            && packet.exit < self.topology.first_node
    }

    /// Lets a packet on the minimal path, at a later router of its source group, switch to a
    /// detour.
    pub fn reconsider_route(&mut self, packet: &mut Packet) {
        let minimal = self.candidate(packet.router, packet.target, packet.exit);
        if self.is_short(&minimal) {
            return;
        }
        if self.topology.structure == Structure::FatTree {
            self.reconsider_core(packet, minimal.queue);
            return;
        }
        let destination = self.topology.interface(packet.dst);
        let (spec, hops) = (self.spec, packet.hops);
        let preferred = |queue| prefers_detour(spec, queue, minimal.queue, hops);
        let detour = match spec.late_detour {
            LateDetour::AnyLink => self.best_detour(packet.router, destination.group, preferred),
            LateDetour::OwnLink => {
                self.best_own_detour(packet.router, destination.group, preferred)
            }
        };
        if let Some(detour) = detour {
            (packet.target, packet.exit) = (detour.target, detour.exit);
            packet.leg += 1;
            packet.set_route(Route::Detour);
        }
    }

    /// The port by which a packet leaves `from` for `to`, another router of the group. Where both
    /// dimensions are left to cross, responses take rank-1; for requests adaptive routing takes the
    /// one with the shorter queue, and other routing either at random.
    #[inline(always)]
    pub fn local_port(&mut self, from: u16, to: u16, class: MessageClass) -> u8 {
        if self.topology.has_spines() {
            return self.spine_port(from, to);
        }
        let (rank1, rank2) = self.topology.mesh_ports_toward(from, to);
        if rank1 == rank2 || class == MessageClass::Response {
            return rank1;
        }
        let (queue1, queue2) = match self.is_adaptive() {
            true => (self.queue(from, rank1), self.queue(from, rank2)),
            false => (0, 0),
        };
        let first = queue1 < queue2 || (queue1 == queue2 && self.random.next_u64() >> 63 == 0);
        if first { rank1 } else { rank2 }
    }

    fn leave_source(&mut self, packet: &mut Packet, to: (u16, u16)) {
        let choice = match self.spec.algorithm {
            Routing::Minimal => self.best_link(packet.router, to),
            Routing::Valiant => match self.best_detour(packet.router, to.0, |_| true) {
                Some(detour) => {
                    packet.set_route(Route::Detour);
                    detour
                }
                None => self.best_link(packet.router, to),
            },
            Routing::UgalL | Routing::ProgressiveAdaptive => {
                let minimal = self.best_link(packet.router, to);
                if self.is_short(&minimal) {
                    minimal
                } else {
                    let spec = self.spec;
                    let preferred = |queue| prefers_detour(spec, queue, minimal.queue, 0);
                    match self.best_detour(packet.router, to.0, preferred) {
                        Some(detour) => {
                            packet.set_route(Route::Detour);
                            detour
                        }
                        None => minimal,
                    }
                }
            }
        };
        (packet.target, packet.exit) = (choice.target, choice.exit);
    }

    /// Whether a minimal path's queue is too short for a detour to be considered.
    fn is_short(&self, minimal: &Candidate) -> bool {
        let threshold = match minimal.class {
            LinkClass::Global => self.spec.global_threshold,
            LinkClass::Rank2 => self.spec.rank2_threshold,
            LinkClass::Node | LinkClass::Rank1 => self.spec.rank1_threshold,
        };
        minimal.queue <= threshold.0
    }

    fn is_adaptive(&self) -> bool {
        match self.spec.algorithm {
            Routing::Minimal | Routing::Valiant => false,
            Routing::UgalL | Routing::ProgressiveAdaptive => true,
        }
    }

    /// A minimal path to router `to.1` of group `to.0`: one of the shortest. If its queue exceeds the
    /// threshold, adaptive routing compares it with those over random other links to the group, and
    /// takes one with a shorter queue.
    fn best_link(&mut self, from: u16, to: (u16, u16)) -> Candidate {
        let random = self.random.next_u64();
        let link = self.topology.shortest_link((self.group, from), to, random);
        let mut best = self.candidate(from, link.router, link.port);
        if self.is_adaptive() {
            for _ in 1..self.spec.candidates {
                if self.is_short(&best) {
                    break;
                }
                let Some(link) = self.random_link(from, to.0) else { break };
                let shorter = self.over(from, &link, false, |queue| queue < best.queue);
                best = shorter.unwrap_or(best);
            }
        }
        best
    }

    /// A random one of the links to a group that packets at a router may take.
    #[inline]
    fn random_link(&mut self, from: u16, to: u16) -> Option<GlobalLink> {
        if self.topology.has_spines() {
            return self.random_spine_link(from, to);
        }
        let links = self.topology.links(self.group, to);
        Some(links[self.random.below(links.len() as u32) as usize])
    }

    /// The path from a router over a link, as a detour if it `is_detour`, if its queue is `acceptable`.
    /// The link's own queue is asked for first: where it is too long, the others need not be read.
    #[inline]
    fn over(
        &self,
        from: u16,
        link: &GlobalLink,
        is_detour: bool,
        acceptable: impl Fn(u64) -> bool,
    ) -> Option<Candidate> {
        let (target, exit) = (link.router, link.port);
        if !self.sees_group() {
            return Some(self.candidate(from, target, exit)).filter(|path| acceptable(path.queue));
        }
        let mut queue = self.queue(target, exit) << u32::from(is_detour);
        let mut class = LinkClass::Global;
        if from != target && acceptable(queue) {
            let (local, first) = self.local_queue(from, target);
            (queue, class) = (queue + local, first);
        }
        acceptable(queue).then_some(Candidate { target, exit, queue, class })
    }

    /// The path from a router over `target` and its port `exit`.
    fn candidate(&self, from: u16, target: u16, exit: u8) -> Candidate {
        if from == target {
            let class = self.ports[self.ports.router_port(from, exit)].class;
            return Candidate { target, exit, queue: self.queue(from, exit), class };
        }
        let (mut queue, class) = self.local_queue(from, target);
        if exit != INTERMEDIATE && self.sees_group() {
            queue += self.queue(target, exit);
        }
        Candidate { target, exit, queue, class }
    }

    /// Time to transmit the queues on the way to another router of the group, ps, and the class of
    /// the first link. Where there are two ways, that with the shorter first queue.
    #[inline(always)]
    fn local_queue(&self, from: u16, to: u16) -> (u64, LinkClass) {
        if self.topology.has_spines() {
            return self.spine_queue(from, to);
        }
        let (rank1, rank2) = self.topology.mesh_ports_toward(from, to);
        let (mut queue, mut port, mut next) = (self.queue(from, rank1), rank1, rank2);
        if rank1 != rank2 {
            let other = self.queue(from, rank2);
            if other < queue {
                (queue, port, next) = (other, rank2, rank1);
            }
            if self.sees_group() {
                queue += self.queue(self.topology.neighbour(from, port), next);
            }
        }
        (queue, self.ports[self.ports.router_port(from, port)].class)
    }

    /// Whether queues further on than the first link count.
    fn sees_group(&self) -> bool {
        match self.spec.bias {
            AdaptiveBias::Codes | AdaptiveBias::Ugal => false,
            AdaptiveBias::Adaptive0
            | AdaptiveBias::Adaptive1
            | AdaptiveBias::Adaptive2
            | AdaptiveBias::Adaptive3 => true,
        }
    }

    /// Time to transmit the queue of a port, ps.
    #[inline]
    fn queue(&self, router: u16, port: u8) -> u64 {
        let port = &self.ports[self.ports.router_port(router, port)];
        let cost = &self.costs[port.class as usize];
        match self.spec.bias {
            AdaptiveBias::Codes | AdaptiveBias::Ugal => cost.serialization(port.occupied),
            AdaptiveBias::Adaptive0
            | AdaptiveBias::Adaptive1
            | AdaptiveBias::Adaptive2
            | AdaptiveBias::Adaptive3 => port.queue(self.ready, cost),
        }
    }
}

/// Whether a packet that has crossed `hops` links takes a detour with a queue of `detour` ps instead
/// of the minimal path with one of `minimal` ps.
fn prefers_detour(spec: &RoutingSpec, detour: u64, minimal: u64, hops: u8) -> bool {
    let biased = match spec.bias {
        AdaptiveBias::Adaptive0 | AdaptiveBias::Codes => detour,
        AdaptiveBias::Adaptive1 => detour << hops.min(16),
        AdaptiveBias::Adaptive2 => detour + spec.small_bias.0,
        AdaptiveBias::Adaptive3 => detour * u64::from(spec.large_bias),
        AdaptiveBias::Ugal => detour * u64::from(spec.large_bias) + spec.small_bias.0,
    };
    biased < minimal
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_machine_file::machine::Detour;
    use forebay_units::Time;

    /// Queues of the minimal path above which a detour with a queue of 3 us is taken.
    #[test]
    fn modes_weigh_a_detour_as_documented() {
        let us = 1_000_000;
        let limit = |bias, hops| {
            let spec = RoutingSpec {
                algorithm: Routing::ProgressiveAdaptive,
                detour: Detour::Router,
                late_detour: LateDetour::AnyLink,
                candidates: 2,
                bias,
                rank1_threshold: Time(0),
                rank2_threshold: Time(0),
                global_threshold: Time(0),
                small_bias: Time(2 * us),
                large_bias: 4,
            };
            (0..100).find(|m| prefers_detour(&spec, 3 * us, m * us + 1, hops))
        };
        assert_eq!(limit(AdaptiveBias::Adaptive0, 0), Some(3));
        assert_eq!(limit(AdaptiveBias::Adaptive0, 2), Some(3));
        assert_eq!(limit(AdaptiveBias::Adaptive1, 0), Some(3));
        assert_eq!(limit(AdaptiveBias::Adaptive1, 2), Some(12));
        assert_eq!(limit(AdaptiveBias::Adaptive2, 2), Some(5));
        assert_eq!(limit(AdaptiveBias::Adaptive3, 2), Some(12));
        assert_eq!(limit(AdaptiveBias::Codes, 2), Some(3));
        assert_eq!(limit(AdaptiveBias::Ugal, 2), Some(14));
    }
}
