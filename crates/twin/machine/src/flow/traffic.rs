//! Synthetic traffic as flows: each node sends at a constant rate to its destinations.
//!
//! The destinations of a node are those of messages that are spread evenly over all that it sends, so that
//! random patterns reach all nodes of a job alike. A node has one flow, which is split over them: one
//! destination that accepts less holds up the node's messages to the others, too.

use super::fabric::{Path, Resource, merge};
use super::links::Links;
use super::network_links::{DRAWS, LinkKey, NetworkLinks};
use crate::results::ClassUse;
use crate::scenario::Scenario;
use crate::traffic::{Generation, TrafficJob};
use forebay_flow::{FlowId, FlowSpec, LinkId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a flow that does not end: 12 hours at 100 GB/s. Of a number of this size, half a byte can still
/// be subtracted, so that slow flows make progress in short steps.
const ENDLESS: f64 = (1u64 << 52) as f64;
/// Destinations of all nodes together, and of one node at least and at most.
const MOST_DESTINATIONS: u64 = 1 << 18;
const DESTINATIONS: (u64, u64) = (16, 256);

/// Destinations of a node, by their places in the job, with their shares of its bytes.
type Shares = Vec<(u32, f64)>;

/// The flows of a job, one for each node.
#[derive(Debug)]
pub(super) struct TrafficFlows {
    flows: Vec<FlowId>,
    /// Mean number of links between routers, and share of detours, of each.
    hops: Vec<(f64, f64)>,
    /// The links of its nodes, in and out.
    node_links: Vec<LinkId>,
}

impl TrafficFlows {
    /// Their number.
    pub fn count(&self) -> usize {
        self.flows.len()
    }

    /// Bytes that they have moved so far.
    pub fn moved(&self, links: &Links) -> f64 {
        self.flows.iter().map(|flow| links.transport.carried_by(*flow)).sum()
    }
}

/// Rates of a job with traffic.
#[derive(Clone, Debug)]
pub(crate) struct TrafficRates {
    /// Of each node, bytes per second.
    pub nodes: Vec<f64>,
    /// Mean number of links between routers that its bytes cross.
    pub hops: f64,
    /// Share of the bytes that take a detour.
    pub detours: f64,
    /// Use of the links of its nodes and of those between groups.
    pub links: Vec<ClassUse>,
}

/// The rates of a scenario's jobs with traffic, without I/O, in their order.
pub(crate) fn rates_of_traffic(scenario: &Scenario) -> Vec<TrafficRates> {
    let mut links = Links::new();
    let mut network = NetworkLinks::new(&scenario.topology, &scenario.network);
    network.add_groups(&mut links);
    let all = traffic_flows(&scenario.traffic, &mut network, &mut links);
    links.transport.update_rates();
    let solver = links.transport.solver();
    let of_detour = network.local_links_of_detour();
    let of_job = |flows: &TrafficFlows| {
        let nodes: Vec<f64> = flows.flows.iter().map(|flow| solver.rate(*flow)).collect();
        let total = nodes.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mean = |of: fn(&(f64, f64)) -> f64| {
            let weighted = flows.hops.iter().zip(&nodes).map(|(hops, rate)| of(hops) * rate);
            weighted.sum::<f64>() / total
        };
        let (hops, detours) = (mean(|hops| hops.0), mean(|hops| hops.1));
        let hops = hops + detours * of_detour;
        TrafficRates { hops, detours, links: use_of_links(flows, &network, &links), nodes }
    };
    all.iter().map(of_job).collect()
}

/// Starts the flows of jobs. All demand is known before paths are chosen, as with runs that begin together.
pub(super) fn traffic_flows(
    jobs: &[Arc<TrafficJob>],
    network: &mut NetworkLinks,
    links: &mut Links,
) -> Vec<TrafficFlows> {
    let destinations: Vec<Vec<Shares>> = jobs.iter().map(|job| destinations(job)).collect();
    let all = Sending { jobs, destinations: &destinations };
    for (key, demand) in all.accepted_demand(network) {
        network.direct_link(key, links).demand += demand;
    }
    all.start(network, links)
}

/// Rounds of [`Sending::accepted_demand`] at most, and the share of a link's demand by which what is accepted may be
/// less.
const MOST_ROUNDS: u32 = 16;
const NEAR_DEMAND: f64 = 0.01;

/// Bytes per second of traffic with shortest paths over links between groups.
type DemandOfLinks = BTreeMap<LinkKey, f64>;

/// Jobs with traffic, and the destinations of their nodes.
struct Sending<'a> {
    jobs: &'a [Arc<TrafficJob>],
    destinations: &'a [Vec<Shares>],
}

