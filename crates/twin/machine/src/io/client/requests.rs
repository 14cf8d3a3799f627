//! The requests of a call: sent to servers, supplied with data, completed.

use super::rank::{Activity, Rank};
use crate::event::{ClientEvent, PacketKind, ReplyKind, RequestKind};
use crate::io::context::IoContext;
use crate::io::job::RequestTag;
use forebay_network::Packet;
use forebay_units::Bytes;
use forebay_workload::ior::{Access, Action};
use rustc_hash::FxHashMap;

/// Directions of a node's data path.
const OUT: usize = 0;
const IN: usize = 1;

/// Data of requests on their way to and from the nodes of one group.
pub(super) struct Requests {
    /// Bytes missing of read requests, by tag.
    incoming: FxHashMap<u64, u64>,
    /// Times at which each node's client is free to move more data out and in, ps.
    node_free: Vec<[u64; 2]>,
}

impl Requests {
    /// For a group with `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        Requests { incoming: FxHashMap::default(), node_free: vec![[0; 2]; nodes] }
    }

    /// Sends as many requests of the call as may be in flight.
    pub fn issue(&self, rank: &mut Rank, io: &mut IoContext<'_, '_>) {
        while rank.offset < rank.end && rank.in_flight < io.job.client.requests_in_flight {
            let Some((server, kind)) = next_request(rank, io) else {
                break;
            };
            let tag = RequestTag { rank: rank.rank, call: rank.transfer, request: rank.sent };
            rank.sent += 1;
            rank.in_flight += 1;
            let client = io.job.node_of(rank.rank);
            io.send(client, server, PacketKind::Request(kind), 0, tag.pack());
        }
    }

    /// Accepts a packet from a server; true if it completes its request.
    pub fn receive_reply(
        &mut self,
        kind: ReplyKind,
        packet: &Packet,
        io: &mut IoContext<'_, '_>,
    ) -> bool {
        let tag = packet.tag();
        let bytes_of_request = |io: &IoContext<'_, '_>| {
            let (_, piece) = io.position.piece(RequestTag::unpack(tag), io.job);
            piece.bytes
        };
        match kind {
            ReplyKind::Done => true,
            ReplyKind::FetchData => {
                let bytes = bytes_of_request(io);
                let at = self.reserve_data_path(packet.dst, OUT, bytes, io);
                if at > io.now() {
                    io.schedule(at, ClientEvent::SendWriteData(tag));
                } else {
                    send_write_data(tag, io);
                }
                false
            }
            ReplyKind::ReadData => {
                let missing = self.incoming.entry(tag).or_insert_with(|| bytes_of_request(io));
                assert!(
                    *missing >= u64::from(packet.bytes),
                    "more data than requested: {packet:?}"
                );
                *missing -= u64::from(packet.bytes);
                if *missing > 0 {
                    return false;
                }
                self.incoming.remove(&tag);
                let bytes = bytes_of_request(io);
                io.count_network_wait(packet, packet.dst, bytes);
                let at = self.reserve_data_path(packet.dst, IN, bytes, io);
                if at > io.now() {
                    io.schedule(at, ClientEvent::RequestDone(tag));
                    return false;
                }
                true
            }
        }
    }

    /// Reserves the data path of a node's client in one direction, and returns the time at which
    /// the data before these are moved. The client's limit matters only where the node's link is
    /// faster.
    fn reserve_data_path(
        &mut self,
        node: u32,
        direction: usize,
        bytes: u64,
        io: &IoContext<'_, '_>,
    ) -> u64 {
        let rate = io.job.client.node_rate;
        if rate >= io.job.node_link {
            return io.now();
        }
        let local = usize::from(io.job.topology.location(node).local);
        let free = &mut self.node_free[local][direction];
        let at = (*free).max(io.now());
        *free = at + rate.time_for(Bytes(bytes)).0;
        at
    }
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
        Action::Fsync => {
            let first = pattern.transfer(rank.rank, access, 0).offset;
            let nth = u64::from(rank.sent) * job.burst_buffer.stripe.0;
            (job.server_of(file, first + nth), RequestKind::Sync)
        }
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
        | Action::End(_)) => unreachable!("{action:?} makes no requests: {rank:?}"),
    }
}

/// Sends the data of a write to the server that fetches them.
pub(super) fn send_write_data(bits: u64, io: &mut IoContext<'_, '_>) {
    let tag = RequestTag::unpack(bits);
    let (file, piece) = io.position.piece(tag, io.job);
    let (client, server) = (io.job.node_of(tag.rank), io.job.server_of(file, piece.offset));
    io.send(client, server, PacketKind::WriteData, piece.bytes, bits);
}
