//! Several jobs on `toy`, compared with hand calculations. Its storage nodes write 2 GB/s to flash, whose
//! eight channels take 250 MB/s each.

use forebay_machine::observe::ObserveOptions;
use forebay_machine::results::{ConcurrentJob, IoRun, JobRun, JobsRun, JobsTogether};
use forebay_machine::study::{
    Fidelity, IoWork, JobWork, ServerQueues, SimOptions, StorageChoice, StudyJob, simulate_ior,
    simulate_jobs,
};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::{Rate, Time};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;

fn toy() -> Machine {
    Machine::load("toy").unwrap()
}

fn ior(line: &str) -> Ior {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&words).unwrap().remove(0)
}

fn job(name: &str, nodes: u32, work: JobWork) -> StudyJob {
    StudyJob { name: name.into(), nodes, placement: Placement::Contiguous, groups: None, work }
}

fn io(name: &str, nodes: u32, ppn: u32, line: &str, storage: StorageChoice) -> StudyJob {
    let work = IoWork { ior: ior(line), ppn, start: Time(0), rate_limit: None, storage };
    job(name, nodes, JobWork::Io(work))
}

fn traffic(name: &str, nodes: u32, load: f64) -> StudyJob {
    let spec = TrafficSpec::new("uniform".parse().unwrap(), "16KiB".parse().unwrap(), load, 100);
    job(name, nodes, JobWork::Traffic(spec.unwrap()))
}

fn one_node() -> StorageChoice {
    StorageChoice { nodes: Some(1), ..StorageChoice::default() }
}

fn options(threads: usize) -> SimOptions {
    let observe = ObserveOptions { delays: true, ..ObserveOptions::default() };
    SimOptions { threads, observe, ..SimOptions::default() }
}

fn run(jobs: &[StudyJob]) -> JobsRun {
    simulate_jobs(&toy(), jobs, &options(1), &|_, _, _| true).unwrap()
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
    assert!(error.abs() < percent, "{what}: {found}, by hand {by_hand}");
}

/// 16 processes keep the eight channels busy, so that one job gets 2 GB/s: 16 x 8 MiB take 67 ms. Two
/// equal jobs get half each and end together.
#[test]
fn two_equal_jobs_on_one_storage_node_take_twice_the_time_and_wait_for_flash() {
    for (line, rate) in [("-w -F -t 512k -b 8m", 2.0), ("-w -r -F -t 512k -b 8m", 2.0)] {
        let jobs = [io("a", 8, 2, line, one_node()), io("b", 8, 2, line, one_node())];
        let found = run(&jobs);
        let alone = io_of(&found.alone[0]);
        assert_near(alone.write_gbps.unwrap(), rate, 6.0, line);
        let [pair] = found.together.as_slice() else { panic!("{found:?}") };
        for one in &pair.jobs {
            assert_near(one.slowdown.unwrap(), 2.0, 6.0, line);
            assert!(one.overlap > 0.95, "{}", one.overlap);
            let (alone, together) =
                (io_of(&one.alone).waits.unwrap(), io_of(&one.together).waits.unwrap());
            let added =
                |of: fn(&forebay_machine::results::WaitSeconds) -> f64| of(&together) - of(&alone);
            let at_storage = added(|w| w.flash) + added(|w| w.server);
            assert!(at_storage > 0.9 * (at_storage + added(|w| w.network).abs()), "{one:?}");
        }
    }
}

/// Reads of two jobs share the 4 GB/s of the flash; each alone is limited by the data path of its storage
/// node or the flash.
#[test]
fn readers_of_two_jobs_share_the_flash_of_their_storage_node() {
    let line = "-r -F -t 512k -b 8m";
    let found = run(&[io("a", 8, 2, line, one_node()), io("b", 8, 2, line, one_node())]);
    let rates: Vec<f64> =
        found.together[0].jobs.iter().map(|one| io_of(&one.together).read_gbps.unwrap()).collect();
    assert_near(rates.iter().sum(), 4.0, 8.0, "both");
    assert_near(rates[0], rates[1], 5.0, "equal shares");
}

