//! Effects of the client node and of shared files on `toy`, compared with hand calculations.

use forebay_machine::results::Phase;
use forebay_machine::study::{SimOptions, simulate_ior};
use forebay_machine_file::machine::{BurstBuffer, Client, ClientType, Machine, SharedWrites};
use forebay_units::{Bytes, Rate, Time};
use forebay_workload::ior::Ior;

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

fn with_storage(change: impl Fn(&mut BurstBuffer)) -> Machine {
    let mut machine = toy();
    change(machine.burst_buffer.as_mut().unwrap());
    machine
}

fn with_client(change: impl Fn(&mut Client)) -> Machine {
    let mut machine = toy();
    change(&mut machine.client);
    machine
}

/// The first phase of a test on `servers` burst-buffer nodes.
fn phase(machine: &Machine, nodes: u32, ppn: u32, servers: u32, line: &str) -> Phase {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let test = Ior::parse(&arguments).unwrap().remove(0);
    let options = SimOptions { burst_buffers: Some(servers), ..SimOptions::default() };
    simulate_ior(machine, &test, nodes, ppn, &options, &|_, _, _| true).unwrap().phases.remove(0)
}

fn assert_near(found: f64, by_hand: f64, percent: f64, what: &str) {
    let error = 100.0 * (found / by_hand - 1.0);
    assert!(error.abs() < percent, "{what}: {found}, by hand {by_hand}");
}

#[test]
fn processes_of_a_node_share_its_clients_rate_in_each_direction() {
    let machine = with_client(|client| {
        client.write_rate = Rate(2_000_000_000);
        client.read_rate = Rate(1_000_000_000);
    });
    // Four servers write 8 GB/s and read 16 GB/s.
    let write = phase(&machine, 1, 8, 4, "-w -F -t 512k -b 16m");
    assert_near(write.steady_gbps.unwrap(), 2.0, 3.0, "write");
    assert_eq!(write.limit.resource, "client");
    assert!(write.limit.because.contains("client of the node"), "{}", write.limit.because);
    let read = phase(&machine, 1, 8, 4, "-r -F -t 512k -b 16m");
    assert_near(read.steady_gbps.unwrap(), 1.0, 3.0, "read");
}

#[test]
fn buffers_beyond_the_cache_move_at_the_uncached_rate() {
    // 16 buffers of 2 MiB fit the cache of 64 MiB, 16 of 8 MiB do not: half of 4 GB/s.
    let rate = |line: &str| {
        let read = phase(&toy(), 1, 16, 4, line);
        read.bytes as f64 / 1e9 / read.transfer_seconds
    };
    assert_near(rate("-r -F -t 2m -b 16m"), 4.0, 8.0, "cached");
    assert_near(rate("-r -F -t 8m -b 16m"), 2.0, 8.0, "uncached");
}

#[test]
fn node_with_one_request_in_flight_makes_its_processes_take_turns() {
    let one = |client: &mut Client| (client.requests_per_node, client.requests_in_flight) = (1, 1);
    let machine = with_client(one);
    let line = "-w -F -t 64k -b 1m";
    let alone = phase(&machine, 1, 1, 4, line);
    let four = phase(&machine, 1, 4, 4, line);
    // A request takes as long as a transfer without the call's cost, which overlaps with the
    // requests of the others.
    let request = alone.operation_seconds.mean - machine.client.call_overhead.as_seconds();
    assert_near(four.transfer_seconds, 4.0 * 16.0 * request, 5.0, "four processes");
}

#[test]
fn nodes_of_another_type_have_its_rates() {
    let mut machine = toy();
    let slow = Client { name: "slow".into(), read_rate: Rate(1_000_000_000), ..toy().client };
    let others = ClientType { first_group: 1, last_group: 3, nodes: 42, client: slow };
    machine.client_types.push(others);
    // 14 nodes of group 0 and one of group 1; the servers read 16 GB/s, 1.07 for a node.
    machine.client.read_rate = Rate(500_000_000);
    let read = phase(&machine, 15, 4, 4, "-r -F -t 512k -b 16m");
    let rates = &read.acknowledged_node_gbps;
    assert_near(rates.min, 0.5, 5.0, "the nodes of group 0");
    assert_near(rates.max, 1.0, 5.0, "the node of group 1");
}

