//! Results of simulations: the JSON documents.
//!
//! Times are in seconds, sizes in bytes, rates in GB/s (10^9 bytes per second), unless a field's
//! name says otherwise. Fields are added, never renamed, within one `schema` version.

pub use crate::collective_results::{CollectiveRun, CollectiveTimes};
use crate::estimate::{Quantity, Replication};
use serde::{Deserialize, Serialize};

/// Version of the documents below; raised when a field changes its meaning.
pub const SCHEMA: u32 = 2;

/// Use of one kind of resource in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// `client`, `node-link`, `local-link`, `global-link`, `server` or `ssd`.
    pub resource: String,
    /// The busiest unit, as `rank-2 link, group 3: c1s4 -> c0s4`.
    pub busiest: String,
    /// Busy share of the busiest unit, 0 to 1, over the phase's transfers.
    pub peak_utilisation: f64,
    /// Mean busy share of all units that did any work, 0 to 1.
    pub mean_utilisation: f64,
    /// Share of a transfer's mean time spent waiting for this resource, 0 to 1; for `client`, the
    /// share that it would take alone.
    pub time_share: f64,
}

/// The limiting resource, with the evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// One of the names of [`ResourceUse::resource`].
    pub resource: String,
    /// The reason, in one sentence.
    pub because: String,
    /// All kinds of resources, by descending `time_share`.
    pub evidence: Vec<ResourceUse>,
}

/// Use of one class of links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassUse {
    /// `node`, `rank-1`, `rank-2` or `global`.
    pub class: String,
    /// Links of this class (each direction counts as one).
    pub links: u64,
    /// Bytes carried by all of them.
    pub bytes: u64,
    /// Mean busy share over all links and the phase.
    pub mean_utilisation: f64,
    /// Busy share of the busiest link.
    pub max_utilisation: f64,
    /// Time during which the head of a queue waited for credits, summed over the links.
    pub stall_seconds: f64,
    /// Longest queue that a packet found at any link: the bytes to be transmitted before it.
    pub max_queue_bytes: u64,
}

/// Use of one link, one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// Class and ends.
    pub name: String,
    /// As [`ClassUse::class`].
    pub class: &'static str,
    /// Bytes carried.
    pub bytes: u64,
    /// Time to transmit them, in seconds.
    pub busy_seconds: f64,
    /// Busy share of the phase.
    pub utilisation: f64,
    /// Time during which packets waited at the link for credits, in seconds.
    pub stall_seconds: f64,
    /// Longest queue that a packet found at the link: the bytes to be transmitted before it.
    pub max_queue_bytes: u64,
}

/// Values over simulated time: one row per sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// End of each interval, in seconds from the start of the phase.
    pub seconds: Vec<f64>,
    /// Column name (`write_GBps`, `rank-1`, `global` …) and one value per interval; link classes
    /// as mean utilisation, 0 to 1.
    pub columns: Vec<(String, Vec<f64>)>,
}

/// Distribution of a time, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Distribution of the nodes' acknowledged rates in a phase, in GB/s. A node's rate is the bytes of
/// its processes' transfers divided by the mean time that its processes spent in transfers, each
/// from the call to its return, when all its requests have been acknowledged (reading: all its data
/// have arrived).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRates {
    /// Mean over the nodes.
    pub mean: f64,
    /// Slowest node.
    pub min: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Fastest node.
    pub max: f64,
}

/// One write or read phase of one repetition of IOR.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `write` or `read`.
    pub access: String,
    /// Repetition, from 0.
    pub iteration: u32,
    /// Bytes moved by all processes.
    pub bytes: u64,
    /// Transfers done by all processes.
    pub operations: u64,
    /// Last close minus first open.
    pub seconds: f64,
    /// Last open's end minus first open's start.
    pub open_seconds: f64,
    /// Last transfer's end minus first transfer's start.
    pub transfer_seconds: f64,
    /// Last close's end minus first close's start.
    pub close_seconds: f64,
    /// bytes / seconds / 1e9.
    #[serde(rename = "GBps")]
    pub gbps: f64,
    /// Rate at which the middle three fifths of the bytes moved, without ramp-up and tail; `None`
    /// if the phase is too short.
    #[serde(rename = "steady_GBps")]
    pub steady_gbps: Option<f64>,
    /// bytes / longest time of a process in calls (open, transfers, fsync, close) / 1e9: Darshan's
    /// `agg_perf_by_slowest`.
    #[serde(rename = "slowest_rank_GBps")]
    pub slowest_rank_gbps: f64,
    /// Rates of the nodes, from call to acknowledgement.
    #[serde(rename = "acknowledged_node_GBps")]
    pub acknowledged_node_gbps: NodeRates,
    /// operations / transfer_seconds.
    pub iops: f64,
    /// Duration of one transfer as its process observes it.
    pub operation_seconds: Spread,
    /// The least, over the processes, of a process's mean duration of a transfer (IOR's
    /// `Latency(s)`).
    pub least_mean_seconds: f64,
    /// The limiting resource.
    pub limit: Limit,
    /// Links by class.
    pub links: Vec<ClassUse>,
    /// Bytes from group to group: `heat[from][to]`, each a sum over the global links between
    /// the two (the diagonal: bytes on the local links of the group).
    pub heat: Vec<Vec<u64>>,
    /// Rates and utilisations over time.
    pub series: Series,
    /// Parts of the phase that decide its rate and would not in a longer run, each with the remedy.
    pub warnings: Vec<String>,
    /// Every link that carried anything, if requested; not part of the document.
    #[serde(skip)]
    pub each_link: Vec<LinkUse>,
}

