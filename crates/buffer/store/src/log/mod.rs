//! The write-ahead log: checksummed, numbered records in preallocated segments.
//!
//! ```text
//! record: length u32 | crc32c u32 | sequence u64 | durable u64 | payload…
//! ```
//! `durable` is the last sequence number known to be durable when the record was written. With it,
//! recovery distinguishes a torn tail, which is truncated, from damage to a record that was
//! acknowledged as durable, which is an error. A segment is synced before the next one is begun, so
//! only the last segment can have a torn tail.
//!
//! While no record follows the durable ones, a marker does: a header without payload, with the
//! sequence number of the next record, which overwrites it. It is written after each sync, without
//! a sync of its own: it reaches the medium with the kernel's next writeback. Until then, only
//! damage that coincides with a power failure is taken for a torn tail. A clean stop syncs it.
//!
//! When no new segment can be allocated, the log continues in a preallocated one:
//! [`spare_segment`].

mod format;
mod replay;
pub mod spare_segment;

pub use format::{HEADROOM_BYTES, MAX_RECORD_BYTES, segment_first_sequence};
pub use replay::{RecoveryError, recover_log, scan_closed_segments, scan_log};
pub use spare_segment::LogSpace;

use crate::storage::{Storage, is_out_of_space};
use format::{RECORD_HEADER_BYTES, headroom_bytes, segment_name};
use spare_segment::{SPARE_SEGMENT, has_spare_segment};
use std::io;

/// Upper bound for the record that a daemon writes when it starts.
const START_RECORD_BYTES: u64 = 64;
/// The end of a log, open for appending.
#[derive(Debug)]
pub struct Log<S> {
    storage: S,
    segment_size: u64,
    /// The current segment.
    name: String,
    /// Offset of the next flush in the current segment.
    offset: u64,
    /// Bytes allocated to the current segment.
    capacity: u64,
    /// A spare segment exists.
    has_spare: bool,
    /// Bytes at the end of the segment that only a start record may use.
    kept_for_starts: u64,
    /// Sequence number of the next record.
    next: u64,
    /// Last sequence number known to be durable.
    durable: u64,
    /// Appended records that are not flushed yet.
    buffer: Vec<u8>,
}

/// The header of a record, or, without payload, the marker of the log's durable end.
fn record_header(payload: &[u8], sequence: u64, durable: u64) -> [u8; RECORD_HEADER_BYTES] {
    let length = payload.len() as u32;
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..].copy_from_slice(&durable.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(length, &header[8..]), payload);
    header[4..8].copy_from_slice(&sum.to_le_bytes());
    header
}

impl<S: Storage> Log<S> {
    /// Ensure space for [`HEADROOM_BYTES`] of records and return which records may be appended.
    /// A lack of space is not an error but returns less than [`LogSpace::Normal`].
    pub fn ensure_headroom(&mut self) -> io::Result<LogSpace> {
        // Enough for thousands of starts.
        self.kept_for_starts = headroom_bytes(self.segment_size) / 8;
        // The checkpointer may have created one since.
        self.has_spare = self.has_spare || has_spare_segment(&self.storage)?;
        let is_short = self.free_bytes() < headroom_bytes(self.segment_size);
        if is_short && !(self.has_spare && self.advance_segment()?) {
            return Ok(LogSpace::Exhausted);
        }
        Ok(if self.has_spare { LogSpace::Normal } else { LogSpace::ReserveOnly })
    }

