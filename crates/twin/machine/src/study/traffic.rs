//! Synthetic traffic on the network alone.

use super::error::StudyError;
use super::options::SimOptions;
use super::progress::Progress;
use super::run::{build, run, run_cost};
use crate::group::Group;
use crate::links::{Links, class_use, each_link, heat, intervals, utilisation};
use crate::results::{LatencyNs, RunCost, SCHEMA, Series, TrafficRun};
use crate::scenario::Scenario;
use crate::traffic::TrafficJob;
use forebay_engine::{Simulation, Statistics};
use forebay_machine_file::machine::{Machine, NodeKind, Routing};
use forebay_network::{DeliveryStatistics, Timeline, Topology};
use forebay_workload::placement::Placer;
use forebay_workload::traffic::TrafficSpec;
use std::sync::Arc;
use std::time::Instant;

/// Simulates traffic among all compute nodes of a machine.
///
/// # Errors
/// [`StudyError`] when the pattern does not fit the machine.
pub fn simulate_traffic(
    machine: &Machine,
    spec: &TrafficSpec,
    options: &SimOptions,
    progress: &dyn Progress,
) -> Result<TrafficRun, StudyError> {
    let started = Instant::now();
    let network = options.network(machine)?;
    let compute = machine.nodes_of_kind(NodeKind::Compute).len() as u32;
    let nodes = Placer::new(machine, options.seed).place_job(compute, options.placement)?;
    let topology = Arc::new(Topology::new(machine));
    let job = traffic_job(machine, spec, nodes, options.seed, Some(spec.messages))?;
    let total = (job.nodes.len() as u64).saturating_mul(spec.messages);
    let scenario = Scenario {
        machine: machine.clone(),
        network: Arc::new(network),
        topology,
        traffic: Some(Arc::new(job)),
        io: None,
        each_link: options.each_link,
    };
    let mut simulation = build(&scenario, options);
    let startup = started.elapsed();

    let mut result = run_traffic(&scenario, spec, options, &mut simulation, progress)?;
    assert_eq!(result.messages_delivered, total, "messages lost");
    result.startup_seconds = startup.as_secs_f64();
    Ok(result)
}

/// Runs a scenario that has only traffic.
pub(super) fn run_traffic(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
    simulation: &mut Simulation<Group>,
    progress: &dyn Progress,
) -> Result<TrafficRun, StudyError> {
    let started = Instant::now();
    let span = scenario.traffic.as_ref().map_or(1.0, |job| job.span);
    let statistics = run(simulation, progress, &|now, _| now as f64 / span)?;
    let cost = run_cost(simulation, &statistics, options, started);
    Ok(traffic_run(scenario, spec, options, simulation, &statistics, &cost))
}

/// The document of a run that has ended, without the start-up time.
pub(super) fn traffic_run(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
    simulation: &mut Simulation<Group>,
    statistics: &Statistics,
    cost: &RunCost,
) -> TrafficRun {
    let end = statistics.last_event;
    let mut outcome = TrafficTotals::default();
    simulation.for_each_partition(|_, group, _| outcome.add_group(group, end));
    let mut result = outcome.result(scenario, spec, options, end);
    result.wall_seconds = cost.wall_seconds;
    result.packets_per_second = result.packets_delivered as f64 / cost.wall_seconds;
    result.events = cost.events;
    result.peak_rss_bytes = cost.peak_rss_bytes;
    result
}

/// A traffic job on given nodes. The accepted load is measured between 20% and 70% of the time
/// in which the messages are expected to be generated: all nodes send then. Without a number of
/// messages, it is measured over the whole run.
pub(super) fn traffic_job(
    machine: &Machine,
    spec: &TrafficSpec,
    nodes: Vec<u32>,
    seed: u64,
    messages: Option<u64>,
) -> Result<TrafficJob, StudyError> {
    let groups: Vec<u32> = nodes.iter().map(|&n| machine.group_of(n)).collect();
    let arrivals = spec.arrivals(machine.network.node.rate)?;
    let span = spec.messages as f64 * arrivals.mean().0 as f64;
    Ok(TrafficJob {
        destinations: spec.pattern.resolve(&groups, seed)?,
        arrivals,
        message_bytes: spec.message.0,
        messages,
        seed,
        measured: match messages {
            Some(_) => ((0.2 * span) as u64, (0.7 * span) as u64),
            None => (0, u64::MAX),
        },
        span,
        nodes,
    })
}

