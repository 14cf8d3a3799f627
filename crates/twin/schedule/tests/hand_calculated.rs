//! Queues whose starts were calculated by hand.

mod queues;

use forebay_schedule::cluster::{Cluster, Rates};
use forebay_schedule::job::{Checkpoint, Job};
use forebay_schedule::policy::Policy;
use forebay_schedule::simulation::simulate;
use forebay_schedule::summary::Summary;
use forebay_schedule::time::Millis;
use forebay_units::Bytes;
use queues::{GB, cluster, job, run, starts};

/// Four nodes. Job 1 has three until 10; job 2 wants all four; job 3 (one node, 10 s) would end at 13, job 4
/// (one node, 5 s) at 8.
fn four_nodes() -> Vec<Job> {
    vec![job(1, 0, 3, 10, 0), job(2, 1, 4, 10, 0), job(3, 2, 1, 10, 0), job(4, 3, 1, 5, 0)]
}

#[test]
fn fcfs_keeps_the_order_of_arrival() {
    // After job 2 both have a node.
    assert_eq!(starts(&cluster(4, 0), &four_nodes(), Policy::Fcfs), [0.0, 10.0, 20.0, 20.0]);
}

#[test]
fn backfilling_starts_what_does_not_delay_the_first_job() {
    for policy in [Policy::Easy, Policy::EasyBb, Policy::Sjf, Policy::Conservative] {
        let starts = starts(&cluster(4, 0), &four_nodes(), policy);
        assert_eq!(starts, [0.0, 10.0, 20.0, 3.0], "{policy}");
    }
}

/// Jobs 2 to 4 wait for job 1 until 10. Job 2 cannot start before 20, when job 3 ends, if jobs are backfilled
/// shortest first; both of one node fit beside it otherwise.
#[test]
fn sjf_backfills_the_shortest_job_first() {
    let jobs = [job(1, 0, 3, 10, 0), job(2, 1, 4, 10, 0), job(3, 2, 1, 8, 0), job(4, 2, 1, 4, 0)];
    // One node is free until 10: job 3 takes it first by arrival, job 4 by its limit. Both fit, but only in
    // one order: 2 + 4 is 6, and 6 + 8 is more than 10.
    assert_eq!(starts(&cluster(4, 0), &jobs, Policy::EasyBb), [0.0, 10.0, 2.0, 20.0]);
    assert_eq!(starts(&cluster(4, 0), &jobs, Policy::Sjf), [0.0, 10.0, 20.0, 2.0]);
}

/// EASY lets job 4 delay job 3, which has no reservation; conservative backfilling does not.
#[test]
fn conservative_backfilling_delays_no_reservation() {
    // Job 1 has two of four nodes until 10. Job 2 wants four (from 10 to 20). Job 3 wants two for 10 s from 20
    // on; job 4 wants three for 5 s.
    let jobs = [
        job(1, 0, 2, 10, 0),
        job(2, 1, 3, 10, 0),
        job(3, 2, 2, 30, 0),
        job(4, 3, 1, 40, 0),
        job(5, 4, 1, 5, 0),
    ];
    // At 10: job 2 with three. Job 3 gets two at 20. Job 4 with one node: at 3 two nodes are free, and from 10 on
    // one; with EASY it starts at once, and runs until 43. At 20 three are free: job 3 starts as well.
    assert_eq!(starts(&cluster(4, 0), &jobs, Policy::Easy), [0.0, 10.0, 20.0, 3.0, 4.0]);
    assert_eq!(starts(&cluster(4, 0), &jobs, Policy::Conservative), [0.0, 10.0, 20.0, 3.0, 4.0]);
    // Four nodes for job 3: it starts at 20 if job 4 waits, and at 43 otherwise.
    let jobs: Vec<Job> = jobs
        .into_iter()
        .map(|job| if job.id == 3 { Job { nodes: 4, ..job } } else { job })
        .collect();
    assert_eq!(starts(&cluster(4, 0), &jobs, Policy::Easy), [0.0, 10.0, 43.0, 3.0, 4.0]);
    assert_eq!(starts(&cluster(4, 0), &jobs, Policy::Conservative), [0.0, 10.0, 20.0, 50.0, 4.0]);
}

