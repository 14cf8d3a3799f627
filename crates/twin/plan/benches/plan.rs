//! Time of a plan: `cargo bench -p forebay-plan --bench plan`.
//!
//! Plans of a job that writes 4 GiB from each process, on Cori, for growing numbers of processes; each
//! figure is the median of three. The target is [`MOST`] seconds; rows above it say so.

use forebay_machine::study::{Fidelity, SimOptions};
use forebay_machine_file::machine::Machine;
use forebay_plan::{Job, System, plan};
use forebay_units::Bytes;
use forebay_workload::ior::Ior;
use std::process::ExitCode;
use std::time::Instant;

const RUNS: usize = 3;

/// Most time of a plan, seconds.
const MOST: f64 = 2.0;

/// Seconds of a plan on one core.
fn seconds(system: &System, nodes: u32, line: &str) -> Result<f64, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let test = Ior::parse(&words).map_err(|e| e.to_string())?.remove(0);
    let job = Job {
        nodes,
        ppn: 32,
        test,
        interval: None,
        run_time: None,
        sets: 1,
        stage_in: Bytes(0),
        stage_in_files: None,
        stage_out: None,
        access_modes: Vec::new(),
    };
    let options = SimOptions { fidelity: Fidelity::Flow, threads: 1, ..SimOptions::default() };
    let began = Instant::now();
    plan(system, &job, &options).map_err(|e| e.to_string())?;
    Ok(began.elapsed().as_secs_f64())
}

fn run() -> Result<(), String> {
    let system = System::of_machine(Machine::load("cori").map_err(|e| e.to_string())?);
    println!("{:>9}  {:<28}  {:>8}", "processes", "test", "plan");
    for nodes in [16, 64, 128, 256, 512] {
        for line in ["-F -w -t 1m -b 4g", "-w -t 1m -b 4g", "-F -w -r -t 1m -b 4g"] {
            let times: Result<Vec<f64>, String> =
                (0..RUNS).map(|_| seconds(&system, nodes, line)).collect();
            let mut times = times?;
            times.sort_by(f64::total_cmp);
            let median = times[RUNS / 2];
            let verdict = if median > MOST { "  above the target" } else { "" };
            println!("{:>9}  {line:<28}  {median:>6.2} s{verdict}", nodes * 32);
        }
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
