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

mod read;
pub mod spare;

pub use read::{RecoverError, recover, scan};
pub use spare::Room;

use crate::storage::Storage;
use spare::{SPARE, has_spare, is_full};
use std::io;

const HEAD: usize = 24;
/// More than the record of a start takes, in bytes.
const START: u64 = 64;
/// Longest payload of a record, in bytes.
pub const MAX_RECORD: usize = 192 * 1024;
/// Bytes that [`Log::prepare`] guarantees room for, unless it says [`Room::None`]; no more than a
/// quarter of a segment.
pub const HEADROOM: u64 = 1 << 20;

fn headroom(segment_size: u64) -> u64 {
    HEADROOM.min(segment_size / 4)
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
pub fn segment_first(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("log.")?, 16).ok()
}

impl<S: Storage> Log<S> {
    /// Have room for [`HEADROOM`] bytes of records, and say what may be recorded. For want of space
    /// this does not fail, but says less than [`Room::Plenty`].
    pub fn prepare(&mut self) -> io::Result<Room> {
        // Some thousand starts.
        self.kept = headroom(self.segment_size) / 8;
        // Whoever keeps the log may have made one meanwhile.
        self.spare = self.spare || has_spare(&self.storage)?;
        if self.left() < headroom(self.segment_size) && !(self.spare && self.next_segment()?) {
            return Ok(Room::None);
        }
        Ok(match self.spare {
            true => Room::Plenty,
            false => Room::Spare,
        })
    }

    /// Have room for the record of a start, for which the last bytes are kept.
    pub fn prepare_start(&mut self) -> io::Result<()> {
        self.prepare()?;
        self.kept = 0;
        match self.left() < START {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// Bytes of the segment that are free.
    fn left(&self) -> u64 {
        self.room
            .saturating_sub(self.offset + self.buffer.len() as u64)
    }

    /// Close the segment and begin another one. `false`: there is no space for it.
    fn next_segment(&mut self) -> io::Result<bool> {
        self.flush()?;
        self.sync_now()?;
        match self.begin_segment() {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => Ok(false),
            // Such as too many open files. Nothing is lost by waiting.
            Err(error) => {
                tracing::warn!(%error, "no segment can be made for the log now");
                Ok(false)
            }
        }
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let name = segment_name(self.next);
        let room = match self.storage.create(&name, self.segment_size) {
            Ok(()) => self.segment_size,
            Err(error) if is_full(&error) && self.spare => {
                self.spare = false; // also if somebody has removed it
                self.storage.rename(SPARE, &name)?;
                self.storage.room(&name)?
            }
            Err(error) => return Err(error),
        };
        self.storage.sync(&name)?;
        self.storage.sync_names()?;
        (self.name, self.offset, self.room) = (name, 0, room);
        Ok(())
    }

    /// Add a record of 1 to [`MAX_RECORD`] bytes; it is written by the next [`flush`](Log::flush).
    /// Returns its sequence number. Fails if there is no room for it where [`prepare`](Log::prepare)
    /// has been asked for less.
    pub fn append(&mut self, payload: &[u8]) -> io::Result<u64> {
        debug_assert!(!payload.is_empty() && payload.len() <= MAX_RECORD);
        if self.left() < (HEAD + payload.len()) as u64 + self.kept && !self.next_segment()? {
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
            self.storage.write(&self.name, self.offset, &self.buffer)?;
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Make everything flushed durable.
    pub fn sync_now(&mut self) -> io::Result<()> {
        let sequence = self.last();
        self.storage.sync(&self.name)?;
        self.synced(sequence);
        Ok(())
    }

    /// Someone else made the segment durable up to `sequence`.
    pub fn synced(&mut self, sequence: u64) {
        self.synced = self.synced.max(sequence);
    }

    /// The file to sync for durability of everything flushed so far: earlier segments already are.
    pub fn segment(&self) -> &str {
        &self.name
    }

    /// First sequence number of the current segment.
    pub fn segment_start(&self) -> u64 {
        segment_first(&self.name).unwrap_or(0)
    }

    /// Sequence number of the last record.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    /// Last sequence number known to be durable.
    pub fn durable(&self) -> u64 {
        self.synced
    }
}

#[cfg(test)]
mod tests;
