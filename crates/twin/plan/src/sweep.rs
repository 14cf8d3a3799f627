//! The sweep over capacities and its simulations.

use crate::configuration::{CAPACITY_UNITS, Configuration, StageTime, capacity_text};
use crate::error::PlanError;
use crate::job::Job;
use crate::system::System;
use forebay_job_script::{Capacity, OptimizationStrategy};
use forebay_machine::results::Phase;
use forebay_machine::study::{
    Fidelity, FileSystem, Forecast, Progress, SimOptions, StudyError, fidelity_of_ior,
    forecast_ior, simulate_ior,
};
use forebay_policy::allocate::{AllocationRequest, Size, allocate};
use forebay_policy::layout::Layout;
use forebay_policy::pool::granules_for;
use forebay_units::{Bytes, human};
use forebay_workload::ior::Access;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Cost of a simulation from which fewer are made, for an answer within seconds: processes, those that write
/// or read a shared file four times.
const HIGH_COST: u64 = 4096;

/// A capacity to request, and the number of storage nodes on which it is allocated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub capacity: Capacity,
    pub nodes: u32,
}

/// The file system of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// An instance of the burst buffer.
    BurstBuffer(Candidate),
    /// The parallel file system, with this number of targets of a file, or the machine's default.
    Pfs(Option<u32>),
}

