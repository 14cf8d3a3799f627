//! Collective transfers: aggregators gather and distribute the data of their windows.
//!
//! To write, the aggregator of a window requests the bytes of processes on other nodes, copies
//! those of its own node's, and writes when all have arrived. To read, it reads first and then
//! sends and copies. A process has finished a call when it has its bytes and, if it is an
//! aggregator, its windows are done; the call ends when all processes have finished.

use super::rank::{Activity, NO_WINDOW, Rank};
use crate::event::{ClientEvent, ExchangeKind, PacketKind};
use crate::io::context::IoContext;
use crate::io::job::RequestTag;
use forebay_network::Packet;
use forebay_units::Bytes;
use forebay_workload::collective::{CollectiveSpec, Operation};
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// First and last offset of each process, known to all before the first phase, and to each process
/// before it counts its pieces.
pub(super) const OFFSETS: CollectiveSpec = CollectiveSpec::new(Operation::Allgather, Bytes(16));
/// Number of pieces that each process has for each aggregator, known to these before the first phase
/// (`MPI_Alltoall` of integers in ROMIO's `ADIOI_Calc_others_req`).
pub(super) const COUNTS: CollectiveSpec = CollectiveSpec::new(Operation::Alltoall, Bytes(4));
/// The error of each process, combined after the last phase.
const ERRORS: CollectiveSpec = CollectiveSpec::new(Operation::Allreduce, Bytes(4));

/// The exchange of data in collective transfers of one group's processes.
#[derive(Default)]
pub(super) struct Exchange {
    /// Bytes missing of a share, by tag, which tells aggregators of a node apart, and the aggregator's node.
    incoming: FxHashMap<(u64, u32), u64>,
}

impl Exchange {
    /// Accepts a packet between an aggregator and another process.
    pub fn receive(
        &mut self,
        kind: ExchangeKind,
        packet: &Packet,
        ranks: &mut [Rank],
        io: &mut IoContext<'_, '_>,
    ) {
        let (tag, bytes) = (RequestTag::unpack(packet.tag()), u64::from(packet.bytes));
        match kind {
            ExchangeKind::Gather => {
                let share = share_of_rank(tag, packet.src, io);
                let kind = PacketKind::Exchange(ExchangeKind::Contribution);
                io.send(packet.dst, packet.src, kind, share, packet.tag());
            }
            ExchangeKind::Contribution => {
                self.count_share(packet, packet.dst, io);
                let node = io.job.index_of_node[&packet.dst];
                let (aggregator, _) = io.job.window_of_number(node, tag.request);
                let slot = io.job.slot_of_rank[aggregator as usize];
                contribute(slot, &mut ranks[slot as usize], bytes, io);
            }
            ExchangeKind::Delivery => {
                self.count_share(packet, packet.src, io);
                let slot = io.job.slot_of_rank[tag.rank as usize];
                let rank = &mut ranks[slot as usize];
                rank.receive_bytes(bytes);
                finish_if_complete(rank, io);
            }
        }
    }

    /// Counts the wait for the network when the last packet of a share has arrived.
    fn count_share(&mut self, packet: &Packet, aggregators_node: u32, io: &mut IoContext<'_, '_>) {
        let key = (packet.tag(), aggregators_node);
        let share = |io: &IoContext<'_, '_>| {
            share_of_rank(RequestTag::unpack(packet.tag()), aggregators_node, io)
        };
        let missing = match self.incoming.get(&key) {
            Some(&missing) => missing,
            None => share(io),
        };
        let missing = missing - u64::from(packet.bytes);
        if missing > 0 {
            self.incoming.insert(key, missing);
        } else {
            self.incoming.remove(&key);
            let bytes = share(io);
            io.count_network_wait(packet, packet.dst, bytes);
        }
    }
}

/// A process is about to enter a collective call: aggregators that leave the operations before the first phase earlier
/// may send data at once.
pub(super) fn expect_data(rank: &mut Rank, io: &IoContext<'_, '_>) {
    rank.missing = match io.position.access {
        Access::Read => io.job.pattern.transfer_bytes(),
        Access::Write => 0,
    };
}

/// Begins the first phase of a collective call, which all processes have entered.
pub(super) fn begin_exchange(slot: u32, rank: &mut Rank, io: &mut IoContext<'_, '_>) {
    (rank.activity, rank.sent, rank.in_flight) = (Activity::Exchange, 0, 0);
    if io.job.aggregators.of_rank(rank.rank).is_some() {
        rank.window = 0;
        begin_window(slot, rank, io);
    } else {
        rank.window = NO_WINDOW;
        finish_if_complete(rank, io);
    }
}

/// An aggregator has accessed the file for a window.
pub(super) fn end_window_access(slot: u32, rank: &mut Rank, io: &mut IoContext<'_, '_>) {
    rank.activity = Activity::Exchange;
    if io.position.access == Access::Write {
        rank.window += 1;
        return begin_window(slot, rank, io);
    }
    let node = io.position.pattern.node_of(rank.rank);
    let Some(window) = window_of(rank, io) else {
        unreachable!("a window that was read does not exist: {rank:?}")
    };
    let mut local = 0;
    for (other, bytes) in shares_of(rank.transfer, window, io) {
        if io.position.pattern.node_of(other) == node {
            local += bytes;
        } else {
            send_to_process(rank, other, ExchangeKind::Delivery, bytes, io);
        }
    }
    if local > 0 {
        schedule_copy(slot, rank.rank, local, io);
    } else {
        rank.window += 1;
        begin_window(slot, rank, io);
    }
}

