//! The part of a system of flows that a change affects.
//!
//! A change of a flow reaches others over the links that are full, before it or after it. A link with capacity
//! left limits nobody: a change does not spread over it, unless the new rates turn out to fill it.

use crate::solver::{Flow, FlowId, Link};

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

    /// Finds all that the touched links and flows affect.
    pub fn spread(&mut self, links: &mut [Link], flows: &[Flow]) {
        for flow in self.flows.drain(..) {
            self.has_flow[flow.index()] = false;
        }
        for link in self.links.drain(..) {
            self.has_link[link as usize] = false;
        }
        for flow in std::mem::take(&mut self.touched_flows) {
            self.reach_flow(flow, flows);
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
        self.complete((0, 0), links, flows);
    }

    /// Adds links that have become full, and all that they affect.
    pub fn spread_from(&mut self, full: &[u32], links: &[Link], flows: &[Flow]) {
        let known = (self.flows.len(), self.links.len());
        full.iter().for_each(|&link| self.reach_link(link));
        self.complete(known, links, flows);
    }

    /// Adds what the flows and links from these positions on affect, and sorts all.
    fn complete(
        &mut self,
        (mut next_flow, mut next_link): (usize, usize),
        links: &[Link],
        flows: &[Flow],
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
                links[link as usize].flows.iter().for_each(|&flow| self.reach_flow(flow, flows));
            }
        }
        self.flows.sort_unstable();
        self.links.sort_unstable();
    }

    fn reach_flow(&mut self, flow: u32, flows: &[Flow]) {
        let exists = flows[flow as usize].exists;
        if exists && !std::mem::replace(&mut self.has_flow[flow as usize], true) {
            self.flows.push(FlowId(flow));
        }
    }

    fn reach_link(&mut self, link: u32) {
        if !std::mem::replace(&mut self.has_link[link as usize], true) {
            self.links.push(link);
        }
    }
}
