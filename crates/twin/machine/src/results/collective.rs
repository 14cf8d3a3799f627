//! The document of a study of collective operations.

use super::{ClassUse, IorPoint, LinkUse, RunCost, Series, TrafficRun};
use crate::estimate::{Quantity, Replication};
use crate::observe::{Delays, Observed};
use serde::{Deserialize, Serialize};

/// `forebay sim collective`: a collective operation of MPI, again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveRun {
    /// Version of this document.
    pub schema: u32,
    /// `sim collective`.
    pub kind: String,
    /// Version of forebay.
    pub version: String,
    /// Machine name.
    pub machine: String,
    /// The operation.
    pub operation: String,
    /// Its algorithm among the nodes.
    pub algorithm: String,
    /// Rounds of the algorithm.
    pub rounds: u32,
    /// Length of the vector, of each process's block (allgather), or of each pair's (alltoall).
    pub size_bytes: u64,
    /// Nodes.
    pub nodes: u32,
    /// Processes.
    pub processes: u32,
    /// Placement of the nodes.
    pub placement: String,
    /// Routing algorithm.
    pub routing: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Bytes that all nodes send to others in one operation.
    pub bytes_per_operation: u64,
    /// Half of the mean time alone of a ping-pong: its messages' latency, or of several pairs that of
    /// the slowest, with the time by which the pairs begin apart.
    pub one_way_seconds: Option<f64>,
    /// `bytes_per_operation` / mean time alone / 10^9.
    #[serde(rename = "GBps")]
    pub gbps: f64,
    /// The other job, if there is one.
    pub background: Option<String>,
    /// The operation alone.
    pub alone: CollectiveTimes,
    /// The operation beside the other job.
    pub together: Option<CollectiveTimes>,
    /// Mean time together / alone.
    pub mean_ratio: Option<f64>,
    /// 99th percentile of the times, together / alone.
    pub p99_ratio: Option<f64>,
    /// Warnings about results that say less than they seem to, each with the remedy.
    pub warnings: Vec<String>,
    /// The traffic beside the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_together: Option<TrafficRun>,
    /// IOR beside the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ior_together: Option<IorPoint>,
    /// Delays by cause, if requested: of the operation alone, or of both jobs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays: Option<Delays>,
    /// Other observations of the same run, if requested; not part of the document.
    #[serde(skip)]
    pub observed: Observed,
    /// Replicates with other seeds, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

/// Times of the iterations of a collective operation: from the first node's entry to the last one's
/// exit. A barrier, which is not measured, precedes each iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveTimes {
    /// Mean.
    pub mean_seconds: f64,
    /// Least.
    pub min_seconds: f64,
    /// Median.
    pub p50_seconds: f64,
    /// 99th percentile.
    pub p99_seconds: f64,
    /// Greatest.
    pub max_seconds: f64,
    /// Mean over nodes and iterations of the time from a node's own entry to its exit.
    pub process_mean_seconds: f64,
    /// Each iteration.
    pub iteration_seconds: Vec<f64>,
    /// Messages between nodes, with those of the barriers and of the warm-up.
    pub messages: u64,
    /// Their data, without envelopes.
    pub bytes: u64,
    /// Links by class, over the whole run.
    pub links: Vec<ClassUse>,
    /// Link utilisation over time.
    pub series: Series,
    /// As in [`crate::results::Phase::each_link`].
    #[serde(skip)]
    pub each_link: Vec<LinkUse>,
    /// Cost of the simulation.
    #[serde(flatten)]
    pub cost: RunCost,
}

impl CollectiveRun {
    /// The main quantities.
    pub fn quantities(&self) -> Vec<Quantity> {
        let together = |of: fn(&CollectiveTimes) -> f64| self.together.as_ref().map(of);
        vec![
            ("mean_seconds", "s", Some(self.alone.mean_seconds)),
            ("p99_seconds", "s", Some(self.alone.p99_seconds)),
            ("max_seconds", "s", Some(self.alone.max_seconds)),
            ("process_mean_seconds", "s", Some(self.alone.process_mean_seconds)),
            ("mean_seconds_together", "s", together(|t| t.mean_seconds)),
            ("p99_seconds_together", "s", together(|t| t.p99_seconds)),
            ("max_seconds_together", "s", together(|t| t.max_seconds)),
            ("process_mean_seconds_together", "s", together(|t| t.process_mean_seconds)),
            ("mean_ratio", "", self.mean_ratio),
            ("p99_ratio", "", self.p99_ratio),
            ("one_way_seconds", "s", self.one_way_seconds),
            ("GBps", "GB/s", Some(self.gbps)),
        ]
    }
}
