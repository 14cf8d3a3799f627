//! Several jobs with flows.

use super::companies;
use super::measure::beside_all;
use super::place::PlacedJobs;
use crate::flow::{self, CallsBy, FlowJob, FlowPhase, FlowTraffic, JobAlone, LoneCalls};
use crate::results::{ConcurrentJob, IoRun, JobRun, JobsTogether, TrafficState, WaitSeconds};
use crate::scenario::Scenario;
use crate::steady::{ACCEPTED_WHEN_STEADY, State};
use crate::study::error::StudyError;
use crate::study::forecast::forecast_of_job;
use crate::study::options::{Fidelity, SimOptions};
use crate::study::run::Progress;
use crate::traffic::Generation;
use crate::warnings::{of_larger_transfers, of_slowdown};
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
        all.io.iter().try_for_each(|job| flow::check_several(job, &unobserved))
    };
    let events = || {
        // Latencies of traffic are what packets are for.
        if !all.traffic.is_empty() {
            return Ok(0.0);
        }
        let of_each = all.io.iter().map(|job| forecast_of_job(all, job, options).events);
        // Each job is alone once, in a pair with each other, and in the simulation of all.
        let count = all.io.len();
        let times = if count > 2 { count + 1 } else { count };
        Ok(of_each.sum::<f64>() * times as f64)
    };
    options.fidelity.chosen(&check(), events)
}

/// Results of several jobs.
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
    let mut simulations = Simulations { placed, known: Vec::new(), progress, ended: 0, runs: 0 };
    for job in 0..count {
        let scenario = placed.scenario(&[job], Generation::UntilOtherEnds, 0)?;
        simulations.known.push(match scenario.io.first() {
            Some(of_job) => {
                let calls = flow::calls_of_nodes(&scenario, of_job, options)?;
                job_alone(&scenario, calls, options)?
            }
            None => JobAlone::default(),
        });
    }
    let mut alone = Vec::new();
    for job in 0..count {
        alone.extend(simulations.simulate(&[job])?);
    }
    let mut together = Vec::new();
    for jobs in companies(count) {
        let runs = simulations.simulate(&jobs)?;
        let own = jobs.iter().map(|job| alone[*job].clone());
        let mut jobs = beside_all(&jobs, own.zip(runs));
        let numbers = jobs.iter().map(|beside| beside.job).collect::<Vec<_>>();
        for beside in &mut jobs {
            beside.slowdown = slowdown(beside).or(beside.slowdown);
            if let JobRun::Io(together) = &mut beside.together {
                together.warnings.extend(of_slowdown(beside.slowdown));
                let sizes = placed.transfers_beside(beside.job, &numbers);
                together.warnings.extend(sizes.and_then(of_larger_transfers));
            }
        }
        together.push(JobsTogether { jobs, delays: None });
    }
    Ok(FlowResults { alone, together, runs: simulations.runs })
}

/// A scenario's only I/O job alone: the times of its calls request by request, for phases with few requests,
/// and the time that the transfers of each phase take so, as a multiple of that by rates. Beside other jobs rates tell
/// how long phases take, so that their times alone and together compare.
fn job_alone(
    scenario: &Scenario,
    calls: Vec<LoneCalls>,
    options: &SimOptions,
) -> Result<JobAlone, StudyError> {
    let unknown = JobAlone { calls, scales: Vec::new(), call_times: Vec::new() };
    let [job] = scenario.io.as_slice() else { unreachable!("one I/O job") };
    if !flow::all_are_simulated(job) {
        return Ok(unknown);
    }
    let by_requests = flow::simulate(scenario, (job, CallsBy::Requests), options, &|_, _, _| true)?;
    JobAlone::as_by_requests(unknown.calls, by_requests, |known| {
        let alone = std::slice::from_ref(known);
        let by_rates = flow::simulate_jobs(scenario, alone, &|_, _, _| true)?;
        let [by_rates] = by_rates.jobs.as_slice() else { unreachable!("one job") };
        Ok(by_rates.phases.iter().map(|phase| phase.transfer_seconds).collect())
    })
}