#[test]
fn writes_of_two_nodes_to_one_object_hand_over_its_lock_each_time() {
    // Two processes on two nodes write to the one object of a file in turn: the lock is always held,
    // 50 us for a write and 400 us for the hand-over.
    let two = phase(&toy(), 2, 1, 1, "-w -t 64k -b 64k -s 64");
    assert_near(two.transfer_seconds, 128.0 * 450e-6, 1.0, "two nodes");
    assert!(two.limit.because.contains("locks"), "{}", two.limit.because);
    // On one node there is no hand-over, and a process has nobody to wait for in a file of its own.
    let one = phase(&toy(), 1, 2, 1, "-w -t 64k -b 64k -s 64");
    let private = phase(&toy(), 2, 1, 1, "-w -F -t 64k -b 4m");
    for faster in [&one, &private] {
        assert!(faster.transfer_seconds < 0.5 * two.transfer_seconds, "{}", faster.access);
    }
}

#[test]
fn hand_over_takes_longer_for_longer_writes() {
    // 50 us, 400 us and 65.536 us for 64 KiB at 1 GB/s; 16.384 us for 16 KiB.
    let machine = with_storage(|storage| storage.handover_rate = Some(Rate(1_000_000_000)));
    let two = phase(&machine, 2, 1, 1, "-w -t 64k -b 64k -s 64");
    assert_near(two.transfer_seconds, 128.0 * 515.536e-6, 1.0, "64 KiB");
    let shorter = phase(&machine, 2, 1, 1, "-w -t 16k -b 16k -s 64");
    assert_near(shorter.transfer_seconds, 128.0 * 466.384e-6, 1.0, "16 KiB");
    let one = |machine| phase(machine, 1, 2, 1, "-w -t 64k -b 64k -s 64").transfer_seconds;
    assert_eq!(one(&machine), one(&toy()), "one node has nothing to hand over");
}

#[test]
fn writers_of_different_objects_do_not_wait_for_each_other() {
    // Substripes of 512 KiB alternate between two objects: two processes with blocks of one
    // substripe each have an object of their own.
    let machine = with_storage(|storage| storage.objects_per_file = 2);
    let line = "-w -t 64k -b 512k -s 8";
    let (one, two) = (phase(&toy(), 2, 1, 1, line), phase(&machine, 2, 1, 1, line));
    assert_near(one.transfer_seconds, 128.0 * 450e-6, 1.0, "one object");
    assert!(two.transfer_seconds < 0.5 * one.transfer_seconds, "{}", two.transfer_seconds);
}

#[test]
fn call_takes_its_objects_lock_once_whatever_its_length() {
    // Calls of 2 MiB and of 512 KiB of two nodes in turn: 0.05 ms each, and 10 ms for each after the
    // first. The data of the first and the last take another 1.6 and 0.4 ms.
    let mut machine = with_storage(|storage| {
        storage.substripe = Bytes::mib(8);
        storage.lock_handover = Time::from_ns(10_000_000);
    });
    machine.client.max_request = Bytes::mib(8);
    let time = |line: &str| phase(&machine, 2, 1, 1, line).transfer_seconds;
    let by_hand = |calls: f64| (calls - 1.0) * 10e-3 + calls * 0.05e-3;
    assert_near(time("-w -t 2m -b 2m -s 4"), by_hand(8.0) + 1.6e-3, 1.0, "calls of 2 MiB");
    assert_near(time("-w -t 512k -b 512k -s 16"), by_hand(32.0) + 0.4e-3, 1.0, "calls of 512 KiB");
}

#[test]
fn write_is_copied_into_the_page_cache_under_its_objects_lock() {
    // 64 KiB at 1 GB/s are 65.536 us, after 50 us. Flash is faster: 65.536 us on one channel of eight.
    let machine = with_storage(|storage| storage.copy_rate = Rate(1_000_000_000));
    let write = phase(&machine, 1, 4, 1, "-w -t 64k -b 64k -s 64");
    assert_near(write.transfer_seconds, 256.0 * 115.536e-6, 1.0, "one object");
    // Files of one process have locks of their own.
    let private = phase(&machine, 1, 4, 1, "-w -F -t 64k -b 4m");
    assert!(private.transfer_seconds < 0.8 * write.transfer_seconds);
}

#[test]
fn read_is_copied_out_of_the_page_cache_before_it_is_sent() {
    let read = |gbps: u64| {
        let machine = with_storage(|storage| storage.copy_rate = Rate(gbps * 1_000_000_000));
        phase(&machine, 1, 1, 1, "-r -F -t 512k -b 8m").transfer_seconds
    };
    // 16 calls; 512 KiB take 524.288 us at 1 GB/s and 262.144 us at 2 GB/s.
    assert_near(read(1) - read(2), 16.0 * 262.144e-6, 0.1, "copies");
}