/// The sums of the groups' counts.
#[derive(Default)]
struct TrafficTotals {
    links: Links,
    traffic: DeliveryStatistics,
    timeline: Timeline<4>,
    measured_bytes: u64,
    messages_delivered: u64,
    messages_sent: u64,
}

impl TrafficTotals {
    /// Adds the counts of one group up to `end`, ps.
    fn add_group(&mut self, group: &Group, end: u64) {
        self.links.push(group.fabric.link_statistics(end));
        self.traffic.merge(&group.fabric.deliveries[0]);
        self.timeline.merge(&group.fabric.timeline);
        if let Some(traffic) = &group.traffic {
            self.measured_bytes += traffic.measured_bytes;
            self.messages_delivered += traffic.messages_delivered;
            self.messages_sent += traffic.messages_sent;
        }
    }

    /// The document, without the cost of the run.
    fn result(
        &self,
        scenario: &Scenario,
        spec: &TrafficSpec,
        options: &SimOptions,
        end: u64,
    ) -> TrafficRun {
        assert_eq!(self.messages_delivered, self.messages_sent, "messages lost");
        let machine = &scenario.machine;
        let nodes = scenario.traffic.as_ref().map_or(0, |job| job.nodes.len());
        let measured = scenario.traffic.as_ref().map_or((0, 0), |job| job.measured);
        let link_rate = machine.network.node.rate.0 as f64 * nodes as f64;
        let window = measured.1.min(end).saturating_sub(measured.0) as f64 * 1e-12;
        let traffic = &self.traffic;
        let packets = traffic.packets.max(1) as f64;
        let hops: u64 = (0..).zip(traffic.hops).map(|(hops, n): (u64, u64)| hops * n).sum();
        TrafficRun {
            schema: SCHEMA,
            kind: "sim traffic".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            machine: machine.name.clone(),
            pattern: spec.pattern.to_string(),
            routing: routing_name(scenario.network.routing.algorithm).into(),
            seed: options.seed,
            nodes: nodes as u32,
            message_bytes: spec.message.0,
            messages: match scenario.traffic.as_ref().and_then(|job| job.messages) {
                Some(messages) => messages,
                None => self.messages_delivered / nodes.max(1) as u64,
            },
            messages_delivered: self.messages_delivered,
            packets_delivered: traffic.packets,
            bytes_delivered: traffic.bytes,
            packets_per_second: 0.0,
            wall_seconds: 0.0,
            startup_seconds: 0.0,
            simulated_seconds: end as f64 * 1e-12,
            events: 0,
            threads: options.threads as u32,
            peak_rss_bytes: 0,
            offered_load: spec.load,
            accepted_load: if window > 0.0 {
                self.measured_bytes as f64 / window / link_rate
            } else {
                0.0
            },
            hops_mean: hops as f64 / packets,
            hops_histogram: traffic.hops.to_vec(),
            nonminimal_share: traffic.detours as f64 / packets,
            latency_ns: latency(traffic),
            links: class_use(&self.links, end),
            heat: heat(&self.links),
            series: self.series(scenario, end, link_rate),
            each_link: each_link(scenario, &self.links, end),
        }
    }

    fn series(&self, scenario: &Scenario, end: u64, link_rate: f64) -> Series {
        let mut series = utilisation(&self.timeline, &self.links, &scenario.network, 0, end);
        // Each byte crosses two node links: one in, one out.
        let seconds = self.timeline.interval() as f64 * 1e-12;
        let accepted = intervals(&self.timeline, 0, end)
            .map(|(_, row)| row[0] as f64 / 2.0 / seconds / link_rate)
            .collect();
        // Together with IOR, the sum includes its bytes.
        let name = if scenario.io.is_some() { "node_load" } else { "accepted_load" };
        series.columns.insert(0, (name.into(), accepted));
        series
    }
}

pub(super) fn latency(traffic: &DeliveryStatistics) -> LatencyNs {
    if traffic.packets == 0 {
        return LatencyNs::default();
    }
    let quantile = |q| traffic.latency_ns.value_at_quantile(q) as f64;
    LatencyNs {
        mean: traffic.latency_sum as f64 / traffic.packets as f64 / 1000.0,
        min: traffic.latency_min as f64 / 1000.0,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: traffic.latency_max as f64 / 1000.0,
    }
}

/// The name of a routing algorithm in commands and documents.
pub(super) fn routing_name(routing: Routing) -> &'static str {
    match routing {
        Routing::Minimal => "minimal",
        Routing::Valiant => "valiant",
        Routing::UgalL => "ugal-l",
        Routing::ProgressiveAdaptive => "progressive-adaptive",
    }
}
