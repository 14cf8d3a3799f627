//! The write-ahead log: checksummed, numbered records in segments of reserved space.
//!
//! ```text
//! record: length u32 | crc32c u32 | sequence u64 | synced u64 | payload…
//! ```
//! `synced` is the last sequence number known to be durable when the record was written. It lets
//! recovery tell a torn tail, which is dropped, from damage to what was once acknowledged as
//! durable, which is an error. A segment is synced before the next one is begun, so only the last
//! one can have a torn tail.

mod read;

pub use read::{RecoverError, recover, scan};

use crate::storage::Storage;
use std::io;

const HEAD: usize = 24;
/// Longest payload of a record, in bytes.
pub const MAX_RECORD: usize = 192 * 1024;
/// Bytes that [`Log::prepare`] guarantees room for.
pub const HEADROOM: u64 = 1 << 20;

/// The open end of a log.
#[derive(Debug)]
pub struct Log<S> {
    storage: S,
    segment_size: u64,
    name: String,
    /// Where the next flush goes in the segment.
    offset: u64,
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
    /// Make sure that [`HEADROOM`] bytes of records can be appended. Fails when the storage is
    /// full; nothing has changed then.
    pub fn prepare(&mut self) -> io::Result<()> {
        let used = self.offset + self.buffer.len() as u64;
        if used + HEADROOM <= self.segment_size {
            return Ok(());
        }
        self.flush()?;
        self.sync_now()?;
        self.begin_segment()
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let name = segment_name(self.next);
        self.storage.create(&name, self.segment_size)?;
        self.storage.sync(&name)?;
        self.storage.sync_names()?;
        self.name = name;
        self.offset = 0;
        Ok(())
    }

    /// Add a record of 1 to [`MAX_RECORD`] bytes; it is written by the next [`flush`](Log::flush).
    /// Returns its sequence number.
    pub fn append(&mut self, payload: &[u8]) -> u64 {
        debug_assert!(!payload.is_empty() && payload.len() <= MAX_RECORD);
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
        sequence
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
