//! IOR and traffic on one machine, together and each alone.

use super::error::StudyError;
use super::ior::ior_point;
use super::ior_job::ior_job;
use super::joined::JoinedTest;
use super::options::SimOptions;
use super::run::{Progress, run};
use super::traffic::{traffic_job, traffic_run};
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

    let rate = |point: &IorPoint| point.write_gbps.or(point.read_gbps).unwrap_or(0.0);
    Ok(InterferenceRun {
        schema: SCHEMA,
        kind: "sim interference".into(),
        version: env!("CARGO_PKG_VERSION").into(),
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
    })
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Mean latency together / alone; `None` if one of the runs is saturated.
fn latency_ratio(together: &TrafficRun, alone: &TrafficRun) -> Option<f64> {
    let mean = |run: &TrafficRun| Some(run.latency_ns.as_ref()?.mean);
    Some(ratio(mean(together)?, mean(alone)?))
}
