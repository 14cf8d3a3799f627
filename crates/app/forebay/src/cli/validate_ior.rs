//! The cases of `forebay validate` that simulate IOR.

use super::machine::load_with;
use super::options::study_failure;
use super::output::Output;
use super::replicates::{SharedProgress, run_all, threads_of_each};
use crate::validate::cases::{Case, Check, Run};
use crate::validate::published::{Published, measurement};
use crate::validate::verdict::{self, Row};
use forebay_console::Failure;
use forebay_machine::results::{IorPoint, RunCost};
use forebay_machine::study::{self, FileSystem, Progress, SimOptions};
use forebay_machine_file::Setting;
use forebay_machine_file::machine::Machine;

/// Simulates a case with a number of seeds, from that of the options on; the rows of its checks.
pub(super) fn rows(
    case: &Case,
    set: &[Setting],
    seeds: (&SimOptions, u32),
    threads: usize,
    table: &[Published],
    output: &Output,
) -> Result<Vec<Row>, Failure> {
    let machine = load_with(&case.machine, set)?;
    let points = simulate(case, &machine, seeds, threads, output)?;
    let row = |check: &Check| {
        let published = measurement(&check.row, table)?;
        Ok(verdict::compare(case, check, published, &machine.provenance, &points))
    };
    case.check.iter().map(row).collect()
}

/// Simulates each run of a case with all seeds, as many simulations at a time as there are threads; a
/// run that is the same with the first two, with these only.
fn simulate(
    case: &Case,
    machine: &Machine,
    (base, seeds): (&SimOptions, u32),
    threads: usize,
    output: &Output,
) -> Result<Vec<(Run, Vec<IorPoint>)>, Failure> {
    let (runs, seeds) = (case.runs(), seeds as usize);
    let progress = SharedProgress::start(&case.id, runs.len() * seeds, output.display);
    // Each task is a run and a seed, by their numbers.
    let simulate = |tasks: &[(usize, usize)]| {
        run_all(tasks.len(), threads, |task| {
            let (run, nth) = tasks[task];
            let options = SimOptions {
                threads: threads_of_each(threads, tasks.len()),
                seed: base.seed.wrapping_add(nth as u64),
                ..base.clone()
            };
            let number = run * seeds + nth;
            let shown = |time, done, events| progress.update(number, time, done, events);
            let point = simulate_run(case, &runs[run], machine, &options, &shown);
            progress.end(number);
            point
        })
    };
    let of_each = seeds.min(2);
    let first: Vec<(usize, usize)> =
        (0..runs.len()).flat_map(|run| (0..of_each).map(move |nth| (run, nth))).collect();
    let mut points: Vec<Vec<IorPoint>> =
        simulate(&first)?.chunks(of_each).map(<[IorPoint]>::to_vec).collect();
    let depends = |points: &[IorPoint]| !matches!(points, [one, other] if are_same(one, other));
    let more: Vec<(usize, usize)> = (0..runs.len())
        .filter(|&run| depends(&points[run]))
        .flat_map(|run| (of_each..seeds).map(move |nth| (run, nth)))
        .collect();
    for ((run, _), point) in more.iter().zip(simulate(&more)?) {
        points[*run].push(point);
    }
    drop(progress);
    Ok(runs.into_iter().zip(points).collect())
}

/// Whether two runs have the same results, to the last bit.
fn are_same(one: &IorPoint, other: &IorPoint) -> bool {
    let results = |point: &IorPoint| IorPoint { run: RunCost::default(), ..point.clone() };
    results(one) == results(other)
}

/// Simulates one run of a case, on its number of burst-buffer nodes.
pub(super) fn simulate_run(
    case: &Case,
    run: &Run,
    machine: &Machine,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<IorPoint, Failure> {
    let tests = super::ior::parse_tests(&run.ior)?.unwrap_or_default();
    let [test] = tests.as_slice() else {
        return Err(Failure::Failed(format!("case {} is not one IOR test", case.id)));
    };
    let burst_buffers = match run.file_system {
        FileSystem::BurstBuffer => Some(case.burst_buffers / case.part),
        FileSystem::Parallel { .. } => None,
    };
    let options = SimOptions {
        burst_buffers,
        file_system: run.file_system,
        node_kind: case.node_kind.clone(),
        ..options.clone()
    };
    study::simulate_ior(machine, test, run.nodes / case.part, run.ppn, &options, progress)
        .map_err(|e| study_failure(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ior::parse_tests;

    #[test]
    fn runs_that_differ_in_their_cost_only_are_the_same() {
        let machine = Machine::load("toy").unwrap();
        let simulate = |line: &str, seed| {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            let test = parse_tests(&words).unwrap().unwrap().remove(0);
            let options = SimOptions { seed, ..SimOptions::default() };
            study::simulate_ior(&machine, &test, 4, 2, &options, &|_, _, _| true).unwrap()
        };
        // In order there is nothing to draw but paths, of which these nodes have one.
        let one = simulate("-w -F -t 64k -b 64k", 1);
        let mut slower = one.clone();
        slower.run.wall_seconds += 1.0;
        assert!(are_same(&one, &slower));
        // Random offsets are drawn with the seed.
        let line = "-w -z -t 64k -b 8m";
        assert!(!are_same(&simulate(line, 1), &simulate(line, 2)));
    }

    #[test]
    fn run_of_a_case_is_on_nodes_of_its_type() {
        let machine = Machine::load("cori").unwrap();
        let mut case = crate::validate::cases::all().unwrap().remove(0);
        case.burst_buffers = 1;
        let run = Run {
            nodes: 1,
            ppn: 1,
            file_system: FileSystem::BurstBuffer,
            ior: "-w -F -t 1m -b 4m".split_whitespace().map(String::from).collect(),
            label: "1".to_string(),
        };
        let mut seconds = |kind: &str| {
            case.node_kind = Some(kind.to_string());
            let options = SimOptions::default();
            let point = simulate_run(&case, &run, &machine, &options, &|_, _, _| true);
            point.map(|point| point.phases[0].seconds)
        };
        // The clients of KNL nodes send less a second.
        assert!(seconds("knl").unwrap() > seconds("haswell").unwrap());
        assert!(seconds("gpu").is_err());
    }
}
