//! Counters of mounts, as the controller keeps them for jobs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_client::Mount;
use forebay_control::controller::{HostIo, IoCounters};
use forebay_control::messages::InstanceId;
use parking_lot::Mutex;

/// Time for which the counters of a closed instance are reported.
const REPORTED_FOR: Duration = Duration::from_secs(120);

/// The counters of a mount.
pub(super) fn io_of(mount: &Mount) -> IoCounters {
    let report = mount.report();
    let is_data = |name: &str| matches!(name, "read" | "write");
    let others = report.operations.iter().filter(|(name, _)| !is_data(name));
    let metadata = others.map(|(_, latency)| latency.count()).sum();
    IoCounters { read: report.read_requested, written: report.written, metadata }
}

/// Counters of instances that were closed.
#[derive(Debug, Default)]
pub(super) struct ClosedInstances(Mutex<BTreeMap<InstanceId, (HostIo, Instant)>>);

impl ClosedInstances {
    /// An instance is closed.
    pub fn insert(&self, instance: InstanceId, io: HostIo) {
        let mut closed = self.0.lock();
        closed.retain(|_, (_, at)| at.elapsed() < REPORTED_FOR);
        closed.insert(instance, (io, Instant::now()));
    }

    /// The counters of those that were closed in the last minutes.
    pub fn recent(&self) -> BTreeMap<InstanceId, HostIo> {
        let closed = self.0.lock();
        let recent = closed.iter().filter(|(_, (_, at))| at.elapsed() < REPORTED_FOR);
        recent.map(|(instance, (io, _))| (*instance, *io)).collect()
    }
}
