//! Routing of packets: minimal, Valiant, UGAL-L, progressive adaptive.
//!
//! A path consists of *legs*. In each leg a packet crosses at most one rank-1 link, then at most
//! one rank-2 link, then at most one rank-3 link; the leg ends behind the rank-3 link, at an
//! intermediate router, or at the destination's router. A packet travels on the virtual channel
//! numbered by the legs it has completed. The longest paths have four legs: source group,
//! intermediate group up to a random router, rest of the intermediate group, destination group;
//! or, with a late detour, source group up to the detour, rest of the source group, intermediate
//! group, destination group.
//!
//! # Deadlock freedom
//!
//! Order the buffers by (virtual channel, class of the link in front of them). A packet holds a
//! buffer and waits for one that is later in this order: within a leg the classes ascend
//! (rank-1 < rank-2 < rank-3), and the next leg has the next channel. Nodes accept every packet
//! immediately, so nothing waits for a node link. Hence no cycle of waiting packets can form, and
//! the packet that holds the last buffer in the order always moves on.

use crate::packet::{INTERMEDIATE, Packet, Route};
use crate::port::LinkCost;
use crate::port_table::PortTable;
use crate::topology::{GlobalLink, Topology};
use forebay_machine_file::machine::{Routing, RoutingSpec};
use forebay_random::RandomSequence;

/// Chooses paths from the occupancy of one group's ports.
pub(crate) struct RoutePlanner<'a> {
    pub topology: &'a Topology,
    pub ports: &'a PortTable,
    pub costs: &'a [LinkCost; 4],
    pub spec: &'a RoutingSpec,
    pub group: u16,
    pub random: &'a mut RandomSequence,
}

/// A path that a packet could take from its router.
#[derive(Clone, Copy)]
struct Candidate {
    target: u16,
    exit: u8,
    /// Time to transmit the queue at the first hop, ps.
    queue: u64,
    /// Bytes of that queue.
    bytes: u32,
    hops: u32,
}

impl Candidate {
    fn cost(&self) -> u64 {
        self.queue * u64::from(self.hops)
    }
}

