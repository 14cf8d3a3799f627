//! The write-ahead log: checksummed, numbered records in segments of reserved space.
//!
//! ```text
//! record: length u32 | crc32c u32 | sequence u64 | synced u64 | payload…
//! ```
//! `synced` is the last sequence number known to be durable when the record was written. It lets
//! recovery tell a torn tail, which is dropped, from damage to what was once acknowledged as
//! durable, which is an error. A segment is synced before the next one is begun, so only the last
//! one can have a torn tail.

use crate::storage::Storage;
use std::fmt;
use std::io;

const HEAD: usize = 24;
/// Longest payload of a record, in bytes.
pub const MAX_RECORD: usize = 192 * 1024;
/// Bytes that [`Log::prepare`] guarantees room for.
pub const HEADROOM: u64 = 1 << 20;

/// Why a log could not be read back.
#[derive(Debug)]
pub enum RecoverError {
    /// The storage failed.
    Io(io::Error),
    /// A record that was durable is damaged.
    Damaged {
        /// The segment.
        file: String,
        /// Where in it.
        offset: u64,
        /// The record that should be there.
        sequence: u64,
    },
    /// A segment or checkpoint is not there.
    Missing {
        /// The record that should come next.
        sequence: u64,
    },
    /// A record does not fit the state before it.
    Inconsistent {
        /// The record.
        sequence: u64,
        /// What does not fit.
        why: String,
    },
    /// A checkpoint is damaged.
    Checkpoint(String),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::Io(error) => write!(f, "cannot read the log: {error}"),
            RecoverError::Damaged {
                file,
                offset,
                sequence,
            } => write!(
                f,
                "log segment {file} is damaged at byte {offset}: record {sequence} was durable \
                 and is not readable; restore the segment from a copy"
            ),
            RecoverError::Missing { sequence } => {
                write!(f, "the log has no record {sequence}: a segment is missing")
            }
            RecoverError::Inconsistent { sequence, why } => {
                write!(
                    f,
                    "log record {sequence} does not fit the state before it: {why}"
                )
            }
            RecoverError::Checkpoint(file) => {
                write!(f, "checkpoint {file} is damaged; restore it from a copy")
            }
        }
    }
}

impl std::error::Error for RecoverError {}

impl From<io::Error> for RecoverError {
    fn from(error: io::Error) -> RecoverError {
        RecoverError::Io(error)
    }
}

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

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

struct Record<'a> {
    sequence: u64,
    synced: u64,
    payload: &'a [u8],
}

fn parse(bytes: &[u8], at: usize) -> Option<Record<'_>> {
    let lengths = word(bytes, at)?;
    let (length, sum) = (lengths as u32 as usize, (lengths >> 32) as u32);
    if length == 0 || length > MAX_RECORD {
        return None;
    }
    let checked = bytes.get(at + 8..at + HEAD + length)?;
    if crc32c::crc32c_append(length as u32, checked) != sum {
        return None;
    }
    Some(Record {
        sequence: word(bytes, at + 8)?,
        synced: word(bytes, at + 16)?,
        payload: &bytes[at + HEAD..at + HEAD + length],
    })
}

/// Read the records behind `after` in order. Returns the log, open for appending, its torn tail
/// removed. `segment_size` bytes are reserved for each new segment.
pub fn recover<S: Storage>(
    storage: S,
    segment_size: u64,
    after: u64,
    mut record: impl FnMut(u64, &[u8]) -> Result<(), RecoverError>,
) -> Result<Log<S>, RecoverError> {
    let segments = segments_from(&storage, after)?;
    let mut expected = after + 1;
    let mut end = None;
    for (index, (name, first)) in segments.iter().enumerate() {
        let last = index + 1 == segments.len();
        if *first > expected {
            return Err(RecoverError::Missing { sequence: expected });
        }
        let bytes = storage.read(name)?;
        let (mut at, mut here) = (0, *first);
        while let Some(found) = parse(&bytes, at).filter(|r| r.sequence == here) {
            if here == expected {
                record(here, found.payload)?;
                expected += 1;
            }
            here += 1;
            at += HEAD + found.payload.len();
        }
        let next_first = segments.get(index + 1).map(|(_, first)| *first);
        let damaged = match next_first {
            Some(next) => next != here,
            None => durable_beyond(&bytes, at, here),
        };
        if damaged {
            return Err(RecoverError::Damaged {
                file: name.clone(),
                offset: at as u64,
                sequence: here,
            });
        }
        if last {
            end = Some((name.clone(), at as u64));
        }
    }
    let mut log = Log {
        storage,
        segment_size,
        name: String::new(),
        offset: 0,
        next: expected,
        synced: after,
        buffer: Vec::new(),
    };
    match end {
        // Stale records behind the tail must not be met again once new ones are written.
        Some((name, offset)) => {
            log.storage.truncate(&name, offset, segment_size)?;
            log.storage.sync(&name)?;
            log.storage.sync_names()?;
            log.synced = expected - 1;
            (log.name, log.offset) = (name, offset);
        }
        None => log.begin_segment()?,
    }
    Ok(log)
}

