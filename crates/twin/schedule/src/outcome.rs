//! The life of a job in a simulation.

use crate::time::Millis;
use serde::Serialize;

/// Times of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Its number in the trace.
    pub id: u64,
    /// Its compute nodes.
    pub nodes: u32,
    /// Granules of its burst buffer.
    pub granules: u64,
    /// Storage nodes of its burst buffer.
    pub storage_nodes: u32,
    /// Its submission.
    pub arrival: Millis,
    /// Its burst buffer was allocated, and its stage-in began.
    pub begin: Millis,
    /// Its stage-in ended.
    pub ready: Millis,
    /// It got its nodes.
    pub start: Millis,
    /// It released its nodes, and its stage-out began.
    pub end: Millis,
    /// Its stage-out ended, and its burst buffer was freed.
    pub done: Millis,
    /// Time for which it could have begun, but for its burst buffer.
    pub buffer_delay: Millis,
    /// Time for which it could have run, but for its stage-in.
    pub stage_delay: Millis,
    /// The first start that was reserved for it.
    pub first_reservation: Option<Millis>,
}

impl Outcome {
    /// Time from its submission until it got its nodes.
    pub fn waiting(&self) -> Millis {
        self.start.since(self.arrival)
    }

    /// Its waiting and running time divided by its running time, which counts as `bound` at least; at least 1.
    pub fn bounded_slowdown(&self, bound: Millis) -> f64 {
        let run = self.end.since(self.start);
        let response = self.end.since(self.arrival);
        (response.seconds() / run.max(bound).seconds().max(1e-3)).max(1.0)
    }
}
