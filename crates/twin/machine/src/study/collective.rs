//! Collective operations of MPI, alone and beside another job.

use super::error::StudyError;
use super::ior::ior_point;
use super::ior_job::{clients_of_nodes, ior_job};
use super::joined::JoinedTest;
use super::options::{Fidelity, SimOptions};
use super::run::{Outcome, Progress, run};
use super::traffic::{traffic_job, traffic_run};
use crate::collective_job::{CollectiveJob, Iteration};
use crate::io::Io;
use crate::links::{Links, class_use, each_link, utilisation};
use crate::mpi::{MessageCounts, Team, TeamId};
use crate::observe::{ObserveOptions, Observed};
use crate::results::{CollectiveRun, CollectiveTimes, SCHEMA};
use crate::scenario::Scenario;
use crate::traffic::Generation;
use forebay_machine_file::machine::Machine;
use forebay_network::{Timeline, lookahead};
use forebay_units::Time;
use forebay_workload::collective::{CollectiveSpec, Operation};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;
use std::sync::Arc;

/// A job that performs a collective operation again and again.
#[derive(Clone, Debug)]
pub struct CollectiveStudy {
    /// The operation.
    pub spec: CollectiveSpec,
    /// Its nodes.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// Measured iterations.
    pub iterations: u32,
    /// Iterations before them.
    pub warm_up: u32,
    /// Time of the first iteration: another job has so much time to load the network.
    pub start: Time,
    /// The job beside it.
    pub background: Option<Background>,
}

/// A job that runs beside a job of collective operations.
#[derive(Clone, Debug)]
pub enum Background {
    /// Synthetic traffic until the collective operations have ended.
    Traffic {
        /// Its messages.
        spec: TrafficSpec,
        /// Its nodes.
        nodes: u32,
        /// Their placement.
        placement: Placement,
    },
    /// IOR.
    Ior {
        /// The test.
        ior: Box<Ior>,
        /// Its nodes.
        nodes: u32,
        /// Processes per node.
        ppn: u32,
        /// Placement of the nodes.
        placement: Placement,
    },
}

