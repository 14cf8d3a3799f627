//! Mean waiting times against queueing theory, with 99% intervals of batch means.

mod queues;

use forebay_random::{RandomStream, exponential, stream_label};
use forebay_schedule::job::Job;
use forebay_schedule::policy::Policy;
use forebay_schedule::time::Millis;
use queues::{cluster, run};

/// Poisson arrivals of jobs of one node, with a mean run time of 1000 s.
fn jobs(count: u64, load: f64, nodes: u32, run: impl Fn(u64) -> f64) -> Vec<Job> {
    let random = RandomStream::new(11, stream_label("arrivals"));
    let mut arrival = 0.0;
    let one = |id: u64| {
        arrival += exponential(random.at(id)) * 1000.0 / load / f64::from(nodes);
        let run = Millis((run(id) * 1000.0) as u64);
        Job::new(id, Millis((arrival * 1000.0) as u64), 1, run, run)
    };
    (0..count).map(one).collect()
}

/// Mean waiting time in seconds, and the half width of its 99% interval from the means of 50 batches.
fn mean_wait(jobs: &[Job], nodes: u32) -> (f64, f64) {
    const BATCHES: usize = 50;
    let history = run(&cluster(nodes, 0), jobs, Policy::Fcfs);
    let waits: Vec<f64> = history.jobs.iter().map(|job| job.waiting().seconds()).collect();
    // The first batch begins with an empty machine.
    let size = waits.len() / (BATCHES + 1);
    let means: Vec<f64> = waits
        .chunks_exact(size)
        .skip(1)
        .map(|batch| batch.iter().sum::<f64>() / size as f64)
        .collect();
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // Student's t for 49 degrees of freedom.
    (mean, 2.68 * (variance / count).sqrt())
}

fn check(name: &str, jobs: &[Job], nodes: u32, expected: f64) {
    let (mean, half_width) = mean_wait(jobs, nodes);
    let described = format!("{name}: {mean:.0} s ± {half_width:.0} s; expected {expected:.0} s");
    eprintln!("{described}");
    assert!((mean - expected).abs() < half_width, "{described}");
    assert!(half_width < 0.12 * expected, "{described}");
}

#[test]
fn one_node_with_exponential_run_times_is_an_m_m_1_queue() {
    let random = RandomStream::new(12, stream_label("run times"));
    let jobs = jobs(200_000, 0.7, 1, |id| exponential(random.at(id)) * 1000.0);
    check("M/M/1", &jobs, 1, 1000.0 * 0.7 / 0.3);
}

#[test]
fn one_node_with_equal_run_times_is_an_m_d_1_queue() {
    check("M/D/1", &jobs(200_000, 0.7, 1, |_| 1000.0), 1, 1000.0 * 0.7 / (2.0 * 0.3));
}

/// The mean waiting time is that of the formula of Erlang C.
#[test]
fn eight_nodes_are_an_m_m_8_queue() {
    let random = RandomStream::new(13, stream_label("run times"));
    let jobs = jobs(200_000, 0.85, 8, |id| exponential(random.at(id)) * 1000.0);
    let offered: f64 = 8.0 * 0.85;
    let term = |k: u32| (1..=k).fold(1.0, |product, i| product * offered / f64::from(i));
    let all_busy = term(8) / (1.0 - 0.85);
    let erlang_c = all_busy / ((0..8).map(term).sum::<f64>() + all_busy);
    check("M/M/8", &jobs, 8, erlang_c * 1000.0 / (8.0 * 0.15));
}
