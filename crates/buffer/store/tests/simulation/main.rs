//! A storage daemon in virtual time on a simulated disk, with clients whose connections break at any
//! moment, with crashes and power cuts at any write, and with full disks. Each seed is one history; a
//! failure names its seed, and `FOREBAY_SEED=<n>` runs that one alone.
//!
//! Invariants:
//! - after the daemon's process died, the recovered state is the one after a record that is not older
//!   than the last change with a reply; after a power cut, not older than the last sync;
//! - a change that a client repeats until it gets a reply is made once;
//! - synced data exists, unchanged, as long as the recovered name space has its file;
//! - an instance never takes more than its capacity;
//! - the memory that is accounted for is that of a recount, which the node asserts after every step;
//! - a damaged checkpoint loses nothing while the one before it is there.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod clients;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::sync::atomic::Ordering;
use support::{log_space, seeds};
use world::{DAMAGED_CHECKPOINTS, LOST_DATA, World};

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..world.length() {
        world.act();
    }
    world.finish();
}

#[test]
fn crashes_power_cuts_and_full_disks_lose_no_durable_change() {
    seeds::run_all(1500, run);
    log_space::assert_logs_were_short();
    let lost = LOST_DATA.load(Ordering::Relaxed);
    assert!(lost > 0 || std::env::var("FOREBAY_SEED").is_ok(), "no data were lost");
    let damaged = DAMAGED_CHECKPOINTS.load(Ordering::Relaxed);
    assert!(damaged > 0 || std::env::var("FOREBAY_SEED").is_ok(), "no checkpoint was damaged");
}
