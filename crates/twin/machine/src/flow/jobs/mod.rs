//! Several I/O jobs at once: the phases of each one after another, over the links that all share, beside the
//! traffic of other jobs.
//!
//! Times in which all rates are steady are skipped ([`super::steady`]): all processes of a job advance by the
//! stripes that it moves at its steady rate until the first phase is near its end, or another job starts. Then its
//! processes go on with the same stripe: convoys of processes, which form in the course of windows, form anew, so
//! that each rate of a job is measured after the same number of its stripes.

mod alone;
mod full_links;
mod steady_times;
mod traffic_so_far;

pub(crate) use self::alone::JobAlone;
use self::full_links::InitialLinkBytes;
use self::traffic_so_far::TrafficSoFar;
use super::begun_phase::{BegunPhase, job_bytes, transfers_alone};
use super::calls::LoneCalls;
use super::fabric::{Fabric, Resource, server_use};
use super::requests::CallTimes;
use super::runs::Runs;
use super::steady::SteadyRateSearch;
use super::transfers::{PhaseTransfers, Transfers};
use crate::io::{IoJob, PS_PER_SECOND};
use crate::scenario::Scenario;
use crate::study::{Progress, StudyError};
use crate::warnings;
use forebay_units::Time;
use forebay_workload::ior::{Access, Action};
use std::collections::BTreeMap;

/// A job of which all phases were simulated.
#[derive(Debug)]
pub(crate) struct FlowJob {
    pub phases: Vec<FlowPhase>,
    /// End of its last phase, ps.
    pub end: u64,
    /// Time by which transfers took longer than alone, by the name of the resource, summed over
    /// processes, ps.
    pub waits: BTreeMap<&'static str, f64>,
}

/// A phase of a job.
#[derive(Debug)]
pub(crate) struct FlowPhase {
    pub access: Access,
    /// From the first open to the last close.
    pub seconds: f64,
    /// From the first begin to the last end of a transfer.
    pub transfer_seconds: f64,
    pub gbps: f64,
    /// Name of the resource that limited the transfers for most of their time.
    pub limit: &'static str,
    /// Warnings about it, each with the remedy; none if it repeats another phase.
    pub warnings: Vec<String>,
}

/// A job under way.
struct Job<'a> {
    job: &'a IoJob,
    calls: &'a [LoneCalls],
    weight: f64,
    /// Time that the transfers of each phase take, as a multiple of that by rates.
    scales: &'a [f64],
    /// The times of the calls of each phase alone.
    call_times: &'a [CallTimes],
    /// Repetition and access of its phases, with the delay before each, ps.
    steps: Vec<(u32, Access, u64)>,
    /// Next phase, and the time at which it may begin, ps.
    next: usize,
    ready: u64,
    current: Option<Current<'a>>,
    ended: FlowJob,
}

/// A phase under way.
struct Current<'a> {
    begun: BegunPhase<'a>,
    transfers: PhaseTransfers<'a>,
    resolution: u64,
    /// Bytes that the links between groups had carried when its transfers began.
    before: InitialLinkBytes,
    /// Its rate while the same phases run.
    settling: SteadyRateSearch,
}

/// The number of runs and all jobs of a simulation.
pub(crate) struct FlowJobs {
    pub jobs: Vec<FlowJob>,
    pub runs: u64,
    /// Of the jobs with traffic.
    pub traffic: Vec<FlowTraffic>,
}

/// A job with traffic beside I/O jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowTraffic {
    /// From the start of the last I/O job to the end of the transfers of all, ps.
    pub window: (u64, u64),
    /// Its mean rate in this time, bytes per second.
    pub rate: f64,
}

/// Simulates all I/O jobs of a scenario; `jobs` has what is known of each of them alone.
///
/// # Errors
/// [`StudyError::Interrupted`] if `progress` ends the simulation.
pub(crate) fn simulate_jobs(
    scenario: &Scenario,
    jobs: &[JobAlone],
    progress: Progress<'_>,
) -> Result<FlowJobs, StudyError> {
    let mut simulation = Simulation::new(scenario, jobs);
    while simulation.advance() {
        let (now, done) = (simulation.fabric.now(), simulation.share_done());
        if !progress(Time(now), done, simulation.runs()) {
            return Err(StudyError::Interrupted);
        }
    }
    let (runs, traffic) = (simulation.runs(), simulation.traffic());
    Ok(FlowJobs { jobs: simulation.jobs.into_iter().map(|job| job.ended).collect(), runs, traffic })
}

