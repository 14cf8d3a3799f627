//! Traces of jobs: Standard Workload Format, and JSON of Batsim.

mod batsim;
mod swf;

pub use batsim::parse_batsim;
pub use swf::parse_swf;

use crate::job::Job;

/// Most jobs of a trace.
pub const MAX_JOBS: usize = 10_000_000;

/// The jobs of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Jobs, in the order of arrival. Those that arrive at the same time keep the order of the file.
    pub jobs: Vec<Job>,
    /// Nodes of the machine, if the trace says so.
    pub nodes: Option<u32>,
    /// Whether the trace has burst buffers.
    pub has_buffers: bool,
    /// Jobs that are left out, each with the reason: their times or sizes are not known.
    pub left_out: Vec<(u64, String)>,
    /// Jobs that ran longer than requested, and end at their limit.
    pub cut: u64,
}

/// An error of a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not as it should be.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A job, or the document, is not as it should be.
    #[error("{0}")]
    Document(String),
    /// It has too many jobs.
    #[error("more than {MAX_JOBS} jobs")]
    TooMany,
}

/// Options for reading a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceOptions {
    /// Processors of a node, for traces that count processors.
    pub processors_per_node: u32,
    /// Operations that a node does in a second, for traces with operations instead of times.
    pub flops: f64,
}

impl Default for TraceOptions {
    fn default() -> TraceOptions {
        TraceOptions { processors_per_node: 1, flops: 1e9 }
    }
}

impl Trace {
    /// Adds a job whose run time may be longer than its limit.
    fn push(&mut self, job: Job, run: crate::time::Millis) -> Result<(), TraceError> {
        if self.jobs.len() >= MAX_JOBS {
            return Err(TraceError::TooMany);
        }
        self.cut += u64::from(run > job.requested);
        self.jobs.push(job);
        Ok(())
    }

    /// Brings the jobs into the order of arrival.
    fn sorted(mut self) -> Trace {
        self.jobs.sort_by_key(|job| job.arrival);
        self
    }
}
