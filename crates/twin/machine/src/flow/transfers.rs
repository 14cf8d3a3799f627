//! The transfers of a phase: the runs of all processes over time.

use super::fabric::{Demand, Fabric, Path, Resource};
use super::objects::{Objects, Writer};
use super::runs::{ObjectKey, Run, Runs};
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_flow::{Bottleneck, FlowId, FlowSpec};
use forebay_network::Timeline;
use forebay_workload::ior::Access;
use std::collections::BTreeMap;

/// Runs of a phase that are simulated at most, unless that is less than [`RUNS_OF_EACH`] of each process.
const MAX_RUNS: u64 = 1 << 13;
/// Runs of each process that are simulated at least, if it has so many.
const RUNS_OF_EACH: u64 = 3;

/// Runs of a phase with `tasks` processes that are simulated at most.
fn most_runs(tasks: u32) -> u64 {
    MAX_RUNS.max(RUNS_OF_EACH * u64::from(tasks))
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
    pub ranks: Vec<OfRank>,
    /// Bytes over time; those of a run are spread over its time.
    pub timeline: Timeline<1>,
    /// Rate while the second half of the runs ended, bytes per second.
    pub rate: f64,
    /// Mean duration of the transfers of each run, ps, and their number.
    pub durations: Vec<(f64, u64)>,
    /// Time that runs spent with each bottleneck, ps; `None`: the process itself.
    pub bottlenecks: BTreeMap<Option<Resource>, f64>,
    pub runs: u64,
}

/// A run under way.
struct Under {
    run: Run,
    demand: Demand,
    flow: FlowId,
    began: u64,
}

/// A run that is about to start.
struct Prepared {
    rank: u32,
    run: Run,
    demand: Demand,
}

/// The state of a phase's transfers.
pub(super) struct Simulation<'a> {
    job: &'a IoJob,
    runs: &'a Runs<'a>,
    pub fabric: Fabric<'a>,
    objects: Option<Objects>,
    /// Duration of a transfer alone by the node's index in the job, ps.
    lone: &'a [f64],
    /// Next transfer of each process.
    next: Vec<u64>,
    under_way: Vec<Option<Under>>,
    /// Process of each flow, by the flow's index.
    rank_of_flow: Vec<u32>,
    result: Transfers,
    /// Bytes of the runs that have ended.
    bytes: f64,
    /// Time, ps, and bytes moved when half of the runs had ended.
    half: Option<(u64, f64)>,
}

impl<'a> Simulation<'a> {
    pub fn new(job: &'a IoJob, runs: &'a Runs<'a>, fabric: Fabric<'a>, lone: &'a [f64]) -> Self {
        let tasks = job.tasks() as usize;
        let has_locks = runs.access == Access::Write && job.has_shared_file();
        Simulation {
            job,
            runs,
            objects: has_locks.then(|| Objects::new(fabric.lock_times)),
            fabric,
            lone,
            next: vec![0; tasks],
            under_way: (0..tasks).map(|_| None).collect(),
            rank_of_flow: Vec::new(),
            result: Transfers {
                is_complete: true,
                ranks: vec![OfRank::default(); tasks],
                timeline: Timeline::default(),
                rate: 0.0,
                durations: Vec::new(),
                bottlenecks: BTreeMap::new(),
                runs: 0,
            },
            bytes: 0.0,
            half: None,
        }
    }

