//! Max-min fair rates by progressive filling: all rates grow together until a link is full or a
//! flow has reached its cap; what that fixes is taken out, and the rest goes on growing.

use crate::affected::Affected;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A link of a [`Solver`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

/// A flow of a [`Solver`], or a class of identical ones. Numbers of removed flows are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub(crate) u32);

impl LinkId {
    /// Its number, from 0, in the order of the calls of [`Solver::add_link`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl FlowId {
    /// Its number: less than the largest number of flows that existed at a time.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A flow, or a class of identical flows.
#[derive(Clone, Copy, Debug)]
pub struct FlowSpec<'a> {
    /// Flows of the class. Each has the rate of the class; a link carries them all.
    pub count: u32,
    /// Weight: rates grow in proportion to it.
    pub weight: f64,
    /// Most rate of each flow, bytes per second; infinite without a cap.
    pub cap: f64,
    /// Links, each with the share of the flow's bytes that cross it: 1 for a single path, less for a
    /// flow that is split over several, and more where a byte costs more than one. A link occurs once.
    pub path: &'a [(LinkId, f64)],
}

/// The reason why a flow is not faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Its cap.
    Cap,
    /// A full link, on which no flow has a larger rate for its weight.
    Link(LinkId),
}

/// The use of a link by a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub link: u32,
    pub share: f64,
    /// Position of the flow among those of the link.
    position: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub capacity: f64,
    /// Flows, in no order.
    pub flows: Vec<u32>,
    /// Sum of the rates on it, as of the last solution and without the flows removed since then.
    pub load: f64,
    /// Whether it was full in the last solution.
    pub was_full: bool,
    /// The rate for a weight of 1 of the flows that it limited in the last solution; infinite if it limited none.
    pub level: f64,
    /// Solutions since the load was summed up.
    solutions: u32,
}

impl Link {
    /// Whether the link can limit a flow: it has no capacity left.
    pub fn is_full(&self) -> bool {
        // The load is kept up to date by additions and subtractions, whose errors are far smaller.
        const MARGIN: f64 = 1.0 - 1e-7;
        self.load >= self.capacity * MARGIN
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub count: f64,
    pub weight: f64,
    pub cap: f64,
    /// The cap; without one, more than any link of the flow could give it alone, so that the link turns out to be
    /// full.
    most_rate: f64,
    pub uses: Vec<Use>,
    pub rate: f64,
    /// The rate that is in the loads of its links.
    pub in_loads: f64,
    pub bottleneck: Bottleneck,
    pub exists: bool,
}

impl Flow {
    /// Brings the most rate up to date with the cap and the capacities of the links.
    fn update_most_rate(&mut self, links: &[Link]) {
        let alone = |used: &Use| links[used.link as usize].capacity / (used.share * self.count);
        self.most_rate = match self.cap.is_finite() {
            true => self.cap,
            false => 1.0 + 2.0 * self.uses.iter().map(alone).fold(f64::INFINITY, f64::min),
        };
    }
}

/// A rate that is less than another one by this factor is so without the rounding errors of sums, too.
const ABOVE_ROUNDING: f64 = 1.0 + 1e-6;
/// A level that is above another one by this factor is above it without rounding errors, too.
const ABOVE_LEVEL: f64 = 1.0 + 1e-10;
/// Solutions after which the load of a link is summed up again, so that rounding errors do not grow.
const SOLUTIONS_OF_A_LOAD: u32 = 64;
/// Solutions of a growing part of the system after which all flows on its links belong to it.
const MOST_PARTS: u32 = 6;

/// Links, flows, and their max-min fair rates.
#[derive(Clone, Debug, Default)]
pub struct Solver {
    pub(crate) links: Vec<Link>,
    pub(crate) flows: Vec<Flow>,
    unused: Vec<u32>,
    /// By flow: its rate for a weight of 1 in the last solution.
    levels: Vec<f64>,
    pub(crate) affected: Affected,
    /// Of each link, while rates grow: capacity left, and weight of the flows that still grow.
    filling: Vec<Filling>,
    /// Links whose loads a solution has changed.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
}

/// A link while rates grow.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    left: f64,
    weight: f64,
    /// Flows that still grow.
    growing: u32,
    /// Flows that are not affected.
    of_others: u32,
    /// The level at which it was full; infinite before.
    full_at: f64,
}

impl Filling {
    /// The rate for a weight of 1 at which the link is full.
    fn level(&self) -> f64 {
        (self.left / self.weight).max(0.0)
    }
}

/// A level at which something stops growing: a link (`true`) or a flow with a cap.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stop {
    level: f64,
    is_link: bool,
    index: u32,
}

