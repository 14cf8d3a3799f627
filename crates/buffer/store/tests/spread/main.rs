//! An instance on several storage daemons in virtual time: messages between them are lost, late
//! and repeated, daemons die at any write and come back, power fails, disks fill up, and clients'
//! connections break at any moment. Each seed is one history; a failure names its seed, and
//! `FOREBAY_SEED=<n>` runs that one alone.
//!
//! What must hold, whatever happens, once everybody is back and all is said:
//! - every name leads to an inode, every inode has as many names as it counts, every directory is
//!   in one place and can be reached from the root, and knows what it is in;
//! - a change that a client repeats until it is answered happens once and as a whole, and what
//!   was answered is what everybody sees at once (without power cuts);
//! - there is no data object without a file, and files are as long as their objects say;
//! - what was synced is there.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod checks;
mod clients;
mod model;
mod reminders;
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
    seeds::run_all(5_000, run);
    short::assert_short();
}