    /// Simulates the phase; `starts` has the time of each process's first transfer, ps. `goes_on` gets
    /// the time and the share of the work that is done, and ends the simulation by `false`.
    pub fn run(&mut self, starts: &[u64], goes_on: &dyn Fn(u64, f64) -> bool) -> bool {
        let last = self.job.pattern.transfers_per_rank();
        let most = most_runs(self.job.tasks());
        let total = self.count_runs(last, most);
        self.result.is_complete = total <= most;
        // Runs that start nearly together are one change of the rates, as those that end together.
        let resolution = self.fabric.links.transport.resolution();
        let rounded = starts.iter().map(|start| start.next_multiple_of(resolution));
        let mut order: Vec<(u64, u32)> = rounded.zip(0..).collect();
        order.sort_unstable();
        if !self.result.is_complete {
            // The middle of the phase, with all processes from the beginning.
            order.iter_mut().for_each(|start| start.0 = 0);
            let middle = self.middle(last);
            self.next.iter_mut().for_each(|next| *next = middle);
        }
        let end = if self.result.is_complete { u64::MAX } else { most };
        // The demand of all processes' first runs is known to each of them: adaptive routing does not
        // keep to paths that it chose before the others began.
        let ranks: Vec<u32> = order.iter().map(|(_, rank)| *rank).collect();
        let prepared = self.prepare_runs(&ranks, last);
        let mut waiting = order.iter().zip(prepared).peekable();
        while self.result.runs < end {
            let until = waiting.peek().map_or(u64::MAX, |((at, _), _)| *at);
            if self.fabric.active_runs() == 0 && until == u64::MAX {
                break;
            }
            let ended = match until <= self.fabric.links.transport.now() {
                true => Vec::new(),
                false => self.fabric.links.transport.next_ends(until).to_vec(),
            };
            assert!(!ended.is_empty() || until != u64::MAX, "a run without a rate");
            self.end_runs(&ended, last);
            let now = self.fabric.links.transport.now();
            if self.half.is_none() && self.result.runs >= total.min(most) / 2 {
                self.half = Some((now, self.moved()));
            }
            while let Some((_, run)) = waiting.next_if(|((at, _), _)| *at <= now) {
                self.start_run(run);
            }
            if !goes_on(now, self.result.runs as f64 / total.clamp(1, most) as f64) {
                return false;
            }
        }
        self.result.rate = self.rate_since_half();
        true
    }

    /// Bytes that all runs have moved so far.
    fn moved(&self) -> f64 {
        let under_way = self.under_way.iter().flatten();
        let of_flows = under_way.map(|under| self.fabric.links.transport.carried_by(under.flow));
        self.bytes + of_flows.sum::<f64>()
    }

    fn rate_since_half(&self) -> f64 {
        let now = self.fabric.links.transport.now();
        let (at, moved) = self.half.filter(|half| half.0 < now).unwrap_or((0, 0.0));
        (self.moved() - moved) * PS_PER_SECOND as f64 / (now - at).max(1) as f64
    }

    pub fn into_result(self) -> (Transfers, Fabric<'a>) {
        (self.result, self.fabric)
    }

    /// Runs of all processes, as many as the first process has, counted up to a few above `most`.
    fn count_runs(&self, last: u64, most: u64) -> u64 {
        let (mut runs, mut next) = (0, 0);
        let tasks = u64::from(self.job.tasks());
        while next < last && runs * tasks <= most {
            next += self.runs.run(0, next, last).transfers;
            runs += 1;
        }
        runs * tasks
    }

    /// The transfer in the middle at which a stripe begins, if there is one.
    fn middle(&self, last: u64) -> u64 {
        let of_stripe = (self.job.burst_buffer.stripe.0 / self.job.pattern.transfer_bytes()).max(1);
        last / 2 / of_stripe * of_stripe
    }

    fn end_runs(&mut self, ended: &[FlowId], last: u64) {
        let now = self.fabric.links.transport.now();
        let (mut released, mut ranks) = (Vec::new(), Vec::with_capacity(ended.len()));
        for &flow in ended {
            let rank = self.rank_of_flow[flow.index()];
            let Some(Under { run, demand, began, .. }) = self.under_way[rank as usize].take()
            else {
                unreachable!("{flow:?} of process {rank} is not under way")
            };
            let bottleneck = match self.fabric.links.transport.bottleneck(flow) {
                Bottleneck::Cap => None,
                Bottleneck::Link(link) => self.fabric.resource_of(link, &run),
            };
            let took = now - began;
            *self.result.bottlenecks.entry(bottleneck).or_default() += took as f64;
            self.result.durations.push((took as f64 / run.transfers as f64, run.transfers));
            let of_rank = &mut self.result.ranks[rank as usize];
            self.result.timeline.add_over(began, now, 0, run.bytes);
            of_rank.transfers += run.transfers;
            of_rank.bytes += run.bytes;
            of_rank.time += took;
            of_rank.end = now;
            self.bytes += run.bytes as f64;
            self.result.runs += 1;
            self.fabric.remove_demand(&demand);
            ranks.push(rank);
            released.extend(run.objects.iter().map(|(key, _)| (*key, flow)));
        }
        if let Some(objects) = &mut self.objects {
            objects.remove(&released, &mut self.fabric.links.transport);
        }
        for run in self.prepare_runs(&ranks, last) {
            self.start_run(run);
        }
    }

