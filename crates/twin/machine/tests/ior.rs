//! IOR on simulated burst buffers through the public interface.

use forebay_machine::results::{IorPoint, Phase};
use forebay_machine::study::{SimOptions, StudyError, simulate_ior};
use forebay_machine_file::machine::Machine;
use forebay_units::Bytes;
use forebay_workload::ior::Ior;

fn load(name: &str) -> Machine {
    Machine::load(name).unwrap()
}

fn ior(line: &str) -> Ior {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&arguments).unwrap().remove(0)
}

/// Packets of 8 KiB: these tests examine storage.
fn options(burst_buffers: Option<u32>) -> SimOptions {
    SimOptions { packet: Some(Bytes(8 * 1024)), burst_buffers, ..SimOptions::default() }
}

fn run(machine: &str, nodes: u32, ppn: u32, burst_buffers: Option<u32>, line: &str) -> IorPoint {
    simulate_ior(&load(machine), &ior(line), nodes, ppn, &options(burst_buffers), &|_, _, _| true)
        .unwrap()
}

fn without_cost(mut point: IorPoint) -> IorPoint {
    point.run = Default::default();
    point
}

#[test]
fn any_number_of_threads_gives_equal_results() {
    let machine = load("toy");
    let test = ior("-w -r -C -e -g -t 300k -b 3000k -s 2 -i 2");
    let result = |threads| {
        let options = SimOptions { threads, ..SimOptions::default() };
        without_cost(simulate_ior(&machine, &test, 20, 3, &options, &|_, _, _| true).unwrap())
    };
    let one = result(1);
    assert_eq!(one.phases.len(), 4);
    for threads in [2, 3, 4] {
        assert_eq!(result(threads), one, "{threads} threads");
    }
}

#[test]
fn each_phase_moves_every_byte_of_the_test_once() {
    for (line, per_rank) in [
        ("-w -r -t 1m -b 4m", 4 << 20),
        ("-w -r -F -t 47008 -b 470080 -s 3", 3 * 470_080),
        ("-w -r -z -F -t 4k -b 64k", 64 << 10),
        ("-w -r -c -a MPIIO -t 64k -b 256k", 256 << 10),
        ("-w -r -Y -F -t 256k -b 1m", 1 << 20),
        ("-w -r -F -m -i 2 -k -t 1m -b 1m", 1 << 20),
    ] {
        let point = run("toy", 6, 2, None, line);
        for phase in &point.phases {
            assert_eq!(phase.bytes, 12 * per_rank, "{line} {}", phase.access);
            let through_servers: u64 =
                phase.links.iter().find(|l| l.class == "node").unwrap().bytes;
            // Each byte of data crosses two node links; control messages add to that.
            assert!(through_servers >= 2 * phase.bytes, "{line}");
            assert!(
                through_servers < 2 * phase.bytes + phase.operations * 8 * 128 * 6 + 100_000,
                "{line}"
            );
        }
    }
}

/// The steps of one write on `toy`, added up by hand (see `machines/toy.toml`).
#[test]
fn single_write_takes_the_time_calculated_by_hand() {
    let machine = load("toy");
    let make = machine.burst_buffer.clone().unwrap();
    let point = run("toy", 1, 1, Some(1), "-w -F -t 64k -b 64k");
    let phase = &point.phases[0];
    let kib = 64.0 * 1024.0;
    let channels = f64::from(make.controllers_per_card * make.channels_per_controller);
    let channel_rate = make.card_write.0 as f64 / channels;
    // As many channels as get at least the bytes of one least command each.
    let least = channels / make.card_write_iops as f64;
    let whole = kib / channel_rate;
    let width = (whole / least).floor().clamp(1.0, f64::from(make.channels_per_controller));
    let flash = (whole / width).max(least) + make.write_latency.as_seconds();
    let data = kib / machine.network.node.rate.0 as f64;
    let software = machine.client.call_overhead.as_seconds() + make.dispatch.as_seconds();
    let by_hand = software + data + make.lock_hold.as_seconds() + flash;
    // Four messages cross the network, each in some microseconds at most.
    let network = phase.operation_seconds.mean - by_hand;
    assert!(network > 0.0 && network < 10e-6, "{} s beyond {by_hand} s", network);
}

