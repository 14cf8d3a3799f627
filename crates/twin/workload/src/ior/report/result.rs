//! The results of a run that IOR prints.

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
    /// With wear-out: the state at the deadline.
    pub stonewall: Option<StonewallResult>,
}

/// Progress at the deadline, with `stoneWallingWearOut`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StonewallResult {
    /// Seconds from the start of the transfers to the point where all tasks had stopped.
    pub seconds: f64,
    /// Mean number of bytes of a task at that point.
    pub mean_bytes: u64,
}

/// One line of a test's results, in chronological order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line {
    /// A phase.
    Phase(PhaseResult),
    /// The removal of the files at the end of a repetition.
    Remove {
        /// Repetition, from 0.
        iteration: u32,
        /// From the barrier before to the barrier after, in seconds.
        seconds: f64,
    },
}

/// One test with its results.
#[derive(Clone, Copy, Debug)]
pub struct TestReport<'a> {
    /// The test.
    pub ior: &'a Ior,
    /// Its access pattern.
    pub pattern: &'a AccessPattern,
    /// Simulated start time, in seconds.
    pub started_seconds: f64,
    /// Its results.
    pub lines: &'a [Line],
}

/// IOR's output for a run; [`Display`](std::fmt::Display) formats it.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// IOR's arguments, verbatim, without the program's name.
    pub arguments: &'a [String],
    /// The simulated machine.
    pub machine: &'a str,
    /// The tests in the order in which they ran.
    pub tests: &'a [TestReport<'a>],
    /// Simulated time at the end, in seconds.
    pub finished_seconds: f64,
}

impl TestReport<'_> {
    /// The phases of one kind.
    pub(super) fn phases(&self, access: Access) -> impl Iterator<Item = &PhaseResult> {
        self.lines.iter().filter_map(move |line| match line {
            Line::Phase(result) if result.access == access => Some(result),
            Line::Phase(_) | Line::Remove { .. } => None,
        })
    }

    /// Whether the test has phases of this kind.
    pub(super) fn runs(&self, access: Access) -> bool {
        match access {
            Access::Write => self.ior.write,
            Access::Read => self.ior.read,
        }
    }
}

/// Bytes per second of a phase.
pub(super) fn rate(result: &PhaseResult) -> f64 {
    ratio(result.bytes as f64, result.total_seconds)
}
