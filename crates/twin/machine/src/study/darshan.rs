//! The I/O of a Darshan log: one test of IOR after the other.

use super::error::StudyError;
use super::ior::{check_ior_fits, simulate_ior};
use super::options::SimOptions;
use super::run::Progress;
use crate::results::{DarshanPart, DarshanPhase, DarshanRun, IorPoint, RunCost};
use forebay_machine_file::machine::Machine;
use forebay_workload::darshan::{JobIo, Part, Phase};
use forebay_workload::ior::{Access, Ior};
use std::collections::BTreeMap;

/// A part as it is simulated: its test, nodes and processes per node.
struct Simulation {
    test: Ior,
    arguments: Vec<String>,
    nodes: u32,
    ppn: u32,
}

impl Simulation {
    fn of(part: &Part, (nodes, ppn): (u32, u32)) -> Result<Simulation, StudyError> {
        let (nodes, ppn) = part.distribution(nodes, ppn);
        let arguments = part.ior_arguments((nodes, ppn));
        let test = part
            .test((nodes, ppn))
            .map_err(|error| StudyError::Limit(format!("`{}`: {error}", arguments.join(" "))))?;
        Ok(Simulation { test, arguments, nodes, ppn })
    }
}

/// Checks that the processes and the phases of a log fit a machine, as [`simulate_log`] does.
///
/// # Errors
/// As [`simulate_log`].
pub fn check_log_fits(
    machine: &Machine,
    log: &JobIo,
    distribution: (u32, u32),
    options: &SimOptions,
) -> Result<(), StudyError> {
    let (nodes, ppn) = distribution;
    if u64::from(nodes) * u64::from(ppn) < u64::from(log.processes) {
        return Err(StudyError::Machine(format!(
            "the program had {} processes, more than {nodes} nodes with {ppn} each",
            log.processes
        )));
    }
    if log.phases.iter().all(|phase| phase.parts.is_empty()) {
        return Err(StudyError::Machine("the log has no transfers to simulate".into()));
    }
    for part in log.phases.iter().flat_map(|phase| &phase.parts) {
        let one = Simulation::of(part, distribution)?;
        check_ior_fits(machine, &one.test, one.nodes, one.ppn, options)?;
    }
    Ok(())
}

/// Simulates the phases of a log, whose job has so many nodes and processes on each: each part of a phase is a test
/// of IOR on an idle machine. Parts that are the same test are simulated once. The document lacks what only the
/// caller knows: the log's name, the command, published measurements.
///
/// # Errors
/// [`StudyError`] when a part does not fit the machine.
pub fn simulate_log(
    machine: &Machine,
    log: &JobIo,
    distribution: (u32, u32),
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<DarshanRun, StudyError> {
    check_log_fits(machine, log, distribution, options)?;
    let mut points = BTreeMap::<(Vec<String>, u32, u32), IorPoint>::new();
    let tests = log.phases.iter().map(|phase| phase.parts.len()).sum::<usize>().max(1);
    let mut cost = RunCost { threads: options.threads as u32, ..RunCost::default() };
    let mut run = DarshanRun::default();
    let (mut done, mut simulated_bytes) = (0, 0u64);
    let mut longest = 0.0;
    let (mut write, mut read) = (None, None);
    for phase in &log.phases {
        let mut parts = Vec::new();
        for part in &phase.parts {
            let one = Simulation::of(part, distribution)?;
            let key = (one.arguments.clone(), one.nodes, one.ppn);
            let point = match points.entry(key) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let shown = |time, share: f64, events| {
                        progress(time, (f64::from(done) + share) / tests as f64, events)
                    };
                    let point =
                        simulate_ior(machine, &one.test, one.nodes, one.ppn, options, &shown)?;
                    add_cost(&mut cost, &point.run);
                    note(&mut run, &point, &one.arguments);
                    place.insert(point)
                }
            };
            done += 1;
            let part = simulated(part, &one, point);
            if part.slowest_rank_seconds > longest {
                longest = part.slowest_rank_seconds;
                run.limit = part.limit.clone();
            }
            let of_access = if phase.access == Access::Write { &mut write } else { &mut read };
            *of_access.get_or_insert(0.0) += part.slowest_rank_seconds;
            run.seconds += part.seconds;
            run.slowest_rank_seconds += part.slowest_rank_seconds;
            simulated_bytes += part.bytes;
            parts.push(part);
        }
        run.phases.push(document(phase, parts));
    }
    let rate = |bytes: u64, seconds: f64| (seconds > 0.0).then(|| bytes as f64 / seconds / 1e9);
    let rest = log.run_seconds - log.measured.seconds;
    Ok(DarshanRun {
        schema: crate::results::SCHEMA,
        kind: "sim darshan".into(),
        machine: machine.name.clone(),
        nodes: distribution.0,
        ppn: distribution.1,
        processes: log.processes,
        run_seconds: log.run_seconds,
        has_traces: log.has_traces,
        burst_buffers: options.burst_buffers.unwrap_or(0),
        seed: options.seed,
        placement: options.placement.to_string(),
        bytes: log.measured.bytes,
        measured_seconds: log.measured.seconds,
        measured_gbps: rate(log.measured.bytes, log.measured.seconds),
        slowest_rank_gbps: rate(simulated_bytes, run.slowest_rank_seconds),
        write_seconds: write,
        read_seconds: read,
        predicted_run_seconds: (rest >= 0.0).then_some(rest + run.slowest_rank_seconds),
        warnings: log.warnings.iter().cloned().chain(run.warnings).collect(),
        run: cost,
        ..run
    })
}

