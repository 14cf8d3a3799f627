//! Summary of a simulation.

use crate::cluster::Cluster;
use crate::outcome::Outcome;
use crate::simulation::History;
use crate::time::Millis;
use serde::Serialize;

/// Waiting times, slowdowns and utilization.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Jobs.
    pub jobs: u64,
    /// Mean time from submission to start.
    pub mean_wait_seconds: f64,
    /// Its median.
    pub median_wait_seconds: f64,
    /// Its 95th percentile.
    pub p95_wait_seconds: f64,
    /// Its maximum.
    pub max_wait_seconds: f64,
    /// Mean bounded slowdown.
    pub mean_bounded_slowdown: f64,
    /// Share of the nodes' time, from the first submission to the last end, in which they ran jobs.
    pub node_utilization: f64,
    /// Share of the pool's capacity that was allocated, over the same time and the stage-outs after it.
    pub buffer_utilization: f64,
    /// Jobs that could have begun earlier, but for their burst buffer.
    pub buffer_delayed_jobs: u64,
    /// Mean of these delays over all jobs.
    pub mean_buffer_delay_seconds: f64,
    /// Jobs that could have started earlier, but for their stage-in.
    pub stage_delayed_jobs: u64,
    /// Mean of these delays over all jobs.
    pub mean_stage_delay_seconds: f64,
    /// Time from the first submission to the last end.
    pub makespan_seconds: f64,
}

/// The value below or at which a share of the sorted values lies: the smallest with at least that share.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

impl Summary {
    /// The summary of simulations on machines that are alike, such as of several parts of a trace: of all their
    /// jobs, with their utilizations weighted by time.
    pub fn of(cluster: &Cluster, histories: &[&History], bound: Millis) -> Summary {
        let jobs = || histories.iter().flat_map(|history| &history.jobs);
        let count = jobs().count();
        let mean = |of: &dyn Fn(&Outcome) -> f64| jobs().map(of).sum::<f64>() / count.max(1) as f64;
        let mut waits: Vec<f64> = jobs().map(|job| job.waiting().seconds()).collect();
        waits.sort_by(f64::total_cmp);
        let span = |of: fn(&Outcome) -> Millis| -> f64 {
            let of_one = |history: &&History| {
                let first = history.jobs.iter().map(|job| job.arrival).min().unwrap_or_default();
                let last = history.jobs.iter().map(of).max().unwrap_or_default();
                last.since(first).seconds()
            };
            histories.iter().map(of_one).sum()
        };
        let (makespan, with_stages) = (span(|job| job.end), span(|job| job.done));
        let node_seconds: f64 =
            jobs().map(|job| f64::from(job.nodes) * job.end.since(job.start).seconds()).sum();
        let granule_seconds: f64 =
            jobs().map(|job| job.granules as f64 * job.done.since(job.begin).seconds()).sum();
        let share = |used: f64, there: f64| if there > 0.0 { used / there } else { 0.0 };
        let delayed =
            |of: fn(&Outcome) -> Millis| jobs().filter(|job| of(job) > Millis::ZERO).count() as u64;
        Summary {
            jobs: count as u64,
            mean_wait_seconds: mean(&|job| job.waiting().seconds()),
            median_wait_seconds: percentile(&waits, 0.5),
            p95_wait_seconds: percentile(&waits, 0.95),
            max_wait_seconds: waits.last().copied().unwrap_or(0.0),
            mean_bounded_slowdown: mean(&|job| job.bounded_slowdown(bound)),
            node_utilization: share(node_seconds, makespan * f64::from(cluster.nodes)),
            buffer_utilization: share(granule_seconds, with_stages * cluster.granules() as f64),
            buffer_delayed_jobs: delayed(|job| job.buffer_delay),
            mean_buffer_delay_seconds: mean(&|job| job.buffer_delay.seconds()),
            stage_delayed_jobs: delayed(|job| job.stage_delay),
            mean_stage_delay_seconds: mean(&|job| job.stage_delay.seconds()),
            makespan_seconds: makespan,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_smallest_value_with_the_share() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), 10.0);
        assert_eq!(percentile(&values, 0.95), 19.0);
        assert_eq!(percentile(&values, 1.0), 20.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
