//! The control plane under faults: the real controller, storage nodes and hosts on a simulated
//! network that loses, delays and repeats messages, and on machines that crash between any two
//! effects, stay away, and lose their disks.
//!
//! Each seed is one history. A failing one is told; replay it, with its trace, by
//!
//! ```text
//! FOREBAY_SEED=1234 cargo test -p forebay-service --test simulation -- --nocapture
//! ```
//!
//! and run more of them with `FOREBAY_SEEDS=10000`.

#![allow(clippy::unwrap_used)] // a test: what cannot be unwrapped has failed

mod jobs;
mod random;
mod truth;
mod world;

use world::{Faults, World};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
}

fn run(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, faults, number("FOREBAY_SEED").is_some());
    world.run();
    world
}

#[test]
fn invariants_hold_under_faults() {
    let seeds = match number("FOREBAY_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FOREBAY_SEEDS").unwrap_or(400),
    };
    let mut sums = truth::Counts::default();
    for seed in seeds.clone() {
        let outcome = std::panic::catch_unwind(|| run(seed, Faults::of(seed)));
        match outcome {
            Ok(world) => sums.add(&world.truth.counts),
            Err(_) => {
                panic!("seed {seed} failed: replay with FOREBAY_SEED={seed} … -- --nocapture")
            }
        }
    }
    println!("{sums:?}");
    if seeds.end - seeds.start >= 400 {
        // The histories are only worth something if what they are to try really happened.
        assert!(
            sums.jobs_staged_out > 100 && sums.controller_crashes > 100,
            "{sums:?}"
        );
        assert!(
            sums.node_crashes > 100 && sums.host_crashes > 20 && sums.disks_lost > 2,
            "{sums:?}"
        );
        assert!(
            sums.refused_full > 5 && sums.refused_kept > 5 && sums.hurried > 2,
            "{sums:?}"
        );
        assert!(
            sums.messages_lost > 1000 && sums.messages_repeated > 1000,
            "{sums:?}"
        );
        assert!(
            sums.failed_copies > 50 && sums.persistent_uses > 20,
            "{sums:?}"
        );
    }
}

#[test]
fn without_faults_every_job_goes_through() {
    for seed in 0..20 {
        let world = run(seed, Faults::none());
        let counts = &world.truth.counts;
        assert_eq!(
            counts.jobs_staged_out,
            counts.jobs - counts.refused_for_good,
            "seed {seed}: {counts:?}"
        );
        assert_eq!(
            (counts.hurried, counts.failed_copies),
            (0, 0),
            "seed {seed}"
        );
    }
}

#[test]
fn a_seed_is_one_history() {
    let first = run(7, Faults::of(7));
    let second = run(7, Faults::of(7));
    assert_eq!(
        format!("{:?}", first.truth.counts),
        format!("{:?}", second.truth.counts)
    );
    assert_eq!(first.steps, second.steps);
    assert_eq!(first.records(), second.records());
}
