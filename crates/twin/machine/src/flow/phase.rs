//! The phases of a test: opens, transfers, closes.

use super::calls::{LoneCalls, lone_calls};
use super::document::phase_document;
use super::fabric::Fabric;
use super::page_cache::PageCaches;
use super::runs::Runs;
use super::transfers::{Simulation, Transfers};
use crate::io::{IoJob, PS_PER_SECOND, ServerRates};
use crate::results::{Phase, RunCost};
use crate::scenario::Scenario;
use crate::study::{Progress, SimOptions, StudyError};
use forebay_units::Time;
use forebay_workload::ior::{Access, Action};
use std::time::Instant;

/// Runs begin and end at multiples of this part of a run, which shares clients and servers with those of
/// all processes; of a larger part with more than [`FINE_UP_TO`] processes, up to [`LEAST_RESOLUTION`].
const RESOLUTION: f64 = 512.0;
const FINE_UP_TO: u32 = 2_048;
const LEAST_RESOLUTION: f64 = 128.0;

/// Times of a phase, ps from its begin.
pub(super) struct PhaseTimes {
    /// Last end of an open.
    pub opened: u64,
    /// First begin and last end of a transfer, with the fsync.
    pub transfers: (u64, u64),
    /// First begin of a close, and last end.
    pub closes: (u64, u64),
    /// The longest time of a process in calls.
    pub most_in_calls: u64,
    /// Time of the transfers of an incomplete simulation's processes, divided by the one simulated.
    pub stretch: f64,
}

/// A test that was simulated with flows.
#[derive(Debug)]
pub(crate) struct FlowOutcome {
    pub phases: Vec<Phase>,
    pub cost: RunCost,
    /// Rate of each of the other jobs with traffic during the phases, bytes per second.
    pub traffic: Vec<f64>,
}

