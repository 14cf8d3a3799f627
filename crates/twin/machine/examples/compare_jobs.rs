//! Comparison of flows with packets for several I/O jobs at once: the time of each job alone and together with
//! the others, and its slowdown; on burst buffers, on the parallel file system, and beside traffic. None of the
//! cases was used to build the model of flows.
//!
//!     cargo run --release -p forebay-machine --example compare_jobs
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an experiment may fail by panicking")]

use forebay_machine::results::{JobRun, JobsRun};
use forebay_machine::study::{
    Fidelity, FileSystem, IoWork, JobWork, SimOptions, StorageChoice, StudyJob, simulate_jobs,
};
use forebay_machine_file::machine::Machine;
use forebay_units::{Bytes, Time};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;

/// A job: nodes, processes of each, storage nodes (all if 0) of its own if negative, IOR's options, start in us.
type Job = (u32, u32, i32, &'static str, u64);

/// Machine and jobs.
const CASES: [(&str, &[Job]); 14] = [
    ("toy", &[(10, 2, 2, "-F -w -t 1m -b 24m", 0), (6, 2, 2, "-F -w -t 1m -b 24m", 0)]),
    ("toy", &[(9, 1, 3, "-F -w -r -t 2m -b 32m", 0), (14, 1, 3, "-F -r -t 2m -b 32m", 0)]),
    ("toy", &[(7, 3, 1, "-F -r -t 512k -b 16m", 0), (7, 3, 1, "-F -w -t 512k -b 16m", 3_000)]),
    ("toy", &[(11, 1, 4, "-F -w -t 4m -b 32m", 0), (5, 2, 4, "-F -w -t 128k -b 16m", 0)]),
    ("toy", &[(8, 2, 2, "-w -t 512k -b 8m", 0), (8, 2, 2, "-F -w -t 512k -b 8m", 0)]),
    ("toy", &[(8, 2, 2, "-r -t 1m -b 16m", 0), (12, 1, 2, "-r -t 256k -b 16m", 0)]),
    ("toy", &[(10, 1, -2, "-F -w -t 1m -b 32m", 0), (10, 1, -2, "-F -w -r -t 512k -b 16m", 0)]),
    (
        "toy",
        &[
            (6, 2, 4, "-F -w -t 1m -b 16m", 0),
            (9, 1, 4, "-F -r -t 512k -b 16m", 1_000),
            (5, 3, 4, "-F -w -r -t 2m -b 8m", 2_000),
        ],
    ),
    ("toy", &[(20, 2, 4, "-F -w -t 512k -b 16m", 0), (4, 1, 4, "-F -w -t 512k -b 8m", 5_000)]),
    ("cori-phase1", &[(12, 2, 2, "-F -w -t 1m -b 16m", 0), (12, 2, 2, "-F -r -t 1m -b 16m", 0)]),
    ("cori-phase1", &[(16, 1, 4, "-F -w -t 2m -b 32m", 0), (8, 2, 4, "-F -w -t 512k -b 16m", 0)]),
    ("cori-phase1", &[(10, 1, 3, "-w -t 1m -b 16m", 0), (14, 1, 3, "-F -w -t 4m -b 32m", 0)]),
    ("cori-phase1", &[(24, 1, 3, "-F -r -t 1m -b 24m", 0), (6, 4, 3, "-F -r -t 256k -b 8m", 500)]),
    (
        "cori-phase1",
        &[(12, 1, -3, "-F -w -r -t 1m -b 16m", 0), (12, 1, -3, "-F -w -t 1m -b 16m", 0)],
    ),
];

/// Cases that were committed before any of them was simulated, for the model with large first calls.
const LATER_CASES: [(&str, &[Job]); 6] = [
    ("toy", &[(8, 1, 2, "-F -w -t 4m -b 16m", 0), (12, 1, 2, "-F -r -t 1m -b 16m", 0)]),
    ("toy", &[(6, 1, -2, "-F -w -t 16m -b 16m", 0), (6, 1, -2, "-F -r -t 16m -b 16m", 0)]),
    ("cori-phase1", &[(10, 1, 4, "-F -w -t 16m -b 32m", 0), (10, 2, 4, "-F -r -t 1m -b 16m", 500)]),
    ("cori-phase1", &[(20, 1, 4, "-w -t 2m -b 32m", 0), (6, 4, 4, "-F -w -t 512k -b 8m", 0)]),
    (
        "trinity-phase2",
        &[(12, 1, 6, "-F -w -r -t 1m -b 32m", 0), (12, 2, 6, "-F -w -t 4m -b 16m", 0)],
    ),
    ("shaheen2", &[(9, 2, 5, "-F -r -t 2m -b 16m", 0), (15, 1, 5, "-r -t 1m -b 16m", 0)]),
];

/// Machine, targets of a file on the parallel file system, and jobs.
const ON_PFS: [(&str, u32, &[Job]); 5] = [
    ("cori-phase1", 4, &[(8, 2, 0, "-F -w -t 1m -b 64m", 0), (6, 2, 0, "-F -r -t 1m -b 64m", 0)]),
    (
        "cori-phase1",
        1,
        &[(12, 2, 0, "-F -w -r -t 1m -b 64m", 0), (5, 4, 0, "-F -w -t 4m -b 64m", 2_000)],
    ),
    ("cori-phase1", 8, &[(6, 2, 0, "-w -t 1m -b 64m", 0), (6, 2, 0, "-F -w -t 1m -b 64m", 0)]),
    ("shaheen2", 2, &[(10, 1, 0, "-F -w -t 2m -b 128m", 0), (4, 4, 0, "-F -r -t 1m -b 64m", 0)]),
    ("shaheen2", 144, &[(9, 2, 0, "-F -r -t 1m -b 96m", 0), (9, 2, 0, "-F -r -t 1m -b 96m", 0)]),
];

/// Machine, an I/O job, and the nodes, pattern and load of a job with traffic.
const BESIDE_TRAFFIC: [(&str, Job, (u32, &str, f64)); 4] = [
    ("toy", (8, 1, 2, "-F -w -t 1m -b 16m", 0), (24, "uniform", 0.3)),
    ("toy", (6, 2, 2, "-F -r -t 1m -b 16m", 0), (30, "adversarial", 0.2)),
    ("cori-phase1", (12, 1, 4, "-F -w -r -t 1m -b 16m", 0), (128, "uniform", 0.2)),
    ("cori-phase1", (16, 2, 8, "-F -r -t 512k -b 16m", 0), (256, "permutation", 0.4)),
];

fn traffic(&(nodes, pattern, load): &(u32, &str, f64)) -> StudyJob {
    let spec = TrafficSpec::new(pattern.parse().unwrap(), Bytes(16 << 10), load, 100).unwrap();
    let placement = Placement::Contiguous;
    let work = JobWork::Traffic(spec);
    StudyJob { name: "traffic".into(), nodes, placement, groups: None, work }
}

fn job(number: usize, &(nodes, ppn, storage, line, start): &Job) -> StudyJob {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    let work = IoWork {
        ior: Ior::parse(&words).unwrap().remove(0),
        ppn,
        start: Time(start * 1_000_000),
        rate_limit: None,
        storage: StorageChoice {
            nodes: (storage != 0).then_some(storage.unsigned_abs()),
            separate: storage < 0,
            ..StorageChoice::default()
        },
    };
    let placement = Placement::Contiguous;
    StudyJob { name: number.to_string(), nodes, placement, groups: None, work: JobWork::Io(work) }
}

/// Time alone and together with all others, and slowdown, of each job; of traffic the accepted loads, and nothing.
fn times(run: &JobsRun) -> Vec<(f64, f64, f64)> {
    let value = |run: &JobRun| match run {
        JobRun::Io(io) => io.seconds,
        JobRun::Traffic(traffic) => traffic.accepted_load,
    };
    let all = run.together.last().unwrap();
    let of_job = |one: &forebay_machine::results::ConcurrentJob| {
        let slowdown = match one.alone {
            JobRun::Io(_) => one.slowdown.unwrap(),
            JobRun::Traffic(_) => f64::NAN,
        };
        (value(&one.alone), value(&one.together), slowdown)
    };
    all.jobs.iter().map(of_job).collect()
}

/// Median, 90th percentile and greatest of differences.
fn summary(name: &str, mut differences: Vec<f64>) {
    differences.sort_by(f64::total_cmp);
    let at =
        |share: f64| differences[((differences.len() as f64 * share).ceil() as usize).max(1) - 1];
    let above = differences.iter().filter(|one| **one > 0.2).count();
    println!(
        "{name}: {} jobs, median {:.1}%, 90th percentile {:.1}%, greatest {:.1}%, {above} above 20%",
        differences.len(),
        at(0.5) * 100.0,
        at(0.9) * 100.0,
        at(1.0) * 100.0
    );
}

/// Differences of times alone and together, and of slowdowns.
type Differences = [Vec<f64>; 3];

fn compare(name: &str, jobs: &[StudyJob], file_system: FileSystem, found: &mut Differences) {
    let machine = Machine::load(name).unwrap();
    let with = |fidelity| {
        let options = SimOptions { fidelity, file_system, ..SimOptions::default() };
        times(&simulate_jobs(&machine, jobs, &options, &|_, _, _| true).unwrap())
    };
    let (packets, flows) = (with(Fidelity::Packet), with(Fidelity::Flow));
    for (number, (p, f)) in packets.iter().zip(&flows).enumerate() {
        let each = [f.0 / p.0 - 1.0, f.1 / p.1 - 1.0, f.2 / p.2 - 1.0];
        let shown = each.map(|difference| format!("{:+.1}%", difference * 100.0)).join(" ");
        println!(
            "{name} {number}: {:.5} {:.5} {:.3}; {:.5} {:.5} {:.3}; {shown}",
            p.0, p.1, p.2, f.0, f.1, f.2
        );
        let known = found.iter_mut().zip(each).filter(|(_, one)| !one.is_nan());
        known.for_each(|(all, one)| all.push(one.abs()));
    }
}

fn summaries([alone, together, slowdown]: Differences) {
    summary("time or load alone", alone);
    summary("time or load together", together);
    summary("slowdown of I/O", slowdown);
}

fn main() {
    let numbered = |jobs: &[Job]| -> Vec<StudyJob> {
        jobs.iter().enumerate().map(|(n, j)| job(n, j)).collect()
    };
    println!("machine job: packets, flows: s alone, s together, slowdown; differences");
    let mut found = Differences::default();
    for (machine, jobs) in CASES {
        compare(machine, &numbered(jobs), FileSystem::BurstBuffer, &mut found);
    }
    summaries(found);
    let mut found = Differences::default();
    for (machine, jobs) in LATER_CASES {
        compare(machine, &numbered(jobs), FileSystem::BurstBuffer, &mut found);
    }
    summaries(found);
    let mut found = Differences::default();
    for (machine, count, jobs) in ON_PFS {
        let file_system = FileSystem::Parallel { stripe_count: Some(count), stripe: None };
        compare(machine, &numbered(jobs), file_system, &mut found);
    }
    summaries(found);
    let mut found = Differences::default();
    for (machine, io, other) in &BESIDE_TRAFFIC {
        let jobs = [job(0, io), traffic(other)];
        compare(machine, &jobs, FileSystem::BurstBuffer, &mut found);
    }
    summaries(found);
}
