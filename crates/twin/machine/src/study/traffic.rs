//! Synthetic traffic on the network alone.

use super::error::StudyError;
use super::forecast::traffic as forecast_of_traffic;
use super::options::{Fidelity, SimOptions};
use super::run::{Outcome, Progress, run};
use crate::flow::{self, TrafficRates};
use crate::links::{Links, class_use, each_link, heat, intervals, utilisation};
use crate::observe::Observed;
use crate::results::{ClassUse, LatencyNs, RunCost, SCHEMA, Series, TrafficRun};
use crate::scenario::Scenario;
use crate::steady::{ACCEPTED_WHEN_STEADY, END_OF_WINDOW, Latency, Slices, State, SteadyState};
use crate::traffic::{Generation, TrafficJob};
use crate::warnings;
use forebay_machine_file::machine::Machine;
use forebay_network::{DeliveryStatistics, Timeline};
use forebay_workload::traffic::TrafficSpec;
use std::sync::Arc;
use std::time::Instant;

/// Simulates traffic among nodes of a machine: all that the options select, or as many as they say.
///
/// # Errors
/// [`StudyError`] when the job or its pattern does not fit the machine.
pub fn simulate_traffic(
    machine: &Machine,
    spec: &TrafficSpec,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<TrafficRun, StudyError> {
    let began = Instant::now();
    let scenario = traffic_scenario(machine, spec, options)?;
    if fidelity_of(&scenario, spec, options)? == Fidelity::Flow {
        return Ok(traffic_with_flows(&scenario, spec, options, began));
    }
    let mut outcome = run(&scenario, options, progress)?;
    let mut result = traffic_run(&scenario, spec, options, &outcome, 0);
    result.observed = std::mem::take(&mut outcome.observed);
    let nodes: usize = scenario.traffic.iter().map(|job| job.nodes.len()).sum();
    let total = (nodes as u64).saturating_mul(spec.messages);
    assert_eq!(result.messages_delivered, total, "messages lost");
    result.startup_seconds = outcome.started.duration_since(began).as_secs_f64();
    Ok(result)
}

/// Checks that traffic fits a machine, as [`simulate_traffic`] does before it simulates.
///
/// # Errors
/// As [`simulate_traffic`].
pub fn check_traffic_fits(
    machine: &Machine,
    spec: &TrafficSpec,
    options: &SimOptions,
) -> Result<(), StudyError> {
    fidelity_of_traffic(machine, spec, options).map(drop)
}

/// The fidelity with which [`simulate_traffic`] simulates: that of the options, or the one chosen for
/// [`Fidelity::Auto`].
///
/// # Errors
/// As [`simulate_traffic`].
pub fn fidelity_of_traffic(
    machine: &Machine,
    spec: &TrafficSpec,
    options: &SimOptions,
) -> Result<Fidelity, StudyError> {
    fidelity_of(&traffic_scenario(machine, spec, options)?, spec, options)
}

fn fidelity_of(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
) -> Result<Fidelity, StudyError> {
    let check = flow::check_traffic(options);
    let events = || {
        let nodes = scenario.traffic.iter().flat_map(|job| job.nodes.iter().copied());
        let nodes = nodes.collect();
        Ok(forecast_of_traffic(&scenario.machine, scenario, spec, nodes, options)?.events)
    };
    options.fidelity.chosen(&check, events)
}

/// The scenario of traffic among the nodes that the options select.
fn traffic_scenario(
    machine: &Machine,
    spec: &TrafficSpec,
    options: &SimOptions,
) -> Result<Scenario, StudyError> {
    let idle = options.idle_scenario(machine)?;
    let mut placer = options.placer(machine)?;
    let count = options.traffic_nodes.unwrap_or(placer.free_nodes());
    let nodes = placer.place_job(count, options.placement)?;
    let generation = Generation::Messages(spec.messages);
    let job = traffic_job(machine, spec, nodes, options.seed, generation, None)?;
    Ok(Scenario { traffic: vec![Arc::new(job)], ..idle })
}

/// The document of traffic alone with flows: all nodes send at their rates until they have sent their
/// messages.
fn traffic_with_flows(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
    began: Instant,
) -> TrafficRun {
    let Some(rates) = flow::rates_of_traffic(scenario).pop() else {
        unreachable!("a scenario without a traffic job")
    };
    let bytes = spec.messages as f64 * spec.message.0 as f64;
    let slowest = rates.nodes.iter().copied().fold(f64::INFINITY, f64::min);
    let seconds = if slowest > 0.0 { bytes / slowest } else { 0.0 };
    let mut run = flow_run(scenario, spec, options, &rates, seconds);
    run.cost.wall_seconds = began.elapsed().as_secs_f64();
    run.cost.simulated_seconds = seconds;
    (run.messages, run.messages_delivered) =
        (spec.messages, spec.messages.saturating_mul(rates.nodes.len() as u64));
    run.bytes_delivered = (bytes * rates.nodes.len() as f64) as u64;
    run.run_load = bytes / seconds.max(f64::MIN_POSITIVE) * rates.nodes.len() as f64
        / link_rates(scenario, rates.nodes.len());
    run
}

/// Rate of the links of `nodes` nodes of the traffic job, bytes per second.
fn link_rates(scenario: &Scenario, nodes: usize) -> f64 {
    let of_job = scenario.traffic.first().map_or(0, |job| scenario.machine.link_rate(&job.nodes).0);
    of_job as f64 * nodes as f64
}

/// The document of traffic that had these rates for some seconds, without its cost and messages.
pub(super) fn flow_run(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
    rates: &TrafficRates,
    seconds: f64,
) -> TrafficRun {
    let (nodes, total) = (rates.nodes.len(), rates.nodes.iter().sum::<f64>());
    let accepted_load = total / link_rates(scenario, nodes);
    let is_saturated = accepted_load < ACCEPTED_WHEN_STEADY * spec.load;
    let state = if is_saturated { State::Saturated } else { State::Steady };
    let in_time = |class: &ClassUse| ClassUse {
        bytes: (class.bytes as f64 * seconds) as u64,
        ..class.clone()
    };
    TrafficRun {
        schema: SCHEMA,
        kind: "sim traffic".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: scenario.machine.name.clone(),
        fidelity: Fidelity::Flow.name().into(),
        left_out: flow::LEFT_OUT_OF_TRAFFIC.iter().map(|text| text.to_string()).collect(),
        pattern: spec.pattern.to_string(),
        routing: scenario.network.routing.algorithm.name().into(),
        seed: options.seed,
        nodes: nodes as u32,
        message_bytes: spec.message.0,
        messages: 0,
        messages_delivered: 0,
        bytes_delivered: (total * seconds) as u64,
        packets_per_second: 0.0,
        startup_seconds: 0.0,
        cost: RunCost { threads: 1, ..RunCost::default() },
        offered_load: spec.load,
        state: state.name().into(),
        warm_up_seconds: None,
        window_seconds: [0.0, seconds],
        window_offered_load: spec.load,
        accepted_load,
        run_load: accepted_load,
        backlog_bytes: [0, 0],
        warnings: warnings::of_traffic_flows(
            &scenario.network,
            &rates.links,
            is_saturated.then_some(accepted_load / spec.load),
        ),
        hops_mean: rates.hops,
        hops_histogram: Vec::new(),
        nonminimal_share: rates.detours,
        latency_ns: None,
        links: rates.links.iter().map(in_time).collect(),
        heat: Vec::new(),
        series: Series::default(),
        replication: None,
        saturation: None,
        delays: None,
        observed: Observed::default(),
        each_link: Vec::new(),
    }
}

/// A traffic job on given nodes. `span` is the time in which its messages are expected to be
/// generated, ps; `None`: as the specification says.
pub(super) fn traffic_job(
    machine: &Machine,
    spec: &TrafficSpec,
    nodes: Vec<u32>,
    seed: u64,
    generation: Generation,
    span: Option<f64>,
) -> Result<TrafficJob, StudyError> {
    let groups: Vec<u32> = nodes.iter().map(|&n| machine.group_of(n)).collect();
    let arrivals = spec.arrivals(machine.link_rate(&nodes))?;
    Ok(TrafficJob {
        number: 0,
        destinations: spec.pattern.resolve(&groups, seed)?,
        arrivals,
        message_bytes: spec.message.0,
        rate_limit: spec.rate_limit.map(|limit| limit.0),
        interface_rate: machine.network.node.rate.0 as f64,
        generation,
        seed,
        span: span.unwrap_or(spec.messages as f64 * arrivals.mean().0 as f64),
        counted_from: 0,
        nodes,
    })
}

/// Counts of all groups.
struct Totals {
    links: Links,
    packets: DeliveryStatistics,
    timeline: Timeline<4>,
    slices: Slices,
    sent: u64,
    delivered: u64,
    /// Time at which the generation of messages was ended, ps, if it was.
    stopped_at: Option<u64>,
}

impl Totals {
    fn sum(job: &TrafficJob, outcome: &Outcome) -> Totals {
        let mut totals = Totals {
            links: Links::new(),
            packets: DeliveryStatistics::default(),
            timeline: Timeline::default(),
            slices: Slices::new(job.span),
            sent: 0,
            delivered: 0,
            stopped_at: None,
        };
        for group in &outcome.groups {
            totals.links.push(group.fabric.link_statistics(outcome.end));
            totals.packets.merge(&group.fabric.deliveries[0]);
            totals.timeline.absorb(&group.fabric.timeline);
            if let Some(io) = &group.io {
                totals.timeline.absorb(&io.link_timeline);
            }
            if let Some(traffic) = group.traffic.get(usize::from(job.number)) {
                totals.sent += traffic.messages_sent;
                totals.delivered += traffic.messages_delivered;
                totals.slices.merge(&traffic.slices);
                totals.stopped_at = totals.stopped_at.max(traffic.stopped_at());
            }
        }
        assert_eq!(totals.delivered, totals.sent, "messages lost");
        totals
    }

    /// The steady state; together with IOR, or as long as that, from `earliest` ps on.
    fn steady_state(&self, job: &TrafficJob, earliest: u64) -> SteadyState {
        let until = |end: u64| {
            let fifth = (end as f64 * 0.2) as u64;
            self.slices.steady_state(end, Some(fifth.max(earliest)))
        };
        match (job.generation, self.stopped_at) {
            (Generation::Messages(_), _) => {
                self.slices.steady_state((END_OF_WINDOW * job.span) as u64, None)
            }
            (Generation::Until(end), _) | (Generation::UntilOtherEnds, Some(end)) => until(end),
            (Generation::UntilOtherEnds, None) => until(job.span as u64),
        }
    }
}

/// The document of a run with a traffic job, without the start-up time. Traffic as long as IOR is
/// measured from `earliest` ps on, or later.
pub(super) fn traffic_run(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
    outcome: &Outcome,
    earliest: u64,
) -> TrafficRun {
    let Some(job) = scenario.traffic.first() else {
        unreachable!("a scenario without a traffic job")
    };
    let end = outcome.end;
    let totals = Totals::sum(job, outcome);
    let Totals { links, packets, delivered, .. } = &totals;
    let steady = totals.steady_state(job, earliest);
    let nodes = job.nodes.len();
    let link_rate = scenario.machine.link_rate(&job.nodes).0 as f64 * nodes as f64;
    let load = |bytes: u64, (from, to): (u64, u64)| {
        let seconds = to.saturating_sub(from) as f64 * 1e-12;
        if seconds > 0.0 { bytes as f64 / seconds / link_rate } else { 0.0 }
    };
    let hops: u64 = (0..).zip(packets.hops).map(|(hops, n): (u64, u64)| hops * n).sum();
    let mean = |sum: u64| sum as f64 / packets.packets.max(1) as f64;
    let is_saturated = steady.state == State::Saturated;
    TrafficRun {
        schema: SCHEMA,
        kind: "sim traffic".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: scenario.machine.name.clone(),
        fidelity: Fidelity::Packet.name().into(),
        left_out: Vec::new(),
        pattern: spec.pattern.to_string(),
        routing: scenario.network.routing.algorithm.name().into(),
        seed: options.seed,
        nodes: nodes as u32,
        message_bytes: spec.message.0,
        messages: match job.generation {
            Generation::Messages(count) => count,
            Generation::Until(_) | Generation::UntilOtherEnds => delivered / nodes.max(1) as u64,
        },
        messages_delivered: *delivered,
        bytes_delivered: packets.bytes,
        packets_per_second: packets.packets as f64 / outcome.cost.wall_seconds,
        startup_seconds: 0.0,
        cost: RunCost { packets_delivered: packets.packets, ..outcome.cost.clone() },
        offered_load: spec.load,
        state: steady.state.name().into(),
        warm_up_seconds: steady.warm_up.map(|ps| ps as f64 * 1e-12),
        window_seconds: [steady.window.0, steady.window.1].map(|ps| ps as f64 * 1e-12),
        window_offered_load: load(steady.offered, steady.window),
        accepted_load: load(steady.delivered, steady.window),
        run_load: load(packets.bytes, (0, end)),
        backlog_bytes: [steady.backlog.0, steady.backlog.1],
        warnings: warnings::of_traffic(&scenario.network, spec, job, &steady),
        hops_mean: mean(hops),
        hops_histogram: packets.hops.to_vec(),
        nonminimal_share: mean(packets.detours),
        latency_ns: (!is_saturated).then(|| latency(&steady.latency)),
        links: class_use(links, end),
        heat: heat(links),
        series: series(scenario, &totals, end, link_rate),
        replication: None,
        saturation: None,
        delays: outcome.delays.clone(),
        observed: Observed::default(),
        each_link: match scenario.each_link {
            true => each_link(&scenario.topology, links, end),
            false => Vec::new(),
        },
    }
}

/// Load and link utilisation over the run.
fn series(scenario: &Scenario, totals: &Totals, end: u64, link_rate: f64) -> Series {
    let Totals { timeline, links, .. } = totals;
    let mut series = utilisation(timeline, links, &scenario.network, 0, end);
    // Each byte crosses two node links: one in, one out. Together with IOR, the sum includes its
    // bytes.
    let seconds = timeline.interval() as f64 * 1e-12;
    let loads =
        intervals(timeline, 0, end).map(|(_, row)| row[0] as f64 / 2.0 / seconds / link_rate);
    let name = if !scenario.io.is_empty() { "node_load" } else { "accepted_load" };
    series.columns.insert(0, (name.into(), loads.collect()));
    series
}

fn latency(latency: &Latency) -> LatencyNs {
    if latency.packets == 0 {
        return LatencyNs::default();
    }
    LatencyNs {
        mean: latency.sum as f64 / latency.packets as f64 / 1000.0,
        min: latency.min as f64 / 1000.0,
        p50: latency.quantile_ns(0.5),
        p90: latency.quantile_ns(0.9),
        p99: latency.quantile_ns(0.99),
        p999: latency.quantile_ns(0.999),
        max: latency.max as f64 / 1000.0,
    }
}
