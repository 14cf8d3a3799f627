//! Synthetic traffic: nodes that send messages at random times to nodes of their job.

use crate::event::{Event, GroupContext, PacketKind};
use crate::steady::Slices;
use forebay_engine::{Queue, prefetch};
use forebay_network::{Fabric, Message, Packet, Topology};
use forebay_random::{RandomStream, stream_label};
use forebay_workload::traffic::{Arrivals, Destinations};
use std::collections::HashMap;
use std::sync::Arc;

/// A job that sends traffic.
pub(crate) struct TrafficJob {
    /// Its number among the jobs with traffic of the simulation.
    pub number: u8,
    /// Node numbers of the job's nodes.
    pub nodes: Vec<u32>,
    pub destinations: Destinations,
    pub arrivals: Arrivals,
    pub message_bytes: u64,
    /// Greatest rate at which a node sends, bytes per second; `None`: that of its links.
    pub rate_limit: Option<u64>,
    /// Rate of one interface of a node, bytes per second.
    pub interface_rate: f64,
    pub generation: Generation,
    pub seed: u64,
    /// Time in which the messages are expected to be generated, ps.
    pub span: f64,
    /// End of its warm-up, from which its messages are counted, ps.
    pub counted_from: u64,
}

/// The end of a job's messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Generation {
    /// Each node sends a number of messages.
    Messages(u64),
    /// Each node sends what it can before a time, ps.
    Until(u64),
    /// Each node sends what it can before the other job of the run has ended.
    UntilOtherEnds,
}

impl TrafficJob {
    /// Position of the job's number in tags; nodes have numbers below 2^24.
    const JOB_SHIFT: u32 = 56;

    /// The number of the job whose message a packet is of, if it is one of traffic.
    #[inline]
    pub fn number_of(packet: &Packet) -> usize {
        (packet.tag() >> Self::JOB_SHIFT) as usize
    }

    /// Rate at which each node sends if the network accepts it, bytes per second.
    pub fn node_rate(&self) -> f64 {
        let offered = self.message_bytes as f64 / self.arrivals.mean_seconds();
        self.rate_limit.map_or(offered, |limit| offered.min(limit as f64))
    }

    /// Time for which a message takes the rate limit, ps.
    fn limited_time(&self) -> u64 {
        let time = |limit: u64| {
            u128::from(self.message_bytes) * 1_000_000_000_000 / u128::from(limit.max(1))
        };
        self.rate_limit.map_or(0, |limit| time(limit) as u64)
    }

    /// Random streams of a node of the job: for gaps and for destinations.
    fn random_streams(&self, index: u32) -> (RandomStream, RandomStream) {
        random_streams(self.seed, index)
    }
}

fn random_streams(seed: u64, index: u32) -> (RandomStream, RandomStream) {
    let of = |label| RandomStream::of_unit(seed, stream_label(label), index.into());
    (of("traffic gaps"), of("traffic destinations"))
}

/// One sending node.
#[derive(Clone)]
struct Source {
    /// Number of the node within the job.
    index: u32,
    /// Next message, counted from 0.
    next: u64,
    /// Time at which it is ready, ps.
    at: u64,
    gaps: RandomStream,
    destinations: RandomStream,
    /// Waits for a free slot of the interface.
    blocked: bool,
    /// Time from which the job's rate limit lets it send the next message, ps.
    allowed: u64,
}

impl Source {
    /// The next message.
    fn advance(&mut self, arrivals: &Arrivals) {
        self.next += 1;
        self.at += arrivals.gap(self.gaps.at(self.next)).0;
    }

    /// Drops the messages that became ready before `end`; they have been offered.
    fn give_up(&mut self, end: u64, job: &TrafficJob, slices: &mut Slices) {
        while self.at < end {
            slices.count_offered(self.at, job.message_bytes);
            self.advance(&job.arrivals);
        }
    }
}

/// The traffic of one group: its sending nodes, and what its nodes have received.
#[derive(Clone)]
pub(crate) struct Traffic {
    job: Arc<TrafficJob>,
    /// By the node's number within the group; `None`: not of the job.
    sources: Vec<Option<Source>>,
    /// Bytes missing of messages that arrived in part, by tag.
    partial: HashMap<u64, u64>,
    pub messages_sent: u64,
    pub messages_delivered: u64,
    pub slices: Slices,
    /// Time at which the generation of messages ended, ps.
    stopped_at: Option<u64>,
}

impl Traffic {
    /// The traffic of one group, with the first event of each of its sources in `queue`.
    pub fn new(
        job: &Arc<TrafficJob>,
        topology: &Topology,
        group: u16,
        queue: &mut Queue<Event>,
    ) -> Self {
        let nodes = topology.nodes_of_group(group);
        let mut sources: Vec<Option<Source>> = nodes.iter().map(|_| None).collect();
        for (index, &node) in (0..).zip(&job.nodes) {
            let location = topology.location(node);
            if location.group == group {
                let (gaps, destinations) = job.random_streams(index);
                let at = job.arrivals.gap(gaps.at(0)).0;
                let local = location.local;
                queue.push(at, Event::traffic_key(local), Event::GenerateTraffic(local));
                sources[usize::from(local)] = Some(Source {
                    index,
                    next: 0,
                    at,
                    gaps,
                    destinations,
                    blocked: false,
                    allowed: 0,
                });
            }
        }
        Traffic {
            job: job.clone(),
            sources,
            partial: HashMap::new(),
            messages_sent: 0,
            messages_delivered: 0,
            slices: match job.counted_from {
                0 => Slices::new(job.span),
                from => Slices::without_span(from),
            },
            stopped_at: None,
        }
    }

