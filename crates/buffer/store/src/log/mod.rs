//! The write-ahead log: checksummed, numbered records in segments of reserved space.
//!
//! ```text
//! record: length u32 | crc32c u32 | sequence u64 | synced u64 | payload…
//! ```
//! `synced` is the last sequence number known to be durable when the record was written. It lets
//! recovery tell a torn tail, which is dropped, from damage to what was once acknowledged as
//! durable, which is an error. A segment is synced before the next one is begun, so only the last
//! one can have a torn tail.
//!
//! Where there is no space for a further segment the log goes on in one that it has in reserve:
//! [`spare`].

mod replay;
pub mod spare_segment;

pub use replay::{RecoveryError, recover_log, scan_closed_segments};
pub use spare_segment::LogSpace;

use crate::storage::Storage;
use spare_segment::{SPARE_SEGMENT, has_spare_segment, is_out_of_space};
use std::io;

const RECORD_HEADER_BYTES: usize = 24;
/// More than the record of a start takes, in bytes.
const START: u64 = 64;
/// Longest payload of a record, in bytes.
pub const MAX_RECORD_BYTES: usize = 192 * 1024;
/// Bytes that [`Log::prepare`] guarantees room for, unless it says [`Room::None`]; no more than a
/// quarter of a segment.
pub const HEADROOM_BYTES: u64 = 1 << 20;

fn headroom_bytes(segment_size: u64) -> u64 {
    HEADROOM_BYTES.min(segment_size / 4)
}

/// The open end of a log.
#[derive(Debug)]
pub struct Log<S> {
    storage: S,
    segment_size: u64,
    name: String,
    /// Where the next flush goes in the segment.
    offset: u64,
    /// Bytes that the segment has room for.
    room: u64,
    /// There is a segment in reserve.
    spare: bool,
    /// Bytes at the segment's end that are not for everyone.
    kept: u64,
    next: u64,
    synced: u64,
    buffer: Vec<u8>,
}

fn segment_name(first: u64) -> String {
    format!("log.{first:016x}")
}

/// First sequence number of a segment, from its name.
pub fn segment_first_sequence(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("log.")?, 16).ok()
}

impl<S: Storage> Log<S> {
    /// Have room for [`HEADROOM`] bytes of records, and say what may be recorded. For want of space
    /// this does not fail, but says less than [`Room::Plenty`].
    pub fn ensure_headroom(&mut self) -> io::Result<LogSpace> {
        // Some thousand starts.
        self.kept = headroom_bytes(self.segment_size) / 8;
        // Whoever keeps the log may have made one meanwhile.
        self.spare = self.spare || has_spare_segment(&self.storage)?;
        if self.free_bytes() < headroom_bytes(self.segment_size)
            && !(self.spare && self.advance_segment()?)
        {
            return Ok(LogSpace::Exhausted);
        }
        Ok(match self.spare {
            true => LogSpace::Normal,
            false => LogSpace::ReserveOnly,
        })
    }

    /// Have room for the record of a start, for which the last bytes are kept.
    pub fn ensure_start_headroom(&mut self) -> io::Result<()> {
        self.ensure_headroom()?;
        self.kept = 0;
        match self.free_bytes() < START {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// Bytes of the segment that are free.
    fn free_bytes(&self) -> u64 {
        self.room
            .saturating_sub(self.offset + self.buffer.len() as u64)
    }

    /// Close the segment and begin another one. `false`: there is no space for it.
    fn advance_segment(&mut self) -> io::Result<bool> {
        self.flush()?;
        self.sync()?;
        match self.begin_segment() {
            Ok(()) => Ok(true),
            Err(error) if is_out_of_space(&error) => Ok(false),
            // Such as too many open files. Nothing is lost by waiting.
            Err(error) => {
                tracing::warn!(%error, "no segment can be made for the log now");
                Ok(false)
            }
        }
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let name = segment_name(self.next);
        let room = match self.storage.create_file(&name, self.segment_size) {
            Ok(()) => self.segment_size,
            Err(error) if is_out_of_space(&error) && self.spare => {
                self.spare = false; // also if somebody has removed it
                self.storage.rename_file(SPARE_SEGMENT, &name)?;
                self.storage.file_capacity(&name)?
            }
            Err(error) => return Err(error),
        };
        self.storage.sync_file(&name)?;
        self.storage.sync_directory()?;
        (self.name, self.offset, self.room) = (name, 0, room);
        Ok(())
    }

    /// Add a record of 1 to [`MAX_RECORD`] bytes; it is written by the next [`flush`](Log::flush).
    /// Returns its sequence number. Fails if there is no room for it where [`prepare`](Log::prepare)
    /// has been asked for less.
    pub fn append(&mut self, payload: &[u8]) -> io::Result<u64> {
        debug_assert!(!payload.is_empty() && payload.len() <= MAX_RECORD_BYTES);
        if self.free_bytes() < (RECORD_HEADER_BYTES + payload.len()) as u64 + self.kept
            && !self.advance_segment()?
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let sequence = self.next;
        self.next += 1;
        let at = self.buffer.len();
        self.buffer
            .extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(&sequence.to_le_bytes());
        self.buffer.extend_from_slice(&self.synced.to_le_bytes());
        self.buffer.extend_from_slice(payload);
        let sum = crc32c::crc32c_append(payload.len() as u32, &self.buffer[at + 8..]);
        self.buffer[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        Ok(sequence)
    }

    /// Write appended records. They survive the end of this process, but not a power cut.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.storage
                .write_file(&self.name, self.offset, &self.buffer)?;
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Make everything flushed durable.
    pub fn sync(&mut self) -> io::Result<()> {
        let sequence = self.last_sequence();
        self.storage.sync_file(&self.name)?;
        self.mark_durable(sequence);
        Ok(())
    }

    /// Someone else made the segment durable up to `sequence`.
    pub fn mark_durable(&mut self, sequence: u64) {
        self.synced = self.synced.max(sequence);
    }

    /// The file to sync for durability of everything flushed so far: earlier segments already are.
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
        self.synced
    }
}

#[cfg(test)]
mod tests;
