//! Measurements of a group in each phase of a test.

use forebay_network::{LinkStatistics, Timeline};
use forebay_workload::ior::Access;
use hdrhistogram::Histogram;

/// First start and last end of an operation that many processes perform, ps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeSpan {
    pub first: u64,
    pub last: u64,
}

impl Default for TimeSpan {
    fn default() -> Self {
        TimeSpan { first: u64::MAX, last: 0 }
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

    /// From the first start to the last end, ps; 0 if nothing was done.
    pub fn length(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }
}

/// Time that requests waited for resources, summed over the requests, ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// For dispatch, a thread, the data path, or the metadata service.
    pub server: u64,
    /// For an object's lock.
    pub lock: u64,
    /// For flash channels, or until data in the page cache have been written to flash.
    pub ssd: u64,
    /// At the client: for its data path.
    pub client: u64,
    /// For the network: beyond the time that the node's link needs for the data.
    pub network: u64,
}

impl Waits {
    pub fn add(&mut self, other: &Waits) {
        self.server += other.server;
        self.lock += other.lock;
        self.ssd += other.ssd;
        self.network += other.network;
        self.client += other.client;
    }

    /// Waits since an earlier state of the counters.
    pub fn since(&self, before: &Waits) -> Waits {
        Waits {
            server: self.server - before.server,
            lock: self.lock - before.lock,
            ssd: self.ssd - before.ssd,
            network: self.network - before.network,
            client: self.client - before.client,
        }
    }
}

/// Busy times of one server up to some moment, ps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerUsage {
    pub dispatch: u64,
    pub inbound: u64,
    pub outbound: u64,
    pub metadata: u64,
    /// Sum over the channels.
    pub channels: u64,
}

impl ServerUsage {
    /// Busy times since an earlier state of the counters.
    pub fn since(&self, before: &ServerUsage) -> ServerUsage {
        ServerUsage {
            dispatch: self.dispatch - before.dispatch,
            inbound: self.inbound - before.inbound,
            outbound: self.outbound - before.outbound,
            metadata: self.metadata - before.metadata,
            channels: self.channels - before.channels,
        }
    }
}

/// Counts of one group in one phase.
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
    /// Requests of the transfers.
    pub requests: u64,
    /// Durations of the transfers, ns.
    pub times: Histogram<u64>,
    /// Sum of the durations, ps.
    pub time: u64,
    /// The least of the processes' mean durations of a transfer, ps.
    pub least_mean: Option<f64>,
    /// The longest time of a process in calls, ps.
    pub most_in_calls: u64,
    /// Acknowledged rates of the group's nodes that moved anything, bytes per second.
    pub node_rates: Vec<f64>,
    /// Bytes moved over time, from the start of the phase on; a transfer's bytes are spread over
    /// the time from its call to its return.
    pub timeline: Timeline<1>,
    /// The same by requests: the bytes of one are spread over the time from the end of the process's request
    /// before it in the same transfer, or from its call, to its own end; those of a collective transfer
    /// as above.
    pub by_requests: Timeline<1>,
    /// Bytes granted to the links of each class over time, from the start of the phase on
    /// (`LinkClass as usize`).
    pub link_timeline: Timeline<4>,
    /// Waits of the requests of each group's processes, as far as this group saw them.
    pub waits: Vec<Waits>,
    pub links: Vec<LinkStatistics>,
    /// Node number and busy times of each server.
    pub servers: Vec<(u32, ServerUsage)>,
    /// Number in the storage and busy times, in and out, of each data path, ps.
    pub paths: Vec<(u32, (u64, u64))>,
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
            requests: 0,
            times: Histogram::new(3).unwrap_or_else(|e| unreachable!("{e}")),
            time: 0,
            least_mean: None,
            most_in_calls: 0,
            node_rates: Vec::new(),
            timeline: Timeline::default(),
            by_requests: Timeline::default(),
            link_timeline: Timeline::default(),
            waits: Vec::new(),
            links: Vec::new(),
            servers: Vec::new(),
            paths: Vec::new(),
        }
    }
}

impl PhaseCounts {
    /// Counts a transfer of `bytes` that took `took` ps and ended at `now`.
    pub fn count_transfer(&mut self, took: u64, bytes: u64, now: u64) {
        self.operations += 1;
        self.bytes += bytes;
        self.time += took;
        self.times += took / 1000;
        self.timeline.add_over(now.saturating_sub(took), now, 0, bytes);
    }

    /// Counts the bytes of a request, or of a collective transfer, that moved between two times, ps.
    pub fn count_moved(&mut self, from: u64, to: u64, bytes: u64) {
        self.by_requests.add_over(from, to, 0, bytes);
    }

    /// Begins the counts over time at `origin`, ps.
    pub fn restart_timelines(&mut self, origin: u64) {
        self.timeline = Timeline::starting_at(origin);
        self.by_requests = Timeline::starting_at(origin);
    }
}
