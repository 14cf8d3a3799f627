//! The sweep over capacities and its simulations.

use crate::configuration::{Configuration, StageTime, capacity_text};
use crate::error::PlanError;
use crate::job::Job;
use crate::system::System;
use forebay_job_script::{Capacity, OptimizationStrategy};
use forebay_machine::study::{SimOptions, StudyError, simulate_ior};
use forebay_policy::allocate::{AllocationRequest, Size, allocate};
use forebay_policy::layout::Layout;
use forebay_policy::pool::granules_for;
use forebay_units::Bytes;
use forebay_workload::ior::Access;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Processes from which capacities are four times apart instead of two, for an answer within seconds.
const MANY_PROCESSES: u64 = 4096;

/// A capacity to request, and the number of storage nodes on which it is allocated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub capacity: Capacity,
    pub nodes: u32,
}

/// The storage nodes on which the pool's allocation puts a request; `None` if it is refused.
fn nodes_of(system: &System, capacity: Capacity) -> Option<u32> {
    let granularity = system.granularity.unwrap_or(Bytes(system.node_capacity()));
    let request = AllocationRequest {
        size: Size::of_instance(capacity, false, granularity)?,
        preference: OptimizationStrategy::Bandwidth,
        equalize: false,
        max_nodes: Some(Layout::MAX_NODES.into()),
    };
    let shares = allocate(&system.storage, &request).ok()?;
    u32::try_from(shares.len()).ok()
}

/// The capacities that are compared: the least that holds the job's files, and its multiples up to one
/// that all free storage nodes share. Empty if the files do not fit.
pub(crate) fn candidates(system: &System, job: &Job) -> Result<Vec<Candidate>, PlanError> {
    let needed = Bytes(job.needed_bytes()?.max(1));
    let unit = system.granularity.unwrap_or(Bytes(system.node_capacity().max(1)));
    let Some(least) = granules_for(needed, unit) else { return Ok(Vec::new()) };
    let usable = system.storage.iter().filter(|node| node.free_granules() > 0).count() as u64;
    let factor = match u64::from(job.nodes) * u64::from(job.ppn) > MANY_PROCESSES {
        true => 4,
        false => 2,
    };
    let mut sizes = vec![least];
    let mut next = least;
    while next < usable {
        next = (next * factor).min(usable);
        sizes.push(next);
    }
    let capacity = |granules: u64| match system.granularity {
        Some(granule) => granules.checked_mul(granule.0).map(|bytes| Capacity::Bytes(Bytes(bytes))),
        None => u32::try_from(granules).ok().map(Capacity::Nodes),
    };
    let candidate = |granules: u64| {
        let capacity = capacity(granules)?;
        Some(Candidate { capacity, nodes: nodes_of(system, capacity)? })
    };
    Ok(sizes.into_iter().filter_map(candidate).collect())
}

/// Simulates a job on several candidates, on all cores; the results are in the candidates' order.
pub(crate) fn simulate_all(
    system: &System,
    jobs: &[(Job, Candidate)],
    options: &SimOptions,
) -> Result<Vec<Configuration>, PlanError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((job, candidate)) = jobs.get(index) else { return done };
            done.push((index, simulate(system, job, *candidate, options)));
        }
    };
    let threads = options.threads.clamp(1, jobs.len().max(1));
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn simulate(
    system: &System,
    job: &Job,
    candidate: Candidate,
    options: &SimOptions,
) -> Result<Configuration, PlanError> {
    let options =
        SimOptions { threads: 1, burst_buffers: Some(candidate.nodes), ..options.clone() };
    let goes_on = |_, _, _| true;
    let point = simulate_ior(&system.machine, &job.test, job.nodes, job.ppn, &options, &goes_on)?;
    let seconds = |access: Access| {
        let of_kind = point.phases.iter().filter(|phase| phase.access == access.name());
        let times: Vec<f64> = of_kind.map(|phase| phase.seconds).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>())
    };
    let longest = point.phases.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let Some(longest) = longest else {
        return Err(PlanError::Job("the test has no phase: give -w, -r or both".into()));
    };
    let (write, read) = (seconds(Access::Write), seconds(Access::Read));
    let io_seconds = write.unwrap_or(0.0) + read.unwrap_or(0.0);
    let modes = if job.is_private() { &["striped", "private"][..] } else { &["striped"] };
    let stage = |bytes: u64, (seconds, limit)| StageTime { bytes, seconds, limit };
    let (bytes_in, bytes_out) = (job.stage_in.0, job.staged_out_bytes()?);
    let staging = system.staging.as_ref();
    Ok(Configuration {
        file_system: "burst-buffer".into(),
        capacity: Some(capacity_text(candidate.capacity)),
        storage_nodes: candidate.nodes,
        access_modes: modes.iter().map(|mode| (*mode).to_owned()).collect(),
        transfer: job.test.transfer.0,
        write_seconds: write,
        read_seconds: read,
        io_seconds,
        is_bound: false,
        share: job.share(io_seconds),
        limit: longest.limit.resource.clone(),
        because: longest.limit.because.clone(),
        stage_in: staging.map(|s| stage(bytes_in, s.stage_in(bytes_in, candidate.nodes))),
        stage_out: staging.map(|s| stage(bytes_out, s.stage_out(bytes_out, candidate.nodes))),
    })
}

/// The job on the parallel file system at its peak rate, or at that of the clients if it is less; `None`
/// if the machine file has no parallel file system.
pub(crate) fn pfs_bound(system: &System, job: &Job) -> Result<Option<Configuration>, StudyError> {
    let Some(pfs) = &system.machine.pfs else { return Ok(None) };
    let pattern = job.pattern().map_err(|e| StudyError::Machine(e.to_string()))?;
    let bytes = pattern.total_bytes() as f64 * f64::from(job.test.repetitions);
    let client = &system.machine.client;
    let peak = pfs.rate.0 as f64;
    let seconds = |is_done: bool, client: u64| {
        let clients = client as f64 * f64::from(job.nodes);
        is_done.then(|| bytes / clients.min(peak))
    };
    let write = seconds(job.test.write, client.write_rate.0);
    let read = seconds(job.test.read, client.read_rate.0);
    let io_seconds = write.unwrap_or(0.0) + read.unwrap_or(0.0);
    let of_clients = client.write_rate.0.max(client.read_rate.0) as f64 * f64::from(job.nodes);
    let limit = if of_clients < peak { "client" } else { "pfs" };
    Ok(Some(Configuration {
        file_system: "pfs".into(),
        capacity: None,
        storage_nodes: 0,
        access_modes: Vec::new(),
        transfer: job.test.transfer.0,
        write_seconds: write,
        read_seconds: read,
        io_seconds,
        is_bound: true,
        share: job.share(io_seconds),
        limit: limit.into(),
        because: format!(
            "{} at its peak rate of {}, which no job has for itself",
            pfs.name, pfs.rate
        ),
        stage_in: None,
        stage_out: None,
    }))
}
