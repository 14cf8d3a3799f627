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
#[path = "../seeds/mod.rs"]
mod seeds;
#[path = "../seeds/short.rs"]
mod short;
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
    seeds::run_all(1500, run);
    short::assert_short();
}