/// The state of a simulation.
struct Simulation<'a> {
    fabric: Fabric,
    jobs: Vec<Job<'a>>,
    /// Runs of phases that have ended.
    ended_runs: u64,
    /// Runs that had ended when the phases under way were last the same for the first time, or when a
    /// time was skipped.
    runs_before: u64,
    /// The traffic of other jobs then.
    traffic_before: TrafficSoFar,
    /// The same at the start of the last I/O job.
    traffic_at_start: TrafficSoFar,
}

/// Numbers of the uses that a job makes of the servers.
fn use_of(job: usize, access: Access) -> usize {
    2 * job + usize::from(access == Access::Read)
}

/// The phases of a job.
fn steps_of(job: &IoJob) -> Vec<(u32, Access, u64)> {
    let (mut steps, mut delay) = (Vec::new(), 0);
    for step in &job.steps {
        match step.action {
            Action::Delay(seconds) => delay = u64::from(seconds) * PS_PER_SECOND,
            Action::Transfer(access) => {
                steps.push((step.iteration, access, std::mem::take(&mut delay)));
            }
            _ => {}
        }
    }
    steps
}

/// Most bytes that a process has under way: a server serves requests in the order of their arrival, so that
/// processes that wait there share it in this proportion.
fn bytes_in_flight(job: &IoJob) -> f64 {
    let in_flight = u64::from(job.client.requests_in_flight.max(1)) * job.largest_request();
    job.pattern.transfer_bytes().min(in_flight) as f64
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, alone: &'a [JobAlone]) -> Simulation<'a> {
        assert_eq!(scenario.io.len(), alone.len(), "lone calls of other jobs");
        let first = scenario.io.first().map_or(1.0, |job| bytes_in_flight(job));
        let of_job = |(job, alone): (&'a std::sync::Arc<IoJob>, &'a JobAlone)| Job {
            job,
            calls: &alone.calls,
            weight: bytes_in_flight(job) / first,
            scales: &alone.scales,
            call_times: &alone.call_times,
            steps: steps_of(job),
            next: 0,
            ready: job.start,
            current: None,
            ended: FlowJob { phases: Vec::new(), end: job.start, waits: BTreeMap::new() },
        };
        let jobs: Vec<Job<'a>> = scenario.io.iter().zip(alone).map(of_job).collect();
        let mut uses = Vec::new();
        for job in &jobs {
            for access in [Access::Write, Access::Read] {
                let has = job.steps.iter().any(|(_, of_step, _)| *of_step == access);
                uses.push(match has {
                    true => server_use(job.job, access, &transfers_alone(job.calls, access)),
                    false => super::servers::ServerUse { parts: Vec::new(), flash: None },
                });
            }
        }
        let mut fabric = Fabric::new(&scenario.topology, &scenario.network, uses);
        fabric.start_traffic(&scenario.traffic);
        let traffic = TrafficSoFar::of(&fabric);
        Simulation {
            fabric,
            jobs,
            ended_runs: 0,
            runs_before: 0,
            traffic_before: traffic.clone(),
            traffic_at_start: traffic,
        }
    }

    /// Goes to the next time at which something changes; `false` if all jobs have ended.
    fn advance(&mut self) -> bool {
        self.begin_phases();
        let active = self.fabric.active_runs();
        let Some(until) = self.next_begin() else {
            assert!(active > 0 || self.jobs.iter().all(Job::has_ended), "a job that does not end");
            if active == 0 {
                return false;
            }
            self.end_runs(u64::MAX);
            return true;
        };
        if until > self.fabric.now() {
            self.end_runs(until);
        }
        for job in &mut self.jobs {
            if let Some(current) = &mut job.current {
                current.transfers.start_due(&mut self.fabric);
            }
        }
        self.end_phases();
        true
    }

    /// The next time at which a phase or a process begins.
    fn next_begin(&self) -> Option<u64> {
        self.jobs.iter().filter_map(Job::next_begin).min()
    }

    /// Begins the phases that are due.
    fn begin_phases(&mut self) {
        let now = self.fabric.now();
        let is_due = |job: &Job<'_>| job.next_phase().is_some_and(|at| at <= now);
        let due: Vec<usize> = (0..self.jobs.len()).filter(|job| is_due(&self.jobs[*job])).collect();
        if due.is_empty() {
            return;
        }
        if due.iter().any(|job| self.jobs[*job].next == 0) {
            self.traffic_at_start = TrafficSoFar::of(&self.fabric);
        }
        let opened = due.iter().map(|&number| {
            let Job { job, calls, steps, next, .. } = &self.jobs[number];
            let (iteration, access, _) = steps[*next];
            (*job, Runs::new(job, job.pattern.for_iteration(iteration), access), *calls)
        });
        let opened: Vec<_> = opened.collect();
        let begun = BegunPhase::open_all(opened, None, now, &mut self.fabric);
        for (number, begun) in due.into_iter().zip(begun) {
            let job = &mut self.jobs[number];
            let of_use = use_of(number, job.steps[job.next].1);
            let (mut transfers, resolution) = begun.transfers(of_use, job.weight, &mut self.fabric);
            transfers.scale_times(job.scales.get(job.next).copied().unwrap_or(1.0));
            if let Some(times) = job.call_times.get(job.next) {
                transfers.share_by_calls(times);
            }
            job.next += 1;
            let settling = SteadyRateSearch::default();
            let first = begun.starts.iter().copied().min().unwrap_or(now);
            let before = InitialLinkBytes::of(&self.fabric, first);
            job.current = Some(Current { begun, transfers, resolution, before, settling });
        }
        self.set_resolution();
        for job in &mut self.jobs {
            if let Some(Current { begun, transfers, .. }) = &mut job.current
                && transfers.is_new()
            {
                transfers.prepare(&begun.starts, &mut self.fabric);
            }
        }
        self.begin_windows();
    }

    /// Rounds times as the phase under way with the shortest runs needs it.
    fn set_resolution(&mut self) {
        let of_jobs = self.jobs.iter().filter_map(|job| Some(job.current.as_ref()?.resolution));
        if let Some(least) = of_jobs.min() {
            self.fabric.links.transport.set_resolution(least);
        }
    }

    /// Goes to the next ends of runs, or to the time `until`, ps.
    fn end_runs(&mut self, until: u64) {
        let ended = self.fabric.next_ends(until);
        assert!(!ended.is_empty() || until != u64::MAX, "a run without a rate");
        let mut of_jobs = vec![Vec::new(); self.jobs.len()];
        for flow in ended {
            of_jobs[self.fabric.owner(flow).job as usize].push(flow);
        }
        let mut ranks = Vec::with_capacity(self.jobs.len());
        for (job, flows) in self.jobs.iter_mut().zip(of_jobs) {
            ranks.push(match &mut job.current {
                Some(current) => current.transfers.end_runs(&flows, &mut self.fabric),
                None => Vec::new(),
            });
        }
        for (job, ranks) in self.jobs.iter_mut().zip(ranks) {
            if let Some(current) = &mut job.current {
                current.transfers.start_next(&ranks, &mut self.fabric);
            }
        }
        self.end_phases();
        self.skip_steady_time();
    }

    /// Ends the phases whose processes have all ended.
    fn end_phases(&mut self) {
        let mut has_changed = false;
        for job in &mut self.jobs {
            if let Some(current) = job.current.take_if(|current| current.transfers.is_done()) {
                self.ended_runs += current.transfers.ended_runs();
                job.end_phase(current, &mut self.fabric);
                has_changed = true;
            }
        }
        if has_changed {
            self.set_resolution();
            self.begin_windows();
        }
    }

    fn runs(&self) -> u64 {
        let current = self.jobs.iter().filter_map(|job| job.current.as_ref());
        self.ended_runs + current.map(|current| current.transfers.ended_runs()).sum::<u64>()
    }

    /// The jobs with traffic, since the start of the last I/O job.
    fn traffic(&self) -> Vec<FlowTraffic> {
        let now = TrafficSoFar::of(&self.fabric);
        let rates = now.rates_since(&self.traffic_at_start);
        let window = (self.traffic_at_start.time, now.time);
        rates.iter().map(|rate| FlowTraffic { window, rate: rate * PS_PER_SECOND as f64 }).collect()
    }

    /// Share of the phases of all jobs that have ended.
    fn share_done(&self) -> f64 {
        let all: usize = self.jobs.iter().map(|job| job.steps.len()).sum();
        let ended: usize = self.jobs.iter().map(|job| job.ended.phases.len()).sum();
        ended as f64 / all.max(1) as f64
    }
}

