//! The embedded database that keeps a state machine's records.

use std::fs::Permissions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use redb::{Database as Redb, Durability, ReadableTable, TableDefinition};

use crate::table::Change;

const RECORDS: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("records");

/// A failure of the database, with the file it is in.
#[derive(Debug)]
pub struct DatabaseError {
    file: String,
    reason: String,
}

impl std::fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "database {}: {}", self.file, self.reason)
    }
}

impl std::error::Error for DatabaseError {}

/// A file of records, written in transactions that are on the disk when they return.
pub struct Database {
    file: String,
    inner: Redb,
}

impl Database {
    /// Opens the database in `file`, creating it if need be. Only one process can have it open.
    pub fn open(file: &Path) -> Result<Database, DatabaseError> {
        let name = file.display().to_string();
        let fail = |reason: redb::Error| DatabaseError {
            file: name.clone(),
            reason: reason.to_string(),
        };
        // Among the records are the secrets by which nodes of an instance trust their clients, so
        // nobody else may have it open, not even from the moment in which it is made.
        std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(file)
            .and_then(|made| made.set_permissions(Permissions::from_mode(0o600)))
            .map_err(|e| fail(redb::Error::Io(e)))?;
        let inner = Redb::create(file).map_err(|e| fail(e.into()))?;
        let write = inner.begin_write().map_err(|e| fail(e.into()))?;
        write.open_table(RECORDS).map_err(|e| fail(e.into()))?;
        write.commit().map_err(|e| fail(e.into()))?;
        Ok(Database { file: name, inner })
    }

    fn fail(&self, reason: impl Into<redb::Error>) -> DatabaseError {
        DatabaseError {
            file: self.file.clone(),
            reason: reason.into().to_string(),
        }
    }

    /// Writes all changes or none; they are durable when this returns.
    pub fn commit(&self, changes: &[Change]) -> Result<(), DatabaseError> {
        let mut write = self.inner.begin_write().map_err(|e| self.fail(e))?;
        write.set_durability(Durability::Immediate);
        {
            let mut records = write.open_table(RECORDS).map_err(|e| self.fail(e))?;
            for change in changes {
                let key = (change.table, change.key);
                match &change.value {
                    Some(value) => records
                        .insert(key, value.as_slice())
                        .map_err(|e| self.fail(e))?,
                    None => records.remove(key).map_err(|e| self.fail(e))?,
                };
            }
        }
        write.commit().map_err(|e| self.fail(e))
    }

    /// Every record: table, number, contents.
    pub fn load(&self) -> Result<Vec<(String, u64, Vec<u8>)>, DatabaseError> {
        let read = self.inner.begin_read().map_err(|e| self.fail(e))?;
        let records = read.open_table(RECORDS).map_err(|e| self.fail(e))?;
        let mut rows = Vec::new();
        for row in records.iter().map_err(|e| self.fail(e))? {
            let (key, value) = row.map_err(|e| self.fail(e))?;
            let (table, number) = key.value();
            rows.push((table.to_owned(), number, value.value().to_vec()));
        }
        Ok(rows)
    }
}
