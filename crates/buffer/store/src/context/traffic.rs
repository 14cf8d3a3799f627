//! Data that a session's data connections carry.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a session, updated by the threads of its data connections with relaxed atomics.
#[derive(Debug, Default)]
pub struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
    last_ns: AtomicU64,
}

impl Traffic {
    /// Count an answered request, which arrived at `now_ns`, with the contents that it read and wrote.
    pub fn count(&self, now_ns: u64, read: u64, written: u64) {
        self.read.fetch_add(read, Ordering::Relaxed);
        self.written.fetch_add(written, Ordering::Relaxed);
        self.last_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// Bytes of contents read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of contents written.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Arrival of the last request, on the daemon's monotonic clock.
    pub fn last_ns(&self) -> u64 {
        self.last_ns.load(Ordering::Relaxed)
    }
}
