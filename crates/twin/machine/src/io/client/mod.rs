//! Client processes: each takes the steps of the test in turn, one call at a time.

mod exchange;
mod rank;
mod requests;

use super::barrier::BarrierArrivals;
use super::collective::{CollectiveCall, Readers};
use super::measure::PhaseCounts;
use super::{IoJob, Piece, Tag, kind};
use crate::group::{Event, Group, Io};
use crate::scenario::Scenario;
use forebay_engine::{Context, Queue};
use forebay_workload::ior::{Access, AccessPattern, Action, FileId, Reorder};
use rank::{Doing, Rank};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Picoseconds in a second.
const PS: u64 = 1_000_000_000_000;

/// The processes of one group, and where the test stands.
pub(crate) struct Clients {
    ranks: Vec<Rank>,
    pub arrivals: BarrierArrivals,
    /// The layout of the present repetition.
    layout: Option<AccessPattern>,
    access: Access,
    iteration: u32,
    /// The phase under way.
    pub phase: PhaseCounts,
    /// Bytes of read requests still to come, by tag.
    coming: FxHashMap<u64, u64>,
    /// Bytes still to come of what an aggregator exchanges with others, by tag and the aggregator.
    shares: FxHashMap<(u64, u32), u64>,
    /// Who reads whose data in this phase, where collective transfers are not of each rank's own.
    readers: Option<Readers>,
    /// When each node's client is free to move more data in and out, ps.
    node_free: Vec<[u64; 2]>,
}

impl Clients {
    pub fn new(world: &Scenario, group: u16) -> Self {
        let mut clients = Clients {
            ranks: Vec::new(),
            arrivals: BarrierArrivals::default(),
            layout: world.io.as_ref().map(|job| job.layout),
            access: Access::Write,
            iteration: 0,
            phase: PhaseCounts::default(),
            coming: FxHashMap::default(),
            shares: FxHashMap::default(),
            readers: None,
            node_free: vec![[0; 2]; world.topology.nodes_of_group(group).len()],
        };
        let Some(job) = &world.io else { return clients };
        for rank in 0..job.tasks() {
            if world.topology.location(job.node_of(rank)).group == group {
                clients.ranks.push(Rank::new(rank));
            }
        }
        clients
    }

    /// All processes begin.
    pub fn start(&self, queue: &mut Queue<Event>) {
        for slot in 0..self.count() {
            let event = Io::Resume(slot);
            queue.push(0, event.key(), Event::Io(event));
        }
    }

    /// Processes in this group.
    pub fn count(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The file, and the piece of it, that a request is about.
    pub fn piece(&self, tag: Tag, job: &IoJob) -> (FileId, Piece) {
        let layout = self.layout.unwrap_or(job.layout);
        let nth = tag.request as usize;
        let (file, piece) = if job.is_collective() {
            let call = self.collective(tag.call, job);
            let mut pieces = call.pieces(layout.node_of(tag.rank), job);
            (layout.file(tag.rank, self.access), pieces.nth(nth))
        } else {
            let transfer = layout.transfer(tag.rank, self.access, tag.call);
            let mut pieces = job.pieces(transfer.offset, transfer.bytes);
            (transfer.file, pieces.nth(nth))
        };
        let Some(piece) = piece else {
            unreachable!("a request beyond its transfer: {tag:?}")
        };
        (file, piece)
    }

    /// A collective call of this phase.
    pub fn collective(&self, call: u64, job: &IoJob) -> CollectiveCall<'_> {
        let layout = self.layout.unwrap_or(job.layout);
        CollectiveCall::new(job, &layout, call, self.readers.as_ref())
    }

    /// The least, over the group's processes, of a process's mean time a transfer, ps.
    pub fn least_mean(&self) -> Option<f64> {
        self.ranks
            .iter()
            .filter(|r| r.transfer > 0)
            .map(|r| r.in_transfers as f64 / r.transfer as f64)
            .min_by(f64::total_cmp)
    }

    /// What each node of the group moved in this phase, by its processes' mean time in transfers:
    /// bytes a second, in order of the job's nodes; nodes that moved nothing are left out.
    pub fn node_rates(&self, job: &IoJob) -> Vec<f64> {
        let layout = self.layout.unwrap_or(job.layout);
        let mut nodes: BTreeMap<u32, (u64, u64, u32)> = BTreeMap::new();
        for rank in self.ranks.iter().filter(|r| r.in_transfers > 0) {
            let (transfers, time, processes) = nodes.entry(layout.node_of(rank.rank)).or_default();
            *transfers += rank.transfer;
            *time += rank.in_transfers;
            *processes += 1;
        }
        let rate = |(transfers, time, processes): (u64, u64, u32)| {
            let bytes = transfers * job.layout.transfer_bytes();
            bytes as f64 * f64::from(processes) * 1e12 / time as f64
        };
        nodes.into_values().map(rate).collect()
    }