impl Eq for Stop {}

impl Ord for Stop {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_level = self.level.total_cmp(&other.level);
        by_level.then(self.is_link.cmp(&other.is_link)).then(self.index.cmp(&other.index))
    }
}

impl PartialOrd for Stop {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Solver {
    /// A solver without links and flows.
    pub fn new() -> Self {
        Solver::default()
    }

    /// Adds a link.
    ///
    /// # Panics
    /// If the capacity is negative or not finite.
    pub fn add_link(&mut self, capacity: f64) -> LinkId {
        assert!(capacity >= 0.0 && capacity.is_finite(), "a link of {capacity} B/s");
        self.links.push(Link {
            capacity,
            flows: Vec::new(),
            load: 0.0,
            was_full: false,
            level: f64::INFINITY,
            solutions: 0,
        });
        self.is_changed.push(false);
        self.affected.add_link();
        LinkId(self.links.len() as u32 - 1)
    }

    /// Changes the capacity of a link.
    ///
    /// # Panics
    /// If the capacity is negative or not finite.
    pub fn set_capacity(&mut self, link: LinkId, capacity: f64) {
        assert!(capacity >= 0.0 && capacity.is_finite(), "a link of {capacity} B/s");
        if self.links[link.index()].capacity == capacity {
            return;
        }
        self.links[link.index()].capacity = capacity;
        for &flow in &self.links[link.index()].flows {
            self.flows[flow as usize].update_most_rate(&self.links);
        }
        self.affected.touch_link(link.0);
    }

    /// Adds a flow or a class of identical flows; it has no rate until [`Solver::solve`].
    ///
    /// # Panics
    /// If the class is empty, its weight or a share is not positive, or nothing limits its rate.
    pub fn add_flow(&mut self, spec: FlowSpec<'_>) -> FlowId {
        assert!(spec.count > 0 && spec.weight > 0.0 && spec.weight.is_finite(), "{spec:?}");
        assert!(spec.cap >= 0.0 && spec.path.iter().all(|(_, share)| *share > 0.0), "{spec:?}");
        assert!(spec.cap.is_finite() || !spec.path.is_empty(), "nothing limits {spec:?}");
        let index = self.unused.pop().unwrap_or(self.flows.len() as u32);
        let uses = spec.path.iter().map(|&(link, share)| {
            let flows = &mut self.links[link.index()].flows;
            flows.push(index);
            Use { link: link.0, share, position: flows.len() as u32 - 1 }
        });
        let mut flow = Flow {
            count: f64::from(spec.count),
            weight: spec.weight,
            cap: spec.cap,
            most_rate: spec.cap,
            uses: uses.collect(),
            rate: 0.0,
            in_loads: 0.0,
            bottleneck: Bottleneck::Cap,
            exists: true,
        };
        flow.update_most_rate(&self.links);
        match self.flows.get_mut(index as usize) {
            Some(place) => {
                *place = flow;
                self.levels[index as usize] = 0.0;
            }
            None => {
                self.flows.push(flow);
                self.levels.push(0.0);
                self.affected.add_flow();
            }
        }
        self.affected.touch_flow(index);
        FlowId(index)
    }

    /// Removes a flow.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn remove_flow(&mut self, id: FlowId) {
        let flow = &mut self.flows[id.index()];
        assert!(flow.exists, "{id:?} does not exist");
        flow.exists = false;
        let (uses, amount) = (std::mem::take(&mut flow.uses), flow.count * flow.in_loads);
        for used in uses {
            let link = &mut self.links[used.link as usize];
            link.load -= used.share * amount;
            link.flows.swap_remove(used.position as usize);
            if link.flows.is_empty() {
                link.load = 0.0;
            }
            self.affected.touch_link(used.link);
            if let Some(&moved) = link.flows.get(used.position as usize) {
                let uses = &mut self.flows[moved as usize].uses;
                let of_link = uses.iter_mut().find(|other| other.link == used.link);
                of_link.into_iter().for_each(|other| other.position = used.position);
            }
        }
        self.unused.push(id.0);
    }

    /// Changes the cap of a flow.
    ///
    /// # Panics
    /// If the flow does not exist, or the cap is negative or no number.
    pub fn set_cap(&mut self, id: FlowId, cap: f64) {
        let flow = &mut self.flows[id.index()];
        assert!(flow.exists && cap >= 0.0, "{id:?} with a cap of {cap} B/s");
        if flow.cap != cap {
            flow.cap = cap;
            flow.update_most_rate(&self.links);
            self.affected.touch_flow(id.0);
        }
    }