impl Sending<'_> {
    fn start(&self, network: &mut NetworkLinks, links: &mut Links) -> Vec<TrafficFlows> {
        let start = |(job, of_nodes): (&Arc<TrafficJob>, &Vec<Shares>)| {
            start_flows(job, of_nodes, network, links)
        };
        self.jobs.iter().zip(self.destinations).map(start).collect()
    }

    /// The demand of nodes that send at these rates, by the places of job and node.
    fn demand(&self, network: &NetworkLinks, rate: &dyn Fn(usize, usize) -> f64) -> DemandOfLinks {
        let mut demand = DemandOfLinks::new();
        for (number, (job, of_nodes)) in self.jobs.iter().zip(self.destinations).enumerate() {
            for (place, (node, of_node)) in job.nodes.iter().zip(of_nodes).enumerate() {
                let rate = rate(number, place);
                for &(to, share) in of_node {
                    let ends = (*node, job.nodes[to as usize]);
                    let keys = network.direct_links(ends.0, ends.1, draws(of_node));
                    for &key in &keys {
                        *demand.entry(key).or_default() += rate * share / keys.len() as f64;
                    }
                }
            }
        }
        demand
    }

    /// The demand that decides how much of the traffic takes detours: that which is accepted. A detour crosses two
    /// links, so that detours for all that is offered beyond a link's capacity would take more from the others than
    /// routers, which see only bytes that were accepted, let them take.
    ///
    /// The demand that is offered is an upper bound. From there it is brought half of the way to what is accepted with
    /// detours for it, until both are the same.
    fn accepted_demand(&self, network: &NetworkLinks) -> DemandOfLinks {
        let mut demand = self.demand(network, &|job, _| self.jobs[job].node_rate());
        for _ in 0..MOST_ROUNDS {
            if !demand.iter().any(|(key, demand)| network.has_detours_for(*key, *demand)) {
                break;
            }
            let accepted = self.accepted_with(network, &demand);
            let is_near = |(key, demand): (&LinkKey, &f64)| {
                !network.has_detours_for(*key, *demand)
                    || accepted[key] >= *demand * (1.0 - NEAR_DEMAND)
            };
            if demand.iter().all(is_near) {
                break;
            }
            demand.iter_mut().for_each(|(key, demand)| *demand = (*demand + accepted[key]) / 2.0);
        }
        demand
    }

    /// The accepted part of the traffic, alone on links between groups, with detours for a demand.
    fn accepted_with(&self, network: &NetworkLinks, demand: &DemandOfLinks) -> DemandOfLinks {
        let (mut links, mut alone) = (Links::new(), network.without_flows());
        alone.add_groups(&mut links);
        for (&key, &demand) in demand {
            alone.direct_link(key, &mut links).demand = demand;
        }
        let started = self.start(&mut alone, &mut links);
        links.transport.update_rates();
        let solver = links.transport.solver();
        self.demand(network, &|job, node| solver.rate(started[job].flows[node]))
    }
}

fn start_flows(
    job: &TrafficJob,
    of_nodes: &[Shares],
    network: &mut NetworkLinks,
    links: &mut Links,
) -> TrafficFlows {
    let topology = network.topology.clone();
    let mut node_link = |node: u32, way: &str| {
        let rate = job.interface_rate * f64::from(topology.count_interfaces_of(node));
        links.add(Resource::NodeLink, format!("the link {way} node {node}"), rate)
    };
    let out: Vec<LinkId> = job.nodes.iter().map(|node| node_link(*node, "of")).collect();
    let into: Vec<LinkId> = job.nodes.iter().map(|node| node_link(*node, "to")).collect();
    let mut started = TrafficFlows {
        flows: Vec::with_capacity(of_nodes.len()),
        hops: Vec::with_capacity(of_nodes.len()),
        node_links: out.iter().chain(&into).copied().collect(),
    };
    for ((node, out), of_node) in job.nodes.iter().zip(&out).zip(of_nodes) {
        let mut path: Path = vec![(*out, 1.0)];
        for &(to, share) in of_node {
            path.push((into[to as usize], share));
            let ends = (*node, job.nodes[to as usize]);
            network.add_path(ends, (share, draws(of_node)), &mut path, links);
        }
        merge(&mut path);
        started.hops.push(network.hops(&path));
        let spec = FlowSpec { count: 1, weight: 1.0, cap: job.node_rate(), path: &path };
        started.flows.push(links.transport.start(spec, ENDLESS));
    }
    started
}

