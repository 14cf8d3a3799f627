//! The controller's durable state: each table owns the records of related objects.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evacuation_table::EvacuationTable;
use super::fences::FenceTable;
use super::job_usage::UsageTable;
use super::limits::{setup_bytes, stage_bytes};
use super::objects::Activation;
use super::quotas::QuotaTable;
use super::request_table::RequestTable;
use super::session_table::SessionTable;
use super::stage_table::StageTable;
use super::storage_table::StorageTable;
use crate::messages::{ActivationId, InstanceId, Owner, SessionId, StateStamp, UnixMillis};
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
    /// Fences of compute nodes.
    pub(super) fences: FenceTable,
    /// Instances that move to other storage nodes.
    pub(super) evacuations: EvacuationTable,
    /// Quotas of users, groups and accounts.
    pub(super) quotas: QuotaTable,
    /// Statistics of jobs.
    pub(super) usage: UsageTable,
    /// The highest id given to an object so far.
    last_id: Table<(), u64>,
    /// Number of changes that were made durable so far.
    revision: Table<(), u64>,
    /// The controller's starts, numbered.
    epochs: Table<EpochNumber, Epoch>,
    /// The revision up to which an operator has accepted the loss of a later state.
    accepted: Table<(), u64>,
    /// Ranges of ids that a lost state of the controller may have given: last id by first.
    lost_ids: Table<LostIds, u64>,
}

/// Ids and revisions that are skipped when a restored state is accepted: more than a lost state can
/// have used. Slurm keeps ids in 32 bits.
const SKIPPED_IDS: u64 = 1 << 20;

/// Starts that are remembered.
const MAX_EPOCHS: usize = 4096;

/// Number of a start of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EpochNumber(u64);

/// A start of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Epoch {
    /// Its time, in milliseconds since 1970.
    id: u64,
    /// Its first revision.
    first: u64,
}

/// The first id of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LostIds(u64);

record_key!(LostIds, EpochNumber);

impl Default for State {
    fn default() -> State {
        State {
            storage: StorageTable::default(),
            sessions: SessionTable::default(),
            stages: StageTable::default(),
            requests: RequestTable::default(),
            fences: FenceTable::default(),
            evacuations: EvacuationTable::default(),
            quotas: QuotaTable::default(),
            usage: UsageTable::default(),
            last_id: Table::new("last_id"),
            revision: Table::new("revision"),
            epochs: Table::new("epochs"),
            accepted: Table::new("accepted_loss"),
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
                || state.fences.restore(&record)?
                || state.evacuations.restore(&record)?
                || state.quotas.restore(&record)?
                || state.usage.restore(&record)?
                || state.last_id.restore(&record)?
                || state.revision.restore(&record)?
                || state.epochs.restore(&record)?
                || state.accepted.restore(&record)?
                || state.lost_ids.restore(&record)?;
        }
        state.storage.finish_restore();
        state.sessions.finish_restore();
        state.stages.finish_restore();
        state.requests.finish_restore();
        state.fences.finish_restore();
        state.usage.finish_restore();
        for (_, stage) in state.stages.iter().filter(|(_, stage)| stage.copy_of.is_none()) {
            state.sessions.note_stage(stage.session, &stage.directive);
        }
        Ok(state)
    }

    /// Times of the past that lie in the future count as now: the clock was ahead when an earlier
    /// process started. Otherwise what waits for some time after them would wait until the clock is
    /// there again.
    pub(super) fn forget_future(&mut self, now: UnixMillis) {
        self.requests.forget_future(now);
        self.sessions.forget_future(now);
        self.evacuations.forget_future(now);
    }

