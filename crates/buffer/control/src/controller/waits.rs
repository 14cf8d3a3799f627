//! The requests that wait, by the session whose objects they wait for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::objects::Wait;
use super::request::RequestId;
use super::state::State;
use crate::messages::{ActivationId, SessionId, StageId};

/// The requests that wait, by session. Follows from the records of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    sessions: BTreeMap<RequestId, SessionId>,
    by_session: BTreeSet<(SessionId, RequestId)>,
}

/// The session whose objects a request waits for, while it exists.
fn session_of(state: &State, wait: &Wait) -> Option<SessionId> {
    let of_activations = |ids: &[ActivationId]| {
        ids.iter().find_map(|id| Some(state.sessions.activation(*id)?.session))
    };
    let of_stages =
        |ids: &[StageId]| ids.iter().find_map(|id| Some(state.stages.get(*id)?.session));
    match wait {
        Wait::Ready(id) | Wait::TornDown(id) => Some(*id),
        Wait::Mounted(ids) | Wait::Unmounted(ids) => of_activations(ids),
        Wait::Staged(ids) | Wait::Stopped(ids) => of_stages(ids),
    }
}

impl Waits {
    /// A request waits. One that waits for nothing that exists is looked at with all requests only.
    pub fn insert(&mut self, state: &State, id: RequestId, wait: &Wait) {
        if let Some(session) = session_of(state, wait) {
            self.sessions.insert(id, session);
            self.by_session.insert((session, id));
        }
    }

    /// A request was answered.
    pub fn remove(&mut self, id: RequestId) {
        if let Some(session) = self.sessions.remove(&id) {
            self.by_session.remove(&(session, id));
        }
    }

    /// The requests that wait for objects of a session.
    pub fn of(&self, session: SessionId) -> impl Iterator<Item = RequestId> {
        let first = Bound::Included((session, RequestId(0)));
        let last = Bound::Included((session, RequestId(u128::MAX)));
        self.by_session.range((first, last)).map(|(_, id)| *id)
    }
}
