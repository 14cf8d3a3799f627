//! IOR with flows: by hand on the machine `toy`, and beside packets.

use forebay_machine::results::{IorPoint, Phase};
use forebay_machine::study::{Fidelity, SimOptions, StudyError, fidelity_of_ior, simulate_ior};
use forebay_machine_file::machine::{Machine, SharedWrites};
use forebay_units::{Bytes, Rate};
use forebay_workload::ior::Ior;

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

fn ior(line: &str) -> Ior {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&arguments).unwrap().remove(0)
}

fn with(fidelity: Fidelity) -> SimOptions {
    SimOptions { fidelity, ..SimOptions::default() }
}

fn run(
    machine: &Machine,
    nodes: u32,
    fidelity: Fidelity,
    line: &str,
) -> Result<IorPoint, StudyError> {
    simulate_ior(machine, &ior(line), nodes, 1, &with(fidelity), &|_, _, _| true)
}

fn flow(machine: &Machine, nodes: u32, line: &str) -> Phase {
    let mut point = run(machine, nodes, Fidelity::Flow, line).unwrap();
    assert_eq!(point.fidelity, "flow");
    assert!(!point.left_out.is_empty());
    point.phases.remove(0)
}

fn assert_close(value: f64, expected: f64, percent: f64) {
    let error = (value / expected - 1.0) * 100.0;
    assert!(error.abs() <= percent, "{value}, not {expected}: {error:+.2}%");
}

#[test]
fn lone_process_is_as_fast_as_with_packets_for_each_transfer_size() {
    for transfer in ["4k", "64k", "512k", "4m"] {
        let line = format!("-F -w -r -t {transfer} -b 16m");
        let packets = run(&toy(), 1, Fidelity::Packet, &line).unwrap();
        let flows = run(&toy(), 1, Fidelity::Flow, &line).unwrap();
        for (packets, flows) in packets.phases.iter().zip(&flows.phases) {
            assert_close(flows.gbps, packets.gbps, 2.0);
            assert_eq!((flows.bytes, flows.operations), (packets.bytes, packets.operations));
            assert_eq!(flows.limit.resource, "client");
        }
    }
}

/// The times of all processes together are more than 2^64 ps. By hand, without opens and the last calls: 448 GiB
/// at the 2 GB/s of each of 4 servers' flash.
#[test]
fn hundreds_of_thousands_of_processes_are_simulated() {
    let test = ior("-F -w -t 1m -b 1m");
    let point =
        simulate_ior(&toy(), &test, 56, 8_192, &with(Fidelity::Flow), &|_, _, _| true).unwrap();
    let phase = &point.phases[0];
    assert_eq!(phase.bytes, 448 << 30);
    assert_close(phase.bytes as f64 / phase.transfer_seconds / 1e9, 8.0, 10.0);
    let acknowledged = phase.acknowledged_node_gbps.mean * 56.0;
    assert!(acknowledged >= phase.gbps && acknowledged <= 16.0, "{acknowledged}");
}

/// By hand: a command of 512 KiB takes 4 of the 8 channels of a server for 524.3 us and a gap of 10 us:
/// 267.1 us of the server, 1.963 GB/s; 4 servers. In the first round of stripes, of 32 MiB, each has 14
/// processes at any time.
#[test]
fn many_writers_share_the_flash_of_all_servers() {
    let phase = flow(&toy(), 56, "-F -w -t 512k -b 32m");
    assert_eq!(phase.limit.resource, "ssd", "{}", phase.limit.because);
    assert_close(phase.steady_gbps.unwrap(), 4.0 * 1.963, 1.0);
    let ssd = phase.limit.evidence.iter().find(|e| e.resource == "ssd").unwrap();
    assert!(ssd.peak_utilisation > 0.95 && ssd.peak_utilisation <= 1.0, "{ssd:?}");
}

/// By hand: 4 processes of a node, of 1.4 GB/s each alone, read over its client of 4 GB/s.
#[test]
fn processes_of_a_node_share_its_client() {
    let test = ior("-F -r -t 512k -b 64m");
    let point = simulate_ior(&toy(), &test, 1, 4, &with(Fidelity::Flow), &|_, _, _| true).unwrap();
    assert_close(point.phases[0].steady_gbps.unwrap(), 4.0, 1.0);
    assert!(
        point.phases[0].limit.because.contains("client of node"),
        "{:?}",
        point.phases[0].limit
    );
}

