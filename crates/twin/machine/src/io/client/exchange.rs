//! Collective transfers: aggregators gather and hand out what their windows hold.
//!
//! To write, the aggregator of a window asks the processes of other nodes for their bytes, copies
//! those of its own node's, and writes when all are there. To read, it reads first and then sends
//! and copies. A process is through with a call when it has its bytes and, if it is an aggregator,
//! its windows are done; the call ends when all processes are.

use super::{Doing, Rank, Tag, kind};
use crate::group::{Group, Io};
use crate::io::IoJob;
use crate::io::barrier::BarrierArrivals;
use forebay_engine::Context;
use forebay_network::{Message, Packet};
use forebay_units::Bytes;
use forebay_workload::ior::Access;
use std::ops::Range;

impl Group {
    /// All have come to a collective call: the first phase begins.
    pub(super) fn begin_collective(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let reads = self.clients.access == Access::Read;
        let rank = self.rank(slot);
        (rank.doing, rank.sent, rank.open) = (Doing::Sharing, 0, 0);
        rank.due = if reads {
            job.layout.transfer_bytes()
        } else {
            0
        };
        if rank.rank.is_multiple_of(job.ppn) {
            rank.window = 0;
            self.begin_window(slot, job, context);
        } else {
            rank.window = u32::MAX;
            self.perhaps_shared(slot, context);
        }
    }

    /// A window of an aggregator, if there is one of that number.
    fn window(&self, aggregator: u32, call: u64, window: u32, job: &IoJob) -> Option<Range<u64>> {
        let mut windows = self.clients.collective(call, job).windows(aggregator);
        windows.nth(window as usize)
    }

    /// An aggregator comes to its next window, or has had its last.
    fn begin_window(&mut self, slot: u32, job: &IoJob, context: &mut Context<'_, Self>) {
        let state = *self.rank(slot);
        let node = self.layout(job).node_of(state.rank);
        let Some(window) = self.window(node, state.transfer, state.window, job) else {
            self.rank(slot).window = u32::MAX;
            return self.perhaps_shared(slot, context);
        };
        let rank = self.rank(slot);
        (rank.offset, rank.end) = (window.start, window.end);
        if self.clients.access == Access::Read {
            return self.access_window(slot, job, context);
        }
        let (mut due, mut local) = (0, 0);
        for (other, bytes) in self.shares(state.transfer, window, job) {
            due += bytes;
            if self.layout(job).node_of(other) == node {
                local += bytes;
            } else {
                self.tell(&state, other, kind::ASK, 0, job, context);
            }
        }
        self.rank(slot).due = due;
        if local > 0 {
            let at = context.now + job.client.copy_rate.time_for(Bytes(local)).0;
            self.later(at, Io::Copied(slot), context);
        }
    }

    fn shares(&self, call: u64, window: Range<u64>, job: &IoJob) -> Vec<(u32, u64)> {
        self.clients.collective(call, job).shares(window).collect()
    }

    /// An aggregator sends a message about its window to a process on another node: `bytes` of data,
    /// or 0 for a control message.
    fn tell(
        &mut self,
        aggregator: &Rank,
        other: u32,
        kind: u8,
        bytes: u64,
        job: &IoJob,
        context: &mut Context<'_, Self>,
    ) {
        let tag = Tag {
            rank: other,
            call: aggregator.transfer,
            request: aggregator.window,
        };
        let message = Message {
            to: job.node_of(other),
            bytes: if bytes == 0 {
                job.client.control_message.0
            } else {
                bytes
            },
            tag: tag.pack(),
            kind,
            born: context.now,
        };
        self.fabric
            .send(job.node_of(aggregator.rank), message, context);
    }

    /// The second phase of a write, the first of a read: an aggregator accesses the file.
    fn access_window(&mut self, slot: u32, job: &IoJob, context: &mut Context<'_, Self>) {
        self.rank(slot).doing = Doing::Window;
        let at = context.now + job.client.call_overhead.0;
        self.later(at, Io::Issue(slot), context);
    }

    /// An aggregator has accessed the file for a window.
    pub(super) fn window_done(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let state = *self.rank(slot);
        self.rank(slot).doing = Doing::Sharing;
        if self.clients.access == Access::Write {
            self.rank(slot).window += 1;
            return self.begin_window(slot, job, context);
        }
        let node = self.layout(job).node_of(state.rank);
        let Some(window) = self.window(node, state.transfer, state.window, job) else {
            unreachable!("a window that was read is there: {state:?}")
        };
        let mut local = 0;
        for (other, bytes) in self.shares(state.transfer, window, job) {
            if self.layout(job).node_of(other) == node {
                local += bytes;
            } else {
                self.tell(&state, other, kind::DELIVER, bytes, job, context);
            }
        }
        if local > 0 {
            let at = context.now + job.client.copy_rate.time_for(Bytes(local)).0;
            self.later(at, Io::Copied(slot), context);
        } else {
            self.rank(slot).window += 1;
            self.begin_window(slot, job, context);
        }
    }

