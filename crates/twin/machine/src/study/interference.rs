//! IOR and traffic on one machine, together and each alone.

use super::error::StudyError;
use super::ior::{ior_point, run_job};
use super::ior_job::ior_job;
use super::options::SimOptions;
use super::progress::Progress;
use super::run::{build, run_cost};
use super::traffic::{run_traffic, traffic_job, traffic_run};
use crate::io::IoJob;
use crate::results::{InterferenceRun, IorPoint, SCHEMA, TrafficRun};
use crate::scenario::Scenario;
use crate::traffic::TrafficJob;
use forebay_machine_file::machine::Machine;
use forebay_network::Topology;
use forebay_units::Time;
use forebay_workload::ior::Ior;
use forebay_workload::placement::{Placement, Placer};
use forebay_workload::traffic::TrafficSpec;
use std::sync::Arc;
use std::time::Instant;

/// Simulates an IOR job and a traffic job on separate nodes of a machine: each alone, then both
/// together. The IOR job is placed first, according to `options`. Together with IOR the traffic
/// continues until IOR has ended, however many messages that takes; alone each node sends
/// `traffic.messages`.
///
/// # Errors
/// [`StudyError`] when one of the jobs does not fit the machine.
#[allow(clippy::too_many_arguments, reason = "two jobs, each with its size and its placement")]
pub fn simulate_interference(
    machine: &Machine,
    ior: &Ior,
    ior_nodes: u32,
    ppn: u32,
    spec: &TrafficSpec,
    traffic_nodes: u32,
    options: &SimOptions,
    traffic_placement: Placement,
    progress: &dyn Progress,
) -> Result<InterferenceRun, StudyError> {
    let mut placer = Placer::new(machine, options.seed);
    let ior_nodes = placer.place_job(ior_nodes, options.placement)?;
    let traffic_nodes = placer.place_job(traffic_nodes, traffic_placement)?;
    let topology = Arc::new(Topology::new(machine));
    let network = Arc::new(options.network(machine)?);
    let scenario = |io: Option<IoJob>, traffic: Option<TrafficJob>| Scenario {
        machine: machine.clone(),
        network: network.clone(),
        topology: topology.clone(),
        traffic: traffic.map(Arc::new),
        io: io.map(Arc::new),
        each_link: options.each_link,
    };
    let io = || ior_job(machine, &topology, ior, ior_nodes.clone(), ppn, options);
    let traffic =
        |messages| traffic_job(machine, spec, traffic_nodes.clone(), options.seed, messages);
    let part = |number: u32| PartProgress { progress, number };

    // Both before either is simulated, so that errors are reported immediately.
    let only_ior = scenario(Some(io()?), None);
    let only_traffic = scenario(None, Some(traffic(Some(spec.messages))?));
    let (ior_alone, _) = run_with_ior(&only_ior, spec, options, &part(0))?;
    let mut simulation = build(&only_traffic, options);
    let traffic_alone = run_traffic(&only_traffic, spec, options, &mut simulation, &part(1))?;
    drop(simulation);
    let both = scenario(Some(io()?), Some(traffic(None)?));
    let (ior_together, traffic_together) = run_with_ior(&both, spec, options, &part(2))?;

    let rate = |point: &IorPoint| point.write_gbps.or(point.read_gbps).unwrap_or(0.0);
    let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    Ok(InterferenceRun {
        schema: SCHEMA,
        kind: "sim interference".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: machine.name.clone(),
        ior_placement: options.placement.name().into(),
        traffic_placement: traffic_placement.name().into(),
        ior_rate_ratio: ratio(rate(&ior_together), rate(&ior_alone)),
        traffic_latency_ratio: ratio(
            traffic_together.latency_ns.mean,
            traffic_alone.latency_ns.mean,
        ),
        ior_alone,
        ior_together,
        traffic_alone,
        traffic_together,
    })
}

/// Progress of one of three runs.
struct PartProgress<'a> {
    progress: &'a dyn Progress,
    number: u32,
}

impl Progress for PartProgress<'_> {
    fn update(&self, simulated: Time, done: f64, events: u64) -> bool {
        let done = (f64::from(self.number) + done) / 3.0;
        self.progress.update(simulated, done, events)
    }
}

/// Runs a scenario with an IOR job to its end; also returns the results of the traffic, if any.
fn run_with_ior(
    scenario: &Scenario,
    spec: &TrafficSpec,
    options: &SimOptions,
    progress: &dyn Progress,
) -> Result<(IorPoint, TrafficRun), StudyError> {
    let mut simulation = build(scenario, options);
    let started = Instant::now();
    let statistics = run_job(scenario, &mut simulation, progress)?;
    let cost = run_cost(&mut simulation, &statistics, options, started);
    let traffic = traffic_run(scenario, spec, options, &mut simulation, &statistics, &cost);
    Ok((ior_point(scenario, simulation.into_partitions(), cost), traffic))
}
