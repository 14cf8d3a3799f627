//! The plan of a job and its recommendation.

use crate::configuration::{Configuration, StageTime};
use crate::error::PlanError;
use crate::job::Job;
use crate::sweep::{
    Candidate, Place, candidates, forecast_of, is_costly, pfs_bound, pfs_places, simulate_all,
};
use crate::system::System;
use crate::work::Work;
use forebay_machine::results::PublishedKind;
use forebay_machine::study::{Forecast, Progress, SimOptions};
use forebay_units::{Bytes, human};
use forebay_workload::ior::Ior;
use serde::Serialize;

/// I/O that takes at most this many times as long as the fastest is as good.
const AS_GOOD: f64 = 1.1;

/// The predicted times of a job's I/O on several configurations, and the advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Version of this document.
    pub schema: u32,
    /// `plan`.
    pub kind: String,
    /// Version of forebay.
    pub version: String,
    /// The machine's name.
    pub machine: String,
    /// Compute nodes.
    pub nodes: u32,
    /// Processes per node.
    pub processes_per_node: u32,
    /// Bytes that an instance has to hold.
    pub needed_bytes: u64,
    /// Burst buffers in the order of capacity, then the parallel file system.
    pub configurations: Vec<Configuration>,
    /// The recommended burst buffer with other transfer sizes.
    pub transfers: Vec<Configuration>,
    /// The advice.
    pub recommendation: Recommendation,
    /// Published measurements of the kinds of the simulated phases; [`plan`] knows none.
    pub published: Vec<PublishedKind>,
    /// With a Darshan log: the time of the slowest processes in calls that the log measured; [`plan`] does not
    /// know it.
    pub measured_seconds: Option<f64>,
    /// What the job's script or its Darshan log does not determine; [`plan`] knows none.
    pub warnings: Vec<String>,
}

/// The advice for a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// `burst-buffer`, `pfs`, or `none` if the files fit nowhere.
    pub file_system: String,
    /// The directive that requests the burst buffer.
    pub directive: Option<String>,
    /// Transfer size with which the I/O is more than a tenth faster than with the job's.
    pub transfer: Option<u64>,
    /// The reason.
    pub reason: String,
}

/// Plans a job on a system. The seed, the placement, the nodes and the fidelity are those of `options`;
/// its threads simulate configurations at the same time.
///
/// # Errors
/// [`PlanError`] if the job does not fit the machine, or the simulator cannot represent it.
pub fn plan(system: &System, job: &Job, options: &SimOptions) -> Result<Plan, PlanError> {
    plan_with(system, job, options, &|_, _, _| true)
}

