//! First calls with flows: by hand on the machine `toy`, and beside packets.
//!
//! By hand: a command of 512 KiB takes 4 of the 8 channels of a server: to write for 524.3 us and a gap of 10 us, on
//! average 267.1 us of the server; to read for half as long, 136.1 us.

use forebay_machine::results::Phase;
use forebay_machine::study::{Fidelity, FileSystem, SimOptions, simulate_ior};
use forebay_machine_file::machine::Machine;
use forebay_units::{Bytes, Rate};
use forebay_workload::ior::Ior;

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

/// The first phase of a test on all storage nodes, or on some.
fn phase(
    machine: &Machine,
    (nodes, servers): (u32, Option<u32>),
    fidelity: Fidelity,
    line: &str,
) -> Phase {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let ior = Ior::parse(&arguments).unwrap().remove(0);
    let options = SimOptions { fidelity, burst_buffers: servers, ..SimOptions::default() };
    simulate_ior(machine, &ior, nodes, 1, &options, &|_, _, _| true).unwrap().phases.remove(0)
}

fn assert_close(value: f64, expected: f64, percent: f64) {
    let error = (value / expected - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{value}, not {expected}: {error:+.2}%");
}

/// Stripes of 512 KiB: a call of 2 MiB has a request at each of four servers. Of eight processes each server gets
/// eight requests. The first data arrive after the 10 us of the call, 10 us of dispatch and 66 us on the link of the
/// client's node, and wait 50 us for the lock of their object; from then on flash is busy. With one controller of 8
/// channels, so that no command waits while another controller is idle, each takes 262.1 us and a gap of 10 us, so
/// that the last command ends 7 x 272.1 + 262.1 us later, with a latency of 20 us: 2.32 ms. A client sends its four
/// requests one after another, 131 us each, so that a server gets its first data up to 393 us later. Opens take 1 us:
/// all begin together.
#[test]
fn requests_of_one_call_wait_at_each_server_for_those_of_all_other_processes() {
    let mut machine = toy();
    let make = machine.burst_buffer.as_mut().unwrap();
    (make.stripe, make.substripe) = (Bytes(512 << 10), Bytes(512 << 10));
    (make.controllers_per_card, make.channels_per_controller) = (1, 8);
    make.metadata_rate = 1_000_000;
    let line = "-F -w -t 2m -b 2m";
    let flows = phase(&machine, (8, None), Fidelity::Flow, line);
    let by_hand = 2.32e-3..2.32e-3 + 393e-6;
    assert!(by_hand.contains(&flows.transfer_seconds), "{}", flows.transfer_seconds);
    let packets = phase(&machine, (8, None), Fidelity::Packet, line);
    assert_close(flows.transfer_seconds, packets.transfer_seconds, 12.0);
    // The first process waits for nobody.
    let alone = phase(&machine, (1, None), Fidelity::Flow, line).transfer_seconds;
    assert!(flows.operation_seconds.min > 0.9 * alone, "{:?}, {alone}", flows.operation_seconds);
    assert!(flows.operation_seconds.max > 1.1 * flows.operation_seconds.min);
}

/// Where the servers decide, phases with few requests have the times of the packets: the servers are the same.
#[test]
fn phases_with_few_requests_are_as_with_packets() {
    for (nodes, line) in [
        (9, "-F -w -t 4m -b 8m"),
        (9, "-w -t 4m -b 8m"),
        (13, "-F -r -t 256k -b 2m"),
        (13, "-r -t 4m -b 8m"),
    ] {
        let [flows, packets] =
            [Fidelity::Flow, Fidelity::Packet].map(|how| phase(&toy(), (nodes, None), how, line));
        assert_close(flows.gbps, packets.gbps, 4.0);
        assert_eq!(flows.bytes, packets.bytes);
    }
}

/// A call of 8 MiB has 16 requests, of which 8 are under way together: a request takes a thread for half of the time
/// of a call, and 16 threads carry twice what they would if it took one for the whole call. So flash limits: 512 KiB
/// in 136.1 us.
#[test]
fn threads_are_taken_for_the_time_of_a_request_not_of_a_call() {
    let flows = phase(&toy(), (8, Some(1)), Fidelity::Flow, "-F -r -t 8m -b 64m");
    assert_close(flows.steady_gbps.unwrap(), 524_288.0 / 136.1e-6 / 1e9, 1.0);
    assert_eq!(flows.limit.resource, "ssd", "{}", flows.limit.because);
}

/// 14 nodes of a group of `toy` read from the three storage nodes of other groups what their flash can send at a time,
/// 3 x 3.85 GB/s, over three links; they write 3 x 1.96 GB/s.
#[test]
fn bursts_that_nearly_fill_links_between_groups_have_a_warning() {
    let warns = |rate: u64, line: &str| {
        let mut machine = toy();
        machine.network.global.rate = Rate(rate);
        let warnings = phase(&machine, (14, None), Fidelity::Flow, line).warnings;
        warnings.iter().any(|w| w.contains("at the same time") && w.contains("--fidelity packet"))
    };
    // 11.6 GB/s of 3 x 5 GB/s are 77%, of 3 x 6 GB/s 64%; 5.9 GB/s of 3 x 5 GB/s 39%.
    assert!(warns(5_000_000_000, "-F -r -t 1m -b 8m"));
    assert!(!warns(6_000_000_000, "-F -r -t 1m -b 8m"));
    assert!(!warns(5_000_000_000, "-F -w -t 1m -b 8m"));
}

#[test]
fn few_calls_with_requests_at_many_servers_have_a_warning() {
    let mut machine = toy();
    let make = machine.burst_buffer.as_mut().unwrap();
    (make.stripe, make.substripe) = (Bytes(512 << 10), Bytes(512 << 10));
    let warns = |machine: &Machine, line: &str| {
        let warnings = phase(machine, (2, None), Fidelity::Flow, line).warnings;
        warnings.iter().any(|w| w.contains("servers at once") && w.contains("--fidelity packet"))
    };
    // One call at four servers; two of them; one at one server, whose stripes are 8 MiB.
    assert!(warns(&machine, "-F -r -t 2m -b 2m"));
    assert!(!warns(&machine, "-F -r -t 2m -b 4m"));
    assert!(!warns(&toy(), "-F -r -t 2m -b 2m"));
}

/// 51,200 requests of 100 nodes of one group, whose links to other groups are nearly full: packets wait for these and
/// hold up others, and have 254.3 GB/s with seed 1. By rates it would be 319.
#[test]
fn requests_that_meet_at_links_between_groups_are_nearly_as_with_packets() {
    let ior =
        Ior::parse(&["-F", "-w", "-t", "256k", "-b", "32m"].map(String::from)).unwrap().remove(0);
    let options = SimOptions { fidelity: Fidelity::Flow, ..SimOptions::default() };
    let machine = Machine::load("cori-phase1").unwrap();
    let point = simulate_ior(&machine, &ior, 100, 4, &options, &|_, _, _| true).unwrap();
    assert_close(point.phases[0].gbps, 254.3, 10.0);
}

/// The client's cache joins 64 calls of 1 MiB to two of 32 MiB, at 32 targets each. With seeds 1 to 6 the rate is 22.8 to
/// 27.5 GB/s with packets and 24.9 to 31.7 with flows.
#[test]
fn few_writes_of_one_file_over_many_targets_have_a_warning_about_the_order_at_their_locks() {
    let warns = |line: &str| {
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        let ior = Ior::parse(&arguments).unwrap().remove(0);
        let file_system = FileSystem::Parallel { stripe_count: Some(32), stripe: None };
        let options = SimOptions { fidelity: Fidelity::Flow, file_system, ..SimOptions::default() };
        let machine = Machine::load("cori-phase1").unwrap();
        let point = simulate_ior(&machine, &ior, 16, 2, &options, &|_, _, _| true).unwrap();
        let warnings = &point.phases[0].warnings;
        warnings.iter().any(|w| w.contains("locks are called back") && w.contains("--seeds"))
    };
    assert!(warns("-w -t 1m -b 64m"));
    assert!(!warns("-F -w -t 1m -b 64m"));
    assert!(!warns("-r -t 1m -b 64m"));
}

/// Two processes on 230 storage nodes hardly meet: each takes nearly the time of its calls alone, also where a link
/// between groups carries less than the link of a node. Flows were 5% and 6% slower when a message had 80% of the rate
/// of links between groups, alone or not.
#[test]
fn processes_that_hardly_meet_are_as_fast_as_each_alone() {
    let machine = Machine::load("trinity-phase2").unwrap();
    for line in ["-F -w -t 1m -b 128m", "-F -r -t 1m -b 128m"] {
        let alone = phase(&machine, (1, None), Fidelity::Flow, line).gbps;
        let two = phase(&machine, (2, None), Fidelity::Flow, line);
        assert_close(two.gbps, 2.0 * alone, 3.0);
        assert_close(phase(&machine, (2, None), Fidelity::Packet, line).gbps, two.gbps, 3.0);
    }
}

/// After a barrier processes begin in the order in which their nodes leave it, not in that of their numbers, in which
/// each write to an object would call back the lock of the one before. How many locks are called back differs from seed
/// to seed: means of four.
#[test]
fn order_of_processes_after_a_barrier_is_that_of_packets() {
    let machine = Machine::load("shaheen2").unwrap();
    let ior =
        Ior::parse(&["-g", "-w", "-t", "1m", "-b", "8m"].map(String::from)).unwrap().remove(0);
    let file_system = FileSystem::Parallel { stripe_count: Some(16), stripe: None };
    let [flows, packets] = [Fidelity::Flow, Fidelity::Packet].map(|fidelity| {
        let seconds = (1..=4).map(|seed| {
            let options = SimOptions { fidelity, file_system, seed, ..SimOptions::default() };
            let point = simulate_ior(&machine, &ior, 16, 4, &options, &|_, _, _| true).unwrap();
            point.phases[0].transfer_seconds
        });
        seconds.sum::<f64>() / 4.0
    });
    assert_close(flows, packets, 12.0);
}
