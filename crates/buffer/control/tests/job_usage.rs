//! Statistics of jobs, which outlive them.

use crate::harness;
use forebay_control::controller::{
    ControllerInput, HostIo, IoCounters, JobUsage, MeasuredUse, Settings,
};
use forebay_control::messages::{InstanceId, UnixMillis};
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, SimStorage};

type TestPool = ControllerHarness<SimStorage>;

const SCRIPT: &str = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n";

fn test_pool(max_kept_usage: usize) -> TestPool {
    let settings = Settings { max_kept_usage, ..Settings::default() };
    ControllerHarness::new(settings, SimStorage::new(2), 2)
}

fn usage(pool: &TestPool, token: &str) -> JobUsage {
    let mut found = pool.controller.job_usage(Some(token));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn io(read: u64, written: u64, metadata: u64) -> IoCounters {
    IoCounters { read, written, metadata }
}

/// A host reports its counters, which it began at `since`.
fn report(pool: &mut TestPool, instance: InstanceId, host: &str, since: u64, io: IoCounters) {
    let counters = HostIo { since: UnixMillis(since), io };
    let measured =
        MeasuredUse { io: vec![(host.to_owned(), instance, counters)], used: Vec::new() };
    pool.input(ControllerInput::Use(measured));
}

#[test]
fn counters_of_hosts_are_added_and_outlive_mounts_job_and_controller() {
    let mut pool = test_pool(10);
    pool.setup(ADA, "1", SCRIPT).unwrap();
    let id = usage(&pool, "1").instance.unwrap();
    assert_eq!(usage(&pool, "1").capacity, Bytes(2 << 30));
    report(&mut pool, id, "n1", 10, io(100, 1000, 1));
    report(&mut pool, id, "n2", 10, io(200, 2000, 2));
    report(&mut pool, id, "n1", 10, io(150, 1500, 3));
    assert_eq!(usage(&pool, "1").io, io(350, 3500, 5));
    // The agent of n1 has restarted, and has counted more than before already.
    report(&mut pool, id, "n1", 20, io(160, 1600, 4));
    assert_eq!(usage(&pool, "1").io, io(510, 5100, 9));
    // A report from before arrives late.
    report(&mut pool, id, "n1", 10, io(150, 1500, 3));
    assert_eq!(usage(&pool, "1").io, io(510, 5100, 9));
    pool.restart();
    report(&mut pool, id, "n1", 20, io(170, 1600, 4));
    assert_eq!(usage(&pool, "1").io, io(520, 5100, 9));

    pool.teardown(ADA, "1", true).unwrap();
    let ended = usage(&pool, "1");
    assert_eq!((ended.io, ended.owner), (io(520, 5100, 9), ADA));
    assert!(ended.ended.unwrap() >= ended.created);
    // The last report of a host may come after the end, but not much later.
    report(&mut pool, id, "n2", 10, io(200, 2001, 2));
    assert_eq!(usage(&pool, "1").io, io(520, 5101, 9));
    for _ in 0..200 {
        pool.advance_ms(1000);
    }
    report(&mut pool, id, "n2", 10, io(900, 9000, 9));
    assert_eq!(usage(&pool, "1").io, io(520, 5101, 9));
    pool.restart();
    assert_eq!(usage(&pool, "1").io, io(520, 5101, 9));
}

#[test]
fn most_bytes_in_use_are_kept() {
    let mut pool = test_pool(10);
    pool.setup(ADA, "1", SCRIPT).unwrap();
    let id = usage(&pool, "1").instance.unwrap();
    for used in [5, 9, 7] {
        let measured = MeasuredUse { io: Vec::new(), used: vec![(id, Bytes(used))] };
        pool.input(ControllerInput::Use(measured));
    }
    assert_eq!(usage(&pool, "1").peak_used, Bytes(9));
}

#[test]
fn ended_jobs_beyond_the_limit_are_forgotten_oldest_first() {
    let mut pool = test_pool(2);
    pool.setup(ADA, "kept", SCRIPT).unwrap();
    for job in ["1", "2", "3"] {
        pool.setup(ADA, job, SCRIPT).unwrap();
        pool.teardown(ADA, job, true).unwrap();
        pool.advance_ms(1000);
    }
    let known = |pool: &TestPool| -> Vec<String> {
        pool.controller.job_usage(None).into_iter().map(|usage| usage.token).collect()
    };
    assert_eq!(known(&pool), ["kept", "2", "3"], "present jobs do not count");
    pool.restart();
    assert_eq!(known(&pool), ["kept", "2", "3"]);
    // A name that is used again has several records.
    pool.setup(ADA, "3", SCRIPT).unwrap();
    assert_eq!(pool.controller.job_usage(Some("3")).len(), 2);
}
