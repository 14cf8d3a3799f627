//! Counters of a mount.

use forebay_metrics::{Counter, Latency, LatencySnapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Instant;

/// Counters that the threads of a mount advance with relaxed atomics.
#[derive(Debug)]
pub struct Counters {
    /// Name and latency of each operation.
    operations: Box<[(&'static str, Latency)]>,
    pub read_requested: Counter,
    pub written: Counter,
}

/// Records the time of an operation when dropped.
pub struct Timed<'a> {
    latency: &'a Latency,
    started: Instant,
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.latency.record_duration(self.started.elapsed());
    }
}

impl Counters {
    pub fn new(operations: &[&'static str]) -> Counters {
        Counters {
            operations: operations.iter().map(|name| (*name, Latency::default())).collect(),
            read_requested: Counter::default(),
            written: Counter::default(),
        }
    }

    /// The operation with this index starts.
    pub fn time(&self, operation: usize) -> Timed<'_> {
        let (_, latency) = &self.operations[operation];
        Timed { latency, started: Instant::now() }
    }

    pub fn report(&self) -> MountReport {
        let of_op = |(name, latency): &(&str, Latency)| ((*name).to_owned(), latency.snapshot());
        MountReport {
            operations: self.operations.iter().map(of_op).collect(),
            read_requested: self.read_requested.get(),
            written: self.written.get(),
        }
    }
}

/// The operations of a mount since it was created. Operations that the kernel serves from its cache,
/// and reads by passthrough, are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountReport {
    /// Operations by name, including those that never occurred.
    pub operations: BTreeMap<String, LatencySnapshot>,
    /// Bytes requested by reads.
    pub read_requested: u64,
    /// Bytes of writes.
    pub written: u64,
}

impl MountReport {
    /// The sum over all operations.
    pub fn all_operations(&self) -> LatencySnapshot {
        let mut all = LatencySnapshot::default();
        for latency in self.operations.values() {
            all.merge(latency);
        }
        all
    }
}