/// Storage nodes of their own: nothing is shared but links that neither fills.
#[test]
fn jobs_with_storage_nodes_of_their_own_do_not_slow_each_other() {
    let line = "-w -F -t 512k -b 8m";
    let own = StorageChoice { nodes: Some(1), separate: true, ..StorageChoice::default() };
    let found = run(&[io("a", 8, 2, line, own), io("b", 8, 2, line, own)]);
    for one in &found.together[0].jobs {
        assert_near(one.slowdown.unwrap(), 1.0, 2.0, "slowdown");
    }
    let error = simulate_jobs(
        &toy(),
        &[
            io("a", 8, 2, line, StorageChoice { nodes: Some(3), ..own }),
            io("b", 8, 2, line, StorageChoice { nodes: Some(2), ..own }),
        ],
        &options(1),
        &|_, _, _| true,
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`b` requests 2 storage nodes; toy has 1 for it"), "{error}");
}

/// The job with three times as many processes has three times as many requests in the queue of the storage
/// node, which serves them in the order of their arrival: while both run, it gets three quarters.
#[test]
fn job_with_more_processes_gets_more_of_a_storage_node() {
    // The same bytes a process: at shares of 3:1 both end at the same time, after four thirds of the
    // larger job's time alone, and four times the smaller one's.
    let line = "-w -F -t 512k -b 8m";
    let found = run(&[io("large", 12, 4, line, one_node()), io("small", 4, 4, line, one_node())]);
    let [pair] = found.together.as_slice() else { panic!("{found:?}") };
    assert_near(slowdown(pair, 0), 4.0 / 3.0, 5.0, "large");
    assert_near(slowdown(pair, 1), 4.0, 8.0, "small");
}

/// Threads for one request of each job in turn: half of the flash for each while both run, so that the
/// smaller job takes twice its time alone. The flash is busy all the time, so that the larger one ends as
/// late as with one queue.
#[test]
fn fair_queues_give_each_job_an_equal_share_of_a_storage_node() {
    let line = "-w -F -t 512k -b 8m";
    let jobs = [io("large", 12, 4, line, one_node()), io("small", 4, 4, line, one_node())];
    let fair = SimOptions { server_queues: ServerQueues::FairShares, ..options(1) };
    let found = simulate_jobs(&toy(), &jobs, &fair, &|_, _, _| true).unwrap();
    let [pair] = found.together.as_slice() else { panic!("{found:?}") };
    assert_near(slowdown(pair, 0), 4.0 / 3.0, 5.0, "large");
    assert_near(slowdown(pair, 1), 2.0, 8.0, "small");
}

/// A limit of 500 MB/s at each storage node: 1 GB/s at two, alone and beside a job that gets the rest of
/// the 4 GB/s of their flash, or of the reads' 8 GB/s.
#[test]
fn limited_job_gets_its_rate_and_leaves_the_rest() {
    let two = StorageChoice { nodes: Some(2), ..StorageChoice::default() };
    let mut limited = io("limited", 8, 2, "-w -F -t 512k -b 8m", two);
    if let JobWork::Io(work) = &mut limited.work {
        work.rate_limit = Some(Rate(500_000_000));
    }
    let free = io("free", 8, 4, "-w -F -t 512k -b 8m", two);
    let found = run(&[limited.clone(), free]);
    assert_near(io_of(&found.alone[0]).write_gbps.unwrap(), 1.0, 5.0, "alone");
    let rate = |job: usize| io_of(&found.together[0].jobs[job].together).write_gbps.unwrap();
    assert_near(rate(0), 1.0, 6.0, "limited, beside the other");
    assert_near(rate(1), 3.0, 8.0, "the rest");
    if let JobWork::Io(work) = &mut limited.work {
        work.ior = ior("-r -F -t 512k -b 8m");
    }
    let alone = run(&[limited]);
    assert_near(io_of(&alone.alone[0]).read_gbps.unwrap(), 1.0, 5.0, "reads");
}

/// A storage node writes 2 GB/s to flash: as many as the groups and the number of each group allow, with
/// packets and with flows. The machine has two in each group.
#[test]
fn storage_nodes_per_group_are_those_that_a_job_gets() {
    let set = |key: &str| Setting { key: format!("placement.blade.1.{key}"), value: "2".into() };
    let settings = [set("nodes_per_router"), set("per_group")];
    let machine = Machine::load_with("toy", &settings).unwrap();
    let rate = |storage: StorageChoice, fidelity: Fidelity| {
        let jobs = [io("a", 16, 2, "-w -F -t 512k -b 4m", storage)];
        let options = SimOptions { fidelity, ..SimOptions::default() };
        let found = simulate_jobs(&machine, &jobs, &options, &|_, _, _| true).unwrap();
        assert!(found.together.is_empty());
        io_of(&found.alone[0]).write_gbps.unwrap()
    };
    let each = StorageChoice { per_group: Some(1), ..StorageChoice::default() };
    let one = StorageChoice { groups: Some((1, 1)), ..each };
    let clustered = StorageChoice { per_group: None, ..one };
    let spread = StorageChoice { groups: Some((1, 2)), ..each };
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        assert_near(rate(one, fidelity), 2.0, 6.0, "one storage node");
        assert_near(rate(clustered, fidelity), 4.0, 12.0, "two of one group");
        assert_near(rate(spread, fidelity), 4.0, 12.0, "one of each of two groups");
    }
    let none = StorageChoice { per_group: Some(0), ..each };
    let jobs = [io("a", 16, 2, "-w -F -t 512k -b 8m", none)];
    let error = simulate_jobs(&toy(), &jobs, &SimOptions::default(), &|_, _, _| true);
    assert!(error.unwrap_err().to_string().contains("0 storage nodes"));
}

