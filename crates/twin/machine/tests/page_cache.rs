//! The page cache of `toy`'s servers, compared with hand calculations.

use forebay_machine::results::{IorPoint, Phase};
use forebay_machine::study::{SimOptions, simulate_ior};
use forebay_machine_file::machine::Machine;
use forebay_units::{Bytes, Time};
use forebay_workload::ior::Ior;

/// One command of 512 KiB: on one controller of 1 GB/s with a latency of 20 us.
const FLASH_WRITE: f64 = 544.288e-6;
/// Flash takes 512 KiB on each of two controllers in 524.288 us, and pauses for 10 us.
const FLASH_GBPS: f64 = 2.0 * 524.288 / 534.288;

/// `toy` with so many dirty bytes at most at a server.
fn toy(dirty_limit: u64, extent_cost_us: u64) -> Machine {
    let mut machine = Machine::load("toy").unwrap();
    let storage = machine.burst_buffer.as_mut().unwrap();
    (storage.dirty_limit, storage.dirty_background) = (Bytes(dirty_limit), Bytes(dirty_limit / 2));
    storage.extent_cost = Time::from_ns(extent_cost_us * 1_000);
    machine
}

fn run(machine: &Machine, nodes: u32, ppn: u32, threads: usize, line: &str) -> IorPoint {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let test = Ior::parse(&arguments).unwrap().remove(0);
    let options = SimOptions { burst_buffers: Some(1), threads, ..SimOptions::default() };
    simulate_ior(machine, &test, nodes, ppn, &options, &|_, _, _| true).unwrap()
}

fn phases(machine: &Machine, ppn: u32, line: &str) -> Vec<Phase> {
    run(machine, 1, ppn, 1, line).phases
}

fn assert_near(found: f64, by_hand: f64, percent: f64, what: &str) {
    let error = 100.0 * (found / by_hand - 1.0);
    assert!(error.abs() < percent, "{what}: {found}, by hand {by_hand}");
}

#[test]
fn write_completes_when_it_is_in_the_page_cache() {
    let call = |limit| phases(&toy(limit, 10), 1, "-w -F -t 512k -b 8m")[0].operation_seconds.mean;
    assert_near(call(0) - call(1 << 30), FLASH_WRITE, 0.1, "flash");
}

#[test]
fn writes_beyond_the_dirty_limit_go_at_the_pace_of_flash() {
    let write = &phases(&toy(4 << 20, 10), 8, "-w -F -t 512k -b 32m")[0];
    assert_near(write.steady_gbps.unwrap(), FLASH_GBPS, 2.0, "steady rate");
    assert_eq!(write.limit.resource, "ssd", "{}", write.limit.because);
    // The client's 4 GB/s, where all fits the cache.
    let write = &phases(&toy(1 << 30, 10), 8, "-w -F -t 512k -b 32m")[0];
    assert_near(write.steady_gbps.unwrap(), 4.0, 3.0, "steady rate in the cache");
    assert_eq!(write.limit.resource, "client", "{}", write.limit.because);
}

#[test]
fn fsync_waits_until_the_data_are_on_flash() {
    let time = |line: &str| phases(&toy(1 << 30, 10), 1, line)[0].transfer_seconds;
    let fsync = time("-w -e -F -t 512k -b 8m") - time("-w -F -t 512k -b 8m");
    // 8 commands on each controller, of which the last has no pause after it; 10 us for the extent,
    // 20 us of latency, and 20 us of the fsync; 20 us of the call and dispatch.
    let by_hand = 8.0 * 534.288e-6 - 10e-6 + 10e-6 + 20e-6 + 20e-6 + 20e-6;
    assert_near(fsync, by_hand, 1.0, "fsync");
}

#[test]
fn scattered_blocks_cost_the_flusher_an_extent_each() {
    // 4,096 blocks of 4 KiB; some 8 of each file's 1,024 are dirty, so that few are adjacent.
    let machine = toy(128 << 10, 100);
    let time = |line: &str| phases(&machine, 4, line)[0].transfer_seconds;
    let scattered = time("-w -e -F -z -t 4k -b 4m");
    assert_near(scattered, 4096.0 * 100e-6, 6.0, "random writes");
    assert!(time("-w -e -F -t 4k -b 4m") < 0.5 * scattered, "sequential writes");
    // All blocks of a file are one extent if they are dirty together.
    let together = phases(&toy(1 << 30, 100), 4, "-w -e -F -z -t 4k -b 4m")[0].transfer_seconds;
    let without = phases(&toy(1 << 30, 0), 4, "-w -e -F -z -t 4k -b 4m")[0].transfer_seconds;
    assert!(together - without < 50.0 * 100e-6, "{together} {without}");
}

#[test]
fn dirty_data_are_read_from_memory() {
    let read = |limit| {
        let mut machine = toy(limit, 10);
        machine.client.read_rate = machine.network.node.rate;
        phases(&machine, 1, "-w -r -F -t 512k -b 8m")[1].operation_seconds.mean
    };
    let (flash, memory) = (read(0), read(1 << 30));
    // 512 KiB at 2 GB/s, and 20 us of latency.
    assert_near(flash - memory, 282.144e-6, 0.1, "flash");
}

#[test]
fn any_number_of_threads_flushes_alike() {
    let machine = toy(1 << 20, 10);
    for line in ["-w -r -e -t 128k -b 512k -s 2", "-w -e -F -z -t 16k -b 256k -i 2"] {
        let results = [1, 3].map(|threads| run(&machine, 15, 1, threads, line).phases);
        assert_eq!(results[0], results[1], "{line}");
        for phase in &results[0] {
            assert_eq!(phase.bytes, 15 * if line.contains("-s 2") { 1 << 20 } else { 256 << 10 });
        }
    }
}