/// Job 2 needs the buffer that job 1 has until 10, job 3 takes granules for 100 s.
#[test]
fn only_reservations_of_the_burst_buffer_keep_it_for_the_first_job() {
    let jobs = [job(1, 0, 1, 10, 6), job(2, 1, 2, 10, 10), job(3, 2, 1, 100, 4)];
    // Nodes alone: job 3 fits beside job 2, which then waits for its granules until 102.
    assert_eq!(starts(&cluster(4, 12), &jobs, Policy::Easy), [0.0, 102.0, 2.0]);
    for policy in [Policy::Fcfs, Policy::EasyBb, Policy::Sjf, Policy::Conservative, Policy::Plan] {
        assert_eq!(starts(&cluster(4, 12), &jobs, policy), [0.0, 10.0, 20.0], "{policy}");
    }
    let history = run(&cluster(4, 12), &jobs, Policy::Easy);
    assert_eq!(history.jobs[1].buffer_delay, Millis::from_seconds(101));
    let summary = Summary::of(&cluster(4, 12), &[&history], Millis::from_seconds(10));
    assert_eq!((summary.buffer_delayed_jobs, summary.stage_delayed_jobs), (1, 0));
    // 10 and 100 s on one node, 10 s on two, of 4 nodes in 112 s.
    assert!((summary.node_utilization - 130.0 / 448.0).abs() < 1e-12);
    assert!((summary.buffer_utilization - (60.0 + 100.0 + 400.0) / (12.0 * 112.0)).abs() < 1e-12);
    assert_eq!(summary.mean_wait_seconds, 101.0 / 3.0);
    // 1, (101 + 10) / 10, 1.
    assert!((summary.mean_bounded_slowdown - 13.1 / 3.0).abs() < 1e-12);
}

/// Two long jobs of one node arrive before ten short ones: the plan lets the short ones go first.
#[test]
fn plan_has_less_waiting_time_than_the_order_of_arrival() {
    let mut jobs = vec![job(1, 0, 1, 10, 0), job(2, 1, 1, 500, 0), job(3, 1, 1, 400, 0)];
    jobs.extend((4..14).map(|id| job(id, 2, 1, 10, 0)));
    let waits = |policy| {
        let history = run(&cluster(1, 0), &jobs, policy);
        history.jobs.iter().map(|job| job.waiting().seconds()).sum::<f64>()
    };
    let (plan, fcfs) = (waits(Policy::Plan), waits(Policy::Fcfs));
    // In the order of arrival ten jobs wait for 900 s each.
    assert!(fcfs > 9_000.0 && plan < 2_000.0, "{plan} s and {fcfs} s");
}

/// A pool of two storage nodes with 2 GB/s each way, and a parallel file system with 1 GB/s.
fn staging_cluster() -> Cluster {
    let rates = Rates { storage_in: Some(2e9), storage_out: Some(2e9), pfs: Some(1e9) };
    Cluster::new(4, (2, Bytes(40 * GB)), Bytes(GB), rates)
}

fn staged(job: Job, stage_in: u64, stage_out: u64) -> Job {
    Job { stage_in: Bytes(stage_in * GB), stage_out: Bytes(stage_out * GB), ..job }
}

#[test]
fn stages_precede_and_follow_the_nodes() {
    let jobs = [staged(job(1, 0, 4, 10, 20), 20, 10), staged(job(2, 0, 4, 10, 20), 0, 0)];
    for (policy, _) in Policy::NAMES.map(|(name, policy)| (policy, name)) {
        let history = run(&staging_cluster(), &jobs, policy);
        let [first, second] = [&history.jobs[0], &history.jobs[1]];
        let times = |of: [Millis; 4]| of.map(Millis::seconds);
        // Job 2 runs while job 1 is staged in, and then job 1, whose stage-out takes 10 s. Job 2 delays nothing:
        // it needs no stage-in, and its nodes are free until 20.
        assert_eq!(
            times([first.begin, first.ready, first.start, first.end]),
            [0.0, 20.0, 20.0, 30.0],
            "{policy}"
        );
        assert_eq!(first.done.seconds(), 40.0, "{policy}");
        assert_eq!(second.start.seconds(), 0.0, "{policy}");
        assert_eq!(first.stage_delay.seconds(), 10.0, "{policy}: job 2 has the nodes until 10");
    }
}

