//! Synthetic traffic: nodes that send messages at random times to nodes of their job.

use crate::group::{Event, Group, key};
use crate::scenario::Scenario;
use forebay_engine::{Context, Queue};
use forebay_network::{Message, Packet};
use forebay_workload::random::{RandomStream, stream_label};
use forebay_workload::traffic::{Arrivals, Destinations};
use std::collections::HashMap;

/// `Packet::kind` of traffic.
pub(crate) const KIND: u8 = 0;

/// A job that sends traffic.
pub(crate) struct TrafficJob {
    /// Node numbers of the job's nodes.
    pub nodes: Vec<u32>,
    pub destinations: Destinations,
    pub arrivals: Arrivals,
    pub message_bytes: u64,
    /// Messages each node sends; `None`: until the other job of the run has ended.
    pub messages: Option<u64>,
    pub seed: u64,
    /// Between these times, in ps, deliveries count for the accepted load.
    pub measured: (u64, u64),
    /// Time in which the messages are expected to be made, ps.
    pub span: f64,
}

impl TrafficJob {
    fn random(&self, index: u32) -> (RandomStream, RandomStream) {
        let node = u64::from(index);
        (
            RandomStream::new(self.seed.wrapping_add(node), stream_label("traffic gaps")),
            RandomStream::new(
                self.seed.wrapping_add(node),
                stream_label("traffic destinations"),
            ),
        )
    }
}

/// One sending node.
struct Source {
    /// Number of the node within the job.
    index: u32,
    /// Next message, counted from 0.
    next: u64,
    /// When it is ready, ps.
    at: u64,
    gaps: RandomStream,
    destinations: RandomStream,
    /// Waits for room at the interface.
    blocked: bool,
}

/// The sending nodes of one group, and what its nodes received.
#[derive(Default)]
pub(crate) struct TrafficSources {
    /// By the node's number within the group; `None`: not of the job.
    sources: Vec<Option<Source>>,
    /// Bytes still to come of messages that arrived in part, by tag.
    partial: HashMap<u64, u64>,
    pub messages_sent: u64,
    pub messages_delivered: u64,
    pub measured_bytes: u64,
    pub stopped: bool,
}

impl TrafficSources {
    pub fn new(world: &Scenario, group: u16, queue: &mut Queue<Event>) -> Self {
        let Some(job) = &world.traffic else {
            return TrafficSources::default();
        };
        let mut sources: Vec<Option<Source>> = world
            .topology
            .nodes_of_group(group)
            .iter()
            .map(|_| None)
            .collect();
        for (index, &node) in (0..).zip(&job.nodes) {
            let place = world.topology.location(node);
            if place.group == group {
                let (gaps, destinations) = job.random(index);
                let at = job.arrivals.first_arrival(gaps.at(0)).0;
                queue.push(at, key(place.local), Event::Generate(place.local));
                let source = Source {
                    index,
                    next: 0,
                    at,
                    gaps,
                    destinations,
                    blocked: false,
                };
                sources[usize::from(place.local)] = Some(source);
            }
        }
        TrafficSources {
            sources,
            ..TrafficSources::default()
        }
    }

    fn take(&mut self, packet: &Packet, now: u64, job: &TrafficJob) {
        if now >= job.measured.0 && now < job.measured.1 {
            self.measured_bytes += u64::from(packet.bytes);
        }
        if u64::from(packet.bytes) == job.message_bytes {
            self.messages_delivered += 1;
            return;
        }
        let left = self
            .partial
            .entry(packet.tag())
            .or_insert(job.message_bytes);
        *left -= u64::from(packet.bytes);
        if *left == 0 {
            self.partial.remove(&packet.tag());
            self.messages_delivered += 1;
        }
    }
}

impl Group {
    /// Sends what is ready at a node, as far as its interface has room.
    pub(crate) fn generate(&mut self, local: u16, context: &mut Context<'_, Self>) {
        let Some(job) = &self.world.traffic else {
            return;
        };
        let Some(source) = &mut self.sources.sources[usize::from(local)] else {
            return;
        };
        let last = job.messages.unwrap_or(u64::MAX);
        while source.next < last && !self.sources.stopped {
            if source.at > context.now {
                context
                    .queue
                    .push(source.at, key(local), Event::Generate(local));
                return;
            }
            if self.fabric.free_message_slots(local) == 0 {
                source.blocked = true;
                return;
            }
            let random = source.destinations.at(source.next);
            let to = job.nodes[job
                .destinations
                .destination(source.index, source.next, random)
                as usize];
            let message = Message {
                to,
                bytes: job.message_bytes,
                tag: (u64::from(source.index) << 32) | (source.next & 0xffff_ffff),
                kind: KIND,
                born: source.at,
            };
            source.next += 1;
            source.at += job.arrivals.gap(source.gaps.at(source.next)).0;
            self.sources.messages_sent += 1;
            self.fabric
                .send(job.nodes[source.index as usize], message, context);
        }
    }

    /// A node's interface has room again.
    pub(crate) fn unblock(&mut self, local: u16, context: &mut Context<'_, Self>) {
        if let Some(Some(source)) = self.sources.sources.get_mut(usize::from(local))
            && source.blocked
        {
            source.blocked = false;
            self.generate(local, context);
        }
    }

    /// A packet of traffic has arrived.
    pub(crate) fn take_traffic(&mut self, packet: &Packet, now: u64) {
        if let Some(job) = &self.world.traffic {
            self.sources.take(packet, now, job);
        }
    }
}
