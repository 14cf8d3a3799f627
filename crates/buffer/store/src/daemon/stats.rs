//! Access to the statistics of a running daemon.

use super::counters::StoreCounters;
use super::mailbox::Mailbox;
use super::report::StoreReport;
use crate::objects::RemovalQueue;
use std::sync::Arc;
use std::time::Duration;

/// Access to the statistics of a running daemon. Does not keep the daemon alive.
#[derive(Clone, Debug)]
pub struct StatsHandle {
    pub(super) counters: Arc<StoreCounters>,
    pub(super) removal_queue: Arc<RemovalQueue>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl StatsHandle {
    /// Read all counters, and the gauges if the event loop answers within `timeout`, which costs it
    /// some microseconds.
    pub fn collect_report(&self, timeout: Duration) -> StoreReport {
        let counters = &self.counters;
        StoreReport {
            requests: counters.request_stats(),
            received: counters.received.get(),
            sent: counters.sent.get(),
            records: counters.records.get(),
            record_bytes: counters.record_bytes.get(),
            syncs: counters.syncs.snapshot(),
            gauges: self.mailbox.request_gauges().recv_timeout(timeout).ok(),
            removals: self.removal_queue.progress(),
        }
    }
}
