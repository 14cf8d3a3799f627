//! A plan of the waiting jobs: the order in which they get the earliest places, improved by simulated annealing.
//! The idea is from Kopanski and Rzadca, "Plan-based job scheduling for supercomputers with shared burst
//! buffers", Euro-Par 2021; initial orders and neighbourhood are chosen here.

use super::conservative::begin_planned;
use super::{Draft, PlanOptions, Situation, Waiting};
use crate::profile::Profile;
use crate::time::Millis;
use forebay_random::{RandomSequence, stream_label, unit_interval};

/// Jobs up to which all orders are tried.
const EXHAUSTIVE: usize = 5;
/// Temperatures, each of which is the last one times [`COOLING`].
const TEMPERATURES: u32 = 30;
const COOLING: f64 = 0.9;
/// Orders that are tried at each temperature.
const TRIES: u32 = 6;

pub(super) fn decide(draft: &mut Draft, situation: &Situation<'_>, options: &PlanOptions) {
    let (planned, rest) = situation.queue.split_at(situation.queue.len().min(options.depth));
    // Only what begins now is decided now.
    let free = draft.profile.now();
    let can_begin = |waiting: &Waiting| {
        waiting.need.lead > Millis::ZERO
            || (waiting.need.nodes <= free.nodes && waiting.need.granules <= free.granules)
    };
    let begins_something = situation.queue.iter().any(can_begin);
    let search = Search { draft, jobs: planned, exponent: options.exponent };
    let order = match begins_something {
        true => search.best_order(options.seed),
        false => (0..planned.len()).collect(),
    };
    let (starts, profile) = search.place(&order);
    let mut plan: Vec<(Millis, &Waiting)> =
        order.iter().zip(starts).map(|(&index, start)| (start, &planned[index])).collect();
    plan.sort_by_key(|(start, waiting)| (*start, waiting.arrival, waiting.job));
    draft.profile = profile;
    begin_planned(draft, &plan);
    for waiting in rest {
        draft.begin_if_possible(waiting);
    }
}

/// A search for an order with a small sum of waiting times.
struct Search<'a> {
    draft: &'a Draft,
    jobs: &'a [Waiting],
    exponent: f64,
}

impl Search<'_> {
    /// The starts of the jobs, in the given order, and the profile with them.
    fn place(&self, order: &[usize]) -> (Vec<Millis>, Profile) {
        let mut profile = self.draft.profile.clone();
        let starts = order.iter().map(|&index| {
            let need = &self.jobs[index].need;
            let start = profile.earliest(self.draft.now.plus(need.lead), need);
            profile.take(start, need);
            start
        });
        let starts = starts.collect();
        (starts, profile)
    }

    /// Sum of the jobs' waiting times in hours, each to the power of the exponent.
    fn cost(&self, order: &[usize]) -> f64 {
        let (starts, _) = self.place(order);
        let waits = order.iter().zip(starts).map(|(&index, start)| {
            let hours = start.since(self.jobs[index].arrival).seconds() / 3600.0;
            libm::pow(hours, self.exponent)
        });
        waits.sum()
    }

    /// The best order that was found.
    fn best_order(&self, seed: u64) -> Vec<usize> {
        let arrival: Vec<usize> = (0..self.jobs.len()).collect();
        if self.jobs.len() < 2 {
            return arrival;
        }
        if self.jobs.len() <= EXHAUSTIVE {
            return self.best_of(all_orders(self.jobs.len())).0;
        }
        let initial = self.initial_orders(&arrival);
        let worst = initial.iter().map(|order| self.cost(order)).fold(0.0, f64::max);
        let (mut best, mut best_cost) = self.best_of(initial);
        let (mut order, mut cost) = (best.clone(), best_cost);
        let mut temperature = worst - best_cost;
        let label = stream_label("job plan");
        let mut random = RandomSequence::of_unit(seed, label, self.draft.now.0);
        let count = self.jobs.len() as u32;
        for _ in 0..TEMPERATURES {
            for _ in 0..TRIES {
                let (a, b) = (random.below(count) as usize, random.below(count) as usize);
                order.swap(a, b);
                let next = self.cost(&order);
                let worse = next - cost;
                let draw = unit_interval(random.next_u64());
                if worse <= 0.0 || (temperature > 0.0 && draw < libm::exp(-worse / temperature)) {
                    cost = next;
                    if cost < best_cost {
                        (best, best_cost) = (order.clone(), cost);
                    }
                } else {
                    order.swap(a, b);
                }
            }
            temperature *= COOLING;
        }
        best
    }

    /// The first of the cheapest orders, and its cost.
    fn best_of(&self, orders: Vec<Vec<usize>>) -> (Vec<usize>, f64) {
        let mut best = (Vec::new(), f64::INFINITY);
        for order in orders {
            let cost = self.cost(&order);
            if cost < best.1 || best.0.is_empty() {
                best = (order, cost);
            }
        }
        best
    }

    /// Orders by arrival, time limit, nodes, granules, and nodes times limit.
    fn initial_orders(&self, arrival: &[usize]) -> Vec<Vec<usize>> {
        let sorted = |key: &dyn Fn(&Waiting) -> (u64, u64)| {
            let mut order = arrival.to_vec();
            order.sort_by_key(|&index| key(&self.jobs[index]));
            order
        };
        let nodes = |waiting: &Waiting| u64::from(waiting.need.nodes);
        let limit = |waiting: &Waiting| waiting.need.limit.0;
        vec![
            arrival.to_vec(),
            sorted(&|w| (limit(w), nodes(w))),
            sorted(&|w| (nodes(w), limit(w))),
            sorted(&|w| (u64::MAX - nodes(w), limit(w))),
            sorted(&|w| (w.need.granules, limit(w))),
            sorted(&|w| (u64::MAX - w.need.granules, limit(w))),
            sorted(&|w| (nodes(w).saturating_mul(limit(w)), 0)),
        ]
    }
}

/// All orders of `0..count`, in lexicographic order.
fn all_orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..count {
        let longer = orders.iter().flat_map(|order| {
            let others = (0..count).filter(|index| !order.contains(index));
            others.map(|index| [order.as_slice(), &[index]].concat())
        });
        orders = longer.collect();
    }
    orders
}