fn add_cost(cost: &mut RunCost, more: &RunCost) {
    cost.wall_seconds += more.wall_seconds;
    cost.simulated_seconds += more.simulated_seconds;
    cost.events += more.events;
    cost.packets_delivered += more.packets_delivered;
    cost.peak_rss_bytes = cost.peak_rss_bytes.max(more.peak_rss_bytes);
}

/// Adds the warnings about a test, and what flows leave out.
fn note(run: &mut DarshanRun, point: &IorPoint, arguments: &[String]) {
    for warning in point.phases.iter().flat_map(|phase| &phase.warnings) {
        run.warnings.push(format!("`{}`: {warning}", arguments.join(" ")));
    }
    for effect in &point.left_out {
        if !run.left_out.contains(effect) {
            run.left_out.push(effect.clone());
        }
    }
}

fn simulated(part: &Part, one: &Simulation, point: &IorPoint) -> DarshanPart {
    // A test has one phase.
    let phase = point.phases.first();
    let slowest = phase.map_or(0.0, |phase| match phase.slowest_rank_gbps > 0.0 {
        true => phase.bytes as f64 / phase.slowest_rank_gbps / 1e9,
        false => phase.seconds,
    });
    DarshanPart {
        ior: one.arguments.clone(),
        nodes: one.nodes,
        processes: part.processes,
        bytes: part.bytes,
        operations: part.operations,
        simulated_bytes: phase.map_or(0, |phase| phase.bytes),
        seconds: phase.map_or(0.0, |phase| phase.seconds),
        slowest_rank_seconds: slowest,
        limit: phase.map(|phase| phase.limit.resource.clone()).unwrap_or_default(),
        because: phase.map(|phase| phase.limit.because.clone()).unwrap_or_default(),
        fidelity: point.fidelity.clone(),
    }
}

fn document(phase: &Phase, parts: Vec<DarshanPart>) -> DarshanPhase {
    let longest =
        parts.iter().max_by(|a, b| a.slowest_rank_seconds.total_cmp(&b.slowest_rank_seconds));
    DarshanPhase {
        access: phase.access.name().into(),
        files: if phase.is_shared { "shared file" } else { "file per process" }.into(),
        begin_seconds: phase.begin,
        end_seconds: phase.end,
        processes: phase.processes,
        file_count: phase.files,
        bytes: phase.bytes,
        operations: phase.operations,
        left_out_bytes: phase.left_out(),
        measured_seconds: phase.measured_seconds,
        seconds: parts.iter().map(|part| part.seconds).sum(),
        slowest_rank_seconds: parts.iter().map(|part| part.slowest_rank_seconds).sum(),
        limit: longest.map(|part| part.limit.clone()).unwrap_or_default(),
        parts,
    }
}
