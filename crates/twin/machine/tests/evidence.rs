//! Limits, utilisations and series of phases on `toy`, compared with hand calculations.

use forebay_machine::results::{IorPoint, Phase, ResourceUse};
use forebay_machine::study::{SimOptions, simulate_ior};
use forebay_machine_file::machine::{BurstBuffer, Machine};
use forebay_units::{Bytes, Rate, Time};
use forebay_workload::ior::Ior;

fn toy(change: impl Fn(&mut BurstBuffer)) -> Machine {
    let mut machine = Machine::load("toy").unwrap();
    change(machine.burst_buffer.as_mut().unwrap());
    machine
}

fn run(machine: &Machine, nodes: u32, ppn: u32, servers: u32, line: &str) -> IorPoint {
    let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
    let test = Ior::parse(&arguments).unwrap().remove(0);
    let options = SimOptions { burst_buffers: Some(servers), ..SimOptions::default() };
    simulate_ior(machine, &test, nodes, ppn, &options, &|_, _, _| true).unwrap()
}

fn phase(machine: &Machine, nodes: u32, ppn: u32, servers: u32, line: &str) -> Phase {
    run(machine, nodes, ppn, servers, line).phases.remove(0)
}

fn evidence<'a>(phase: &'a Phase, resource: &str) -> &'a ResourceUse {
    phase.limit.evidence.iter().find(|used| used.resource == resource).unwrap()
}

#[test]
fn too_few_threads_are_the_limit_and_not_the_idle_flash() {
    let one_thread = toy(|storage| storage.threads = 1);
    let write = phase(&one_thread, 32, 1, 4, "-F -w -t 1m -b 16m");
    assert_eq!(write.limit.resource, "server", "{:?}", write.limit);
    assert!(write.limit.because.contains("threads"), "{}", write.limit.because);
    let of_server = evidence(&write, "server").time_share;
    assert!(of_server > evidence(&write, "ssd").time_share, "{:?}", write.limit);
}

#[test]
fn waits_of_opens_do_not_make_the_server_the_limit() {
    // A server opens 100 files a second: the transfers of eight processes begin 10 ms apart, and
    // none waits for another.
    let slow_opens = toy(|storage| storage.metadata_rate = 100);
    let read = phase(&slow_opens, 4, 2, 4, "-r -t 64k -b 64k");
    assert!(read.open_seconds >= 0.08, "{}", read.open_seconds);
    assert_eq!(read.limit.resource, "client", "{:?}", read.limit);
    assert!(evidence(&read, "server").time_share < 0.01, "{:?}", read.limit);
}

#[test]
fn opens_beyond_the_transfers_are_no_utilisation_above_one() {
    // With barriers, the transfers take some 100 us between 80 ms of opens and 80 ms of closes, in
    // which one server does nothing else.
    let slow_opens = toy(|storage| storage.metadata_rate = 100);
    let read = phase(&slow_opens, 4, 2, 4, "-r -g -t 64k -b 64k");
    assert!(read.transfer_seconds < 0.01 * read.open_seconds);
    let used = evidence(&read, "server");
    assert!((0.95..=1.0).contains(&used.peak_utilisation), "{used:?}");
    assert!(used.busiest.contains("metadata"), "{used:?}");
}

#[test]
fn metadata_utilisation_counts_over_the_whole_phase() {
    // Eight processes open and close one file on one server at 5 ms each, before and after 100 ms of
    // transfers in which no file is opened.
    let slow_opens = toy(|storage| storage.metadata_rate = 200);
    let read = phase(&slow_opens, 4, 2, 4, "-r -g -t 64k -b 64m");
    assert!(read.transfer_seconds > 0.05, "{}", read.transfer_seconds);
    let used = evidence(&read, "server");
    assert!(used.busiest.contains("metadata"), "{used:?}");
    assert_near(used.peak_utilisation, 16.0 * 5e-3 / read.seconds, 2.0);
}

#[test]
fn long_transfers_over_several_servers_wait_for_their_data_paths() {
    // Four processes with eight requests in flight each read from four servers of 1 GB/s, all of the
    // time; flash reads 4 GB/s. A process alone has two requests at each server.
    let slow = toy(|storage| {
        (storage.data_rate, storage.stripe) = (Rate(1_000_000_000), Bytes::kib(512));
    });
    let read = phase(&slow, 4, 1, 4, "-r -F -t 16m -b 128m");
    assert_eq!(read.limit.resource, "server", "{:?}", read.limit);
    let used = evidence(&read, "server");
    assert!(used.mean_utilisation > 0.8 && used.peak_utilisation <= 1.0, "{used:?}");
    let rate = read.bytes as f64 / 1e9 / read.transfer_seconds;
    assert!(rate > 3.2 && rate <= 4.0, "{rate} GB/s");
}

