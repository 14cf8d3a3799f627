//! Speed of the solver: `cargo bench -p forebay-flow --bench flows`.
//!
//! Distinct flows from hosts to storage hosts over the links of the hosts, one link into and one out of
//! each of 100 groups of hosts, and the links of the storage hosts. Each figure is the median of several
//! runs, of the first solution of the whole system on one core.
//!
//! The second table has transfers of different sizes over the same links from their begin to their ends, where links
//! between groups limit them: each end changes the rates of all flows that are faster, by way of the links that they
//! share, so that the time grows faster than the number of flows.

use forebay_flow::{FlowSpec, LinkId, Solver, Transport};
use forebay_random::hash;
use std::time::Instant;

const STORAGE: u64 = 400;
const GROUPS: usize = 100;
const RUNS: usize = 7;

/// Seconds to build and to solve a system of `count` flows from as many hosts.
fn run(count: usize) -> [f64; 2] {
    let began = Instant::now();
    let mut solver = Solver::new();
    let mut links = |count: usize, capacity: f64| -> Vec<LinkId> {
        (0..count).map(|_| solver.add_link(capacity)).collect()
    };
    let hosts = links(count, 1.25e9);
    let (out, into) = (links(GROUPS, 6e11), links(GROUPS, 6e11));
    let storage = links(STORAGE as usize, 6.5e9);
    for (host, &link) in hosts.iter().enumerate() {
        let target = (hash(1, 2, host as u64) % STORAGE) as usize;
        let path = [
            (link, 1.0),
            (out[host % GROUPS], 1.0),
            (into[target % GROUPS], 1.0),
            (storage[target], 1.0),
        ];
        // Caps that differ make all flows distinct.
        let cap = 1e9 + host as f64;
        solver.add_flow(FlowSpec { count: 1, weight: 1.0, cap, path: &path });
    }
    let built = began.elapsed().as_secs_f64();
    let solved = solver.solve().len();
    assert_eq!(solved, count);
    [built, began.elapsed().as_secs_f64() - built]
}

/// Seconds in which `count` transfers of different sizes end, and the number of times at which some do.
fn run_to_ends(count: usize) -> (f64, usize) {
    let began = Instant::now();
    let mut transport = Transport::new(1);
    let mut links = |count: usize, capacity: f64| -> Vec<LinkId> {
        (0..count).map(|_| transport.add_link(capacity)).collect()
    };
    // Each flow has the same share of the links between groups, whatever their number.
    let each = 1e10 / 15_000.0 * count as f64;
    let hosts = links(count, 1.25e9);
    let (out, into) = (links(GROUPS, each), links(GROUPS, each));
    for (host, &link) in hosts.iter().enumerate() {
        let target = (hash(1, 2, host as u64) % STORAGE) as usize;
        let path = [(link, 1.0), (out[host % GROUPS], 1.0), (into[target % GROUPS], 1.0)];
        let bytes = 1e8 + (hash(3, 4, host as u64) % 900_000_000) as f64;
        transport.start(FlowSpec { count: 1, weight: 1.0, cap: f64::INFINITY, path: &path }, bytes);
    }
    let mut times = 0;
    while !transport.next_ends(u64::MAX).is_empty() {
        times += 1;
    }
    (began.elapsed().as_secs_f64(), times)
}

fn main() {
    println!("{:>9}  {:>10}  {:>10}  {:>12}", "flows", "build", "solve", "us per flow");
    for count in [1_000, 10_000, 15_000, 100_000] {
        let mut times: Vec<[f64; 2]> = (0..RUNS).map(|_| run(count)).collect();
        times.sort_by(|a, b| a[1].total_cmp(&b[1]));
        let [build, solve] = times[RUNS / 2];
        let each = (build + solve) * 1e6 / count as f64;
        println!("{count:>9}  {:>7.2} ms  {:>7.2} ms  {each:>12.3}", build * 1e3, solve * 1e3);
    }
    println!("{:>9}  {:>10}  {:>10}", "transfers", "ends", "time");
    for count in [1_000, 3_000, 15_000] {
        let (seconds, times) = run_to_ends(count);
        println!("{count:>9}  {times:>10}  {seconds:>8.2} s");
    }
}
