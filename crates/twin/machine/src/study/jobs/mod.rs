//! Several jobs on one machine: each alone, in pairs, and all together.
//!
//! All jobs have the same nodes and storage nodes in all these simulations. Beside I/O jobs, traffic
//! continues until the last of these has ended, and is compared with traffic alone of the same length. Traffic beside traffic lasts as long as its
//! messages do.

mod flows;
mod measure;
mod place;
mod warm_ups;

use super::error::StudyError;
use super::fabric::fabric_for;
use super::options::{Fidelity, SimOptions};
use super::run::{Outcome, Progress, run, run_after};
use crate::observe::ObserveOptions;
use crate::results::{IoRun, JobRun, JobsRun, JobsTogether, SCHEMA};
use crate::traffic::Generation;
use forebay_machine_file::machine::Machine;
use forebay_network::JOBS;
use forebay_units::{Rate, Time};
use forebay_workload::ior::Ior;
use forebay_workload::placement::Placement;
use forebay_workload::traffic::TrafficSpec;
use measure::{TrafficWindow, beside_all, io_run, io_run_of_point, traffic_windows};
use place::PlacedJobs;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
pub use warm_ups::WarmUps;

/// Jobs of a study at most.
pub const MOST_JOBS: usize = JOBS;

/// A job of a study.
#[derive(Clone, Debug)]
pub struct StudyJob {
    /// Its name.
    pub name: String,
    /// Compute nodes.
    pub nodes: u32,
    /// Their choice among those that the jobs before leave free.
    pub placement: Placement,
    /// First and last group of these nodes; `None`: all groups.
    pub groups: Option<(u32, u32)>,
    /// Its work.
    pub work: JobWork,
}

/// The work of a job.
#[derive(Clone, Debug)]
pub enum JobWork {
    /// IOR.
    Io(IoWork),
    /// Synthetic traffic.
    Traffic(TrafficSpec),
}

/// The I/O of a job.
#[derive(Clone, Debug)]
pub struct IoWork {
    /// The test.
    pub ior: Ior,
    /// Processes on each node.
    pub ppn: u32,
    /// Time at which the processes start.
    pub start: Time,
    /// Greatest rate of its data at each storage node; `None`: no limit.
    pub rate_limit: Option<Rate>,
    /// Its storage nodes.
    pub storage: StorageChoice,
}

/// The storage nodes of an I/O job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageChoice {
    /// Their number; `None`: all that it may have.
    pub nodes: Option<u32>,
    /// First and last group of them; `None`: all groups.
    pub groups: Option<(u32, u32)>,
    /// At most so many of each group, those with the lowest numbers; `None`: all.
    pub per_group: Option<u32>,
    /// No other job has any of them.
    pub separate: bool,
}

/// Simulates jobs alone, in pairs and all together. Placement and storage of the options are without
/// effect. Only simulations of several jobs are observed.
///
/// # Errors
/// [`StudyError`] when the jobs do not fit the machine.
pub fn simulate_jobs(
    machine: &Machine,
    jobs: &[StudyJob],
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<JobsRun, StudyError> {
    simulate_jobs_after(&WarmUps::none(), machine, jobs, options, progress)
}

/// As [`simulate_jobs`], after warm-ups of the jobs with traffic: those with I/O start later by this time, and
/// traffic is counted from then on.
///
/// # Errors
/// As [`simulate_jobs`].
pub fn simulate_jobs_after(
    warm_ups: &WarmUps,
    machine: &Machine,
    jobs: &[StudyJob],
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<JobsRun, StudyError> {
    let placed = PlacedJobs::place(machine, jobs, options, warm_ups.time())?;
    let mut study = Study {
        companies: companies(jobs.len()),
        placed: &placed,
        warm_ups,
        options,
        progress,
        simulations: 0,
        events: 0,
    };
    study.simulate(machine)
}

/// Checks that the jobs fit a machine, as [`simulate_jobs`] does before it simulates.
///
/// # Errors
/// As [`simulate_jobs`].
pub fn check_jobs_fit(
    machine: &Machine,
    jobs: &[StudyJob],
    options: &SimOptions,
) -> Result<(), StudyError> {
    PlacedJobs::place(machine, jobs, options, 0).map(drop)
}

/// All pairs of `count` jobs and, if there are more than two, all jobs.
fn companies(count: usize) -> Vec<Vec<usize>> {
    let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| vec![a, b]));
    let all = (count > 2).then(|| (0..count).collect());
    pairs.chain(all).collect()
}