    /// The test enters a phase.
    pub fn enter(&mut self, iteration: u32, access: Access, job: &IoJob) {
        self.iteration = iteration;
        self.access = access;
        let layout = job.layout.for_iteration(iteration);
        self.layout = Some(layout);
        let others = access == Access::Read && job.ior.reorder != Reorder::Own;
        self.readers = (job.is_collective() && others).then(|| Readers::new(&layout));
        for rank in &mut self.ranks {
            rank.transfer = 0;
            rank.in_transfers = 0;
            rank.worn_out = false;
            if access == Access::Write {
                rank.written = u64::MAX;
            }
            rank.last = job.layout.transfers_per_rank();
            if access == Access::Read && job.ior.stonewall.is_some() {
                rank.last = rank.last.min(rank.written);
            }
        }
    }
}

impl Group {
    fn rank(&mut self, slot: u32) -> &mut Rank {
        &mut self.clients.ranks[slot as usize]
    }

    /// Goes on with the next step, and the next, until one takes time.
    pub(crate) fn advance(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        loop {
            let at = self.rank(slot).step;
            let Some(step) = job.steps.get(at as usize) else {
                return;
            };
            self.rank(slot).doing = Doing::Nothing;
            match step.action {
                Action::Begin(_) => {
                    let next = job.skip_late_phase(at, self.clients.arrivals.released);
                    self.rank(slot).step = next.unwrap_or(at + 1);
                    continue;
                }
                Action::End(_) => {}
                Action::Delay(seconds) => {
                    self.rank(slot).step += 1;
                    let wait = u64::from(seconds) * PS;
                    return self.later(context.now + wait, Io::Resume(slot), context);
                }
                Action::Barrier => {
                    self.rank(slot).doing = Doing::Barrier;
                    return self.arrive(at, 0, context);
                }
                Action::RemoveExisting => {
                    let left_over = step.iteration > 0 && job.ior.keep_file && !job.ior.multi_file;
                    let file = self.layout(job).file_removed_by(self.rank(slot).rank);
                    if left_over && file.is_some() {
                        return self.call(slot, context);
                    }
                }
                Action::Remove => {
                    if self
                        .layout(job)
                        .file_removed_by(self.rank(slot).rank)
                        .is_some()
                    {
                        return self.call(slot, context);
                    }
                }
                Action::Open(_) | Action::MakeDirectories | Action::Close(_) | Action::Fsync => {
                    return self.call(slot, context);
                }
                Action::Transfer(_) => {
                    self.rank(slot).transfers_began = context.now;
                    self.clients.phase.transfers.begin(context.now);
                    return self.next_transfer(slot, context);
                }
            }
            self.rank(slot).step += 1;
        }
    }

    fn layout(&self, job: &IoJob) -> AccessPattern {
        self.clients.layout.unwrap_or(job.layout)
    }

    /// Begins a call that is no transfer: the step says which.
    fn call(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let step = job.steps[self.rank(slot).step as usize];
        match step.action {
            Action::Open(_) => self.clients.phase.opens.begin(context.now),
            Action::Close(_) => self.clients.phase.closes.begin(context.now),
            _ => {}
        }
        let requests = match step.action {
            Action::Fsync => self.servers_written(slot, job),
            _ => 1,
        };
        let rank = self.rank(slot);
        (rank.offset, rank.end, rank.doing) = (0, requests, Doing::Other);
        self.begin_call(slot, job, context);
    }

    /// How many servers have data that a process wrote.
    fn servers_written(&mut self, slot: u32, job: &IoJob) -> u64 {
        let rank = *self.rank(slot);
        let bytes = rank.transfer * job.layout.transfer_bytes();
        bytes
            .div_ceil(job.burst_buffer.stripe.0)
            .clamp(1, job.servers.len() as u64)
    }

    fn begin_call(&mut self, slot: u32, job: &IoJob, context: &mut Context<'_, Self>) {
        let rank = self.rank(slot);
        (rank.sent, rank.open, rank.call_began) = (0, 0, context.now);
        let at = context.now + job.client.call_overhead.0;
        self.later(at, Io::Issue(slot), context);
    }

