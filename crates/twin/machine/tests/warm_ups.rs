//! Studies whose simulations go on from copies of the state at the end of their traffic's warm-up, on `toy`.

use forebay_machine::observe::ObserveOptions;
use forebay_machine::results::{IoRun, JobRun, JobsRun};
use forebay_machine::study::{
    IoWork, JobWork, SimOptions, StorageChoice, StudyJob, WarmUps, simulate_jobs,
    simulate_jobs_after,
};
use forebay_machine_file::machine::{Machine, Routing};
use forebay_units::Time;
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;

const WARM_UP: Time = Time(300_000_000);

fn job(name: &str, nodes: u32, work: JobWork) -> StudyJob {
    StudyJob { name: name.into(), nodes, placement: Placement::Contiguous, groups: None, work }
}

/// A job with I/O on so many storage nodes, from a time after the warm-up on.
fn io(name: &str, storage: u32, start: Time) -> StudyJob {
    let words = ["-w", "-F", "-t", "512k", "-b", "1m"].map(String::from);
    let work = IoWork {
        ior: Ior::parse(&words).unwrap().remove(0),
        ppn: 1,
        start,
        rate_limit: None,
        storage: StorageChoice { nodes: Some(storage), ..StorageChoice::default() },
    };
    job(name, 4, JobWork::Io(work))
}

fn traffic(name: &str, pattern: &str) -> StudyJob {
    let message = "16KiB".parse().unwrap();
    let spec = TrafficSpec::new(pattern.parse().unwrap(), message, 0.4, 100);
    job(name, 16, JobWork::Traffic(spec.unwrap()))
}

fn options(threads: usize) -> SimOptions {
    let observe = ObserveOptions { delays: true, ..ObserveOptions::default() };
    SimOptions { threads, observe, ..SimOptions::default() }
}

fn run(warm_ups: &WarmUps, jobs: &[StudyJob], options: &SimOptions) -> JobsRun {
    let toy = Machine::load("toy").unwrap();
    simulate_jobs_after(warm_ups, &toy, jobs, options, &|_, _, _| true).unwrap()
}

fn io_of(run: &JobRun) -> &IoRun {
    match run {
        JobRun::Io(io) => io,
        JobRun::Traffic(_) => panic!("{run:?}"),
    }
}

/// Three measures, of which one changes the routing and with it the warm-up: the two others have the same states
/// of the pair of traffic jobs, of each of them beside I/O, and of each alone without observation.
#[test]
fn copies_of_a_state_go_on_as_the_state_itself() {
    let jobs = |storage: u32, start: u64| {
        [
            io("io", storage, Time(start)),
            traffic("uniform", "uniform"),
            traffic("near", "nearest-group"),
        ]
    };
    let minimal = SimOptions { routing: Some(Routing::Minimal), ..options(1) };
    let cases =
        [(jobs(2, 0), options(1)), (jobs(1, 50_000_000), options(1)), (jobs(2, 0), minimal)];
    let (shared, repeated) = (WarmUps::shared(WARM_UP), WarmUps::repeated(WARM_UP));
    for (number, (jobs, options)) in cases.iter().enumerate() {
        let found = run(&shared, jobs, options);
        assert_eq!(found, run(&repeated, jobs, options), "case {number}");
        let two_threads = SimOptions { threads: 2, ..options.clone() };
        assert_eq!(found, run(&shared, jobs, &two_threads), "case {number} on two threads");
    }
    let (simulated, copied) = shared.counts();
    assert_eq!(simulated, 2 * 5, "of both routings");
    assert!(copied >= 2 * 3 * 7, "{copied} copies");
    assert_eq!(repeated.counts().1, 0);
}

/// The same traffic from the same time on, and the same start of the I/O: with and without a warm-up.
#[test]
fn io_after_a_warm_up_is_as_io_that_starts_later() {
    let traffic = || traffic("uniform", "uniform");
    let after = run(&WarmUps::shared(WARM_UP), &[io("io", 1, Time(0)), traffic()], &options(1));
    let toy = Machine::load("toy").unwrap();
    let later = [io("io", 1, WARM_UP), traffic()];
    let later = simulate_jobs(&toy, &later, &options(1), &|_, _, _| true).unwrap();
    for (after, later) in [
        (&after.alone[0], &later.alone[0]),
        (&after.together[0].jobs[0].together, &later.together[0].jobs[0].together),
    ] {
        assert_eq!(io_of(after), io_of(later));
    }
    assert_eq!(after.together[0].delays, later.together[0].delays);
    let JobRun::Traffic(counted) = &after.together[0].jobs[1].together else {
        panic!("{after:?}");
    };
    assert!(counted.window_seconds[0] >= 300e-6, "{counted:?}");
}
