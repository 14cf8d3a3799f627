//! Fault simulation of the whole buffer in virtual time: the real controller, storage nodes with
//! the state machines of their daemons, compute nodes, the real client library and the real movers,
//! on simulated machines with simulated disks, a simulated network and a simulated parallel file
//! system. Simulated users run jobs, whose processes read and write through the client library.
//!
//! Faults: messages are lost, delayed and repeated; connections break; machines are partitioned from
//! all others, or from one; they crash between any two steps and at any write of a log, lose power and
//! unsynced data, or lose their disks; nodes never return, and are given up by an operator, who may be
//! wrong, or drained and put back into service, while persistent instances move off it; logs fill up; data cannot be
//! written back, read or written; the parallel file system is unreachable, crashes, and fills up.
//!
//! Invariants:
//! - synced data survives, and without power cuts all acknowledged data does; processes read what
//!   they wrote, and their input as it was on the parallel file system;
//! - what was acknowledged is in the results, also what a process wrote whose host is presumed dead:
//!   after the stage-out has begun, nothing more is acknowledged to it;
//! - the copy of an instance that moves has everything that must survive, when its mover says so;
//! - results are on the disks of the parallel file system before the user gets the reply, and before any
//!   part of their instance is destroyed, unless the user has allowed that;
//! - no node holds more granules than it has, in the controller's records or in fact, and a fragment
//!   that is recorded as ready exists;
//! - in the end every user has finished, and nothing is left: no session, fragment, instance,
//!   object, mount or stage, except on nodes that never returned and were given up.
//!
//! Blocking code runs in threads, one at a time, so each seed is one history. The lowest failing
//! seed is reported; replay it, with its trace, with
//!
//! ```text
//! FOREBAY_SEED=1234 cargo test -p forebay-daemon --test cluster_simulation -- --nocapture
//! ```
//!
//! `FOREBAY_NODES_PER_STAGE=8` lets several nodes share a stage, which is off by default.
//!
//! `FOREBAY_SEEDS=10000` runs more seeds, `FOREBAY_FIRST_SEED=10000` others.
//!
//! `broken_rules.toml` lists rules of the buffer that `scripts/break-rules.py` breaks one by one, with
//! the seed and the check that detect each.
//!
//! Not simulated are the daemon's event loop and its data connections (see
//! `store/tests/fences.rs`), sockets, kernel mounts, and data objects that a client on the daemon's
//! own host reads and writes directly; all clients here are on other hosts. Messages to and from
//! storage daemons are encoded and decoded.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod actor_thread;
mod actors;
mod barrier;
mod batches;
mod checks;
mod codec;
mod compute;
mod control;
mod faults;
mod journals;
mod machines;
mod network;
mod oracle;
mod pfs;
mod process;
mod random;
mod requests;
mod storage;
#[path = "../../../store/tests/support/mod.rs"]
mod store_support;
mod users;
mod world;

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use faults::Faults;
use oracle::Counts;
use world::World;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap())
}

/// The seeds that the environment chooses, or the first ones, so many.
fn chosen_seeds(count: u64) -> Range<u64> {
    match number("FOREBAY_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("FOREBAY_FIRST_SEED").unwrap_or(0);
            first..first + number("FOREBAY_SEEDS").unwrap_or(count)
        }
    }
}

fn run(seed: u64, faults: Faults) -> World {
    if number("FOREBAY_SEED").is_some() {
        // The buffer's own log, interleaved with the trace.
        let log = tracing_subscriber::fmt().without_time().with_ansi(false);
        let _ = log.with_writer(std::io::stdout).try_init();
    }
    let mut world = World::new(seed, faults, number("FOREBAY_SEED").is_some());
    world.run();
    world
}

