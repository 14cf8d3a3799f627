//! The part of a system of flows that a change affects.
//!
//! A change of a flow reaches others over the links that are full, before it or after it. A link with capacity
//! left limits nobody: a change does not spread over it, unless the new rates turn out to fill it. On a full link it
//! reaches the flows that the link limits. All others on it have smaller rates, which other links or their caps limit,
//! and keep them, unless the link turns out to leave them less. So a change spreads from small rates to large ones.

use crate::solver::{Flow, FlowId, Link};

/// A flow whose level is at most this part below that of a link counts as limited by it: where levels are equal, small
/// changes of one link make another one the limit.
const NEARLY_LIMITED: f64 = 1.0 - 1e-9;

/// Links and flows that are to be solved again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Affected {
    /// Links and flows that were changed since the last solution.
    touched_links: Vec<u32>,
    touched_flows: Vec<u32>,
    /// Affected flows, in the order of their numbers.
    flows: Vec<FlowId>,
    /// Affected links that are full, in the order of their numbers.
    links: Vec<u32>,
    is_touched: Vec<bool>,
    has_flow: Vec<bool>,
    has_link: Vec<bool>,
    /// Whether all flows of affected links are affected, also those that others limit.
    whole: bool,
}

impl Affected {
    pub fn add_link(&mut self) {
        self.is_touched.push(false);
        self.has_link.push(false);
    }

    pub fn add_flow(&mut self) {
        self.has_flow.push(false);
    }

    pub fn touch_link(&mut self, link: u32) {
        if !std::mem::replace(&mut self.is_touched[link as usize], true) {
            self.touched_links.push(link);
        }
    }

    pub fn touch_flow(&mut self, flow: u32) {
        self.touched_flows.push(flow);
    }

    pub fn flows(&self) -> &[FlowId] {
        &self.flows
    }

    pub fn links(&self) -> &[u32] {
        &self.links
    }

    pub fn has_link(&self, link: u32) -> bool {
        self.has_link[link as usize]
    }

    /// Numbers of affected flows and links.
    pub fn len(&self) -> (usize, usize) {
        (self.flows.len(), self.links.len())
    }

    /// Finds all that the touched links and flows affect; `levels` has the rate of each flow for a weight of 1.
    pub fn spread(&mut self, links: &mut [Link], (flows, levels): (&[Flow], &[f64])) {
        for flow in self.flows.drain(..) {
            self.has_flow[flow.index()] = false;
        }
        for link in self.links.drain(..) {
            self.has_link[link as usize] = false;
        }
        self.whole = false;
        for flow in std::mem::take(&mut self.touched_flows) {
            if flows[flow as usize].exists {
                self.reach_flow(flow);
            }
        }
        for touched in std::mem::take(&mut self.touched_links) {
            self.is_touched[touched as usize] = false;
            // Those that the link limited before are affected, too.
            let link = &mut links[touched as usize];
            let was_full = link.was_full;
            link.was_full = link.is_full();
            if was_full || link.was_full {
                self.reach_link(touched);
            }
        }
        self.complete((0, 0), links, (flows, levels));
    }

    /// Adds what the flows and links that were reached since there were `known` of them affect; with `whole` all flows
    /// of affected links.
    pub fn spread_from(
        &mut self,
        known: (usize, usize),
        whole: bool,
        links: &[Link],
        of_flows: (&[Flow], &[f64]),
    ) {
        let from = if whole && !self.whole { (0, 0) } else { known };
        self.whole |= whole;
        self.complete(from, links, of_flows);
    }

    /// Adds what the flows and links from these positions on affect, and sorts all.
    fn complete(
        &mut self,
        (mut next_flow, mut next_link): (usize, usize),
        links: &[Link],
        (flows, levels): (&[Flow], &[f64]),
    ) {
        while next_flow < self.flows.len() || next_link < self.links.len() {
            if let Some(&flow) = self.flows.get(next_flow) {
                next_flow += 1;
                for used in &flows[flow.index()].uses {
                    if links[used.link as usize].is_full() {
                        self.reach_link(used.link);
                    }
                }
            } else if let Some(&link) = self.links.get(next_link) {
                next_link += 1;
                let link = &links[link as usize];
                let least = if self.whole { 0.0 } else { link.level * NEARLY_LIMITED };
                let limited = |flow: &&u32| levels[**flow as usize] >= least;
                link.flows.iter().filter(limited).for_each(|&flow| self.reach_flow(flow));
            }
        }
        self.flows.sort_unstable();
        self.links.sort_unstable();
    }

    /// Adds a flow, which exists.
    pub fn reach_flow(&mut self, flow: u32) {
        if !std::mem::replace(&mut self.has_flow[flow as usize], true) {
            self.flows.push(FlowId(flow));
        }
    }

    /// Adds a link.
    pub fn reach_link(&mut self, link: u32) {
        if !std::mem::replace(&mut self.has_link[link as usize], true) {
            self.links.push(link);
        }
    }
}
