//! Time of a study with a warm-up of its traffic that is simulated once and copied, or again for each simulation:
//! 16 nodes of Cori Phase I write to 4 to 10 storage nodes beside 256 nodes with uniform traffic.
//!
//!     cargo run --release -p forebay-machine --example warm_ups
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an experiment may fail by panicking")]

use forebay_machine::results::JobsRun;
use forebay_machine::study::{
    IoWork, JobWork, SimOptions, StorageChoice, StudyJob, WarmUps, simulate_jobs_after,
};
use forebay_machine_file::machine::Machine;
use forebay_units::Time;
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;
use std::time::Instant;

const WARM_UP: Time = Time(5_000_000_000);
const STORAGE_NODES: [u32; 4] = [4, 6, 8, 10];
const PAIRS: u32 = 3;

fn job(name: &str, nodes: u32, work: JobWork) -> StudyJob {
    StudyJob { name: name.into(), nodes, placement: Placement::Contiguous, groups: None, work }
}

fn jobs(storage: u32) -> [StudyJob; 2] {
    let words = ["-w", "-F", "-t", "512k", "-b", "512k"].map(String::from);
    let io = IoWork {
        ior: Ior::parse(&words).unwrap().remove(0),
        ppn: 1,
        start: Time(0),
        rate_limit: None,
        storage: StorageChoice { nodes: Some(storage), ..StorageChoice::default() },
    };
    let message = "64KiB".parse().unwrap();
    let traffic = TrafficSpec::new("uniform".parse().unwrap(), message, 0.3, 100).unwrap();
    [job("io", 16, JobWork::Io(io)), job("traffic", 256, JobWork::Traffic(traffic))]
}

fn study(machine: &Machine, warm_ups: &WarmUps) -> (f64, Vec<JobsRun>) {
    let (began, options) = (Instant::now(), SimOptions::default());
    let run =
        |storage| simulate_jobs_after(warm_ups, machine, &jobs(storage), &options, &|_, _, _| true);
    let runs = STORAGE_NODES.into_iter().map(|storage| run(storage).unwrap()).collect();
    (began.elapsed().as_secs_f64(), runs)
}

fn main() {
    let machine = Machine::load("cori-phase1").unwrap();
    for _ in 0..PAIRS {
        let warm_ups = WarmUps::shared(WARM_UP);
        let (copied, first) = study(&machine, &warm_ups);
        let (repeated, second) = study(&machine, &WarmUps::repeated(WARM_UP));
        assert_eq!(first, second, "other results with copies");
        let (simulated, copies) = warm_ups.counts();
        println!(
            "{simulated} warm-ups for {copies} simulations: {copied:.2} s; {copies} warm-ups: {repeated:.2} s"
        );
    }
}
