//! The parallel file system on a variant of `toy` with LNET nodes, with packets and flows, compared with
//! hand calculations.

use crate::toy_lustre;
use forebay_machine::results::{IorPoint, Phase};
use forebay_machine::study::{Fidelity, FileSystem, SimOptions, StudyError, simulate_ior};
use forebay_machine_file::machine::Machine;
use forebay_units::Bytes;
use forebay_workload::ior::Ior;
use toy_lustre::{machine_of, machine_with};

fn machine() -> Machine {
    machine_with(&[])
}

fn ior(line: &str) -> Ior {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&arguments).unwrap().remove(0)
}

fn stripes(count: u32) -> FileSystem {
    FileSystem::Parallel { stripe_count: Some(count), stripe: None }
}

fn run(
    machine: &Machine,
    (nodes, ppn): (u32, u32),
    file_system: FileSystem,
    fidelity: Fidelity,
    line: &str,
) -> Result<IorPoint, StudyError> {
    let options = SimOptions { file_system, fidelity, ..SimOptions::default() };
    simulate_ior(machine, &ior(line), nodes, ppn, &options, &|_, _, _| true)
}

/// The phases of a test with packets and with flows.
fn both(
    machine: &Machine,
    job: (u32, u32),
    file_system: FileSystem,
    line: &str,
) -> [(&'static str, Vec<Phase>); 2] {
    [Fidelity::Packet, Fidelity::Flow].map(|fidelity| {
        let point = run(machine, job, file_system, fidelity, line).unwrap();
        (fidelity.name(), point.phases)
    })
}

/// Rate while data move, GB/s.
fn moving(phase: &Phase) -> f64 {
    phase.bytes as f64 / 1e9 / phase.transfer_seconds
}

fn assert_near(found: f64, by_hand: f64, percent: f64, what: &str) {
    let error = 100.0 * (found / by_hand - 1.0);
    assert!(error.abs() < percent, "{what}: {found}, by hand {by_hand}: {error:+.1}%");
}

/// One node's client moves 4 GB/s; a target writes 1 GB/s and reads 2 GB/s.
#[test]
fn rate_of_a_file_grows_with_its_stripes_up_to_the_client() {
    for (count, write, read) in [(1, 1.0, 2.0), (2, 2.0, 4.0), (4, 4.0, 4.0), (8, 4.0, 4.0)] {
        for (fidelity, phases) in both(&machine(), (1, 4), stripes(count), "-w -r -t 1m -b 32m") {
            let what = format!("{fidelity}, {count} stripes");
            assert_near(moving(&phases[0]), write, 12.0, &format!("{what}, write"));
            assert_near(moving(&phases[1]), read, 12.0, &format!("{what}, read"));
        }
    }
    let phases = run(&machine(), (1, 4), stripes(1), Fidelity::Packet, "-w -t 1m -b 64m").unwrap();
    assert_eq!(phases.limit, "ost", "{}", phases.phases[0].limit.because);
    let flows = run(&machine(), (1, 4), stripes(1), Fidelity::Flow, "-w -t 1m -b 64m").unwrap();
    assert_eq!(flows.limit, "ost", "{}", flows.phases[0].limit.because);
}

/// A client moves 0.5 GB/s of each process that writes, and 0.25 of each that reads, however many targets its file has.
/// The eight calls that it joins move 8 MiB in 16.8 and 33.6 ms; the next ones begin when the last request is on disk,
/// 1.2 ms later, or has come from there, 0.8 ms before the first data of a read. Four processes have four times as much,
/// and 32 what the client of the node moves, 4 GB/s.
#[test]
fn rate_of_a_process_limits_it_until_the_client_of_its_node_does() {
    let lines = r#"
process_write = { value = "500 MB/s", assumed = "toy" }
process_read = { value = "250 MB/s", assumed = "toy" }
"#;
    let machine = machine_of(lines, &[]);
    for (ppn, write, read) in [(1, 0.466, 0.244), (4, 1.864, 0.976), (32, 4.0, 4.0)] {
        for (fidelity, phases) in both(&machine, (1, ppn), stripes(8), "-w -r -t 1m -b 64m -F") {
            let what = format!("{fidelity}, {ppn} processes");
            assert_near(moving(&phases[0]), write, 8.0, &format!("{what}, write"));
            assert_near(moving(&phases[1]), read, 8.0, &format!("{what}, read"));
            assert_eq!(phases[1].limit.resource, "client", "{what}: {}", phases[1].limit.because);
        }
    }
    // Of long phases the flows have rates, and no single requests.
    let line = "-w -r -t 1m -b 16g -F";
    let point = run(&machine, (1, 4), stripes(8), Fidelity::Flow, line).unwrap();
    assert_near(moving(&point.phases[0]), 1.864, 8.0, "long write");
    assert_near(moving(&point.phases[1]), 0.976, 8.0, "long read");
}

/// 16 files of one stripe go to eight targets in turn: all of them write, 8 GB/s.
#[test]
fn files_of_one_stripe_use_all_targets_together() {
    for (fidelity, phases) in both(&machine(), (16, 1), stripes(1), "-w -F -t 1m -b 32m") {
        assert_near(moving(&phases[0]), 8.0, 5.0, fidelity);
    }
    // Four files use four of the targets.
    for (fidelity, phases) in both(&machine(), (4, 1), stripes(1), "-w -F -t 1m -b 32m") {
        assert_near(moving(&phases[0]), 4.0, 5.0, fidelity);
    }
}

/// The links of nodes have 8 GB/s. Eight targets write 1 GB/s each, two of them behind a node: a quarter of the rate of
/// its link. One client alone moves half of the rate of its own.
#[test]
fn links_of_clients_and_of_lnet_nodes_are_evidence() {
    for (job, stripe_count, used) in [((16, 1), 1, 0.25), ((1, 4), 8, 0.5)] {
        for (fidelity, phases) in both(&machine(), job, stripes(stripe_count), "-w -F -t 1m -b 64m")
        {
            let phase = &phases[0];
            let evidence = &phase.limit.evidence;
            let found = evidence.iter().find(|one| one.resource == "node-link").unwrap();
            let what = format!("{fidelity}, {} nodes", job.0);
            assert_near(found.peak_utilisation, used, 12.0, &what);
            assert!(!found.busiest.is_empty(), "{what}: {found:?}");
            assert!(found.mean_utilisation > 0.0, "{what}: {found:?}");
            let class = phase.links.iter().find(|class| class.class == "node").unwrap();
            assert_near(class.max_utilisation, used, 12.0, &format!("{what}, links"));
        }
    }
}

/// Four routers of 1 GB/s each, before targets of 2 GB/s that read.
#[test]
fn routers_limit_what_reaches_the_targets_behind_them() {
    let slow = machine_with(&[("pfs.lustre.router_rate", "1 GB/s")]);
    for (fidelity, phases) in both(&slow, (16, 1), stripes(1), "-w -r -F -t 1m -b 32m") {
        assert_near(moving(&phases[0]), 4.0, 6.0, fidelity);
        assert_near(moving(&phases[1]), 4.0, 6.0, fidelity);
        let limit = &phases[1].limit;
        assert_eq!(limit.resource, "lnet-router", "{fidelity}: {}", limit.because);
    }
}

/// Two targets share a server: two servers with a file each write 0.5 GB/s each.
#[test]
fn targets_of_a_server_share_its_rate() {
    let slow = machine_with(&[("pfs.lustre.server_rate", "500 MB/s")]);
    for (fidelity, phases) in both(&slow, (16, 1), stripes(1), "-w -F -t 1m -b 32m") {
        assert_near(moving(&phases[0]), 2.0, 6.0, fidelity);
    }
}

/// Processes of two nodes write 1 MiB in turn to one target. If the one of the lower offset comes first,
/// each write calls the lock of the one before it back, for 8 ms: 0.131 GB/s. In the other order the second
/// one leaves the first what it writes next, and every other write waits: 0.262 GB/s.
#[test]
fn writers_in_turn_wait_for_callbacks_and_writers_of_parts_do_not() {
    let machine = machine_with(&[("pfs.lustre.lock_callback", "8 ms")]);
    for (fidelity, phases) in both(&machine, (2, 1), stripes(1), "-w -t 1m -b 1m -s 64") {
        let rate = moving(&phases[0]);
        assert!((0.125..0.275).contains(&rate), "{fidelity}, in turn: {rate}");
        assert_eq!(phases[0].limit.resource, "server", "{fidelity}");
        assert!(phases[0].limit.because.contains("locks"), "{}", phases[0].limit.because);
    }
    for (fidelity, phases) in both(&machine, (2, 1), stripes(1), "-w -t 1m -b 128m") {
        // Two or three callbacks.
        assert_near(moving(&phases[0]), 1.0, 12.0, &format!("{fidelity}, parts"));
    }
    let free = machine_with(&[("pfs.lustre.lock_callback", "0 ms")]);
    for (fidelity, phases) in both(&free, (4, 1), stripes(1), "-w -t 1m -b 1m -s 32") {
        assert_near(moving(&phases[0]), 1.0, 12.0, &format!("{fidelity}, without callbacks"));
    }
}

/// Disks that take 10 ms for a write, and messages of a callback that take 2 ms. A write that calls the lock of
/// the one before it back waits until that is on disk (11.05 ms with its 1 MiB at 1 GB/s) and for the
/// second message (1 ms): 0.087 GB/s if each does so, 0.174 GB/s if every other one does. Without the wait for the disks
/// it would be 0.52 GB/s and more.
#[test]
fn lock_that_is_called_back_is_released_when_its_data_are_on_disk() {
    let numbers = [("pfs.lustre.lock_callback", "2 ms"), ("pfs.lustre.target_latency", "10 ms")];
    let machine = machine_with(&numbers);
    for (fidelity, phases) in both(&machine, (2, 1), stripes(1), "-w -t 1m -b 1m -s 64") {
        let rate = moving(&phases[0]);
        assert_eq!(phases[0].bytes, 128 << 20, "{fidelity}");
        assert!((0.083..0.182).contains(&rate), "{fidelity}, in turn: {rate}");
        assert!(phases[0].limit.because.contains("locks"), "{}", phases[0].limit.because);
    }
    // A file of each process has no callbacks: eight requests are under way at a time.
    for (fidelity, phases) in both(&machine, (2, 1), stripes(1), "-w -F -t 8m -b 64m") {
        assert!(moving(&phases[0]) > 0.8, "{fidelity}: {}", moving(&phases[0]));
    }
}

/// 48 processes open a file each at one metadata server of 10,000 a second: 4.8 ms; at four, 1.2 ms.
#[test]
fn opens_wait_for_the_metadata_servers() {
    for (servers, seconds) in [("1", 4.8e-3), ("4", 1.2e-3)] {
        let machine = machine_with(&[("pfs.lustre.metadata_servers", servers)]);
        for (fidelity, phases) in both(&machine, (16, 3), stripes(1), "-w -F -t 1m -b 1m") {
            let what = format!("{fidelity}, {servers} servers");
            assert_near(phases[0].open_seconds, seconds, 5.0, &what);
        }
    }
}

/// Calls of 4 KiB: 10 us each, 0.41 GB/s of a process, and its data move with those of others. On the
/// burst buffer each is a request of its own.
#[test]
fn cache_of_the_client_joins_small_calls() {
    let line = "-w -F -t 4k -b 8m";
    for (fidelity, phases) in both(&machine(), (1, 1), stripes(8), line) {
        let phase = &phases[0];
        assert_eq!(phase.operations, 2_048, "{fidelity}");
        // 2,048 calls of 10 us, and then 8 MiB over the client and to eight targets.
        let by_hand = 2_048.0 * 10e-6 + 8_388_608.0 / 4e9 + 1e-3;
        assert_near(phase.transfer_seconds, by_hand, 5.0, fidelity);
        assert_near(phase.operation_seconds.mean, by_hand / 2_048.0, 5.0, fidelity);
    }
    let synced = run(&machine(), (1, 1), stripes(8), Fidelity::Packet, "-w -F -t 4k -b 1m -z");
    let buffered = run(&machine(), (1, 1), stripes(8), Fidelity::Packet, "-w -F -t 4k -b 1m");
    let times = [synced, buffered].map(|point| point.unwrap().phases[0].transfer_seconds);
    assert!(times[0] > 4.0 * times[1], "random calls are not joined: {times:?}");
}

/// Blocks of a prime number of calls, 131 of 64 KiB in a window of 128: transfers of 66 calls and of 65, as
/// fast as the two of 66 of a block with 132. Single calls take ten times as long.
#[test]
fn calls_of_any_block_are_joined() {
    let one = |line: &str| both(&machine(), (1, 1), stripes(4), line);
    for (prime, even) in one("-w -F -t 64k -b 8384k").iter().zip(one("-w -F -t 64k -b 8448k")) {
        let (fidelity, prime, even) = (prime.0, &prime.1[0], &even.1[0]);
        assert_eq!((prime.bytes, prime.operations), (131 << 16, 131), "{fidelity}");
        assert_eq!((even.bytes, even.operations), (132 << 16, 132), "{fidelity}");
        assert_near(moving(prime), moving(even), 2.0, fidelity);
        let each = prime.operation_seconds.mean * 131.0;
        assert_near(each, prime.transfer_seconds, 2.0, fidelity);
    }
}

/// fsync after each call: no cache, and a request to each target behind the routers.
#[test]
fn fsyncs_reach_all_targets_behind_a_router() {
    let point =
        run(&machine(), (2, 2), stripes(8), Fidelity::Packet, "-w -e -t 1m -b 16m").unwrap();
    assert_eq!(point.phases[0].bytes, 64 << 20);
    let each = run(&machine(), (2, 2), stripes(8), Fidelity::Packet, "-w -Y -t 4m -b 16m").unwrap();
    assert_eq!(each.phases[0].bytes, 64 << 20);
}

#[test]
fn collective_transfers_and_removal_work_on_the_parallel_file_system() {
    let line = "-a MPIIO -c -w -r -t 1m -b 1m -s 16 -C";
    let point = run(&machine(), (4, 4), stripes(4), Fidelity::Packet, line).unwrap();
    assert_eq!(point.phases.iter().map(|phase| phase.bytes).sum::<u64>(), (2 * 256) << 20);
    let unique = run(&machine(), (4, 4), stripes(4), Fidelity::Packet, "-w -F -u -t 1m -b 4m -i 2");
    assert_eq!(unique.unwrap().phases.len(), 2);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let machine = machine();
    let line = "-w -r -t 512k -b 4m -s 2 -C";
    let with = |threads: usize| {
        let options = SimOptions { file_system: stripes(4), threads, ..SimOptions::default() };
        simulate_ior(&machine, &ior(line), 12, 2, &options, &|_, _, _| true).unwrap().phases
    };
    assert_eq!(with(1), with(3));
}

#[test]
fn layout_or_file_that_does_not_fit_is_refused() {
    let error = |machine: &Machine, file_system, line: &str| {
        run(machine, (1, 1), file_system, Fidelity::Flow, line).unwrap_err().to_string()
    };
    assert_eq!(
        error(&machine(), stripes(9), "-w"),
        "9 stripes a file: Lustre of toy-lustre has 8 OSTs; request 1 to 8"
    );
    for (stripe, text) in [(4_096, "4 KiB"), (70_000, "70 kB")] {
        let layout = FileSystem::Parallel { stripe_count: None, stripe: Some(Bytes(stripe)) };
        assert_eq!(
            error(&machine(), layout, "-w"),
            format!(
                "stripes of {text}: Lustre has stripes of at least 64 KiB, and multiples of it"
            )
        );
    }
    assert!(error(&machine(), stripes(1), "-w -t 1g -b 2000g").contains("holds 1 TB"));
    let toy = Machine::load("toy").unwrap();
    let undescribed = error(&toy, stripes(1), "-w");
    for name in ["[pfs.lustre]", "cori, cori-phase1, shaheen2, edison and edison-scratch3"] {
        assert!(undescribed.contains(name), "{undescribed}");
    }
}

/// More processes than in the other tests. Callbacks are short: with flows, those at the beginning of a
/// phase do not wait for each other.
#[test]
fn flows_are_near_packets_on_both_kinds_of_files() {
    let machine = machine_with(&[("pfs.lustre.lock_callback", "100 us")]);
    for (job, count, line) in [
        ((24, 2), 1, "-w -r -F -t 1m -b 16m"),
        ((24, 2), 4, "-w -r -F -t 1m -b 16m"),
        ((24, 2), 8, "-w -r -t 1m -b 16m"),
        ((12, 4), 4, "-w -r -t 4m -b 8m -s 2"),
    ] {
        let [(_, packets), (_, flows)] = both(&machine, job, stripes(count), line);
        for (packets, flows) in packets.iter().zip(&flows) {
            let what = format!("{} of {line} on {count} stripes", packets.access);
            assert_near(flows.gbps, packets.gbps, 15.0, &what);
        }
    }
}