/// First number of streams with 97% of the highest rate.
fn saturated_at(streams: &[u32], rates: &[f64]) -> u32 {
    let highest = rates.iter().copied().fold(0.0, f64::max);
    streams[rates.iter().position(|&r| r >= 0.97 * highest).unwrap()]
}

#[test]
fn client_as_fast_as_its_link_saturates_one_server_with_8_streams_reading_and_16_writing() {
    let mut machine = load("cori-phase1");
    machine.client.write_rate = machine.network.node.rate;
    machine.client.read_rate = machine.network.node.rate;
    let point = |n: u32, line: &str| {
        simulate_ior(&machine, &ior(line), 1, n, &options(Some(1)), &|_, _, _| true).unwrap()
    };
    let streams = [1, 2, 4, 8, 16, 32];
    let rates = |line: &str| -> Vec<f64> {
        let rate = |p: IorPoint| p.write_gbps.or(p.read_gbps).unwrap();
        streams.iter().map(|&n| rate(point(n, line))).collect()
    };
    let reading = rates("-r -F -t 512k -b 32m");
    assert_eq!(saturated_at(&streams, &reading), 8, "{reading:?}");
    let writing = rates("-w -F -t 512k -b 32m");
    assert_eq!(saturated_at(&streams, &writing), 16, "{writing:?}");
    // Reading is bound by the server, writing by flash.
    assert_eq!(point(32, "-r -F -t 512k -b 32m").limit, "server");
    assert_eq!(point(32, "-w -F -t 512k -b 32m").limit, "ssd");
}

#[test]
fn rate_grows_with_the_transfer_size() {
    let rate = |transfer: &str| {
        let line = format!("-w -F -t {transfer} -b 8m");
        run("cori-phase1", 4, 8, Some(2), &line).write_gbps.unwrap()
    };
    let curve: Vec<f64> = ["4k", "16k", "64k", "256k", "512k"].map(rate).to_vec();
    assert!(curve.windows(2).all(|w| w[0] < w[1]), "{curve:?}");
    assert!(curve[0] < 0.1 * curve[4], "{curve:?}");
}

#[test]
fn shared_file_writes_are_limited_by_locks_and_reads_are_not() {
    // Three servers: the two stripes of a block are on two of them, those of the next block on
    // another two.
    let point = |line: &str| run("cori-phase1", 16, 4, Some(3), line);
    let private = point("-w -F -t 512k -b 16m");
    let shared = point("-w -t 512k -b 16m");
    assert!(shared.write_gbps < private.write_gbps.map(|r| 0.7 * r));
    assert_eq!(shared.limit, "server");
    assert!(shared.phases[0].limit.because.contains("locks"), "{:?}", shared.phases[0].limit);
    let ratio = |a: IorPoint, b: IorPoint| a.read_gbps.unwrap() / b.read_gbps.unwrap();
    let reads = ratio(point("-r -t 512k -b 16m"), point("-r -F -t 512k -b 16m"));
    assert!(reads > 0.8, "readers share locks: {reads}");
}

#[test]
fn fsync_and_delay_take_time() {
    let phase = |line: &str| run("toy", 4, 2, None, line).phases.remove(0);
    let plain = phase("-w -F -k -t 256k -b 1m");
    let synced = phase("-w -F -k -e -t 256k -b 1m");
    let each = phase("-w -F -k -Y -t 256k -b 1m");
    assert!(synced.transfer_seconds > plain.transfer_seconds);
    assert!(each.transfer_seconds > synced.transfer_seconds);
    let before = run("toy", 4, 2, None, "-w -F -k -t 256k -b 1m");
    let delayed = run("toy", 4, 2, None, "-w -F -k -d 2 -t 256k -b 1m");
    assert!((delayed.run.simulated_seconds - before.run.simulated_seconds - 2.0).abs() < 1e-3);
    // A delay is not part of the phase (credits travel at multiples of 33 ns of absolute time).
    let ratio = delayed.write_gbps.unwrap() / before.write_gbps.unwrap();
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
}

