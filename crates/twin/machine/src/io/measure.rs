//! What a group measures of each phase of a test.

use super::server::Usage;
use crate::group::Group;
use forebay_network::{LinkStatistics, Timeline};
use forebay_workload::ior::Access;
use hdrhistogram::Histogram;

/// First beginning and last end of something that many processes do, ps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeSpan {
    pub first: u64,
    pub last: u64,
}

impl Default for TimeSpan {
    fn default() -> Self {
        TimeSpan {
            first: u64::MAX,
            last: 0,
        }
    }
}

impl TimeSpan {
    pub fn begin(&mut self, now: u64) {
        self.first = self.first.min(now);
    }

    pub fn end(&mut self, now: u64) {
        self.last = self.last.max(now);
    }

    pub fn join(&mut self, other: &TimeSpan) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    /// From the first beginning to the last end, ps; 0 if nothing was done.
    pub fn length(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

/// Time that requests waited for others, summed over the requests, ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// For dispatch, a thread, the data path, or the metadata service.
    pub server: u64,
    /// For an object's lock.
    pub lock: u64,
    /// For flash channels.
    pub ssd: u64,
    /// How much longer data were on the network than the node's link takes for them.
    pub network: u64,
}

impl Waits {
    pub fn add(&mut self, other: &Waits) {
        self.server += other.server;
        self.lock += other.lock;
        self.ssd += other.ssd;
        self.network += other.network;
    }

    fn since(&self, before: &Waits) -> Waits {
        Waits {
            server: self.server - before.server,
            lock: self.lock - before.lock,
            ssd: self.ssd - before.ssd,
            network: self.network - before.network,
        }
    }
}

/// What one group counted in one phase.
#[derive(Clone)]
pub(crate) struct PhaseCounts {
    pub iteration: u32,
    pub access: Access,
    pub begun: u64,
    pub ended: u64,
    pub opens: TimeSpan,
    pub transfers: TimeSpan,
    pub closes: TimeSpan,
    pub bytes: u64,
    pub operations: u64,
    /// Times of the transfers, ns.
    pub times: Histogram<u64>,
    /// Sum of the same, ps.
    pub time: u64,
    /// The least of the processes' mean times a transfer, ps.
    pub least_mean: Option<f64>,
    /// Acknowledged rates of the group's nodes that moved anything, bytes a second.
    pub node_rates: Vec<f64>,
    /// Bytes moved over time.
    pub timeline: Timeline<1>,
    /// Waits of the requests of each group's processes, as far as this group saw them.
    pub waits: Vec<Waits>,
    pub links: Vec<LinkStatistics>,
    /// Node number and busy times of each server.
    pub servers: Vec<(u32, Usage)>,
}

impl Default for PhaseCounts {
    fn default() -> Self {
        PhaseCounts {
            iteration: 0,
            access: Access::Write,
            begun: 0,
            ended: 0,
            opens: TimeSpan::default(),
            transfers: TimeSpan::default(),
            closes: TimeSpan::default(),
            bytes: 0,
            operations: 0,
            times: Histogram::new(3).unwrap_or_else(|e| unreachable!("{e}")),
            time: 0,
            least_mean: None,
            node_rates: Vec::new(),
            timeline: Timeline::default(),
            waits: Vec::new(),
            links: Vec::new(),
            servers: Vec::new(),
        }
    }
}

impl PhaseCounts {
    /// A transfer is through.
    pub fn transferred(&mut self, took: u64, bytes: u64, now: u64) {
        self.operations += 1;
        self.bytes += bytes;
        self.time += took;
        self.times += took / 1000;
        self.timeline.add(now, 0, bytes);
    }
}

impl Group {
    /// Notes where all counters stand.
    pub(crate) fn begin_phase(&mut self, iteration: u32, access: Access, now: u64) {
        self.clients.phase = PhaseCounts {
            iteration,
            access,
            begun: now,
            waits: self.waits.clone(),
            links: self.fabric.link_statistics(now),
            servers: self.servers.usage(),
            ..PhaseCounts::default()
        };
    }

    /// Keeps what was counted since the phase began.
    pub(crate) fn end_phase(&mut self, now: u64) {
        let mut phase = std::mem::take(&mut self.clients.phase);
        phase.ended = now;
        phase.least_mean = self.clients.least_mean();
        if let Some(job) = &self.world.io {
            phase.node_rates = self.clients.node_rates(job);
        }
        for (before, now) in phase.waits.iter_mut().zip(&self.waits) {
            *before = now.since(before);
        }
        for (before, now) in phase.links.iter_mut().zip(self.fabric.link_statistics(now)) {
            before.bytes = now.bytes - before.bytes;
            before.busy = now.busy - before.busy;
            before.stalled = now.stalled - before.stalled;
            before.max_occupied = now.max_occupied;
        }
        for (before, now) in phase.servers.iter_mut().zip(self.servers.usage()) {
            before.1 = now.1.since(&before.1);
        }
        self.phases.push(phase);
    }
}
