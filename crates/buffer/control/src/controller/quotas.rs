//! Capacity quotas of users, groups and accounts: limits on the bytes allocated to their instances.

use std::collections::BTreeMap;
use std::fmt;

use forebay_units::{Bytes, human};
use serde::{Deserialize, Serialize};

use super::dispatch::Accepted;
use super::machine::Controller;
use super::objects::Session;
use super::request::{Answer, Failure, InstanceSpec, refuse};
use crate::messages::Owner;
use crate::records::{Change, CorruptRecord, RecordKey, StoredRecord, Table, record_key};

/// Limit on the length of an account's name, in bytes.
const MAX_ACCOUNT_LENGTH: usize = 128;

/// The holder of a quota. Instances count for the user and the group of their session, and for the
/// account that their request names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaSubject {
    /// A user, by number.
    User(u32),
    /// A group, by number.
    Group(u32),
    /// An account of the batch system, by name.
    Account(String),
}

impl QuotaSubject {
    /// The subjects for which an instance counts.
    fn of_instance(owner: Owner, account: Option<&str>) -> impl Iterator<Item = QuotaSubject> {
        let account = account.map(|name| QuotaSubject::Account(name.to_owned()));
        [QuotaSubject::User(owner.uid), QuotaSubject::Group(owner.gid)].into_iter().chain(account)
    }
}

impl fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotaSubject::User(uid) => write!(f, "user {uid}"),
            QuotaSubject::Group(gid) => write!(f, "group {gid}"),
            QuotaSubject::Account(name) => write!(f, "account `{name}`"),
        }
    }
}

/// Refuses an empty or overlong name of an account, and one with blanks or control characters.
pub(super) fn check_account(name: &str) -> Result<(), Failure> {
    let is_valid = |c: char| !c.is_control() && !c.is_whitespace();
    if name.is_empty() || name.len() > MAX_ACCOUNT_LENGTH || !name.chars().all(is_valid) {
        refuse!(
            Invalid,
            "{name:?} cannot name an account: write 1 to {MAX_ACCOUNT_LENGTH} bytes without blanks \
             and control characters"
        );
    }
    Ok(())
}

/// A user or a group, as a key of stored quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OwnerKey {
    User(u32),
    Group(u32),
}

const GROUPS: u128 = 1 << 32;

impl RecordKey for OwnerKey {
    fn to_stored(self) -> u128 {
        match self {
            OwnerKey::User(uid) => uid.into(),
            OwnerKey::Group(gid) => GROUPS | u128::from(gid),
        }
    }

    fn from_stored(stored: u128) -> Option<OwnerKey> {
        match stored.checked_sub(GROUPS) {
            Some(gid) => gid.try_into().ok().map(OwnerKey::Group),
            None => stored.try_into().ok().map(OwnerKey::User),
        }
    }
}

/// Number of a stored quota of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AccountKey(u64);

record_key!(AccountKey);

/// The quota of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AccountQuota {
    account: String,
    quota: Bytes,
}

/// All quotas. Those of accounts are stored in a table of their own, which earlier releases ignore.
#[derive(Clone, Debug)]
pub(super) struct QuotaTable {
    owners: Table<OwnerKey, Bytes>,
    accounts: Table<AccountKey, AccountQuota>,
}

impl Default for QuotaTable {
    fn default() -> QuotaTable {
        QuotaTable { owners: Table::new("quotas"), accounts: Table::new("account_quotas") }
    }
}

impl QuotaTable {
    pub fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        Ok(self.owners.restore(record)? || self.accounts.restore(record)?)
    }

    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.owners.take_changes(changes);
        self.accounts.take_changes(changes);
    }

    /// Panics if an account has two quotas.
    pub fn check_invariants(&self) {
        let mut names: Vec<&str> = self.accounts.iter().map(|(_, row)| &*row.account).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "an account has two quotas");
    }

    fn account_key(&self, name: &str) -> Option<AccountKey> {
        let mut rows = self.accounts.iter();
        rows.find(|(_, row)| row.account == name).map(|(key, _)| key)
    }

    fn get(&self, subject: &QuotaSubject) -> Option<Bytes> {
        match subject {
            QuotaSubject::User(uid) => self.owners.get(OwnerKey::User(*uid)).copied(),
            QuotaSubject::Group(gid) => self.owners.get(OwnerKey::Group(*gid)).copied(),
            QuotaSubject::Account(name) => Some(self.accounts.get(self.account_key(name)?)?.quota),
        }
    }

    fn set(&mut self, subject: QuotaSubject, quota: Option<Bytes>) {
        let key = match subject {
            QuotaSubject::User(uid) => OwnerKey::User(uid),
            QuotaSubject::Group(gid) => OwnerKey::Group(gid),
            QuotaSubject::Account(account) => return self.set_of_account(account, quota),
        };
        match quota {
            Some(quota) => self.owners.insert(key, quota),
            None => drop(self.owners.remove(key)),
        }
    }

    fn set_of_account(&mut self, account: String, quota: Option<Bytes>) {
        let key = self.account_key(&account);
        match (quota, key) {
            (Some(quota), key) => {
                let next = || AccountKey(self.accounts.last_key().map_or(0, |last| last.0 + 1));
                let key = key.unwrap_or_else(next);
                self.accounts.insert(key, AccountQuota { account, quota });
            }
            (None, Some(key)) => drop(self.accounts.remove(key)),
            (None, None) => {}
        }
    }

    fn iter(&self) -> impl Iterator<Item = (QuotaSubject, Bytes)> {
        let owners = self.owners.iter().map(|(key, quota)| match key {
            OwnerKey::User(uid) => (QuotaSubject::User(uid), *quota),
            OwnerKey::Group(gid) => (QuotaSubject::Group(gid), *quota),
        });
        let accounts = self.accounts.iter();
        owners
            .chain(accounts.map(|(_, row)| (QuotaSubject::Account(row.account.clone()), row.quota)))
    }
}

