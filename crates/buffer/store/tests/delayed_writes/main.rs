//! Clients that delay writes to a file over several storage nodes, and clients that write it at once, read
//! it, truncate it and look at its length, in virtual time: messages are lost, delayed and duplicated, every
//! pair of machines is separated for some time, data connections hold writes back, daemons are killed and
//! started again, and power fails. Each seed is one history; a failure names its seed, and
//! `FOREBAY_SEED=<n>` runs that one alone.
//!
//! Invariants:
//! - no read returns data older than a write that was acknowledged before, delayed or not, unless that write
//!   is reported as failed;
//! - no write that was acknowledged appears after a later one, or a later truncation, of any client;
//! - the length of an object covers the writes to it that were acknowledged, if their client runs;
//! - no delayed write fails unless its client was separated from a node, or the power failed;
//! - nothing waits for ever.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod observer;
mod oracle;
#[path = "../support/mod.rs"]
mod support;
mod world;
mod writer;

use observer::Observer;
use std::sync::atomic::{AtomicU64, Ordering};
use support::seeds;
use world::World;
use writer::Writer;

/// Writes that were delayed, and those that failed, in all histories.
static DELAYED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

fn run(seed: u64) {
    let mut world = World::new(seed);
    let mut writers: Vec<Writer> = (0..2).map(Writer::new).collect();
    let mut observers: Vec<Observer> = (0..2).map(|_| Observer::default()).collect();
    for _ in 0..1_000 {
        world.act();
        match world.random.below(3) {
            0 | 1 => {
                let chosen = world.random.below(2) as usize;
                writers[chosen].act(&mut world);
            }
            _ => {
                let chosen = world.random.below(2) as usize;
                observers[chosen].act(&mut world);
            }
        }
    }
    world.has_faults = false;
    for _ in 0..2_000 {
        world.act();
        writers.iter_mut().for_each(|writer| writer.finish(&mut world));
        observers.iter_mut().for_each(|observer| observer.finish(&mut world));
    }
    for (number, writer) in writers.iter().enumerate() {
        assert!(writer.is_done(), "writer {number} waits for ever: {writer:?}");
        DELAYED.fetch_add(writer.delayed, Ordering::Relaxed);
    }
    assert!(observers.iter().all(Observer::is_done), "an observer waits for ever: {observers:?}");
    world.read_all();
    FAILED.fetch_add(world.oracle.check(), Ordering::Relaxed);
}

#[test]
fn delayed_writes_are_seen_or_fail_and_never_appear_late() {
    seeds::run_all(3_000, run);
    if std::env::var_os("FOREBAY_SEED").is_none() {
        assert!(DELAYED.load(Ordering::Relaxed) > 0, "no write was delayed");
    }
    eprintln!("{DELAYED:?} writes were delayed, {FAILED:?} failed");
}