    /// The next runs of processes that have one, with their demand.
    fn prepare_runs(&mut self, ranks: &[u32], last: u64) -> Vec<Prepared> {
        let runs: Vec<(u32, Run)> =
            ranks.iter().filter_map(|&rank| Some((rank, self.next_run(rank, last)?))).collect();
        runs.iter().for_each(|(_, run)| self.fabric.enter_servers(run));
        let with_demand = |(rank, run): (u32, Run)| {
            let node = self.job.pattern.node_of(rank);
            let rate = self.rate_alone(node, &run, 0.0);
            let demand = self.fabric.add_demand(node, &run, rate);
            Prepared { rank, run, demand }
        };
        runs.into_iter().map(with_demand).collect()
    }

    fn next_run(&mut self, rank: u32, last: u64) -> Option<Run> {
        let next = &mut self.next[rank as usize];
        if *next == last {
            if self.result.is_complete {
                return None;
            }
            *next = 0;
        }
        let run = self.runs.run(rank, *next, last);
        *next += run.transfers;
        Some(run)
    }

    /// Rate of a run without others, bytes per second, of which one transfer waits for `waited` ps.
    fn rate_alone(&self, node: u32, run: &Run, waited: f64) -> f64 {
        // The last transfer of a block may be shorter.
        let transfers = run.bytes as f64 / self.job.pattern.transfer_bytes() as f64;
        let time = self.lone[node as usize] * transfers + waited;
        run.bytes as f64 * PS_PER_SECOND as f64 / time
    }

    fn start_run(&mut self, Prepared { rank, run, demand }: Prepared) {
        let node = self.job.pattern.node_of(rank);
        let mut path = self.fabric.path(node, &run);
        let waits = self.enter_objects(&run, node, &mut path);
        let waited = waits.iter().copied().fold(0.0, f64::max);
        let cap = self.rate_alone(node, &run, waited);
        let spec = FlowSpec { count: 1, weight: 1.0, cap, path: &path };
        let flow = self.fabric.links.transport.start(spec, run.bytes as f64);
        let transfer = (self.job.pattern.transfer_bytes() as f64, self.lone[node as usize]);
        for ((key, _), waited) in run.objects.iter().zip(waits) {
            let called_back = waited > 0.0;
            self.add_writer(*key, Writer { flow, node, cap, transfer, called_back });
        }
        if self.rank_of_flow.len() <= flow.index() {
            self.rank_of_flow.resize(flow.index() + 1, 0);
        }
        self.rank_of_flow[flow.index()] = rank;
        let began = self.fabric.links.transport.now();
        self.under_way[rank as usize] = Some(Under { run, demand, flow, began });
    }

    /// Adds the locks of a run's objects to its path; returns the wait for each hand-over, ps.
    fn enter_objects(&mut self, run: &Run, node: u32, path: &mut Path) -> Vec<f64> {
        let Some(objects) = &mut self.objects else { return Vec::new() };
        let extent = run.offset..run.offset + run.bytes;
        let mut waits = Vec::with_capacity(run.objects.len());
        for &(key, share) in &run.objects {
            let fabric = &mut self.fabric;
            let (link, wait) = objects.enter(key, (node, extent.clone()), |rate| {
                fabric.add_link(Resource::Lock, "the lock of an object".into(), rate)
            });
            path.push((link, share));
            waits.push(wait);
        }
        waits
    }

    fn add_writer(&mut self, key: ObjectKey, writer: Writer) {
        if let Some(objects) = &mut self.objects {
            objects.add(key, writer, &mut self.fabric.links.transport);
        }
    }
}
