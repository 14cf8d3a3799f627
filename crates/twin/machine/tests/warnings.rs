//! Warnings about results that a part of a run decides.

use forebay_machine::study::{Fidelity, FileSystem, SimOptions, simulate_ior, simulate_traffic};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::{Client, ClientType, Machine};
use forebay_units::{Bytes, Rate};
use forebay_workload::ior::Ior;
use forebay_workload::traffic::TrafficSpec;

/// The warnings of the write phase of a test on `toy`.
fn of_ior(line: &str, nodes: u32, ppn: u32) -> Vec<String> {
    of_ior_on(&Machine::load("toy").unwrap(), line, nodes, ppn, &SimOptions::default())
}

fn of_ior_on(
    machine: &Machine,
    line: &str,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Vec<String> {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    let ior = Ior::parse(&words).unwrap().remove(0);
    let point = simulate_ior(machine, &ior, nodes, ppn, options, &|_, _, _| true).unwrap();
    point.phases[0].warnings.clone()
}

fn of_traffic(machine: &Machine, messages: u64) -> Vec<String> {
    let spec = TrafficSpec::new("uniform".parse().unwrap(), Bytes(4096), 0.2, messages).unwrap();
    simulate_traffic(machine, &spec, &SimOptions::default(), &|_, _, _| true).unwrap().warnings
}

/// Whether exactly one warning contains each of the words, and there are no others.
fn assert_only(warnings: &[String], words: &[&str]) {
    assert_eq!(warnings.len(), words.len(), "{warnings:?}");
    for word in words {
        assert_eq!(warnings.iter().filter(|w| w.contains(word)).count(), 1, "{word}: {warnings:?}");
    }
}

#[test]
fn long_balanced_test_has_no_warning() {
    assert_only(&of_ior("-a POSIX -F -w -t 512k -b 32m", 4, 1), &[]);
}

#[test]
fn data_that_fit_the_servers_page_cache_give_a_warning_unless_an_fsync_waits_for_flash() {
    let warnings = |limit: u64, line: &str| {
        let mut machine = Machine::load("toy").unwrap();
        machine.burst_buffer.as_mut().unwrap().dirty_limit = Bytes(limit);
        of_ior_on(&machine, line, 4, 1, &SimOptions::default())
    };
    // Each of the four servers gets 32 MiB.
    let line = "-a POSIX -F -w -t 512k -b 32m";
    assert!(warnings(32 << 20, line).iter().any(|w| w.contains("fit its page cache")));
    assert_only(&warnings(31 << 20, line), &[]);
    let synced = warnings(32 << 20, "-a POSIX -F -w -e -t 512k -b 32m");
    assert!(synced.iter().all(|w| !w.contains("page cache")), "{synced:?}");
}

#[test]
fn opens_and_closes_that_take_a_tenth_of_a_phase_give_a_warning() {
    // An open and a close take 100 us each, 8 transfers of 4 KiB some 80 us each.
    let warnings = of_ior("-a POSIX -F -w -t 4k -b 32k", 4, 1);
    assert_only(&warnings, &["opens, closes and barriers take"]);
}

/// 64 processes open one file, one after another at its server: 64 x 100 us.
#[test]
fn opens_of_a_shared_file_name_the_server_that_does_all() {
    let warnings = of_ior("-a POSIX -w -t 512k -b 512k", 16, 4);
    let opens = warnings.iter().find(|w| w.contains("opens, closes")).unwrap();
    assert!(opens.contains("one server does them all for a shared file"), "{warnings:?}");
}

/// 14 nodes write with 8 GB/s, the rate of the flash, and need 14 B / 8; two nodes write with 0.05 GB/s
/// each, and need B / 0.05: nine tenths of the phase are their tail.
#[test]
fn tail_of_a_few_slow_nodes_gives_a_warning() {
    let mut machine = Machine::load("toy").unwrap();
    let client = Client { write_rate: Rate(50_000_000), ..machine.client.clone() };
    machine.client_types = vec![ClientType { first_group: 2, last_group: 3, nodes: 28, client }];
    let options = SimOptions { groups: Some((1, 2)), ..SimOptions::default() };
    let warnings = of_ior_on(&machine, "-a POSIX -F -w -t 512k -b 8m", 16, 1, &options);
    assert_only(&warnings, &["ramp-up and tail take"]);
}

#[test]
fn few_transfers_of_a_process_give_a_warning() {
    let warnings = of_ior("-a POSIX -F -w -t 8m -b 32m", 4, 1);
    assert_only(&warnings, &["4 transfers a process"]);
    let flows = SimOptions { fidelity: Fidelity::Flow, ..SimOptions::default() };
    let machine = Machine::load("toy").unwrap();
    let warnings = of_ior_on(&machine, "-a POSIX -F -w -t 8m -b 32m", 4, 1, &flows);
    assert_only(&warnings, &["4 transfers a process"]);
}

#[test]
fn few_transfers_of_a_process_give_no_steady_rate() {
    let machine = Machine::load("toy").unwrap();
    let ior: Vec<String> = "-a POSIX -F -w -t 1m -b 1m".split(' ').map(String::from).collect();
    let test = Ior::parse(&ior).unwrap().remove(0);
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        let options = SimOptions { fidelity, ..SimOptions::default() };
        let point = simulate_ior(&machine, &test, 56, 16, &options, &|_, _, _| true).unwrap();
        assert_eq!(point.phases[0].steady_gbps, None, "{fidelity:?}");
    }
}

