//! The transfers of a phase: the runs of all processes over time.

mod skip;
mod starts;
mod windows;

use self::starts::Prepared;
pub(super) use self::windows::Window;
use super::extent_waits::{Callbacks, ExtentWaits};
use super::fabric::{Fabric, Owner, Path, Resource};
use super::fetches::Fetches;
use super::objects::Objects;
use super::phase_links::{Demand, PhaseLinks};
use super::requests::{CallTimes, PhaseCalls};
use super::runs::{Run, Runs};
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_flow::{Bottleneck, FlowId};
use forebay_network::Timeline;
use forebay_workload::ior::Access;
use std::collections::{BTreeMap, VecDeque};

/// Runs of a phase that are simulated at most, unless that is less than [`RUNS_OF_EACH`] of each process.
const MAX_RUNS: u64 = 1 << 13;
/// Runs of each process that are simulated at least, if it has so many.
const RUNS_OF_EACH: u64 = 3;

/// Runs of a phase with `tasks` processes that are simulated at most.
pub(super) fn most_runs(tasks: u32) -> u64 {
    MAX_RUNS.max(RUNS_OF_EACH * u64::from(tasks))
}

/// Stripes of each of so many processes in the window of a phase that is simulated in part.
pub(crate) fn stripes_of_window(tasks: u32) -> u64 {
    most_runs(tasks) / u64::from(tasks.max(1))
}

/// Progress of a process in its runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfRank {
    pub transfers: u64,
    pub bytes: u64,
    /// Time in runs, ps.
    pub time: u64,
    /// End of the last run, ps.
    pub end: u64,
}

/// The transfers of a phase as they were simulated.
pub(super) struct Transfers {
    /// Whether all runs were simulated; otherwise those of a part in the middle of the phase.
    pub is_complete: bool,
    /// Whether all requests were simulated one by one.
    pub by_requests: bool,
    pub ranks: Vec<OfRank>,
    /// Bytes over time: those of requests when they end, or of runs, spread over their times.
    pub timeline: Timeline<1>,
    /// Rate while the second half of the runs ended, bytes per second.
    pub rate: f64,
    /// Mean duration of the transfers of each run, ps, and their number.
    pub durations: Vec<(f64, u64)>,
    /// Time that runs spent with each bottleneck, ps; `None`: the process itself.
    pub bottlenecks: BTreeMap<Option<Resource>, f64>,
    /// The part of this time by which runs took longer than alone, ps.
    pub waited: BTreeMap<Option<Resource>, f64>,
    pub runs: u64,
}

/// A run under way.
struct Under {
    run: Run,
    demand: Demand,
    flow: FlowId,
    began: u64,
    /// Links that its bytes cross, if it is no flow over them because the time of its process is known.
    counted: Path,
    /// The resource that its cap stands for: the locks or disks of its objects, or, if none, the process itself.
    capped_by: Option<Resource>,
}

/// The transfers of one phase of a job.
pub(super) struct PhaseTransfers<'a> {
    job: &'a IoJob,
    runs: Runs<'a>,
    pub links: PhaseLinks<'a>,
    objects: Option<Objects>,
    /// Waits for locks on extents of a shared file, where clients lock these.
    extents: Option<ExtentWaits>,
    /// Times at which the data of its requests are sent.
    fetches: Fetches,
    calls: PhaseCalls,
    /// Whether the requests of a phase with few of them give the time of each process.
    by_requests: bool,
    /// Duration of a transfer alone by the node's index in the job, ps.
    lone: Vec<f64>,
    /// Time that its transfers take, as a multiple of that by rates ([`PhaseTransfers::scale_times`]).
    scale: f64,
    /// Weight of the flows of its processes.
    weight: f64,
    /// The times of the calls alone, in proportion to whose rates runs share what limits them.
    call_times: Option<&'a CallTimes>,
    /// Next transfer of each process, and the one after the last.
    next: Vec<u64>,
    last: u64,
    under_way: Vec<Option<Under>>,
    /// Number of runs under way.
    count_under_way: usize,
    /// First runs of processes that have not started, in the order of their starts, ps.
    waiting: VecDeque<(u64, Prepared)>,
    result: Transfers,
    /// Bytes of the runs that have ended.
    bytes: f64,
    /// Bytes of the transfers that were not simulated, because their rates were steady, less those that
    /// processes that were ahead of others repeat.
    skipped: i64,
    /// Bytes that were moved in skipped times beyond whole stripes; negative: that are still to be moved.
    beyond_stripes: f64,
    /// Time, ps, and bytes moved when half of the runs had ended.
    half: Option<(u64, f64)>,
    /// The first transfer of the window of a phase that is simulated in part.
    window: u64,
}

