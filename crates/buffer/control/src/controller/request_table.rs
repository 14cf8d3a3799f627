//! Accepted requests, by idempotency key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::objects::{RequestProgress, RequestRecord};
use super::request::{Outcome, RequestId};
use super::settings::Settings;
use crate::messages::UnixMillis;
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// The user of answered requests, and whether they were refused or failed.
type AnsweredBy = (Option<u32>, bool);

/// Accepted requests: those that wait, and for a while those that were answered, so that a repeated
/// request is not carried out twice.
#[derive(Clone, Debug)]
pub struct RequestTable {
    records: Table<RequestId, RequestRecord>,
    /// The requests that wait. Follows from `records`.
    pending: BTreeSet<RequestId>,
    /// Number of these, by user. Follows from `records`.
    waiting: BTreeMap<u32, usize>,
    /// Those that were answered, in this order. Follows from `records`.
    answered: BTreeMap<AnsweredBy, VecDeque<RequestId>>,
}

impl Default for RequestTable {
    fn default() -> RequestTable {
        RequestTable {
            records: Table::new("requests"),
            pending: BTreeSet::new(),
            waiting: BTreeMap::new(),
            answered: BTreeMap::new(),
        }
    }
}

/// The list of answered requests that a request is in; `None`: it waits.
fn answered_by(record: &RequestRecord) -> Option<AnsweredBy> {
    match &record.progress {
        RequestProgress::Pending(_) => None,
        RequestProgress::Answered(outcome) => Some((record.uid, outcome.is_err())),
    }
}

impl RequestTable {
    pub(super) fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        self.records.restore(record)
    }

    /// Computes what follows from the restored records.
    pub(super) fn finish_restore(&mut self) {
        let records = self.records.iter();
        let mut by_age: Vec<(UnixMillis, RequestId)> =
            records.map(|(id, record)| (record.deadline, id)).collect();
        by_age.sort_unstable();
        for (_, id) in by_age {
            self.note(id);
        }
    }

    /// Lists a request among those that wait, or were answered.
    fn note(&mut self, id: RequestId) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        let by = answered_by(record);
        match by {
            None => {
                self.pending.insert(id);
                if let Some(uid) = record.uid {
                    *self.waiting.entry(uid).or_default() += 1;
                }
            }
            Some(by) => self.answered.entry(by).or_default().push_back(id),
        }
    }

    /// Number of a user's requests that wait.
    pub(super) fn waiting_of(&self, uid: u32) -> usize {
        self.waiting.get(&uid).copied().unwrap_or(0)
    }

    /// Requests of the future were accepted now, and have the time that they had.
    pub(super) fn forget_future(&mut self, now: UnixMillis) {
        self.records.change_each(|record| {
            let time = record.deadline.ms_since(record.accepted);
            let is_future = record.accepted.limit(now);
            if is_future {
                record.deadline = now.plus_ms(time);
            }
            is_future
        });
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
        let pending = self.records.iter().filter(|(_, record)| answered_by(record).is_none());
        assert!(
            pending.map(|(id, _)| id).eq(self.pending.iter().copied()),
            "a request that waits is not noted as pending"
        );
        let listed: usize = self.answered.values().map(VecDeque::len).sum();
        assert_eq!(listed + self.pending.len(), self.records.len(), "a request is not listed");
    }

    /// A request.
    pub fn get(&self, id: RequestId) -> Option<&RequestRecord> {
        self.records.get(id)
    }

    pub(super) fn insert(&mut self, id: RequestId, record: RequestRecord) {
        self.records.insert_new(id, record);
        self.note(id);
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

    /// Notes the answer to a request that waits, which is remembered until some time.
    pub(super) fn answer(&mut self, id: RequestId, outcome: Outcome, until: UnixMillis) {
        assert!(self.pending.remove(&id), "a request was answered twice");
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        record.progress = RequestProgress::Answered(outcome);
        record.deadline = until;
        if let Some(uid) = record.uid
            && let Some(waiting) = self.waiting.get_mut(&uid)
        {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&uid);
            }
        }
        self.note(id);
    }

    /// Forgets requests that were answered long ago.
    pub(super) fn forget_old(&mut self, now: UnixMillis, settings: &Settings) {
        let records = &mut self.records;
        self.answered.retain(|_, ids| {
            ids.retain(|id| {
                let record = records.get(*id);
                let is_old = record.is_none_or(|record| now > record.deadline);
                if is_old {
                    records.remove(*id);
                }
                !is_old
            });
            !ids.is_empty()
        });
        let users: BTreeSet<Option<u32>> = self.answered.keys().map(|(uid, _)| *uid).collect();
        for uid in users {
            self.forget_excess(uid, settings);
        }
    }

    /// Forgets the oldest answered requests of a user beyond the limits.
    pub(super) fn forget_excess(&mut self, uid: Option<u32>, settings: &Settings) {
        let limits = [(true, settings.max_kept_refusals), (false, settings.max_kept_replies)];
        for (refused, limit) in limits {
            let Some(ids) = self.answered.get_mut(&(uid, refused)) else {
                continue;
            };
            while ids.len() > limit
                && let Some(oldest) = ids.pop_front()
            {
                self.records.remove(oldest);
            }
        }
    }
}
