//! Monotonic counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// A monotonic counter. An update is one relaxed atomic addition.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Add one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Add `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