impl RoutePlanner<'_> {
    /// Begins a leg at `packet.router`: sets its target router and exit port.
    pub fn plan_leg(&mut self, packet: &mut Packet) {
        let destination = self.topology.location(packet.dst);
        let fresh = packet.route() == Route::Unrouted;
        if fresh {
            packet.set_route(Route::Minimal);
        }
        if destination.group == self.group {
            (packet.target, packet.exit) = (destination.router, destination.port);
            if fresh && destination.router != packet.router {
                self.consider_local_detour(packet);
            }
        } else if fresh {
            self.leave_source(packet, destination.group, destination.router);
        } else {
            // In the intermediate group. Over a random router of it, so that packets that enter
            // by one link and leave by another do not all take the same local links; not after a
            // late detour, which leaves no leg for it.
            let via = self.random.below(self.topology.routers().into()) as u16;
            if packet.leg == 1 && via != packet.router {
                (packet.target, packet.exit) = (via, INTERMEDIATE);
                return;
            }
            let best = self.best_link(packet.router, destination.group, destination.router);
            (packet.target, packet.exit) = (best.target, best.exit);
        }
    }

    /// Lets a packet on the minimal path, at a later router of its source group, switch to a
    /// detour.
    pub fn reconsider_route(&mut self, packet: &mut Packet) {
        let destination = self.topology.location(packet.dst);
        // To the gateway, across, and up to two links beyond.
        let hops = self.topology.distance(packet.router, packet.target) + 1 + 2;
        let minimal = self.candidate(packet.router, packet.target, packet.exit, hops);
        if u64::from(minimal.bytes) <= self.spec.threshold.0 {
            return;
        }
        let Some(detour) = self.best_detour(packet.router, destination.group) else {
            return;
        };
        if self.prefers(&detour, &minimal) {
            (packet.target, packet.exit) = (detour.target, detour.exit);
            packet.leg += 1;
            packet.set_route(Route::Detour);
        }
    }

    fn leave_source(&mut self, packet: &mut Packet, to: u16, to_router: u16) {
        let minimal = |this: &mut Self| this.best_link(packet.router, to, to_router);
        let choice = match self.spec.algorithm {
            Routing::Minimal => minimal(self),
            Routing::Valiant => match self.best_detour(packet.router, to) {
                Some(detour) => {
                    packet.set_route(Route::Detour);
                    detour
                }
                None => minimal(self),
            },
            Routing::UgalL | Routing::ProgressiveAdaptive => {
                let minimal = minimal(self);
                if u64::from(minimal.bytes) <= self.spec.threshold.0 {
                    minimal
                } else {
                    match self.best_detour(packet.router, to) {
                        Some(detour) if self.prefers(&detour, &minimal) => {
                            packet.set_route(Route::Detour);
                            detour
                        }
                        _ => minimal,
                    }
                }
            }
        };
        (packet.target, packet.exit) = (choice.target, choice.exit);
    }

    /// Lets a packet to the same group take a detour over an intermediate router.
    fn consider_local_detour(&mut self, packet: &mut Packet) {
        let adaptive = match self.spec.algorithm {
            Routing::Minimal => return,
            Routing::Valiant => false,
            Routing::UgalL | Routing::ProgressiveAdaptive => true,
        };
        let (from, to) = (packet.router, packet.target);
        let minimal = self.candidate(from, to, packet.exit, self.topology.distance(from, to));
        if adaptive && u64::from(minimal.bytes) <= self.spec.threshold.0 {
            return;
        }
        let mut best: Option<Candidate> = None;
        for _ in 0..self.spec.candidates {
            let via = self.random.below(self.topology.routers().into()) as u16;
            if via == from || via == to {
                continue;
            }
            let hops = self.topology.distance(from, via) + self.topology.distance(via, to);
            let candidate = self.candidate(from, via, INTERMEDIATE, hops);
            if best.is_none_or(|b| candidate.cost() < b.cost()) {
                best = Some(candidate);
            }
        }
        if let Some(detour) = best
            && (!adaptive || self.prefers(&detour, &minimal))
        {
            (packet.target, packet.exit) = (detour.target, INTERMEDIATE);
            packet.set_route(Route::Detour);
        }
    }

    /// Whether the detour's weighted cost (queue × hops) is less than the minimal path's.
    fn prefers(&self, detour: &Candidate, minimal: &Candidate) -> bool {
        detour.cost() * u64::from(self.spec.nonminimal_weight_percent) < minimal.cost() * 100
    }

    /// The best of a few links to a random third group; `None` if there is no third group.
    fn best_detour(&mut self, from: u16, to: u16) -> Option<Candidate> {
        let groups = u32::from(self.topology.groups);
        if groups < 3 {
            return None;
        }
        let tries = if self.spec.algorithm == Routing::Valiant { 1 } else { self.spec.candidates };
        let mut best: Option<Candidate> = None;
        for _ in 0..tries {
            // One of the G − 2 groups that are neither this one nor the destination's.
            let (low, high) = (self.group.min(to), self.group.max(to));
            let mut via = self.random.below(groups - 2) as u16;
            via += u16::from(via >= low);
            via += u16::from(via >= high);
            let links = self.topology.links(self.group, via);
            let link = links[self.random.below(links.len() as u32) as usize];
            // Beyond the link: to a router, on to another gateway, across, and to the
            // destination's router, at two local links each if all coordinates differ.
            let candidate = self.over(from, &link, 2 + 2 + 1 + 2);
            if best.is_none_or(|b| candidate.cost() < b.cost()) {
                best = Some(candidate);
            }
        }
        best
    }

    /// One of the parallel links to group `to`: a random one, or with adaptive routing the best
    /// of `candidates` links.
    fn best_link(&mut self, from: u16, to: u16, to_router: u16) -> Candidate {
        let links = self.topology.links(self.group, to);
        let first = self.random.below(links.len() as u32) as usize;
        let beyond = |link: &GlobalLink| self.topology.distance(link.far_router, to_router);
        let mut best = self.over(from, &links[first], beyond(&links[first]));
        if matches!(self.spec.algorithm, Routing::UgalL | Routing::ProgressiveAdaptive) {
            let tries = (self.spec.candidates as usize).min(links.len());
            for i in 1..tries {
                let link = &links[(first + i) % links.len()];
                let candidate = self.over(from, link, beyond(link));
                if (candidate.cost(), candidate.hops) < (best.cost(), best.hops) {
                    best = candidate;
                }
            }
        }
        best
    }

    /// The path over a rank-3 link and `beyond` more links.
    fn over(&self, from: u16, link: &GlobalLink, beyond: u32) -> Candidate {
        let hops = self.topology.distance(from, link.router) + 1 + beyond;
        self.candidate(from, link.router, link.port, hops)
    }

    fn candidate(&self, from: u16, target: u16, exit: u8, hops: u32) -> Candidate {
        let port =
            if from == target { exit } else { self.topology.local_port_toward(from, target) };
        let port = &self.ports[self.ports.router_port(from, port)];
        let queue = self.costs[port.class as usize].serialization(port.occupied);
        Candidate { target, exit, queue, bytes: port.occupied, hops: hops.max(1) }
    }
}