/// Simulates the phases of the scenario's test, beside the scenario's traffic.
///
/// # Errors
/// [`StudyError::Interrupted`] if `progress` ends the simulation.
pub(crate) fn simulate(
    scenario: &Scenario,
    job: &IoJob,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<FlowOutcome, StudyError> {
    let began = Instant::now();
    let calls = calls_of_nodes(scenario, job, options)?;
    let transfer_steps = job.steps.iter().filter_map(|step| match step.action {
        Action::Transfer(access) => Some((step.iteration, access)),
        _ => None,
    });
    let all: Vec<(u32, Access)> = transfer_steps.collect();
    let (mut phases, mut runs, mut seconds) = (Vec::new(), 0, 0.0);
    let (mut moved, mut time) = (vec![0.0; scenario.traffic.len()], 0.0);
    for (nth, (iteration, access)) in all.iter().enumerate() {
        let share = |done: f64| (nth as f64 + done) / all.len() as f64;
        let goes_on = |now: u64, done: f64| progress(Time(now), share(done), runs);
        let pattern = Runs::new(job, job.pattern.for_iteration(*iteration), *access);
        let Some((phase, of_phase)) = simulate_phase((scenario, job), &pattern, &calls, &goes_on)
        else {
            return Err(StudyError::Interrupted);
        };
        runs += of_phase.runs;
        time += of_phase.seconds;
        moved.iter_mut().zip(&of_phase.traffic).for_each(|(sum, bytes)| *sum += bytes);
        seconds += phase.seconds;
        phases.push(Phase { iteration: *iteration, ..phase });
    }
    let cost = RunCost {
        wall_seconds: began.elapsed().as_secs_f64(),
        simulated_seconds: seconds,
        events: runs,
        threads: 1,
        ..RunCost::default()
    };
    let traffic = moved.into_iter().map(|bytes: f64| bytes / time.max(f64::MIN_POSITIVE)).collect();
    Ok(FlowOutcome { phases, cost, traffic })
}

/// The cost of a phase's simulation, and the traffic beside it.
struct PhaseCost {
    runs: u64,
    /// Simulated time of transfers.
    seconds: f64,
    /// Bytes of each job with traffic in this time.
    traffic: Vec<f64>,
}

/// The lone calls of each node of the job.
fn calls_of_nodes(
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

/// The parts of a run at which the runs of so many processes begin and end.
fn resolution(tasks: u32) -> f64 {
    let coarser = f64::from(tasks.max(FINE_UP_TO)) / f64::from(FINE_UP_TO);
    (RESOLUTION / coarser).max(LEAST_RESOLUTION)
}

/// Simulates one phase; its document and cost, or `None` if it was ended.
fn simulate_phase(
    (scenario, job): (&Scenario, &IoJob),
    runs: &Runs<'_>,
    calls: &[LoneCalls],
    goes_on: &dyn Fn(u64, f64) -> bool,
) -> Option<(Phase, PhaseCost)> {
    let access = runs.access;
    let lone: Vec<f64> = calls.iter().map(|calls| calls.of(access).transfer).collect();
    let first_run = runs.run(0, 0, job.pattern.transfers_per_rank());
    let opened = ends_of_opens(job, runs, calls);
    let last_open = opened.iter().copied().max().unwrap_or(0);
    let starts = match job.ior.barriers {
        true => vec![last_open; opened.len()],
        false => opened,
    };
    let mut fabric = Fabric::new(job, access, &lone, &first_run);
    let alone = lone.first().copied().unwrap_or(1.0) * first_run.transfers as f64;
    let of_a_run = alone.max(fabric.shared_time(first_run.bytes));
    fabric.links.transport.set_resolution((of_a_run / resolution(job.tasks())).max(1.0) as u64);
    fabric.start_traffic(&scenario.traffic);
    let mut simulation = Simulation::new(job, runs, fabric, &lone);
    if !simulation.run(&starts, goes_on) {
        return None;
    }
    let (transfers, fabric) = simulation.into_result();
    let times = phase_times(job, runs, calls, &transfers, (&starts, last_open));
    let cost = PhaseCost {
        runs: transfers.runs,
        seconds: fabric.links.transport.now() as f64 / PS_PER_SECOND as f64,
        traffic: fabric.traffic_moved(),
    };
    Some((phase_document(job, runs, &transfers, &fabric, &times), cost))
}

/// The end of each process's open, ps: each server opens one file after another.
fn ends_of_opens(job: &IoJob, runs: &Runs<'_>, calls: &[LoneCalls]) -> Vec<u64> {
    let cost = PS_PER_SECOND / u64::from(job.burst_buffer.metadata_rate);
    let mut opened = vec![0; job.storage.servers().len()];
    let of_rank = |rank: u32| {
        let server = job.metadata_server_of(runs.pattern.file(rank, runs.access));
        let before = &mut opened[server as usize];
        let alone = calls[runs.pattern.node_of(rank) as usize].of(runs.access).open;
        *before += 1;
        alone + (*before - 1) * cost
    };
    (0..job.tasks()).map(of_rank).collect()
}

fn phase_times(
    job: &IoJob,
    runs: &Runs<'_>,
    calls: &[LoneCalls],
    transfers: &Transfers,
    (starts, opened): (&[u64], u64),
) -> PhaseTimes {
    let first = starts.iter().copied().min().unwrap_or(0);
    let simulated: Vec<u64> = match transfers.is_complete {
        true => transfers.ranks.iter().map(|rank| rank.end).collect(),
        false => {
            let time = job_bytes(job) / transfers.rate * PS_PER_SECOND as f64;
            starts.iter().map(|start| start + time as u64).collect()
        }
    };
    let span = simulated.iter().copied().max().unwrap_or(0).saturating_sub(first) as f64;
    let (written, on_flash) = with_page_cache(job, runs.access, span / PS_PER_SECOND as f64);
    let longer = written * PS_PER_SECOND as f64 / span.max(1.0);
    let synced = if job.ior.fsync && runs.access == Access::Write {
        on_flash * PS_PER_SECOND as f64 + sync_time(job, runs)
    } else {
        0.0
    };
    let ends: Vec<u64> = simulated
        .iter()
        .map(|end| first + ((end - first) as f64 * longer + synced) as u64)
        .collect();
    let last = ends.iter().copied().max().unwrap_or(0);
    let (closes, most_in_calls) = ends_of_closes(job, runs, calls, &ends, last);
    let simulated_time: u64 = transfers.ranks.iter().map(|rank| rank.time).sum();
    let time: f64 = ends.iter().zip(starts).map(|(end, start)| (end - start) as f64).sum();
    PhaseTimes {
        opened,
        transfers: (first, last),
        closes,
        most_in_calls,
        stretch: if transfers.is_complete { longer } else { time / simulated_time.max(1) as f64 },
    }
}

/// Bytes that all processes move.
pub(super) fn job_bytes(job: &IoJob) -> f64 {
    (job.pattern.bytes_per_rank() * u64::from(job.tasks())) as f64
}

/// The time of writes that take `seconds` without flash, and the time after them until all data are on
/// flash.
fn with_page_cache(job: &IoJob, access: Access, seconds: f64) -> (f64, f64) {
    let make = &job.burst_buffer;
    if access == Access::Read || make.dirty_limit.0 == 0 {
        return (seconds, 0.0);
    }
    let servers = job.storage.data_servers().len() as f64;
    let unit = job.largest_request().min(job.pattern.transfer_bytes());
    let caches = PageCaches {
        limit: make.dirty_limit.0 as f64 * servers,
        background: make.dirty_background.0 as f64 * servers,
        flash: ServerRates::of(job, 0, unit, access).flash * servers,
    };
    caches.times(job_bytes(job), seconds)
}

/// Time of the fsyncs of all processes, ps: each asks all servers that have data of it.
fn sync_time(job: &IoJob, runs: &Runs<'_>) -> f64 {
    let (mut next, last) = (0, job.pattern.transfers_per_rank());
    let mut servers: Vec<u32> = Vec::new();
    while next < last && servers.len() < job.storage.data_servers().len() {
        let run = runs.run(0, next, last);
        servers.extend(run.servers.iter().map(|(server, _)| *server));
        servers.sort_unstable();
        servers.dedup();
        next += run.transfers;
    }
    let make = &job.burst_buffer;
    let requests = servers.len() as f64;
    let one = (make.dispatch.0 + make.sync.0) as f64;
    let alone = job.client.call_overhead.0 as f64
        + (requests / f64::from(job.client.requests_in_flight)).ceil() * one;
    let all = requests * f64::from(job.tasks());
    alone.max(all * make.dispatch.0 as f64 / job.storage.data_servers().len() as f64)
}

/// First begin and last end of the closes, and the longest time of a process in calls, ps.
fn ends_of_closes(
    job: &IoJob,
    runs: &Runs<'_>,
    calls: &[LoneCalls],
    ends: &[u64],
    last: u64,
) -> ((u64, u64), u64) {
    let cost = PS_PER_SECOND / u64::from(job.burst_buffer.metadata_rate);
    let mut order: Vec<(u64, u32)> = ends.iter().copied().zip(0..).collect();
    if job.ior.barriers {
        order.iter_mut().for_each(|end| end.0 = last);
    }
    order.sort_unstable();
    let first = order.first().map_or(0, |end| end.0);
    let mut free = vec![0; job.storage.servers().len()];
    let (mut done, mut most) = (0, 0);
    for (end, rank) in order {
        let server = job.metadata_server_of(runs.pattern.file(rank, runs.access));
        let free = &mut free[server as usize];
        let alone = calls[runs.pattern.node_of(rank) as usize].of(runs.access).close;
        let begins = end.max(*free);
        *free = begins + cost;
        done = done.max(begins + alone);
        most = most.max(begins + alone);
    }
    ((first, done), most)
}
