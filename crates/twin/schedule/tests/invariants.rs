//! Properties of all policies: resources are not exceeded, nothing is lost, reservations hold.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod queues;

use forebay_schedule::cluster::{Cluster, Rates};
use forebay_schedule::job::{Checkpoint, Job};
use forebay_schedule::policy::{PlanOptions, Policy, Situation, Waiting, decide};
use forebay_schedule::profile::{Holding, Need};
use forebay_schedule::simulation::History;
use forebay_schedule::summary::Summary;
use forebay_schedule::time::Millis;
use forebay_units::Bytes;
use proptest::prelude::*;
use queues::{GB, cluster, jobs, run};

/// Stages of the whole burst buffer, at rates at which they take about as long as the jobs, and checkpoints.
fn with_stages(jobs: &[Job]) -> (Cluster, Vec<Job>) {
    let rates = Rates { storage_in: Some(0.3e9), storage_out: Some(0.5e9), pfs: Some(1e9) };
    let cluster = Cluster::new(8, (4, Bytes(20 * GB)), Bytes(GB), rates);
    let staged = jobs.iter().map(|job| Job {
        stage_in: if job.id % 3 == 0 { Bytes::ZERO } else { job.buffer },
        stage_out: if job.id % 2 == 0 { Bytes::ZERO } else { job.buffer },
        checkpoint: (job.id % 5 == 0 && job.buffer > Bytes::ZERO)
            .then_some(Checkpoint { every: Millis(7_000), bytes: job.buffer }),
        ..job.clone()
    });
    let staged = staged.collect();
    (cluster, staged)
}

/// Checks, from the times of the jobs alone, that no more is in use than there is, and that nothing is lost.
fn check(cluster: &Cluster, jobs: &[Job], history: &History) -> Result<(), TestCaseError> {
    prop_assert_eq!(history.jobs.len(), jobs.len());
    let mut changes: Vec<(Millis, i64, i64)> = Vec::new();
    for (job, outcome) in jobs.iter().zip(&history.jobs) {
        let order = [
            outcome.arrival,
            outcome.begin,
            outcome.ready,
            outcome.start,
            outcome.end,
            outcome.done,
        ];
        prop_assert!(order.is_sorted(), "{:?}", outcome);
        let computing = outcome.end.since(outcome.start);
        prop_assert!(computing >= job.run, "{:?}", outcome);
        if job.checkpoint.is_none() {
            prop_assert_eq!(computing, job.run);
        }
        let (nodes, granules) = (i64::from(job.nodes), outcome.granules as i64);
        prop_assert!(outcome.granules * cluster.granularity.0 >= job.buffer.0);
        changes.extend([(outcome.start, nodes, 0), (outcome.end, -nodes, 0)]);
        changes.extend([(outcome.begin, 0, granules), (outcome.done, 0, -granules)]);
    }
    // Ends before beginnings at the same time.
    changes.sort();
    let (mut nodes, mut granules) = (0, 0);
    for (at, more_nodes, more_granules) in changes {
        nodes += more_nodes;
        granules += more_granules;
        prop_assert!(nodes <= i64::from(cluster.nodes), "{} nodes at {:?}", nodes, at);
        prop_assert!(granules <= cluster.granules() as i64, "{} granules at {:?}", granules, at);
    }
    prop_assert_eq!((nodes, granules), (0, 0));
    // Node-seconds of the jobs and of the recorded usage.
    let of_jobs: u128 = history
        .jobs
        .iter()
        .map(|job| u128::from(job.nodes) * u128::from(job.end.since(job.start).0))
        .sum();
    let of_buffers: u128 = history
        .jobs
        .iter()
        .map(|job| u128::from(job.granules) * u128::from(job.done.since(job.begin).0))
        .sum();
    let spans = || {
        history.usage.windows(2).map(|pair| (pair[0], u128::from(pair[1].at.since(pair[0].at).0)))
    };
    prop_assert_eq!(
        of_jobs,
        spans().map(|(usage, time)| u128::from(usage.nodes) * time).sum::<u128>()
    );
    prop_assert_eq!(
        of_buffers,
        spans().map(|(usage, time)| u128::from(usage.granules) * time).sum::<u128>()
    );
    let waiting: u128 = history.jobs.iter().map(|job| u128::from(job.waiting().0)).sum();
    prop_assert_eq!(
        waiting,
        spans().map(|(usage, time)| u128::from(usage.waiting) * time).sum::<u128>()
    );
    let last = history.usage.last().unwrap();
    prop_assert_eq!((last.nodes, last.granules, last.waiting), (0, 0, 0));
    Ok(())
}

