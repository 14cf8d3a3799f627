//! Sessions and their activations.

use std::collections::BTreeMap;

use forebay_job_script::Stage;

use super::limits::{TextSizes, setup_bytes, stage_bytes};
use super::mount_table::MountTable;
use super::objects::{Activation, Mount, Session};
use super::request::{Cause, Failure, refuse};
use crate::messages::{ActivationId, Owner, SessionId, UnixMillis};
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// Sessions and their activations.
#[derive(Clone, Debug)]
pub struct SessionTable {
    sessions: Table<SessionId, Session>,
    activations: Table<ActivationId, Activation>,
    pub(super) mounts: MountTable,
    /// Follows from `sessions`.
    by_token: BTreeMap<String, SessionId>,
    /// Bytes of set-ups, and of the stages that were added. Follows from `sessions` and the stages.
    text: TextSizes,
}

impl Default for SessionTable {
    fn default() -> SessionTable {
        SessionTable {
            sessions: Table::new("sessions"),
            activations: Table::new("activations"),
            mounts: MountTable::default(),
            by_token: BTreeMap::new(),
            text: TextSizes::default(),
        }
    }
}

impl SessionTable {
    pub(super) fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        Ok(self.sessions.restore(record)?
            || self.activations.restore(record)?
            || self.mounts.restore(record)?)
    }

    /// Computes what follows from the restored records.
    pub(super) fn finish_restore(&mut self) {
        let sessions = self.sessions.iter();
        self.by_token = sessions.map(|(id, s)| (s.token.clone(), id)).collect();
        for (id, session) in self.sessions.iter() {
            self.text.add(id, session.owner.uid, setup_bytes(&session.setup));
        }
        self.mounts.finish_restore();
        self.split_earlier_activations();
    }

    /// Gives each compute node of an activation that an earlier version has stored its own record.
    fn split_earlier_activations(&mut self) {
        let is_earlier = |activation: &Activation| !activation.earlier_hosts.is_empty();
        let earlier = self.activations.iter().filter(|(_, row)| is_earlier(row));
        let earlier: Vec<ActivationId> = earlier.map(|(id, _)| id).collect();
        for id in earlier {
            let Some(row) = self.activations.get_mut(id) else {
                continue;
            };
            let mut replicas = std::mem::take(&mut row.earlier_replicas);
            for (host, state) in std::mem::take(&mut row.earlier_hosts) {
                let replica = replicas.remove(&host);
                self.mounts.insert(id, Mount { host, state, generation: 0, replica });
            }
        }
    }

    /// No activation began to end later than now, and no expiry was noticed later.
    pub(super) fn forget_future(&mut self, now: UnixMillis) {
        let limit = |time: Option<&mut UnixMillis>| time.is_some_and(|time| time.limit(now));
        self.activations.change_each(|activation| limit(activation.ending.as_mut()));
        self.sessions.change_each(|session| {
            limit(session.expiry.as_mut().and_then(|expiry| expiry.noticed.as_mut()))
        });
    }

    pub(super) fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.sessions.take_changes(changes);
        self.activations.take_changes(changes);
        self.mounts.take_changes(changes);
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
        self.mounts.check_invariants();
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
            Failure::new(
                Cause::NotFound,
                format!("there is no job or persistent instance `{token}`"),
            )
        })?;
        check_may_act(caller, found.1.owner, &found.1.description())?;
        Ok(found)
    }

    pub(super) fn insert(&mut self, id: SessionId, session: Session) {
        let old = self.by_token.insert(session.token.clone(), id);
        assert!(old.is_none(), "two sessions have one token");
        self.text.add(id, session.owner.uid, setup_bytes(&session.setup));
        self.sessions.insert_new(id, session);
    }

    /// Removes a session without activations.
    pub(super) fn remove(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        assert!(session.activations.is_empty(), "a mounted session was removed");
        self.by_token.remove(&session.token);
        self.text.remove(id);
    }

    /// Bytes of set-ups and stages.
    pub(super) fn text_sizes(&self) -> &TextSizes {
        &self.text
    }

    /// A session has another stage.
    pub(super) fn note_stage(&mut self, id: SessionId, directive: &Stage) {
        if let Some(session) = self.sessions.get(id) {
            self.text.add(id, session.owner.uid, stage_bytes(directive));
        }
    }

    /// A stage of a session is forgotten.
    pub(super) fn forget_stage(&mut self, id: SessionId, directive: &Stage) {
        self.text.subtract(id, stage_bytes(directive));
    }

    /// Whether anything was changed in this step.
    pub(super) fn has_changes(&self) -> bool {
        self.sessions.has_changes()
            || self.activations.has_changes()
            || self.mounts.changed_keys().next().is_some()
    }

    /// Sessions that were changed or removed in this step, also in their activations or mounts.
    pub(super) fn changed(&self) -> impl Iterator<Item = SessionId> {
        let of_activation = |id| Some(self.activations.get(id)?.session);
        let mounts = self.mounts.changed_keys().map(|id| id.activation);
        let activations = self.activations.changed_keys().chain(mounts);
        self.sessions.changed_keys().chain(activations.filter_map(of_activation))
    }

    /// Activations that were changed or removed in this step, not counting their mounts.
    pub(super) fn changed_activations(&self) -> impl Iterator<Item = ActivationId> {
        self.activations.changed_keys()
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
        self.mounts.remove_all(id);
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