/// By hand: 14 nodes write 64 KiB each to 4 objects in turn. A lock is held for 50 us and 65.5 ns of
/// copying, and handed over in 400 us: 145.6 MB/s an object.
#[test]
fn writers_of_a_shared_file_take_turns_at_its_locks() {
    let line = "-w -t 64k -b 64k -s 512";
    let phase = flow(&toy(), 14, line);
    assert_eq!(phase.limit.resource, "server");
    assert!(phase.limit.because.contains("locks"), "{}", phase.limit.because);
    assert!(phase.steady_gbps.unwrap() <= 4.0 * 0.1457, "{:?}", phase.steady_gbps);
    let alone = flow(&toy(), 14, &format!("{line} -F"));
    assert!(alone.gbps > 3.0 * phase.gbps, "{} and {}", alone.gbps, phase.gbps);
}

/// By hand: as above, and 65.5 us for 64 KiB at 1 GB/s in each hand-over: 127.1 MB/s an object.
#[test]
fn hand_over_takes_longer_for_longer_writes() {
    let mut machine = toy();
    machine.burst_buffer.as_mut().unwrap().handover_rate = Some(Rate(1_000_000_000));
    let line = "-w -t 64k -b 64k -s 512";
    let rate = |machine| flow(machine, 14, line).steady_gbps.unwrap();
    assert!(rate(&machine) <= 4.0 * 0.1272, "{}", rate(&machine));
    // 450.07 / 515.6 at a lock that is never free, less where writers of one object wait together.
    let slower = rate(&machine) / rate(&toy());
    assert!((0.7..0.89).contains(&slower), "{slower}");
}

/// By hand: a server opens 10,000 files a second: 40 take 4 ms, and 10 on each of 4 servers 1 ms.
#[test]
fn opens_of_a_shared_file_wait_for_one_server() {
    let phase = flow(&toy(), 40, "-w -t 512k -b 512k");
    assert!((phase.open_seconds - 40.0 * 100e-6).abs() < 30e-6, "{}", phase.open_seconds);
    let own = flow(&toy(), 40, "-F -w -t 512k -b 512k");
    assert!((own.open_seconds - 10.0 * 100e-6).abs() < 30e-6, "{}", own.open_seconds);
}

/// A cache of 64 MiB a server holds all data: only the fsync waits for flash.
#[test]
fn page_cache_takes_writes_and_an_fsync_waits_for_flash() {
    let mut machine = toy();
    let make = machine.burst_buffer.as_mut().unwrap();
    (make.dirty_limit, make.dirty_background) = (Bytes(64 << 20), Bytes(32 << 20));
    let line = "-F -w -t 512k -b 8m";
    let through = flow(&toy(), 16, line);
    let cached = flow(&machine, 16, line);
    assert!(cached.gbps > 1.3 * through.gbps, "{} and {}", cached.gbps, through.gbps);
    let synced = flow(&machine, 16, &format!("{line} -e"));
    // 32 MiB a server at 1.963 GB/s.
    assert_close(synced.transfer_seconds - cached.transfer_seconds, 33_554_432.0 / 1.963e9, 3.0);
}

/// By hand: in later rounds the processes are at random servers. Of 4 servers with 56 processes, a share of
/// 56 / (56 + 4 - 1) is busy (closed network of equal stations).
#[test]
fn cost_does_not_depend_on_the_bytes_and_the_rate_is_the_steady_one() {
    let short = run(&toy(), 56, Fidelity::Flow, "-F -w -t 512k -b 4g").unwrap();
    let long = run(&toy(), 56, Fidelity::Flow, "-F -w -t 512k -b 64g").unwrap();
    assert_eq!(short.phases[0].bytes * 16, long.phases[0].bytes);
    assert!(long.run.events <= (1 << 13) + 56, "{} {}", long.run.events, short.run.events);
    assert_close(long.write_gbps.unwrap(), 4.0 * 1.963 * 56.0 / 59.0, 3.0);
}