/// [`plan`], which tells `progress` the share of the simulations of the sweep that is done, then of those with other
/// transfer sizes.
///
/// # Errors
/// As [`plan`]; [`StudyError::Interrupted`](forebay_machine::study::StudyError::Interrupted) if `progress` ends it.
pub fn plan_with(
    system: &System,
    job: &Job,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<Plan, PlanError> {
    let needed_bytes = job.needed_bytes()?;
    let candidates = candidates(system, job)?;
    let jobs = sweep(system, job, &candidates);
    let mut configurations = simulate_all(system, &jobs, options, progress)?;
    let mut on_pfs = configurations.split_off(candidates.len());
    if on_pfs.is_empty() {
        on_pfs.extend(pfs_bound(system, job)?);
    }
    let chosen = smallest_of_the_fastest(&configurations);
    let mut transfers = Vec::new();
    if let Some(chosen) = chosen {
        let place = Place::BurstBuffer(candidates[chosen]);
        let other = other_transfers(job).into_iter().map(|job| (job, place));
        transfers = simulate_all(system, &other.collect::<Vec<_>>(), options, progress)?;
    }
    let pfs = on_pfs.iter().min_by(|a, b| a.io_seconds.total_cmp(&b.io_seconds));
    let recommendation = recommend(
        job,
        (needed_bytes, !system.storage.is_empty()),
        chosen.map(|chosen| &configurations[chosen]),
        &configurations,
        &transfers,
        pfs,
    );
    configurations.extend(on_pfs);
    Ok(Plan {
        schema: forebay_machine::results::SCHEMA,
        kind: "plan".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: system.machine.name.clone(),
        nodes: job.nodes,
        processes_per_node: job.ppn,
        needed_bytes,
        configurations,
        transfers,
        recommendation,
        published: Vec::new(),
        measured_seconds: None,
        warnings: Vec::new(),
    })
}

/// The job on each burst buffer and on the parallel file system.
fn sweep(system: &System, job: &Job, candidates: &[Candidate]) -> Vec<(Job, Place)> {
    let burst_buffers = candidates.iter().map(|candidate| Place::BurstBuffer(*candidate));
    let places = burst_buffers.chain(pfs_places(system, job));
    places.map(|place| (job.clone(), place)).collect()
}

/// Estimates the work of those simulations of the sweep of [`plan`] that have packets; 0 if all have flows. Those with
/// other transfer sizes are not known before.
///
/// # Errors
/// As [`plan`].
pub fn forecast(system: &System, job: &Job, options: &SimOptions) -> Result<Forecast, PlanError> {
    let jobs = sweep(system, job, &candidates(system, job)?);
    let mut all = Forecast { packets: 0.0, events: 0.0 };
    for (job, place) in &jobs {
        all = all.and(forecast_of(system, job, *place, options)?);
    }
    Ok(all)
}

/// The first, hence smallest, configuration that is as good as the fastest.
fn smallest_of_the_fastest(configurations: &[Configuration]) -> Option<usize> {
    let times = configurations.iter().map(|one| one.io_seconds);
    let fastest = times.min_by(f64::total_cmp)?;
    configurations.iter().position(|one| one.io_seconds <= fastest * AS_GOOD)
}

/// The job with transfers four and sixteen times as large, as far as blocks are made of them and
/// simulations are fast; none for a log.
fn other_transfers(job: &Job) -> Vec<Job> {
    const MOST: u64 = 64 << 20;
    let Work::Test(test) = &job.work else { return Vec::new() };
    let own = test.transfer.0;
    let sizes = [own.saturating_mul(4), own.saturating_mul(16)];
    let fits = |size: &u64| !is_costly(job) && *size <= MOST && test.block.0.is_multiple_of(*size);
    let with = |size: u64| {
        let test = Ior { transfer: Bytes(size), ..test.as_ref().clone() };
        Job { work: Work::Test(Box::new(test)), ..job.clone() }
    };
    sizes.into_iter().filter(fits).map(with).collect()
}

fn recommend(
    job: &Job,
    (needed, has_storage): (u64, bool),
    chosen: Option<&Configuration>,
    all: &[Configuration],
    transfers: &[Configuration],
    pfs: Option<&Configuration>,
) -> Recommendation {
    let Some(chosen) = chosen else {
        return without_burst_buffer(needed, has_storage, pfs);
    };
    let time = human::seconds(chosen.io_seconds);
    let mut reason = compared(chosen, all);
    reason.push_str(&format!("; the limit is the {}: {}", chosen.limit, chosen.because));
    let stages = stages(chosen);
    reason.push_str(&stages.text());
    if let Some(pfs) = pfs {
        let at_best = human::seconds(pfs.io_seconds);
        // As good as the burst buffer, and without its stages.
        let as_fast = if stages.total() > 0.0 { AS_GOOD } else { 1.0 };
        if !pfs.is_bound && pfs.io_seconds <= chosen.io_seconds * as_fast {
            return Recommendation {
                file_system: "pfs".into(),
                directive: None,
                transfer: None,
                reason: format!(
                    "the parallel file system takes {at_best}{}, a burst buffer {time}{}; the limit there is the {}: \
                     {}",
                    striping(pfs),
                    stages.text(),
                    pfs.limit,
                    pfs.because
                ),
            };
        }
        reason.push_str(&match (pfs.is_bound, pfs.io_seconds > chosen.io_seconds) {
            (false, _) => {
                format!("; the parallel file system takes {at_best}{}", striping(pfs))
            }
            (true, true) => format!("; the parallel file system takes {at_best} at best"),
            (true, false) => format!(
                "; the parallel file system would take {at_best} at best, which other jobs and locks \
                 can multiply"
            ),
        });
        let until_moved = chosen.io_seconds + stages.total();
        if stages.total() > 0.0 && pfs.io_seconds < until_moved {
            reason.push_str(&format!(
                ", but has no stages: with the burst buffer it is {} until all data have been moved",
                human::seconds(until_moved)
            ));
        }
    }
    let faster = transfers.iter().min_by(|a, b| a.io_seconds.total_cmp(&b.io_seconds));
    let faster = faster.filter(|one| one.io_seconds * AS_GOOD < chosen.io_seconds);
    if let Some(faster) = faster {
        reason.push_str(&format!(
            "; with transfers of {} it takes {}",
            human::bytes(faster.transfer),
            human::seconds(faster.io_seconds)
        ));
    }
    if let Some(unsuitable) = job.unsuitable_modes() {
        reason.push_str(&format!("; {unsuitable}"));
    }
    let capacity = chosen.capacity.clone().unwrap_or_default();
    let modes: Vec<&str> = job.advised_modes().iter().map(|mode| mode.keyword()).collect();
    let modes = modes.join(",");
    let pool = job.pool.as_ref().map_or(String::new(), |pool| format!(" pool={pool}"));
    Recommendation {
        file_system: chosen.file_system.clone(),
        directive: Some(format!(
            "#DW jobdw capacity={capacity} type=scratch access_mode={modes}{pool}"
        )),
        transfer: faster.map(|one| one.transfer),
        reason,
    }
}

/// Seconds of the stages of a burst buffer, before the job and after it.
struct Stages {
    stage_in: f64,
    stage_out: f64,
}

fn stages(chosen: &Configuration) -> Stages {
    let seconds = |stage: &Option<StageTime>| stage.as_ref().map_or(0.0, |stage| stage.seconds);
    Stages { stage_in: seconds(&chosen.stage_in), stage_out: seconds(&chosen.stage_out) }
}

impl Stages {
    fn total(&self) -> f64 {
        self.stage_in + self.stage_out
    }

    /// `; the stage-in takes 3.1 s before the job, the stage-out 52 min after it`; empty without stages.
    fn text(&self) -> String {
        let of = |name: &str, seconds: f64, when: &str| {
            (seconds > 0.0).then(|| format!("the {name} takes {} {when}", human::seconds(seconds)))
        };
        let before = of("stage-in", self.stage_in, "before the job");
        let after = of("stage-out", self.stage_out, "after the job");
        let all: Vec<String> = before.into_iter().chain(after).collect();
        if all.is_empty() { String::new() } else { format!("; {}", all.join(" and ")) }
    }
}

/// The time of the chosen capacity beside those of the least and of the most.
fn compared(chosen: &Configuration, all: &[Configuration]) -> String {
    let time = human::seconds(chosen.io_seconds);
    let nodes = human::counted(chosen.storage_nodes.into(), "storage node");
    let other = |one: &Configuration| {
        format!("{} on {}", human::seconds(one.io_seconds), one.storage_nodes)
    };
    match all {
        [] | [_] => format!("the I/O takes {time} on {nodes}; the capacity leaves no other choice"),
        [first, .., last] if first.capacity == chosen.capacity => format!(
            "the I/O takes {time} on {nodes}, and {}: more capacity gains less than a tenth",
            other(last)
        ),
        [first, .., last] if last.capacity == chosen.capacity => format!(
            "the I/O takes {time} on {nodes}, and {}; no instance has more storage nodes",
            other(first)
        ),
        [first, ..] => format!(
            "the I/O takes {time} on {nodes}, and {}; more capacity gains less than a tenth",
            other(first)
        ),
    }
}

/// The striping with which the parallel file system was simulated.
fn striping(pfs: &Configuration) -> String {
    match pfs.stripe_count {
        Some(count) => format!(" (lfs setstripe -c {count})"),
        None => String::new(),
    }
}

/// The advice where no burst buffer can hold the files.
fn without_burst_buffer(
    needed: u64,
    has_storage: bool,
    pfs: Option<&Configuration>,
) -> Recommendation {
    let needed = human::bytes(needed);
    let why = match has_storage {
        true => format!("the files have {needed}, which no burst buffer of the machine can hold"),
        false => "the machine has no burst buffers".to_owned(),
    };
    let (file_system, reason) = match pfs {
        Some(pfs) => (
            "pfs",
            format!(
                "{why}; the parallel file system takes {}{}{}",
                human::seconds(pfs.io_seconds),
                striping(pfs),
                if pfs.is_bound { " at best" } else { "" }
            ),
        ),
        None => ("none", format!("{why}, and its machine file has no `[pfs]` to compare with")),
    };
    Recommendation { file_system: file_system.into(), directive: None, transfer: None, reason }
}
