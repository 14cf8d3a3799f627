//! File operations of the log and its checkpoints.

mod disk;

pub use disk::DiskStorage;

use std::io;
use std::ops::Range;

/// Named files in one flat directory. Clones refer to the same files.
///
/// Contents are durable after [`sync_file`](Storage::sync_file); creations, removals and renames
/// are durable after [`sync_directory`](Storage::sync_directory).
pub trait Storage: Clone + Send + 'static {
    /// Names of all files, sorted.
    fn list_files(&self) -> io::Result<Vec<String>>;
    /// Read a whole file.
    fn read_file(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Read from `offset` into `bytes`. Returns the number of bytes, 0 only at the end of the file.
    fn read_file_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
    /// Create an empty file with `reserve` bytes allocated, or fail with `StorageFull`.
    fn create_file(&self, name: &str, reserve: u64) -> io::Result<()>;
    /// Write all of `bytes` at `offset`.
    fn write_file(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// The larger of a file's length and its allocated space, in bytes.
    fn file_capacity(&self, name: &str) -> io::Result<u64>;
    /// Zero the range `part`, behind which the file contains only zeros, and try to allocate
    /// `reserve` bytes. Space that is allocated already remains so even if the storage is full.
    /// Returns the file's capacity in bytes.
    fn zero_tail(&self, name: &str, part: Range<u64>, reserve: u64) -> io::Result<u64>;
    /// Truncate a file to `length` and free the space behind.
    fn truncate_file(&self, name: &str, length: u64) -> io::Result<()>;
    /// Make a file's contents durable.
    fn sync_file(&self, name: &str) -> io::Result<()>;
    /// Rename a file, replacing an existing `to`.
    fn rename_file(&self, from: &str, to: &str) -> io::Result<()>;
    /// Remove a file.
    fn remove_file(&self, name: &str) -> io::Result<()>;
    /// Make creations, removals and renames durable.
    fn sync_directory(&self) -> io::Result<()>;
}

/// Replaces a small file, or creates it, durably: after a crash it has the old contents or the new.
pub(crate) fn replace_file<S: Storage>(storage: &S, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    storage.create_file(&temporary, bytes.len() as u64)?;
    storage.write_file(&temporary, 0, bytes)?;
    storage.sync_file(&temporary)?;
    storage.rename_file(&temporary, name)?;
    storage.sync_directory()
}

/// Whether an error reports a lack of space or quota.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
