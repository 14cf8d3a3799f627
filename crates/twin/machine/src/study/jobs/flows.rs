//! Several I/O jobs with flows.

use super::companies;
use super::measure::beside_all;
use super::place::PlacedJobs;
use crate::flow::{self, FlowJob, FlowPhase, LoneCalls};
use crate::results::{IoRun, JobRun, JobsTogether, WaitSeconds};
use crate::scenario::Scenario;
use crate::study::error::StudyError;
use crate::study::forecast::forecast_of_job;
use crate::study::options::{Fidelity, SimOptions};
use crate::study::run::Progress;
use crate::traffic::Generation;
use forebay_units::Time;
use forebay_workload::ior::Access;

/// The fidelity with which several jobs are simulated: that of the options, or the one chosen for
/// [`Fidelity::Auto`]. `all` is the scenario of all jobs.
///
/// # Errors
/// [`StudyError`] with the part that flows cannot represent.
pub(super) fn fidelity_of(all: &Scenario, options: &SimOptions) -> Result<Fidelity, StudyError> {
    // Delays of packets are reported where there are packets.
    let unobserved = SimOptions { observe: Default::default(), ..options.clone() };
    let check = || -> Result<(), StudyError> {
        if !all.traffic.is_empty() {
            return Err(StudyError::Machine(
                "flows simulate several I/O jobs; simulate jobs with traffic with packets, or one of \
                 each with `sim interference`"
                    .into(),
            ));
        }
        all.io.iter().try_for_each(|job| flow::check_several(job, &unobserved))
    };
    let events = || {
        let of_each = all.io.iter().map(|job| forecast_of_job(all, job, options).events);
        // Each job is alone once, in a pair with each other, and in the simulation of all.
        let count = all.io.len();
        let times = if count > 2 { count + 1 } else { count };
        Ok(of_each.sum::<f64>() * times as f64)
    };
    options.fidelity.chosen(&check(), events)
}

/// Results of several I/O jobs.
pub(super) struct FlowResults {
    pub alone: Vec<JobRun>,
    pub together: Vec<JobsTogether>,
    /// Runs of all simulations.
    pub runs: u64,
}

/// Simulates each job alone, each pair, and all.
pub(super) fn simulate(
    placed: &PlacedJobs<'_>,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<FlowResults, StudyError> {
    let count = placed.jobs.len();
    let options = &SimOptions { observe: Default::default(), ..options.clone() };
    let mut simulations = Simulations { placed, calls: Vec::new(), progress, ended: 0, runs: 0 };
    for job in 0..count {
        let scenario = placed.scenario(&[job], Generation::UntilOtherEnds, 0)?;
        let Some(of_job) = scenario.io.first() else { unreachable!("an I/O job") };
        simulations.calls.push(flow::calls_of_nodes(&scenario, of_job, options)?);
    }
    let mut alone = Vec::new();
    for job in 0..count {
        alone.extend(simulations.simulate(&[job])?);
    }
    let mut together = Vec::new();
    for jobs in companies(count) {
        let runs = simulations.simulate(&jobs)?;
        let own = jobs.iter().map(|job| JobRun::Io(alone[*job].clone()));
        let runs = runs.into_iter().map(JobRun::Io);
        together.push(JobsTogether { jobs: beside_all(&jobs, own.zip(runs)), delays: None });
    }
    let alone = alone.into_iter().map(JobRun::Io).collect();
    Ok(FlowResults { alone, together, runs: simulations.runs })
}

/// The simulations of a study.
struct Simulations<'a> {
    placed: &'a PlacedJobs<'a>,
    /// Lone calls of each job.
    calls: Vec<Vec<LoneCalls>>,
    progress: Progress<'a>,
    ended: usize,
    runs: u64,
}

impl Simulations<'_> {
    /// Some of the jobs together.
    fn simulate(&mut self, jobs: &[usize]) -> Result<Vec<IoRun>, StudyError> {
        let scenario = self.placed.scenario(jobs, Generation::UntilOtherEnds, 0)?;
        let calls: Vec<Vec<LoneCalls>> = jobs.iter().map(|job| self.calls[*job].clone()).collect();
        let (before, count) = (self.ended as f64, self.placed.count_simulations() as f64);
        let shown = |now: Time, done: f64, runs: u64| {
            (self.progress)(now, (before + done) / count, self.runs + runs)
        };
        let found = flow::simulate_jobs(&scenario, &calls, &shown)?;
        self.ended += 1;
        self.runs += found.runs;
        let starts = scenario.io.iter().map(|job| job.start);
        Ok(found.jobs.iter().zip(starts).map(|(job, start)| io_run(job, start)).collect())
    }
}

/// The result of an I/O job that started at the time `start`, ps.
fn io_run(job: &FlowJob, start: u64) -> IoRun {
    let best = |access: Access| {
        let of_kind = job.phases.iter().filter(|phase| phase.access == access);
        of_kind.map(|phase| phase.gbps).max_by(f64::total_cmp)
    };
    let waited = |name: &str| job.waits.get(name).map_or(0.0, |ps| ps * 1e-12);
    IoRun {
        seconds: job.phases.iter().map(|phase: &FlowPhase| phase.seconds).sum(),
        write_gbps: best(Access::Write),
        read_gbps: best(Access::Read),
        span_seconds: [start as f64 * 1e-12, job.end as f64 * 1e-12],
        limit: job.phases.first().map(|phase| phase.limit.to_string()).unwrap_or_default(),
        waits: Some(WaitSeconds {
            server: waited("server"),
            lock: waited("lock"),
            flash: waited("flash"),
            client: waited("client"),
            network: waited("network"),
        }),
    }
}