/// One node count of an IOR study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IorPoint {
    /// Compute nodes.
    pub nodes: u32,
    /// Processes.
    pub processes: u32,
    /// Best write rate of the repetitions, if there was a write phase.
    #[serde(rename = "write_GBps")]
    pub write_gbps: Option<f64>,
    /// Best read rate of the repetitions, if there was a read phase.
    #[serde(rename = "read_GBps")]
    pub read_gbps: Option<f64>,
    /// Mean acknowledged rate of a node in that write phase.
    #[serde(rename = "write_acknowledged_node_GBps")]
    pub write_acknowledged_node_gbps: Option<f64>,
    /// Mean acknowledged rate of a node in that read phase.
    #[serde(rename = "read_acknowledged_node_GBps")]
    pub read_acknowledged_node_gbps: Option<f64>,
    /// Limiting resource of the best write (else read) phase.
    pub limit: String,
    /// All phases in the order in which they ran.
    pub phases: Vec<Phase>,
    /// Cost of the simulation.
    pub run: RunCost,
    /// Replicates with other seeds, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

impl IorPoint {
    /// The main quantities.
    pub fn quantities(&self) -> Vec<Quantity> {
        let steady = |access: &str| {
            let phases = self.phases.iter().filter(|p| p.access == access);
            phases.max_by(|a, b| a.gbps.total_cmp(&b.gbps))?.steady_gbps
        };
        vec![
            ("write_GBps", "GB/s", self.write_gbps),
            ("read_GBps", "GB/s", self.read_gbps),
            ("write_steady_GBps", "GB/s", steady("write")),
            ("read_steady_GBps", "GB/s", steady("read")),
            ("write_acknowledged_node_GBps", "GB/s", self.write_acknowledged_node_gbps),
            ("read_acknowledged_node_GBps", "GB/s", self.read_acknowledged_node_gbps),
        ]
    }
}

/// Cost of a simulation on the computer that ran it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunCost {
    /// Wall-clock seconds of the simulation itself.
    pub wall_seconds: f64,
    /// Simulated seconds.
    pub simulated_seconds: f64,
    /// Events executed.
    pub events: u64,
    /// Packets delivered to their destination node.
    pub packets_delivered: u64,
    /// Threads used.
    pub threads: u32,
    /// Largest resident set of the process so far.
    pub peak_rss_bytes: u64,
}

/// `forebay sim ior`: one machine, one IOR command line, growing node counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IorStudy {
    /// Version of this document.
    pub schema: u32,
    /// `sim ior`.
    pub kind: String,
    /// Version of forebay.
    pub version: String,
    /// Machine name.
    pub machine: String,
    /// IOR's options, verbatim.
    pub ior: Vec<String>,
    /// Processes per node.
    pub ppn: u32,
    /// Burst-buffer nodes of the instance.
    pub burst_buffers: u32,
    /// Seed of every random choice.
    pub seed: u64,
    /// Routing algorithm.
    pub routing: String,
    /// Job placement.
    pub placement: String,
    /// One entry per node count.
    pub points: Vec<IorPoint>,
}

/// Distribution of packet latencies, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyNs {
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

