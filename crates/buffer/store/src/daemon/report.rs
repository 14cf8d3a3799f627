//! Reports of a storage daemon's statistics.

use super::scrubber::ScrubProgress;
use crate::log::LogSpace;
use crate::objects::RemovalProgress;
use forebay_metrics::LatencySnapshot;
use forebay_protocol::message::InstanceUsage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Statistics of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Time from the arrival of a request until its reply was passed to the socket.
    pub latency: LatencySnapshot,
    /// Requests answered with an error, including `ENOENT` of a lookup.
    pub failed: u64,
}

/// Current state of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreGauges {
    /// Instances and their use of space and inodes.
    pub instances: Vec<InstanceUsage>,
    /// Sessions, including those of administrators.
    pub sessions: u64,
    /// Connections, including data connections.
    pub connections: u64,
    /// Data connections.
    #[serde(default)]
    pub data_connections: u64,
    /// Memory that metadata and sessions take, in bytes.
    #[serde(default)]
    pub metadata_bytes: u64,
    /// The budget for it.
    #[serde(default)]
    pub metadata_budget_bytes: u64,
    /// Records that the log has space for.
    #[serde(default)]
    pub log_space: LogSpace,
}

/// A data object that does not match its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedObject {
    /// The number of its instance.
    pub instance: u64,
    /// The inode of its file.
    pub ino: u64,
    /// Offset in the object of the first damaged block that was found, in bytes.
    pub offset: u64,
}

/// Statistics of a daemon since its start. Data that clients on the daemon's host read and write
/// through descriptors bypass the daemon and are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Requests by kind, including kinds without requests.
    pub requests: BTreeMap<String, RequestStats>,
    /// Bytes received from sockets.
    pub received: u64,
    /// Bytes sent to sockets.
    pub sent: u64,
    /// Records written to the log.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// Syncs of the log: one serves all waiting requests.
    pub syncs: LatencySnapshot,
    /// Checkpoints that were written.
    #[serde(default)]
    pub checkpoints: LatencySnapshot,
    /// Checkpoints that could not be written.
    #[serde(default)]
    pub failed_checkpoints: u64,
    /// Connections that were refused or closed before they served a request: wrong or missing
    /// credentials, limits of users, errors of MUNGE.
    #[serde(default)]
    pub refused_connections: u64,
    /// Requests that were delayed because their users exceed a rate.
    #[serde(default)]
    pub delayed_requests: u64,
    /// Sum of these delays, in microseconds.
    #[serde(default)]
    pub delay_us: u64,
    /// The regular scrub.
    #[serde(default)]
    pub scrub: ScrubProgress,
    /// Known damaged objects.
    #[serde(default)]
    pub damaged_objects: u64,
    /// The first of them.
    #[serde(default)]
    pub damaged: Vec<DamagedObject>,
    /// Current state; `None` if the event loop did not answer in time.
    pub gauges: Option<StoreGauges>,
    /// Removed instances that still take space.
    #[serde(default)]
    pub removals: Vec<RemovalProgress>,
}

impl StoreReport {
    /// Latency of all requests, except those that wait for events. The requests of batches are counted, and
    /// not the batches.
    pub fn total_latency(&self) -> LatencySnapshot {
        let mut total = LatencySnapshot::default();
        for (kind, requests) in &self.requests {
            if kind != "await_events" && kind != "batch" {
                total.merge(&requests.latency);
            }
        }
        total
    }
}
