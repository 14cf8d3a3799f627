//! The requests of a call: sent to servers, supplied with data, completed.

use super::rank::{Activity, Rank};
use crate::event::{ClientEvent, PacketKind, ReplyKind, RequestKind};
use crate::io::context::IoContext;
use crate::io::job::RequestTag;
use forebay_network::Packet;
use forebay_units::Bytes;
use forebay_workload::ior::{Access, Action};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Directions of a node's data path.
const OUT: usize = 0;
const IN: usize = 1;

/// The client of one node.
#[derive(Clone, Default)]
struct Node {
    /// Times at which it is free to move more data out and in, ps.
    free: [u64; 2],
    /// Requests in flight.
    in_flight: u32,
    /// Processes (by their slots) that wait for one to complete.
    waiting: VecDeque<u32>,
    /// The process that writes to the shared file, where they do so in turn.
    writer: Option<u32>,
    /// Processes that wait for their turn.
    next_writers: VecDeque<u32>,
}

impl Node {
    /// Whether a process may send requests of its call: it does not write to the shared file in turn, or it is its
    /// turn. Otherwise it waits for that.
    fn takes_turn(&mut self, slot: u32, rank: &mut Rank, io: &IoContext<'_, '_>) -> bool {
        let is_write = io.position.access == Access::Write
            && matches!(rank.activity, Activity::Transfer | Activity::Window);
        if !is_write || !io.job.writes_in_turn() {
            return true;
        }
        let writer = *self.writer.get_or_insert(slot);
        if writer != slot {
            rank.awaits_turn_since = Some(io.now());
            self.next_writers.push_back(slot);
        }
        writer == slot
    }
}

/// Requests of the nodes of one group, and their data on the way.
pub(super) struct Requests {
    /// Bytes missing of read requests, by tag.
    incoming: FxHashMap<u64, u64>,
    /// By the node's number within the group.
    nodes: Vec<Node>,
    /// Times at which the clients have moved the data of each process so far, by rank, ps; of processes with a rate of
    /// their own.
    moved: FxHashMap<u32, u64>,
    /// Servers to which the fsync of a process goes, by rank.
    synced: FxHashMap<u32, Vec<u32>>,
}

