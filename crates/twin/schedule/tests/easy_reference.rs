//! EASY backfilling against a slow implementation from its definition: shadow time and extra nodes.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod queues;

use forebay_schedule::job::Job;
use forebay_schedule::policy::Policy;
use proptest::prelude::*;
use queues::{GB, cluster, jobs, starts};

#[derive(Clone, Copy)]
struct Running {
    nodes: u32,
    granules: u64,
    end: u64,
    limit: u64,
}

/// Starts of the jobs in milliseconds: first come, first served, and with `backfills` EASY. The burst buffer of
/// the first job is not reserved.
fn reference(nodes: u32, granules: u64, jobs: &[Job], backfills: bool) -> Vec<u64> {
    let mut starts = vec![None; jobs.len()];
    let mut running: Vec<Running> = Vec::new();
    let mut now = 0;
    while starts.contains(&None) {
        running.retain(|job| job.end > now);
        let free = |running: &[Running]| {
            (
                nodes - running.iter().map(|job| job.nodes).sum::<u32>(),
                granules - running.iter().map(|job| job.granules).sum::<u64>(),
            )
        };
        let of = |job: &Job| Running {
            nodes: job.nodes,
            granules: job.buffer.0 / GB,
            end: now + job.run.0,
            limit: now + job.requested.0,
        };
        let waiting: Vec<usize> = (0..jobs.len())
            .filter(|&index| starts[index].is_none() && jobs[index].arrival.0 <= now)
            .collect();
        let mut waiting = waiting.into_iter().peekable();
        while let Some(&first) = waiting.peek() {
            let next = of(&jobs[first]);
            let (free_nodes, free_granules) = free(&running);
            if next.nodes > free_nodes || next.granules > free_granules {
                break;
            }
            starts[first] = Some(now);
            running.push(next);
            waiting.next();
        }
        if let Some(first) = waiting.next()
            && backfills
        {
            // The shadow time is that at which the first job has its nodes, if all run until their limits.
            let mut by_limit = running.clone();
            by_limit.sort_by_key(|job| job.limit);
            let (mut there, mut shadow) = (free(&running).0, now);
            for job in by_limit.iter() {
                if there >= jobs[first].nodes {
                    break;
                }
                there += job.nodes;
                shadow = job.limit;
            }
            let same_end: u32 =
                by_limit.iter().filter(|job| job.limit <= shadow).map(|job| job.nodes).sum();
            let mut extra = free(&running).0 + same_end - jobs[first].nodes;
            for index in waiting {
                let next = of(&jobs[index]);
                let (free_nodes, free_granules) = free(&running);
                let ends_before = next.limit <= shadow;
                if next.nodes <= free_nodes
                    && next.granules <= free_granules
                    && (ends_before || next.nodes <= extra)
                {
                    if !ends_before {
                        extra -= next.nodes;
                    }
                    starts[index] = Some(now);
                    running.push(next);
                }
            }
        }
        let ends = running.iter().map(|job| job.end);
        let arrivals = jobs.iter().map(|job| job.arrival.0);
        match ends.chain(arrivals).filter(|&time| time > now).min() {
            Some(next) => now = next,
            None => break,
        }
    }
    starts.into_iter().map(Option::unwrap).collect()
}

proptest! {
    #[test]
    fn starts_are_those_of_the_definition(jobs in jobs(1..=4)) {
        for (policy, backfills) in [(Policy::Fcfs, false), (Policy::Easy, true)] {
            let expected: Vec<f64> =
                reference(8, 20, &jobs, backfills).into_iter().map(|ms| ms as f64 / 1000.0).collect();
            prop_assert_eq!(starts(&cluster(8, 20), &jobs, policy), expected, "{}", policy);
        }
    }
}