/// The simulations of a study.
struct Study<'a> {
    placed: &'a PlacedJobs<'a>,
    warm_ups: &'a WarmUps,
    /// Jobs that run together.
    companies: Vec<Vec<usize>>,
    options: &'a SimOptions,
    progress: Progress<'a>,
    /// Simulations that have ended.
    simulations: usize,
    events: u64,
}

/// Jobs together, without the comparison with each alone.
struct Company {
    jobs: Vec<usize>,
    runs: Vec<Together>,
    delays: Option<crate::observe::Delays>,
}

/// A job beside others.
enum Together {
    Io(IoRun),
    Traffic(TrafficWindow),
}

impl Study<'_> {
    fn simulate(&mut self, machine: &Machine) -> Result<JobsRun, StudyError> {
        if self.placed.fidelity == Fidelity::Flow {
            let found = flows::simulate(self.placed, self.options, self.progress)?;
            self.events = found.runs;
            return Ok(self.document(machine, Fidelity::Flow, (found.alone, found.together)));
        }
        let count = self.placed.jobs.len();
        let mut alone: Vec<Option<JobRun>> = vec![None; count];
        let (mut span, mut fidelity) = (0, Fidelity::Packet);
        for job in (0..count).filter(|job| self.placed.is_io(*job)) {
            if let [_] = self.placed.jobs {
                let (run, with) = self.only_io_job()?;
                (alone[job], fidelity) = (Some(JobRun::Io(run)), with);
                continue;
            }
            let outcome = self.run(&[job], Generation::UntilOtherEnds, 0, false)?;
            span = span.max(outcome.end.saturating_sub(self.placed.warm_up));
            alone[job] = Some(JobRun::Io(io_run(self.placed, &[job], job, &outcome)));
        }
        let traffic_span = self.placed.traffic_span()?;
        let traffic_end = self.placed.warm_up + traffic_span;
        let span = if span > 0 { span } else { traffic_span };
        let mut companies = Vec::new();
        for jobs in std::mem::take(&mut self.companies) {
            let has_io = jobs.iter().any(|job| self.placed.is_io(*job));
            let generation =
                if has_io { Generation::UntilOtherEnds } else { Generation::Until(traffic_end) };
            let span = if has_io { span } else { traffic_span };
            let mut outcome = self.run(&jobs, generation, span, true)?;
            companies.push(self.company(jobs, (span, generation), &mut outcome));
        }
        // Traffic alone, and what it is compared with.
        let mut traffic_alone = Vec::new();
        for job in 0..count {
            traffic_alone.push(match self.placed.is_io(job) {
                true => Vec::new(),
                false => self.traffic_alone(job, &companies, traffic_span)?,
            });
            let last = traffic_alone[job].last().map(|(own, _)| own.clone());
            alone[job] = last.or_else(|| alone[job].take());
        }
        let mut together = Vec::new();
        for company in companies {
            together.push(compare(company, &alone, &mut traffic_alone));
        }
        let alone = alone.into_iter().flatten().collect();
        Ok(self.document(machine, fidelity, (alone, together)))
    }

    fn document(
        &self,
        machine: &Machine,
        fidelity: Fidelity,
        (alone, together): (Vec<JobRun>, Vec<JobsTogether>),
    ) -> JobsRun {
        JobsRun {
            schema: SCHEMA,
            machine: machine.name.clone(),
            routing: self.placed.idle.network.routing.algorithm.name().into(),
            fidelity: fidelity.name().into(),
            seed: self.options.seed,
            jobs: self.placed.jobs.iter().map(|job| job.name.clone()).collect(),
            alone,
            together,
            events: self.events,
        }
    }

    /// Simulates the I/O job of a study with one job, with packets or with flows; and which of both.
    fn only_io_job(&mut self) -> Result<(IoRun, Fidelity), StudyError> {
        let scenario = self.placed.scenario(&[0], Generation::UntilOtherEnds, 0)?;
        let Some(job) = scenario.io.first() else { unreachable!("an I/O job") };
        let fabric = fabric_for(&scenario, self.options)?;
        let point = fabric.simulate(&scenario, self.options, self.progress)?;
        self.events += point.run.events;
        Ok((io_run_of_point(job.start, &point), fabric.fidelity()))
    }

    /// Simulates some of the jobs.
    fn run(
        &mut self,
        jobs: &[usize],
        generation: Generation,
        span: u64,
        observed: bool,
    ) -> Result<Outcome, StudyError> {
        let mut scenario = self.placed.scenario(jobs, generation, span)?;
        if !observed {
            scenario.observe = ObserveOptions::default();
        }
        let (before, progress) = (self.simulations, self.progress);
        let count = self.placed.count_simulations();
        let shown = |simulated, done, events| {
            progress(simulated, (before as f64 + done) / count as f64, events)
        };
        let inputs = || self.placed.warm_up_inputs(jobs, &scenario);
        let outcome = match self.warm_ups.state(inputs, &scenario, self.options, &shown)? {
            Some(state) => run_after(state, &scenario, self.options, &shown)?,
            None => run(&scenario, self.options, &shown)?,
        };
        self.simulations += 1;
        self.events += outcome.cost.events;
        Ok(outcome)
    }

    fn company(
        &self,
        jobs: Vec<usize>,
        counted: (u64, Generation),
        outcome: &mut Outcome,
    ) -> Company {
        let mut runs = Vec::new();
        let windows = traffic_windows(self.placed, &jobs, counted, outcome);
        let mut windows = windows.into_iter();
        for &job in &jobs {
            runs.push(match self.placed.is_io(job) {
                true => Together::Io(io_run(self.placed, &jobs, job, outcome)),
                false => match windows.next() {
                    Some(window) => Together::Traffic(window),
                    None => unreachable!("a window for each job with traffic"),
                },
            });
        }
        Company { jobs, runs, delays: outcome.delays.take() }
    }

    /// A job with traffic alone, as long as in each of its simulations with others, and compared with
    /// it, in their order. `span` is the time of its messages, if it is the only job.
    fn traffic_alone(
        &mut self,
        job: usize,
        companies: &[Company],
        span: u64,
    ) -> Result<Vec<(JobRun, JobRun)>, StudyError> {
        let windows = companies.iter().filter_map(|company| company.window_of(job));
        let windows: Vec<&TrafficWindow> = windows.collect();
        if windows.is_empty() {
            let alone = self.window_alone(job, span, self.placed.warm_up + span)?;
            return Ok(vec![alone.compare(&alone)]);
        }
        let mut known: BTreeMap<(u64, u64), TrafficWindow> = BTreeMap::new();
        let mut compared = Vec::new();
        for window in windows {
            let alone = match known.entry((window.span, window.end)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    entry.insert(self.window_alone(job, window.span, window.end)?)
                }
            };
            compared.push(window.compare(alone));
        }
        Ok(compared)
    }

    fn window_alone(
        &mut self,
        job: usize,
        span: u64,
        end: u64,
    ) -> Result<TrafficWindow, StudyError> {
        let generation = Generation::Until(end);
        let outcome = self.run(&[job], generation, span, false)?;
        match traffic_windows(self.placed, &[job], (span, generation), &outcome).pop() {
            Some(window) => Ok(window),
            None => unreachable!("a simulation with traffic"),
        }
    }
}

