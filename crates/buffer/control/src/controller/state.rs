//! The controller's durable state: each table owns the records of related objects.

use super::request_table::RequestTable;
use super::session_table::SessionTable;
use super::stage_table::StageTable;
use super::storage_table::StorageTable;
use crate::messages::{InstanceId, Owner, SessionId};
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// All objects.
#[derive(Clone, Debug)]
pub struct State {
    /// Pools, storage nodes and instances.
    pub storage: StorageTable,
    /// Sessions and activations.
    pub sessions: SessionTable,
    /// Stages.
    pub stages: StageTable,
    /// Accepted requests.
    pub requests: RequestTable,
    /// The highest id given to an object so far.
    last_id: Table<(), u64>,
}

impl Default for State {
    fn default() -> State {
        State {
            storage: StorageTable::default(),
            sessions: SessionTable::default(),
            stages: StageTable::default(),
            requests: RequestTable::default(),
            last_id: Table::new("last_id"),
        }
    }
}

impl State {
    /// The state from its durable records. Records of other tables are ignored.
    pub fn restore(
        records: impl IntoIterator<Item = StoredRecord>,
    ) -> Result<State, CorruptRecord> {
        let mut state = State::default();
        for record in records {
            let _known = state.storage.restore(&record)?
                || state.sessions.restore(&record)?
                || state.stages.restore(&record)?
                || state.requests.restore(&record)?
                || state.last_id.restore(&record)?;
        }
        state.storage.finish_restore();
        state.sessions.finish_restore();
        state.stages.finish_restore();
        state.requests.finish_restore();
        Ok(state)
    }

    /// The changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.storage.take_changes(&mut changes);
        self.sessions.take_changes(&mut changes);
        self.stages.take_changes(&mut changes);
        self.requests.take_changes(&mut changes);
        self.last_id.take_changes(&mut changes);
        changes
    }

    /// Panics if the tables contradict each other. Costs time in proportion to their size.
    pub(super) fn check_invariants(&self) {
        self.storage.check_invariants();
        self.sessions.check_invariants();
        self.stages.check_invariants();
        self.requests.check_invariants();
        let last = self.last_id.get(()).copied().unwrap_or(0);
        let ids = self.storage.fragments().map(|(id, _)| id.0);
        let ids = ids.chain(self.stages.iter().map(|(id, _)| id.0));
        let ids = ids.chain(self.sessions.iter().map(|(id, _)| id.0));
        assert!(ids.max().unwrap_or(0) <= last, "an id is in use that will be given again");
    }

    /// An id that no object has ever had.
    pub(super) fn next_id(&mut self) -> u64 {
        let next = self.last_id.get(()).copied().unwrap_or(0) + 1;
        self.last_id.insert((), next);
        next
    }

    /// Owner of an instance, which other users may use.
    pub(super) fn owner_of(&self, instance: InstanceId) -> Option<Owner> {
        let session = self.storage.session_of(instance)?;
        Some(self.sessions.get(session)?.owner)
    }

    /// Sessions other than the instance's own that use it.
    pub(super) fn other_sessions_using(&self, instance: InstanceId) -> Vec<SessionId> {
        let own = self.storage.session_of(instance);
        let uses = |id| {
            let configuration = self.storage.configuration(id);
            configuration.is_some_and(|configuration| configuration.instance == instance)
        };
        let sessions = self.sessions.iter().filter(|(id, _)| Some(*id) != own);
        let users = sessions.filter(|(_, s)| s.configurations.iter().any(|id| uses(*id)));
        users.map(|(id, _)| id).collect()
    }
}
