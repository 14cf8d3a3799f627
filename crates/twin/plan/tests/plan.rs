//! Plans on the machine `toy`, against calculations by hand.
#![allow(missing_docs, clippy::unwrap_used)]

use forebay_job_script::AccessMode;
use forebay_machine::study::{Fidelity, SimOptions, StudyError};
use forebay_machine_file::machine::{Machine, ParallelFileSystem};
use forebay_plan::{Job, Plan, PlanError, System, Work, forecast, plan, plan_with};
use forebay_units::{Bytes, Rate, human};
use forebay_workload::ior::Ior;

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

fn with_pfs(rate: u64) -> Machine {
    let pfs = ParallelFileSystem {
        name: "Lustre".into(),
        rate: Rate(rate),
        capacity: Bytes(1 << 50),
        osts: 0,
        lustre: None,
    };
    Machine { pfs: Some(pfs), ..toy() }
}

fn job(nodes: u32, ppn: u32, line: &str) -> Job {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    Job::new(nodes, ppn, Work::Test(Box::new(Ior::parse(&words).unwrap().remove(0))))
}

fn flows() -> SimOptions {
    SimOptions { fidelity: Fidelity::Flow, threads: 2, ..SimOptions::default() }
}

fn planned(machine: Machine, job: &Job) -> Plan {
    plan(&System::of_machine(machine), job, &flows()).unwrap()
}

fn near(value: f64, expected: f64, percent: f64) -> bool {
    (value / expected - 1.0).abs() < percent / 100.0
}

/// 16 processes write 1 GiB each: one granule of 16 GiB, so one storage node at least. Flash takes
/// commands of 512 KiB on 8 channels of 250 MB/s, each with 20 us latency and 10 us gap:
/// 2,097 + 30 us, so 1.972 GB/s a node. 17.18 GB take at least 8.71 s on one node, 4.36 s on two, 2.18 s on
/// four; processes that meet at one of several nodes leave the others idle for some of the time.
#[test]
fn capacity_decides_the_number_of_storage_nodes_and_the_time() {
    let plan = planned(toy(), &job(8, 2, "-F -w -t 1m -b 1g"));
    let all: Vec<_> = plan.configurations.iter().collect();
    let capacities: Vec<&str> = all.iter().map(|one| one.capacity.as_deref().unwrap()).collect();
    assert_eq!(capacities, ["16GiB", "32GiB", "64GiB"]);
    let nodes: Vec<u32> = all.iter().map(|one| one.storage_nodes).collect();
    assert_eq!(nodes, [1, 2, 4]);
    for (one, expected) in all.iter().zip([8.71, 4.36, 2.18]) {
        let of_expected = one.io_seconds / expected;
        assert!((0.99..1.3).contains(&of_expected), "{} s of {expected}", one.io_seconds);
        assert_eq!(one.limit, "ssd", "{one:?}");
        assert_eq!(one.access_modes, ["striped", "private"]);
    }
    let directive = plan.recommendation.directive.unwrap();
    assert_eq!(directive, "#DW jobdw capacity=64GiB type=scratch access_mode=striped");
    // These are all storage nodes of the machine: more capacity was not compared.
    let reason = plan.recommendation.reason;
    assert!(reason.contains("no instance has more storage nodes"), "{reason}");
    assert!(!reason.contains("more capacity gains"), "{reason}");
}

/// One process with one call at a time cannot use more than one storage node: the smallest capacity is as
/// good as all.
#[test]
fn capacity_that_gains_nothing_is_not_recommended() {
    let plan = planned(toy(), &job(1, 1, "-F -w -t 512k -b 256m"));
    let first = plan.configurations[0].io_seconds;
    assert!(plan.configurations.iter().all(|one| near(one.io_seconds, first, 10.0)));
    assert!(plan.recommendation.directive.unwrap().contains("capacity=16GiB "));
    assert!(plan.recommendation.reason.contains("gains less than a tenth"));
}

/// Two sets of 16 GiB and 20 GiB of input are 52 GiB: four granules, all four nodes.
#[test]
fn instance_holds_all_sets_and_the_input() {
    let mut job = job(8, 2, "-F -w -t 1m -b 1g");
    job.sets = 2;
    job.stage_in = Bytes(20 << 30);
    let plan = planned(with_pfs(5_000_000_000), &job);
    assert_eq!(plan.needed_bytes, 52 << 30);
    let [one, pfs] = plan.configurations.as_slice() else { panic!("{plan:#?}") };
    assert_eq!((one.capacity.as_deref(), one.storage_nodes), (Some("64GiB"), 4));
    assert_eq!(one.access_modes, ["striped"], "all nodes read the input");
    // The parallel file system's 5 GB/s are less than the nodes' 8 and 16.
    let (input, output) = (one.stage_in.clone().unwrap(), one.stage_out.clone().unwrap());
    assert!(near(input.seconds, 21.475 / 5.0, 0.1), "{input:?}");
    assert!(near(output.seconds, 17.18 / 5.0, 0.1), "{output:?}");
    assert!(output.limit.starts_with("parallel file system's peak rate"), "{output:?}");
    assert!(pfs.is_bound && near(pfs.io_seconds, 17.18 / 5.0, 0.1), "{pfs:?}");
}