/// Runs one history per seed, as many at a time as there are processors.
fn run_all(seeds: Range<u64>, faults: impl Fn(u64) -> Faults + Sync) -> Counts {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicU64::new(u64::MAX);
    let sums = Mutex::new(Counts::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // Histories that run when one fails are completed: the lowest seed is reported.
            if seed >= seeds.end || failed.load(Ordering::Relaxed) < u64::MAX {
                return;
            }
            match std::panic::catch_unwind(AssertUnwindSafe(|| {
                run(seed, faults(seed)).oracle.counts
            })) {
                Ok(counts) => sums.lock().unwrap().add(&counts),
                Err(_) => drop(failed.fetch_min(seed, Ordering::Relaxed)),
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors.min(seeds.clone().count()) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner();
    assert_eq!(
        failed,
        u64::MAX,
        "seed {failed} failed: replay with FOREBAY_SEED={failed} … -- --nocapture"
    );
    sums.into_inner().unwrap()
}

#[test]
fn invariants_hold_under_faults() {
    let seeds = chosen_seeds(150);
    let begun = Instant::now();
    let sums = run_all(seeds.clone(), Faults::of);
    println!("{} seeds in {:.1?}", seeds.end - seeds.start, begun.elapsed());
    println!("{sums:?}");
    if seeds.end - seeds.start >= 150 {
        // The faults and events that the histories are to cover must have occurred.
        let jobs = [sums.jobs_staged_out, sums.processes, sums.files_compared];
        assert!(jobs.iter().all(|count| *count > 200), "{sums:?}");
        let crashes = [sums.controller_crashes, sums.node_crashes, sums.host_crashes];
        assert!(crashes.iter().all(|count| *count > 50), "{sums:?}");
        let cuts = [sums.power_cuts, sums.links_broken, sums.isolations];
        assert!(cuts.iter().all(|count| *count > 50), "{sums:?}");
        let messages = [sums.messages_lost, sums.messages_repeated];
        assert!(messages.iter().all(|count| *count > 5000), "{sums:?}");
        let outside = [sums.failed_movers, sums.pfs_crashes, sums.pfs_away];
        assert!(outside.iter().all(|count| *count > 20), "{sums:?}");
        let rare = [
            sums.disks_lost,
            sums.refused_full,
            sums.refused_kept,
            sums.hurried,
            sums.nodes_gone,
            sums.nodes_given_up,
            sums.nodes_returned,
            sums.evacuations,
            sums.evacuated,
        ];
        assert!(rare.iter().all(|count| *count > 2), "{sums:?}");
        let others = [
            sums.persistent_uses,
            sums.drains,
            sums.full_logs,
            sums.short_logs,
            sums.lists,
            sums.deferred,
            sums.private_uses,
            sums.replicas_read,
            sums.pairs_cut,
            sums.failed_write_backs,
        ];
        assert!(others.iter().all(|count| *count > 20), "{sums:?}");
    }
}

#[test]
fn batches_of_requests_are_carried_out_once_under_faults() {
    let seeds = chosen_seeds(40);
    let sums = run_all(seeds.clone(), Faults::with_batches);
    println!("{sums:?}");
    let covered = sums.batches > 1000 && sums.node_crashes > 20 && sums.jobs_staged_out > 50;
    assert!(covered || seeds.end - seeds.start < 40, "{sums:?}");
}

/// Among other faults, few hosts are cut off from the controller for as long as it takes to presume them
/// dead, and only while their job ends.
#[test]
fn hosts_that_only_the_controller_cannot_reach_are_fenced() {
    let sums = run_all(0..30, Faults::partitions);
    println!("{sums:?}");
    assert!(sums.pairs_cut > 300 && sums.fences > 30, "{sums:?}");
    assert!(sums.jobs_staged_out > 50 && sums.files_compared > 200, "{sums:?}");
}

#[test]
fn every_job_completes_without_faults() {
    for seed in 0..10 {
        let world = run(seed, Faults::none());
        let counts = &world.oracle.counts;
        assert_eq!(
            counts.jobs_staged_out,
            counts.jobs - counts.refused_for_good,
            "seed {seed}: {counts:?}"
        );
        assert_eq!((counts.hurried, counts.failed_movers), (0, 0), "seed {seed}");
    }
}

#[test]
fn same_seed_gives_same_history() {
    for seed in 0..12 {
        let (first, second) = (run(seed, Faults::of(seed)), run(seed, Faults::of(seed)));
        assert_eq!(first.oracle.counts, second.oracle.counts, "seed {seed}");
        assert_eq!(first.history, second.history, "seed {seed}");
    }
}
