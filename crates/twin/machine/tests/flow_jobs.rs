//! Several I/O jobs with flows on `toy`, compared with hand calculations and with packets. Its storage nodes
//! write 2 GB/s to flash and read 4 GB/s.

use forebay_machine::results::{IoRun, JobRun, JobsRun, JobsTogether};
use forebay_machine::study::{
    Fidelity, IoWork, JobWork, ServerQueues, SimOptions, StorageChoice, StudyError, StudyJob,
    simulate_ior, simulate_jobs,
};
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::{Rate, Time};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use proptest::prelude::*;

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

fn ior(line: &str) -> Ior {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&words).unwrap().remove(0)
}

/// A job with a shape of (nodes, processes of each), on so many storage nodes.
fn io(name: &str, (nodes, ppn): (u32, u32), line: &str, storage: u32) -> StudyJob {
    let storage = StorageChoice { nodes: Some(storage), ..StorageChoice::default() };
    let work = IoWork { ior: ior(line), ppn, start: Time(0), rate_limit: None, storage };
    let work = JobWork::Io(work);
    let placement = Placement::Contiguous;
    StudyJob { name: name.into(), nodes, placement, groups: None, work }
}

fn work(job: &mut StudyJob) -> &mut IoWork {
    match &mut job.work {
        JobWork::Io(work) => work,
        JobWork::Traffic(_) => panic!("a job with traffic"),
    }
}

fn with(jobs: &[StudyJob], fidelity: Fidelity) -> Result<JobsRun, StudyError> {
    let options = SimOptions { fidelity, ..SimOptions::default() };
    simulate_jobs(&toy(), jobs, &options, &|_, _, _| true)
}

fn flows(jobs: &[StudyJob]) -> JobsRun {
    let found = with(jobs, Fidelity::Flow).unwrap();
    assert_eq!(found.fidelity, "flow");
    found
}

fn io_of(run: &JobRun) -> &IoRun {
    match run {
        JobRun::Io(io) => io,
        JobRun::Traffic(_) => panic!("{run:?}"),
    }
}

fn slowdown(together: &JobsTogether, job: usize) -> f64 {
    together.jobs.iter().find(|one| one.job == job).and_then(|one| one.slowdown).unwrap()
}

fn assert_near(found: f64, by_hand: f64, percent: f64, what: &str) {
    let error = 100.0 * (found / by_hand - 1.0);
    assert!(error.abs() < percent, "{what}: {found}, not {by_hand}");
}

/// 16 processes keep the flash of a storage node busy; two equal jobs get half each.
#[test]
fn equal_jobs_on_one_storage_node_take_twice_the_time_and_wait_for_flash() {
    let line = "-w -F -t 512k -b 8m";
    let found = flows(&[io("a", (8, 2), line, 1), io("b", (8, 2), line, 1)]);
    assert_near(io_of(&found.alone[0]).write_gbps.unwrap(), 2.0, 6.0, "alone");
    let [pair] = found.together.as_slice() else { panic!("{found:?}") };
    for one in &pair.jobs {
        assert_near(one.slowdown.unwrap(), 2.0, 6.0, "slowdown");
        assert!(one.overlap > 0.95, "{}", one.overlap);
        let waits = |run: &JobRun| io_of(run).waits.unwrap();
        let (alone, together) = (waits(&one.alone), waits(&one.together));
        assert!(together.flash > 1.5 * alone.flash && alone.flash > 0.0, "{one:?}");
        assert!(together.network < 0.1 * together.flash, "{one:?}");
        assert_eq!(io_of(&one.together).limit, "ssd");
    }
}

/// The same bytes for each process: at shares of 3:1 both end at the same time.
#[test]
fn job_with_more_processes_gets_more_of_a_storage_node() {
    let line = "-w -F -t 512k -b 8m";
    let found = flows(&[io("large", (12, 4), line, 1), io("small", (4, 4), line, 1)]);
    let [pair] = found.together.as_slice() else { panic!("{found:?}") };
    assert_near(slowdown(pair, 0), 4.0 / 3.0, 5.0, "large");
    assert_near(slowdown(pair, 1), 4.0, 8.0, "small");
}

