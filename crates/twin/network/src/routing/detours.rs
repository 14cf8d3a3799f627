//! Detours: the groups and routers over which they lead.

use super::{Candidate, RoutePlanner, prefers_detour};
use crate::packet::{INTERMEDIATE, Packet, Route};
use forebay_machine_file::machine::{Detour, Routing, Structure};

impl RoutePlanner<'_> {
    /// Lets a packet to the same group take a detour over an intermediate router.
    pub(super) fn consider_local_detour(&mut self, packet: &mut Packet) {
        if self.topology.has_spines() || self.spec.detour != Detour::Router {
            // All paths over spines are minimal; other detours lead over groups.
            return;
        }
        let adaptive = match self.spec.algorithm {
            Routing::Minimal => return,
            Routing::Valiant => false,
            Routing::UgalL | Routing::ProgressiveAdaptive => true,
        };
        let (from, to) = (packet.router, packet.target);
        // Without the queue of the destination's node link, which detours have before them as well.
        let minimal = self.candidate(from, to, INTERMEDIATE);
        if adaptive && self.is_short(&minimal) {
            return;
        }
        let tries = if adaptive { self.spec.candidates } else { 1 };
        let mut best: Option<Candidate> = None;
        for _ in 0..tries {
            let via = self.random.below(self.topology.routers().into()) as u16;
            if via == from || via == to {
                continue;
            }
            let mut candidate = self.candidate(from, via, INTERMEDIATE);
            if self.sees_group() {
                candidate.queue += self.local_queue(via, to).0;
            }
            if best.is_none_or(|b| candidate.queue < b.queue) {
                best = Some(candidate);
            }
        }
        if let Some(detour) = best
            && (!adaptive || prefers_detour(self.spec, detour.queue, minimal.queue, 0))
        {
            (packet.target, packet.exit) = (detour.target, INTERMEDIATE);
            packet.set_route(Route::Detour);
        }
    }

    /// The router of this group over which a packet leads that has entered it on a detour, by the first
    /// link to another group that it has crossed. Over a random one packets that enter by one link and
    /// leave by another do not all take the same local links. A late detour leaves no leg for it.
    pub(super) fn intermediate_router(&mut self, destination: u16) -> Option<u16> {
        if self.topology.structure != Structure::Dragonfly {
            return None;
        }
        match self.spec.detour {
            // A detour within the source's group has no second router.
            Detour::Router if destination == self.group => None,
            Detour::Router => Some(self.random.below(self.topology.routers().into()) as u16),
            Detour::Group => None,
            Detour::AnyNode => {
                let nodes = self.topology.nodes_of_group(self.group);
                let node = nodes.get(self.random.below(nodes.len() as u32) as usize)?;
                Some(self.topology.location(*node).router)
            }
        }
    }

    /// The best of a few links to random intermediate groups, if its queue is `acceptable`; `None` if there
    /// is no such group, or in a fat tree, all whose paths are minimal. What is not acceptable must not become so with a longer queue.
    pub(super) fn best_detour(
        &mut self,
        from: u16,
        to: u16,
        acceptable: impl Fn(u64) -> bool,
    ) -> Option<Candidate> {
        if self.topology.groups < 3 || self.topology.structure == Structure::FatTree {
            return None;
        }
        let tries = if self.is_adaptive() { self.spec.candidates } else { 1 };
        let mut best: Option<Candidate> = None;
        for _ in 0..tries {
            let Some(via) = self.intermediate_group(to) else { continue };
            let Some(link) = self.random_link(from, via) else { continue };
            let limit = best.map_or(u64::MAX, |b| b.queue);
            let shorter = self.over(from, &link, true, |queue| queue < limit && acceptable(queue));
            best = shorter.or(best);
        }
        best
    }

    /// The best of a few links of a router itself to groups other than `to`, if its queue is `acceptable`.
    pub(super) fn best_own_detour(
        &mut self,
        from: u16,
        to: u16,
        acceptable: impl Fn(u64) -> bool,
    ) -> Option<Candidate> {
        let topology = self.topology;
        let ports = topology.first_global..topology.first_node;
        let is_other = |port: &u8| {
            topology.far_end(self.group, from, *port).is_some_and(|(group, ..)| group != to)
        };
        let count = ports.clone().filter(is_other).count() as u32;
        let mut best: Option<Candidate> = None;
        for _ in 0..self.spec.candidates.min(count) {
            let number = self.random.below(count) as usize;
            let Some(port) = ports.clone().filter(is_other).nth(number) else { continue };
            let mut candidate = self.candidate(from, from, port);
            candidate.queue <<= u32::from(self.sees_group());
            if acceptable(candidate.queue) && best.is_none_or(|b| candidate.queue < b.queue) {
                best = Some(candidate);
            }
        }
        best
    }

    /// A random group for a detour to group `to`: one of the G − 2 that are neither this one nor `to`, or
    /// that of a random node, unless it is this one.
    fn intermediate_group(&mut self, to: u16) -> Option<u16> {
        if self.spec.detour == Detour::AnyNode {
            let node = self.random.below(self.topology.nodes() as u32);
            let via = self.topology.location(node).group;
            return (via != self.group).then_some(via);
        }
        let (low, high) = (self.group.min(to), self.group.max(to));
        let mut via = self.random.below(u32::from(self.topology.groups) - 2) as u16;
        via += u16::from(via >= low);
        via += u16::from(via >= high);
        Some(via)
    }
}
