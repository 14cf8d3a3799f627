//! The summary of a study: means over the seeds, with confidence intervals.

use super::case::CaseResult;
use super::file::StudyFile;
use forebay_machine::estimate::Estimate;
use forebay_machine::observe::Delays;
use forebay_machine::results::{ConcurrentJob, IoRun, JobRun, JobsRun, SCHEMA, WaitSeconds};
use serde::Serialize;

/// The document of a study.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    schema: u32,
    kind: &'static str,
    title: String,
    machine: String,
    /// Names of the jobs.
    pub jobs: Vec<String>,
    seeds: Vec<u64>,
    /// The case without a measure first.
    pub measures: Vec<MeasureSummary>,
}

/// A measure, over all seeds.
#[derive(Debug, Serialize)]
pub(super) struct MeasureSummary {
    pub name: String,
    /// `packet` or `flow`; `mixed` if seeds differ.
    pub fidelity: String,
    /// Each job alone.
    pub alone: Vec<JobSummary>,
    /// Each pair of jobs and, with more than two, all jobs.
    pub together: Vec<SetSummary>,
}

/// Jobs that run at the same time.
#[derive(Debug, Serialize)]
pub(super) struct SetSummary {
    /// Each job beside the others.
    pub jobs: Vec<BesideSummary>,
    /// Delays of packets, summed over packets, means over the seeds.
    pub delays: Vec<DelaySummary>,
}

/// A job beside others.
#[derive(Debug, Serialize)]
pub(super) struct BesideSummary {
    /// Its place among the jobs.
    pub job: usize,
    pub alone: JobSummary,
    pub together: JobSummary,
    /// Absent if the network was saturated with one of the seeds.
    pub slowdown: Option<Estimate>,
    /// Share of its time in which another job ran.
    pub overlap: f64,
    /// Waits of its requests together, without those alone, by resource, in seconds.
    pub added_waits: Vec<(&'static str, f64)>,
}

/// A job's results.
#[derive(Clone, Debug, Serialize)]
pub(super) struct JobSummary {
    /// Time of its I/O, or mean latency of its messages; absent if saturated with one of the seeds.
    pub time: Option<Estimate>,
    /// Limit of the first phase of its I/O, with each seed.
    pub limits: Vec<String>,
    /// 99th percentile of the latency of its messages.
    pub p99: Option<Estimate>,
    pub accepted_load: Option<Estimate>,
    pub write_gbps: Option<Estimate>,
    pub read_gbps: Option<Estimate>,
    /// Warnings about the phases of its I/O, with the first seed.
    pub warnings: Vec<String>,
}

/// Delays of a job's packets by those of another.
#[derive(Debug, Serialize)]
pub(super) struct DelaySummary {
    /// Class of links.
    pub links: String,
    /// The delayed job.
    pub job: String,
    /// The other.
    pub by: String,
    pub seconds: f64,
}

impl Summary {
    /// The results of the cases, in the order of measures and seeds.
    pub fn of(study: &StudyFile, results: &[CaseResult]) -> Summary {
        let seeds = study.seeds as usize;
        let measures = results.chunks(seeds.max(1));
        Summary {
            schema: SCHEMA,
            kind: "study",
            title: study.title.clone(),
            machine: study.machine.clone(),
            jobs: study.job.iter().map(|job| job.name.clone()).collect(),
            seeds: results.iter().take(seeds).map(|one| one.seed).collect(),
            measures: measures.map(MeasureSummary::of).collect(),
        }
    }
}

impl MeasureSummary {
    fn of(seeds: &[CaseResult]) -> MeasureSummary {
        let runs: Vec<&JobsRun> = seeds.iter().map(|one| &one.run).collect();
        let first = runs.first().copied();
        let jobs = first.map_or(0, |run| run.alone.len());
        let sets = first.map_or(0, |run| run.together.len());
        let alone =
            |job: usize| JobSummary::of(&runs.iter().map(|r| &r.alone[job]).collect::<Vec<_>>());
        MeasureSummary {
            name: seeds.first().map(|one| one.measure.clone()).unwrap_or_default(),
            fidelity: fidelity_of(&runs),
            alone: (0..jobs).map(alone).collect(),
            together: (0..sets).map(|set| SetSummary::of(&runs, set)).collect(),
        }
    }