/// Read the records behind `after` of all closed segments, those before the segment that starts
/// with record `segment_start`.
pub fn scan<S: Storage>(
    storage: &S,
    after: u64,
    segment_start: u64,
    mut record: impl FnMut(u64, &[u8]) -> Result<(), RecoverError>,
) -> Result<(), RecoverError> {
    let mut expected = after + 1;
    for (name, first) in segments_from(storage, after)? {
        if first >= segment_start {
            break;
        }
        if first > expected {
            return Err(RecoverError::Missing { sequence: expected });
        }
        let bytes = storage.read(&name)?;
        let (mut at, mut here) = (0, first);
        while let Some(found) = parse(&bytes, at).filter(|r| r.sequence == here) {
            if here == expected {
                record(here, found.payload)?;
                expected += 1;
            }
            here += 1;
            at += HEAD + found.payload.len();
        }
    }
    if expected < segment_start {
        return Err(RecoverError::Missing { sequence: expected });
    }
    Ok(())
}

/// Segments that may hold records behind `after`, with their first sequence numbers.
fn segments_from<S: Storage>(storage: &S, after: u64) -> io::Result<Vec<(String, u64)>> {
    let mut all: Vec<_> = storage
        .list()?
        .into_iter()
        .filter_map(|name| segment_first(&name).map(|first| (name, first)))
        .collect();
    all.sort_by_key(|(_, first)| *first);
    let skip = all
        .iter()
        .rposition(|(_, first)| *first <= after + 1)
        .unwrap_or(0);
    Ok(all.split_off(skip))
}

/// Does a valid record behind `at` say that `sequence` was durable?
fn durable_beyond(bytes: &[u8], at: usize, sequence: u64) -> bool {
    let Some(tail) = bytes.get(at..) else {
        return false;
    };
    // Later records carry numbers just above; this tells places worth a checksum from noise.
    let plausible = sequence..sequence + (bytes.len() / HEAD) as u64;
    (0..tail.len().saturating_sub(HEAD)).any(|offset| {
        word(tail, offset + 8).is_some_and(|s| plausible.contains(&s))
            && parse(tail, offset).is_some_and(|r| r.synced >= sequence)
    })
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
mod tests {
    use super::*;
    use crate::storage::{Fault, Memory};

    fn fill(log: &mut Log<Memory>, count: u64, sync_every: u64) {
        for i in 0..count {
            log.prepare().unwrap();
            let sequence = log.append(format!("record {i}").as_bytes());
            log.flush().unwrap();
            if sequence % sync_every == 0 {
                log.sync_now().unwrap();
            }
        }
    }

    fn read(storage: &Memory) -> Result<Vec<u64>, RecoverError> {
        let mut seen = Vec::new();
        recover(storage.clone(), 2 * HEADROOM, 0, |sequence, _| {
            seen.push(sequence);
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn damage_to_a_durable_record_is_reported_and_not_taken_for_a_torn_tail() {
        for record in 0..19 {
            let storage = Memory::new(1);
            let mut log = recover(storage.clone(), 2 * HEADROOM, 0, |_, _| Ok(())).unwrap();
            fill(&mut log, 20, 1);
            storage.damage(log.segment(), record * 32 + 26, 3);
            assert!(
                matches!(read(&storage), Err(RecoverError::Damaged { .. })),
                "{record}"
            );
        }
    }

    #[test]
    fn a_full_storage_refuses_before_anything_changes() {
        let storage = Memory::new(1);
        let mut log = recover(storage.clone(), 2 * HEADROOM, 0, |_, _| Ok(())).unwrap();
        storage.set_fault(Fault {
            capacity: Some(2 * HEADROOM),
            die_after: None,
        });
        let payload = vec![7; MAX_RECORD];
        let mut count = 0;
        while log.prepare().is_ok() {
            log.append(&payload);
            log.flush().unwrap();
            count += 1;
        }
        assert_eq!(read(&storage).unwrap().len(), count);
        storage.set_fault(Fault::default());
        log.prepare().unwrap();
        log.append(b"more");
        log.flush().unwrap();
        assert_eq!(read(&storage).unwrap().len(), count + 1);
    }

    #[test]
    fn records_synced_before_a_crash_at_any_write_are_read_back() {
        for seed in 1..2000 {
            let storage = Memory::new(seed * 7919);
            storage.set_fault(Fault {
                die_after: Some(seed % 97 + 1),
                capacity: None,
            });
            let (mut acknowledged, mut written) = (0, 0);
            if let Ok(mut log) = recover(storage.clone(), 2 * HEADROOM, 0, |_, _| Ok(())) {
                loop {
                    let run = |log: &mut Log<Memory>| {
                        log.prepare()?;
                        for _ in 0..seed % 5 + 1 {
                            log.append(&vec![1; (seed % 600 + 1) as usize]);
                        }
                        log.flush()
                    };
                    if run(&mut log).is_err() {
                        break;
                    }
                    written = log.last();
                    if seed % 3 == 0 {
                        if log.sync_now().is_err() {
                            break;
                        }
                        acknowledged = log.last();
                    }
                }
            }
            let lowest = if seed % 2 == 0 {
                storage.restart_process();
                written
            } else {
                storage.power_cut();
                acknowledged
            };
            let seen = read(&storage).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert!(
                seen.len() as u64 >= lowest,
                "seed {seed}: {} < {lowest}",
                seen.len()
            );
            assert_eq!(
                read(&storage).unwrap(),
                seen,
                "seed {seed}: second recovery differs"
            );
        }
    }
}
