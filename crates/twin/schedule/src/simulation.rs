//! Simulation of a queue, from the first arrival to the end of the last stage-out.

use crate::cluster::{Cluster, Impossible};
use crate::job::Job;
use crate::outcome::Outcome;
use crate::policy::{Decision, Delay, PlanOptions, Policy, Situation, Waiting, decide};
use crate::pool::Pool;
use crate::profile::{Holding, Need};
use crate::time::Millis;
use crate::transfers::{Path, Transfers};
use crate::usage::Usage;
use forebay_policy::allocate::Share;
use forebay_units::Bytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A policy and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The policy.
    pub policy: Policy,
    /// Parameters of [`Policy::Plan`].
    pub plan: PlanOptions,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The jobs, in the order of the trace.
    pub jobs: Vec<Outcome>,
    /// Resources in use: at each change.
    pub usage: Vec<Usage>,
}

/// A job of the trace that can never run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job {id} can never run: it {reason}")]
pub struct ImpossibleJob {
    /// Its number.
    pub id: u64,
    /// The reason.
    pub reason: Impossible,
}

/// State of a job between its arrival and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    StageIn,
    Ready,
    Computing,
    Checkpoint,
    StageOut,
    Done,
}

#[derive(Clone, Debug)]
struct State {
    phase: Phase,
    need: Need,
    shares: Vec<Share>,
    /// Computing time that is left.
    left: Millis,
    reserved: Option<Millis>,
    /// The delay since the last decision.
    delayed: Option<Delay>,
    outcome: Outcome,
}

/// Simulates jobs, which are in the order of arrival. `progress` gets the jobs that are done and the time, now
/// and then.
///
/// # Errors
/// The first job that can never run.
///
/// # Panics
/// If the jobs are not in the order of arrival.
pub fn simulate(
    cluster: &Cluster,
    jobs: &[Job],
    options: &Options,
    progress: &mut dyn FnMut(usize, Millis),
) -> Result<History, ImpossibleJob> {
    for job in jobs {
        cluster.check(job).map_err(|reason| ImpossibleJob { id: job.id, reason })?;
    }
    assert!(
        jobs.windows(2).all(|pair| pair[0].arrival <= pair[1].arrival),
        "jobs in another order than that of arrival"
    );
    let mut simulation = Simulation::new(cluster, jobs, options);
    while let Some(now) = simulation.advance() {
        simulation.schedule(now);
        simulation.record(now);
        if simulation.steps.is_multiple_of(256) {
            progress(simulation.done, now);
        }
        simulation.steps += 1;
    }
    let waiting = simulation.states.iter().position(|state| state.phase != Phase::Done);
    assert!(waiting.is_none(), "job {waiting:?} waits, and nothing happens any more");
    let usage = simulation.usage;
    Ok(History { jobs: simulation.states.into_iter().map(|state| state.outcome).collect(), usage })
}

struct Simulation<'a> {
    cluster: &'a Cluster,
    jobs: &'a [Job],
    options: &'a Options,
    states: Vec<State>,
    pool: Pool,
    transfers: Transfers,
    free_nodes: u32,
    /// The first job that has not arrived.
    arrivals: usize,
    /// Ends of computing phases.
    computing: BinaryHeap<Reverse<(Millis, usize)>>,
    /// Jobs that have not begun, in the order of arrival.
    queue: Vec<usize>,
    /// Jobs that have begun and have no nodes, in the order in which they began.
    committed: Vec<usize>,
    /// Jobs that run or are staged out.
    holding: Vec<usize>,
    has_changed: bool,
    /// Time of the last decision.
    decided: Millis,
    /// Jobs that were delayed at the last decision.
    delayed: Vec<usize>,
    usage: Vec<Usage>,
    done: usize,
    steps: u64,
}

