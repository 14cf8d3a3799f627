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
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod checks;
mod clients;
mod expected;
mod model;
mod replacing;
mod retransmission;
#[path = "../support/mod.rs"]
mod support;
mod world;

use support::{log_space, seeds};
use world::World;

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..world.length() {
        world.act();
    }
    world.finish();
}

#[test]
fn crashes_lost_messages_and_full_disks_leave_one_consistent_name_space() {
    seeds::run_all(5_000, run);
    log_space::assert_logs_were_short();
}
