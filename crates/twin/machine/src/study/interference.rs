//! IOR and traffic on one machine, together and each alone.

use super::error::StudyError;
use super::fabric::flow_point;
use super::forecast::forecast_interference;
use super::ior::{ior_point, ior_scenario};
use super::ior_job::ior_job;
use super::joined::JoinedTest;
use super::options::{Fidelity, SimOptions};
use super::run::{Progress, run};
use super::traffic::{flow_run, traffic_job, traffic_run};
use crate::flow::{self, CallsBy, JobAlone, TrafficRates};
use crate::observe::ObserveOptions;
use crate::results::{InterferenceRun, IorPoint, SCHEMA, TrafficRun};
use crate::scenario::Scenario;
use crate::traffic::Generation;
use forebay_machine_file::machine::Machine;
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;
use std::sync::Arc;

/// An IOR job and a traffic job on separate nodes of a machine.
#[derive(Clone, Debug)]
pub struct InterferenceStudy {
    /// The IOR job.
    pub ior: Ior,
    /// Its compute nodes.
    pub ior_nodes: u32,
    /// Its processes on each node.
    pub ppn: u32,
    /// The traffic job.
    pub traffic: TrafficSpec,
    /// Its compute nodes.
    pub traffic_nodes: u32,
    /// The placement of the traffic job on the nodes that the IOR job leaves free.
    pub traffic_placement: Placement,
}

