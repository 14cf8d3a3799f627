//! Parts of several documents.

use serde::{Deserialize, Serialize};

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