/// An aggregator has copied the data of its own node's processes for its window.
pub(super) fn end_copy(slot: u32, ranks: &mut [Rank], io: &mut IoContext<'_, '_>) {
    let state = ranks[slot as usize];
    let node = io.position.pattern.node_of(state.rank);
    let Some(window) = window_of(&state, io) else {
        unreachable!("a window that was copied does not exist: {state:?}")
    };
    let mut local = shares_of(state.transfer, window, io);
    local.retain(|&(other, _)| io.position.pattern.node_of(other) == node);
    if io.position.access == Access::Write {
        let bytes = local.iter().map(|&(_, bytes)| bytes).sum();
        return contribute(slot, &mut ranks[slot as usize], bytes, io);
    }
    for (other, bytes) in local {
        let reader = &mut ranks[io.job.slot_of_rank[other as usize] as usize];
        reader.receive_bytes(bytes);
        finish_if_complete(reader, io);
    }
    let rank = &mut ranks[slot as usize];
    rank.window += 1;
    begin_window(slot, rank, io);
}

/// An aggregator begins its current window, or has completed its last.
fn begin_window(slot: u32, rank: &mut Rank, io: &mut IoContext<'_, '_>) {
    let node = io.position.pattern.node_of(rank.rank);
    let Some(window) = window_of(rank, io) else {
        rank.window = NO_WINDOW;
        return finish_if_complete(rank, io);
    };
    (rank.offset, rank.end) = (window.start, window.end);
    if io.position.access == Access::Read {
        return access_window(slot, rank, io);
    }
    let (mut missing, mut local) = (0, 0);
    for (other, bytes) in shares_of(rank.transfer, window, io) {
        missing += bytes;
        if io.position.pattern.node_of(other) == node {
            local += bytes;
        } else {
            send_to_process(rank, other, ExchangeKind::Gather, 0, io);
        }
    }
    rank.missing = missing;
    if local > 0 {
        schedule_copy(slot, rank.rank, local, io);
    }
}

/// An aggregator accesses the file: the second phase of a write, the first of a read.
fn access_window(slot: u32, rank: &mut Rank, io: &mut IoContext<'_, '_>) {
    rank.activity = Activity::Window;
    let at = io.now() + io.job.client_of(rank.rank).call_overhead.0;
    io.schedule(at, ClientEvent::IssueRequests(io.place(slot)));
}

/// Bytes of an aggregator's window have arrived.
fn contribute(slot: u32, rank: &mut Rank, bytes: u64, io: &mut IoContext<'_, '_>) {
    rank.receive_bytes(bytes);
    if rank.missing == 0 {
        access_window(slot, rank, io);
    }
}

/// Waits for the other processes if nothing is left to do in a collective call.
fn finish_if_complete(rank: &mut Rank, io: &mut IoContext<'_, '_>) {
    if rank.activity == Activity::Exchange && rank.missing == 0 && rank.window == NO_WINDOW {
        rank.activity = Activity::Exchanged;
        io.enter_collective(rank.rank, ERRORS, 0);
    }
}

fn schedule_copy(slot: u32, aggregator: u32, bytes: u64, io: &mut IoContext<'_, '_>) {
    let at = io.now() + io.job.client_of(aggregator).copy_rate.time_for(Bytes(bytes)).0;
    io.schedule(at, ClientEvent::CopyDone(io.place(slot)));
}

/// Sends a message about an aggregator's window to a process on another node: `bytes` of data, or
/// a control message if 0.
fn send_to_process(
    aggregator: &Rank,
    other: u32,
    kind: ExchangeKind,
    bytes: u64,
    io: &mut IoContext<'_, '_>,
) {
    let tag = RequestTag {
        job: io.job.number,
        rank: other,
        call: aggregator.transfer,
        request: io.job.number_of_window(aggregator.rank, aggregator.window),
    };
    let (from, to) = (io.job.node_of(aggregator.rank), io.job.node_of(other));
    io.send(from, to, PacketKind::Exchange(kind), bytes, tag.pack());
}

/// The current window of an aggregator, if any.
fn window_of(rank: &Rank, io: &IoContext<'_, '_>) -> Option<Range<u64>> {
    nth_window(rank.rank, rank.transfer, rank.window, io)
}

fn nth_window(rank: u32, call: u64, window: u32, io: &IoContext<'_, '_>) -> Option<Range<u64>> {
    let aggregator = io.job.aggregators.of_rank(rank)?;
    let mut windows = io.position.collective_call(call, io.job).windows(aggregator);
    windows.nth(window as usize)
}

/// The ranks with bytes in a window, and the number of bytes.
fn shares_of(call: u64, window: Range<u64>, io: &IoContext<'_, '_>) -> Vec<(u32, u64)> {
    let call = io.position.collective_call(call, io.job);
    call.shares(window).collect()
}

/// Bytes of a rank in the window of the aggregator on a node.
fn share_of_rank(tag: RequestTag, aggregators_node: u32, io: &IoContext<'_, '_>) -> u64 {
    let node = io.job.index_of_node[&aggregators_node];
    let (aggregator, window) = io.job.window_of_number(node, tag.request);
    let window = nth_window(aggregator, tag.call, window, io);
    let shares = window.map(|window| shares_of(tag.call, window, io));
    let of_rank = shares.into_iter().flatten().filter(|s| s.0 == tag.rank);
    of_rank.map(|(_, bytes)| bytes).sum()
}