/// The parallel file system writes 17.18 GB at 5 GB/s in 3.4 s at best, the buffer in more than 2.2 s, and moves them
/// there in 3.4 s after the job.
#[test]
fn reason_has_the_stages_and_the_time_until_the_data_are_moved() {
    let mut job = job(8, 2, "-F -w -t 1m -b 1g");
    let with_stages = planned(with_pfs(5_000_000_000), &job);
    let reason = &with_stages.recommendation.reason;
    assert!(reason.contains("; the stage-out takes 3.44 s after the job"), "{reason}");
    let last = with_stages.configurations.iter().rfind(|one| one.capacity.is_some()).unwrap();
    let moved = human::seconds(last.io_seconds + last.stage_out.as_ref().unwrap().seconds);
    assert!(reason.contains(&format!("it is {moved} until all data have been moved")), "{reason}");
    job.stage_out = Some(Bytes(0));
    let without = planned(with_pfs(5_000_000_000), &job).recommendation.reason;
    assert!(!without.contains("stage"), "{without}");
}

/// Each of five repetitions writes 16 GiB and keeps them: 80 GiB, which are five granules.
#[test]
fn instance_holds_the_files_that_each_repetition_keeps() {
    let kept = job(8, 2, "-F -w -m -k -i 5 -t 1m -b 1g");
    let plan = planned(toy(), &kept);
    assert_eq!(plan.needed_bytes, 80 << 30);
    assert_eq!(plan.configurations[0].capacity.as_deref(), Some("80GiB"));
    // Without -m, or without -k, each repetition replaces the files of the one before.
    for line in ["-F -w -k -i 5 -t 1m -b 1g", "-F -w -m -i 5 -t 1m -b 1g"] {
        assert_eq!(job(8, 2, line).needed_bytes(), Ok(16 << 30), "{line}");
    }
    assert_eq!(Job { sets: 7, ..kept }.needed_bytes(), Ok((7 * 16) << 30));
}

/// Two nodes with links of 8 GB/s reach 16 GB/s of a file system with 5 or with 700.
#[test]
fn evidence_of_a_bound_is_that_of_its_limit() {
    let bound = |rate| {
        let plan = planned(with_pfs(rate), &job(2, 1, "-F -w -t 1m -b 64m"));
        let pfs = plan.configurations.last().unwrap().clone();
        assert!(pfs.is_bound, "{pfs:?}");
        (pfs.limit, pfs.because)
    };
    let (limit, because) = bound(700_000_000_000);
    assert_eq!(limit, "node-link");
    assert_eq!(because, "the links of 2 nodes carry 16.0 GB/s to Lustre");
    let (limit, because) = bound(5_000_000_000);
    assert_eq!(limit, "pfs");
    assert!(because.contains("its peak rate of 5 GB/s"), "{because}");
}

/// 17.18 GB in 2.2 s every 100 s.
#[test]
fn share_of_the_run_follows_from_interval_or_time() {
    let mut job = job(8, 2, "-F -w -t 1m -b 1g");
    let share = |job: &Job| {
        let plan = planned(toy(), job);
        let last = plan.configurations.last().unwrap().clone();
        (last.io_seconds, last.share)
    };
    assert_eq!(share(&job).1, None);
    job.run_time = Some(1000.0);
    let (io, of_run) = share(&job);
    assert_eq!(of_run, Some(io / 1000.0));
    job.interval = Some(100.0);
    assert_eq!(share(&job).1, Some(io / (100.0 + io)));
}

#[test]
fn files_that_no_burst_buffer_holds_go_to_the_parallel_file_system() {
    let big = job(8, 2, "-F -w -t 1m -b 300g");
    let plan = planned(with_pfs(5_000_000_000), &big);
    assert_eq!(plan.configurations.len(), 1);
    assert_eq!(plan.recommendation.file_system, "pfs");
    assert_eq!(plan.recommendation.directive, None);
    let nowhere = planned(toy(), &big);
    assert_eq!(nowhere.recommendation.file_system, "none");
    let reason = nowhere.recommendation.reason;
    assert!(reason.contains(", which no burst buffer of the machine can hold"), "{reason}");
    let small = job(2, 1, "-F -w -t 1m -b 16m");
    let edison = planned(Machine::load("edison").unwrap(), &small).recommendation;
    assert_eq!(edison.file_system, "pfs");
    assert!(edison.reason.starts_with("the machine has no burst buffers; "), "{}", edison.reason);
}

