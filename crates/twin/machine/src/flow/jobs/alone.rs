//! Results of simulations of one job alone.

use crate::flow::calls::LoneCalls;
use crate::flow::phase::FlowOutcome;
use crate::flow::requests::CallTimes;
use crate::study::StudyError;

/// Simulations by rates that find the multiple of their times: processes begin one after another, and that part of a
/// phase's time is not multiplied.
const ROUNDS: u32 = 2;

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

impl JobAlone {
    /// A job whose phases have the times of a simulation request by request where nothing else is on their links.
    /// `by_rates` simulates it alone with the multiples found so far, and gives the seconds of the transfers of each
    /// phase.
    ///
    /// # Errors
    /// Those of `by_rates`.
    pub fn as_by_requests(
        calls: Vec<LoneCalls>,
        by_requests: FlowOutcome,
        mut by_rates: impl FnMut(&JobAlone) -> Result<Vec<f64>, StudyError>,
    ) -> Result<JobAlone, StudyError> {
        let scales = vec![1.0; by_requests.phases.len()];
        let mut known = JobAlone { calls, scales, call_times: by_requests.calls };
        for _ in 0..ROUNDS {
            let seconds = by_rates(&known)?;
            let phases = by_requests.phases.iter().zip(seconds);
            for (scale, (one, other)) in known.scales.iter_mut().zip(phases) {
                *scale *= one.transfer_seconds / other.max(f64::MIN_POSITIVE);
            }
        }
        Ok(known)
    }
}
