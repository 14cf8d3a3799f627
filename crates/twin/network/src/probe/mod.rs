//! Observation of single packets at the links of a group: waits by the job that caused them, use of
//! each link over time, sampled passages. A fabric without a probe does none of it.

mod sample;
mod series;
mod waits;

pub use sample::{SampleBuffer, Sampler};
pub use series::{LinkBins, LinkSeries};
pub use waits::{JOBS, WaitMatrix};

use crate::packet::Packet;
use crate::port::Upstream;
use crate::statistics::Timeline;
use forebay_machine_file::machine::LinkClass;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use waits::{Backlog, Holders, Joined};

/// Observations that a fabric makes.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The job of a packet.
    pub jobs: JobsOfPackets,
    /// Attribute waits to jobs.
    pub waits: bool,
    /// Record the use of each link over time.
    pub series: bool,
    /// Record the passages of packets of which the sampler selects the tag, at most this many.
    pub trace: Option<(Sampler, usize)>,
}

/// The jobs of packets, below [`JOBS`].
#[derive(Clone, Debug)]
pub enum JobsOfPackets {
    /// By the sender's kind of message.
    OfKinds([u8; 16]),
    /// By the nodes of the jobs.
    OfNodes(Arc<JobsOfNodes>),
}

/// Jobs by their nodes: a packet is of the job of its sending node or, if that is of none, of the job of
/// its receiving one.
#[derive(Clone, Debug)]
pub struct JobsOfNodes {
    /// By number of the sending node; `None`: of no job.
    pub senders: Vec<Option<u8>>,
    /// By number of the receiving interface.
    pub receivers: Vec<Option<u8>>,
}

impl JobsOfPackets {
    fn job(&self, packet: &Packet) -> u8 {
        match self {
            JobsOfPackets::OfKinds(jobs) => jobs[usize::from(packet.kind())],
            JobsOfPackets::OfNodes(nodes) => {
                let (src, dst) = (packet.src as usize, packet.dst as usize);
                let job = nodes.senders[src].or(nodes.receivers[dst]);
                job.unwrap_or_else(|| unreachable!("a packet between nodes of no job: {packet:?}"))
            }
        }
    }
}

/// A packet's passage over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The sender's tag of its message.
    pub tag: u64,
    /// Sending node.
    pub src: u32,
    /// Receiving node.
    pub dst: u32,
    /// Length.
    pub bytes: u32,
    /// The sender's kind of message.
    pub kind: u8,
    /// Port of the link: of a router of the group, or the number of a node within the group.
    pub port: u16,
    /// Router of the port; `None`: the link from a node to its router.
    pub router: Option<u16>,
    /// Class of the link.
    pub class: LinkClass,
    /// Time at which the packet was ready to be sent, ps.
    pub ready: u64,
    /// Start of its transmission, ps.
    pub start: u64,
    /// End of its transmission, ps.
    pub end: u64,
}

/// A link that a packet takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkRef {
    pub index: usize,
    pub class: LinkClass,
    pub router: Option<u16>,
    pub port: u16,
}

/// Times of a packet at a link, ps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// The packet is ready and has credits.
    pub ready: u64,
    pub start: u64,
    pub end: u64,
    /// The present time.
    pub now: u64,
}

/// The observations of one group.
#[derive(Clone)]
pub struct Probe {
    job_of: JobsOfPackets,
    holders: Option<Holders>,
    /// By index of the port.
    backlogs: Vec<Backlog>,
    /// Packets that wait for credits, by port and channel, in the order of their queues: with the
    /// jobs before them.
    joined: HashMap<(usize, u8), VecDeque<Joined>>,
    /// Of the packet that is about to depart after it waited for credits.
    resumed: Option<Joined>,
    /// Waits by link class, waiting job and cause.
    pub waits: Option<WaitMatrix>,
    /// Use of each link over time, by index of its port.
    pub series: Option<LinkSeries>,
    /// Bytes of each job over time: sent by its nodes (columns 0 to [`JOBS`]), delivered (the others).
    pub jobs: Option<JobTimeline>,
    /// Sampled passages.
    pub trace: Option<SampleBuffer<Passage>>,
}

/// Two columns for each job.
pub type JobTimeline = Timeline<{ 2 * JOBS }>;

/// Position of the job in the bytes of a credit: packets have at most 2^20 bytes.
const JOB_SHIFT: u32 = 28;

