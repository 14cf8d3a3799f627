//! The document of `forebay sim darshan`.

use super::{PublishedKind, RunCost};
use crate::estimate::{Quantity, Replication};
use serde::{Deserialize, Serialize};

/// Requests of similar size in a phase, as they were simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DarshanPart {
    /// The test of IOR: its options.
    pub ior: Vec<String>,
    /// Nodes.
    pub nodes: u32,
    /// Processes that take part.
    pub processes: u32,
    /// Bytes in the log.
    pub bytes: u64,
    /// Requests in the log.
    pub operations: u64,
    /// Bytes that were simulated.
    pub simulated_bytes: u64,
    /// Simulated time from the first open to the last close.
    pub seconds: f64,
    /// Simulated time of the slowest process in calls, as Darshan counts it.
    pub slowest_rank_seconds: f64,
    /// The limiting resource.
    pub limit: String,
    /// The evidence for it.
    pub because: String,
    /// `packet` or `flow`.
    pub fidelity: String,
}

/// A phase of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DarshanPhase {
    /// `write` or `read`.
    pub access: String,
    /// `file per process` or `shared file`.
    pub files: String,
    /// Its begin in the log, seconds since the program's start.
    pub begin_seconds: f64,
    /// Its end in the log.
    pub end_seconds: f64,
    /// Processes in the log.
    pub processes: u32,
    /// Files in the log.
    pub file_count: u64,
    /// Bytes in the log.
    pub bytes: u64,
    /// Requests in the log.
    pub operations: u64,
    /// Bytes of the log that are not simulated.
    pub left_out_bytes: u64,
    /// Time of the slowest process in these calls in the log.
    pub measured_seconds: f64,
    /// Simulated time from the first open to the last close, summed over the parts.
    pub seconds: f64,
    /// Simulated time of the slowest process in calls, summed over the parts.
    pub slowest_rank_seconds: f64,
    /// The limiting resource of the part that takes longest; empty if the phase is left out.
    pub limit: String,
    /// The requests by size.
    pub parts: Vec<DarshanPart>,
}

/// `forebay sim darshan`: the I/O of a Darshan log on a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DarshanRun {
    /// Version of this document.
    pub schema: u32,
    /// `sim darshan`.
    pub kind: String,
    /// Version of forebay.
    pub version: String,
    /// Machine name.
    pub machine: String,
    /// The log's file name.
    pub log: String,
    /// The program's command line, as far as the log has it.
    pub program: String,
    /// Nodes of the job.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// Processes.
    pub processes: u32,
    /// Duration of the run in the log.
    pub run_seconds: f64,
    /// Whether phases come from traces (DXT).
    pub has_traces: bool,
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
    /// Bytes in the log.
    pub bytes: u64,
    /// Darshan's `agg_time_by_slowest` in the log.
    pub measured_seconds: f64,
    /// bytes / measured_seconds / 1e9: Darshan's `agg_perf_by_slowest`.
    #[serde(rename = "measured_GBps")]
    pub measured_gbps: Option<f64>,
    /// Simulated time from the first open to the last close, summed over all phases.
    pub seconds: f64,
    /// Simulated time of the slowest process in calls, summed over all phases.
    pub slowest_rank_seconds: f64,
    /// Bytes of the log that are simulated / slowest_rank_seconds / 1e9.
    #[serde(rename = "slowest_rank_GBps")]
    pub slowest_rank_gbps: Option<f64>,
    /// Simulated time of the slowest process in writes; `None` without writes.
    pub write_seconds: Option<f64>,
    /// Simulated time of the slowest process in reads; `None` without reads.
    pub read_seconds: Option<f64>,
    /// run_seconds with the simulated I/O instead of the measured one; `None` if the log has more time in calls
    /// than its run takes.
    pub predicted_run_seconds: Option<f64>,
    /// The limiting resource of the part that takes longest.
    pub limit: String,
    /// The phases, by their begin in the log.
    pub phases: Vec<DarshanPhase>,
    /// Warnings: about facts that the log does not determine, about omissions, and about the simulations.
    pub warnings: Vec<String>,
    /// Effects that flows leave out; empty for packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Published measurements of the kinds of the parts.
    #[serde(default)]
    pub published: Vec<PublishedKind>,
    /// Cost of all simulations.
    pub run: RunCost,
    /// Replicates with other seeds, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

impl DarshanRun {
    /// The main quantities.
    pub fn quantities(&self) -> Vec<Quantity> {
        vec![
            ("seconds", "s", Some(self.seconds)),
            ("slowest_rank_seconds", "s", Some(self.slowest_rank_seconds)),
            ("slowest_rank_GBps", "GB/s", self.slowest_rank_gbps),
            ("write_seconds", "s", self.write_seconds),
            ("read_seconds", "s", self.read_seconds),
        ]
    }
}