    fn next_transfer(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let collective = job.is_collective();
        let rank = *self.rank(slot);
        let late = job.ior.stonewall.is_some_and(|s| {
            context.now - rank.transfers_began >= u64::from(s.seconds).saturating_mul(PS)
        });
        if let Some(stonewall) = job.ior.stonewall
            && stonewall.wear_out
            && !collective // all tasks stop after the same transfer anyway
            && !rank.worn_out
            && (late || rank.transfer == rank.last)
        {
            self.rank(slot).doing = Doing::WearOut;
            return self.arrive(BarrierArrivals::WITHIN_STEP, rank.transfer, context);
        }
        let stops = late && !rank.worn_out && !collective;
        if rank.transfer == rank.last || stops {
            return self.transfers_done(slot, context);
        }
        if collective {
            let state = self.rank(slot);
            (state.doing, state.call_began) = (Doing::Collective, context.now);
            let stop = u64::from(late && !rank.worn_out && rank.rank == 0);
            return self.arrive(BarrierArrivals::WITHIN_STEP, stop, context);
        }
        self.begin_transfer(slot, context);
    }

    fn begin_transfer(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let Rank { rank, transfer, .. } = *self.rank(slot);
        let next = self
            .layout(job)
            .transfer(rank, self.clients.access, transfer);
        let state = self.rank(slot);
        (state.offset, state.end) = (next.offset, next.offset + next.bytes);
        state.doing = Doing::Transfer;
        self.begin_call(slot, job, context);
    }

    fn transfers_done(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let access = self.clients.access;
        let rank = self.rank(slot);
        if access == Access::Write {
            rank.written = rank.transfer;
        }
        rank.step += 1;
        self.clients.phase.transfers.end(context.now);
        self.advance(slot, context);
    }

    fn transfer_done(&mut self, slot: u32, job: &IoJob, context: &mut Context<'_, Self>) {
        let took = context.now - self.rank(slot).call_began;
        let bytes = job.layout.transfer_bytes();
        self.clients.phase.transferred(took, bytes, context.now);
        self.world.count_done(bytes);
        self.rank(slot).in_transfers += took;
        if job.ior.fsync_per_write && self.clients.access == Access::Write {
            let rank = self.rank(slot);
            (rank.offset, rank.doing) = (rank.end - bytes, Doing::SyncWrite);
            self.begin_call(slot, job, context);
        } else {
            self.rank(slot).transfer += 1;
            self.next_transfer(slot, context);
        }
    }

    fn call_done(&mut self, slot: u32, job: &IoJob, context: &mut Context<'_, Self>) {
        let phase = &mut self.clients.phase;
        match job.steps[self.clients.ranks[slot as usize].step as usize].action {
            Action::Open(_) => phase.opens.end(context.now),
            Action::Close(_) => phase.closes.end(context.now),
            Action::Fsync => phase.transfers.end(context.now),
            _ => {}
        }
        self.rank(slot).step += 1;
        self.advance(slot, context);
    }

    /// All have come to the barrier: the processes of this group go on.
    pub(crate) fn resume_all(&mut self, value: u64, context: &mut Context<'_, Self>) {
        for slot in 0..self.clients.ranks.len() as u32 {
            match self.rank(slot).doing {
                Doing::Barrier => {
                    self.rank(slot).step += 1;
                    self.advance(slot, context);
                }
                Doing::Collective if value > 0 => self.transfers_done(slot, context),
                Doing::Collective => self.begin_collective(slot, context),
                Doing::Shared => self.collective_done(slot, context),
                Doing::WearOut => {
                    let rank = self.rank(slot);
                    (rank.worn_out, rank.last) = (true, value);
                    self.next_transfer(slot, context);
                }
                other => unreachable!("a process at a barrier is {other:?}"),
            }
        }
    }
}

impl IoJob {
    /// Where to go on when the phase that begins at step `at` is left out because the test's
    /// minutes (`-T`) have passed at `now`; `None`: the phase is run.
    pub fn skip_late_phase(&self, at: u32, now: u64) -> Option<u32> {
        let minutes = self.ior.max_minutes.filter(|&m| m > 0)?;
        if now < u64::from(minutes).saturating_mul(60 * PS) {
            return None;
        }
        let from = at as usize + 1;
        let end = self.steps[from..]
            .iter()
            .position(|s| matches!(s.action, Action::End(_)))?;
        Some((from + end + 1) as u32)
    }
}