/// Traffic that offers a tenth of its links is accepted beside I/O, too, with packets and with flows. Flows have
/// no latency: they have the load alone divided by that together as its slowdown.
#[test]
fn traffic_beside_io_has_its_load_with_packets_and_with_flows() {
    let jobs = [traffic("traffic", 8, 0.1), io("io", 8, 2, "-w -F -t 512k -b 8m", one_node())];
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        let options = SimOptions { fidelity, ..SimOptions::default() };
        let found = simulate_jobs(&toy(), &jobs, &options, &|_, _, _| true).unwrap();
        let [pair] = found.together.as_slice() else { panic!("{found:?}") };
        let [JobRun::Traffic(alone), JobRun::Io(io)] = found.alone.as_slice() else {
            panic!("{found:?}")
        };
        let JobRun::Traffic(together) = &pair.jobs[0].together else { panic!("{pair:?}") };
        for state in [alone, together] {
            assert_near(state.accepted_load, 0.1, 8.0, fidelity.name());
            assert_ne!(state.state, "saturated", "{fidelity:?}");
            assert_eq!(state.mean_seconds.is_some(), fidelity == Fidelity::Packet);
        }
        assert_near(io.write_gbps.unwrap(), 2.0, 6.0, fidelity.name());
        assert_near(slowdown(pair, 1), 1.0, 3.0, fidelity.name());
        if fidelity == Fidelity::Flow {
            assert_eq!(slowdown(pair, 0), alone.accepted_load / together.accepted_load);
        }
    }
}