/// Simulates the two jobs of a study: each alone, and both together. The IOR job is placed first,
/// according to `options`. Together with IOR the traffic continues until IOR has ended, however many
/// messages that takes, and alone it lasts as long: the compared latencies are of the same length of
/// time. Only the run of both is observed.
///
/// # Errors
/// [`StudyError`] when one of the jobs does not fit the machine.
pub fn simulate_interference(
    machine: &Machine,
    study: &InterferenceStudy,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<InterferenceRun, StudyError> {
    if fidelity_of_interference(machine, study, options)? == Fidelity::Flow {
        return with_flows(machine, study, options, progress);
    }
    let spec = &study.traffic;
    let mut placer = options.placer(machine)?;
    let ior_nodes = placer.place_job(study.ior_nodes, options.placement)?;
    let traffic_nodes = placer.place_job(study.traffic_nodes, study.traffic_placement)?;
    let idle = options.idle_scenario(machine)?;
    let io = || {
        let test = JoinedTest::new(machine, &study.ior, options);
        ior_job(&idle, &test, ior_nodes.clone(), study.ppn, options).map(|job| vec![Arc::new(job)])
    };
    let traffic = |generation, span| {
        traffic_job(machine, spec, traffic_nodes.clone(), options.seed, generation, span)
            .map(|job| vec![Arc::new(job)])
    };
    let run_part = |part: u32, scenario: &Scenario| {
        run(scenario, options, &|simulated, done, events| {
            progress(simulated, (f64::from(part) + done) / 3.0, events)
        })
    };

    // Both before either is simulated, so that errors are reported immediately.
    let unobserved = Scenario { observe: ObserveOptions::default(), ..idle.clone() };
    let only_ior = Scenario { io: io()?, ..unobserved.clone() };
    traffic(Generation::UntilOtherEnds, None)?;
    let outcome = run_part(0, &only_ior)?;
    // The traffic is counted by parts of this time in both runs.
    let span = Some(outcome.end as f64);
    let ior_alone = ior_point(&only_ior, outcome);
    let both =
        Scenario { io: io()?, traffic: traffic(Generation::UntilOtherEnds, span)?, ..idle.clone() };
    let outcome = run_part(1, &both)?;
    let ends = outcome.groups.iter().filter_map(|group| group.traffic.first()?.stopped_at());
    let end = ends.max().unwrap_or(outcome.end);
    let only_traffic = Scenario { traffic: traffic(Generation::Until(end), span)?, ..unobserved };
    let outcome_alone = run_part(2, &only_traffic)?;
    // Both are measured from the later end of the two warm-ups on.
    let of_both = |earliest| traffic_run(&both, spec, options, &outcome, earliest);
    let start = |run: &TrafficRun| (run.window_seconds[0] * 1e12).round() as u64;
    let together = of_both(0);
    let traffic_alone = traffic_run(&only_traffic, spec, options, &outcome_alone, start(&together));
    // The observations are those of both jobs together; IOR's document has them.
    let traffic_together = TrafficRun { delays: None, ..of_both(start(&traffic_alone)) };
    drop(outcome_alone);
    let ior_together = ior_point(&both, outcome);

    let points = (ior_alone, ior_together);
    Ok(document(machine, study, options, points, (traffic_alone, traffic_together)))
}

/// The fidelity with which [`simulate_interference`] simulates: that of the options, or the one chosen for
/// [`Fidelity::Auto`].
///
/// # Errors
/// As [`simulate_interference`].
pub fn fidelity_of_interference(
    machine: &Machine,
    study: &InterferenceStudy,
    options: &SimOptions,
) -> Result<Fidelity, StudyError> {
    let scenario = ior_scenario(machine, &study.ior, study.ior_nodes, study.ppn, options)?;
    let Some(job) = scenario.io.first() else { unreachable!("a scenario without an IOR job") };
    let check = flow::check(job, options).and_then(|()| flow::check_traffic(options));
    let events = || Ok(forecast_interference(machine, study, options)?.events);
    options.fidelity.chosen(&check, events)
}

/// The scenarios of both jobs, and of each alone, with flows, whose traffic does not end.
fn with_flows(
    machine: &Machine,
    study: &InterferenceStudy,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<InterferenceRun, StudyError> {
    let spec = &study.traffic;
    let mut placer = options.placer(machine)?;
    let ior_nodes = placer.place_job(study.ior_nodes, options.placement)?;
    let traffic_nodes = placer.place_job(study.traffic_nodes, study.traffic_placement)?;
    let idle = options.idle_scenario(machine)?;
    let test = JoinedTest::new(machine, &study.ior, options);
    let job = Arc::new(ior_job(&idle, &test, ior_nodes, study.ppn, options)?);
    let generation = Generation::UntilOtherEnds;
    let traffic = traffic_job(machine, spec, traffic_nodes, options.seed, generation, None)?;
    let traffic = vec![Arc::new(traffic)];
    // Alone as beside traffic, so that both compare.
    let known = job_alone(&Scenario { io: vec![job.clone()], ..idle.clone() }, options)?;
    let by = known.as_ref().map_or(CallsBy::Rates, CallsBy::RatesAs);
    let run_part = |part: f64, traffic: Vec<_>| {
        let scenario = Scenario { io: vec![job.clone()], traffic, ..idle.clone() };
        flow::simulate(&scenario, (&job, by), options, &|simulated, done, events| {
            progress(simulated, (part + done) / 2.0, events)
        })
    };
    let alone = run_part(0.0, Vec::new())?;
    let together = run_part(1.0, traffic.clone())?;
    let only_traffic = Scenario { traffic, ..idle.clone() };
    let Some(rates) = flow::rates_of_traffic(&only_traffic).pop() else {
        unreachable!("a traffic job without rates")
    };
    let seconds = together.cost.simulated_seconds;
    let traffic_alone = flow_run(&only_traffic, spec, options, &rates, seconds);
    // The mean of the time beside IOR, in which the nodes share what they lose as they share the whole.
    let share = together.traffic.iter().sum::<f64>() / rates.nodes.iter().sum::<f64>();
    let nodes = rates.nodes.iter().map(|rate| rate * share).collect();
    let beside = TrafficRates { nodes, links: Vec::new(), ..rates };
    let traffic_together = flow_run(&only_traffic, spec, options, &beside, seconds);
    let points = (flow_point(&job, alone), flow_point(&job, together));
    Ok(document(machine, study, options, points, (traffic_alone, traffic_together)))
}

/// Simulates a scenario's only I/O job alone, request by request, for the times of its phases and calls; `None` if its
/// phases have too many requests for that.
fn job_alone(alone: &Scenario, options: &SimOptions) -> Result<Option<JobAlone>, StudyError> {
    let [job] = alone.io.as_slice() else { unreachable!("one I/O job") };
    if !flow::all_are_simulated(job) {
        return Ok(None);
    }
    let simulate = |by: CallsBy<'_>| flow::simulate(alone, (job, by), options, &|_, _, _| true);
    let calls = flow::calls_of_nodes(alone, job, options)?;
    let by_requests = simulate(CallsBy::Requests)?;
    let known = JobAlone::as_by_requests(calls, by_requests, |known| {
        let by_rates = simulate(CallsBy::RatesAs(known))?;
        Ok(by_rates.phases.iter().map(|phase| phase.transfer_seconds).collect())
    })?;
    Ok(Some(known))
}

/// The document of a study from those of IOR and of the traffic, alone and together.
fn document(
    machine: &Machine,
    study: &InterferenceStudy,
    options: &SimOptions,
    (ior_alone, ior_together): (IorPoint, IorPoint),
    (traffic_alone, traffic_together): (TrafficRun, TrafficRun),
) -> InterferenceRun {
    let rate = |point: &IorPoint| point.write_gbps.or(point.read_gbps).unwrap_or(0.0);
    InterferenceRun {
        schema: SCHEMA,
        kind: "sim interference".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        fidelity: ior_together.fidelity.clone(),
        machine: machine.name.clone(),
        ior_placement: options.placement.name().into(),
        traffic_placement: study.traffic_placement.name().into(),
        ior_rate_ratio: ratio(rate(&ior_together), rate(&ior_alone)),
        traffic_latency_ratio: latency_ratio(&traffic_together, &traffic_alone),
        replication: None,
        ior_alone,
        ior_together,
        traffic_alone,
        traffic_together,
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Mean latency together / alone; `None` if one of the runs is saturated.
fn latency_ratio(together: &TrafficRun, alone: &TrafficRun) -> Option<f64> {
    let mean = |run: &TrafficRun| Some(run.latency_ns.as_ref()?.mean);
    Some(ratio(mean(together)?, mean(alone)?))
}