impl Job<'_> {
    fn has_ended(&self) -> bool {
        self.current.is_none() && self.next == self.steps.len()
    }

    /// The time at which its next phase begins, if none is under way, ps.
    fn next_phase(&self) -> Option<u64> {
        let (_, _, delay) = self.steps.get(self.next)?;
        self.current.is_none().then_some(self.ready + delay)
    }

    /// The next time at which its next phase or one of its processes begins.
    fn next_begin(&self) -> Option<u64> {
        match &self.current {
            Some(current) => current.transfers.next_start(),
            None => self.next_phase(),
        }
    }

    /// Ends a phase.
    fn end_phase(&mut self, current: Current<'_>, fabric: &mut Fabric) {
        let Current { begun, transfers, before, .. } = current;
        let access = begun.runs.access;
        // A phase with few requests has the times of these, whose messages wait for each other.
        let between = match self.scales.is_empty() {
            true => before.use_since(fabric, self.job, access),
            false => None,
        };
        let (transfers, ..) = transfers.into_result();
        let times = begun.times(&transfers, fabric);
        let seconds = (times.closes.1 - times.begin) as f64 / PS_PER_SECOND as f64;
        let bytes = job_bytes(self.job);
        let is_repeated = self.ended.phases.iter().any(|phase| phase.access == access);
        let warnings = match is_repeated {
            true => Vec::new(),
            // No rate of steady times is given for one job among several.
            false => {
                let parts = times.parts((access, bytes), None);
                warnings::of_flows(self.job, &parts, between.as_ref())
            }
        };
        self.count_waits(&transfers);
        self.ready = times.closes.1;
        self.ended.end = self.ready;
        self.ended.phases.push(FlowPhase {
            access,
            seconds,
            transfer_seconds: (times.transfers.1 - times.transfers.0) as f64 / PS_PER_SECOND as f64,
            gbps: bytes / 1e9 / seconds.max(f64::MIN_POSITIVE),
            limit: limit_of(self.job, &transfers),
            warnings,
        });
    }

    /// Adds the waits of a phase; those of steady times that were skipped are as those simulated.
    fn count_waits(&mut self, transfers: &Transfers) {
        let simulated: u64 = transfers.ranks.iter().map(|rank| rank.bytes).sum();
        let scale = job_bytes(self.job) / simulated.max(1) as f64;
        for (resource, waited) in &transfers.waited {
            let name = match resource {
                None | Some(Resource::Client) => "client",
                Some(Resource::Server) => "server",
                Some(Resource::Lock) => "lock",
                Some(Resource::Ssd) => "flash",
                Some(
                    Resource::NodeLink
                    | Resource::LocalLink
                    | Resource::GlobalLink
                    | Resource::Router,
                ) => "network",
            };
            *self.ended.waits.entry(name).or_default() += waited * scale;
        }
    }
}

/// The name of the resource that limited transfers for most of their time.
fn limit_of(job: &IoJob, transfers: &Transfers) -> &'static str {
    let name = |resource: &Option<Resource>| match resource {
        None => Resource::Client.name(),
        Some(Resource::Ssd) => job.devices().resource,
        Some(other) => other.name(),
    };
    let mut times: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (resource, time) in &transfers.bottlenecks {
        *times.entry(name(resource)).or_default() += time;
    }
    let longest = times.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    longest.map_or("client", |(name, _)| name)
}