/// Without a granularity only whole nodes can be requested: 16 GiB need one of 1 TB.
#[test]
fn machine_without_granularity_gets_whole_nodes() {
    let mut machine = toy();
    machine.burst_buffer.as_mut().unwrap().granularity = None;
    let plan = planned(machine, &job(8, 2, "-F -w -t 1m -b 1g"));
    let capacities: Vec<_> =
        plan.configurations.iter().map(|one| one.capacity.clone().unwrap()).collect();
    assert_eq!(capacities, ["1nodes", "2nodes", "4nodes"]);
}

#[test]
fn plan_is_the_same_for_any_number_of_threads() {
    let job = job(8, 2, "-w -r -t 1m -b 64m");
    let system = System::of_machine(toy());
    let with = |threads| plan(&system, &job, &SimOptions { threads, ..flows() }).unwrap();
    assert_eq!(with(1), with(4));
    assert_eq!(with(1).configurations[0].access_modes, ["striped"]);
}

/// Calls of 128 KiB, of which one process has one at a time, cost more than those of 2 MiB.
#[test]
fn larger_transfers_are_suggested_where_they_help() {
    let plan = planned(toy(), &job(4, 1, "-F -w -t 128k -b 64m"));
    assert!(plan.transfers.iter().any(|one| one.transfer == 2 << 20));
    assert_eq!(plan.recommendation.transfer, Some(2 << 20), "{:?}", plan.recommendation);
}

/// Processes with files of their own can use private name spaces; a shared file or an input of all nodes
/// cannot, nor can files that are written be load-balanced.
#[test]
fn access_modes_of_the_script_are_kept_where_they_suit_the_test() {
    use AccessMode::{LoadBalanced, Private, Striped};
    let own_files = "-F -w -t 1m -b 64m";
    for (modes, line, input, advised) in [
        (vec![Private], own_files, 0, "private"),
        (vec![Striped, Private], own_files, 0, "striped,private"),
        (vec![Striped], own_files, 0, "striped"),
        (vec![], own_files, 0, "striped"),
        (vec![LoadBalanced], "-F -r -t 1m -b 64m", 1 << 30, "ldbalance"),
        (vec![Private], "-w -t 1m -b 64m", 0, "striped"),
        (vec![Private], own_files, 1 << 30, "striped"),
        (vec![LoadBalanced], own_files, 1 << 30, "striped"),
        (vec![Striped, Private], "-w -t 1m -b 64m", 0, "striped"),
    ] {
        let kept = modes.is_empty() || advised.split(',').count() == modes.len();
        let kept = kept && modes.iter().all(|mode| advised.contains(mode.keyword()));
        let job = Job { access_modes: modes, stage_in: Bytes(input), ..job(4, 1, line) };
        let plan = planned(toy(), &job);
        let directive = plan.recommendation.directive.unwrap();
        let found = directive.split_once("access_mode=").unwrap().1;
        assert_eq!(found, advised, "{line}");
        let is_explained = plan.recommendation.reason.contains("does not suit");
        assert_eq!(is_explained, !kept, "{}", plan.recommendation.reason);
        forebay_job_script::JobScript::parse(&directive, None).unwrap();
    }
}

/// The work of packets is estimated before they are simulated, and the share done grows to that of all.
#[test]
fn work_is_estimated_and_its_progress_reported() {
    let (system, job) = (System::of_machine(toy()), job(8, 2, "-F -w -t 1m -b 4m"));
    let packets = SimOptions { fidelity: Fidelity::Packet, ..flows() };
    assert_eq!(forecast(&system, &job, &flows()).unwrap().events, 0.0);
    let events = forecast(&system, &job, &packets).unwrap().events;
    let seen = std::sync::Mutex::new((0.0, 0));
    let progress = |_, done: f64, events: u64| {
        let mut seen = seen.lock().unwrap();
        *seen = (done.max(seen.0), events.max(seen.1));
        true
    };
    let found = plan_with(&system, &job, &packets, &progress).unwrap();
    assert_eq!(found, plan(&system, &job, &packets).unwrap());
    let (done, simulated) = *seen.lock().unwrap();
    assert!(done > 0.5 && done <= 1.0, "{done}");
    let of_estimate = simulated as f64 / events;
    assert!((0.5..2.0).contains(&of_estimate), "{simulated} of {events}");
    let ended = plan_with(&system, &job, &packets, &|_, _, _| false).unwrap_err();
    assert_eq!(ended, PlanError::Study(StudyError::Interrupted));
}
