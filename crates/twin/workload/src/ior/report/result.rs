//! The results that IOR prints.

use super::super::access_pattern::{Access, AccessPattern};
use super::super::spec::Ior;
use super::format::ratio;

/// The result of one phase of one repetition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseResult {
    /// Writing or reading.
    pub access: Access,
    /// Repetition, from 0.
    pub iteration: u32,
    /// Bytes moved by all tasks.
    pub bytes: u64,
    /// First start of an open to last end of one, in seconds.
    pub open_seconds: f64,
    /// First start of a task's transfers to last end, in seconds; with `-e`, fsync included.
    pub transfer_seconds: f64,
    /// First start of a close to last end of one, in seconds.
    pub close_seconds: f64,
    /// First start of an open to last end of a close, in seconds.
    pub total_seconds: f64,
    /// The least, over the tasks, of a task's mean duration of a transfer, in seconds.
    pub latency_seconds: f64,
}

impl PhaseResult {
    /// Bytes per second.
    pub(super) fn rate(&self) -> f64 {
        ratio(self.bytes as f64, self.total_seconds)
    }
}

/// IOR's output for one test; [`Display`](std::fmt::Display) formats it.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// IOR's arguments, verbatim, without the program's name.
    pub arguments: &'a [String],
    /// The simulated machine.
    pub machine: &'a str,
    /// The test.
    pub ior: &'a Ior,
    /// Its access pattern.
    pub pattern: &'a AccessPattern,
    /// Its results, in chronological order.
    pub phases: &'a [PhaseResult],
    /// Simulated time at the end, in seconds.
    pub finished_seconds: f64,
}

impl Report<'_> {
    /// The phases of one kind.
    pub(super) fn phases(&self, access: Access) -> impl Iterator<Item = &PhaseResult> {
        self.phases.iter().filter(move |phase| phase.access == access)
    }
}
