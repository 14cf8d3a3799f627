//! One phase of a test, summed over the groups.

use crate::io::{PhaseCounts, Waits};
use crate::links::Links;

/// One phase of a test on the whole machine.
pub(crate) struct PhaseTotals {
    pub counts: PhaseCounts,
    pub links: Links,
    /// The group whose processes were last to end their transfers: it determined the duration of
    /// the phase.
    pub last: LastGroup,
}

/// Transfers of the processes of one group.
#[derive(Clone, Copy, Default)]
pub(crate) struct LastGroup {
    pub group: usize,
    pub operations: u64,
    /// Requests of these transfers.
    pub requests: u64,
    /// Sum of the transfers' durations, ps.
    pub time: u64,
    pub waits: Waits,
}

impl PhaseTotals {
    /// The sums of the groups' counts of one phase.
    pub fn sum(phases: Vec<PhaseCounts>) -> PhaseTotals {
        let mut links = Vec::new();
        let mut counts = PhaseCounts::default();
        let mut last = LastGroup::default();
        for (group, phase) in phases.into_iter().enumerate() {
            if phase.operations > 0 && phase.transfers.last > counts.transfers.last {
                (last.group, last.operations, last.time) = (group, phase.operations, phase.time);
                last.requests = phase.requests;
            }
            counts.iteration = phase.iteration;
            counts.access = phase.access;
            // The groups enter and leave the phase at slightly different times.
            counts.begun = if group == 0 { phase.begun } else { counts.begun.min(phase.begun) };
            counts.ended = counts.ended.max(phase.ended);
            counts.opens.join(&phase.opens);
            counts.transfers.join(&phase.transfers);
            counts.closes.join(&phase.closes);
            counts.bytes += phase.bytes;
            counts.operations += phase.operations;
            counts.times += &phase.times;
            counts.time += phase.time;
            counts.least_mean = match (counts.least_mean, phase.least_mean) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            counts.most_in_calls = counts.most_in_calls.max(phase.most_in_calls);
            counts.node_rates.extend(phase.node_rates);
            counts.timeline.merge(&phase.timeline);
            counts.by_requests.merge(&phase.by_requests);
            counts.link_timeline.merge(&phase.link_timeline);
            counts.waits.resize(phase.waits.len(), Waits::default());
            for (sum, waits) in counts.waits.iter_mut().zip(&phase.waits) {
                sum.add(waits);
            }
            counts.servers.extend(phase.servers);
            counts.paths.extend(phase.paths);
            links.push(phase.links);
        }
        last.waits = counts.waits.get(last.group).copied().unwrap_or_default();
        PhaseTotals { counts, links, last }
    }
}
