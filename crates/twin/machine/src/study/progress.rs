//! Progress reports of a study.

use forebay_units::Time;

/// Receives progress reports of a running simulation.
pub trait Progress: Sync {
    /// Called with the simulated time, the share of the work that is done (0 to 1), and the number
    /// of events so far. Returning `false` ends the simulation with
    /// [`StudyError::Interrupted`](super::StudyError::Interrupted).
    fn update(&self, simulated: Time, done: f64, events: u64) -> bool;
}

/// Discards progress reports.
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _: Time, _: f64, _: u64) -> bool {
        true
    }
}
