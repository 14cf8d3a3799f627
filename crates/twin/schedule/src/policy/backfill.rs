//! First come, first served, and EASY backfilling (Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995).

use super::{Draft, Situation, Waiting};

/// A kind of backfilling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Whether later jobs may begin before the first one that waits.
    backfills: bool,
    /// Whether the burst buffer of the first job is reserved, too.
    reserves_buffer: bool,
    /// Whether jobs are backfilled in the order of their time limits.
    shortest_first: bool,
}

impl Kind {
    pub(super) const FCFS: Kind =
        Kind { backfills: false, reserves_buffer: true, shortest_first: false };
    pub(super) const EASY: Kind =
        Kind { backfills: true, reserves_buffer: false, shortest_first: false };
    pub(super) const EASY_BB: Kind =
        Kind { backfills: true, reserves_buffer: true, shortest_first: false };
    pub(super) const SJF: Kind =
        Kind { backfills: true, reserves_buffer: true, shortest_first: true };
}

pub(super) fn decide(draft: &mut Draft, situation: &Situation<'_>, kind: Kind) {
    let mut queue = situation.queue;
    // A committed job that waits for nodes has the reservation.
    if !draft.has_waiting_commitment {
        while let [first, rest @ ..] = queue {
            queue = rest;
            if !draft.begin_if_possible(first) {
                reserve(draft, first, kind);
                break;
            }
        }
    }
    if kind.backfills {
        if kind.shortest_first {
            let mut order: Vec<&Waiting> = queue.iter().collect();
            order.sort_by_key(|waiting| (waiting.need.limit, waiting.arrival, waiting.job));
            for waiting in order {
                draft.begin_if_possible(waiting);
            }
        } else {
            for waiting in queue {
                draft.begin_if_possible(waiting);
            }
        }
    }
}

/// Reserves the resources of the first job that waits, or begins its stage-in.
fn reserve(draft: &mut Draft, first: &Waiting, kind: Kind) {
    let need = match kind.reserves_buffer {
        true => first.need,
        false => first.need.nodes_only(),
    };
    let start = draft.profile.earliest(draft.now.plus(need.lead), &need);
    draft.decision.reservations.push((first.job, start));
    // With its nodes alone in the profile, the rest of the time with its burst buffer is the whole of it.
    draft.profile.take(start, &first.need.nodes_only());
    if !draft.begin_early(first, start, false) {
        let begin = start.since(need.lead);
        let end = start.plus(need.limit).plus(need.tail);
        draft.profile.take_granules((begin, end), need.granules);
    }
}
