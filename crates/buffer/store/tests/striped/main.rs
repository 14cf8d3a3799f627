//! An instance striped over several storage daemons in virtual time: messages between them are lost,
//! delayed and duplicated, daemons die at any write and start again, power fails, disks fill up, and
//! clients' connections break at any moment. Each seed is one history; a failure names its seed, and
//! `FOREBAY_SEED=<n>` runs that one alone.
//!
//! Invariants, once all daemons run and all messages have arrived:
//! - every name has an inode, every inode has as many names as it counts, every directory is in one
//!   place, can be reached from the root, and knows its parent;
//! - a change that a client repeats until it gets a reply is made once and as a whole, and every client
//!   sees it as soon as there is a reply (without power cuts);
//! - no data object is without a file, and files are as long as their objects say;
//! - synced data exists;
//! - the data of a file that has replaced another one are durable.
//!
//! At any time: a node does not change what a client has cached under a lease.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod cacher;
mod checks;
mod clients;
mod expected;
mod model;
mod replacing;
mod retransmission;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use support::{log_space, seeds};
use world::World;

/// Checks of what clients had cached in all histories.
static SERVED: AtomicU64 = AtomicU64::new(0);

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..world.length() {
        world.act();
    }
    SERVED.fetch_add(world.served_from_caches(), Ordering::Relaxed);
    world.finish();
}

#[test]
fn crashes_lost_messages_and_full_disks_leave_one_consistent_name_space() {
    seeds::run_all(5_000, run);
    let served = SERVED.load(Ordering::Relaxed);
    println!("{served} checks of what clients had cached");
    let chosen = ["FOREBAY_SEED", "FOREBAY_SEEDS"].map(std::env::var_os);
    assert!(chosen.iter().any(Option::is_some) || served > 10_000, "{served} checks of caches");
    log_space::assert_logs_were_short();
}
