//! Results of simulations of one job alone.

use crate::flow::calls::LoneCalls;
use crate::flow::requests::CallTimes;

/// Results of simulations of one job alone, for its nodes and phases.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobAlone {
    /// The lone calls of each of its nodes.
    pub calls: Vec<LoneCalls>,
    /// Time that the transfers of each phase take, as a multiple of that by rates; 1 where none is given.
    pub scales: Vec<f64>,
    /// The times of the calls of each phase, by requests; none where they are not known.
    pub call_times: Vec<CallTimes>,
}