#[test]
fn jobs_with_storage_nodes_of_their_own_do_not_slow_each_other() {
    let line = "-w -r -F -t 512k -b 8m";
    let mut jobs = [io("a", (8, 2), line, 1), io("b", (8, 2), line, 1)];
    for job in &mut jobs {
        work(job).storage.separate = true;
    }
    let found = flows(&jobs);
    for one in &found.together[0].jobs {
        assert_near(one.slowdown.unwrap(), 1.0, 0.5, "slowdown");
    }
}

/// By hand: writes of 2 GB/s and reads of 4 GB/s, each with 16 processes, take the time of the same flash. Each
/// of both moves as many bytes: 1 / (1/2 + 1/4) GB/s.
#[test]
fn writers_and_readers_share_the_time_of_the_flash() {
    let write = io("write", (8, 2), "-w -F -t 512k -b 32m", 1);
    let read = io("read", (8, 2), "-r -F -t 512k -b 32m", 1);
    let found = flows(&[write, read]);
    let rate = |job: usize| {
        let run = io_of(&found.together[0].jobs[job].together).clone();
        run.write_gbps.or(run.read_gbps).unwrap()
    };
    assert_near(rate(0), 4.0 / 3.0, 6.0, "writer");
    assert_near(rate(1), 4.0 / 3.0, 6.0, "reader");
}

fn on_cori(jobs: &[StudyJob]) -> JobsRun {
    let machine = Machine::load("cori-phase1").unwrap();
    let options = SimOptions { fidelity: Fidelity::Flow, ..SimOptions::default() };
    simulate_jobs(&machine, jobs, &options, &|_, _, _| true).unwrap()
}

/// The 81,920 requests of the first job are too many to be simulated one by one: by rates its processes, of which all
/// begin at three of the twelve objects of a storage node, stay together alone, and not beside others.
#[test]
fn job_that_flows_make_faster_beside_another_has_a_warning() {
    let found = on_cori(&[
        io("one file", (20, 1), "-w -t 64k -b 256m", 4),
        io("files", (6, 4), "-F -w -t 512k -b 64m", 4),
    ]);
    for one in &found.together[0].jobs {
        let warnings = &io_of(&one.together).warnings;
        let is_warned = warnings.iter().any(|text| text.contains("which cannot be"));
        assert_eq!(is_warned, one.slowdown.unwrap() < 0.95, "{one:?}");
        assert_eq!(is_warned, one.job == 0, "{one:?}");
    }
}

/// With packets the first of these jobs takes 5.04 times its time alone, with flows 6.71.
#[test]
fn small_transfers_beside_large_ones_have_a_warning() {
    let small = |storage| io("small", (4, 2), "-w -r -F -t 64k -b 2m", storage);
    let large = |storage| io("large", (4, 2), "-w -t 1m -b 32m", storage);
    let warned = |jobs: &[StudyJob]| -> Vec<bool> {
        let found = flows(jobs);
        let warnings = |job: usize| &io_of(&found.together[0].jobs[job].together).warnings;
        let is_warned = |text: &String| text.contains("transfers of 1 MiB on the same storage");
        (0..2).map(|job| warnings(job).iter().any(is_warned)).collect()
    };
    assert_eq!(warned(&[small(4), large(4)]), [true, false]);
    let alike = io("alike", (4, 2), "-w -F -t 128k -b 2m", 4);
    assert_eq!(warned(&[alike, large(4)]), [false, false]);
    // On storage nodes of their own they do not meet.
    let mut apart = [small(2), large(2)];
    apart.iter_mut().for_each(|job| work(job).storage.separate = true);
    assert_eq!(warned(&apart), [false, false]);
}

