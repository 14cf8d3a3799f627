//! The document of `forebay sim interference`.

use super::{IorPoint, TrafficRun};
use crate::estimate::{Quantity, Replication};
use serde::{Deserialize, Serialize};

/// `forebay sim interference`: IOR and traffic on one machine, each also alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterferenceRun {
    /// Version of this document.
    pub schema: u32,
    /// `sim interference`.
    pub kind: String,
    /// Version of forebay.
    pub version: String,
    /// `packet` or `flow`.
    #[serde(default = "super::traffic::packet")]
    pub fidelity: String,
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
    /// network is saturated in one of the two, or with flows.
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