/// Use of the pool by a user, group or account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageStatus {
    /// The user, group or account.
    pub subject: QuotaSubject,
    /// Number of instances.
    pub instances: u32,
    /// Bytes allocated to them.
    pub used: Bytes,
    /// The quota, if there is one.
    pub quota: Option<Bytes>,
}

/// An instance with what decides for whom it counts.
struct CountedInstance<'a> {
    capacity: Bytes,
    owner: Owner,
    account: Option<&'a str>,
}

impl Controller {
    /// Sets a quota, or removes it. Existing instances stay, also if they exceed it.
    pub(super) fn set_quota(
        &mut self,
        subject: QuotaSubject,
        quota: Option<Bytes>,
    ) -> Result<Accepted, Failure> {
        if let QuotaSubject::Account(name) = &subject {
            check_account(name)?;
        }
        self.state.quotas.set(subject, quota);
        Ok(Accepted::Answer(Answer::Done))
    }

    /// Refuses an allocation that exceeds the quota of the user, the group or the account.
    pub(super) fn check_quotas(
        &self,
        owner: Owner,
        spec: &InstanceSpec,
        wanted: Bytes,
    ) -> Result<(), Failure> {
        if let Some(account) = &spec.account {
            check_account(account)?;
        }
        for subject in QuotaSubject::of_instance(owner, spec.account.as_deref()) {
            let Some(quota) = self.state.quotas.get(&subject) else {
                continue;
            };
            let used = self.used_by(&subject);
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

    /// All instances. One that was created again under another id, or that moves to other nodes,
    /// counts once.
    fn counted_instances(&self) -> impl Iterator<Item = CountedInstance<'_>> {
        self.state.storage.instances().filter_map(|(id, row)| {
            let session = self.state.sessions.get(row.session)?;
            (session.instance == Some(id)).then_some(CountedInstance {
                capacity: row.capacity,
                owner: session.owner,
                account: session.account(),
            })
        })
    }

    fn used_by(&self, subject: &QuotaSubject) -> Bytes {
        let own = self.counted_instances().filter(|instance| match subject {
            QuotaSubject::User(uid) => instance.owner.uid == *uid,
            QuotaSubject::Group(gid) => instance.owner.gid == *gid,
            QuotaSubject::Account(name) => instance.account == Some(name),
        });
        Bytes(own.map(|instance| instance.capacity.0).fold(0, u64::saturating_add))
    }

    /// Users, groups and accounts that have instances or a quota.
    fn all_usage(&self) -> Vec<UsageStatus> {
        let mut usage: BTreeMap<QuotaSubject, UsageStatus> = BTreeMap::new();
        let unused = |subject| UsageStatus { subject, instances: 0, used: Bytes(0), quota: None };
        for CountedInstance { capacity, owner, account } in self.counted_instances() {
            for subject in QuotaSubject::of_instance(owner, account) {
                let row = usage.entry(subject.clone()).or_insert_with(|| unused(subject));
                row.instances = row.instances.saturating_add(1);
                row.used = Bytes(row.used.0.saturating_add(capacity.0));
            }
        }
        for (subject, quota) in self.state.quotas.iter() {
            usage.entry(subject.clone()).or_insert_with(|| unused(subject)).quota = Some(quota);
        }
        usage.into_values().collect()
    }

    /// Usage by users and groups, and usage by accounts.
    pub(super) fn usage_status(&self) -> (Vec<UsageStatus>, Vec<UsageStatus>) {
        let is_account = |row: &UsageStatus| matches!(row.subject, QuotaSubject::Account(_));
        self.all_usage().into_iter().partition(|row| !is_account(row))
    }
}

impl Session {
    /// The account for which its instance counts.
    fn account(&self) -> Option<&str> {
        self.setup.instance.as_ref()?.account.as_deref()
    }
}
