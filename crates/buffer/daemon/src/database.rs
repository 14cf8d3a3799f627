//! The embedded database of a state machine's records.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use redb::backends::FileBackend;
use redb::{
    Database as Redb, Durability, ReadableTable, StorageBackend, TableDefinition, WriteTransaction,
};
use rustix::fs::{FallocateFlags, fallocate};

use forebay_control::records::{Change, StoredRecord};

const RECORDS: TableDefinition<(&str, u128), &[u8]> = TableDefinition::new("records");
/// The version of the records' format, at the empty key. Databases without it are of version 1.
const FORMAT: TableDefinition<&str, u32> = TableDefinition::new("format");
/// The version that this release writes. It reads those up to it.
const FORMAT_VERSION: u32 = 2;

/// A database error, with the name of its file.
#[derive(Debug, thiserror::Error)]
#[error("database {file}: {reason}")]
pub struct DatabaseError {
    file: String,
    reason: String,
}

/// A file of records, written in transactions that are durable when they return.
pub struct Database {
    file: String,
    inner: Redb,
}

impl Database {
    /// Opens the database in `file`, which is created if need be. One process can have it open.
    pub fn open(file: &Path) -> Result<Database, DatabaseError> {
        let name = file.display().to_string();
        let fail =
            |reason: redb::Error| DatabaseError { file: name.clone(), reason: reason.to_string() };
        // The records contain the secrets of instances, so other users must never be able to open
        // the file, not even while it is created.
        let opened = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(file)
            .and_then(|made| {
                made.set_permissions(Permissions::from_mode(0o600))?;
                Ok(made)
            })
            .map_err(|e| fail(redb::Error::Io(e)))?;
        let reserved = Reserved::new(opened).map_err(|e| fail(e.into()))?;
        let inner = Redb::builder().create_with_backend(reserved).map_err(|e| fail(e.into()))?;
        let write = inner.begin_write().map_err(|e| fail(e.into()))?;
        write.open_table(RECORDS).map_err(|e| fail(e.into()))?;
        note_format(&write).map_err(|reason| DatabaseError { file: name.clone(), reason })?;
        write.commit().map_err(|e| fail(e.into()))?;
        Ok(Database { file: name, inner })
    }

    fn fail(&self, reason: impl Into<redb::Error>) -> DatabaseError {
        DatabaseError { file: self.file.clone(), reason: reason.into().to_string() }
    }

    /// Writes all changes or none. They are durable when this returns.
    pub fn commit(&self, changes: &[Change]) -> Result<(), DatabaseError> {
        let mut write = self.inner.begin_write().map_err(|e| self.fail(e))?;
        write.set_durability(Durability::Immediate);
        {
            let mut records = write.open_table(RECORDS).map_err(|e| self.fail(e))?;
            for change in changes {
                let key = (change.table, change.key);
                match &change.value {
                    Some(value) => {
                        records.insert(key, value.as_slice()).map_err(|e| self.fail(e))?
                    }
                    None => records.remove(key).map_err(|e| self.fail(e))?,
                };
            }
        }
        write.commit().map_err(|e| self.fail(e))
    }

    /// All records: table, key, value.
    pub fn load_records(&self) -> Result<Vec<StoredRecord>, DatabaseError> {
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

/// Checks that this release can read the records, and notes that it writes them.
fn note_format(write: &WriteTransaction) -> Result<(), String> {
    let mut table = write.open_table(FORMAT).map_err(|error| error.to_string())?;
    let found = table.get("").map_err(|error| error.to_string())?;
    let version = found.map_or(1, |version| version.value());
    if version > FORMAT_VERSION {
        return Err(format!(
            "it has the format of a newer release, version {version}; this release reads versions \
             1 to {FORMAT_VERSION}: install the newer release again"
        ));
    }
    if version < FORMAT_VERSION {
        table.insert("", FORMAT_VERSION).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Minimum reserved space of a database file, in bytes.
const MIN_RESERVED_BYTES: u64 = 4 << 20;

/// A file with blocks reserved beyond its length, so that records can be written on a full disk.
/// The database writes changed records to other blocks than the old ones, and doubles its file when it
/// needs more.
#[derive(Debug)]
struct Reserved {
    file: File,
    inner: FileBackend,
}

impl Reserved {
    fn new(file: File) -> Result<Reserved, redb::DatabaseError> {
        let inner = FileBackend::new(file.try_clone()?)?;
        let reserved = Reserved { file, inner };
        reserved.reserve(reserved.inner.len()?);
        Ok(reserved)
    }

    /// Reserves blocks for twice this length, or at least for all of it. If neither works, the file
    /// is used without.
    fn reserve(&self, length: u64) {
        let allocate = |bytes| fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes);
        if allocate(length.saturating_mul(2).max(MIN_RESERVED_BYTES)).is_err() && length > 0 {
            let _ = allocate(length);
        }
    }
}

impl StorageBackend for Reserved {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.inner.read(offset, length)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.set_len(length)?;
        self.reserve(length);
        Ok(())
    }

    fn sync_data(&self, eventual: bool) -> io::Result<()> {
        self.inner.sync_data(eventual)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_of_the_format_before_are_read_and_those_of_newer_releases_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("records.redb");
        // As the first release made it.
        let old = Redb::create(&file).unwrap();
        let write = old.begin_write().unwrap();
        write.open_table(RECORDS).unwrap().insert(("pools", 7), b"{}".as_slice()).unwrap();
        write.commit().unwrap();
        drop(old);
        for _ in 0..2 {
            let records = Database::open(&file).unwrap().load_records().unwrap();
            assert_eq!(records, [("pools".to_owned(), 7, b"{}".to_vec())]);
        }
        let newer = Redb::open(&file).unwrap();
        let write = newer.begin_write().unwrap();
        write.open_table(FORMAT).unwrap().insert("", FORMAT_VERSION + 1).unwrap();
        write.commit().unwrap();
        drop(newer);
        let error = Database::open(&file).err().unwrap().to_string();
        let both = [format!("version {}", FORMAT_VERSION + 1), format!("1 to {FORMAT_VERSION}")];
        assert!(both.iter().all(|part| error.contains(part)), "{error}");
    }
}