#[test]
fn stonewall_stops_all_processes_or_wears_out() {
    // 8 processes and one server of some GB/s: 8 x 4 GiB take longer than a second.
    let stopped = run("toy", 4, 2, Some(1), "-w -F -k -D 1 -t 4m -b 4g").phases.remove(0);
    assert!(stopped.bytes < 8 << 32);
    assert!((1.0..1.2).contains(&stopped.transfer_seconds), "{}", stopped.transfer_seconds);
    let worn = run("toy", 4, 2, Some(1), "-w -F -k -D 1 -O stoneWallingWearOut=1 -t 4m -b 4g")
        .phases
        .remove(0);
    assert_eq!(worn.bytes % 8, 0);
    assert_eq!(worn.operations % 8, 0, "all processes made as many transfers");
    assert!(worn.operations >= stopped.operations);
}

#[test]
fn phases_after_the_time_limit_are_skipped() {
    let point = run("toy", 1, 1, None, "-w -F -k -i 3 -d 45 -T 1 -t 1m -b 1m");
    let begun: Vec<u32> = point.phases.iter().map(|p| p.iteration).collect();
    assert_eq!(begun, [0, 1], "the third phase would begin after 90 s");
    // The largest limits of IOR exceed simulated time.
    for never in ["-T 2147483647 -d 9", "-D 2147483647"] {
        let line = format!("-w -F -k -i 2 {never} -t 1m -b 1m");
        assert_eq!(run("toy", 1, 1, None, &line).phases.len(), 2, "{line}");
    }
}

#[test]
fn evidence_is_consistent_with_links_and_shares() {
    let phase: Phase = run("toy", 8, 2, None, "-w -F -t 512k -b 8m").phases.remove(0);
    let heat: u64 = phase.heat.iter().flatten().sum();
    let links: u64 = phase.links.iter().filter(|l| l.class != "node").map(|l| l.bytes).sum();
    assert_eq!(heat, links);
    for used in &phase.limit.evidence {
        assert!((0.0..=1.0001).contains(&used.peak_utilisation), "{used:?}");
        assert!(used.mean_utilisation <= used.peak_utilisation + 1e-9, "{used:?}");
    }
    let shares: f64 = phase.limit.evidence.iter().map(|e| e.time_share).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    let (name, rates) = &phase.series.columns[0];
    assert_eq!(name, "write_GBps");
    assert_eq!(rates.len(), phase.series.seconds.len());
}

#[test]
fn jobs_that_do_not_fit_are_refused_with_the_reason() {
    let try_run = |machine: &str, nodes, ppn, options: &SimOptions, line: &str| {
        simulate_ior(&load(machine), &ior(line), nodes, ppn, options, &|_, _, _| true).unwrap_err()
    };
    let plain = SimOptions::default();
    let error = try_run("toy", 1_000, 1, &plain, "-w");
    assert!(matches!(error, StudyError::Placement(_)), "{error}");
    let error = try_run("theta", 1, 1, &plain, "-w");
    assert!(error.to_string().contains("theta has no burst-buffer nodes"), "{error}");
    let error = try_run("toy", 1, 1, &options(Some(99)), "-w");
    assert!(error.to_string().contains("toy has 4"), "{error}");
    let error = try_run("toy", 4, 4, &plain, "-w -t 1g -b 1000g");
    assert!(matches!(error, StudyError::Capacity { .. }), "{error}");
    let error = try_run("toy", 1, 1, &plain, "-w -N 5");
    assert!(matches!(error, StudyError::AccessPattern(_)), "{error}");
    let large = SimOptions { packet: Some(Bytes(1 << 20)), ..plain };
    let error = try_run("toy", 1, 1, &large, "-w");
    assert!(error.to_string().contains("smallest buffer"), "{error}");
}
