//! Records by number, with a note of which ones changed since they were last made durable.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One record to write, or to remove if there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table's name.
    pub table: &'static str,
    /// The record's number.
    pub key: u64,
    /// Its new contents in JSON; `None` removes it.
    pub value: Option<Vec<u8>>,
}

/// A record that cannot be read back.
#[derive(Debug)]
pub struct CorruptRecord {
    /// The table's name.
    pub table: &'static str,
    /// The record's number.
    pub key: u64,
    /// Why.
    pub reason: serde_json::Error,
}

impl std::fmt::Display for CorruptRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "record {} of table `{}` cannot be read: {}; it was written by another version or is damaged",
            self.key, self.table, self.reason
        )
    }
}

impl std::error::Error for CorruptRecord {}

/// A table of records.
#[derive(Clone, Debug)]
pub struct Table<T> {
    name: &'static str,
    rows: BTreeMap<u64, T>,
    changed: BTreeSet<u64>,
}

impl<T: Serialize + DeserializeOwned> Table<T> {
    /// An empty table.
    pub fn new(name: &'static str) -> Table<T> {
        Table {
            name,
            rows: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// The table's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Reads a record back as it was made durable.
    pub fn restore(&mut self, key: u64, value: &[u8]) -> Result<(), CorruptRecord> {
        let row = serde_json::from_slice(value).map_err(|reason| CorruptRecord {
            table: self.name,
            key,
            reason,
        })?;
        self.rows.insert(key, row);
        Ok(())
    }

    /// The record with this number.
    pub fn get(&self, key: u64) -> Option<&T> {
        self.rows.get(&key)
    }

    /// The record with this number, to be changed.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let row = self.rows.get_mut(&key)?;
        self.changed.insert(key);
        Some(row)
    }

    /// Adds or replaces a record.
    pub fn insert(&mut self, key: u64, row: T) {
        self.rows.insert(key, row);
        self.changed.insert(key);
    }

    /// Removes a record.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let row = self.rows.remove(&key)?;
        self.changed.insert(key);
        Some(row)
    }

    /// All records in ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.rows.iter().map(|(key, row)| (*key, row))
    }

    /// The numbers of all records, ascending.
    pub fn keys(&self) -> Vec<u64> {
        self.rows.keys().copied().collect()
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends what changed since the last call.
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        for key in std::mem::take(&mut self.changed) {
            // Records are plain data with string keys: writing them as JSON cannot fail.
            let value = self
                .rows
                .get(&key)
                .and_then(|row| serde_json::to_vec(row).ok());
            changes.push(Change {
                table: self.name,
                key,
                value,
            });
        }
    }
}