#[test]
fn collective_transfers_wait_for_slow_servers() {
    // The aggregators' 32 requests for a window go out eight at a time: their waits add up to most of
    // the time of a call.
    let slow = toy(|storage| storage.data_rate = Rate(250_000_000));
    let write = phase(&slow, 8, 4, 1, "-w -a MPIIO -c -t 4m -b 8m");
    assert_eq!(write.limit.resource, "server", "{:?}", write.limit);
    let used = evidence(&write, "server");
    assert!(used.mean_utilisation > 0.8 && used.time_share > 0.6, "{used:?}");
    let rate = write.bytes as f64 / 1e9 / write.transfer_seconds;
    assert!(rate > 0.2 && rate <= 0.25, "{rate} GB/s");
}

#[test]
fn threads_that_wait_for_locks_make_the_locks_the_limit_and_not_flash() {
    // Two threads, and a lock that each write holds for 1 ms: the second thread waits for it, and all
    // other requests for a thread. 512 KiB take 262 us on the flash of a server of 2 GB/s.
    let locked = toy(|storage| {
        (storage.threads, storage.lock_hold, storage.lock_handover) =
            (2, Time::from_ns(1_000_000), Time::ZERO);
    });
    let write = phase(&locked, 4, 4, 1, "-w -t 512k -b 2m");
    assert_near(write.transfer_seconds, 64.0 * 1e-3, 5.0);
    assert_eq!(write.limit.resource, "server", "{:?}", write.limit);
    assert!(write.limit.because.contains("locks"), "{:?}", write.limit);
    let flash = evidence(&write, "ssd");
    assert!(flash.mean_utilisation < 0.4 && flash.time_share < 0.1, "{flash:?}");
}

fn assert_near(found: f64, by_hand: f64, percent: f64) {
    let error = 100.0 * (found / by_hand - 1.0);
    assert!(error.abs() < percent, "{found}, by hand {by_hand}");
}

#[test]
fn series_of_a_phase_begin_with_it_and_add_up_to_its_bytes() {
    // Each phase begins 2 s after the one before, and takes some milliseconds.
    let point = run(&toy(|_| ()), 2, 2, 4, "-w -F -d 2 -i 3 -t 512k -b 16m");
    assert_eq!(point.phases.len(), 3);
    for phase in &point.phases {
        let times = &phase.series.seconds;
        assert!(times.len() > 256, "{} intervals in {} s", times.len(), phase.seconds);
        let last = times.last().unwrap();
        assert!(
            (phase.seconds * 0.9..phase.seconds * 1.1).contains(last),
            "{last} {}",
            phase.seconds
        );
        let (name, rates) = &phase.series.columns[0];
        assert_eq!(name, "write_GBps");
        let interval = times[1] - times[0];
        let sum: f64 = rates.iter().sum::<f64>() * interval * 1e9;
        assert_near(sum, phase.bytes as f64, 0.1);
    }
}

#[test]
fn rate_over_time_does_not_exceed_that_of_the_servers() {
    // A transfer of 8 MiB takes 8 ms and more: its bytes do not count at its end.
    let slow = toy(|storage| storage.data_rate = Rate(1_000_000_000));
    let read = phase(&slow, 4, 1, 1, "-r -F -t 8m -b 64m");
    let (_, rates) = &read.series.columns[0];
    let most = rates.iter().copied().fold(0.0, f64::max);
    // Transfers end at different times: the four count evenly over their own durations.
    assert!(most < 1.4, "{most} GB/s from a server of 1 GB/s");
}

#[test]
fn details_of_many_phases_are_kept_of_the_fastest_only() {
    let point = run(&toy(|_| ()), 1, 1, 4, "-w -r -F -i 140 -t 64k -b 64k");
    assert_eq!(point.phases.len(), 280);
    for access in ["write", "read"] {
        let of_kind = || point.phases.iter().filter(move |phase| phase.access == access);
        let detailed: Vec<_> = of_kind().filter(|phase| !phase.heat.is_empty()).collect();
        let fastest = of_kind().map(|phase| phase.gbps).fold(0.0, f64::max);
        assert_eq!(detailed.len(), 1, "{access}");
        assert_eq!(detailed[0].gbps, fastest, "{access}");
        assert!(!detailed[0].series.seconds.is_empty());
    }
    let few = run(&toy(|_| ()), 1, 1, 4, "-w -r -F -i 3 -t 64k -b 64k");
    assert!(few.phases.iter().all(|phase| !phase.heat.is_empty()));
}