    /// Computes the rates of the flows that changes since the last call affect; returns these flows, in
    /// the order of their numbers. All other rates are as they were.
    pub fn solve(&mut self) -> &[FlowId] {
        self.affected.spread(&mut self.links, (&self.flows, &self.levels));
        for parts in 1.. {
            self.fill();
            self.update_loads();
            let known = self.affected.len();
            let links = std::mem::take(&mut self.changed);
            for &link in &links {
                if !self.affected.has_link(link) && self.links[link as usize].is_full() {
                    self.affected.reach_link(link);
                }
            }
            self.changed = links;
            self.reach_exceeding(known.1);
            if self.affected.len() == known {
                break;
            }
            let whole = parts >= MOST_PARTS;
            self.affected.spread_from(known, whole, &self.links, (&self.flows, &self.levels));
        }
        for link in self.changed.drain(..) {
            self.is_changed[link as usize] = false;
            let link = &mut self.links[link as usize];
            link.was_full = link.is_full();
        }
        self.affected.flows()
    }

    /// Adds flows that are not affected so far, and have more than a full link, one of the first `links` affected ones,
    /// leaves to those that are.
    fn reach_exceeding(&mut self, links: usize) {
        for at in 0..links {
            let index = self.affected.links()[at];
            let (link, filling) = (&self.links[index as usize], &self.filling[index as usize]);
            if filling.of_others == 0 {
                continue;
            }
            // Without affected flows nothing was left to fill.
            let is_exceeded = filling.left < link.capacity * (1.0 - ABOVE_LEVEL);
            let level = if is_exceeded { 0.0 } else { link.level };
            let above = |flow: &&u32| self.levels[**flow as usize] > level * ABOVE_LEVEL;
            if level < f64::INFINITY {
                link.flows.iter().filter(above).for_each(|&flow| self.affected.reach_flow(flow));
            }
        }
    }

    /// Brings the loads of links up to date with the rates of the affected flows.
    fn update_loads(&mut self) {
        for &FlowId(index) in self.affected.flows() {
            let flow = &mut self.flows[index as usize];
            if flow.rate == flow.in_loads {
                continue;
            }
            self.levels[index as usize] = flow.rate / flow.weight;
            let more = flow.count * (flow.rate - flow.in_loads);
            flow.in_loads = flow.rate;
            for used in &flow.uses {
                self.links[used.link as usize].load += used.share * more;
                if !std::mem::replace(&mut self.is_changed[used.link as usize], true) {
                    self.changed.push(used.link);
                }
            }
        }
        for &link in self.affected.links() {
            let (link_of, filling) = (&mut self.links[link as usize], &self.filling[link as usize]);
            link_of.load = link_of.capacity - filling.left;
            link_of.level = filling.full_at;
            if !std::mem::replace(&mut self.is_changed[link as usize], true) {
                self.changed.push(link);
            }
        }
    }

    /// What each affected link has left for affected flows: its capacity without the rates of the others.
    fn find_capacities_left(&mut self) {
        self.filling.resize(self.links.len(), Filling::default());
        for &link in self.affected.links() {
            let of_link = &mut self.links[link as usize];
            of_link.solutions += 1;
            if of_link.solutions > SOLUTIONS_OF_A_LOAD {
                of_link.solutions = 0;
                of_link.load = sum_of_rates(link, &of_link.flows, &self.flows);
            }
            let left = of_link.capacity - of_link.load;
            let of_others = of_link.flows.len() as u32;
            self.filling[link as usize] =
                Filling { left, weight: 0.0, growing: 0, of_others, full_at: f64::INFINITY };
        }
        for &FlowId(index) in self.affected.flows() {
            let flow = &self.flows[index as usize];
            for used in flow.uses.iter().filter(|used| self.affected.has_link(used.link)) {
                let filling = &mut self.filling[used.link as usize];
                let share = used.share * flow.count;
                filling.left += share * flow.in_loads;
                filling.weight += share * flow.weight;
                filling.growing += 1;
                filling.of_others -= 1;
            }
        }
        for &link in self.affected.links() {
            let filling = &mut self.filling[link as usize];
            if filling.of_others == 0 {
                // Known without rounding errors of the past.
                filling.left = self.links[link as usize].capacity;
            }
        }
    }

