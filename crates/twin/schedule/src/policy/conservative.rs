//! Conservative backfilling: every job has a reservation, which is only made earlier.

use super::{Delay, Draft, Situation, Waiting};
use crate::time::Millis;

pub(super) fn decide(draft: &mut Draft, situation: &Situation<'_>) {
    let now = situation.now;
    let mut planned: Vec<(Millis, &Waiting)> = Vec::with_capacity(situation.queue.len());
    let reserved = |waiting: &Waiting| waiting.reserved.unwrap_or(Millis::NEVER);
    let mut order: Vec<&Waiting> = situation.queue.iter().collect();
    order.sort_by_key(|waiting| (reserved(waiting), waiting.arrival, waiting.job));
    for waiting in order {
        let first = now.plus(waiting.need.lead);
        // A reservation holds unless somebody has taken longer than expected.
        let kept = waiting
            .reserved
            .filter(|start| *start >= first && draft.profile.fits(*start, &waiting.need));
        let start = kept.unwrap_or_else(|| draft.profile.earliest(first, &waiting.need));
        draft.profile.take(start, &waiting.need);
        planned.push((start, waiting));
    }
    if situation.has_changed {
        planned.sort_by_key(|(start, waiting)| (*start, waiting.arrival, waiting.job));
        for (start, waiting) in &mut planned {
            draft.profile.give_back(*start, &waiting.need);
            let earlier = draft.profile.earliest(now.plus(waiting.need.lead), &waiting.need);
            assert!(earlier <= *start, "a reservation at {start:?} is delayed to {earlier:?}");
            *start = earlier;
            draft.profile.take(earlier, &waiting.need);
        }
    }
    planned.sort_by_key(|(start, waiting)| (*start, waiting.arrival, waiting.job));
    begin_planned(draft, &planned);
}

/// Begins the jobs of a plan whose time has come, and the stage-in of the first of the others.
/// The profile has the plan, which is in the order of starts.
pub(super) fn begin_planned(draft: &mut Draft, planned: &[(Millis, &Waiting)]) {
    let mut may_begin_early = !draft.has_waiting_commitment;
    for (start, waiting) in planned {
        if *start == draft.now.plus(waiting.need.lead) {
            draft.begin(waiting, *start);
            continue;
        }
        note_delay(draft, waiting, *start);
        draft.decision.reservations.push((waiting.job, *start));
        if may_begin_early {
            may_begin_early = false;
            draft.begin_early(waiting, *start, true);
        }
    }
}

/// Notes a job, which the profile has at `planned`, if only its burst buffer keeps it from beginning now.
fn note_delay(draft: &mut Draft, waiting: &Waiting, planned: Millis) {
    let need = waiting.need;
    if need.granules == 0 || (need.lead == Millis::ZERO && need.nodes > draft.profile.now().nodes) {
        return;
    }
    draft.profile.give_back(planned, &need);
    if draft.profile.fits(draft.now.plus(need.lead), &need.nodes_only()) {
        draft.decision.delayed.push((waiting.job, Delay::Buffer));
    }
    draft.profile.take(planned, &need);
}