impl Requests {
    /// For a group with `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Requests {
            incoming: FxHashMap::default(),
            nodes: vec![Node::default(); nodes],
            moved: FxHashMap::default(),
            synced: FxHashMap::default(),
        }
    }

    /// Sends as many requests of a process's call as the call and the node may have in flight.
    pub fn issue(&mut self, slot: u32, rank: &mut Rank, io: &mut IoContext<'_, '_>) {
        let client = io.job.node_of(rank.rank);
        let local = usize::from(io.job.topology.location(client).local);
        if !self.nodes[local].takes_turn(slot, rank, io) {
            return;
        }
        while rank.offset < rank.end && rank.in_flight < io.job.client.requests_in_flight {
            let node = &mut self.nodes[local];
            if node.in_flight >= io.job.client_of(rank.rank).requests_per_node {
                if !rank.waits_for_node {
                    rank.waits_for_node = true;
                    node.waiting.push_back(slot);
                }
                return;
            }
            let Some((server, kind)) = self.next_request(rank, io) else {
                break;
            };
            let request = match kind {
                RequestKind::Write | RequestKind::Read => rank.sent,
                RequestKind::Sync | RequestKind::Metadata => io.job.number_of(server, rank.sent),
            };
            let (job, call) = (io.job.number, rank.transfer);
            let tag = RequestTag { job, rank: rank.rank, call, request };
            rank.sent += 1;
            rank.in_flight += 1;
            if let Some(since) = rank.awaits_turn_since.take() {
                io.waits_of(tag.pack(), client).client += io.now() - since;
                rank.moved_until = io.now();
            }
            self.nodes[local].in_flight += 1;
            if let Some(observer) = io.observer {
                observer.begin_request(tag.pack(), kind, io.context.now);
            }
            let server = io.job.storage.node_of(server);
            io.send(client, server, PacketKind::Request(kind), 0, tag.pack());
        }
    }

    /// A request of a process is done; returns the process, by its slot, that waited longest for it.
    pub fn complete(&mut self, rank: &mut Rank, io: &IoContext<'_, '_>) -> Option<u32> {
        assert!(rank.in_flight > 0, "a request completed twice: {rank:?}");
        rank.in_flight -= 1;
        let local = io.job.topology.location(io.job.node_of(rank.rank)).local;
        let node = &mut self.nodes[usize::from(local)];
        node.in_flight -= 1;
        node.waiting.pop_front()
    }

    /// The call of a process is done; returns the process, by its slot, whose turn to write is next.
    pub fn end_turn(&mut self, slot: u32, rank: &Rank, io: &IoContext<'_, '_>) -> Option<u32> {
        let local = io.job.topology.location(io.job.node_of(rank.rank)).local;
        let node = &mut self.nodes[usize::from(local)];
        if node.writer != Some(slot) {
            return None;
        }
        node.writer = node.next_writers.pop_front();
        node.writer
    }

    /// Prepares an fsync of the data that a process wrote in this phase; returns the number of its
    /// requests, one for each server that has any of them.
    pub fn begin_sync(&mut self, rank: &Rank, io: &IoContext<'_, '_>) -> u64 {
        let servers = servers_written(rank, io);
        let requests = servers.len() as u64;
        self.synced.insert(rank.rank, servers);
        requests
    }

    /// Accepts a packet from a server; true if it completes its request.
    pub fn receive_reply(
        &mut self,
        kind: ReplyKind,
        packet: &Packet,
        io: &mut IoContext<'_, '_>,
    ) -> bool {
        let tag = packet.tag();
        match kind {
            ReplyKind::Done => true,
            ReplyKind::FetchData => {
                let ready = self.reserve_process(tag, OUT, io.now(), io);
                io.waits_of(tag, packet.dst).client += ready - io.now();
                if ready > io.now() {
                    io.schedule(ready, ClientEvent::WriteDataReady(tag));
                } else {
                    self.move_write_data(tag, io);
                }
                false
            }
            ReplyKind::ReadData => {
                let missing = self.incoming.entry(tag).or_insert_with(|| bytes_of_request(tag, io));
                assert!(
                    *missing >= u64::from(packet.bytes),
                    "more data than requested: {packet:?}"
                );
                *missing -= u64::from(packet.bytes);
                if *missing > 0 {
                    return false;
                }
                self.incoming.remove(&tag);
                let bytes = bytes_of_request(tag, io);
                io.count_network_wait(packet, packet.dst, bytes);
                let at_node = self.reserve_data_path(tag, IN, bytes, io);
                let at = self.reserve_process(tag, IN, at_node, io);
                io.waits_of(tag, packet.dst).client += at - io.now();
                if at > io.now() {
                    io.schedule(at, ClientEvent::RequestDone(tag));
                    return false;
                }
                true
            }
        }
    }

    /// Moves the data of a write to a node's interface when the client has time for it.
    pub fn move_write_data(&mut self, tag: u64, io: &mut IoContext<'_, '_>) {
        let bytes = bytes_of_request(tag, io);
        let at = self.reserve_data_path(tag, OUT, bytes, io);
        let node = io.job.node_of(RequestTag::unpack(tag).rank);
        io.waits_of(tag, node).client += at - io.now();
        if at > io.now() {
            io.schedule(at, ClientEvent::SendWriteData(tag));
        } else {
            send_write_data(tag, io);
        }
    }

    /// Reserves the client's work for one process, whose data of a request are at its node at the time `from`; returns
    /// its end.
    fn reserve_process(
        &mut self,
        tag: u64,
        direction: usize,
        from: u64,
        io: &IoContext<'_, '_>,
    ) -> u64 {
        let rank = RequestTag::unpack(tag).rank;
        let rates = io.job.client_of(rank).process;
        let Some(rate) = (if direction == OUT { rates.write } else { rates.read }) else {
            return from;
        };
        let moved = self.moved.entry(rank).or_default();
        *moved = from.max(*moved) + rate.time_for(Bytes(bytes_of_request(tag, io))).0;
        *moved
    }

    /// Reserves the data path of a node's client in one direction, and returns the time at which
    /// the data before these are moved.
    fn reserve_data_path(
        &mut self,
        tag: u64,
        direction: usize,
        bytes: u64,
        io: &IoContext<'_, '_>,
    ) -> u64 {
        let rank = RequestTag::unpack(tag).rank;
        let client = io.job.client_of(rank);
        let rate = if direction == OUT { client.write_rate } else { client.read_rate };
        let local = usize::from(io.job.topology.location(io.job.node_of(rank)).local);
        let free = &mut self.nodes[local].free[direction];
        let at = (*free).max(io.now());
        *free = at + rate.time_for(Bytes(bytes)).0;
        at
    }

    /// Server and kind of the next request of a call; `None` if the rest of a window is a hole.
    fn next_request(
        &mut self,
        rank: &mut Rank,
        io: &IoContext<'_, '_>,
    ) -> Option<(u32, RequestKind)> {
        let is_sync = rank.activity == Activity::Other
            && io.job.steps[rank.step as usize].action == Action::Fsync;
        if !is_sync {
            return next_request(rank, io);
        }
        rank.offset += 1;
        let server = match self.synced.get_mut(&rank.rank) {
            Some(servers) => servers.pop(),
            None => None,
        };
        if rank.offset == rank.end {
            self.synced.remove(&rank.rank);
        }
        server.map(|server| (server, RequestKind::Sync))
    }
}

