//! The document of one phase of a test.

use crate::io::IoJob;
use crate::limit::find_limit;
use crate::links::{class_use, each_link, heat, intervals, utilisation};
use crate::phase_totals::PhaseTotals;
use crate::results::{LinkUse, NodeRates, Phase, Series, Spread};
use crate::study::of_calls;
use crate::warnings;
use forebay_machine_file::machine::Network;
use forebay_network::{LinkStatistics, Timeline};
use hdrhistogram::Histogram;

fn seconds(ps: u64) -> f64 {
    ps as f64 * 1e-12
}

/// The document of a phase.
pub(crate) fn phase_result(job: &IoJob, totals: &PhaseTotals) -> Phase {
    let counts = &totals.counts;
    let (first, last) = (counts.opens.first, counts.closes.last);
    let total = seconds(last.saturating_sub(first));
    let transfers = counts.transfers.length();
    let middle = middle_gbps(&counts.by_requests);
    let per_rank = counts.operations / u64::from(job.tasks().max(1));
    let steady = middle.filter(|_| !warnings::are_few_transfers(per_rank));
    let per_second = |amount: f64, time: f64| if time > 0.0 { amount / time } else { 0.0 };
    let phase = Phase {
        access: counts.access.name().into(),
        iteration: counts.iteration,
        bytes: counts.bytes,
        operations: counts.operations,
        seconds: total,
        open_seconds: seconds(counts.opens.length()),
        transfer_seconds: seconds(transfers),
        close_seconds: seconds(counts.closes.length()),
        gbps: per_second(counts.bytes as f64 / 1e9, total),
        acknowledged_node_gbps: node_rates(counts.node_rates.clone()),
        steady_gbps: steady,
        middle_gbps: middle,
        slowest_rank_gbps: per_second(counts.bytes as f64 / 1e9, seconds(counts.most_in_calls)),
        iops: per_second(counts.operations as f64, seconds(transfers)),
        operation_seconds: spread(&counts.times, counts.time),
        least_mean_seconds: counts.least_mean.unwrap_or(0.0) * 1e-12,
        limit: find_limit(job, totals),
        links: class_use(&totals.links, transfers),
        heat: heat(&totals.links),
        series: series(&job.network, totals),
        warnings: warnings::of_phase(job, counts, steady),
        each_link: links_used(job, &totals.links, transfers),
    };
    of_calls(phase, (job.calls_joined, job.pattern.transfer_bytes()))
}

fn links_used(job: &IoJob, links: &[Vec<LinkStatistics>], span: u64) -> Vec<LinkUse> {
    if job.each_link { each_link(&job.topology, links, span) } else { Vec::new() }
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
pub(crate) fn node_rates(mut rates: Vec<f64>) -> NodeRates {
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
fn series(network: &Network, totals: &PhaseTotals) -> Series {
    let counts = &totals.counts;
    let (from, to) = (counts.opens.first, counts.closes.last);
    // Bring both to intervals of the same length.
    let (mut moved, mut links) = (counts.timeline.clone(), counts.link_timeline.clone());
    links.lengthen_intervals(moved.interval());
    moved.lengthen_intervals(links.interval());
    let mut series = utilisation(&links, &totals.links, network, from, to);
    let interval = seconds(moved.interval());
    let mut rates: Vec<f64> =
        intervals(&moved, from, to).map(|(_, row)| row[0] as f64 / 1e9 / interval).collect();
    rates.resize(series.seconds.len(), 0.0);
    series.columns.insert(0, (format!("{}_GBps", counts.access.name()), rates));
    series
}

/// Time with a rate at which the middle of the bytes moved: from the moment when a fifth had, to
/// that when four fifths had; `None` if that is not at least four intervals of the timeline.
pub(crate) fn middle_gbps(moved: &Timeline<1>) -> Option<f64> {
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
