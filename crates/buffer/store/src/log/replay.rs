//! Reading a log back.

use super::spare_segment::has_spare_segment;
use super::{Log, MAX_RECORD_BYTES, RECORD_HEADER_BYTES, segment_first_sequence};
use crate::storage::Storage;
use std::fmt;
use std::io;

/// Why a log could not be read back.
#[derive(Debug)]
pub enum RecoveryError {
    /// The storage failed.
    Io(io::Error),
    /// A record that was durable is damaged.
    DamagedRecord {
        /// The segment.
        file: String,
        /// Where in it.
        offset: u64,
        /// The record that should be there.
        sequence: u64,
    },
    /// A segment or checkpoint is not there.
    MissingRecord {
        /// The record that should come next.
        sequence: u64,
    },
    /// A record does not fit the state before it.
    InconsistentRecord {
        /// The record.
        sequence: u64,
        /// What does not fit.
        why: String,
    },
    /// A checkpoint is damaged.
    DamagedCheckpoint(String),
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::Io(error) => write!(f, "cannot read the log: {error}"),
            RecoveryError::DamagedRecord {
                file,
                offset,
                sequence,
            } => write!(
                f,
                "log segment {file} is damaged at byte {offset}: record {sequence} was durable \
                 and is not readable; restore the segment from a copy"
            ),
            RecoveryError::MissingRecord { sequence } => {
                write!(f, "the log has no record {sequence}: a segment is missing")
            }
            RecoveryError::InconsistentRecord { sequence, why } => {
                write!(
                    f,
                    "log record {sequence} does not fit the state before it: {why}"
                )
            }
            RecoveryError::DamagedCheckpoint(file) => {
                write!(f, "checkpoint {file} is damaged; restore it from a copy")
            }
        }
    }
}

impl std::error::Error for RecoveryError {}

impl From<io::Error> for RecoveryError {
    fn from(error: io::Error) -> RecoveryError {
        RecoveryError::Io(error)
    }
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
    if length == 0 || length > MAX_RECORD_BYTES {
        return None;
    }
    let checked = bytes.get(at + 8..at + RECORD_HEADER_BYTES + length)?;
    if crc32c::crc32c_append(length as u32, checked) != sum {
        return None;
    }
    Some(Record {
        sequence: word(bytes, at + 8)?,
        synced: word(bytes, at + 16)?,
        payload: &bytes[at + RECORD_HEADER_BYTES..at + RECORD_HEADER_BYTES + length],
    })
}

/// Read the records behind `after` in order. Returns the log, open for appending, its torn tail
/// removed. `segment_size` bytes are reserved for each new segment.
pub fn recover_log<S: Storage>(
    storage: S,
    segment_size: u64,
    after: u64,
    mut record: impl FnMut(u64, &[u8]) -> Result<(), RecoveryError>,
) -> Result<Log<S>, RecoveryError> {
    let segments = segments_from(&storage, after)?;
    let mut expected = after + 1;
    let mut end = None;
    for (index, (name, first)) in segments.iter().enumerate() {
        let last = index + 1 == segments.len();
        if *first > expected {
            return Err(RecoveryError::MissingRecord { sequence: expected });
        }
        let bytes = storage.read_file(name)?;
        let (at, here) = read_segment(&bytes, *first, &mut expected, &mut record)?;
        let next_first = segments.get(index + 1).map(|(_, first)| *first);
        let damaged = match next_first {
            Some(next) => next != here,
            None => durable_beyond(&bytes, at, here),
        };
        if damaged {
            return Err(RecoveryError::DamagedRecord {
                file: name.clone(),
                offset: at as u64,
                sequence: here,
            });
        }
        if last {
            let written = bytes.len() - zeros_at_end(&bytes);
            end = Some((name.clone(), at as u64, written.max(at) as u64));
        }
    }
    let mut log = Log {
        storage,
        segment_size,
        name: String::new(),
        offset: 0,
        room: 0,
        spare: false,
        kept: 0,
        next: expected,
        synced: after,
        buffer: Vec::new(),
    };
    match end {
        // Stale records behind the tail must not be met again once new ones are written.
        Some((name, offset, written)) => {
            log.room = log
                .storage
                .zero_tail(&name, offset..written, segment_size)?;
            log.storage.sync_file(&name)?;
            log.storage.sync_directory()?;
            log.synced = expected - 1;
            (log.name, log.offset) = (name, offset);
        }
        None => {
            log.spare = has_spare_segment(&log.storage)?;
            log.begin_segment()?;
        }
    }
    Ok(log)
}

