//! IOR and traffic on one machine, each also by itself.

use super::ior::{cost, describe, job as ior_job, run_job};
use super::traffic::{alone, document, job as traffic_job};
use super::{Progress, SimOptions, StudyError, build};
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

/// Simulates an IOR job and a traffic job on separate nodes of a machine: each by itself, then
/// both together. The IOR job is placed first, as `options` say. Beside IOR the traffic goes on
/// until IOR has ended, however many messages that takes; by itself each node sends
/// `traffic.messages`.
///
/// # Errors
/// [`StudyError`] when one of the jobs does not fit the machine.
#[allow(
    clippy::too_many_arguments,
    reason = "two jobs, each with its size and its place"
)]
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
    let world = |io: Option<IoJob>, traffic: Option<TrafficJob>| {
        Arc::new(Scenario {
            machine: machine.clone(),
            network: network.clone(),
            topology: topology.clone(),
            traffic,
            io,
            bytes_done: 0.into(),
            each_link: options.each_link,
        })
    };
    let io = || ior_job(machine, &topology, ior, ior_nodes.clone(), ppn, options);
    let traffic =
        |messages| traffic_job(machine, spec, traffic_nodes.clone(), options.seed, messages);
    let third = |part: u32| Part { progress, part };

    // Both before either is simulated: what does not fit is said at once.
    let only_ior = world(Some(io()?), None);
    let only_traffic = world(None, Some(traffic(Some(spec.messages))?));
    let (ior_alone, _) = with_ior(&only_ior, spec, options, &third(0))?;
    let mut simulation = build(&only_traffic, options);
    let traffic_alone = alone(&only_traffic, spec, options, &mut simulation, &third(1))?;
    drop(simulation);
    let (ior_together, traffic_together) = with_ior(
        &world(Some(io()?), Some(traffic(None)?)),
        spec,
        options,
        &third(2),
    )?;

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
struct Part<'a> {
    progress: &'a dyn Progress,
    part: u32,
}

impl Progress for Part<'_> {
    fn update(&self, simulated: Time, done: f64, events: u64) -> bool {
        self.progress
            .update(simulated, (f64::from(self.part) + done) / 3.0, events)
    }
}

/// Runs a world with an IOR job until that has ended; what traffic there was beside it is told,
/// too.
fn with_ior(
    world: &Arc<Scenario>,
    spec: &TrafficSpec,
    options: &SimOptions,
    progress: &dyn Progress,
) -> Result<(IorPoint, TrafficRun), StudyError> {
    let mut simulation = build(world, options);
    let running = Instant::now();
    let statistics = run_job(world, &mut simulation, progress)?;
    let cost = cost(&mut simulation, &statistics, options, running);
    let traffic = document(world, spec, options, &mut simulation, &statistics, &cost);
    Ok((describe(world, simulation.into_partitions(), cost), traffic))
}
