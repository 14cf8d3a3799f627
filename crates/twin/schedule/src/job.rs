//! Jobs of a trace.

use crate::time::Millis;
use forebay_units::Bytes;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number in the trace.
    pub id: u64,
    /// Time of its submission.
    pub arrival: Millis,
    /// Compute nodes.
    pub nodes: u32,
    /// Time limit that it requested, which the policies know.
    pub requested: Millis,
    /// Time for which it computes, at most the limit.
    pub run: Millis,
    /// Capacity of its burst buffer; zero without one.
    pub buffer: Bytes,
    /// Bytes that are staged in before it starts.
    pub stage_in: Bytes,
    /// Bytes that are staged out after its end.
    pub stage_out: Bytes,
    /// Checkpoints that it writes to its burst buffer.
    pub checkpoint: Option<Checkpoint>,
}

/// Checkpoints at regular times. The job does not compute while it writes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Computing time between two of them.
    pub every: Millis,
    /// Bytes of each.
    pub bytes: Bytes,
}

impl Job {
    /// A job without a burst buffer.
    pub fn new(id: u64, arrival: Millis, nodes: u32, requested: Millis, run: Millis) -> Job {
        Job {
            id,
            arrival,
            nodes,
            requested,
            run: run.min(requested),
            buffer: Bytes::ZERO,
            stage_in: Bytes::ZERO,
            stage_out: Bytes::ZERO,
            checkpoint: None,
        }
    }

    /// Checkpoints in `computing` time: one after each interval but the last.
    pub fn checkpoints_in(&self, computing: Millis) -> u64 {
        match self.checkpoint {
            Some(Checkpoint { every, .. }) if every > Millis::ZERO => {
                computing.0.div_ceil(every.0).saturating_sub(1)
            }
            _ => 0,
        }
    }
}
