//! Synthetic traffic: nodes that send messages at random times to nodes of their job.

use crate::event::{Event, GroupContext, PacketKind};
use forebay_engine::Queue;
use forebay_network::{Fabric, Message, Packet, Topology};
use forebay_random::{RandomStream, stream_label};
use forebay_workload::traffic::{Arrivals, Destinations};
use std::collections::HashMap;
use std::sync::Arc;

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
    /// Start and end, in ps, of the time in which deliveries count for the accepted load.
    pub measured: (u64, u64),
    /// Time in which the messages are expected to be generated, ps.
    pub span: f64,
}

impl TrafficJob {
    /// Random streams of a node of the job: for gaps and for destinations.
    fn random_streams(&self, index: u32) -> (RandomStream, RandomStream) {
        let seed = self.seed.wrapping_add(u64::from(index));
        (
            RandomStream::new(seed, stream_label("traffic gaps")),
            RandomStream::new(seed, stream_label("traffic destinations")),
        )
    }
}

/// One sending node.
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
}

/// The traffic of one group: its sending nodes, and what its nodes have received.
pub(crate) struct Traffic {
    job: Arc<TrafficJob>,
    /// By the node's number within the group; `None`: not of the job.
    sources: Vec<Option<Source>>,
    /// Bytes missing of messages that arrived in part, by tag.
    partial: HashMap<u64, u64>,
    pub messages_sent: u64,
    pub messages_delivered: u64,
    pub measured_bytes: u64,
    stopped: bool,
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
                sources[usize::from(local)] =
                    Some(Source { index, next: 0, at, gaps, destinations, blocked: false });
            }
        }
        Traffic {
            job: job.clone(),
            sources,
            partial: HashMap::new(),
            messages_sent: 0,
            messages_delivered: 0,
            measured_bytes: 0,
            stopped: false,
        }
    }

    /// Ends the generation of messages.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Counts a packet that has arrived.
    pub fn receive(&mut self, packet: &Packet, now: u64) {
        let bytes = u64::from(packet.bytes);
        if now >= self.job.measured.0 && now < self.job.measured.1 {
            self.measured_bytes += bytes;
        }
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

    /// Sends the messages that are ready at a node, as far as its interface has free slots.
    pub fn generate(&mut self, local: u16, fabric: &mut Fabric, context: &mut GroupContext<'_>) {
        let job = &*self.job;
        let Some(source) = &mut self.sources[usize::from(local)] else {
            unreachable!("node {local} of the group is not of the traffic job")
        };
        let last = job.messages.unwrap_or(u64::MAX);
        while source.next < last && !self.stopped {
            if source.at > context.now {
                let event = Event::GenerateTraffic(local);
                context.queue.push(source.at, Event::traffic_key(local), event);
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
                tag: (u64::from(source.index) << 32) | (source.next & 0xffff_ffff),
                kind: PacketKind::Traffic.number(),
                class: PacketKind::Traffic.class(),
                born: source.at,
            };
            source.next += 1;
            source.at += job.arrivals.gap(source.gaps.at(source.next)).0;
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