impl<'a> Simulation<'a> {
    fn new(cluster: &'a Cluster, jobs: &'a [Job], options: &'a Options) -> Self {
        let state = |job: &Job| {
            let need = Need {
                nodes: job.nodes,
                granules: cluster.granules_of(job),
                lead: cluster.stage_in_alone(job),
                limit: cluster.planned_limit(job).max(Millis(1)),
                tail: cluster.stage_out_alone(job),
            };
            let outcome = Outcome {
                id: job.id,
                nodes: job.nodes,
                granules: need.granules,
                arrival: job.arrival,
                ..Outcome::default()
            };
            State {
                phase: Phase::Queued,
                need,
                shares: Vec::new(),
                left: job.run,
                reserved: None,
                delayed: None,
                outcome,
            }
        };
        Simulation {
            cluster,
            jobs,
            options,
            states: jobs.iter().map(state).collect(),
            pool: Pool::new(&cluster.storage),
            transfers: Transfers::new(cluster),
            free_nodes: cluster.nodes,
            arrivals: 0,
            computing: BinaryHeap::new(),
            queue: Vec::new(),
            committed: Vec::new(),
            holding: Vec::new(),
            has_changed: false,
            decided: Millis::ZERO,
            delayed: Vec::new(),
            usage: Vec::new(),
            done: 0,
            steps: 0,
        }
    }

    /// Goes to the next time at which something happens, and lets it happen; `None` at the end.
    fn advance(&mut self) -> Option<Millis> {
        let arrival = self.jobs.get(self.arrivals).map_or(Millis::NEVER, |job| job.arrival);
        let computed = self.computing.peek().map_or(Millis::NEVER, |Reverse((end, _))| *end);
        let (now, ended) = self.transfers.advance(arrival.min(computed));
        if now == Millis::NEVER {
            return None;
        }
        for job in ended {
            self.end_transfer(job, now);
        }
        while let Some(Reverse((end, job))) = self.computing.peek().copied()
            && end == now
        {
            self.computing.pop();
            self.end_computing(job, now);
        }
        while self.jobs.get(self.arrivals).is_some_and(|job| job.arrival == now) {
            self.queue.push(self.arrivals);
            self.arrivals += 1;
        }
        Some(now)
    }

    fn end_transfer(&mut self, job: usize, now: Millis) {
        self.has_changed = true;
        match self.states[job].phase {
            Phase::StageIn => self.become_ready(job, now),
            Phase::Checkpoint => self.compute(job, now),
            Phase::StageOut => self.finish(job, now),
            phase => unreachable!("a transfer of a job in phase {phase:?}"),
        }
    }

    fn become_ready(&mut self, job: usize, now: Millis) {
        let state = &mut self.states[job];
        state.phase = Phase::Ready;
        state.need.lead = Millis::ZERO;
        state.outcome.ready = now;
    }

    /// Computes until the next checkpoint, or the end.
    fn compute(&mut self, job: usize, now: Millis) {
        let state = &mut self.states[job];
        state.phase = Phase::Computing;
        let every = self.jobs[job].checkpoint.map_or(Millis::NEVER, |checkpoint| checkpoint.every);
        let part = match every {
            Millis::ZERO => state.left,
            every => every.min(state.left),
        };
        state.left = state.left.since(part);
        self.computing.push(Reverse((now.plus(part), job)));
    }

    fn end_computing(&mut self, job: usize, now: Millis) {
        self.has_changed = true;
        let state = &mut self.states[job];
        if state.left > Millis::ZERO {
            state.phase = Phase::Checkpoint;
            let bytes =
                self.jobs[job].checkpoint.map_or(Bytes::ZERO, |checkpoint| checkpoint.bytes);
            if !self.transfers.start(job, Path::Checkpoint, &state.shares, bytes) {
                self.compute(job, now);
            }
            return;
        }
        self.free_nodes += self.jobs[job].nodes;
        state.outcome.end = now;
        state.phase = Phase::StageOut;
        let bytes = self.jobs[job].stage_out;
        if !self.transfers.start(job, Path::StageOut, &state.shares, bytes) {
            self.finish(job, now);
        }
    }

    fn finish(&mut self, job: usize, now: Millis) {
        let state = &mut self.states[job];
        state.phase = Phase::Done;
        state.outcome.done = now;
        self.pool.free(&state.shares);
        state.shares = Vec::new();
        self.holding.retain(|other| *other != job);
        self.done += 1;
    }

    /// Lets the policy decide, and does it.
    fn schedule(&mut self, now: Millis) {
        self.count_delays(now);
        let (holdings, committed, queue) = self.situation(now);
        let situation = Situation {
            now,
            total: (self.cluster.nodes, self.pool.total()),
            holdings: &holdings,
            committed: &committed,
            queue: &queue,
            has_changed: self.has_changed,
        };
        let decision = decide(self.options.policy, &self.options.plan, &situation);
        self.carry_out(&decision, now);
        self.decided = now;
    }

