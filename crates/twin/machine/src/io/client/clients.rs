//! The processes of one group.

use super::exchange::{
    COUNTS, Exchange, OFFSETS, begin_exchange, end_copy, end_window_access, expect_data,
};
use super::rank::{Activity, Rank};
use super::requests::{Requests, bytes_of_request, send_write_data};
use crate::event::{ClientEvent, Event, ExchangeKind, IoEvent, ProcessPlace, ReplyKind};
use crate::io::context::IoContext;
use crate::io::job::{IoJob, PS_PER_SECOND, RequestTag};
use crate::io::measure::PhaseCounts;
use forebay_engine::Queue;
use forebay_network::Packet;
use forebay_units::Bytes;
use forebay_workload::collective::{CollectiveSpec, Operation};
use forebay_workload::ior::{Access, AccessPattern, Action};
use std::collections::BTreeMap;

/// A barrier between steps.
const BARRIER: CollectiveSpec = CollectiveSpec::new(Operation::Barrier, Bytes::ZERO);
/// The processes agree on the number of transfers that all make.
const WEAR_OUT: CollectiveSpec = CollectiveSpec::new(Operation::Allreduce, Bytes(8));

/// The processes of one group.
pub(crate) struct Clients {
    ranks: Vec<Rank>,
    requests: Requests,
    exchange: Exchange,
    /// Counts of the current phase.
    pub phase: PhaseCounts,
}

impl Clients {
    pub fn new(job: &IoJob, group: u16) -> Self {
        let here = |&rank: &u32| job.topology.location(job.node_of(rank)).group == group;
        Clients {
            ranks: (0..job.tasks()).filter(here).map(Rank::new).collect(),
            requests: Requests::new(job.topology.nodes_of_group(group).len()),
            exchange: Exchange::default(),
            phase: PhaseCounts::default(),
        }
    }

    /// Schedules the start of all processes.
    pub fn start(&self, job: &IoJob, queue: &mut Queue<Event>) {
        for slot in 0..self.count() {
            let place = ProcessPlace::new(job.number, slot);
            let event = IoEvent::Client(ClientEvent::Resume(place));
            queue.push(job.start, event.key(), Event::Io(event));
        }
    }

    /// The rank of each process of this group that has begun transfers, with the times at which it began those of its
    /// first phase and those of its last one, ps.
    pub fn starts_of_transfers(&self) -> impl Iterator<Item = (u32, [u64; 2])> {
        let of_rank =
            |rank: &Rank| Some((rank.rank, [rank.first_transfers_began?, rank.transfers_began]));
        self.ranks.iter().filter_map(of_rank)
    }