    /// The changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        self.storage.take_changes(&mut changes);
        self.sessions.take_changes(&mut changes);
        self.stages.take_changes(&mut changes);
        self.requests.take_changes(&mut changes);
        self.fences.take_changes(&mut changes);
        self.evacuations.take_changes(&mut changes);
        self.quotas.take_changes(&mut changes);
        self.usage.take_changes(&mut changes);
        self.last_id.take_changes(&mut changes);
        self.lost_ids.take_changes(&mut changes);
        self.epochs.take_changes(&mut changes);
        self.accepted.take_changes(&mut changes);
        if !changes.is_empty() {
            let next = self.revision() + 1;
            self.revision.insert((), next);
        }
        self.revision.take_changes(&mut changes);
        changes
    }

    /// Whether an object has changed in this step.
    pub(super) fn has_changes(&self) -> bool {
        self.storage.has_changes()
            || self.sessions.has_changes()
            || self.stages.changed().next().is_some()
            || self.requests.has_changes()
    }

    /// Number of the durable state.
    pub fn revision(&self) -> u64 {
        self.revision.get(()).copied().unwrap_or(0)
    }

    /// The controller starts at the time `id`. Returns the first revision of this epoch.
    pub(super) fn begin_epoch(&mut self, id: u64) -> u64 {
        let first = self.revision() + 1;
        let number = self.epochs.last_key().map_or(0, |last| last.0 + 1);
        self.epochs.insert_new(EpochNumber(number), Epoch { id, first });
        if let Some(old) = number.checked_sub(MAX_EPOCHS as u64) {
            self.epochs.remove(EpochNumber(old));
        }
        first
    }

    /// Whether a state that a node has obeyed is an earlier one of this controller, or the present one.
    /// It is not if the database was restored from a backup that is older, however often the controller
    /// has started since and whatever it has done.
    pub(super) fn is_known(&self, obeyed: &StateStamp) -> bool {
        let is_accepted = self.accepted.get(()).is_some_and(|last| obeyed.revision <= *last);
        if is_accepted || *obeyed == StateStamp::default() {
            return true;
        }
        let mut end = self.revision();
        for (_, epoch) in self.epochs.iter().rev() {
            if (epoch.id, epoch.first) == (obeyed.epoch, obeyed.first) {
                return obeyed.revision <= end;
            }
            end = epoch.first - 1;
        }
        false
    }

    /// Accepts that this state follows a later one, which is lost. Ids and revisions continue above
    /// all that the lost one can have used.
    pub(super) fn skip_lost(&mut self, lost_revision: u64) {
        let first = self.last_id() + 1;
        let last = first.saturating_add(SKIPPED_IDS);
        self.lost_ids.insert(LostIds(first), last);
        self.last_id.insert((), last);
        let revision = self.revision().max(lost_revision);
        let revision = revision.saturating_add(SKIPPED_IDS);
        self.revision.insert((), revision);
        self.accepted.insert((), revision);
    }

    /// A lost state may have gone on with an object of this id.
    pub(super) fn note_lost_id(&mut self, id: u64) {
        self.lost_ids.insert(LostIds(id), id);
    }

    /// Whether a lost state may have given an id, or gone on with its object.
    pub(super) fn is_lost_id(&self, id: u64) -> bool {
        id > self.last_id()
            || self.lost_ids.iter().any(|(first, last)| (first.0..=*last).contains(&id))
    }

    /// The last id that a lost state can have given; 0 if no state was lost.
    pub(super) fn last_lost_id(&self) -> u64 {
        self.lost_ids.iter().map(|(_, last)| *last).max().unwrap_or(0)
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
        self.quotas.check_invariants();
        self.evacuations.check_invariants(&self.storage, &self.stages);
        self.check_text_sizes();
        let last = self.last_id();
        let ids = self.storage.fragments().map(|(id, _)| id.0);
        let ids = ids.chain(self.stages.iter().map(|(id, _)| id.0));
        let ids = ids.chain(self.sessions.iter().map(|(id, _)| id.0));
        let ids = ids.chain(self.fences.last().map(|id| id.0));
        assert!(ids.max().unwrap_or(0) <= last, "an id is in use that will be given again");
    }

    /// Panics if the bytes of set-ups and stages are not those of the records.
    fn check_text_sizes(&self) {
        let mut expected: BTreeMap<SessionId, u64> = BTreeMap::new();
        for (id, session) in self.sessions.iter() {
            expected.insert(id, setup_bytes(&session.setup));
        }
        for (_, stage) in self.stages.iter().filter(|(_, stage)| stage.copy_of.is_none()) {
            *expected.entry(stage.session).or_default() += stage_bytes(&stage.directive);
        }
        let counted = self.sessions.text_sizes().by_session();
        assert!(counted.eq(expected), "the bytes of a session are not those of its records");
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

    /// The instance that an activation mounts.
    pub(super) fn instance_mounted_by(&self, activation: &Activation) -> Option<InstanceId> {
        Some(self.storage.configuration(activation.configuration)?.instance)
    }

    /// The activations that mount an instance.
    pub(super) fn activations_of(
        &self,
        instance: InstanceId,
    ) -> impl Iterator<Item = (ActivationId, &Activation)> {
        let activations = self.sessions.activations();
        activations.filter(move |(_, row)| self.instance_mounted_by(row) == Some(instance))
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
