//! IOR on burst buffers and on the parallel file system.

use super::error::StudyError;
use super::fabric::fabric_for;
use super::ior_job::ior_job;
use super::joined::JoinedTest;
use super::logged::{check_logged, simulate_logged};
use super::options::{Fidelity, SimOptions};
use super::run::{Outcome, Progress};
use crate::io::IoJob;
use crate::observe::Observed;
use crate::results::{IorPoint, Phase, RunCost};
use crate::scenario::Scenario;
use forebay_machine_file::machine::Machine;
use forebay_workload::ior::{Access, Ior};
use std::sync::Arc;

/// Simulates one IOR test with `ppn` processes on each of `nodes` nodes.
///
/// # Errors
/// [`StudyError`] when the machine has too few nodes or no burst buffers, or the test does not
/// fit them.
pub fn simulate_ior(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<IorPoint, StudyError> {
    let Some(flush) = options.log else {
        return simulate_test(machine, ior, (nodes, ppn), options, progress);
    };
    let half =
        |number: f64| move |time, done: f64, events| progress(time, (number + done) / 2.0, events);
    let mut point = simulate_test(machine, ior, (nodes, ppn), options, &half(0.0))?;
    let job = (nodes, ppn);
    let logged = simulate_logged(machine, ior, job, flush, options, &point, &half(1.0))?;
    point.logged = Some(logged);
    Ok(point)
}

/// Simulates a test without the log.
pub(super) fn simulate_test(
    machine: &Machine,
    ior: &Ior,
    job: (u32, u32),
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<IorPoint, StudyError> {
    let test = JoinedTest::new(machine, ior, options);
    simulate_joined(machine, &test, job, options, progress)
}

/// Simulates a test whose calls have been joined.
pub(crate) fn simulate_joined(
    machine: &Machine,
    test: &JoinedTest,
    (nodes, ppn): (u32, u32),
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<IorPoint, StudyError> {
    let scenario = joined_scenario(machine, test, nodes, ppn, options)?;
    fabric_for(&scenario, options)?.simulate(&scenario, options, progress)
}

/// The fidelity with which [`simulate_ior`] simulates a test: that of the options, or the one chosen for
/// [`Fidelity::Auto`].
///
/// # Errors
/// As [`simulate_ior`].
pub fn fidelity_of_ior(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<Fidelity, StudyError> {
    let scenario = ior_scenario(machine, ior, nodes, ppn, options)?;
    Ok(fabric_for(&scenario, options)?.fidelity())
}

/// Checks that a test fits a machine, as [`simulate_ior`] does before it simulates.
///
/// # Errors
/// As [`simulate_ior`].
pub fn check_ior_fits(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<(), StudyError> {
    if let Some(flush) = options.log {
        check_logged(machine, ior, (nodes, ppn), flush, options)?;
    }
    fidelity_of_ior(machine, ior, nodes, ppn, options).map(drop)
}

/// The scenario of a test.
pub(super) fn ior_scenario(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<Scenario, StudyError> {
    let test = JoinedTest::new(machine, ior, options);
    joined_scenario(machine, &test, nodes, ppn, options)
}

/// The scenario of a test whose calls have been joined.
pub(super) fn joined_scenario(
    machine: &Machine,
    test: &JoinedTest,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<Scenario, StudyError> {
    let nodes = options.placer(machine)?.place_job(nodes, options.placement)?;
    let idle = options.idle_scenario(machine)?;
    let job = ior_job(&idle, test, nodes, ppn, options)?;
    Ok(Scenario { io: vec![Arc::new(job)], ..idle })
}

/// The document of a run with an IOR job.
pub(super) fn ior_point(scenario: &Scenario, outcome: Outcome) -> IorPoint {
    let Some(job) = scenario.io.first() else { unreachable!("a scenario without an IOR job") };
    let point = point(job, job.phases.take(), outcome.cost);
    IorPoint { delays: outcome.delays, observed: outcome.observed, ..point }
}

/// The document of a run from those of its phases, as one of packets without observations.
pub(super) fn point(job: &IoJob, phases: Vec<Phase>, cost: RunCost) -> IorPoint {
    let best = |access: Access| {
        let of_kind = phases.iter().filter(|p| p.access == access.name());
        of_kind.max_by(|a, b| a.gbps.total_cmp(&b.gbps))
    };
    let (write, read) = (best(Access::Write), best(Access::Read));
    IorPoint {
        nodes: job.nodes.len() as u32,
        processes: job.tasks(),
        fidelity: Fidelity::Packet.name().into(),
        left_out: Vec::new(),
        write_gbps: write.map(|p| p.gbps),
        read_gbps: read.map(|p| p.gbps),
        write_acknowledged_node_gbps: write.map(|p| p.acknowledged_node_gbps.mean),
        read_acknowledged_node_gbps: read.map(|p| p.acknowledged_node_gbps.mean),
        limit: write.or(read).map(|p| p.limit.resource.clone()).unwrap_or_default(),
        phases,
        run: cost,
        replication: None,
        logged: None,
        delays: None,
        observed: Observed::default(),
    }
}
