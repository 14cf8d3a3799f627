//! IOR on burst buffers.

use super::error::StudyError;
use super::ior_job::ior_job;
use super::options::SimOptions;
use super::run::{Outcome, Progress, run};
use crate::io::{IoJob, PhaseCounts};
use crate::limit::find_limit;
use crate::links::{class_use, each_link, heat, intervals, utilisation};
use crate::phase_totals::PhaseTotals;
use crate::results::{IorPoint, NodeRates, Phase, Series, Spread};
use crate::scenario::Scenario;
use forebay_machine_file::machine::Machine;
use forebay_network::Timeline;
use forebay_workload::ior::{Access, Ior};
use forebay_workload::placement::Placer;
use hdrhistogram::Histogram;
use std::sync::Arc;

/// Simulates one IOR test with `ppn` processes on each of `nodes` nodes.
///
/// # Errors
/// [`StudyError`] when the machine has too few nodes or no burst buffers, or the test does not
/// fit them.
pub fn simulate_ior(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<IorPoint, StudyError> {
    let scenario = ior_scenario(machine, ior, nodes, ppn, options)?;
    Ok(ior_point(&scenario, run(&scenario, options, progress)?))
}

/// Checks that a test fits a machine, as [`simulate_ior`] does before it simulates.
///
/// # Errors
/// As [`simulate_ior`].
pub fn check_ior_fits(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<(), StudyError> {
    ior_scenario(machine, ior, nodes, ppn, options).map(drop)
}

fn ior_scenario(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<Scenario, StudyError> {
    let nodes = Placer::new(machine, options.seed).place_job(nodes, options.placement)?;
    let idle = options.idle_scenario(machine)?;
    let job = ior_job(&idle, ior, nodes, ppn, options)?;
    Ok(Scenario { io: Some(Arc::new(job)), ..idle })
}

/// The document of a run with an IOR job.
pub(super) fn ior_point(scenario: &Scenario, outcome: Outcome) -> IorPoint {
    let Some(job) = &scenario.io else { unreachable!("a scenario without an IOR job") };
    let mut timeline = Timeline::default();
    let mut by_phase: Vec<Vec<PhaseCounts>> = Vec::new();
    for group in outcome.groups {
        timeline.merge(&group.fabric.timeline);
        let phases = group.io.map(|io| io.phases).unwrap_or_default();
        by_phase.resize_with(phases.len().max(by_phase.len()), Vec::new);
        for (all, phase) in by_phase.iter_mut().zip(phases) {
            all.push(phase);
        }
    }
    let phases: Vec<Phase> = by_phase
        .into_iter()
        .map(|phases| phase_result(scenario, job, &PhaseTotals::sum(phases), &timeline))
        .collect();
    let best = |access: Access| {
        let of_kind = phases.iter().filter(|p| p.access == access.name());
        of_kind.max_by(|a, b| a.gbps.total_cmp(&b.gbps))
    };
    let (write, read) = (best(Access::Write), best(Access::Read));
    IorPoint {
        nodes: job.nodes.len() as u32,
        processes: job.tasks(),
        write_gbps: write.map(|p| p.gbps),
        read_gbps: read.map(|p| p.gbps),
        write_acknowledged_node_gbps: write.map(|p| p.acknowledged_node_gbps.mean),
        read_acknowledged_node_gbps: read.map(|p| p.acknowledged_node_gbps.mean),
        limit: write.or(read).map(|p| p.limit.resource.clone()).unwrap_or_default(),
        phases,
        run: outcome.cost,
    }
}

fn seconds(ps: u64) -> f64 {
    ps as f64 * 1e-12
}

fn phase_result(
    scenario: &Scenario,
    job: &IoJob,
    totals: &PhaseTotals,
    timeline: &Timeline<4>,
) -> Phase {
    let counts = &totals.counts;
    let (first, last) = (counts.opens.first, counts.closes.last);
    let total = seconds(last.saturating_sub(first));
    let transfers = counts.transfers.length();
    let per_second = |amount: f64, time: f64| if time > 0.0 { amount / time } else { 0.0 };
    Phase {
        access: counts.access.name().into(),
        iteration: counts.iteration,
        bytes: counts.bytes,
        operations: counts.operations,
        seconds: total,
        open_seconds: seconds(counts.opens.length()),
        transfer_seconds: seconds(transfers),
        close_seconds: seconds(counts.closes.length()),
        gbps: per_second(counts.bytes as f64 / 1e9, total),
        steady_gbps: steady_gbps(&counts.timeline),
        slowest_rank_gbps: per_second(counts.bytes as f64 / 1e9, seconds(counts.most_in_calls)),
        acknowledged_node_gbps: node_rates(counts.node_rates.clone()),
        iops: per_second(counts.operations as f64, seconds(transfers)),
        operation_seconds: spread(&counts.times, counts.time),
        least_mean_seconds: counts.least_mean.unwrap_or(0.0) * 1e-12,
        limit: find_limit(job, totals),
        links: class_use(&totals.links, transfers),
        heat: heat(&totals.links),
        series: series(scenario, totals, timeline),
        each_link: each_link(scenario, &totals.links, transfers),
    }
}

/// Time with a rate at which the middle of the bytes moved: from the moment when a fifth had, to
/// that when four fifths had; `None` if that is not at least four intervals of the timeline.
fn steady_gbps(moved: &Timeline<1>) -> Option<f64> {
    let total: u64 = moved.rows().iter().map(|row| row[0]).sum();
    let mut sum = 0;
    let mut middle = 0;
    let mut amount = 0;
    for row in moved.rows() {
        let before = sum;
        sum += row[0];
        if before * 5 >= total && sum * 5 <= total * 4 {
            middle += 1;
            amount += row[0];
        }
    }
    (middle >= 4).then(|| amount as f64 / 1e9 / (middle as f64 * seconds(moved.interval())))
}

fn spread(times: &Histogram<u64>, sum: u64) -> Spread {
    if times.is_empty() {
        return Spread::default();
    }
    let ns = |value: u64| value as f64 * 1e-9;
    Spread {
        mean: seconds(sum) / times.len() as f64,
        min: ns(times.min()),
        p50: ns(times.value_at_quantile(0.5)),
        p99: ns(times.value_at_quantile(0.99)),
        max: ns(times.max()),
    }
}

/// The distribution, in GB/s, of rates in bytes per second; percentiles are of the nearest rank.
fn node_rates(mut rates: Vec<f64>) -> NodeRates {
    rates.sort_by(f64::total_cmp);
    let count = rates.len();
    let rank = |percent: usize| (count * percent).div_ceil(100).saturating_sub(1);
    let at = |percent: usize| rates.get(rank(percent)).map_or(0.0, |rate| rate / 1e9);
    NodeRates {
        mean: rates.iter().sum::<f64>() / count.max(1) as f64 / 1e9,
        min: at(0),
        p5: at(5),
        p50: at(50),
        p95: at(95),
        max: at(100),
    }
}

/// Rate and link utilisation over the phase, from its first open on.
fn series(scenario: &Scenario, totals: &PhaseTotals, timeline: &Timeline<4>) -> Series {
    let counts = &totals.counts;
    let (from, to) = (counts.opens.first, counts.closes.last);
    let mut moved = counts.timeline.clone();
    // Bring both to intervals of the same length.
    let mut links = timeline.clone();
    links.merge(&Timeline::with_interval(moved.interval()));
    moved.merge(&Timeline::with_interval(links.interval()));
    let mut series = utilisation(&links, &totals.links, &scenario.network, from, to);
    let interval = seconds(moved.interval());
    let mut rates: Vec<f64> =
        intervals(&moved, from, to).map(|(_, row)| row[0] as f64 / 1e9 / interval).collect();
    rates.resize(series.seconds.len(), 0.0);
    series.columns.insert(0, (format!("{}_GBps", counts.access.name()), rates));
    series
}