/// Read the records behind `after` of all closed segments, those before the segment that starts
/// with record `segment_start`.
pub fn scan_closed_segments<S: Storage>(
    storage: &S,
    after: u64,
    segment_start: u64,
    mut record: impl FnMut(u64, &[u8]) -> Result<(), RecoveryError>,
) -> Result<(), RecoveryError> {
    let mut expected = after + 1;
    for (name, first) in segments_from(storage, after)? {
        if first >= segment_start {
            break;
        }
        if first > expected {
            return Err(RecoveryError::MissingRecord { sequence: expected });
        }
        let bytes = storage.read_file(&name)?;
        read_segment(&bytes, first, &mut expected, &mut record)?;
    }
    if expected < segment_start {
        return Err(RecoveryError::MissingRecord { sequence: expected });
    }
    Ok(())
}

/// Read the records of a segment that begins with number `first`: those from `expected` on, which
/// counts upwards. Says where the last of them ends, and which number would come next.
fn read_segment(
    bytes: &[u8],
    first: u64,
    expected: &mut u64,
    record: &mut impl FnMut(u64, &[u8]) -> Result<(), RecoveryError>,
) -> Result<(usize, u64), RecoveryError> {
    let (mut at, mut here) = (0, first);
    while let Some(found) = parse(bytes, at).filter(|r| r.sequence == here) {
        if here == *expected {
            record(here, found.payload)?;
            *expected += 1;
        }
        here += 1;
        at += RECORD_HEADER_BYTES + found.payload.len();
    }
    Ok((at, here))
}

/// Segments that may hold records behind `after`, with their first sequence numbers.
fn segments_from<S: Storage>(storage: &S, after: u64) -> io::Result<Vec<(String, u64)>> {
    let mut all: Vec<_> = storage
        .list_files()?
        .into_iter()
        .filter_map(|name| segment_first_sequence(&name).map(|first| (name, first)))
        .collect();
    all.sort_by_key(|(_, first)| *first);
    let skip = all
        .iter()
        .rposition(|(_, first)| *first <= after + 1)
        .unwrap_or(0);
    Ok(all.split_off(skip))
}

/// As many zeros as are compared at once.
const ZEROS: [u8; 4096] = [0; 4096];

/// How many zeros there are at the end, to within some thousand.
fn zeros_at_end(bytes: &[u8]) -> usize {
    bytes
        .rchunks(ZEROS.len())
        .take_while(|chunk| **chunk == ZEROS[..chunk.len()])
        .map(<[u8]>::len)
        .sum()
}

/// Does a valid record behind `at` say that `sequence` was durable?
fn durable_beyond(bytes: &[u8], at: usize, sequence: u64) -> bool {
    let Some(tail) = bytes.get(at..) else {
        return false;
    };
    // Later records carry numbers just above; this tells places worth a checksum from noise.
    let plausible = sequence..sequence + (bytes.len() / RECORD_HEADER_BYTES) as u64;
    // Nothing begins in the zeros reserved behind the last byte written: numbers begin with 1.
    let written = tail.len() - zeros_at_end(tail);
    (0..written.min(tail.len().saturating_sub(RECORD_HEADER_BYTES))).any(|offset| {
        word(tail, offset + 8).is_some_and(|s| plausible.contains(&s))
            && parse(tail, offset).is_some_and(|r| r.synced >= sequence)
    })
}
