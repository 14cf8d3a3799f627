//! IOR on burst buffers.

use super::error::StudyError;
use super::ior_job::ior_job;
use super::options::SimOptions;
use super::run::{Outcome, Progress, run};
use crate::results::IorPoint;
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
    let scenario = ior_scenario(machine, ior, nodes, ppn, options)?;
    Ok(ior_point(&scenario, run(&scenario, options, progress)?))
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
    ior_scenario(machine, ior, nodes, ppn, options).map(drop)
}

/// The scenario of a test.
pub(super) fn ior_scenario(
    machine: &Machine,
    ior: &Ior,
    nodes: u32,
    ppn: u32,
    options: &SimOptions,
) -> Result<Scenario, StudyError> {
    let nodes = options.placer(machine)?.place_job(nodes, options.placement)?;
    let idle = options.idle_scenario(machine)?;
    let job = ior_job(&idle, ior, nodes, ppn, options)?;
    Ok(Scenario { io: Some(Arc::new(job)), ..idle })
}

/// The document of a run with an IOR job.
pub(super) fn ior_point(scenario: &Scenario, outcome: Outcome) -> IorPoint {
    let Some(job) = &scenario.io else { unreachable!("a scenario without an IOR job") };
    let phases = job.phases.take();
    let best = |access: Access| {
        let of_kind = phases.iter().filter(|p| p.access == access.name());
        of_kind.max_by(|a, b| a.gbps.total_cmp(&b.gbps))
    };
    let (write, read) = (best(Access::Write), best(Access::Read));
    IorPoint {
        nodes: job.nodes.len() as u32,
        processes: job.tasks(),
        write_gbps: write.map(|p| p.gbps),
        read_gbps: read.map(|p| p.gbps),
        write_acknowledged_node_gbps: write.map(|p| p.acknowledged_node_gbps.mean),
        read_acknowledged_node_gbps: read.map(|p| p.acknowledged_node_gbps.mean),
        limit: write.or(read).map(|p| p.limit.resource.clone()).unwrap_or_default(),
        phases,
        run: outcome.cost,
        replication: None,
        delays: outcome.delays,
        observed: outcome.observed,
    }
}
