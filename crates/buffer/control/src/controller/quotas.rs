//! Capacity quotas of users and groups: limits on the bytes allocated to their instances.

use std::collections::BTreeMap;
use std::fmt;

use forebay_units::{Bytes, human};
use serde::{Deserialize, Serialize};

use super::dispatch::Accepted;
use super::machine::Controller;
use super::objects::Instance;
use super::request::{Answer, Failure, refuse};
use crate::messages::Owner;
use crate::records::{RecordKey, Table};

/// The holder of a quota. Instances count for the user and the group of their session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaSubject {
    /// A user, by number.
    User(u32),
    /// A group, by number.
    Group(u32),
}

impl QuotaSubject {
    fn includes(self, owner: Owner) -> bool {
        match self {
            QuotaSubject::User(uid) => owner.uid == uid,
            QuotaSubject::Group(gid) => owner.gid == gid,
        }
    }
}

impl fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotaSubject::User(uid) => write!(f, "user {uid}"),
            QuotaSubject::Group(gid) => write!(f, "group {gid}"),
        }
    }
}

const GROUPS: u128 = 1 << 32;

impl RecordKey for QuotaSubject {
    fn to_stored(self) -> u128 {
        match self {
            QuotaSubject::User(uid) => uid.into(),
            QuotaSubject::Group(gid) => GROUPS | u128::from(gid),
        }
    }

    fn from_stored(stored: u128) -> Option<QuotaSubject> {
        match stored.checked_sub(GROUPS) {
            Some(gid) => gid.try_into().ok().map(QuotaSubject::Group),
            None => stored.try_into().ok().map(QuotaSubject::User),
        }
    }
}

/// Use of the pool by a user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageStatus {
    /// The user or group.
    pub subject: QuotaSubject,
    /// Number of instances.
    pub instances: u32,
    /// Bytes allocated to them.
    pub used: Bytes,
    /// The quota, if there is one.
    pub quota: Option<Bytes>,
}

/// Quotas in bytes.
pub(super) type QuotaTable = Table<QuotaSubject, Bytes>;

impl Controller {
    /// Sets a quota, or removes it. Existing instances stay, also if they exceed it.
    pub(super) fn set_quota(
        &mut self,
        subject: QuotaSubject,
        quota: Option<Bytes>,
    ) -> Result<Accepted, Failure> {
        match quota {
            Some(quota) => self.state.quotas.insert(subject, quota),
            None => drop(self.state.quotas.remove(subject)),
        }
        Ok(Accepted::Answer(Answer::Done))
    }

    /// Refuses an allocation that exceeds the quota of the user or the group.
    pub(super) fn check_quotas(&self, owner: Owner, wanted: Bytes) -> Result<(), Failure> {
        for subject in [QuotaSubject::User(owner.uid), QuotaSubject::Group(owner.gid)] {
            let Some(quota) = self.state.quotas.get(subject).copied() else {
                continue;
            };
            let used = self.used_by(subject);
            if used.0.saturating_add(wanted.0) > quota.0 {
                refuse!(
                    Full,
                    "the quota of {subject} is {}: {} are allocated, and {} more are wanted; end \
                     jobs or destroy persistent instances first, or ask the operator",
                    human::bytes(quota.0),
                    human::bytes(used.0),
                    human::bytes(wanted.0)
                );
            }
        }
        Ok(())
    }

    /// Instances with their owners. One that was created again under another id counts once.
    fn owned_instances(&self) -> impl Iterator<Item = (&Instance, Owner)> {
        self.state.storage.instances().filter_map(|(id, row)| {
            let session = self.state.sessions.get(row.session)?;
            let is_superseded = row.ending && session.instance != Some(id);
            (!is_superseded).then_some((row, session.owner))
        })
    }

    fn used_by(&self, subject: QuotaSubject) -> Bytes {
        let own = self.owned_instances().filter(|(_, owner)| subject.includes(*owner));
        Bytes(own.map(|(row, _)| row.capacity.0).fold(0, u64::saturating_add))
    }

    /// Users and groups that have instances or a quota.
    pub(super) fn usage_status(&self) -> Vec<UsageStatus> {
        let mut usage: BTreeMap<QuotaSubject, UsageStatus> = BTreeMap::new();
        let unused = |subject| UsageStatus { subject, instances: 0, used: Bytes(0), quota: None };
        for (instance, owner) in self.owned_instances() {
            for subject in [QuotaSubject::User(owner.uid), QuotaSubject::Group(owner.gid)] {
                let row = usage.entry(subject).or_insert_with(|| unused(subject));
                row.instances = row.instances.saturating_add(1);
                row.used = Bytes(row.used.0.saturating_add(instance.capacity.0));
            }
        }
        for (subject, quota) in self.state.quotas.iter() {
            usage.entry(subject).or_insert_with(|| unused(subject)).quota = Some(*quota);
        }
        usage.into_values().collect()
    }
}