/// Bytes of the request of a tag.
pub(super) fn bytes_of_request(tag: u64, io: &IoContext<'_, '_>) -> u64 {
    let (_, piece) = io.position.piece(RequestTag::unpack(tag), io.job);
    piece.bytes
}

/// The servers with data that a process wrote in this phase.
fn servers_written(rank: &Rank, io: &IoContext<'_, '_>) -> Vec<u32> {
    let (job, pattern) = (io.job, &io.position.pattern);
    let all = job.storage.data_servers().len();
    let mut servers = Vec::new();
    for nth in 0..rank.transfer {
        let transfer = pattern.transfer(rank.rank, io.position.access, nth);
        let (mut offset, end) = (transfer.offset, transfer.offset + transfer.bytes);
        while offset < end && servers.len() < all {
            let server = job.server_of(transfer.file, offset);
            if !servers.contains(&server) {
                servers.push(server);
            }
            offset = (offset / job.burst_buffer.stripe.0 + 1) * job.burst_buffer.stripe.0;
        }
        if servers.len() == all {
            break;
        }
    }
    if servers.is_empty() {
        servers.push(job.server_of(pattern.file(rank.rank, io.position.access), 0));
    }
    servers
}

/// Server and kind of the next request of a call; `None` if the rest of a window is a hole.
fn next_request(rank: &mut Rank, io: &IoContext<'_, '_>) -> Option<(u32, RequestKind)> {
    let (job, position) = (io.job, io.position);
    let file = position.pattern.file(rank.rank, position.access);
    let piece = match rank.activity {
        Activity::Window => {
            let call = position.collective_call(rank.transfer, job);
            call.pieces_in(rank.offset..rank.end, job).next()
        }
        Activity::Transfer | Activity::SyncWrite => {
            job.pieces(rank.offset, rank.end - rank.offset).next()
        }
        Activity::Other => return Some(next_other_request(rank, io)),
        Activity::Idle
        | Activity::Barrier
        | Activity::Collective
        | Activity::Counts
        | Activity::Exchange
        | Activity::Exchanged
        | Activity::WearOut => unreachable!("no call is in progress: {rank:?}"),
    };
    let Some(piece) = piece else {
        rank.offset = rank.end;
        return None;
    };
    rank.offset = piece.offset + piece.bytes;
    let kind = match (rank.activity, position.access) {
        (Activity::SyncWrite, _) => RequestKind::Sync,
        (_, Access::Write) => RequestKind::Write,
        (_, Access::Read) => RequestKind::Read,
    };
    Some((job.server_of(file, piece.offset), kind))
}

/// Server and kind of the next request of a call that is no transfer.
fn next_other_request(rank: &mut Rank, io: &IoContext<'_, '_>) -> (u32, RequestKind) {
    let (job, position) = (io.job, io.position);
    let (pattern, access) = (&position.pattern, position.access);
    let file = pattern.file(rank.rank, access);
    rank.offset += 1;
    match job.steps[rank.step as usize].action {
        Action::Remove | Action::RemoveExisting => {
            let file = pattern.file_removed_by(rank.rank).unwrap_or(file);
            (job.metadata_server_of(file), RequestKind::Metadata)
        }
        Action::Open(_) | Action::Close(_) | Action::MakeDirectories => {
            (job.metadata_server_of(file), RequestKind::Metadata)
        }
        action @ (Action::Begin(_)
        | Action::Delay(_)
        | Action::Barrier
        | Action::Transfer(_)
        | Action::Fsync
        | Action::End(_)) => unreachable!("{action:?} makes no such requests: {rank:?}"),
    }
}

/// Sends the data of a write to the server that fetches them.
pub(super) fn send_write_data(bits: u64, io: &mut IoContext<'_, '_>) {
    let tag = RequestTag::unpack(bits);
    let (file, piece) = io.position.piece(tag, io.job);
    let (client, server) = (io.job.node_of(tag.rank), io.job.server_of(file, piece.offset));
    let server = io.job.storage.node_of(server);
    io.send(client, server, PacketKind::WriteData, piece.bytes, bits);
}
