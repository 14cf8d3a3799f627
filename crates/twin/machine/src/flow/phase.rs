//! The phases of a test, one after another.

use super::begun_phase::{BegunPhase, transfers_alone};
use super::calls::{LoneCalls, lone_calls};
use super::document::phase_document;
use super::fabric::{Fabric, server_use};
use super::jobs::JobAlone;
use super::phase_links::PhaseLinks;
use super::requests::{CallTimes, PhaseCalls, are_simulated};
use super::runs::Runs;
use super::transfers::{Transfers, Window};
use crate::io::{IoJob, PS_PER_SECOND};
use crate::results::{Phase, RunCost};
use crate::scenario::Scenario;
use crate::study::{Progress, SimOptions, StudyError, starts_of_transfers};
use forebay_units::Time;
use forebay_workload::ior::{Access, Action};
use std::collections::BTreeMap;
use std::time::Instant;

/// A test that was simulated with flows.
#[derive(Debug)]
pub(crate) struct FlowOutcome {
    pub phases: Vec<Phase>,
    /// The times of the calls of each phase; none of a phase that was not simulated request by request.
    pub calls: Vec<CallTimes>,
    pub cost: RunCost,
    /// Rate of each of the other jobs with traffic during the phases, bytes per second.
    pub traffic: Vec<f64>,
}

/// How the calls of phases with few requests are simulated; all others have rates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallsBy<'a> {
    /// Request by request, which they cannot be beside traffic.
    Requests,
    /// With rates.
    Rates,
    /// With rates, and the times that they have alone request by request.
    RatesAs(&'a JobAlone),
}

/// Simulates the phases of the scenario's test, beside the scenario's traffic.
///
/// # Errors
/// [`StudyError::Interrupted`] if `progress` ends the simulation.
pub(crate) fn simulate(
    scenario: &Scenario,
    (job, by): (&IoJob, CallsBy<'_>),
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<FlowOutcome, StudyError> {
    let began = Instant::now();
    let calls = calls_of_nodes(scenario, job, options)?;
    // Where processes meet at the objects of one file, or make few calls, waits depend on the order in which they
    // begin.
    let has_extents = job.has_shared_file() && job.storage.is_parallel();
    let starts = match has_extents || are_simulated(job) {
        true => starts_of_transfers(&scenario.machine, job, options)?,
        false => BTreeMap::new(),
    };
    let transfer_steps = job.steps.iter().filter_map(|step| match step.action {
        Action::Transfer(access) => Some((step.iteration, access)),
        _ => None,
    });
    let all: Vec<(u32, Access)> = transfer_steps.collect();
    let (mut phases, mut runs, mut seconds) = (Vec::new(), 0, 0.0);
    let mut call_times = Vec::new();
    let (mut moved, mut time) = (vec![0.0; scenario.traffic.len()], 0.0);
    for (nth, (iteration, access)) in all.iter().enumerate() {
        let share = |done: f64| (nth as f64 + done) / all.len() as f64;
        let goes_on = |now: u64, done: f64| progress(Time(now), share(done), runs);
        let pattern = Runs::new(job, job.pattern.for_iteration(*iteration), *access);
        let of_phase = starts.get(access).map(Vec::as_slice);
        let Some((phase, of_phase)) =
            simulate_phase((scenario, job, (by, nth)), pattern, (&calls, of_phase), &goes_on)
        else {
            return Err(StudyError::Interrupted);
        };
        runs += of_phase.runs;
        time += of_phase.seconds;
        moved.iter_mut().zip(&of_phase.traffic).for_each(|(sum, bytes)| *sum += bytes);
        seconds += phase.seconds;
        phases.push(Phase { iteration: *iteration, ..phase });
        call_times.push(CallTimes::of(of_phase.calls));
    }
    let cost = RunCost {
        wall_seconds: began.elapsed().as_secs_f64(),
        simulated_seconds: seconds,
        events: runs,
        threads: 1,
        ..RunCost::default()
    };
    let traffic = moved.into_iter().map(|bytes: f64| bytes / time.max(f64::MIN_POSITIVE)).collect();
    Ok(FlowOutcome { phases, calls: call_times, cost, traffic })
}

/// The cost of a phase's simulation, its calls, and the traffic beside it.
struct PhaseCost {
    runs: u64,
    /// Simulated time of transfers.
    seconds: f64,
    /// The calls of a phase that was simulated request by request.
    calls: PhaseCalls,
    /// Bytes of each job with traffic in this time.
    traffic: Vec<f64>,
}

/// The lone calls of each node of the job.
///
/// # Errors
/// Those of a simulation of one process.
pub(crate) fn calls_of_nodes(
    scenario: &Scenario,
    job: &IoJob,
    options: &SimOptions,
) -> Result<Vec<LoneCalls>, StudyError> {
    let mut of_types: Vec<Option<LoneCalls>> = vec![None; job.clients.len()];
    let mut of_node = Vec::with_capacity(job.nodes.len());
    for &kind in &job.client_of_node {
        let of_type = &mut of_types[usize::from(kind)];
        let calls = match *of_type {
            Some(calls) => calls,
            None => {
                let name = &job.clients[usize::from(kind)].name;
                lone_calls(&scenario.machine, job, name, options)?
            }
        };
        *of_type = Some(calls);
        of_node.push(calls);
    }
    Ok(of_node)
}

/// A part of a phase that has been simulated, or all of it.
struct SimulatedPart<'a> {
    begun: BegunPhase<'a>,
    fabric: Fabric,
    transfers: Transfers,
    calls: PhaseCalls,
    links: PhaseLinks<'a>,
    /// The share of the phase for which it stands.
    share: f64,
}

impl SimulatedPart<'_> {
    /// The time of its share, as a multiple of that of the phase's bytes at a rate of 1.
    fn time(&self) -> f64 {
        self.share / self.transfers.rate.max(f64::MIN_POSITIVE)
    }
}