    /// Ensure space for a start record, which may use the bytes kept for that purpose.
    pub fn ensure_start_headroom(&mut self) -> io::Result<()> {
        self.ensure_headroom()?;
        self.kept_for_starts = 0;
        if self.free_bytes() < START_RECORD_BYTES {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    /// Free bytes of the current segment.
    fn free_bytes(&self) -> u64 {
        self.capacity.saturating_sub(self.offset + self.buffer.len() as u64)
    }

    /// Close the current segment and begin the next one. Returns false if that is not possible.
    fn advance_segment(&mut self) -> io::Result<bool> {
        self.flush()?;
        self.sync()?;
        assert_eq!(self.durable + 1, self.next, "a closed segment is durable");
        match self.begin_segment() {
            Ok(()) => Ok(true),
            Err(error) if is_out_of_space(&error) => Ok(false),
            // For example too many open files. A later attempt loses nothing.
            Err(error) => {
                tracing::warn!(%error, "cannot create a log segment");
                Ok(false)
            }
        }
    }

    /// Close the current segment early, so that a checkpoint can cover its records, and free the rest
    /// of it. Returns false if it has no records or no other segment can be allocated. The spare segment
    /// is not used.
    pub fn close_segment(&mut self) -> io::Result<bool> {
        let (name, end) = (self.name.clone(), self.offset + self.buffer.len() as u64);
        let had_spare = std::mem::take(&mut self.has_spare);
        let advanced = if end > 0 { self.advance_segment() } else { Ok(false) };
        self.has_spare = had_spare;
        if !advanced? {
            return Ok(false);
        }
        self.storage.truncate_file(&name, end)?;
        Ok(true)
    }

    /// Whether the current segment has records.
    pub fn has_records(&self) -> bool {
        self.offset > 0 || !self.buffer.is_empty()
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        assert!(self.buffer.is_empty(), "segments begin between flushes");
        let name = segment_name(self.next);
        let capacity = match self.storage.create_file(&name, self.segment_size) {
            Ok(()) => self.segment_size,
            Err(error) if is_out_of_space(&error) && self.has_spare => {
                self.has_spare = false; // also if the rename fails because the file is missing
                self.storage.rename_file(SPARE_SEGMENT, &name)?;
                self.storage.file_capacity(&name)?
            }
            Err(error) => return Err(error),
        };
        self.storage.sync_file(&name)?;
        self.storage.sync_directory()?;
        (self.name, self.offset, self.capacity) = (name, 0, capacity);
        Ok(())
    }

    /// Append a record of 1 to [`MAX_RECORD_BYTES`] bytes, to be written by the next
    /// [`flush`](Log::flush), and return its sequence number. Fails with `StorageFull` if the
    /// record exceeds the headroom and no segment can be allocated.
    pub fn append(&mut self, payload: &[u8]) -> io::Result<u64> {
        assert!(!payload.is_empty() && payload.len() <= MAX_RECORD_BYTES);
        let needed = (RECORD_HEADER_BYTES + payload.len()) as u64 + self.kept_for_starts;
        if self.free_bytes() < needed && !self.advance_segment()? {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let sequence = self.next;
        self.next += 1;
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&record_header(payload, sequence, self.durable));
        self.buffer.extend_from_slice(payload);
        debug_assert_eq!(self.buffer.len(), at + RECORD_HEADER_BYTES + payload.len());
        Ok(sequence)
    }

    /// Write appended records. They survive a crash of this process, but not a power failure.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.storage.write_file(&self.name, self.offset, &self.buffer)?;
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
            assert!(self.offset <= self.capacity, "a write exceeds its segment");
        }
        Ok(())
    }

    /// Make all flushed records durable.
    pub fn sync(&mut self) -> io::Result<()> {
        debug_assert!(self.buffer.is_empty(), "unflushed records cannot be synced");
        self.storage.sync_file(&self.name)?;
        self.mark_durable(self.last_sequence())
    }

    /// Make all flushed records durable, and the marker that says so.
    pub fn close(mut self) -> io::Result<()> {
        self.sync()?;
        self.storage.sync_file(&self.name)
    }

    /// Note that the records up to `sequence` were synced, perhaps by another thread.
    pub fn mark_durable(&mut self, sequence: u64) -> io::Result<()> {
        assert!(sequence < self.next, "a record that was never appended");
        if sequence <= self.durable {
            return Ok(());
        }
        self.durable = sequence;
        let is_last = sequence == self.last_sequence() && self.buffer.is_empty();
        // An empty segment needs none: its existence says that the one before it is durable.
        let is_needed = is_last && self.offset > 0;
        if is_needed && self.capacity - self.offset >= RECORD_HEADER_BYTES as u64 {
            let marker = record_header(&[], self.next, self.durable);
            self.storage.write_file(&self.name, self.offset, &marker)?;
        }
        Ok(())
    }

    /// The file to sync to make all flushed records durable; earlier segments are durable.
    pub fn current_segment(&self) -> &str {
        &self.name
    }

    /// First sequence number of the current segment.
    pub fn segment_start_sequence(&self) -> u64 {
        segment_first_sequence(&self.name).unwrap_or(0)
    }

    /// Sequence number of the last record.
    pub fn last_sequence(&self) -> u64 {
        self.next - 1
    }

    /// Last sequence number known to be durable.
    pub fn durable_sequence(&self) -> u64 {
        self.durable
    }
}