/// Simulates collective operations on a machine; with a background, without and with it. The job is
/// placed first, according to `options`. Only the last run is observed.
///
/// # Errors
/// [`StudyError`] when one of the jobs does not fit the machine.
pub fn simulate_collective(
    machine: &Machine,
    study: &CollectiveStudy,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<CollectiveRun, StudyError> {
    fidelity_of_collective(options)?;
    let (alone, both) = scenarios(machine, study, options)?;
    let parts = if both.is_some() { 2.0 } else { 1.0 };
    let run_part = |part: f64, scenario: &Scenario| {
        run(scenario, options, &|simulated, done, events| {
            progress(simulated, (part + done) / parts, events)
        })
    };
    let mut outcome = run_part(0.0, &alone)?;
    let duration = outcome.end;
    let mut result = document(machine, &alone, study, options, &outcome);
    take_observations(&mut result, &mut outcome);
    drop(outcome);
    let Some(both) = both else { return Ok(result) };
    let both = with_traffic(machine, both, study, options, Some(duration as f64))?;
    let mut outcome = run_part(1.0, &both)?;
    take_observations(&mut result, &mut outcome);
    let together = times(&both, study, &outcome);
    let ratio = |of: fn(&CollectiveTimes) -> f64| of(&together) / of(&result.alone);
    result.mean_ratio = Some(ratio(|t| t.mean_seconds));
    result.p99_ratio = Some(ratio(|t| t.p99_seconds));
    result.warnings = warnings(&both, &together, &outcome);
    result.together = Some(together);
    if let Some(Background::Traffic { spec, .. }) = &study.background {
        result.traffic_together = Some(traffic_run(&both, spec, options, &outcome, study.start.0));
    }
    if !both.io.is_empty() {
        result.ior_together = Some(ior_point(&both, outcome));
    }
    Ok(result)
}

fn take_observations(result: &mut CollectiveRun, outcome: &mut Outcome) {
    result.delays = outcome.delays.take();
    result.observed = std::mem::take(&mut outcome.observed);
}

/// Checks that the jobs fit a machine, as [`simulate_collective`] does before it simulates.
///
/// # Errors
/// As [`simulate_collective`].
pub fn check_collective_fits(
    machine: &Machine,
    study: &CollectiveStudy,
    options: &SimOptions,
) -> Result<(), StudyError> {
    fidelity_of_collective(options)?;
    scenarios(machine, study, options).map(drop)
}

/// The fidelity of collective operations: packets.
///
/// # Errors
/// [`StudyError::Machine`] for flows, with the reason.
pub fn fidelity_of_collective(options: &SimOptions) -> Result<Fidelity, StudyError> {
    let check = Err(StudyError::Machine(
        "flows cannot represent collective operations: their rounds wait for single messages, whose time is \
         latency and queues, and flows have rates only; use --fidelity packet"
            .into(),
    ));
    options.fidelity.chosen(&check, || Ok(0.0))
}

/// The scenario without and with the background; traffic is not there yet, but checked.
fn scenarios(
    machine: &Machine,
    study: &CollectiveStudy,
    options: &SimOptions,
) -> Result<(Scenario, Option<Scenario>), StudyError> {
    let mut placer = options.placer(machine)?;
    let nodes = placer.place_job(study.nodes, options.placement)?;
    let idle = options.idle_scenario(machine)?;
    let job = || collective_job(machine, study, &nodes, options).map(|job| Some(Arc::new(job)));
    let observe = match study.background {
        None => idle.observe,
        Some(_) => ObserveOptions::default(),
    };
    let alone = Scenario { collective: job()?, observe, ..idle.clone() };
    let both = match &study.background {
        None => None,
        Some(Background::Traffic { .. }) => {
            let both = Scenario { collective: job()?, ..idle };
            with_traffic(machine, both.clone(), study, options, None)?;
            Some(both)
        }
        Some(Background::Ior { ior, nodes, ppn, placement }) => {
            let nodes = placer.place_job(*nodes, *placement)?;
            let test = JoinedTest::new(machine, ior, options);
            let io = vec![Arc::new(ior_job(&idle, &test, nodes, *ppn, options)?)];
            Some(Scenario { collective: job()?, io, ..idle })
        }
    };
    Ok((alone, both))
}

/// Adds the traffic of a background; its rates are measured over `span` ps.
fn with_traffic(
    machine: &Machine,
    scenario: Scenario,
    study: &CollectiveStudy,
    options: &SimOptions,
    span: Option<f64>,
) -> Result<Scenario, StudyError> {
    let Some(Background::Traffic { spec, nodes, placement }) = &study.background else {
        return Ok(scenario);
    };
    let mut placer = options.placer(machine)?;
    placer.place_job(study.nodes, options.placement)?;
    let nodes = placer.place_job(*nodes, *placement)?;
    let generation = Generation::UntilOtherEnds;
    let job = traffic_job(machine, spec, nodes, options.seed, generation, span)?;
    Ok(Scenario { traffic: vec![Arc::new(job)], ..scenario })
}

fn collective_job(
    machine: &Machine,
    study: &CollectiveStudy,
    nodes: &[u32],
    options: &SimOptions,
) -> Result<CollectiveJob, StudyError> {
    const MAX_ITERATIONS: u32 = 1 << 20;
    let limit = |text: String| Err(StudyError::Limit(text));
    let Some(processes) = study.nodes.checked_mul(study.ppn) else {
        return limit("more than 2^32 processes: use fewer nodes or processes a node".to_string());
    };
    let iterations = study.iterations.saturating_add(study.warm_up);
    if study.iterations == 0 || iterations > MAX_ITERATIONS {
        return limit(format!(
            "{} measured iterations and {} of the warm-up: at least 1 is measured, and at most \
             {MAX_ITERATIONS} are simulated together",
            study.iterations, study.warm_up
        ));
    }
    let spec = study.spec;
    if let Err(error) = spec.schedule(study.nodes, study.ppn, options.seed) {
        return limit(error.to_string());
    }
    let clients = machine.clients().into_iter().map(|(client, _)| client.clone()).collect();
    let team = Team::new(
        TeamId::Collective,
        nodes,
        (study.ppn, processes),
        (clients, clients_of_nodes(machine, nodes)),
        machine.network.node.rate,
        options.seed,
    );
    Ok(CollectiveJob {
        team: Arc::new(team),
        spec,
        iterations,
        start: study.start.0,
        lookahead: lookahead(&machine.network),
        groups: machine.network.groups as u16,
        done: 0.into(),
    })
}

fn document(
    machine: &Machine,
    scenario: &Scenario,
    study: &CollectiveStudy,
    options: &SimOptions,
    outcome: &Outcome,
) -> CollectiveRun {
    let Some(job) = &scenario.collective else { unreachable!("no collective operations") };
    let schedule = job.team.schedule(&study.spec);
    let nodes = job.team.nodes.len() as u32;
    let alone = times(scenario, study, outcome);
    let bytes_per_operation = (0..nodes).map(|rank| schedule.bytes_sent_by(rank)).sum::<u64>();
    let is_ping_pong = study.spec.operation == Operation::PingPong;
    CollectiveRun {
        schema: SCHEMA,
        kind: "sim collective".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: machine.name.clone(),
        operation: study.spec.operation.name().into(),
        algorithm: schedule.algorithm().name().into(),
        rounds: schedule.rounds(),
        size_bytes: study.spec.size.0,
        nodes,
        processes: nodes * study.ppn,
        placement: options.placement.name().into(),
        routing: scenario.network.routing.algorithm.name().into(),
        seed: options.seed,
        bytes_per_operation,
        one_way_seconds: is_ping_pong.then_some(alone.mean_seconds / 2.0),
        gbps: bytes_per_operation as f64 / alone.mean_seconds / 1e9,
        background: study.background.as_ref().map(|background| match background {
            Background::Traffic { spec, nodes, placement } => format!(
                "{} traffic of {nodes} nodes ({placement}), load {}",
                spec.pattern, spec.load
            ),
            Background::Ior { nodes, ppn, placement, .. } => {
                format!("IOR on {nodes} nodes ({placement}), {ppn} processes a node")
            }
        }),
        alone,
        together: None,
        mean_ratio: None,
        p99_ratio: None,
        warnings: Vec::new(),
        traffic_together: None,
        ior_together: None,
        delays: None,
        observed: Observed::default(),
        replication: None,
    }
}

/// The iterations of all groups.
fn iterations(outcome: &Outcome) -> Vec<Iteration> {
    let mut of_groups = outcome.groups.iter().filter_map(|group| group.collective.as_ref());
    let mut all = of_groups.next().map(|nodes| nodes.iterations.clone()).unwrap_or_default();
    for nodes in of_groups {
        for (sum, iteration) in all.iter_mut().zip(&nodes.iterations) {
            sum.merge(iteration);
        }
    }
    all
}

fn times(scenario: &Scenario, study: &CollectiveStudy, outcome: &Outcome) -> CollectiveTimes {
    let seconds = |ps: u64| ps as f64 * 1e-12;
    let all = iterations(outcome);
    let measured = &all[study.warm_up as usize..];
    for iteration in measured {
        assert!(iteration.nodes == study.nodes, "an iteration that a node did not end");
    }
    let durations: Vec<f64> = measured.iter().map(|i| seconds(i.left - i.entered)).collect();
    let mut sorted = durations.clone();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // Percentiles are of the nearest rank.
    let at = |percent: usize| sorted[(count * percent).div_ceil(100).saturating_sub(1)];
    let of_nodes: f64 = measured.iter().map(|i| seconds(i.sum) / f64::from(i.nodes)).sum();
    let mut counts = MessageCounts::default();
    let mut links = Links::new();
    let mut timeline = Timeline::<4>::default();
    for group in &outcome.groups {
        if let Some(nodes) = &group.collective {
            counts.messages += nodes.counts().messages;
            counts.bytes += nodes.counts().bytes;
        }
        timeline.absorb(&group.fabric.timeline);
        if let Some(io) = &group.io {
            timeline.absorb(&io.link_timeline);
        }
        links.push(group.fabric.link_statistics(outcome.end));
    }
    let series = utilisation(&timeline, &links, &scenario.network, 0, outcome.end);
    CollectiveTimes {
        mean_seconds: durations.iter().sum::<f64>() / count as f64,
        min_seconds: at(0),
        p50_seconds: at(50),
        p99_seconds: at(99),
        max_seconds: at(100),
        process_mean_seconds: of_nodes / count as f64,
        iteration_seconds: durations,
        messages: counts.messages,
        bytes: counts.bytes,
        links: class_use(&links, outcome.end),
        series,
        each_link: match scenario.each_link {
            true => each_link(&scenario.topology, &links, outcome.end),
            false => Vec::new(),
        },
        cost: outcome.cost.clone(),
    }
}

/// Warnings about iterations that were not beside the other job.
fn warnings(scenario: &Scenario, together: &CollectiveTimes, outcome: &Outcome) -> Vec<String> {
    if scenario.io.is_empty() {
        return Vec::new();
    }
    let ends = outcome.groups.iter().filter_map(|group| group.io.as_ref().and_then(Io::ended_at));
    let end = ends.max().unwrap_or_default();
    let all = iterations(outcome);
    let measured = &all[all.len() - together.iteration_seconds.len()..];
    let after = measured.iter().filter(|iteration| iteration.left > end).count();
    match after {
        0 => Vec::new(),
        _ => vec![format!(
            "{after} of {} iterations ended after IOR, which took {:.3} ms: use larger blocks (-b) or \
             fewer iterations (--iterations)",
            measured.len(),
            end as f64 * 1e-9
        )],
    }
}
