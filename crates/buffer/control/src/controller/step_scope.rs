//! Objects that a step has to look at: all of them when time has passed, else those that have changed.

use std::collections::BTreeSet;

use super::state::State;
use crate::messages::{ActivationId, InstanceId, SessionId};

/// Objects that a step has to look at. Read again after each phase of a step, which changes objects,
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepScope {
    /// All objects: what a node's silence or a time-out changes is in no record.
    All,
    /// Objects that were changed in this step.
    Changed,
}

impl StepScope {
    pub fn is_all(self) -> bool {
        self == StepScope::All
    }

    /// The sessions; some may have been removed.
    pub fn sessions(self, state: &State) -> BTreeSet<SessionId> {
        match self {
            StepScope::All => state.sessions.iter().map(|(id, _)| id).collect(),
            StepScope::Changed => {
                let of_instance = |id| state.storage.session_of(id);
                let instances = state.storage.changed_instances().filter_map(of_instance);
                let of_stage = |id| Some(state.stages.get(id)?.session);
                let stages = state.stages.changed().filter_map(of_stage);
                state.sessions.changed().chain(instances).chain(stages).collect()
            }
        }
    }

    /// The activations of these sessions.
    pub fn activations(self, state: &State) -> Vec<ActivationId> {
        match self {
            StepScope::All => state.sessions.activation_ids(),
            StepScope::Changed => {
                let ids: BTreeSet<SessionId> = state.sessions.changed().collect();
                let sessions = ids.into_iter().filter_map(|id| state.sessions.get(id));
                sessions.flat_map(|session| session.activations.iter().copied()).collect()
            }
        }
    }

    /// The instances; some may have been removed.
    pub fn instances(self, state: &State) -> BTreeSet<InstanceId> {
        match self {
            StepScope::All => state.storage.instances().map(|(id, _)| id).collect(),
            StepScope::Changed => state.storage.changed_instances().collect(),
        }
    }
}
