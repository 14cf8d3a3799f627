//! Synthetic traffic on the network alone.

use super::error::StudyError;
use super::options::SimOptions;
use super::run::{Outcome, Progress, run};
use crate::links::{Links, class_use, each_link, heat, intervals, utilisation};
use crate::results::{LatencyNs, RunCost, SCHEMA, TrafficRun};
use crate::scenario::Scenario;
use crate::traffic::TrafficJob;
use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_network::{DeliveryStatistics, Timeline};
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
    progress: Progress<'_>,
) -> Result<TrafficRun, StudyError> {
    let began = Instant::now();
    let idle = options.idle_scenario(machine)?;
    let compute = machine.nodes_of_kind(NodeKind::Compute).len() as u32;
    let nodes = Placer::new(machine, options.seed).place_job(compute, options.placement)?;
    let job = traffic_job(machine, spec, nodes, options.seed, Some(spec.messages))?;
    let scenario = Scenario { traffic: Some(Arc::new(job)), ..idle };
    let outcome = run(&scenario, options, progress)?;
    let mut result = traffic_run(&scenario, spec, options, &outcome);
    let total = u64::from(compute).saturating_mul(spec.messages);
    assert_eq!(result.messages_delivered, total, "messages lost");
    result.startup_seconds = outcome.started.duration_since(began).as_secs_f64();
    Ok(result)
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

/// The document of a run with a traffic job, without the start-up time.
pub(super) fn traffic_run(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
    outcome: &Outcome,
) -> TrafficRun {
    let Some(job) = &scenario.traffic else { unreachable!("a scenario without a traffic job") };
    let (end, mut links) = (outcome.end, Links::new());
    let (mut packets, mut timeline) = (DeliveryStatistics::default(), Timeline::<4>::default());
    let (mut sent, mut delivered, mut measured_bytes) = (0, 0, 0);
    for group in &outcome.groups {
        links.push(group.fabric.link_statistics(end));
        packets.merge(&group.fabric.deliveries[0]);
        timeline.merge(&group.fabric.timeline);
        if let Some(traffic) = &group.traffic {
            sent += traffic.messages_sent;
            delivered += traffic.messages_delivered;
            measured_bytes += traffic.measured_bytes;
        }
    }
    assert_eq!(delivered, sent, "messages lost");
    let nodes = job.nodes.len();
    let link_rate = scenario.network.node.rate.0 as f64 * nodes as f64;
    let window = job.measured.1.min(end).saturating_sub(job.measured.0) as f64 * 1e-12;
    let accepted = if window > 0.0 { measured_bytes as f64 / window / link_rate } else { 0.0 };
    let hops: u64 = (0..).zip(packets.hops).map(|(hops, n): (u64, u64)| hops * n).sum();
    let mean = |sum: u64| sum as f64 / packets.packets.max(1) as f64;

    let mut series = utilisation(&timeline, &links, &scenario.network, 0, end);
    // Each byte crosses two node links: one in, one out. Together with IOR, the sum includes its
    // bytes.
    let seconds = timeline.interval() as f64 * 1e-12;
    let loads =
        intervals(&timeline, 0, end).map(|(_, row)| row[0] as f64 / 2.0 / seconds / link_rate);
    let name = if scenario.io.is_some() { "node_load" } else { "accepted_load" };
    series.columns.insert(0, (name.into(), loads.collect()));

    TrafficRun {
        schema: SCHEMA,
        kind: "sim traffic".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: scenario.machine.name.clone(),
        pattern: spec.pattern.to_string(),
        routing: scenario.network.routing.algorithm.name().into(),
        seed: options.seed,
        nodes: nodes as u32,
        message_bytes: spec.message.0,
        messages: job.messages.unwrap_or(delivered / nodes.max(1) as u64),
        messages_delivered: delivered,
        bytes_delivered: packets.bytes,
        packets_per_second: packets.packets as f64 / outcome.cost.wall_seconds,
        startup_seconds: 0.0,
        cost: RunCost { packets_delivered: packets.packets, ..outcome.cost.clone() },
        offered_load: spec.load,
        accepted_load: accepted,
        hops_mean: mean(hops),
        hops_histogram: packets.hops.to_vec(),
        nonminimal_share: mean(packets.detours),
        latency_ns: latency(&packets),
        links: class_use(&links, end),
        heat: heat(&links),
        series,
        each_link: each_link(scenario, &links, end),
    }
}

fn latency(packets: &DeliveryStatistics) -> LatencyNs {
    if packets.packets == 0 {
        return LatencyNs::default();
    }
    let quantile = |q| packets.latency_ns.value_at_quantile(q) as f64;
    LatencyNs {
        mean: packets.latency_sum as f64 / packets.packets as f64 / 1000.0,
        min: packets.latency_min as f64 / 1000.0,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        p999: quantile(0.999),
        max: packets.latency_max as f64 / 1000.0,
    }
}