    /// All jobs together.
    pub fn all(&self) -> Option<&SetSummary> {
        self.together.last()
    }
}

/// The fidelity of all runs, or `mixed`.
fn fidelity_of(runs: &[&JobsRun]) -> String {
    let first = runs.first().map(|run| run.fidelity.clone()).unwrap_or_default();
    match runs.iter().all(|run| run.fidelity == first) {
        true => first,
        false => "mixed".into(),
    }
}

impl SetSummary {
    fn of(runs: &[&JobsRun], set: usize) -> SetSummary {
        let sets = || runs.iter().map(|run| &run.together[set]);
        let count = sets().next().map_or(0, |set| set.jobs.len());
        let of_job = |place: usize| {
            let seeds: Vec<&ConcurrentJob> = sets().map(|set| &set.jobs[place]).collect();
            BesideSummary::of(&seeds)
        };
        let delays: Vec<&Delays> = sets().filter_map(|set| set.delays.as_ref()).collect();
        SetSummary { jobs: (0..count).map(of_job).collect(), delays: delays_of(&delays) }
    }
}

/// Means of the delays of each job by each other.
fn delays_of(seeds: &[&Delays]) -> Vec<DelaySummary> {
    let Some(first) = seeds.first() else { return Vec::new() };
    let mut all = Vec::new();
    for (class, links) in first.network.iter().enumerate() {
        for (i, job) in first.jobs.iter().enumerate() {
            for (j, by) in first.jobs.iter().enumerate().filter(|(j, _)| *j != i) {
                let of_seed = |delays: &&Delays| delays.network[class].seconds[i][j];
                let seconds = seeds.iter().map(of_seed).sum::<f64>() / seeds.len() as f64;
                let links = links.class.clone();
                all.push(DelaySummary { links, job: job.clone(), by: by.clone(), seconds });
            }
        }
    }
    all
}

impl BesideSummary {
    fn of(seeds: &[&ConcurrentJob]) -> BesideSummary {
        let alone: Vec<&JobRun> = seeds.iter().map(|one| &one.alone).collect();
        let together: Vec<&JobRun> = seeds.iter().map(|one| &one.together).collect();
        BesideSummary {
            job: seeds.first().map_or(0, |one| one.job),
            slowdown: estimate("slowdown", "", seeds.iter().map(|one| one.slowdown)),
            overlap: mean(seeds.iter().map(|one| one.overlap)),
            added_waits: added_waits(seeds),
            alone: JobSummary::of(&alone),
            together: JobSummary::of(&together),
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

fn added_waits(seeds: &[&ConcurrentJob]) -> Vec<(&'static str, f64)> {
    let waits = |run: &JobRun| io(run).and_then(|io| io.waits);
    let pairs: Vec<(WaitSeconds, WaitSeconds)> =
        seeds.iter().filter_map(|one| waits(&one.alone).zip(waits(&one.together))).collect();
    let Some((first, _)) = pairs.first() else { return Vec::new() };
    let added = |(nth, (name, _)): (usize, (&'static str, f64))| {
        let of = |(alone, together): &(WaitSeconds, WaitSeconds)| {
            together.by_resource()[nth].1 - alone.by_resource()[nth].1
        };
        (name, mean(pairs.iter().map(of)))
    };
    first.by_resource().into_iter().enumerate().map(added).collect()
}

fn io(run: &JobRun) -> Option<&IoRun> {
    match run {
        JobRun::Io(io) => Some(io),
        JobRun::Traffic(_) => None,
    }
}

/// The estimate of a quantity that all seeds have.
fn estimate(name: &str, unit: &str, values: impl Iterator<Item = Option<f64>>) -> Option<Estimate> {
    Estimate::of(name, unit, values.collect::<Option<Vec<f64>>>()?)
}

impl JobSummary {
    fn of(seeds: &[&JobRun]) -> JobSummary {
        let of = |name: &str, unit: &str, value: fn(&JobRun) -> Option<f64>| {
            estimate(name, unit, seeds.iter().map(|run| value(run)))
        };
        JobSummary {
            time: of("time", "s", |run| match run {
                JobRun::Io(io) => Some(io.seconds),
                JobRun::Traffic(traffic) => traffic.mean_seconds,
            }),
            limits: seeds.iter().filter_map(|run| io(run).map(|io| io.limit.clone())).collect(),
            p99: of("p99", "s", |run| match run {
                JobRun::Io(_) => None,
                JobRun::Traffic(traffic) => traffic.p99_seconds,
            }),
            accepted_load: of("accepted_load", "", |run| match run {
                JobRun::Io(_) => None,
                JobRun::Traffic(traffic) => Some(traffic.accepted_load),
            }),
            write_gbps: of("write_GBps", "GB/s", |run| io(run)?.write_gbps),
            read_gbps: of("read_GBps", "GB/s", |run| io(run)?.read_gbps),
            warnings: seeds
                .first()
                .and_then(|run| io(run))
                .map_or(Vec::new(), |io| io.warnings.clone()),
        }
    }
}
