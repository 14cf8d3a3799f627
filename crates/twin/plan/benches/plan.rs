//! Time of a plan: `cargo bench -p forebay-plan --bench plan`.
//!
//! Plans of long runs, which write 4 GiB from each process, and of short runs, whose requests are simulated one by
//! one, for growing numbers of processes; each figure is the median of three. The target is [`MOST`] seconds; rows
//! above it say so. `-- TEXT` chooses the jobs whose options have the text.

use forebay_machine::study::{Fidelity, SimOptions};
use forebay_machine_file::machine::Machine;
use forebay_plan::{Job, System, Work, plan};
use forebay_workload::ior::Ior;
use std::process::ExitCode;
use std::time::Instant;

const RUNS: usize = 3;

/// Most time of a plan, seconds.
const MOST: f64 = 2.0;

/// Machines with the nodes, the processes of a node, and the IOR options of jobs.
const SHORT_RUNS: [(&str, u32, u32, &str); 5] = [
    ("cori-phase1", 100, 4, "-F -w -t 256k -b 4m"),
    ("cori-phase1", 100, 4, "-F -w -t 256k -b 16m"),
    ("cori-phase1", 100, 4, "-F -w -t 256k -b 32m"),
    ("cori-phase1", 100, 4, "-F -w -r -t 1m -b 128m"),
    ("shaheen2", 64, 8, "-w -r -t 512k -b 16m"),
];

/// Seconds of a plan on one core.
fn seconds(system: &System, (nodes, ppn): (u32, u32), line: &str) -> Result<f64, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let test = Ior::parse(&words).map_err(|e| e.to_string())?.remove(0);
    let job = Job::new(nodes, ppn, Work::Test(Box::new(test)));
    let options = SimOptions { fidelity: Fidelity::Flow, threads: 1, ..SimOptions::default() };
    let began = Instant::now();
    plan(system, &job, &options).map_err(|e| e.to_string())?;
    Ok(began.elapsed().as_secs_f64())
}

/// Prints the median time of plans of a job, if its options have the chosen text.
fn row(system: &System, (nodes, ppn): (u32, u32), line: &str) -> Result<(), String> {
    let chosen = std::env::args().skip(1).find(|argument| argument != "--bench");
    if chosen.is_some_and(|chosen| !line.contains(&chosen)) {
        return Ok(());
    }
    let times: Result<Vec<f64>, String> =
        (0..RUNS).map(|_| seconds(system, (nodes, ppn), line)).collect();
    let mut times = times?;
    times.sort_by(f64::total_cmp);
    let median = times[RUNS / 2];
    let verdict = if median > MOST { "  above the target" } else { "" };
    println!(
        "{:<12}  {:>9}  {line:<28}  {median:>6.2} s{verdict}",
        system.machine.name,
        nodes * ppn
    );
    Ok(())
}

fn run() -> Result<(), String> {
    let load = |name: &str| Machine::load(name).map(System::of_machine).map_err(|e| e.to_string());
    println!("{:<12}  {:>9}  {:<28}  {:>8}", "machine", "processes", "test", "plan");
    let cori = load("cori")?;
    for nodes in [16, 64, 128, 256, 512] {
        for line in ["-F -w -t 1m -b 4g", "-w -t 1m -b 4g", "-F -w -r -t 1m -b 4g"] {
            row(&cori, (nodes, 32), line)?;
        }
    }
    for (machine, nodes, ppn, line) in SHORT_RUNS {
        row(&load(machine)?, (nodes, ppn), line)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