impl<'a> PhaseTransfers<'a> {
    /// `lone` is the duration of a transfer alone by the node's index in the job, ps.
    pub fn new(
        job: &'a IoJob,
        (runs, links): (Runs<'a>, PhaseLinks<'a>),
        lone: Vec<f64>,
        weight: f64,
    ) -> Self {
        let tasks = job.tasks() as usize;
        let has_locks = runs.access == Access::Write && job.has_shared_file();
        PhaseTransfers {
            job,
            objects: has_locks.then(|| Objects::new(links.lock_times)),
            extents: (has_locks && job.storage.is_parallel())
                .then(|| ExtentWaits::new(links.callback_times)),
            fetches: Fetches::new(job),
            calls: PhaseCalls::default(),
            by_requests: false,
            runs,
            links,
            lone,
            scale: 1.0,
            weight,
            call_times: None,
            next: vec![0; tasks],
            last: job.pattern.transfers_per_rank(),
            under_way: (0..tasks).map(|_| None).collect(),
            count_under_way: 0,
            waiting: VecDeque::new(),
            result: Transfers {
                is_complete: true,
                by_requests: false,
                ranks: vec![OfRank::default(); tasks],
                timeline: Timeline::default(),
                rate: 0.0,
                durations: Vec::new(),
                bottlenecks: BTreeMap::new(),
                waited: BTreeMap::new(),
                runs: 0,
            },
            bytes: 0.0,
            skipped: 0,
            beyond_stripes: 0.0,
            half: None,
            window: 0,
        }
    }

    /// Lets the simulation of a phase in part begin with this transfer of each process: that of one of its
    /// [windows](PhaseTransfers::windows).
    pub fn begin_at(&mut self, transfer: u64) {
        self.window = transfer;
    }

    /// Lets the requests of the phase, if they are few, give the time of each process, which nothing else limits: for a
    /// job without others.
    pub fn simulate_requests(&mut self) {
        self.by_requests = true;
    }

    /// Lets all transfers take this multiple of the time by rates, at the process itself and at each resource: for a
    /// phase that takes it alone, request by request, and is beside others with rates.
    pub fn scale_times(&mut self, scale: f64) {
        assert!(scale.is_finite() && scale > 0.0, "a multiple of a time: {scale}");
        self.scale = scale;
    }

    /// Lets runs share what limits them in proportion to their rates alone, for a phase whose calls alone take these
    /// times: those that are served one after another end one after another, and meet others elsewhere. With equal
    /// shares all that begin together end together, and go on together to the next server or object.
    pub fn share_by_calls(&mut self, times: &'a CallTimes) {
        self.call_times = Some(times);
    }