/// Whether simulations of a job take so long that only a few are made.
pub(crate) fn is_costly(job: &Job) -> bool {
    let processes = u64::from(job.nodes) * u64::from(job.ppn);
    let each = if job.work.is_shared() { 4 } else { 1 };
    processes * each > HIGH_COST
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

/// The capacity to request for a number of granules: in the largest unit of which whole numbers of at least
/// `needed` bytes are rounded up to these granules by the pool; `None` beyond 2^64 bytes.
fn requested(granules: u64, granule: Bytes, needed: Bytes) -> Option<Bytes> {
    let whole = granules.checked_mul(granule.0)?;
    let in_units = CAPACITY_UNITS.iter().map(|(_, shift)| Bytes(whole >> shift << shift));
    let suits = |less: &Bytes| *less >= needed && granules_for(*less, granule) == Some(granules);
    Some(in_units.into_iter().find(suits).unwrap_or(Bytes(whole)))
}

/// The capacities that are compared: the least that holds the job's files, and its multiples up to one
/// that all free storage nodes share. Empty if the files do not fit.
pub(crate) fn candidates(system: &System, job: &Job) -> Result<Vec<Candidate>, PlanError> {
    let needed = Bytes(job.needed_bytes()?.max(1));
    let unit = system.granularity.unwrap_or(Bytes(system.node_capacity().max(1)));
    let Some(least) = granules_for(needed, unit) else { return Ok(Vec::new()) };
    let usable = system.storage.iter().filter(|node| node.free_granules() > 0).count() as u64;
    let factor = if is_costly(job) { 4 } else { 2 };
    let mut sizes = vec![least];
    let mut next = least;
    while next < usable {
        next = (next * factor).min(usable);
        sizes.push(next);
    }
    let capacity = |granules: u64| match system.granularity {
        Some(granule) => requested(granules, granule, needed).map(Capacity::Bytes),
        None => u32::try_from(granules).ok().map(Capacity::Nodes),
    };
    let candidate = |granules: u64| {
        let capacity = capacity(granules)?;
        Some(Candidate { capacity, nodes: nodes_of(system, capacity)? })
    };
    Ok(sizes.into_iter().filter_map(candidate).collect())
}

/// Most processes with a shared file whose transfers to the parallel file system are simulated: a file
/// over hundreds of targets takes minutes otherwise.
const MOST_SHARING: u64 = 256;

/// The parallel file system as it is simulated: with the machine's default striping, and a shared file also
/// over all targets. Empty if the machine file does not describe its parts, or that takes too long.
pub(crate) fn pfs_places(system: &System, job: &Job) -> Vec<Place> {
    let Some(pfs) = &system.machine.pfs else { return Vec::new() };
    let Some(lustre) = &pfs.lustre else { return Vec::new() };
    let processes = u64::from(job.nodes) * u64::from(job.ppn);
    if job.work.is_shared() && processes > MOST_SHARING {
        return Vec::new();
    }
    let mut places = vec![Place::Pfs(None)];
    if job.work.is_shared() && lustre.stripe_count < pfs.osts {
        places.push(Place::Pfs(Some(pfs.osts)));
    }
    places
}

/// The share done and the events of each of several simulations.
struct Shares(Mutex<Vec<(f64, u64)>>);

impl Shares {
    /// Takes those of one; returns those of all.
    fn update(&self, index: usize, done: f64, events: u64) -> (f64, u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all[index] = (done, events);
        let share = all.iter().map(|one| one.0).sum::<f64>() / all.len() as f64;
        (share, all.iter().map(|one| one.1).sum())
    }

    /// One has ended.
    fn end(&self, index: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[index].0 = 1.0;
    }
}

/// The options of the simulation on a file system.
fn options_on(place: Place, options: &SimOptions) -> SimOptions {
    let alone = SimOptions { threads: 1, ..options.clone() };
    match place {
        Place::BurstBuffer(candidate) => {
            SimOptions { burst_buffers: Some(candidate.nodes), ..alone }
        }
        Place::Pfs(stripe_count) => {
            let file_system = FileSystem::Parallel { stripe_count, stripe: None };
            SimOptions { file_system, ..alone }
        }
    }
}

/// The work of a job's simulations on a file system, as far as they have packets.
pub(crate) fn forecast_of(
    system: &System,
    job: &Job,
    place: Place,
    options: &SimOptions,
) -> Result<Forecast, PlanError> {
    let options = options_on(place, options);
    let mut all = Forecast { packets: 0.0, events: 0.0 };
    for one in job.work.tests(job.distribution()) {
        let (machine, test, nodes, ppn) = (&system.machine, &one.test, one.nodes, one.ppn);
        if fidelity_of_ior(machine, test, nodes, ppn, &options)? == Fidelity::Packet {
            all = all.and(forecast_ior(machine, test, nodes, ppn, &options)?);
        }
    }
    Ok(all)
}

/// Simulates a job on several file systems, on all cores; the results are in their order. The last ones are simulated
/// first: on more storage nodes more messages move at the same time, which takes longest.
pub(crate) fn simulate_all(
    system: &System,
    jobs: &[(Job, Place)],
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<Vec<Configuration>, PlanError> {
    let next = AtomicUsize::new(0);
    let shares = Shares(Mutex::new(vec![(0.0, 0); jobs.len()]));
    let work = || {
        let mut done = Vec::new();
        loop {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            let Some(index) = jobs.len().checked_sub(taken + 1) else { return done };
            let (job, place) = &jobs[index];
            let goes_on = |time, done, events| {
                let (done, events) = shares.update(index, done, events);
                progress(time, done, events)
            };
            done.push((index, simulate(system, job, *place, options, &goes_on)));
            shares.end(index);
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
    place: Place,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<Configuration, PlanError> {
    let options = options_on(place, options);
    let mut phases: Vec<(Phase, f64)> = Vec::new();
    let (mut fidelity, mut left_out) = (Fidelity::Packet, Vec::new());
    let tests = job.work.tests(job.distribution());
    for (nth, one) in tests.iter().enumerate() {
        let goes_on = |time, done: f64, events| {
            progress(time, (nth as f64 + done) / tests.len() as f64, events)
        };
        let point =
            simulate_ior(&system.machine, &one.test, one.nodes, one.ppn, &options, &goes_on)?;
        if point.fidelity == Fidelity::Flow.name() {
            (fidelity, left_out) = (Fidelity::Flow, point.left_out);
        }
        phases.extend(point.phases.into_iter().map(|phase| (phase, f64::from(one.times))));
    }
    let seconds = |access: Access| {
        let of_kind = phases.iter().filter(|(phase, _)| phase.access == access.name());
        let times: Vec<f64> = of_kind.map(|(phase, times)| phase.seconds * times).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>())
    };
    let longest =
        phases.iter().max_by(|(a, n), (b, m)| (a.seconds * n).total_cmp(&(b.seconds * m)));
    let Some((longest, _)) = longest else {
        return Err(PlanError::Job("the test has no phase: give -w, -r or both".into()));
    };
    let (write, read) = (seconds(Access::Write), seconds(Access::Read));
    let limit = (longest.limit.resource.clone(), longest.limit.because.clone());
    let mut warnings: Vec<String> =
        phases.iter().flat_map(|(phase, _)| &phase.warnings).map(|text| of_plan(text)).collect();
    warnings.dedup();
    let times = timed(job, options.file_system.name(), (write, read), limit);
    warnings.extend(job.too_long(times.io_seconds));
    let fidelity = Some(fidelity.name().to_owned());
    let configuration = Configuration { fidelity, left_out, warnings, ..times };
    match place {
        Place::BurstBuffer(candidate) => on_burst_buffer(system, job, candidate, configuration),
        // Real programs were up to fifteen times slower on shared files than the twin's locks make them.
        Place::Pfs(stripe_count) => Ok(Configuration {
            stripe_count: stripe_count.or_else(|| default_stripes(system)),
            is_bound: job.work.is_shared(),
            ..configuration
        }),
    }
}

/// A phase's warning without its advice to take the steady rate, which a plan does not show.
fn of_plan(warning: &str) -> String {
    let advice = [", or take the steady rate", ", and a steady rate"];
    advice.iter().fold(warning.to_owned(), |text, advice| text.replace(advice, ""))
}

/// Targets of a file on the parallel file system, where a job does not say.
fn default_stripes(system: &System) -> Option<u32> {
    let lustre = system.machine.pfs.as_ref()?.lustre.as_ref()?;
    Some(lustre.stripe_count)
}

/// A configuration with the seconds of its writes and reads, and the limit with its evidence.
fn timed(
    job: &Job,
    file_system: &str,
    (write_seconds, read_seconds): (Option<f64>, Option<f64>),
    (limit, because): (String, String),
) -> Configuration {
    let io_seconds = write_seconds.unwrap_or(0.0) + read_seconds.unwrap_or(0.0);
    Configuration {
        file_system: file_system.into(),
        capacity: None,
        stripe_count: None,
        storage_nodes: 0,
        access_modes: Vec::new(),
        transfer: job.work.transfer().0,
        write_seconds,
        read_seconds,
        io_seconds,
        is_bound: false,
        share: job.share(io_seconds),
        limit,
        because,
        fidelity: None,
        left_out: Vec::new(),
        warnings: Vec::new(),
        stage_in: None,
        stage_out: None,
    }
}

/// Adds what only a burst buffer has.
fn on_burst_buffer(
    system: &System,
    job: &Job,
    candidate: Candidate,
    times: Configuration,
) -> Result<Configuration, PlanError> {
    let modes = job.suitable_modes();
    let stage = |bytes: u64, (seconds, limit)| StageTime { bytes, seconds, limit };
    let (bytes_in, bytes_out) = (job.stage_in.0, job.staged_out_bytes()?);
    let (files_in, files_out) = (job.stage_in_files, job.staged_out_files()?);
    let staging = system.staging.as_ref();
    Ok(Configuration {
        capacity: Some(capacity_text(candidate.capacity)),
        storage_nodes: candidate.nodes,
        access_modes: modes.iter().map(|mode| mode.keyword().to_owned()).collect(),
        stage_in: staging
            .map(|s| stage(bytes_in, s.stage_in((bytes_in, files_in), candidate.nodes))),
        stage_out: staging
            .map(|s| stage(bytes_out, s.stage_out((bytes_out, files_out), candidate.nodes))),
        ..times
    })
}

/// The job on the parallel file system at its peak rate, or at that of the nodes' links if it is less;
/// `None` if its rates are not known. The links of a pool's hosts are part of the rates that were measured.
pub(crate) fn pfs_bound(system: &System, job: &Job) -> Result<Option<Configuration>, StudyError> {
    let Some(pfs) = &system.pfs else { return Ok(None) };
    let interfaces = system.machine.nodes.iter().map(|node| node.interfaces).max();
    let of_node = |link: f64| link * f64::from(interfaces.unwrap_or(1));
    let of_links = pfs.node_link.map_or(f64::INFINITY, of_node) * f64::from(job.nodes);
    let seconds = |access: Access, peak: f64| -> Result<Option<f64>, StudyError> {
        let bytes = job.work.bytes_moved(access, job.distribution());
        let bytes = bytes.map_err(|error| StudyError::Machine(error.to_string()))?;
        Ok(job.work.has(access).then(|| bytes / of_links.min(peak)))
    };
    let write = seconds(Access::Write, pfs.write)?;
    let read = seconds(Access::Read, pfs.read)?;
    let peak = if job.work.has(Access::Write) { pfs.write } else { pfs.read };
    let (limit, because) = match of_links < peak {
        true => (
            "node-link",
            format!(
                "the links of {} carry {} GB/s to {}",
                human::counted(job.nodes.into(), "node"),
                human::number(of_links / 1e9),
                pfs.name
            ),
        ),
        false => ("pfs", format!("{}: {}", pfs.name, pfs.because)),
    };
    let limit = (limit.to_owned(), because);
    Ok(Some(Configuration { is_bound: true, ..timed(job, "pfs", (write, read), limit) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gib(count: u64) -> Bytes {
        Bytes(count << 30)
    }

    /// By hand: 8 granules of 397.4375 GiB are 3,179.5 GiB; 3 TiB take 7.7 of them. One is less than a TiB.
    #[test]
    fn capacity_is_requested_in_the_largest_unit_that_gets_the_same_granules() {
        let granule = Bytes::mib(406_976);
        let of = |granules, needed| requested(granules, granule, needed);
        assert_eq!(of(8, gib(3000)), Some(gib(3 << 10)));
        assert_eq!(of(1, gib(16)), Some(gib(397)));
        // 3 TiB would not hold the files, but 3,179 GiB do.
        assert_eq!(of(8, gib(3100)), Some(gib(3179)));
        assert_eq!(of(1, granule), Some(granule));
        // 9 TiB of 10 TiB are fewer granules.
        assert_eq!(requested(10, gib(1 << 10), Bytes(1)), Some(gib(10 << 10)));
        assert_eq!(requested(u64::MAX, granule, Bytes(1)), None);
    }
}
