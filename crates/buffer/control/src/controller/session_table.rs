//! Sessions and their activations.

use std::collections::BTreeMap;

use super::objects::{Activation, Session};
use super::request::{Cause, Failure, refuse};
use crate::messages::{ActivationId, Owner, SessionId};
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// Sessions and their activations.
#[derive(Clone, Debug)]
pub struct SessionTable {
    sessions: Table<SessionId, Session>,
    activations: Table<ActivationId, Activation>,
    /// Follows from `sessions`.
    by_token: BTreeMap<String, SessionId>,
}

impl Default for SessionTable {
    fn default() -> SessionTable {
        SessionTable {
            sessions: Table::new("sessions"),
            activations: Table::new("activations"),
            by_token: BTreeMap::new(),
        }
    }
}

impl SessionTable {
    pub(super) fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        Ok(self.sessions.restore(record)? || self.activations.restore(record)?)
    }

    /// Computes what follows from the restored records.
    pub(super) fn finish_restore(&mut self) {
        let sessions = self.sessions.iter();
        self.by_token = sessions.map(|(id, s)| (s.token.clone(), id)).collect();
    }

    pub(super) fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.sessions.take_changes(changes);
        self.activations.take_changes(changes);
    }

    /// Panics if the tables contradict each other. Costs time in proportion to their size.
    pub(super) fn check_invariants(&self) {
        assert_eq!(self.by_token.len(), self.sessions.len(), "tokens are unique");
        for (id, session) in self.sessions.iter() {
            assert_eq!(self.by_token.get(&session.token), Some(&id));
        }
        for (id, activation) in self.activations.iter() {
            let session = self.sessions.get(activation.session);
            assert!(
                session.is_some_and(|session| session.activations.contains(&id)),
                "an activation is not listed by its session"
            );
        }
    }

    /// A session.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter()
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(id)
    }

    /// The session with this token.
    pub fn by_token(&self, token: &str) -> Option<(SessionId, &Session)> {
        let id = *self.by_token.get(token)?;
        Some((id, self.sessions.get(id)?))
    }

    /// The session with this token, if `caller` may act for it.
    pub fn authorized(&self, token: &str, caller: Owner) -> Result<(SessionId, &Session), Failure> {
        let found = self.by_token(token).ok_or_else(|| {
            Failure::new(Cause::NotFound, format!("there is no session `{token}`"))
        })?;
        check_may_act(caller, found.1.owner, &format!("session `{token}`"))?;
        Ok(found)
    }

    pub(super) fn insert(&mut self, id: SessionId, session: Session) {
        let old = self.by_token.insert(session.token.clone(), id);
        assert!(old.is_none(), "two sessions have one token");
        self.sessions.insert_new(id, session);
    }

    /// Removes a session without activations.
    pub(super) fn remove(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        assert!(session.activations.is_empty(), "a mounted session was removed");
        self.by_token.remove(&session.token);
    }

    /// Sessions that are being torn down.
    pub(super) fn ending(&self) -> Vec<SessionId> {
        let sessions = self.sessions.iter();
        let ending = sessions.filter(|(_, session)| session.ending);
        ending.map(|(id, _)| id).collect()
    }

    /// An activation.
    pub fn activation(&self, id: ActivationId) -> Option<&Activation> {
        self.activations.get(id)
    }

    /// All activations.
    pub fn activations(&self) -> impl Iterator<Item = (ActivationId, &Activation)> {
        self.activations.iter()
    }

    pub(super) fn activation_ids(&self) -> Vec<ActivationId> {
        self.activations.keys()
    }

    pub(super) fn activation_mut(&mut self, id: ActivationId) -> Option<&mut Activation> {
        self.activations.get_mut(id)
    }

    /// Adds an activation to its session.
    pub(super) fn add_activation(&mut self, id: ActivationId, activation: Activation) {
        if let Some(session) = self.sessions.get_mut(activation.session) {
            session.activations.push(id);
        }
        self.activations.insert_new(id, activation);
    }

    pub(super) fn remove_activation(&mut self, id: ActivationId) {
        let Some(activation) = self.activations.remove(id) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(activation.session) {
            session.activations.retain(|of| *of != id);
        }
    }
}

/// Refuses callers who may not act for `owner`: everybody but that user and root.
pub(super) fn check_may_act(caller: Owner, owner: Owner, object: &str) -> Result<(), Failure> {
    if caller.uid == owner.uid || caller.uid == 0 {
        return Ok(());
    }
    refuse!(Denied, "permission denied: {object} belongs to user {}", owner.uid)
}