/// Packets give 1.126 and 2.317. With few requests the processes of the first job share the locks of objects as their
/// requests alone do, one after another; with equal shares they went from object to object together, and a job beside
/// them, which ended that, made them faster (0.79).
#[test]
fn writers_of_one_file_do_not_stay_together() {
    let found = on_cori(&[
        io("one file", (20, 1), "-w -t 2m -b 32m", 4),
        io("files", (6, 4), "-F -w -t 512k -b 8m", 4),
    ]);
    assert_near(slowdown(&found.together[0], 0), 1.126, 10.0, "one file");
    assert_near(slowdown(&found.together[0], 1), 2.317, 10.0, "files");
}

#[test]
fn job_that_starts_after_the_end_of_another_is_not_slowed() {
    let line = "-w -r -F -t 512k -b 8m";
    let mut jobs = [io("first", (8, 2), line, 1), io("second", (8, 2), line, 1)];
    work(&mut jobs[1]).start = Time(1_000_000_000_000);
    let found = flows(&jobs);
    let [pair] = found.together.as_slice() else { panic!("{found:?}") };
    for one in &pair.jobs {
        assert_near(one.slowdown.unwrap(), 1.0, 0.2, "slowdown");
        assert_eq!(one.overlap, 0.0);
    }
    assert!(io_of(&pair.jobs[1].together).span_seconds[0] == 1.0);
}

/// 500 MB/s at each of two storage nodes; the other job gets the rest of 4 GB/s.
#[test]
fn limited_job_gets_its_rate_and_leaves_the_rest() {
    let mut jobs = [
        io("limited", (8, 2), "-w -F -t 512k -b 8m", 2),
        io("free", (8, 4), "-w -F -t 512k -b 8m", 2),
    ];
    work(&mut jobs[0]).rate_limit = Some(Rate(500_000_000));
    let found = flows(&jobs);
    let rate = |job: usize| io_of(&found.together[0].jobs[job].together).write_gbps.unwrap();
    assert_near(io_of(&found.alone[0]).write_gbps.unwrap(), 1.0, 5.0, "alone");
    assert_near(rate(0), 1.0, 6.0, "limited");
    assert_near(rate(1), 3.0, 8.0, "the rest");
}

/// A job in the simulation of several jobs has the time that it has as the only one, whether all its transfers
/// are simulated or not: by `sim ior`, which simulates phases with few requests one by one.
#[test]
fn job_alone_has_the_rate_of_a_single_test() {
    for (line, percent) in [
        ("-w -r -F -t 512k -b 16m", 0.5),
        ("-w -r -t 256k -b 16m", 0.5),
        ("-w -r -F -t 512k -b 16g", 2.0),
    ] {
        let jobs = [io("a", (12, 2), line, 4), io("b", (2, 1), "-w -F -t 1m -b 8m", 1)];
        let found = flows(&jobs);
        let options = SimOptions {
            fidelity: Fidelity::Flow,
            burst_buffers: Some(4),
            ..SimOptions::default()
        };
        let single = simulate_ior(&toy(), &ior(line), 12, 2, &options, &|_, _, _| true).unwrap();
        let alone = io_of(&found.alone[0]);
        assert_near(alone.write_gbps.unwrap(), single.write_gbps.unwrap(), percent, line);
        assert_near(alone.read_gbps.unwrap(), single.read_gbps.unwrap(), percent, line);
    }
}