/// Ends of transfers are rounded up to milliseconds.
fn close(found: &[f64], expected: &[f64]) {
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() < 0.0025;
    assert!(found.iter().zip(expected).all(is_close), "{found:?} instead of {expected:?}");
}

/// Two stages share the parallel file system: 10 GB each at 0.5 GB/s. Checkpoints do not cross it: 8 GB on one
/// storage node at 2 GB/s take 4 s, on two nodes 2 s.
#[test]
fn stages_share_rates_and_checkpoints_take_time() {
    let jobs = [staged(job(1, 0, 1, 10, 10), 10, 0), staged(job(2, 0, 1, 10, 10), 10, 0)];
    let history = run(&staging_cluster(), &jobs, Policy::EasyBb);
    let ready: Vec<f64> = history.jobs.iter().map(|job| job.ready.seconds()).collect();
    close(&ready, &[20.0, 20.0]);

    let checkpoint = Some(Checkpoint { every: Millis::from_seconds(4), bytes: Bytes(8 * GB) });
    let jobs = [Job { checkpoint, ..job(1, 0, 1, 10, 10) }];
    let history = run(&staging_cluster(), &jobs, Policy::EasyBb);
    // 4 s, checkpoint, 4 s, checkpoint, 2 s.
    close(&[history.jobs[0].end.seconds()], &[14.0]);
    assert_eq!(history.jobs[0].storage_nodes, 2);
    // Two such jobs at a time: each checkpoint takes 4 s.
    let jobs =
        [Job { checkpoint, ..job(1, 0, 1, 10, 10) }, Job { checkpoint, ..job(2, 0, 1, 10, 10) }];
    let history = run(&staging_cluster(), &jobs, Policy::EasyBb);
    let ends: Vec<f64> = history.jobs.iter().map(|job| job.end.seconds()).collect();
    close(&ends, &[18.0, 18.0]);
}

/// The first job that waits for nodes is staged in while it waits, and starts when they are free.
#[test]
fn stage_in_begins_while_the_job_waits_for_nodes() {
    let jobs = [job(1, 0, 4, 100, 0), staged(job(2, 1, 2, 10, 10), 10, 0)];
    for (name, policy) in Policy::NAMES {
        let history = run(&staging_cluster(), &jobs, policy);
        let second = &history.jobs[1];
        assert_eq!((second.ready.seconds(), second.start.seconds()), (11.0, 100.0), "{name}");
    }
}

#[test]
fn jobs_that_can_never_run_are_named() {
    let message = |job: Job| {
        let options = forebay_schedule::simulation::Options {
            policy: Policy::Fcfs,
            plan: Default::default(),
        };
        let error = simulate(&cluster(4, 12), &[job], &options, &mut |_, _| ()).unwrap_err();
        error.to_string()
    };
    assert_eq!(message(job(7, 0, 5, 1, 0)), "job 7 can never run: it requests 5 nodes of 4");
    assert_eq!(
        message(job(7, 0, 4, 1, 13)),
        "job 7 can never run: it requests a burst buffer of 13 granules of 12"
    );
    assert_eq!(
        message(staged(job(7, 0, 4, 1, 3), 4, 0)),
        "job 7 can never run: it stages in 4 GB, more than its burst buffer of 3 GB"
    );
}

/// A job that ends before its limit lets the next one start early; one that takes longer delays it.
#[test]
fn reservations_follow_the_real_ends() {
    let mut jobs = vec![job(1, 0, 4, 100, 0), job(2, 1, 4, 10, 0), job(3, 2, 4, 10, 0)];
    jobs[0].run = Millis::from_seconds(30);
    for (name, policy) in Policy::NAMES {
        assert_eq!(starts(&cluster(4, 0), &jobs, policy), [0.0, 30.0, 40.0], "{name}");
    }
}

/// A job whose nodes are free from the start waits for its stage-in alone.
#[test]
fn stage_in_delays_a_job_whose_nodes_are_free() {
    let jobs = [staged(job(1, 5, 4, 10, 10), 10, 0)];
    for (name, policy) in Policy::NAMES {
        let history = run(&staging_cluster(), &jobs, policy);
        let [waiting, delay] = [history.jobs[0].waiting(), history.jobs[0].stage_delay];
        assert_eq!((waiting, delay), (Millis::from_seconds(10), waiting), "{name}");
    }
}