/// Shortest paths to each destination: those of a node spread its traffic themselves.
fn draws(destinations: &[(u32, f64)]) -> u64 {
    (DRAWS / destinations.len().max(1) as u64).max(1)
}

/// The destinations of each node, by their places in the job, with their shares of its bytes.
fn destinations(job: &TrafficJob) -> Vec<Shares> {
    let (least, most) = DESTINATIONS;
    let draws = (MOST_DESTINATIONS / job.nodes.len().max(1) as u64).clamp(least, most);
    let messages = match job.generation {
        Generation::Messages(count) => count,
        Generation::Until(_) | Generation::UntilOtherEnds => u64::MAX,
    };
    // Patterns that take their destinations in turn take each of them once.
    let period = job.destinations.period().min(messages);
    let draws = if (2..=draws).contains(&period) { period } else { draws };
    let of_node = |node: u32| {
        // Evenly spread from a place that differs from node to node, by the golden ratio.
        let first = u64::from(node).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut drawn: Vec<u32> = (0..draws)
            .map(|nth| {
                let random = (u64::MAX / draws).wrapping_mul(nth).wrapping_add(first / draws);
                let message = message_of(job, (nth, draws), (node, messages));
                job.destinations.destination(node, message, random)
            })
            .collect();
        drawn.sort_unstable();
        let shares = drawn.chunk_by(|a, b| a == b);
        shares.map(|same| (same[0], same.len() as f64 / draws as f64)).collect()
    };
    (0..job.nodes.len() as u32).map(of_node).collect()
}

/// Number of the message of a draw: patterns that take their destinations in turn are covered evenly. Each
/// node begins at another place, so that all nodes receive alike.
fn message_of(job: &TrafficJob, (nth, draws): (u64, u64), (node, messages): (u32, u64)) -> u64 {
    let period = job.destinations.period().min(messages).max(1);
    if period <= draws {
        return nth % period;
    }
    let first = u64::from(node).wrapping_mul(0x9e37_79b9_7f4a_7c15) % period;
    (first + (u128::from(nth) * u128::from(period) / u128::from(draws)) as u64) % period
}

/// Use of the nodes' links and of the links between groups, as of the last update of the rates. Bytes are
/// those of a second.
fn use_of_links(flows: &TrafficFlows, network: &NetworkLinks, links: &Links) -> Vec<ClassUse> {
    let solver = links.transport.solver();
    let class = |class: &str, all: Vec<(LinkId, f64)>, count: u64| {
        let loads: Vec<f64> = all.iter().map(|(link, _)| solver.load(*link)).collect();
        let rate: f64 = all.iter().map(|(link, _)| solver.capacity(*link)).sum();
        let share = |(load, (link, _)): (&f64, &(LinkId, f64))| load / solver.capacity(*link);
        ClassUse {
            class: class.into(),
            links: count,
            bytes: loads.iter().sum::<f64>() as u64,
            mean_utilisation: loads.iter().sum::<f64>() / rate.max(1.0),
            max_utilisation: loads.iter().zip(&all).map(share).fold(0.0, f64::max),
            stall_seconds: 0.0,
            max_queue_bytes: 0,
        }
    };
    let of_nodes: Vec<(LinkId, f64)> = flows.node_links.iter().map(|link| (*link, 1.0)).collect();
    let nodes = of_nodes.len() as u64;
    let direct = network.rank3_links();
    let count = direct.iter().map(|(_, count)| *count as u64).sum();
    let mut global = class("global", direct, count);
    // Detours cross other links than the direct ones, which are one resource: the fullest link has the mean at least.
    if let Some(all) = network.all_between()
        && solver.load(all) > global.bytes as f64 * (1.0 + 1e-6) + 1.0
    {
        let of_all = class("global", vec![(all, 1.0)], network.topology.global_links());
        global = ClassUse {
            max_utilisation: global.max_utilisation.max(of_all.max_utilisation),
            ..of_all
        };
    }
    vec![class("node", of_nodes, nodes), global]
}