/// 16 processes with 16 GiB each need 140 s alone: most of their time is steady and is not simulated. A
/// job of a quarter of the bytes runs beside it for half of that.
#[test]
fn long_jobs_have_the_times_of_short_ones_in_proportion() {
    let long = io("long", (8, 2), "-w -F -t 512k -b 16g", 1);
    let short = io("short", (8, 2), "-w -F -t 512k -b 4g", 1);
    let found = flows(&[long, short]);
    let alone: Vec<f64> = found.alone.iter().map(|run| io_of(run).seconds).collect();
    let [pair] = found.together.as_slice() else { panic!("{found:?}") };
    let together: Vec<f64> = pair.jobs.iter().map(|one| io_of(&one.together).seconds).collect();
    let bytes = 16.0 * 16.0 * (1u64 << 30) as f64;
    assert_near(alone[0], bytes / 1.963e9, 2.0, "alone");
    assert_near(alone[1], bytes / 4.0 / 1.963e9, 2.0, "alone");
    assert_near(together[1], 2.0 * alone[1], 2.0, "short");
    assert_near(together[0], alone[0] + alone[1], 2.0, "long");
    assert!(found.events < 200_000, "{} runs", found.events);
}

/// A smaller form of examples/isolation.toml: long jobs, most of whose time is skipped, on many storage nodes, where
/// convoys of processes form. The second one starts when the first one has settled.
#[test]
fn long_jobs_on_many_storage_nodes_slow_each_other_only_if_they_share_them() {
    let machine = Machine::load("trinity-phase2").unwrap();
    let slowdowns = |separate: bool| -> Vec<f64> {
        let mut jobs = [
            io("checkpoint", (96, 1), "-w -F -t 1m -b 16g", 18),
            io("analysis", (32, 1), "-r -F -t 1m -b 8g", 7),
        ];
        jobs.iter_mut().for_each(|job| work(job).storage.separate = separate);
        work(&mut jobs[1]).start = Time(2_000_000_000_000);
        let options = SimOptions { fidelity: Fidelity::Flow, ..SimOptions::default() };
        let found = simulate_jobs(&machine, &jobs, &options, &|_, _, _| true).unwrap();
        (0..2).map(|job| slowdown(&found.together[0], job)).collect()
    };
    for found in slowdowns(true) {
        assert_near(found, 1.0, 3.0, "separate storage nodes");
    }
    let shared = slowdowns(false);
    assert!(shared[0] > 1.04 && shared[1] > 1.3, "{shared:?}");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let jobs = [
        io("a", (6, 2), "-w -r -F -t 256k -b 64m", 3),
        io("b", (5, 3), "-w -t 512k -b 8m", 4),
        io("c", (7, 1), "-r -F -t 64k -b 4m", 2),
    ];
    let of = |threads| {
        let options = SimOptions { threads, fidelity: Fidelity::Flow, ..SimOptions::default() };
        simulate_jobs(&toy(), &jobs, &options, &|_, _, _| true).unwrap()
    };
    let one = of(1);
    assert_eq!(one.together.len(), 4);
    assert_eq!(one, of(1));
    assert_eq!(one, of(4));
}

#[test]
fn parts_that_flows_cannot_represent_are_errors_and_simulated_with_packets_by_auto() {
    let jobs = [io("a", (2, 1), "-w -F -t 512k -b 4m", 1), io("b", (2, 1), "-w -F -t 1m -b 4m", 1)];
    let fair = |fidelity| {
        let server_queues = ServerQueues::FairShares;
        let options = SimOptions { fidelity, server_queues, ..SimOptions::default() };
        simulate_jobs(&toy(), &jobs, &options, &|_, _, _| true)
    };
    let error = fair(Fidelity::Flow).unwrap_err().to_string();
    assert!(error.contains("fair queues"), "{error}");
    assert_eq!(fair(Fidelity::Auto).unwrap().fidelity, "packet");
    assert_eq!(with(&jobs, Fidelity::Auto).unwrap().fidelity, "packet");
    let large =
        [io("a", (20, 2), "-w -F -t 1m -b 4g", 4), io("b", (20, 2), "-w -F -t 1m -b 4g", 4)];
    assert_eq!(with(&large, Fidelity::Auto).unwrap().fidelity, "flow");
}