/// The second job starts when the first has ended: neither sees the other.
#[test]
fn jobs_one_after_the_other_do_not_overlap() {
    let line = "-w -F -t 512k -b 4m";
    let first = io("first", 8, 2, line, one_node());
    let mut second = io("second", 8, 2, line, one_node());
    if let JobWork::Io(work) = &mut second.work {
        work.start = Time(200_000_000_000);
    }
    let found = run(&[first, second]);
    for one in &found.together[0].jobs {
        assert_eq!(one.overlap, 0.0);
        assert_near(one.slowdown.unwrap(), 1.0, 0.5, "slowdown");
    }
    let span = io_of(&found.together[0].jobs[1].together).span_seconds;
    assert!((span[0] - 0.2).abs() < 1e-12 && span[1] > 0.2, "{span:?}");
}

/// Three jobs give three pairs and all together; a job alone has the same result as `sim ior` on the
/// same nodes and storage; minimal paths between nodes of one group do not cross links of another.
#[test]
fn matrix_has_each_job_beside_each_and_all() {
    let line = "-w -F -t 512k -b 4m";
    let mut near = traffic("near", 8, 0.5);
    near.groups = Some((2, 2));
    let mut far = traffic("far", 8, 0.5);
    far.groups = Some((3, 3));
    let minimal = SimOptions { routing: Some(Routing::Minimal), ..options(1) };
    let jobs = [io("a", 4, 2, line, StorageChoice::default()), near, far];
    let found = simulate_jobs(&toy(), &jobs, &minimal, &|_, _, _| true).unwrap();
    let sets: Vec<Vec<usize>> =
        found.together.iter().map(|set| set.jobs.iter().map(|one| one.job).collect()).collect();
    assert_eq!(sets, [vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]]);
    let alone = simulate_ior(&toy(), &ior(line), 4, 2, &minimal, &|_, _, _| true);
    assert_eq!(io_of(&found.alone[0]).write_gbps, alone.unwrap().write_gbps);
    let JobsTogether { jobs, delays } = &found.together[2];
    let both: Vec<&ConcurrentJob> = jobs.iter().collect();
    assert_eq!(both.iter().map(|one| one.slowdown).collect::<Vec<_>>(), [Some(1.0), Some(1.0)]);
    let delays = delays.as_ref().unwrap();
    assert_eq!(delays.jobs, ["a", "near", "far"]);
    for class in &delays.network {
        assert_eq!((class.seconds[1][2], class.seconds[2][1]), (0.0, 0.0), "{class:?}");
    }
}

/// Delays have names of jobs, and those of two jobs with traffic on the same links are told apart.
#[test]
fn delays_tell_jobs_of_one_kind_apart() {
    let mut jobs = [traffic("one", 12, 0.4), traffic("two", 12, 0.4)];
    jobs.iter_mut().for_each(|job| job.placement = Placement::RandomNodes);
    let found = run(&jobs);
    let [pair] = found.together.as_slice() else { panic!("{found:?}") };
    let delays = pair.delays.as_ref().unwrap();
    let by_other: f64 = delays.network.iter().map(|class| class.seconds[0][1]).sum();
    let total: f64 = delays.network.iter().map(|class| class.total_seconds[0]).sum();
    assert!(by_other > 0.0 && by_other < total, "{by_other} of {total}");
    assert!(slowdown(pair, 0) > 1.0, "{}", slowdown(pair, 0));
}

#[test]
fn results_do_not_depend_on_the_number_of_threads_or_on_observation() {
    let line = "-w -r -F -t 256k -b 1m";
    let jobs = [
        io("a", 4, 2, line, StorageChoice::default()),
        io("b", 4, 2, "-w -t 256k -b 1m", StorageChoice::default()),
        traffic("c", 16, 0.3),
    ];
    let one = run(&jobs);
    let four = simulate_jobs(&toy(), &jobs, &options(4), &|_, _, _| true).unwrap();
    assert_eq!(one, four);
    let mut plain = simulate_jobs(&toy(), &jobs, &SimOptions::default(), &|_, _, _| true).unwrap();
    for (set, observed) in plain.together.iter_mut().zip(&one.together) {
        set.delays.clone_from(&observed.delays);
    }
    assert_eq!(one, plain);
}
