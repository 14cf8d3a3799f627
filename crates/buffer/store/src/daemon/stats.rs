//! Access to the statistics of a running daemon.

use super::counters::StoreCounters;
use super::mailbox::Mailbox;
use super::report::{DamagedObject, StoreReport};
use crate::objects::{DiskObjects, ObjectId, RemovalQueue};
use std::sync::Arc;
use std::time::Duration;

/// Damaged objects that a report lists.
const MAX_DAMAGED_REPORTED: usize = 10;

/// Access to the statistics of a running daemon. Does not keep the daemon alive.
#[derive(Clone, Debug)]
pub struct StatsHandle {
    pub(super) counters: Arc<StoreCounters>,
    pub(super) removal_queue: Arc<RemovalQueue>,
    pub(super) objects: DiskObjects,
    pub(super) mailbox: Arc<Mailbox>,
}

impl StatsHandle {
    /// Read all counters, and the gauges if the event loop answers within `timeout`, which costs it
    /// some microseconds.
    pub fn collect_report(&self, timeout: Duration) -> StoreReport {
        let counters = &self.counters;
        let damaged = self.objects.damaged().list();
        let first = damaged.iter().take(MAX_DAMAGED_REPORTED);
        let describe = |(object, offset): &(ObjectId, u64)| DamagedObject {
            instance: object.instance.0,
            ino: object.ino.0,
            offset: *offset,
        };
        StoreReport {
            requests: counters.request_stats(),
            received: counters.received.get(),
            sent: counters.sent.get(),
            records: counters.records.get(),
            record_bytes: counters.record_bytes.get(),
            syncs: counters.syncs.snapshot(),
            checkpoints: counters.checkpoints.snapshot(),
            failed_checkpoints: counters.failed_checkpoints.get(),
            refused_connections: counters.refused_connections.get(),
            delayed_requests: counters.delayed_requests.get(),
            delay_us: counters.delay_us.get(),
            scrub: counters.scrub.progress(),
            damaged_objects: damaged.len() as u64,
            damaged: first.map(describe).collect(),
            gauges: self.mailbox.request_gauges().recv_timeout(timeout).ok(),
            removals: self.removal_queue.progress(),
        }
    }
}
