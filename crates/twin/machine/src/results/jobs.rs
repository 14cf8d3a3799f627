//! The document of several jobs, each alone, in pairs and all together.

use crate::observe::Delays;
use serde::{Deserialize, Serialize};

/// Several jobs on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobsRun {
    /// Version of this document.
    pub schema: u32,
    /// Machine name.
    pub machine: String,
    /// Routing algorithm.
    pub routing: String,
    /// Level of detail: `packet` or `flow`.
    pub fidelity: String,
    /// Seed.
    pub seed: u64,
    /// Names of the jobs.
    pub jobs: Vec<String>,
    /// Each of them alone; traffic over the longest time in which it is compared.
    pub alone: Vec<JobRun>,
    /// Each pair of jobs and, with more than two, all jobs.
    pub together: Vec<JobsTogether>,
    /// Events of all simulations; with flows, runs.
    pub events: u64,
}

/// Jobs that run at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobsTogether {
    /// Each of them, in the order of [`JobsRun::jobs`].
    pub jobs: Vec<ConcurrentJob>,
    /// Delays of packets by job, link class and cause.
    pub delays: Option<Delays>,
}

/// A job beside others, and alone on the same nodes and storage nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConcurrentJob {
    /// Its place in [`JobsRun::jobs`].
    pub job: usize,
    /// Alone.
    pub alone: JobRun,
    /// Beside the others.
    pub together: JobRun,
    /// I/O: time together / alone. Traffic: mean latency together / alone, over the same time; `None` if
    /// the network is saturated in one of the two. With flows: accepted load alone / together.
    pub slowdown: Option<f64>,
    /// Share of an I/O job's time together in which another job ran; 1 for traffic.
    pub overlap: f64,
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum JobRun {
    /// Of an I/O job.
    Io(IoRun),
    /// Of a job with traffic.
    Traffic(TrafficState),
}

/// The result of an I/O job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoRun {
    /// Time of all phases, from the first open to the last close of each.
    pub seconds: f64,
    /// The fastest write phase.
    pub write_gbps: Option<f64>,
    /// The fastest read phase.
    pub read_gbps: Option<f64>,
    /// Time from the beginning of the simulation to its start and to its end.
    pub span_seconds: [f64; 2],
    /// Limit of its first phase.
    pub limit: String,
    /// Waits of its requests, in a study of several jobs.
    pub waits: Option<WaitSeconds>,
    /// Warnings about its phases, those of repetitions only once, each with the remedy.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Time for which the requests of a job waited, summed over the requests. With flows: time by which the
/// transfers of its processes took longer than alone, summed over the processes, by the resource that
/// limited their rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitSeconds {
    /// For dispatch, a thread or the data path of a server.
    pub server: f64,
    /// For an object's lock.
    pub lock: f64,
    /// For flash channels or room in the page cache.
    pub flash: f64,
    /// For the client of the node.
    pub client: f64,
    /// For the network: beyond the time of the node's link.
    pub network: f64,
}

impl WaitSeconds {
    /// Each resource with its waits.
    pub fn by_resource(&self) -> [(&'static str, f64); 5] {
        [
            ("server", self.server),
            ("lock", self.lock),
            ("flash", self.flash),
            ("client", self.client),
            ("network", self.network),
        ]
    }
}

/// The result of a job with traffic, in the window of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficState {
    /// `steady`, `saturated` or `not-steady`.
    pub state: String,
    /// Begin and end of the window.
    pub window_seconds: [f64; 2],
    /// Mean latency of its packets; `None` if saturated, and with flows.
    pub mean_seconds: Option<f64>,
    /// 99th percentile.
    pub p99_seconds: Option<f64>,
    /// Bytes delivered, as a share of the node links' rate.
    pub accepted_load: f64,
}
