//! Progress reports of a running simulation.

use crate::time::Picoseconds;

/// Receives progress reports from one of a run's threads.
pub trait Progress: Sync {
    /// Called with the simulated time reached and the number of events executed so far. Returning
    /// `false` stops the run early.
    fn update(&self, now: Picoseconds, events: u64) -> bool;
}

/// Discards progress reports.
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _: Picoseconds, _: u64) -> bool {
        true
    }
}