    /// Adds the time since the last decision to the delays of the jobs that it found delayed.
    fn count_delays(&mut self, now: Millis) {
        let passed = now.since(self.decided);
        for job in self.delayed.drain(..) {
            let state = &mut self.states[job];
            match state.delayed.take() {
                Some(Delay::Buffer) => {
                    state.outcome.buffer_delay = state.outcome.buffer_delay.plus(passed);
                }
                Some(Delay::StageIn) => {
                    state.outcome.stage_delay = state.outcome.stage_delay.plus(passed);
                }
                None => {}
            }
        }
    }

    fn carry_out(&mut self, decision: &Decision, now: Millis) {
        self.has_changed = false;
        for &(job, start) in &decision.reservations {
            self.states[job].reserved = Some(start);
            self.states[job].outcome.first_reservation.get_or_insert(start);
        }
        for &(job, delay) in &decision.delayed {
            self.states[job].delayed = Some(delay);
            self.delayed.push(job);
        }
        for &job in &decision.start {
            self.start(job, now);
        }
        for &job in &decision.begin {
            self.begin(job, now);
        }
        let states = &self.states;
        self.queue.retain(|&job| states[job].phase == Phase::Queued);
        self.committed.retain(|&job| matches!(states[job].phase, Phase::StageIn | Phase::Ready));
    }

    /// Gives a job its burst buffer, and starts its stage-in, or the job.
    fn begin(&mut self, job: usize, now: Millis) {
        let state = &mut self.states[job];
        assert_eq!(state.phase, Phase::Queued, "job {} begins twice", state.outcome.id);
        state.shares = self.pool.allocate(&self.jobs[job], state.need.granules);
        state.outcome.storage_nodes = state.shares.len() as u32;
        state.outcome.begin = now;
        state.phase = Phase::StageIn;
        if self.transfers.start(job, Path::StageIn, &state.shares, self.jobs[job].stage_in) {
            self.committed.push(job);
        } else {
            self.become_ready(job, now);
            self.start(job, now);
        }
    }

    fn start(&mut self, job: usize, now: Millis) {
        let state = &mut self.states[job];
        assert_eq!(state.phase, Phase::Ready, "job {} starts twice", state.outcome.id);
        let nodes = self.jobs[job].nodes;
        assert!(nodes <= self.free_nodes, "{nodes} nodes of {} that are free", self.free_nodes);
        self.free_nodes -= nodes;
        state.outcome.start = now;
        self.holding.push(job);
        self.compute(job, now);
    }

    /// Holdings, committed jobs and queue, as the policy sees them.
    fn situation(&self, now: Millis) -> (Vec<Holding>, Vec<Waiting>, Vec<Waiting>) {
        let holding = |&job: &usize| {
            let State { phase, need, outcome, .. } = &self.states[job];
            let is_running = *phase != Phase::StageOut;
            let nodes_until = outcome.start.plus(need.limit);
            let left = if is_running { nodes_until } else { outcome.end };
            Holding {
                nodes: if is_running { need.nodes } else { 0 },
                nodes_until,
                granules: need.granules,
                granules_until: left.plus(need.tail),
            }
        };
        let waiting = |&job: &usize| {
            let state = &self.states[job];
            let mut need = state.need;
            if state.phase == Phase::StageIn {
                let end = state.outcome.begin.plus(need.lead);
                need.lead = end.since(now).max(Millis(1));
            }
            Waiting { job, arrival: state.outcome.arrival, need, reserved: state.reserved }
        };
        (
            self.holding.iter().map(holding).collect(),
            self.committed.iter().map(waiting).collect(),
            self.queue.iter().map(waiting).collect(),
        )
    }

    /// Records what is in use.
    fn record(&mut self, now: Millis) {
        let running: u32 = self
            .holding
            .iter()
            .filter(|job| self.states[**job].phase != Phase::StageOut)
            .map(|job| self.jobs[*job].nodes)
            .sum();
        assert_eq!(running + self.free_nodes, self.cluster.nodes, "nodes in use and free");
        let usage = Usage {
            at: now,
            nodes: running,
            granules: self.pool.used(),
            waiting: (self.queue.len() + self.committed.len()) as u32,
        };
        match self.usage.last_mut() {
            Some(last) if last.at == now => *last = usage,
            _ => self.usage.push(usage),
        }
    }
}