/// Simulates phase number `nth`; its document and cost, or `None` if it was ended.
fn simulate_phase<'a>(
    of_phase: (&Scenario, &'a IoJob, (CallsBy<'a>, usize)),
    runs: Runs<'a>,
    (calls, starts): (&'a [LoneCalls], Option<&[u64]>),
    goes_on: &dyn Fn(u64, f64) -> bool,
) -> Option<(Phase, PhaseCost)> {
    let (scenario, job, _) = of_phase;
    let mut parts: Vec<SimulatedPart<'a>> = Vec::new();
    let mut count = 1;
    while parts.len() < count {
        let nth = parts.len();
        let goes_on = |now: u64, done: f64| goes_on(now, (nth as f64 + done) / count as f64);
        let (part, of) = simulate_part(of_phase, runs.clone(), (calls, starts), nth, &goes_on)?;
        parts.push(part);
        count = of;
    }
    let is_whole = parts.len() == 1;
    let time: f64 = parts.iter().map(SimulatedPart::time).sum();
    let simulated: u64 = parts.iter().map(|part| part.transfers.runs).sum();
    let now = |part: &SimulatedPart<'_>| part.fabric.links.transport.now();
    let seconds = parts.iter().map(now).sum::<u64>() as f64 / PS_PER_SECOND as f64;
    let mut traffic = vec![0.0; scenario.traffic.len()];
    for part in &parts {
        let moved = part.fabric.traffic_moved();
        traffic.iter_mut().zip(moved).for_each(|(sum, bytes)| *sum += bytes);
    }
    // The part that takes longest stands for the others in all but their rate.
    let longest = parts.into_iter().reduce(|a, b| if b.time() > a.time() { b } else { a });
    let Some(mut part) = longest else { unreachable!("a phase has a part") };
    if !is_whole {
        part.transfers.rate = 1.0 / time;
    }
    let SimulatedPart { begun, mut fabric, transfers, calls, links, .. } = part;
    let times = begun.times(&transfers, &mut fabric);
    let cost = PhaseCost { runs: simulated, calls, seconds, traffic };
    Some((phase_document(job, &begun.runs, &transfers, (&fabric, &links), &times), cost))
}

/// Simulates the part of the phase in its window number `window`, or all of a short phase, and returns the number of
/// windows; `None` if it was ended.
fn simulate_part<'a>(
    (scenario, job, (by, nth)): (&Scenario, &'a IoJob, (CallsBy<'a>, usize)),
    runs: Runs<'a>,
    (calls, starts): (&'a [LoneCalls], Option<&[u64]>),
    window: usize,
    goes_on: &dyn Fn(u64, f64) -> bool,
) -> Option<(SimulatedPart<'a>, usize)> {
    let uses = vec![server_use(job, runs.access, &transfers_alone(calls, runs.access))];
    let mut fabric = Fabric::new(&job.topology, &job.network, uses);
    let mut begun = BegunPhase::open_all(vec![(job, runs, calls)], starts, 0, &mut fabric);
    let Some(begun) = begun.pop() else { unreachable!("one phase was opened") };
    let (mut transfers, resolution) = begun.transfers(0, 1.0, &mut fabric);
    match by {
        CallsBy::Requests => {
            assert!(scenario.traffic.is_empty(), "requests beside traffic");
            transfers.simulate_requests();
        }
        CallsBy::Rates => {}
        CallsBy::RatesAs(known) => {
            transfers.scale_times(known.scales.get(nth).copied().unwrap_or(1.0));
            if let Some(times) = known.call_times.get(nth) {
                transfers.share_by_calls(times);
            }
        }
    }
    let windows = transfers.windows();
    let Window { first, share } = windows[window];
    transfers.begin_at(first);
    fabric.links.transport.set_resolution(resolution);
    fabric.start_traffic(&scenario.traffic);
    if !transfers.run(&begun.starts, goes_on, &mut fabric) {
        return None;
    }
    let (transfers, calls, links) = transfers.into_result();
    let count = if transfers.is_complete { 1 } else { windows.len() };
    let share = if transfers.is_complete { 1.0 } else { share };
    Some((SimulatedPart { begun, fabric, transfers, calls, links, share }, count))
}