    /// An aggregator has copied what processes of its node have, or want, of its window.
    pub(crate) fn copied(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let state = *self.rank(slot);
        let node = self.layout(job).node_of(state.rank);
        let Some(window) = self.window(node, state.transfer, state.window, job) else {
            unreachable!("a window that is copied is there: {state:?}")
        };
        let local = self
            .shares(state.transfer, window, job)
            .into_iter()
            .filter(|&(other, _)| self.layout(job).node_of(other) == node)
            .collect::<Vec<_>>();
        if self.clients.access == Access::Write {
            let bytes = local.iter().map(|&(_, bytes)| bytes).sum();
            return self.gathered(slot, bytes, job, context);
        }
        for (other, bytes) in local {
            self.took(job.slot_of_rank[other as usize], bytes, context);
        }
        self.rank(slot).window += 1;
        self.begin_window(slot, job, context);
    }

    /// Bytes of an aggregator's window have come.
    fn gathered(&mut self, slot: u32, bytes: u64, job: &IoJob, context: &mut Context<'_, Self>) {
        self.rank(slot).due -= bytes;
        if self.rank(slot).due == 0 {
            self.access_window(slot, job, context);
        }
    }

    /// Bytes that a process wanted have come to it.
    fn took(&mut self, slot: u32, bytes: u64, context: &mut Context<'_, Self>) {
        self.rank(slot).due -= bytes;
        self.perhaps_shared(slot, context);
    }

    /// Goes to wait for the others when nothing is left to do in a collective call.
    fn perhaps_shared(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let rank = self.rank(slot);
        if rank.doing == Doing::Sharing && rank.due == 0 && rank.window == u32::MAX {
            rank.doing = Doing::Shared;
            self.arrive(BarrierArrivals::WITHIN_STEP, 0, context);
        }
    }

    /// A packet between an aggregator and another process has come.
    pub(crate) fn exchange(&mut self, packet: &Packet, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let (tag, bytes) = (Tag::unpack(packet.tag()), u64::from(packet.bytes));
        match packet.kind() {
            kind::ASK => {
                let message = Message {
                    to: packet.src,
                    bytes: self.share(tag, packet.src, job),
                    tag: packet.tag(),
                    kind: kind::SHARE,
                    born: context.now,
                };
                self.fabric.send(packet.dst, message, context);
            }
            kind::SHARE => {
                self.note_share(packet, packet.dst, job, context.now);
                let aggregator = job.aggregator_on(job.index_of_node[&packet.dst]);
                let slot = job.slot_of_rank[aggregator as usize];
                self.gathered(slot, bytes, job, context);
            }
            _ => {
                self.note_share(packet, packet.src, job, context.now);
                self.took(job.slot_of_rank[tag.rank as usize], bytes, context);
            }
        }
    }

    /// Bytes that a rank has, or wants, of the window of the aggregator on a node.
    fn share(&self, tag: Tag, aggregators_node: u32, job: &IoJob) -> u64 {
        let aggregator = job.index_of_node[&aggregators_node];
        let window = self.window(aggregator, tag.call, tag.request, job);
        let shares = window.map(|window| self.shares(tag.call, window, job));
        let of_rank = shares.into_iter().flatten().filter(|s| s.0 == tag.rank);
        of_rank.map(|(_, bytes)| bytes).sum()
    }

    /// Counts what the network cost when the last packet of a share has come.
    fn note_share(&mut self, packet: &Packet, aggregators_node: u32, job: &IoJob, now: u64) {
        let key = (packet.tag(), aggregators_node);
        let left = match self.clients.shares.get(&key) {
            Some(&left) => left,
            None => self.share(Tag::unpack(packet.tag()), aggregators_node, job),
        } - u64::from(packet.bytes);
        if left > 0 {
            self.clients.shares.insert(key, left);
        } else {
            self.clients.shares.remove(&key);
            let all = self.share(Tag::unpack(packet.tag()), aggregators_node, job);
            self.count_network(packet, packet.dst, all, now);
        }
    }

    /// All are through with a collective call.
    pub(super) fn collective_done(&mut self, slot: u32, context: &mut Context<'_, Self>) {
        let world = self.world.clone();
        let Some(job) = &world.io else { return };
        let Rank { rank, transfer, .. } = *self.rank(slot);
        let own = self
            .layout(job)
            .transfer(rank, self.clients.access, transfer);
        let state = self.rank(slot);
        (state.offset, state.end) = (own.offset + own.bytes, own.offset + own.bytes);
        self.transfer_done(slot, job, context);
    }
}
