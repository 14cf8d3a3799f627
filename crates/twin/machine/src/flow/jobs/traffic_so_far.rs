//! Traffic of other jobs beside I/O jobs.

use crate::flow::fabric::Fabric;

/// The traffic of other jobs up to a time.
#[derive(Clone, Debug, Default)]
pub(super) struct TrafficSoFar {
    /// ps.
    pub time: u64,
    /// Bytes of each job.
    moved: Vec<f64>,
}

impl TrafficSoFar {
    pub fn of(fabric: &Fabric) -> TrafficSoFar {
        TrafficSoFar { time: fabric.now(), moved: fabric.traffic_moved() }
    }

    /// Mean rates of the jobs since an earlier time, bytes per picosecond.
    pub fn rates_since(&self, earlier: &TrafficSoFar) -> Vec<f64> {
        let time = (self.time - earlier.time).max(1) as f64;
        self.moved.iter().zip(&earlier.moved).map(|(now, before)| (now - before) / time).collect()
    }
}