/// The time of a job beside another, with flows and with packets.
#[test]
fn slowdowns_are_near_those_of_packets() {
    for (a, b) in [
        ("-w -F -t 512k -b 16m", "-w -F -t 512k -b 16m"),
        ("-w -F -t 512k -b 16m", "-r -F -t 512k -b 32m"),
        ("-w -r -F -t 1m -b 16m", "-w -t 512k -b 16m"),
    ] {
        let jobs = [io("a", (12, 2), a, 2), io("b", (10, 2), b, 2)];
        let (packets, flows) = (with(&jobs, Fidelity::Packet).unwrap(), flows(&jobs));
        for job in 0..2 {
            let of = |run: &JobsRun| io_of(&run.together[0].jobs[job].together).seconds;
            assert_near(of(&flows), of(&packets), 20.0, &format!("{a} beside {b}, job {job}"));
        }
    }
}

fn lines() -> impl Strategy<Value = String> {
    let access = prop_oneof![Just("-w"), Just("-r"), Just("-w -r")];
    let files = prop_oneof![Just(" -F"), Just("")];
    let size = prop_oneof![Just(65_536u64), Just(524_288), Just(3_000_000)];
    (access, files, size, 1u64..40).prop_map(|(access, files, transfer, count)| {
        format!("{access}{files} -t {transfer} -b {}", transfer * count)
    })
}

fn jobs() -> impl Strategy<Value = Vec<StudyJob>> {
    let job = (lines(), 1u32..10, 1u32..4, 1u32..5, 0u64..20_000_000_000);
    prop::collection::vec(job, 2..4).prop_map(|all| {
        let of_job = |(number, (line, nodes, ppn, storage, start)): (
            usize,
            (String, u32, u32, u32, u64),
        )| {
            let mut job = io(&format!("job {number}"), (nodes, ppn), &line, storage);
            work(&mut job).start = Time(start);
            job
        };
        all.into_iter().enumerate().map(of_job).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The bytes of each phase are moved (the simulation asserts it), no job is faster than all flash and
    /// clients, and no job beside others is much faster than alone: up to a quarter, since others break up
    /// convoys of processes that meet at the same servers (settled in view of a case with a tenth).
    #[test]
    fn random_jobs_end_within_their_resources(jobs in jobs()) {
        let found = flows(&jobs);
        for (job, alone) in jobs.iter().zip(&found.alone) {
            let JobWork::Io(IoWork { ppn: _, storage, .. }) = &job.work else { unreachable!() };
            let storage = f64::from(storage.nodes.unwrap());
            let run = io_of(alone);
            let most = f64::from(job.nodes) * 4.0;
            prop_assert!(run.write_gbps.is_none_or(|rate| rate <= most.min(2.0 * storage) * 1.001));
            prop_assert!(run.read_gbps.is_none_or(|rate| rate <= most.min(4.0 * storage) * 1.001));
        }
        for set in &found.together {
            for one in &set.jobs {
                prop_assert!(one.slowdown.unwrap() > 0.75, "{:?}", one);
            }
        }
    }
}

/// Long writes from one group to the storage nodes of four, by links between groups of 20 GB/s, and of 0.5 GB/s that
/// two jobs fill together.
#[test]
fn links_between_groups_that_jobs_fill_have_a_warning() {
    let jobs =
        [io("a", (4, 4), "-w -F -t 512k -b 4g", 4), io("b", (4, 4), "-w -F -t 512k -b 4g", 4)];
    let warnings = |machine: &Machine| {
        let routing = Some(Routing::Minimal);
        let options = SimOptions { fidelity: Fidelity::Flow, routing, ..SimOptions::default() };
        let found = simulate_jobs(machine, &jobs, &options, &|_, _, _| true).unwrap();
        let together = &found.together[0].jobs[0].together;
        io_of(together).warnings.iter().filter(|warning| warning.contains("is in use")).count()
    };
    assert_eq!(warnings(&toy()), 0);
    let mut narrow = toy();
    narrow.network.global.rate = Rate(500_000_000);
    assert_eq!(warnings(&narrow), 1);
}