    /// Processes of this group.
    pub fn count(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The least, over the group's processes, of a process's mean duration of a transfer, ps.
    pub fn least_mean(&self) -> Option<f64> {
        self.ranks
            .iter()
            .filter(|r| r.transfer > 0)
            .map(|r| r.in_transfers as f64 / r.transfer as f64)
            .min_by(f64::total_cmp)
    }

    /// The longest time, over the group's processes, in calls of this phase, ps.
    pub fn most_in_calls(&self) -> u64 {
        self.ranks.iter().map(|r| r.in_transfers + r.in_other_calls).max().unwrap_or(0)
    }

    /// Bytes that each node of the group moved in this phase, divided by its processes' mean time
    /// in transfers: bytes per second, in order of the job's nodes, without nodes that moved
    /// nothing.
    pub fn node_rates(&self, pattern: &AccessPattern) -> Vec<f64> {
        let mut nodes: BTreeMap<u32, (u64, u64, u32)> = BTreeMap::new();
        for rank in self.ranks.iter().filter(|r| r.in_transfers > 0) {
            let (bytes, time, processes) = nodes.entry(pattern.node_of(rank.rank)).or_default();
            *bytes += pattern.bytes_of_first(rank.transfer);
            *time += rank.in_transfers;
            *processes += 1;
        }
        let rate = |(bytes, time, processes): (u64, u64, u32)| {
            bytes as f64 * f64::from(processes) * 1e12 / time as f64
        };
        nodes.into_values().map(rate).collect()
    }

    /// Prepares all processes for a phase.
    pub fn enter_phase(&mut self, access: Access, job: &IoJob) {
        for rank in &mut self.ranks {
            rank.transfer = 0;
            rank.in_transfers = 0;
            rank.in_other_calls = 0;
            rank.worn_out = false;
            if access == Access::Write {
                rank.written = u64::MAX;
            }
            rank.last = job.pattern.transfers_per_rank();
            if access == Access::Read && job.ior.stonewall.is_some() {
                rank.last = rank.last.min(rank.written);
            }
        }
    }

    /// Runs an event.
    pub fn handle(&mut self, event: ClientEvent, io: &mut IoContext<'_, '_>) {
        match event {
            ClientEvent::Resume(place) => self.advance(place.slot(), io),
            ClientEvent::IssueRequests(place) => {
                let slot = place.slot();
                self.requests.issue(slot, &mut self.ranks[slot as usize], io);
            }
            ClientEvent::WriteDataReady(tag) => self.requests.move_write_data(tag, io),
            ClientEvent::SendWriteData(tag) => send_write_data(tag, io),
            ClientEvent::RequestDone(tag) => self.complete_request(tag, io),
            ClientEvent::CopyDone(place) => end_copy(place.slot(), &mut self.ranks, io),
        }
    }

    /// Accepts a packet from a server.
    pub fn receive_reply(&mut self, kind: ReplyKind, packet: &Packet, io: &mut IoContext<'_, '_>) {
        if self.requests.receive_reply(kind, packet, io) {
            self.complete_request(packet.tag(), io);
        }
    }

    /// Accepts a packet between an aggregator and another process.
    pub fn receive_exchange(
        &mut self,
        kind: ExchangeKind,
        packet: &Packet,
        io: &mut IoContext<'_, '_>,
    ) {
        self.exchange.receive(kind, packet, &mut self.ranks, io);
    }

    /// The step of the barrier in which the processes of a node of the job are, if they are in one
    /// between steps.
    pub fn step_of_barrier(&self, node: u32, job: &IoJob) -> Option<u32> {
        let rank = &self.ranks[job.slots_on(node).start as usize];
        (rank.activity == Activity::Barrier).then_some(rank.step)
    }

    /// The processes of a node of the job leave a collective operation and continue.
    pub fn resume_node(&mut self, node: u32, value: u64, io: &mut IoContext<'_, '_>) {
        for slot in io.job.slots_on(node) {
            let rank = &mut self.ranks[slot as usize];
            match rank.activity {
                Activity::Barrier => {
                    rank.step += 1;
                    self.advance(slot, io);
                }
                Activity::Collective if value > 0 => self.end_transfers(slot, io),
                Activity::Collective => {
                    rank.activity = Activity::Counts;
                    io.enter_collective(rank.rank, COUNTS, 0);
                }
                Activity::Counts => begin_exchange(slot, rank, io),
                Activity::Exchanged => self.end_collective_transfer(slot, io),
                Activity::WearOut => {
                    (rank.worn_out, rank.last) = (true, value);
                    self.next_transfer(slot, io);
                }
                Activity::Idle
                | Activity::Exchange
                | Activity::Window
                | Activity::Transfer
                | Activity::SyncWrite
                | Activity::Other => unreachable!("at a barrier: {rank:?}"),
            }
        }
    }

    /// Performs the steps of a process up to the first that takes time.
    fn advance(&mut self, slot: u32, io: &mut IoContext<'_, '_>) {
        let job = io.job;
        loop {
            let rank = &mut self.ranks[slot as usize];
            let at = rank.step;
            let Some(step) = job.steps.get(at as usize) else {
                return;
            };
            rank.activity = Activity::Idle;
            match step.action {
                Action::Begin(_) => {
                    let after = job.skip_late_phase(at, io.barrier_entered());
                    rank.step = after.unwrap_or(at + 1);
                    continue;
                }
                Action::End(_) => {}
                Action::Delay(seconds) => {
                    rank.step += 1;
                    let at = io.now() + u64::from(seconds) * PS_PER_SECOND;
                    return io.schedule(at, ClientEvent::Resume(io.place(slot)));
                }
                Action::Barrier => {
                    rank.activity = Activity::Barrier;
                    return io.enter_collective(rank.rank, BARRIER, 0);
                }
                Action::RemoveExisting => {
                    let left_over = step.iteration > 0 && job.ior.keep_file && !job.ior.multi_file;
                    let file = io.position.pattern.file_removed_by(rank.rank);
                    if left_over && file.is_some() {
                        return self.begin_other_call(slot, io);
                    }
                }
                Action::Remove => {
                    if io.position.pattern.file_removed_by(rank.rank).is_some() {
                        return self.begin_other_call(slot, io);
                    }
                }
                Action::Open(_) | Action::MakeDirectories | Action::Close(_) | Action::Fsync => {
                    return self.begin_other_call(slot, io);
                }
                Action::Transfer(_) => {
                    rank.transfers_began = io.now();
                    rank.first_transfers_began.get_or_insert(io.now());
                    self.phase.transfers.begin(io.now());
                    return self.next_transfer(slot, io);
                }
            }
            rank.step += 1;
        }
    }

    /// Begins the call of the current step, which is no transfer.
    fn begin_other_call(&mut self, slot: u32, io: &mut IoContext<'_, '_>) {
        let rank = &mut self.ranks[slot as usize];
        let action = io.job.steps[rank.step as usize].action;
        if let Action::Open(_) = action {
            self.phase.opens.begin(io.now());
        }
        if let Action::Close(_) = action {
            self.phase.closes.begin(io.now());
        }
        let requests = match action == Action::Fsync {
            true => self.requests.begin_sync(rank, io),
            false => 1,
        };
        (rank.offset, rank.end, rank.activity) = (0, requests, Activity::Other);
        begin_call(slot, rank, io);
    }

    fn next_transfer(&mut self, slot: u32, io: &mut IoContext<'_, '_>) {
        let job = io.job;
        let collective = job.is_collective();
        let rank = &mut self.ranks[slot as usize];
        let late = job.ior.stonewall.is_some_and(|s| {
            let limit = u64::from(s.seconds).saturating_mul(PS_PER_SECOND);
            io.now() - rank.transfers_began >= limit
        });
        if let Some(stonewall) = job.ior.stonewall
            && stonewall.wear_out
            && !collective // all tasks stop after the same transfer anyway
            && !rank.worn_out
            && (late || rank.transfer == rank.last)
        {
            rank.activity = Activity::WearOut;
            return io.enter_collective(rank.rank, WEAR_OUT, rank.transfer);
        }
        let stops = late && !rank.worn_out && !collective;
        if rank.transfer == rank.last || stops {
            return self.end_transfers(slot, io);
        }
        if collective {
            (rank.activity, rank.call_began) = (Activity::Collective, io.now());
            expect_data(rank, io);
            let stop = u64::from(late && !rank.worn_out && rank.rank == 0);
            return io.enter_collective(rank.rank, OFFSETS, stop);
        }
        let transfer = io.position.pattern.transfer(rank.rank, io.position.access, rank.transfer);
        (rank.offset, rank.end) = (transfer.offset, transfer.offset + transfer.bytes);
        rank.activity = Activity::Transfer;
        begin_call(slot, rank, io);
    }

    fn end_transfers(&mut self, slot: u32, io: &mut IoContext<'_, '_>) {
        let rank = &mut self.ranks[slot as usize];
        if io.position.access == Access::Write {
            rank.written = rank.transfer;
        }
        rank.step += 1;
        self.phase.transfers.end(io.now());
        self.advance(slot, io);
    }

    fn end_transfer(&mut self, slot: u32, io: &mut IoContext<'_, '_>) {
        let rank = &mut self.ranks[slot as usize];
        let took = io.now() - rank.call_began;
        let bytes = io.job.pattern.length_of(rank.transfer);
        self.phase.count_transfer(took, bytes, io.now());
        if io.job.is_collective() {
            self.phase.count_moved(rank.call_began, io.now(), bytes);
        }
        io.job.count_done(bytes);
        rank.in_transfers += took;
        if io.job.ior.fsync_per_write && io.position.access == Access::Write {
            (rank.offset, rank.activity) = (rank.end - bytes, Activity::SyncWrite);
            begin_call(slot, rank, io);
        } else {
            rank.transfer += 1;
            self.next_transfer(slot, io);
        }
    }

    /// All processes have finished a collective call.
    fn end_collective_transfer(&mut self, slot: u32, io: &mut IoContext<'_, '_>) {
        let rank = &mut self.ranks[slot as usize];
        let own = io.position.pattern.transfer(rank.rank, io.position.access, rank.transfer);
        (rank.offset, rank.end) = (own.offset + own.bytes, own.offset + own.bytes);
        self.end_transfer(slot, io);
    }

    /// A request is done; its call is done if it was the last.
    fn complete_request(&mut self, tag: u64, io: &mut IoContext<'_, '_>) {
        let slot = io.job.slot_of_rank[RequestTag::unpack(tag).rank as usize];
        let rank = &mut self.ranks[slot as usize];
        if let Some(observer) = io.observer {
            observer.end_request(tag, io.job.node_of(rank.rank), io.context.now);
        }
        if let Some(next) = self.requests.complete(rank, io) {
            let waiting = &mut self.ranks[next as usize];
            waiting.waits_for_node = false;
            self.requests.issue(next, waiting, io);
        }
        let rank = &mut self.ranks[slot as usize];
        if matches!(rank.activity, Activity::Transfer | Activity::Window) {
            self.phase.requests += 1;
        }
        if rank.activity == Activity::Transfer {
            self.phase.count_moved(rank.moved_until, io.now(), bytes_of_request(tag, io));
            rank.moved_until = io.now();
        }
        if !rank.call_is_done() {
            self.requests.issue(slot, rank, io);
            if !rank.call_is_done() {
                return;
            }
        }
        if let Some(next) = self.requests.end_turn(slot, rank, io) {
            self.requests.issue(next, &mut self.ranks[next as usize], io);
        }
        let rank = &mut self.ranks[slot as usize];
        match rank.activity {
            Activity::Transfer => self.end_transfer(slot, io),
            Activity::Window => end_window_access(slot, rank, io),
            Activity::SyncWrite => {
                rank.in_other_calls += io.now() - rank.call_began;
                rank.transfer += 1;
                self.next_transfer(slot, io);
            }
            Activity::Other => self.end_other_call(slot, io),
            Activity::Idle
            | Activity::Barrier
            | Activity::Collective
            | Activity::Counts
            | Activity::Exchange
            | Activity::Exchanged
            | Activity::WearOut => unreachable!("no call is in progress: {rank:?}"),
        }
    }

    fn end_other_call(&mut self, slot: u32, io: &mut IoContext<'_, '_>) {
        let (phase, rank) = (&mut self.phase, &mut self.ranks[slot as usize]);
        rank.in_other_calls += io.now() - rank.call_began;
        match io.job.steps[rank.step as usize].action {
            Action::Open(_) => phase.opens.end(io.now()),
            Action::Close(_) => phase.closes.end(io.now()),
            Action::Fsync => phase.transfers.end(io.now()),
            Action::MakeDirectories | Action::Remove | Action::RemoveExisting => {}
            action @ (Action::Begin(_)
            | Action::Delay(_)
            | Action::Barrier
            | Action::Transfer(_)
            | Action::End(_)) => unreachable!("{action:?} is no call: {rank:?}"),
        }
        rank.step += 1;
        self.advance(slot, io);
    }
}

fn begin_call(slot: u32, rank: &mut Rank, io: &mut IoContext<'_, '_>) {
    (rank.sent, rank.in_flight, rank.call_began) = (0, 0, io.now());
    rank.moved_until = io.now();
    let at = io.now() + io.job.client_of(rank.rank).call_overhead.0;
    io.schedule(at, ClientEvent::IssueRequests(io.place(slot)));
}