#[test]
fn partly_covered_blocks_are_read_before_they_are_written() {
    // Writes of 6 KiB cover one block of 4 KiB partly, and no block of 2 KiB. Eight processes of
    // one node keep the lock of the object busy: 50 us a write. The block is read meanwhile: 10 us on
    // a channel (8 channels, 400,000 reads a second, less the gap of 10 us) and 20 us of latency.
    let with_block = |kib| with_storage(|storage| storage.block = Bytes::kib(kib));
    let line = "-w -t 6k -b 6k -s 64";
    let (whole, partly) = (with_block(2), with_block(4));
    let whole = phase(&whole, 1, 8, 1, line);
    assert_near(whole.transfer_seconds, 512.0 * 50e-6, 3.0, "whole blocks");
    let partly = phase(&partly, 1, 8, 1, line);
    assert_near(partly.transfer_seconds, 512.0 * 80e-6, 3.0, "partly covered blocks");
    // In a file of one process the page cache has the block.
    let line = "-w -F -t 6k -b 384k";
    let time = |kib| phase(&with_block(kib), 1, 8, 1, line).transfer_seconds;
    assert_near(time(4), time(2), 0.1, "files of one process");
}

#[test]
fn fsync_takes_its_cost_at_each_server_with_data_of_the_process() {
    // With -s, a process has a block of 8 MiB on each of the four servers in turn.
    let time = |us: u64| {
        let machine = with_storage(|storage| storage.sync = Time::from_ns(us * 1000));
        phase(&machine, 1, 1, 4, "-w -e -F -t 8m -b 8m -s 4").transfer_seconds
    };
    // The servers sync at the same time.
    assert_near(time(5_000) - time(1_000), 4e-3, 0.1, "fsync");
}

#[test]
fn slowest_rank_has_no_time_outside_calls() {
    let two = phase(&toy(), 1, 2, 4, "-w -F -t 512k -b 8m");
    let longest = two.bytes as f64 / 1e9 / two.slowest_rank_gbps;
    assert!(longest >= 16.0 * two.operation_seconds.mean, "{longest}");
    assert!(longest <= two.seconds, "{longest} {}", two.seconds);
    let synced = phase(&toy(), 1, 2, 4, "-w -e -F -t 512k -b 8m");
    assert!(synced.slowest_rank_gbps < two.slowest_rank_gbps, "an fsync is a call");
}

#[test]
fn processes_of_a_node_that_write_in_turn_are_as_fast_as_one() {
    // Eight processes of a node write 64 calls each to one file: as long as one process for 512 calls, but for the
    // call's 10 us, in which another one writes. Objects are not shared between nodes.
    let in_turn = with_client(|client| client.shared_writes = SharedWrites::InTurn);
    let one = phase(&toy(), 1, 1, 4, "-w -t 512k -b 256m");
    let eight = phase(&in_turn, 1, 8, 4, "-w -t 512k -b 32m");
    assert_eq!(one.bytes, eight.bytes);
    assert_near(eight.transfer_seconds, one.transfer_seconds - 511.0 * 10e-6, 2.0, "one node");
    assert_eq!(eight.limit.resource, "client");
    // A turn is a node's, and a file's.
    let four = phase(&in_turn, 4, 1, 4, "-w -t 512k -b 32m");
    let parallel = phase(&toy(), 4, 1, 4, "-w -t 512k -b 32m");
    assert_eq!(four.transfer_seconds, parallel.transfer_seconds);
    let files = |machine| phase(machine, 1, 8, 4, "-w -F -t 512k -b 32m").transfer_seconds;
    assert_eq!(files(&in_turn), files(&toy()));
    let reads = |machine| phase(machine, 1, 8, 4, "-r -t 512k -b 32m").transfer_seconds;
    assert_eq!(reads(&in_turn), reads(&toy()));
}

#[test]
fn rate_of_the_middle_of_few_calls_is_not_above_that_of_the_client() {
    // Four processes of a node write a call of eight requests each, one process after another. The rate is that of the
    // client all the time, though three of the calls last longer than their data need.
    let in_turn = with_client(|client| client.shared_writes = SharedWrites::InTurn);
    let phase = phase(&in_turn, 1, 4, 4, "-w -t 64m -b 64m");
    let by_hand = phase.bytes as f64 / 1e9 / phase.transfer_seconds;
    assert_near(phase.middle_gbps.unwrap(), by_hand, 3.0, "middle of the bytes");
}
