//! Collects the groups' counts of each phase, and makes the phase's document when all are there.
//!
//! The counts of a phase are large: every link of the machine. They are dropped as soon as the
//! document is made, so that memory does not grow with the number of repetitions.

use crate::io::{IoJob, PhaseCounts};
use crate::phase_result::phase_result;
use crate::phase_totals::PhaseTotals;
use crate::results::{Phase, Series};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Phases of a test that keep all details; with more, only the fastest of each access does.
const MAX_DETAILED: u64 = 256;

/// Phases that have ended.
pub(crate) struct PhaseCollector {
    groups: usize,
    /// Whether every phase keeps its details.
    all_detailed: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts of the phases that have not ended in all groups, by phase and group.
    counts: BTreeMap<usize, Vec<Option<PhaseCounts>>>,
    /// Documents by phase.
    ended: BTreeMap<usize, Phase>,
}

impl PhaseCollector {
    /// A collector for a machine of `groups` groups and a test of `phases` phases.
    pub fn new(groups: u16, phases: u64) -> Self {
        PhaseCollector {
            groups: groups.into(),
            all_detailed: phases <= MAX_DETAILED,
            state: Mutex::default(),
        }
    }

    /// Adds a group's counts of a phase.
    pub fn add(&self, phase: usize, group: u16, counts: PhaseCounts, job: &IoJob) {
        let mut state = self.lock();
        let of_phase = state.counts.entry(phase).or_insert_with(|| vec![None; self.groups]);
        of_phase[usize::from(group)] = Some(counts);
        if of_phase.iter().any(Option::is_none) {
            return;
        }
        let counts = state.counts.remove(&phase).unwrap_or_default();
        let totals = PhaseTotals::sum(counts.into_iter().flatten().collect());
        let document = phase_result(job, &totals);
        state.ended.insert(phase, document);
        if !self.all_detailed {
            state.drop_details_of_slower_phases(phase);
        }
    }

    /// The documents of all phases, in the order in which they ran.
    pub fn take(&self) -> Vec<Phase> {
        std::mem::take(&mut self.lock().ended).into_values().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps the details of the new phase or of the one that was the fastest of its access.
    fn drop_details_of_slower_phases(&mut self, new: usize) {
        let Some((access, rate)) = self.ended.get(&new).map(|p| (p.access.clone(), p.gbps)) else {
            return;
        };
        let best = self.ended.iter().find(|(number, phase)| {
            **number != new && phase.access == access && !phase.heat.is_empty()
        });
        let Some((&best, best_rate)) = best.map(|(number, phase)| (number, phase.gbps)) else {
            return;
        };
        // Of equally fast phases the last is the best, as in the choice of the best phase.
        let slower = if best_rate > rate || (best_rate == rate && best > new) { new } else { best };
        if let Some(phase) = self.ended.get_mut(&slower) {
            phase.heat = Vec::new();
            phase.series = Series::default();
            phase.each_link = Vec::new();
        }
    }
}