#[test]
fn same_test_gives_the_same_bits() {
    let result = || {
        let mut point =
            run(&toy(), 20, Fidelity::Flow, "-w -r -t 300k -b 3000k -s 2 -i 2").unwrap();
        point.run = Default::default();
        point
    };
    assert_eq!(result(), result());
    assert_eq!(result().phases.len(), 4);
}

#[test]
fn part_that_flows_cannot_represent_is_an_error_with_the_remedy() {
    for (line, word) in [
        ("-w -c -a MPIIO -t 64k -b 256k", "-c"),
        ("-w -D 1 -t 64k -b 256k", "-D"),
        ("-w -Y -t 64k -b 256k", "-Y"),
        ("-w -F -u -t 64k -b 256k", "-u"),
        ("-w -T 5 -t 64k -b 256k", "-T"),
    ] {
        let error = run(&toy(), 4, Fidelity::Flow, line).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("--fidelity packet"), "{line}: {error}");
    }
    let links = SimOptions { each_link: true, ..with(Fidelity::Flow) };
    let error = simulate_ior(&toy(), &ior("-w"), 4, 1, &links, &|_, _, _| true).unwrap_err();
    assert!(error.to_string().contains("--links"), "{error}");
}

#[test]
fn auto_takes_packets_where_they_are_fast_or_flows_impossible() {
    let chosen =
        |line: &str| fidelity_of_ior(&toy(), &ior(line), 56, 1, &with(Fidelity::Auto)).unwrap();
    assert_eq!(chosen("-F -w -t 1m -b 4m"), Fidelity::Packet);
    assert_eq!(chosen("-F -w -t 1m -b 4g"), Fidelity::Flow);
    assert_eq!(chosen("-w -c -a MPIIO -t 1m -b 4g"), Fidelity::Packet);
    let point = run(&toy(), 56, Fidelity::Auto, "-F -w -t 1m -b 4m").unwrap();
    assert_eq!((point.fidelity.as_str(), point.left_out.len()), ("packet", 0));
}

#[test]
fn progress_can_end_the_simulation() {
    let test = ior("-F -w -t 512k -b 64m");
    let result = simulate_ior(&toy(), &test, 20, 1, &with(Fidelity::Flow), &|_, _, _| false);
    assert_eq!(result.unwrap_err(), StudyError::Interrupted);
}

/// Three processes at each of four servers, whose flash has two controllers: with transfers of half a
/// flash stripe they meet at one while the other is idle. By mean value analysis 6.2 GB/s; all controllers
/// together would take 7.8 GB/s.
#[test]
fn processes_that_meet_at_controllers_do_not_reach_the_rate_of_flash() {
    for (access, most) in [("-w", 7.86), ("-r", 15.7)] {
        let line = format!("-F {access} -t 256k -b 16m");
        let packets = run(&toy(), 12, Fidelity::Packet, &line).unwrap().phases.remove(0);
        let phase = flow(&toy(), 12, &line);
        assert_close(phase.gbps, packets.gbps, 8.0);
        assert!(phase.gbps < 0.85 * most, "{} GB/s", phase.gbps);
        assert_eq!(phase.limit.resource, "ssd", "{}", phase.limit.because);
    }
    // With whole flash stripes they go round the controllers in turn.
    let phase = flow(&toy(), 16, "-F -w -t 512k -b 32m");
    assert!(phase.steady_gbps.unwrap() > 0.97 * 7.85);
}

/// One and two processes a server wait little for each other: by packets, too, each is its own limit.
#[test]
fn few_processes_that_meet_at_controllers_are_limited_by_their_own_calls() {
    let phase = flow(&toy(), 6, "-F -w -t 128k -b 16m");
    assert_eq!(phase.limit.resource, "client", "{}", phase.limit.because);
}

