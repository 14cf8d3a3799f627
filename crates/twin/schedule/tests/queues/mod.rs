//! Small machines and jobs for tests. Times are in seconds, sizes in granules of 1 GB.
#![allow(dead_code, missing_docs, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use forebay_schedule::cluster::{Cluster, Rates};
use forebay_schedule::job::Job;
use forebay_schedule::policy::{PlanOptions, Policy};
use forebay_schedule::simulation::{History, Options, simulate};
use forebay_schedule::time::Millis;
use forebay_units::Bytes;
use proptest::prelude::*;
use std::ops::RangeInclusive;

pub const GB: u64 = 1_000_000_000;

/// A machine with `granules` on four storage nodes, without limits of rates.
pub fn cluster(nodes: u32, granules: u64) -> Cluster {
    Cluster::new(nodes, (4, Bytes(granules * GB)), Bytes(GB), Rates::default())
}

/// A job that runs as long as it requests.
pub fn job(id: u64, arrival: u64, nodes: u32, seconds: u64, granules: u64) -> Job {
    let (arrival, seconds) = (Millis::from_seconds(arrival), Millis::from_seconds(seconds));
    Job { buffer: Bytes(granules * GB), ..Job::new(id, arrival, nodes, seconds, seconds) }
}

/// Jobs on 8 nodes and 20 granules that run for `part` quarters of their limits.
pub fn jobs(parts: RangeInclusive<u64>) -> impl Strategy<Value = Vec<Job>> {
    let one = (0u64..20, 1u32..=8, 1u64..60, 0u64..=12, parts);
    proptest::collection::vec(one, 1..40).prop_map(|jobs| {
        let mut arrival = 0;
        let of =
            |(id, (after, nodes, seconds, granules, part)): (u64, (u64, u32, u64, u64, u64))| {
                arrival += after;
                let mut job = job(id, arrival, nodes, seconds, granules);
                job.run = Millis((job.requested.0 * part / 4).max(1));
                job
            };
        (1..).zip(jobs).map(of).collect()
    })
}

pub fn run(cluster: &Cluster, jobs: &[Job], policy: Policy) -> History {
    let options = Options { policy, plan: PlanOptions::default() };
    simulate(cluster, jobs, &options, &mut |_, _| ()).unwrap()
}

/// Starts of the jobs, in seconds.
pub fn starts(cluster: &Cluster, jobs: &[Job], policy: Policy) -> Vec<f64> {
    run(cluster, jobs, policy).jobs.iter().map(|job| job.start.seconds()).collect()
}