    /// Simulates the phase; `starts` has the time of each process's first transfer, ps. `goes_on` gets
    /// the time and the share of the work that is done, and ends the simulation by `false`.
    pub fn run(
        &mut self,
        starts: &[u64],
        goes_on: &dyn Fn(u64, f64) -> bool,
        fabric: &mut Fabric,
    ) -> bool {
        let most = most_runs(self.job.tasks());
        let total = self.count_runs(most);
        self.result.is_complete = total <= most;
        match self.result.is_complete {
            true => self.prepare(starts, fabric),
            // A part of the phase, with all processes from the beginning.
            false => {
                let first = self.window;
                self.next.iter_mut().for_each(|next| *next = first);
                self.prepare(&vec![0; starts.len()], fabric);
            }
        }
        let end = if self.result.is_complete { u64::MAX } else { most };
        while self.result.runs < end {
            let until = self.next_start().unwrap_or(u64::MAX);
            if fabric.active_runs() == 0 && until == u64::MAX {
                break;
            }
            let ended = match until <= fabric.now() {
                true => Vec::new(),
                false => fabric.next_ends(until),
            };
            assert!(!ended.is_empty() || until != u64::MAX, "a run without a rate");
            let ranks = self.end_runs(&ended, fabric);
            self.start_next(&ranks, fabric);
            let now = fabric.now();
            if self.half.is_none() && self.result.runs >= total.min(most) / 2 {
                self.half = Some((now, self.moved(fabric)));
            }
            self.start_due(fabric);
            if !goes_on(now, self.result.runs as f64 / total.clamp(1, most) as f64) {
                return false;
            }
        }
        self.result.rate = self.rate_since_half(fabric);
        true
    }

    /// The time of the next start of a process, ps.
    pub fn next_start(&self) -> Option<u64> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// Starts the processes whose time has come.
    pub fn start_due(&mut self, fabric: &mut Fabric) {
        while self.next_start().is_some_and(|at| at <= fabric.now()) {
            let Some((_, run)) = self.waiting.pop_front() else { unreachable!("a process waits") };
            self.start_run(run, fabric);
        }
    }

    /// Whether no process was prepared.
    pub fn is_new(&self) -> bool {
        self.waiting.is_empty() && self.next.iter().all(|next| *next == 0)
    }