impl Company {
    fn window_of(&self, job: usize) -> Option<&TrafficWindow> {
        let place = self.jobs.iter().position(|other| *other == job)?;
        match &self.runs[place] {
            Together::Traffic(window) => Some(window),
            Together::Io(_) => None,
        }
    }
}

/// Each job of a company beside the others and alone. `traffic_alone` has the comparisons of each job
/// with traffic in the order of the companies.
fn compare(
    company: Company,
    alone: &[Option<JobRun>],
    traffic_alone: &mut [Vec<(JobRun, JobRun)>],
) -> JobsTogether {
    let runs = company.jobs.iter().zip(company.runs).map(|(&job, run)| match run {
        Together::Io(io) => {
            let Some(own) = alone[job].clone() else {
                unreachable!("an I/O job was simulated alone")
            };
            (own, JobRun::Io(io))
        }
        Together::Traffic(_) => traffic_alone[job].remove(0),
    });
    JobsTogether { jobs: beside_all(&company.jobs, runs), delays: company.delays }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_in_all_pairs_and_together() {
        assert_eq!(companies(1), Vec::<Vec<usize>>::new());
        assert_eq!(companies(2), [vec![0, 1]]);
        assert_eq!(companies(3), [vec![0, 1], vec![0, 2], vec![1, 2], vec![0, 1, 2]]);
    }
}