/// `forebay sim traffic`: synthetic traffic on the network alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficRun {
    /// Version of this document.
    pub schema: u32,
    /// `sim traffic`.
    pub kind: String,
    /// Version of forebay.
    pub version: String,
    /// Machine name.
    pub machine: String,
    /// Traffic pattern.
    pub pattern: String,
    /// Routing algorithm.
    pub routing: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Sending nodes.
    pub nodes: u32,
    /// Bytes per message.
    pub message_bytes: u64,
    /// Messages each node sends; together with IOR, the mean.
    pub messages: u64,
    /// Messages delivered completely.
    pub messages_delivered: u64,
    /// Bytes delivered; equal to the bytes sent.
    pub bytes_delivered: u64,
    /// Packets delivered per second of wall time.
    pub packets_per_second: f64,
    /// Wall-clock seconds from reading the machine to the first event.
    pub startup_seconds: f64,
    /// Cost of the simulation, and the packets of the traffic.
    #[serde(flatten)]
    pub cost: RunCost,
    /// Offered load, as a share of the node link's rate.
    pub offered_load: f64,
    /// `steady`, `saturated` (less is accepted than offered, and the queues grow) or `not-steady`
    /// (too short a run).
    pub state: String,
    /// End of the warm-up, in seconds from the first message; `None` if it was not found in the
    /// first half of the time.
    pub warm_up_seconds: Option<f64>,
    /// Start and end of the window of measurement: after the warm-up and a fifth of the time in
    /// which messages are generated, and while all nodes still generate them.
    pub window_seconds: [f64; 2],
    /// Load that became ready in the window, as a share of the node link's rate.
    pub window_offered_load: f64,
    /// Load delivered in the window, as a share of the node link's rate.
    pub accepted_load: f64,
    /// Load delivered over the whole run, with its start and the time in which the last messages
    /// arrive, as a share of the node link's rate.
    pub run_load: f64,
    /// Bytes ready and not delivered at the start and at the end of the window.
    pub backlog_bytes: [u64; 2],
    /// Warnings about results that a few events dominate, each with the remedy.
    pub warnings: Vec<String>,
    /// Mean number of router-to-router links a packet crossed.
    pub hops_mean: f64,
    /// Packets by number of router-to-router links crossed, from 0.
    pub hops_histogram: Vec<u64>,
    /// Share of packets that took a detour.
    pub nonminimal_share: f64,
    /// From the message being ready at the sender to the packet's last bit at the receiver, of the
    /// packets of messages that became ready in the window; `None` if the network is saturated.
    pub latency_ns: Option<LatencyNs>,
    /// Links by class.
    pub links: Vec<ClassUse>,
    /// As in [`Phase::heat`].
    pub heat: Vec<Vec<u64>>,
    /// Accepted load and link utilisation over time.
    pub series: Series,
    /// Replicates with other seeds, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// The search for the saturation load, if that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<SaturationSearch>,
    /// As in [`Phase::each_link`].
    #[serde(skip)]
    pub each_link: Vec<LinkUse>,
}

impl TrafficRun {
    /// The main quantities.
    pub fn quantities(&self) -> Vec<Quantity> {
        let latency = |of: fn(&LatencyNs) -> f64| self.latency_ns.as_ref().map(of);
        vec![
            ("accepted_load", "", Some(self.accepted_load)),
            ("latency_mean", "ns", latency(|l| l.mean)),
            ("latency_p50", "ns", latency(|l| l.p50)),
            ("latency_p99", "ns", latency(|l| l.p99)),
            ("hops_mean", "", Some(self.hops_mean)),
            ("nonminimal_share", "", Some(self.nonminimal_share)),
            ("run_load", "", Some(self.run_load)),
        ]
    }

    /// Whether the network did not accept the offered load.
    pub fn is_saturated(&self) -> bool {
        self.state == "saturated"
    }
}

/// The search for the greatest load that the network accepts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SaturationSearch {
    /// Greatest simulated load that was accepted, as a share of the node link's rate.
    pub accepted: f64,
    /// Least simulated load that was not; `None` if the whole rate is accepted.
    pub refused: Option<f64>,
    /// The simulated loads in the order of the search.
    pub steps: Vec<SaturationStep>,
}

/// One load of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SaturationStep {
    /// Offered load.
    pub offered_load: f64,
    /// As in [`TrafficRun::accepted_load`].
    pub accepted_load: f64,
    /// As in [`TrafficRun::state`].
    pub state: String,
    /// Mean latency in ns; `None` if saturated.
    pub latency_mean_ns: Option<f64>,
}

/// `forebay sim interference`: IOR and traffic on one machine, each also alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterferenceRun {
    /// Version of this document.
    pub schema: u32,
    /// `sim interference`.
    pub kind: String,
    /// Version of forebay.
    pub version: String,
    /// Machine name.
    pub machine: String,
    /// Placement of the IOR job.
    pub ior_placement: String,
    /// Placement of the traffic job.
    pub traffic_placement: String,
    /// IOR alone.
    pub ior_alone: IorPoint,
    /// IOR together with the traffic.
    pub ior_together: IorPoint,
    /// Traffic alone.
    pub traffic_alone: TrafficRun,
    /// Traffic together with IOR.
    pub traffic_together: TrafficRun,
    /// IOR's rate together / alone.
    pub ior_rate_ratio: f64,
    /// The traffic's mean latency together / alone, over the same length of time; `None` if the
    /// network is saturated in one of the two.
    pub traffic_latency_ratio: Option<f64>,
    /// Replicates with other seeds, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

impl InterferenceRun {
    /// The main quantities.
    pub fn quantities(&self) -> Vec<Quantity> {
        let (alone, together) = (&self.ior_alone, &self.ior_together);
        let latency = |run: &TrafficRun| run.latency_ns.as_ref().map(|l| l.mean);
        vec![
            ("ior_rate_ratio", "", Some(self.ior_rate_ratio)),
            ("traffic_latency_ratio", "", self.traffic_latency_ratio),
            ("write_GBps_alone", "GB/s", alone.write_gbps),
            ("write_GBps_together", "GB/s", together.write_gbps),
            ("read_GBps_alone", "GB/s", alone.read_gbps),
            ("read_GBps_together", "GB/s", together.read_gbps),
            ("traffic_latency_alone", "ns", latency(&self.traffic_alone)),
            ("traffic_latency_together", "ns", latency(&self.traffic_together)),
            ("accepted_load_alone", "", Some(self.traffic_alone.accepted_load)),
            ("accepted_load_together", "", Some(self.traffic_together.accepted_load)),
        ]
    }
}
