//! Reserved space, with which a completely full storage can still process deletes.
//!
//! The file `spare` is a preallocated segment. The log renames and uses it when no other segment
//! can be allocated. From then on it records only changes that free space, until the checkpointer,
//! which runs concurrently, has created another spare segment.

use super::format::headroom_bytes;
use crate::storage::Storage;
use serde::{Deserialize, Serialize};
use std::io;

pub(super) const SPARE_SEGMENT: &str = "spare";
/// A reserved file under construction.
const NEW_FILE: &str = "spare.new";

/// Records that a log has space for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogSpace {
    /// Only the start record of the next daemon.
    Exhausted,
    /// Changes that free space, and sessions of clients that make them: no spare segment exists.
    ReserveOnly,
    /// All records.
    #[default]
    Normal,
}

/// Bytes of the spare segment, for segments of `segment_size` bytes.
pub fn spare_segment_bytes(segment_size: u64) -> u64 {
    (segment_size / 4).max(4 * headroom_bytes(segment_size))
}

pub(super) fn has_spare_segment<S: Storage>(storage: &S) -> io::Result<bool> {
    Ok(storage.list_files()?.iter().any(|name| name == SPARE_SEGMENT))
}

/// Create the spare segment if it is missing.
pub fn ensure_spare_segment<S: Storage>(storage: &S, segment_size: u64) -> io::Result<()> {
    if has_spare_segment(storage)? {
        return Ok(());
    }
    reserve_file(storage, SPARE_SEGMENT, spare_segment_bytes(segment_size))
}

/// Atomically create a file with `bytes` allocated bytes, replacing an existing one. Must not run
/// concurrently with itself on one storage.
pub(crate) fn reserve_file<S: Storage>(storage: &S, name: &str, bytes: u64) -> io::Result<()> {
    // Left behind by a crash.
    if storage.list_files()?.iter().any(|name| name == NEW_FILE) {
        storage.remove_file(NEW_FILE)?;
    }
    storage.create_file(NEW_FILE, bytes)?;
    storage.sync_file(NEW_FILE)?;
    storage.rename_file(NEW_FILE, name)?;
    storage.sync_directory()
}