    /// Goes on at the end of the warm-up as a job that differs only in the end of its messages.
    pub fn go_on_as(&mut self, job: &Arc<TrafficJob>) {
        let same = |job: &TrafficJob| (job.number, job.seed, job.counted_from, job.message_bytes);
        assert!(same(&self.job) == same(job) && self.job.nodes == job.nodes, "another job");
        self.slices.set_span(job.span);
        self.job = job.clone();
    }

    /// Ends the generation of messages. Those that were ready before and could not be sent have been
    /// offered.
    pub fn stop(&mut self, now: u64) {
        if self.stopped_at.is_some() {
            return;
        }
        self.stopped_at = Some(now);
        for source in self.sources.iter_mut().flatten() {
            source.give_up(now, &self.job, &mut self.slices);
        }
    }

    /// Time at which the generation of messages ended, ps, if it has.
    pub fn stopped_at(&self) -> Option<u64> {
        self.stopped_at
    }

    /// Counts a packet that has arrived.
    pub fn receive(&mut self, packet: &Packet, now: u64) {
        let bytes = u64::from(packet.bytes);
        self.slices.count_delivered(packet.born(), now, bytes);
        if bytes == self.job.message_bytes {
            self.messages_delivered += 1;
            return;
        }
        let missing = self.partial.entry(packet.tag()).or_insert(self.job.message_bytes);
        assert!(*missing >= bytes, "more bytes than the message: {packet:?}");
        *missing -= bytes;
        if *missing == 0 {
            self.partial.remove(&packet.tag());
            self.messages_delivered += 1;
        }
    }

    /// Whether a node of the group is of the job.
    pub fn has(&self, local: u16) -> bool {
        self.sources[usize::from(local)].is_some()
    }

    /// Prefetches the source of a node.
    #[inline]
    pub fn prefetch(&self, local: u16) {
        prefetch(&self.sources[usize::from(local)]);
    }

    /// Sends the messages that are ready at a node, as far as its interface has free slots.
    pub fn generate(&mut self, local: u16, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        let job = &*self.job;
        let Some(source) = &mut self.sources[usize::from(local)] else {
            unreachable!("node {local} of the group is not of the traffic job")
        };
        let limited = job.limited_time();
        let (last, until) = match job.generation {
            Generation::Messages(count) => (count, u64::MAX),
            Generation::Until(time) => (u64::MAX, time),
            Generation::UntilOtherEnds => (u64::MAX, self.stopped_at.unwrap_or(u64::MAX)),
        };
        if context.now >= until {
            source.give_up(until, job, &mut self.slices);
            return;
        }
        while source.next < last && source.at < until {
            let ready = source.at.max(source.allowed);
            if ready > context.now {
                let event = Event::GenerateTraffic(local);
                context.queue.push(ready, Event::traffic_key(local), event);
                return;
            }
            if fabric.free_message_slots(local) == 0 {
                source.blocked = true;
                return;
            }
            let random = source.destinations.at(source.next);
            let to = job.destinations.destination(source.index, source.next, random);
            let message = Message {
                to: job.nodes[to as usize],
                bytes: job.message_bytes,
                tag: (u64::from(job.number) << TrafficJob::JOB_SHIFT)
                    | (u64::from(source.index) << 32)
                    | (source.next & 0xffff_ffff),
                kind: PacketKind::Traffic.number(),
                class: PacketKind::Traffic.class(),
                born: source.at,
            };
            self.slices.count_offered(source.at, job.message_bytes);
            source.advance(&job.arrivals);
            source.allowed = context.now + limited;
            self.messages_sent += 1;
            fabric.send(job.nodes[source.index as usize], message, context);
        }
    }

    /// Continues at a node whose interface has free slots again.
    pub fn unblock(&mut self, local: u16, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        if let Some(Some(source)) = self.sources.get_mut(usize::from(local))
            && source.blocked
        {
            source.blocked = false;
            self.generate(local, fabric, context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that the streams of nodes have in common with those of other nodes and seeds would
    /// make runs with different seeds the same run, shifted by a node.
    #[test]
    fn seeds_share_no_part_of_the_streams_of_nodes() {
        let mut seen = std::collections::HashSet::new();
        for seed in 1..=4 {
            for node in 0..500 {
                let (gaps, destinations) = random_streams(seed, node);
                for message in 0..4 {
                    assert!(seen.insert(gaps.at(message)), "seed {seed}, node {node}");
                    assert!(seen.insert(destinations.at(message)), "seed {seed}, node {node}");
                }
            }
        }
    }
}
