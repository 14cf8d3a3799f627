//! The documents of `forebay sim ior`.

use super::{ClassUse, Limit, LinkUse, PublishedKind, RunCost, Series, Spread};
use crate::estimate::{Quantity, Replication};
use crate::observe::{Delays, Observed};
use serde::{Deserialize, Serialize};

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
    /// if the phase is too short, or has too few transfers of each process.
    #[serde(rename = "steady_GBps")]
    pub steady_gbps: Option<f64>,
    /// The same also with few transfers, of which the first and the last are not typical. The bytes of a request
    /// count as moved evenly from the end of the one before it in the same transfer on. For rows of published runs
    /// that are reduced so much; not part of the document.
    #[serde(skip)]
    pub middle_gbps: Option<f64>,
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

/// The writes of a test through the log of MPI-IO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedWrites {
    /// When the log is applied: `close`, `background` or `stage-out`.
    pub flush: String,
    /// The writes are so large that they go to the file past the log.
    pub past_log: bool,
    /// Time of the write phase for the program, from open to close.
    pub seconds: f64,
    /// Time from the start of the write phase until all data are in the file, if they are applied as
    /// soon as they are logged.
    pub complete_seconds: f64,
    /// The program's bytes / seconds / 1e9.
    #[serde(rename = "GBps")]
    pub gbps: f64,
    /// Time of the fastest write phase without the log.
    pub plain_seconds: f64,
    /// plain_seconds / seconds.
    pub gain: f64,
    /// Writes to the logs.
    pub log: Option<Phase>,
    /// Reads of the logs when they are applied.
    pub log_read: Option<Phase>,
    /// Writes to the file.
    pub file_write: Option<Phase>,
}

impl LoggedWrites {
    /// The main quantities.
    fn quantities(&self) -> [Quantity; 3] {
        [
            ("logged_write_GBps", "GB/s", Some(self.gbps)),
            ("logged_complete_seconds", "s", Some(self.complete_seconds)),
            ("log_gain", "", Some(self.gain)),
        ]
    }
}

/// One node count of an IOR study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IorPoint {
    /// Compute nodes.
    pub nodes: u32,
    /// Processes.
    pub processes: u32,
    /// Fidelity of the simulation: `packet` or `flow`.
    #[serde(default)]
    pub fidelity: String,
    /// Effects that flows leave out; empty for packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
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
    /// The write phase through the log of MPI-IO, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logged: Option<LoggedWrites>,
    /// Delays by cause, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays: Option<Delays>,
    /// Other observations, if requested; not part of the document.
    #[serde(skip)]
    pub observed: Observed,
}

impl IorPoint {
    /// The rate without opens, closes, ramp-up and tail of the best phase of an access (`write`,
    /// `read`), GB/s; `None` without such a phase, or if it is too short or has few transfers.
    pub fn steady_gbps(&self, access: &str) -> Option<f64> {
        let phases = self.phases.iter().filter(|p| p.access == access);
        phases.max_by(|a, b| a.gbps.total_cmp(&b.gbps))?.steady_gbps
    }

    /// The main quantities.
    pub fn quantities(&self) -> Vec<Quantity> {
        [
            ("write_GBps", "GB/s", self.write_gbps),
            ("read_GBps", "GB/s", self.read_gbps),
            ("write_steady_GBps", "GB/s", self.steady_gbps("write")),
            ("read_steady_GBps", "GB/s", self.steady_gbps("read")),
            ("write_acknowledged_node_GBps", "GB/s", self.write_acknowledged_node_gbps),
            ("read_acknowledged_node_GBps", "GB/s", self.read_acknowledged_node_gbps),
        ]
        .into_iter()
        .chain(self.logged.iter().flat_map(LoggedWrites::quantities))
        .collect()
    }
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
    /// File system: `burst-buffer`, or `pfs` with the stripes of a file.
    pub file_system: String,
    /// Burst-buffer nodes of the instance; 0 on the parallel file system.
    pub burst_buffers: u32,
    /// Seed of every random choice.
    pub seed: u64,
    /// Routing algorithm.
    pub routing: String,
    /// Job placement.
    pub placement: String,
    /// One entry per node count.
    pub points: Vec<IorPoint>,
    /// Published measurements of the kinds of the test's phases.
    #[serde(default)]
    pub published: Vec<PublishedKind>,
}
