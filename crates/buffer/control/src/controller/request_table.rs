//! Accepted requests, by idempotency key.

use std::collections::BTreeSet;

use super::objects::{RequestProgress, RequestRecord};
use super::request::{Outcome, RequestId};
use crate::messages::UnixMillis;
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// Accepted requests: those that wait, and for a while those that were answered, so that a repeated
/// request is not carried out twice.
#[derive(Clone, Debug)]
pub struct RequestTable {
    records: Table<RequestId, RequestRecord>,
    /// The requests that wait. Follows from `records`.
    pending: BTreeSet<RequestId>,
}

impl Default for RequestTable {
    fn default() -> RequestTable {
        RequestTable { records: Table::new("requests"), pending: BTreeSet::new() }
    }
}

fn is_pending(record: &RequestRecord) -> bool {
    matches!(record.progress, RequestProgress::Pending(_))
}

impl RequestTable {
    pub(super) fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        self.records.restore(record)
    }

    /// Computes what follows from the restored records.
    pub(super) fn finish_restore(&mut self) {
        let records = self.records.iter();
        let pending = records.filter(|(_, record)| is_pending(record));
        self.pending = pending.map(|(id, _)| id).collect();
    }

    pub(super) fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.records.take_changes(changes);
    }

    /// Whether a request was added, answered or forgotten in this step.
    pub(super) fn has_changes(&self) -> bool {
        self.records.has_changes()
    }

    /// Panics if the tables contradict each other. Costs time in proportion to their size.
    pub(super) fn check_invariants(&self) {
        let pending = self.records.iter().filter(|(_, record)| is_pending(record));
        assert!(
            pending.map(|(id, _)| id).eq(self.pending.iter().copied()),
            "a request that waits is not noted as pending"
        );
    }

    /// A request.
    pub fn get(&self, id: RequestId) -> Option<&RequestRecord> {
        self.records.get(id)
    }

    pub(super) fn insert(&mut self, id: RequestId, record: RequestRecord) {
        if is_pending(&record) {
            self.pending.insert(id);
        }
        self.records.insert_new(id, record);
    }

    /// The requests that wait.
    pub(super) fn pending(&self) -> Vec<RequestId> {
        self.pending.iter().copied().collect()
    }

    /// A request that waits is answered at this time at the latest, and not before its present limit.
    pub(super) fn extend(&mut self, id: RequestId, deadline: UnixMillis) {
        if let Some(record) = self.records.get_mut(id) {
            record.deadline = record.deadline.max(deadline);
        }
    }

    /// Notes the answer to a request that waits.
    pub(super) fn answer(&mut self, id: RequestId, outcome: Outcome) {
        assert!(self.pending.remove(&id), "a request was answered twice");
        if let Some(record) = self.records.get_mut(id) {
            record.progress = RequestProgress::Answered(outcome);
        }
    }

    /// Forgets requests that were answered long ago.
    pub(super) fn forget_old(&mut self, now: UnixMillis, retention_ms: u64) {
        let is_old = |record: &RequestRecord| {
            !is_pending(record)
                && now.ms_since(record.accepted) > retention_ms
                && now > record.deadline
        };
        let records = self.records.iter();
        let old = records.filter(|(_, record)| is_old(record));
        let old: Vec<RequestId> = old.map(|(id, _)| id).collect();
        for id in old {
            self.records.remove(id);
        }
    }
}