/// A job of `nodes` processes on Lustre, whose cache joins their calls, has one warning that each makes `count`
/// transfers.
#[track_caller]
fn check_joined_transfers(fidelity: Fidelity, (ior, nodes): (&str, u32), count: u32) {
    let machine = Machine::load("shaheen2").unwrap();
    let options = SimOptions {
        fidelity,
        file_system: FileSystem::Parallel { stripe_count: Some(4), stripe: None },
        ..SimOptions::default()
    };
    let warnings = of_ior_on(&machine, ior, nodes, 1, &options);
    let expected = format!("{count} transfers a process");
    let found = warnings.iter().filter(|w| w.contains(&expected));
    assert_eq!(found.count(), 1, "{fidelity:?}: {warnings:?}");
}

#[test]
fn few_transfers_that_the_clients_cache_joins_are_counted_as_the_program_makes_them() {
    let test = ("-a POSIX -F -w -t 1m -b 32m", 4);
    check_joined_transfers(SimOptions::default().fidelity, test, 32);
}

#[test]
fn few_packets_of_traffic_give_a_warning() {
    let machine = Machine::load("toy").unwrap();
    assert_only(&of_traffic(&machine, 1_000), &[]);
    let few = of_traffic(&machine, 10);
    assert!(few.iter().any(|w| w.contains("packets only")), "{few:?}");
}

#[test]
fn rank_3_latency_of_a_picosecond_gives_a_warning() {
    let setting = Setting { key: "network.global.latency".into(), value: "9 ns".into() };
    let machine = Machine::load_with("toy", &[setting]).unwrap();
    assert_only(&of_traffic(&machine, 1_000), &["network.global.latency is 9 ns"]);
}

/// Three calls of 16 MiB are joined to one transfer of two calls and one of a call.
#[test]
fn calls_that_fill_a_window_in_part_are_counted_once() {
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        check_joined_transfers(fidelity, ("-a POSIX -F -w -t 16m -b 48m", 2), 3);
    }
}

#[test]
fn warnings_of_saturated_flows_have_single_blanks() {
    let machine = Machine::load("toy").unwrap();
    let spec = TrafficSpec::new("uniform".parse().unwrap(), Bytes(4096), 0.9, 20).unwrap();
    let options = SimOptions { fidelity: Fidelity::Flow, ..SimOptions::default() };
    let run = simulate_traffic(&machine, &spec, &options, &|_, _, _| true).unwrap();
    assert!(run.warnings.iter().any(|w| w.starts_with("saturated: ")), "{:?}", run.warnings);
    assert!(run.warnings.iter().all(|w| !w.contains("  ")), "{:?}", run.warnings);
}
