//! What a log keeps in reserve, so that a full storage can be emptied again.
//!
//! `spare` is a segment that is there before it is needed: the log takes it by renaming when no
//! other can be made. From then on only what gives space back may be recorded, until a keeper, who
//! works beside the log, has made another one.

use super::headroom_bytes;
use crate::storage::Storage;
use serde::{Deserialize, Serialize};
use std::io;

/// The segment in reserve.
pub(super) const SPARE_SEGMENT: &str = "spare";
/// What is to become something in reserve.
const NEW: &str = "spare.new";

/// How much a log has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogSpace {
    /// No more than the record of the next start.
    Exhausted,
    /// What gives space back, and clients who come to do so: there is no segment in reserve.
    ReserveOnly,
    /// Everything.
    #[default]
    Normal,
}

/// Is it an error for want of space?
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Bytes of the segment in reserve, for segments of this size.
pub fn spare_segment_bytes(segment_size: u64) -> u64 {
    (segment_size / 4).max(4 * headroom_bytes(segment_size))
}

/// Is there a segment in reserve?
pub(super) fn has_spare_segment<S: Storage>(storage: &S) -> io::Result<bool> {
    Ok(storage
        .list_files()?
        .iter()
        .any(|name| name == SPARE_SEGMENT))
}

/// Make a segment to have in reserve unless there is one.
pub fn ensure_spare_segment<S: Storage>(storage: &S, segment_size: u64) -> io::Result<()> {
    if has_spare_segment(storage)? {
        return Ok(());
    }
    reserve_file(storage, SPARE_SEGMENT, spare_segment_bytes(segment_size))
}

/// Make a file of so many bytes, in place of one that has the name. Only one who keeps a log may
/// do this at a time.
pub(crate) fn reserve_file<S: Storage>(storage: &S, name: &str, bytes: u64) -> io::Result<()> {
    // Left by one that was killed.
    if storage.list_files()?.iter().any(|name| name == NEW) {
        storage.remove_file(NEW)?;
    }
    storage.create_file(NEW, bytes)?;
    storage.sync_file(NEW)?;
    storage.rename_file(NEW, name)?;
    storage.sync_directory()
}
