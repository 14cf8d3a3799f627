//! Tables of durable records with typed keys. Each table tracks which records have changed since
//! they were last made durable.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A stored record: table name, key, contents in JSON.
pub type StoredRecord = (String, u128, Vec<u8>);

/// A record to write, or to remove if there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name of the table.
    pub table: &'static str,
    /// Key of the record.
    pub key: u128,
    /// New contents in JSON; `None` removes the record.
    pub value: Option<Vec<u8>>,
}

/// A stored record that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("record {key} of table `{table}` is corrupt or from another version: {reason}")]
pub struct CorruptRecord {
    /// Name of the table.
    pub table: &'static str,
    /// Key of the record.
    pub key: u128,
    /// Reason, in words.
    pub reason: String,
}

/// A type that identifies a record within its table.
pub trait RecordKey: Copy + Ord {
    /// The key as it is stored.
    fn to_stored(self) -> u128;
    /// The key from its stored form; `None` if it is out of range.
    fn from_stored(stored: u128) -> Option<Self>;
}

/// Implements [`RecordKey`] for newtypes of an unsigned integer.
macro_rules! record_key {
    ($($name:ty),*) => {
        $(impl $crate::records::RecordKey for $name {
            fn to_stored(self) -> u128 {
                self.0.into()
            }

            fn from_stored(stored: u128) -> Option<Self> {
                stored.try_into().ok().map(Self)
            }
        })*
    };
}
pub(crate) use record_key;

/// Key of a table with a single record.
impl RecordKey for () {
    fn to_stored(self) -> u128 {
        0
    }

    fn from_stored(stored: u128) -> Option<()> {
        (stored == 0).then_some(())
    }
}

/// A table of records.
#[derive(Clone, Debug)]
pub struct Table<K, R> {
    name: &'static str,
    rows: BTreeMap<K, R>,
    changed: BTreeSet<K>,
}

impl<K: RecordKey, R: Serialize + DeserializeOwned> Table<K, R> {
    /// An empty table.
    pub fn new(name: &'static str) -> Table<K, R> {
        Table { name, rows: BTreeMap::new(), changed: BTreeSet::new() }
    }

    /// Loads a stored record if it belongs to this table. Returns whether it does.
    pub fn restore(&mut self, (table, key, value): &StoredRecord) -> Result<bool, CorruptRecord> {
        if table != self.name {
            return Ok(false);
        }
        let corrupt = |reason: String| CorruptRecord { table: self.name, key: *key, reason };
        let id = K::from_stored(*key).ok_or_else(|| corrupt("key out of range".to_owned()))?;
        let row = serde_json::from_slice(value).map_err(|error| corrupt(error.to_string()))?;
        self.rows.insert(id, row);
        Ok(true)
    }

    /// The record with this key.
    pub fn get(&self, key: K) -> Option<&R> {
        self.rows.get(&key)
    }

    /// The record with this key, which counts as changed.
    pub fn get_mut(&mut self, key: K) -> Option<&mut R> {
        let row = self.rows.get_mut(&key)?;
        self.changed.insert(key);
        Some(row)
    }

    /// Has `change` look at each record, and change it where it returns `true`.
    pub fn change_each(&mut self, mut change: impl FnMut(&mut R) -> bool) {
        for (key, row) in &mut self.rows {
            if change(row) {
                self.changed.insert(*key);
            }
        }
    }

    /// Whether there is a record with this key.
    pub fn contains(&self, key: K) -> bool {
        self.rows.contains_key(&key)
    }

    /// Adds or replaces a record.
    pub fn insert(&mut self, key: K, row: R) {
        self.rows.insert(key, row);
        self.changed.insert(key);
    }

    /// Adds a record under a key that is not in use.
    pub fn insert_new(&mut self, key: K, row: R) {
        let old = self.rows.insert(key, row);
        assert!(old.is_none(), "a key of table `{}` was reused", self.name);
        self.changed.insert(key);
    }

    /// Removes a record.
    pub fn remove(&mut self, key: K) -> Option<R> {
        let row = self.rows.remove(&key)?;
        self.changed.insert(key);
        Some(row)
    }

    /// All records, by ascending key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &R)> {
        self.rows.iter().map(|(key, row)| (*key, row))
    }

    /// The records whose keys are in a range, by ascending key.
    pub fn range(
        &self,
        keys: std::ops::RangeInclusive<K>,
    ) -> impl DoubleEndedIterator<Item = (K, &R)> {
        self.rows.range(keys).map(|(key, row)| (*key, row))
    }

    /// Whether a record was changed or removed since the changes were last taken.
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The keys of the records that were changed or removed since the changes were last taken.
    pub fn changed_keys(&self) -> impl Iterator<Item = K> {
        self.changed.iter().copied()
    }

    /// All keys, ascending; the table may be changed while the result is in use.
    pub fn keys(&self) -> Vec<K> {
        self.rows.keys().copied().collect()
    }

    /// The highest key.
    pub fn last_key(&self) -> Option<K> {
        self.rows.keys().next_back().copied()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the table has no record.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends the changes since the last call.
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        for key in std::mem::take(&mut self.changed) {
            // A record that could not be encoded must not be mistaken for one that was removed.
            let encode = |row| serde_json::to_vec(row).expect("records have a JSON form");
            changes.push(Change {
                table: self.name,
                key: key.to_stored(),
                value: self.rows.get(&key).map(encode),
            });
        }
    }
}
