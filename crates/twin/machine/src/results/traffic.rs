//! The documents of `forebay sim traffic`.

use super::{ClassUse, LinkUse, RunCost, Series};
use crate::estimate::{Quantity, Replication};
use crate::observe::{Delays, Observed};
use serde::{Deserialize, Serialize};

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
    /// `packet` or `flow`.
    #[serde(default = "packet")]
    pub fidelity: String,
    /// Effects that the fidelity leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
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
    /// `steady`, `saturated` (less is accepted than offered, by the network or a rate limit, and the
    /// queues grow) or `not-steady` (too short a run).
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
    /// Packets by number of router-to-router links crossed, from 0; empty with flows.
    pub hops_histogram: Vec<u64>,
    /// Share of packets that took a detour.
    pub nonminimal_share: f64,
    /// From the message being ready at the sender to the packet's last bit at the receiver, of the
    /// packets of messages that became ready in the window; `None` if the network is saturated, or with flows.
    pub latency_ns: Option<LatencyNs>,
    /// Links by class.
    pub links: Vec<ClassUse>,
    /// As in [`Phase::heat`](super::Phase::heat).
    pub heat: Vec<Vec<u64>>,
    /// Accepted load and link utilisation over time.
    pub series: Series,
    /// Replicates with other seeds, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// The search for the saturation load, if that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<SaturationSearch>,
    /// Delays by cause, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delays: Option<Delays>,
    /// Other observations, if requested; not part of the document.
    #[serde(skip)]
    pub observed: Observed,
    /// As in [`Phase::each_link`](super::Phase::each_link).
    #[serde(skip)]
    pub each_link: Vec<LinkUse>,
}

/// The fidelity of documents that do not name it.
pub(super) fn packet() -> String {
    "packet".into()
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