impl Probe {
    pub(crate) fn new(options: &ProbeOptions, ports: usize) -> Self {
        Probe {
            job_of: options.jobs.clone(),
            holders: options.waits.then(|| Holders::new(ports)),
            backlogs: (0..if options.waits { ports } else { 0 })
                .map(|_| Backlog::default())
                .collect(),
            joined: HashMap::new(),
            resumed: None,
            waits: options.waits.then(WaitMatrix::default),
            series: options.series.then(|| LinkSeries::new(ports)),
            jobs: options.series.then(JobTimeline::default),
            trace: options.trace.map(|(sampler, most)| SampleBuffer::new(sampler, most)),
        }
    }

    fn job(&self, packet: &Packet) -> u8 {
        let job = self.job_of.job(packet);
        debug_assert!(usize::from(job) < JOBS);
        job
    }

    /// The bytes of a packet's credit, with its job.
    pub(crate) fn mark_credit(&self, packet: &Packet) -> u32 {
        debug_assert!(packet.bytes < 1 << JOB_SHIFT);
        packet.bytes | (u32::from(self.job(packet)) << JOB_SHIFT)
    }

    /// Takes the job out of the bytes of a credit that has returned.
    pub(crate) fn unmark_credit(&mut self, place: Upstream, marked: u32) -> u32 {
        let bytes = marked & ((1 << JOB_SHIFT) - 1);
        if let Some(holders) = &mut self.holders {
            holders.release(
                place.port(),
                place.channel() as u8,
                (marked >> JOB_SHIFT) as u8,
                bytes,
            );
        }
        bytes
    }

    /// A packet that is ready at `ready` begins to wait for credits of a channel.
    pub(crate) fn join_queue(&mut self, link: LinkRef, channel: u8, packet: &Packet, ready: u64) {
        let job = self.job(packet);
        let before = match &mut self.holders {
            Some(holders) => holders.hold(link.index, channel, job, packet.bytes),
            None => [0; JOBS],
        };
        let queue = self.joined.entry((link.index, channel)).or_default();
        queue.push_back(Joined { ready, before });
        if let Some(series) = &mut self.series {
            series.join_queue(link.index, ready, packet.bytes);
        }
    }

    /// The first packet that waits for credits of a channel is about to get the link.
    pub(crate) fn leave_queue(&mut self, index: usize, channel: u8, bytes: u32) {
        let joined = self.joined.get_mut(&(index, channel)).and_then(VecDeque::pop_front);
        debug_assert!(joined.is_some(), "port {index}, channel {channel}: nothing waits");
        self.resumed = joined;
        if let Some(series) = &mut self.series {
            series.leave_queue(index, bytes);
        }
    }

    /// A packet gets a link. `channel` is that of its credits, `None` at a link to a node, which
    /// needs none.
    pub(crate) fn take_link(
        &mut self,
        link: LinkRef,
        channel: Option<u8>,
        packet: &Packet,
        grant: Grant,
    ) {
        let job = self.job(packet);
        let resumed = self.resumed.take();
        let ready = resumed.map_or(grant.ready, |joined| joined.ready);
        if let (Some(holders), Some(channel), None) = (&mut self.holders, channel, resumed) {
            holders.hold(link.index, channel, job, packet.bytes);
        }
        if let Some(waits) = &mut self.waits {
            if let Some(joined) = resumed {
                waits.add_shares(link.class, job, grant.ready - joined.ready, joined.before);
            }
            let backlog = &mut self.backlogs[link.index];
            waits.add(link.class, job, backlog.overlaps(grant.ready, grant.start));
            backlog.append(job, grant);
            waits.count(link.class, job, grant.start - ready);
        }
        if let Some(series) = &mut self.series {
            series.transmit(link.index, packet.bytes, grant);
        }
        if let Some(jobs) = &mut self.jobs {
            if link.router.is_none() {
                jobs.add(grant.start, job.into(), packet.bytes.into());
            } else if channel.is_none() {
                jobs.add(grant.end, JOBS + usize::from(job), packet.bytes.into());
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.push(packet.tag(), packet.kind() == 0, || Passage {
                tag: packet.tag(),
                src: packet.src,
                dst: packet.dst,
                bytes: packet.bytes,
                kind: packet.kind(),
                port: link.port,
                router: link.router,
                class: link.class,
                ready,
                start: grant.start,
                end: grant.end,
            });
        }
    }

    /// Whether no packet waits or holds credits.
    pub(crate) fn is_idle(&self) -> bool {
        self.holders.as_ref().is_none_or(Holders::is_idle)
            && self.joined.values().all(VecDeque::is_empty)
    }
}