/// The slowdown of a job with traffic, whose messages have no latency: accepted load alone / together.
fn slowdown(beside: &ConcurrentJob) -> Option<f64> {
    match (&beside.alone, &beside.together) {
        (JobRun::Traffic(alone), JobRun::Traffic(together)) => {
            (together.accepted_load > 0.0).then(|| alone.accepted_load / together.accepted_load)
        }
        _ => None,
    }
}

/// The simulations of a study.
struct Simulations<'a> {
    placed: &'a PlacedJobs<'a>,
    /// Results of each I/O job alone, by the number of the job.
    known: Vec<JobAlone>,
    progress: Progress<'a>,
    ended: usize,
    runs: u64,
}

impl Simulations<'_> {
    /// Some of the jobs together.
    fn simulate(&mut self, jobs: &[usize]) -> Result<Vec<JobRun>, StudyError> {
        let scenario = self.placed.scenario(jobs, Generation::UntilOtherEnds, 0)?;
        let with_io = jobs.iter().filter(|job| self.placed.is_io(**job));
        let known: Vec<JobAlone> = with_io.map(|job| self.known[*job].clone()).collect();
        if known.is_empty() {
            return self.only_traffic(jobs, &scenario);
        }
        let (before, count) = (self.ended as f64, self.placed.count_simulations() as f64);
        let shown = |now: Time, done: f64, runs: u64| {
            (self.progress)(now, (before + done) / count, self.runs + runs)
        };
        let found = flow::simulate_jobs(&scenario, &known, &shown)?;
        self.ended += 1;
        self.runs += found.runs;
        let starts = scenario.io.iter().map(|job| job.start);
        let mut io = found.jobs.iter().zip(starts).map(|(job, start)| io_run(job, start));
        let mut traffic = found.traffic.iter();
        let run = |job: &usize| match self.placed.is_io(*job) {
            true => Some(JobRun::Io(io.next()?)),
            false => Some(JobRun::Traffic(self.traffic_state(*job, traffic.next()?))),
        };
        let runs: Option<Vec<JobRun>> = jobs.iter().map(run).collect();
        Ok(runs.unwrap_or_else(|| unreachable!("a result of each job")))
    }

    /// Jobs with traffic only, whose rates do not change.
    fn only_traffic(
        &mut self,
        jobs: &[usize],
        scenario: &Scenario,
    ) -> Result<Vec<JobRun>, StudyError> {
        self.ended += 1;
        let end = self.placed.warm_up + self.placed.traffic_span()?;
        let rates = flow::rates_of_traffic(scenario);
        let run = |(job, rates): (&usize, &flow::TrafficRates)| {
            let window = (self.placed.warm_up, end);
            let traffic = FlowTraffic { window, rate: rates.nodes.iter().sum() };
            JobRun::Traffic(self.traffic_state(*job, &traffic))
        };
        Ok(jobs.iter().zip(&rates).map(run).collect())
    }

    /// The result of a job with traffic: there are no latencies.
    fn traffic_state(&self, job: usize, traffic: &FlowTraffic) -> TrafficState {
        let accepted_load = traffic.rate / self.placed.link_rate(job);
        let offered = self.placed.offered_load(job);
        let is_saturated = accepted_load < ACCEPTED_WHEN_STEADY * offered;
        let state = if is_saturated { State::Saturated } else { State::Steady };
        TrafficState {
            state: state.name().into(),
            window_seconds: [traffic.window.0 as f64 * 1e-12, traffic.window.1 as f64 * 1e-12],
            mean_seconds: None,
            p99_seconds: None,
            accepted_load,
        }
    }
}

/// The result of an I/O job that started at the time `start`, ps.
fn io_run(job: &FlowJob, start: u64) -> IoRun {
    let best = |access: Access| {
        let of_kind = job.phases.iter().filter(|phase| phase.access == access);
        of_kind.map(|phase| phase.gbps).max_by(f64::total_cmp)
    };
    let mut warnings: Vec<String> =
        job.phases.iter().flat_map(|phase| phase.warnings.clone()).collect();
    warnings.dedup();
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
        warnings,
    }
}
