//! The few file operations that the log and its checkpoints need, on a disk or in memory.
//!
//! [`Disk`] is a directory. [`Memory`] behaves like one that loses power: it forgets unsynced
//! writes, tears the last of them, fills up, and fails when told to, all from one seed.

mod disk;
mod memory;

pub use disk::DiskStorage;
pub use memory::{Fault, MemoryStorage};

use std::io;
use std::ops::Range;

/// Named files in one flat directory. Clones refer to the same files.
///
/// Nothing is durable before [`sync`](Storage::sync) of the file, and no file appears, disappears
/// or changes its name durably before [`sync_names`](Storage::sync_names).
pub trait Storage: Clone + Send + 'static {
    /// Names of all files, sorted.
    fn list_files(&self) -> io::Result<Vec<String>>;
    /// The whole of a file.
    fn read_file(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Make an empty file with room for `reserve` bytes, or fail with `StorageFull`.
    fn create_file(&self, name: &str, reserve: u64) -> io::Result<()>;
    /// Write all of `bytes` at `offset`.
    fn write_file(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Bytes that a file has room for, or has in it.
    fn file_capacity(&self, name: &str) -> io::Result<u64>;
    /// Clear a part behind which there are only zeros, so that nothing else is read from its begin
    /// on. What room there is stays, even if the storage is full, and is made up to `reserve` bytes if
    /// it is not. Says how much there is.
    fn zero_tail(&self, name: &str, part: Range<u64>, reserve: u64) -> io::Result<u64>;
    /// Drop everything behind `length`, and the room for it.
    fn truncate_file(&self, name: &str, length: u64) -> io::Result<()>;
    /// Make the contents of a file durable.
    fn sync_file(&self, name: &str) -> io::Result<()>;
    /// Give a file another name, replacing what has it.
    fn rename_file(&self, from: &str, to: &str) -> io::Result<()>;
    /// Remove a file.
    fn remove_file(&self, name: &str) -> io::Result<()>;
    /// Make creations, removals and changes of name durable.
    fn sync_directory(&self) -> io::Result<()>;
}
