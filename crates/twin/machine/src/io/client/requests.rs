//! The requests of a call: sent to servers, fed with data, answered.

use super::{Doing, Tag, kind};
use crate::group::{Group, Io};
use crate::io::IoJob;
use forebay_engine::Context;
use forebay_network::{Message, Packet};
use forebay_units::Bytes;
use forebay_workload::ior::{Access, Action};

impl Group {
    /// Sends as many requests of the call as may be under way.
    pub(crate) fn issue(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let state = *self.rank(slot);
        let step = job.steps[state.step as usize];
        let layout = self.layout(job);
        let access = self.clients.access;
        let mut rank = state;
        while rank.offset < rank.end && rank.open < job.client.requests_in_flight {
            let file = layout.file(rank.rank, access);
            let (server, request_kind) = match rank.doing {
                Doing::Transfer | Doing::SyncWrite | Doing::Window => {
                    let piece = match rank.doing {
                        Doing::Window => {
                            let call = self.clients.collective(rank.transfer, job);
                            call.pieces_in(rank.offset..rank.end, job).next()
                        }
                        _ => job.pieces(rank.offset, rank.end - rank.offset).next(),
                    };
                    let Some(piece) = piece else {
                        rank.offset = rank.end; // what is left of a window is a hole
                        break;
                    };
                    rank.offset = piece.offset + piece.bytes;
                    let kind = match (rank.doing, access) {
                        (Doing::SyncWrite, _) => kind::SYNC,
                        (_, Access::Write) => kind::WRITE,
                        (_, Access::Read) => kind::READ,
                    };
                    (job.server_of(file, piece.offset), kind)
                }
                _ => {
                    rank.offset += 1;
                    match step.action {
                        Action::Fsync => {
                            let first = layout.transfer(rank.rank, access, 0).offset;
                            let nth = u64::from(rank.sent) * job.burst_buffer.stripe.0;
                            (job.server_of(file, first + nth), kind::SYNC)
                        }
                        Action::Remove | Action::RemoveExisting => {
                            let file = layout.file_removed_by(rank.rank).unwrap_or(file);
                            (job.first_server(file), kind::METADATA)
                        }
                        _ => (job.first_server(file), kind::METADATA),
                    }
                }
            };
            let tag = Tag {
                rank: rank.rank,
                call: rank.transfer,
                request: rank.sent,
            };
            rank.sent += 1;
            rank.open += 1;
            let message = Message {
                to: job.servers[server],
                bytes: job.client.control_message.0,
                tag: tag.pack(),
                kind: request_kind,
                born: context.now,
            };
            self.fabric.send(job.node_of(rank.rank), message, context);
        }
        *self.rank(slot) = rank;
    }

    /// A packet for a client of this group has come.
    pub(crate) fn answer_client(&mut self, packet: &Packet, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let tag = Tag::unpack(packet.tag());
        match packet.kind() {
            kind::GET => {
                let (_, piece) = self.clients.piece(tag, job);
                let at = self.pace(packet.dst, 0, piece.bytes, job, context.now);
                if at > context.now {
                    self.later(at, Io::Feed(packet.tag()), context);
                } else {
                    self.feed(packet.tag(), context);
                }
            }
            kind::READ_DATA => {
                let left = match self.clients.coming.get_mut(&packet.tag()) {
                    Some(left) => left,
                    None => {
                        let (_, piece) = self.clients.piece(tag, job);
                        self.clients
                            .coming
                            .entry(packet.tag())
                            .or_insert(piece.bytes)
                    }
                };
                *left -= u64::from(packet.bytes);
                if *left == 0 {
                    self.clients.coming.remove(&packet.tag());
                    let (_, piece) = self.clients.piece(tag, job);
                    self.count_network(packet, packet.dst, piece.bytes, context.now);
                    let at = self.pace(packet.dst, 1, piece.bytes, job, context.now);
                    if at > context.now {
                        self.later(at, Io::Through(packet.tag()), context);
                    } else {
                        self.request_done(packet.tag(), context);
                    }
                }
            }
            _ => self.request_done(packet.tag(), context),
        }
    }

    /// When a node's client has moved the data before these, in one direction. The limit of the
    /// client matters only where the node's link is faster.
    fn pace(&mut self, node: u32, direction: usize, bytes: u64, job: &IoJob, now: u64) -> u64 {
        if job.client.node_rate >= self.world.network.node.rate {
            return now;
        }
        let local = usize::from(self.world.topology.location(node).local);
        let free = &mut self.clients.node_free[local][direction];
        let at = (*free).max(now);
        *free = at + job.client.node_rate.time_for(Bytes(bytes)).0;
        at
    }

    /// Sends the data of a write to the server that asked for them.
    pub(crate) fn feed(&mut self, bits: u64, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let tag = Tag::unpack(bits);
        let (file, piece) = self.clients.piece(tag, job);
        let message = Message {
            to: job.servers[job.server_of(file, piece.offset)],
            bytes: piece.bytes,
            tag: bits,
            kind: kind::WRITE_DATA,
            born: context.now,
        };
        self.fabric.send(job.node_of(tag.rank), message, context);
    }

    /// A request is through; perhaps its call is, too.
    pub(crate) fn request_done(&mut self, bits: u64, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let slot = job.slot_of_rank[Tag::unpack(bits).rank as usize];
        self.rank(slot).open -= 1;
        if !self.rank(slot).is_through() {
            self.issue(slot, context);
            if !self.rank(slot).is_through() {
                return;
            }
        }
        match self.rank(slot).doing {
            Doing::Transfer => self.transfer_done(slot, job, context),
            Doing::Window => self.window_done(slot, context),
            Doing::SyncWrite => {
                self.rank(slot).transfer += 1;
                self.next_transfer(slot, context);
            }
            _ => self.call_done(slot, job, context),
        }
    }
}
