//! Comparison of flows with packets for several I/O jobs at once: the time of each job alone and together with
//! the others, and its slowdown. The cases are on the machines `toy` and `cori-phase1`, and none of them was
//! used to build the model of flows.
//!
//!     cargo run --release -p forebay-machine --example compare_jobs
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an experiment may fail by panicking")]

use forebay_machine::results::{JobRun, JobsRun};
use forebay_machine::study::{
    Fidelity, IoWork, JobWork, SimOptions, StorageChoice, StudyJob, simulate_jobs,
};
use forebay_machine_file::machine::Machine;
use forebay_units::Time;
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;

/// A job: nodes, processes of each, storage nodes of its own if negative, IOR's options, start in us.
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

fn job(number: usize, &(nodes, ppn, storage, line, start): &Job) -> StudyJob {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    let work = IoWork {
        ior: Ior::parse(&words).unwrap().remove(0),
        ppn,
        start: Time(start * 1_000_000),
        rate_limit: None,
        storage: StorageChoice {
            nodes: Some(storage.unsigned_abs()),
            separate: storage < 0,
            ..StorageChoice::default()
        },
    };
    let placement = Placement::Contiguous;
    StudyJob { name: number.to_string(), nodes, placement, groups: None, work: JobWork::Io(work) }
}

/// Time alone and together with all others, and slowdown, of each job.
fn times(run: &JobsRun) -> Vec<(f64, f64, f64)> {
    let seconds = |run: &JobRun| match run {
        JobRun::Io(io) => io.seconds,
        JobRun::Traffic(_) => f64::NAN,
    };
    let all = run.together.last().unwrap();
    let of_job = |one: &forebay_machine::results::JobBeside| {
        (seconds(&one.alone), seconds(&one.together), one.slowdown.unwrap())
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

fn main() {
    let mut found: [Vec<f64>; 3] = Default::default();
    println!("case machine job: packets, flows: ms alone, ms together, slowdown; differences");
    for (case, (machine, jobs)) in CASES.iter().enumerate() {
        let machine = Machine::load(machine).unwrap();
        let jobs: Vec<StudyJob> = jobs.iter().enumerate().map(|(n, j)| job(n, j)).collect();
        let with = |fidelity| {
            let options = SimOptions { fidelity, ..SimOptions::default() };
            times(&simulate_jobs(&machine, &jobs, &options, &|_, _, _| true).unwrap())
        };
        let (packets, flows) = (with(Fidelity::Packet), with(Fidelity::Flow));
        for (number, (p, f)) in packets.iter().zip(&flows).enumerate() {
            let each = [f.0 / p.0 - 1.0, f.1 / p.1 - 1.0, f.2 / p.2 - 1.0];
            println!(
                "{case} {} {number}: {:.2} {:.2} {:.3}; {:.2} {:.2} {:.3}; {:+.1}% {:+.1}% {:+.1}%",
                machine.name.split(' ').next().unwrap_or_default(),
                p.0 * 1e3,
                p.1 * 1e3,
                p.2,
                f.0 * 1e3,
                f.1 * 1e3,
                f.2,
                each[0] * 100.0,
                each[1] * 100.0,
                each[2] * 100.0
            );
            found.iter_mut().zip(each).for_each(|(all, one)| all.push(one.abs()));
        }
    }
    let [alone, together, slowdown] = found;
    summary("time alone", alone);
    summary("time together", together);
    summary("slowdown", slowdown);
}
