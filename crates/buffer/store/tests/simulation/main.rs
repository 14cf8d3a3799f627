//! A storage daemon in virtual time on a simulated disk, with clients whose connections break at
//! any moment, with crashes and power cuts at any write, and with full disks. Each seed is one
//! history; a failure names its seed, and `FOREBAY_SEED=<n>` runs that one alone.
//!
//! What must hold, whatever happens:
//! - after the daemon's process died, the recovered state is the one after some record that is not
//!   older than the last answered change; after a power cut, not older than the last sync;
//! - a change that a client repeats until it is answered happens once;
//! - data that was synced is there and whole as long as the recovered name space has its file;
//! - an instance never holds more than its capacity.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod clients;
mod world;

use world::World;

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..world.length() {
        world.act();
    }
    world.finish();
}

#[test]
fn histories() {
    if let Ok(seed) = std::env::var("FOREBAY_SEED") {
        return run(seed.parse().expect("FOREBAY_SEED is a number"));
    }
    let count = std::env::var("FOREBAY_SEEDS").map_or(1500, |n| n.parse().expect("a number"));
    for seed in 1..=count {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("this was seed {seed}; run it alone with FOREBAY_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