proptest! {
    #[test]
    fn resources_are_not_exceeded_and_nothing_is_lost(jobs in jobs(1..=4)) {
        for (_, policy) in Policy::NAMES {
            let cluster = cluster(8, 20);
            check(&cluster, &jobs, &run(&cluster, &jobs, policy))?;
            let (cluster, staged) = with_stages(&jobs);
            check(&cluster, &staged, &run(&cluster, &staged, policy))?;
        }
    }

    /// With exact limits and without stages, no job starts later than first reserved.
    #[test]
    fn reservations_are_not_delayed(jobs in jobs(4..=4)) {
        for policy in [Policy::EasyBb, Policy::Sjf, Policy::Conservative] {
            for outcome in &run(&cluster(8, 20), &jobs, policy).jobs {
                let reserved = outcome.first_reservation.unwrap_or(outcome.start);
                prop_assert!(outcome.start <= reserved, "{}: {:?}", policy, outcome);
            }
        }
    }

    /// Conservative backfilling keeps them also when jobs end before their limits.
    #[test]
    fn conservative_reservations_hold_when_jobs_end_early(jobs in jobs(1..=4)) {
        for outcome in &run(&cluster(8, 20), &jobs, Policy::Conservative).jobs {
            let reserved = outcome.first_reservation.unwrap_or(outcome.start);
            prop_assert!(outcome.start <= reserved, "{:?}", outcome);
        }
    }

    /// Of waiting jobs with stage-ins of any length, none gets a later reservation when others release their
    /// resources early.
    #[test]
    fn released_resources_delay_no_reservation(
        needs in proptest::collection::vec((1u32..=8, 0u64..=12, 0u64..30, 1u64..30, 0u64..30), 1..15),
        ends in proptest::collection::vec((1u64..40, 0u64..20, any::<bool>()), 4),
    ) {
        let holdings: Vec<(Holding, bool)> = ends.iter().map(|&(nodes_until, tail, is_released)| {
            let until = Millis(nodes_until + tail);
            let nodes_until = Millis(nodes_until);
            (Holding { nodes: 2, nodes_until, granules: 3, granules_until: until }, is_released)
        }).collect();
        let waiting = |(job, &(nodes, granules, lead, limit, tail)): (usize, &(u32, u64, u64, u64, u64))| {
            let lead = if granules == 0 { 0 } else { lead };
            let [lead, limit, tail] = [lead, limit, tail].map(Millis);
            let need = Need { nodes, granules, lead, limit, tail };
            Waiting { job, arrival: Millis(job as u64), need, reserved: None }
        };
        let queue: Vec<Waiting> = needs.iter().enumerate().map(waiting).collect();
        let decide = |holdings: &[Holding], queue: &[Waiting]| {
            let situation = Situation {
                now: Millis(0), total: (8, 20), holdings, committed: &[], queue, has_changed: true,
            };
            decide(Policy::Conservative, &PlanOptions::default(), &situation)
        };
        let all: Vec<Holding> = holdings.iter().map(|(held, _)| *held).collect();
        let first = decide(&all, &queue);
        let left: Vec<Holding> =
            holdings.iter().filter(|(_, is_released)| !is_released).map(|(held, _)| *held).collect();
        let reserved = |job: usize| first.reservations.iter().find(|(other, _)| *other == job).map(|(_, at)| *at);
        let queue: Vec<Waiting> = queue.into_iter()
            .filter(|waiting| !first.begin.contains(&waiting.job))
            .map(|waiting| Waiting { reserved: reserved(waiting.job), ..waiting })
            .collect();
        // What has begun is left out, which frees even more.
        let second = decide(&left, &queue);
        for (job, start) in second.reservations {
            prop_assert!(Some(start) <= reserved(job), "job {}: {:?} after {:?}", job, start, reserved(job));
        }
    }

    /// A pool that is large enough for all jobs delays none, and policies that differ only in the reservation of
    /// the burst buffer do the same.
    #[test]
    fn large_pool_delays_no_job(jobs in jobs(1..=4)) {
        let cluster = cluster(8, 1000);
        for (_, policy) in Policy::NAMES {
            let history = run(&cluster, &jobs, policy);
            let summary = Summary::of(&cluster, &[&history], Millis::from_seconds(10));
            prop_assert_eq!((summary.buffer_delayed_jobs, summary.stage_delayed_jobs), (0, 0));
        }
        let [easy, easy_bb] = [Policy::Easy, Policy::EasyBb].map(|policy| {
            let jobs = run(&cluster, &jobs, policy).jobs;
            jobs.iter().map(|job| job.start).collect::<Vec<_>>()
        });
        prop_assert_eq!(easy, easy_bb);
    }
}