    /// Progressive filling of the affected flows and links.
    fn fill(&mut self) {
        self.find_capacities_left();
        let mut stops: Vec<Reverse<Stop>> = Vec::with_capacity(self.affected.links().len());
        for &FlowId(index) in self.affected.flows() {
            let flow = &mut self.flows[index as usize];
            flow.rate = f64::NAN;
            // A link that gives the flow less, were it alone, stops it before its cap.
            let gives_less = |used: &Use| {
                let alone = self.links[used.link as usize].capacity * ABOVE_ROUNDING;
                self.affected.has_link(used.link)
                    && alone < flow.most_rate * used.share * flow.count
            };
            if !flow.uses.iter().any(gives_less) {
                let level = flow.most_rate / flow.weight;
                stops.push(Reverse(Stop { level, is_link: false, index }));
            }
        }
        for &index in self.affected.links() {
            let filling = self.filling[index as usize];
            if filling.growing > 0 {
                stops.push(Reverse(Stop { level: filling.level(), is_link: true, index }));
            }
        }
        let mut stops = BinaryHeap::from(stops);
        let mut growing = self.affected.flows().len();
        // Many stops are caps that no flow reaches: they are left when all flows have their rates.
        while growing > 0 {
            // Flows over a link without capacity have no rate.
            let Some(Reverse(stop)) = stops.pop() else { break };
            if !stop.is_link {
                if self.flows[stop.index as usize].rate.is_nan() {
                    let most = self.flows[stop.index as usize].most_rate;
                    self.fix(stop.index, most, Bottleneck::Cap);
                    growing -= 1;
                }
                continue;
            }
            let filling = self.filling[stop.index as usize];
            if filling.growing == 0 {
                continue;
            }
            // The level of a link only rises while flows on it are fixed.
            let level = filling.level();
            if level > stop.level {
                stops.push(Reverse(Stop { level, ..stop }));
                continue;
            }
            self.filling[stop.index as usize].full_at = stop.level;
            growing -= self.fix_flows_of(stop.index, stop.level);
        }
    }

    /// Fixes the flows of a full link; returns their number.
    fn fix_flows_of(&mut self, link: u32, level: f64) -> usize {
        let mut fixed = 0;
        let mut flows = std::mem::take(&mut self.links[link as usize].flows);
        for &flow in &flows {
            let Flow { rate, weight, cap, .. } = self.flows[flow as usize];
            if rate.is_nan() {
                // Rounding: a cap that the level exceeds by the last bit.
                self.fix(flow, (level * weight).min(cap), Bottleneck::Link(LinkId(link)));
                fixed += 1;
            }
        }
        std::mem::swap(&mut self.links[link as usize].flows, &mut flows);
        fixed
    }

    fn fix(&mut self, index: u32, rate: f64, bottleneck: Bottleneck) {
        let flow = &mut self.flows[index as usize];
        (flow.rate, flow.bottleneck) = (rate, bottleneck);
        for used in flow.uses.iter().filter(|used| self.affected.has_link(used.link)) {
            let filling = &mut self.filling[used.link as usize];
            filling.left -= used.share * flow.count * rate;
            filling.weight -= used.share * flow.count * flow.weight;
            filling.growing -= 1;
        }
    }

    /// Rate of a flow (of each flow of a class), bytes per second, as of the last [`Solver::solve`].
    pub fn rate(&self, id: FlowId) -> f64 {
        self.flows[id.index()].rate
    }

    /// The reason why a flow is not faster.
    pub fn bottleneck(&self, id: FlowId) -> Bottleneck {
        self.flows[id.index()].bottleneck
    }

    /// The links of a flow, each with the bytes that the whole class moves over it for each byte of a
    /// flow.
    pub fn uses(&self, id: FlowId) -> impl Iterator<Item = (LinkId, f64)> {
        let flow = &self.flows[id.index()];
        flow.uses.iter().map(|used| (LinkId(used.link), used.share * flow.count))
    }

    /// Capacity of a link, bytes per second.
    pub fn capacity(&self, link: LinkId) -> f64 {
        self.links[link.index()].capacity
    }

    /// Flows that use a link, a class as one.
    pub fn flows_on(&self, link: LinkId) -> usize {
        self.links[link.index()].flows.len()
    }

    /// Sum of the rates on a link, bytes per second.
    pub fn load(&self, link: LinkId) -> f64 {
        let mut flows = self.links[link.index()].flows.clone();
        flows.sort_unstable();
        let of_flow = |&index: &u32| {
            let flow = &self.flows[index as usize];
            let used = flow.uses.iter().find(|used| used.link == link.0);
            used.map_or(0.0, |used| used.share * flow.count * flow.rate)
        };
        flows.iter().map(of_flow).sum()
    }
}

/// The sum of the rates of flows on a link that are in its load.
fn sum_of_rates(link: u32, on_link: &[u32], flows: &[Flow]) -> f64 {
    let of_flow = |&index: &u32| {
        let flow = &flows[index as usize];
        let used = flow.uses.iter().find(|used| used.link == link);
        used.map_or(0.0, |used| used.share * flow.count * flow.in_loads)
    };
    on_link.iter().map(of_flow).sum()
}
