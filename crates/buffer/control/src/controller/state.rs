//! The controller's durable state: each table owns the records of related objects.

use super::request_table::RequestTable;
use super::session_table::SessionTable;
use super::stage_table::StageTable;
use super::storage_table::StorageTable;
use crate::messages::{InstanceId, Owner, SessionId};
use crate::records::{Change, CorruptRecord, StoredRecord, Table, record_key};

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
    /// Number of changes that were made durable so far.
    revision: Table<(), u64>,
    /// Ranges of ids that a lost state of the controller may have given: last id by first.
    lost_ids: Table<LostIds, u64>,
}

/// Ids and revisions that are skipped when a restored state is accepted: more than a lost state can
/// have used. Slurm keeps ids in 32 bits.
const SKIPPED_IDS: u64 = 1 << 20;

/// The first id of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LostIds(u64);

record_key!(LostIds);

impl Default for State {
    fn default() -> State {
        State {
            storage: StorageTable::default(),
            sessions: SessionTable::default(),
            stages: StageTable::default(),
            requests: RequestTable::default(),
            last_id: Table::new("last_id"),
            revision: Table::new("revision"),
            lost_ids: Table::new("lost_ids"),
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
                || state.last_id.restore(&record)?
                || state.revision.restore(&record)?
                || state.lost_ids.restore(&record)?;
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
        self.lost_ids.take_changes(&mut changes);
        if !changes.is_empty() {
            let next = self.revision() + 1;
            self.revision.insert((), next);
        }
        self.revision.take_changes(&mut changes);
        changes
    }

    /// Number of the durable state.
    pub fn revision(&self) -> u64 {
        self.revision.get(()).copied().unwrap_or(0)
    }

    /// Accepts that this state follows a later one, which is lost. Ids and revisions continue above
    /// all that the lost one can have used.
    pub(super) fn skip_lost(&mut self, lost_revision: u64) {
        let first = self.last_id() + 1;
        let last = first.saturating_add(SKIPPED_IDS);
        self.lost_ids.insert(LostIds(first), last);
        self.last_id.insert((), last);
        let revision = self.revision().max(lost_revision);
        self.revision.insert((), revision.saturating_add(SKIPPED_IDS));
    }

    /// Whether a lost state may have given an id.
    pub(super) fn is_lost_id(&self, id: u64) -> bool {
        id > self.last_id()
            || self.lost_ids.iter().any(|(first, last)| (first.0..=*last).contains(&id))
    }

    fn last_id(&self) -> u64 {
        self.last_id.get(()).copied().unwrap_or(0)
    }

    /// Panics if the tables contradict each other. Costs time in proportion to their size.
    pub(super) fn check_invariants(&self) {
        self.storage.check_invariants();
        self.sessions.check_invariants();
        self.stages.check_invariants();
        self.requests.check_invariants();
        let last = self.last_id();
        let ids = self.storage.fragments().map(|(id, _)| id.0);
        let ids = ids.chain(self.stages.iter().map(|(id, _)| id.0));
        let ids = ids.chain(self.sessions.iter().map(|(id, _)| id.0));
        assert!(ids.max().unwrap_or(0) <= last, "an id is in use that will be given again");
    }

    /// An id that no object has ever had.
    pub(super) fn next_id(&mut self) -> u64 {
        let next = self.last_id() + 1;
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