#[test]
fn writes_in_turn_need_packets() {
    let mut machine = toy();
    machine.client.shared_writes = SharedWrites::InTurn;
    let refused = run(&machine, 2, Fidelity::Flow, "-w -t 1m -b 4m").unwrap_err().to_string();
    assert!(refused.contains("in turn") && refused.contains("packet"), "{refused}");
    // `auto` takes packets; files of single processes have no turns.
    assert!(run(&machine, 2, Fidelity::Auto, "-w -t 1m -b 4m").is_ok());
    assert!(run(&machine, 2, Fidelity::Flow, "-w -F -t 1m -b 4m").is_ok());
}

#[test]
fn small_blocks_of_a_shared_file_have_a_warning() {
    // An object has 512 KiB in a row.
    let warnings = |line: &str| flow(&toy(), 2, line).warnings;
    let strided = warnings("-w -t 47008 -b 47008 -s 16");
    assert!(strided.iter().any(|w| w.contains("--fidelity packet")), "{strided:?}");
    assert_eq!(warnings("-w -t 128k -b 8m"), warnings("-w -F -t 47008 -b 47008 -s 16"));
}

/// What decides the rate of a short run, and not that of a longer one, is named as with packets.
#[test]
fn short_phases_have_the_warnings_of_packets() {
    let named = |warnings: &[String], text: &str| warnings.iter().any(|one| one.contains(text));
    let of = |machine: &Machine, fidelity, line: &str| {
        let point = simulate_ior(machine, &ior(line), 16, 4, &with(fidelity), &|_, _, _| true);
        point.unwrap().phases.into_iter().flat_map(|phase| phase.warnings).collect::<Vec<_>>()
    };
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        let short = of(&toy(), fidelity, "-w -r -t 128k -b 1m");
        for text in [
            "opens, closes and barriers take",
            "of the read phase",
            "ramp-up and tail take",
            "one server does them all for a shared file",
        ] {
            assert!(named(&short, text), "{fidelity:?}: {text}: {short:?}");
        }
        let long = of(&toy(), fidelity, "-F -w -t 512k -b 64m");
        assert!(!named(&long, "opens, closes"), "{fidelity:?}: {long:?}");
    }
    let mut machine = toy();
    let make = machine.burst_buffer.as_mut().unwrap();
    (make.dirty_limit, make.dirty_background) = (Bytes(256 << 20), Bytes(128 << 20));
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        let cached = of(&machine, fidelity, "-F -w -t 512k -b 8m");
        assert!(named(&cached, "fit its page cache"), "{fidelity:?}: {cached:?}");
        let synced = of(&machine, fidelity, "-F -w -e -t 512k -b 8m");
        assert!(!named(&synced, "page cache"), "{fidelity:?}: {synced:?}");
    }
}

/// Files of Trinity Phase II have their first 230 stripes at servers that follow each other, where 2,048 processes are
/// spread evenly, and later ones at hashed servers, where they meet. 3 GiB are 384 stripes: each GiB beyond them takes the
/// same time.
#[test]
fn first_round_of_the_files_and_later_ones_have_their_rates_each() {
    let machine = Machine::load("trinity-phase2").unwrap();
    let seconds =
        |gib: u32| flow(&machine, 2048, &format!("-F -w -t 1m -b {gib}g")).transfer_seconds;
    let [one, three, four, sixteen] = [1, 3, 4, 16].map(seconds);
    let later = (sixteen - four) / 12.0;
    assert_close(four - three, later, 10.0);
    assert!(one < 0.8 * later, "{one} s in the first round, {later} s in others");
    // 154 of 384 stripes are later ones.
    assert_close(three, 3.0 * (230.0 * one + 154.0 * later) / 384.0, 10.0);
}

/// With more processes than storage nodes that follow each other through many stripes, of which the window has few.
#[test]
fn rate_that_depends_on_the_length_of_its_window_has_a_warning() {
    let machine = Machine::load("trinity-phase2").unwrap();
    let has = |nodes: u32, line: &str| {
        let warnings = flow(&machine, nodes, line).warnings;
        warnings.iter().any(|warning| warning.contains("stripes of each process"))
    };
    assert!(has(1024, "-F -w -t 1m -b 16g"));
    assert!(!has(1024, "-F -w -t 1m -b 16m"), "all of it is simulated");
    assert!(!has(64, "-F -w -t 1m -b 16g"), "fewer processes than storage nodes");
}