    /// Whether all processes have ended.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.count_under_way == 0
    }

    /// Runs that have ended.
    pub fn ended_runs(&self) -> u64 {
        self.result.runs
    }

    /// Bytes that all runs have moved so far.
    pub fn moved(&self, fabric: &Fabric) -> f64 {
        let under_way = self.under_way.iter().flatten();
        let of_flows = under_way.map(|under| fabric.links.transport.carried_by(under.flow));
        self.bytes + of_flows.sum::<f64>()
    }

    fn rate_since_half(&self, fabric: &Fabric) -> f64 {
        let now = fabric.now();
        let (at, moved) = self.half.filter(|half| half.0 < now).unwrap_or((0, 0.0));
        (self.moved(fabric) - moved) * PS_PER_SECOND as f64 / (now - at).max(1) as f64
    }

    /// The transfers, and the calls of a phase by requests, as they were simulated.
    ///
    /// # Panics
    /// If the phase is complete and bytes are missing.
    pub fn into_result(self) -> (Transfers, PhaseCalls, PhaseLinks<'a>) {
        let moved: u64 = self.result.ranks.iter().map(|rank| rank.bytes).sum();
        let all = self.job.pattern.bytes_per_rank() * u64::from(self.job.tasks());
        let is_whole = moved as i64 + self.skipped == all as i64 || !self.result.is_complete;
        assert!(is_whole, "{moved} and {} of {all} bytes", self.skipped);
        (self.result, self.calls, self.links)
    }

    /// Runs of all processes, as many as the first process has, counted up to a few above `most`.
    fn count_runs(&self, most: u64) -> u64 {
        let (mut runs, mut next) = (0, 0);
        let tasks = u64::from(self.job.tasks());
        while next < self.last && runs * tasks <= most {
            next += self.runs.run(0, next, self.last).transfers;
            runs += 1;
        }
        runs * tasks
    }

    /// Ends runs; returns their processes. Flows that start get the numbers of flows that have ended, so that
    /// all that end together are ended before others start.
    pub fn end_runs(&mut self, ended: &[FlowId], fabric: &mut Fabric) -> Vec<u32> {
        let now = fabric.links.transport.now();
        let (mut released, mut ranks) = (Vec::new(), Vec::with_capacity(ended.len()));
        for &flow in ended {
            let Owner { rank, .. } = fabric.owner(flow);
            let Some(Under { run, demand, began, counted, capped_by, .. }) =
                self.under_way[rank as usize].take()
            else {
                unreachable!("{flow:?} of process {rank} is not under way")
            };
            self.count_under_way -= 1;
            let bottleneck = match fabric.links.transport.bottleneck(flow) {
                Bottleneck::Cap => capped_by,
                Bottleneck::Link(link) => self.links.resource_of(link, &run, fabric),
            };
            let took = (now - began) as f64;
            self.count_time(bottleneck, (rank, &run), took);
            let of_rank = &mut self.result.ranks[rank as usize];
            if self.calls.of_ranks.is_empty() {
                self.result.timeline.add_over(began, now, 0, run.bytes);
            }
            of_rank.transfers += run.transfers;
            of_rank.bytes += run.bytes;
            of_rank.time += now - began;
            of_rank.end = fabric.now();
            self.bytes += run.bytes as f64;
            self.result.runs += 1;
            self.links.remove_demand(&demand, fabric);
            for (link, share) in counted {
                fabric.links.transport.count_carried(link, run.bytes as f64 * share);
            }
            ranks.push(rank);
            released.extend(run.objects.iter().map(|(key, _)| (*key, flow)));
        }
        if let Some(objects) = &mut self.objects {
            objects.remove(&released, &mut fabric.links.transport);
        }
        ranks
    }

    /// Starts the next runs of processes whose runs have ended.
    pub fn start_next(&mut self, ranks: &[u32], fabric: &mut Fabric) {
        let now = fabric.now();
        let ranks: Vec<(u64, u32)> = ranks.iter().map(|rank| (now, *rank)).collect();
        for run in self.prepare_runs(&ranks, fabric) {
            self.start_run(run, fabric);
        }
    }

    /// Counts the time of a run that has ended, ps.
    fn count_time(&mut self, bottleneck: Option<Resource>, (rank, run): (u32, &Run), took: f64) {
        let node = self.job.pattern.node_of(rank);
        let alone = run.bytes as f64 * PS_PER_SECOND as f64 / self.rate_alone(node, run, 0.0);
        *self.result.bottlenecks.entry(bottleneck).or_default() += took;
        *self.result.waited.entry(bottleneck).or_default() += (took - alone).max(0.0);
        self.result.durations.push((took / run.transfers as f64, run.transfers));
    }

    /// The next runs of processes that have one, with their demand. Each starts at a time, ps.
    fn prepare_runs(&mut self, starts: &[(u64, u32)], fabric: &mut Fabric) -> Vec<Prepared> {
        let next = |(at, rank): &(u64, u32)| Some((*at, *rank, self.next_run(*rank)?));
        let runs: Vec<(u64, u32, Run)> = starts.iter().filter_map(next).collect();
        runs.iter().for_each(|(_, _, run)| self.links.enter_servers(run, fabric));
        let callbacks = self.grant_locks(&runs);
        let with_demand = |((_, rank, run), callbacks): ((u64, u32, Run), Vec<Callbacks>)| {
            let node = self.job.pattern.node_of(rank);
            let rate = self.rate_alone(node, &run, 0.0);
            let demand = self.links.add_demand(node, &run, rate, fabric);
            Prepared { rank, run, demand, callbacks }
        };
        runs.into_iter().zip(callbacks).map(with_demand).collect()
    }

    fn next_run(&mut self, rank: u32) -> Option<Run> {
        let next = &mut self.next[rank as usize];
        if *next == self.last {
            if self.result.is_complete {
                return None;
            }
            *next = 0;
        }
        let run = self.runs.run(rank, *next, self.last);
        *next += run.transfers;
        Some(run)
    }

    /// Rate of a run without others, bytes per second, of which one transfer waits for `waited` ps.
    fn rate_alone(&self, node: u32, run: &Run, waited: f64) -> f64 {
        // The last transfer of a block may be shorter.
        let transfers = run.bytes as f64 / self.job.pattern.transfer_bytes() as f64;
        let time = (self.lone[node as usize] * transfers + waited) * self.scale;
        run.bytes as f64 * PS_PER_SECOND as f64 / time
    }
}
