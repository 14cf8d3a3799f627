//! Reading a log.

use super::Log;
use super::format::{MAX_RECORD_BYTES, RECORD_HEADER_BYTES, segment_first_sequence};
use super::spare_segment::has_spare_segment;
use crate::format_version::FORMAT_VERSION;
use crate::storage::Storage;
use forebay_protocol::InstanceId;
use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// Instances that a message names.
const MAX_NAMED: usize = 8;

/// Failure to recover a log.
#[derive(Debug)]
pub enum RecoveryError {
    /// The storage failed.
    Io(io::Error),
    /// A durable record is damaged.
    DamagedRecord {
        /// The segment.
        file: String,
        /// Byte offset of the damage in the segment.
        offset: u64,
        /// Sequence number of the record expected there.
        sequence: u64,
    },
    /// A segment or checkpoint is missing.
    MissingRecord {
        /// The next expected sequence number.
        sequence: u64,
    },
    /// A record contradicts the state that precedes it.
    InconsistentRecord {
        /// The record's sequence number.
        sequence: u64,
        /// The contradiction.
        why: String,
    },
    /// A checkpoint is damaged.
    DamagedCheckpoint(String),
    /// There is no record of these instances.
    LostInstances(BTreeSet<InstanceId>),
    /// Another release has written the directory, in the format that is named.
    UnknownFormat(String),
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::Io(error) => write!(f, "cannot read the log: {error}"),
            RecoveryError::DamagedRecord { file, offset, sequence } => write!(
                f,
                "log segment {file} is damaged at byte {offset}: durable record {sequence} is \
                 not readable; restore the segment from a copy"
            ),
            RecoveryError::UnknownFormat(found) => write!(
                f,
                "the directory has the format of another release, {found}; this release reads \
                 versions 1 to {FORMAT_VERSION}: install the newer release again"
            ),
            RecoveryError::MissingRecord { sequence } => {
                write!(f, "log record {sequence} not found: a segment is missing")
            }
            RecoveryError::InconsistentRecord { sequence, why } => {
                write!(f, "log record {sequence} is inconsistent with the recovered state: {why}")
            }
            RecoveryError::DamagedCheckpoint(file) => {
                write!(f, "checkpoint {file} is damaged; restore it from a copy")
            }
            RecoveryError::LostInstances(instances) => {
                let named: Vec<String> =
                    instances.iter().take(MAX_NAMED).map(InstanceId::to_string).collect();
                write!(f, "the log has no record of instance {}", named.join(", "))?;
                if instances.len() > MAX_NAMED {
                    write!(f, " and {} more", instances.len() - MAX_NAMED)?;
                }
                f.write_str(
                    ": it was removed or damaged, and a start would destroy their data; restore the \
                     directory `log` from a copy, or give up each of them with `forebay store \
                     drop-instance`",
                )
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

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

struct ParsedRecord<'a> {
    sequence: u64,
    durable: u64,
    payload: &'a [u8],
}

/// The record or marker at byte `at`; `None` if there is no valid one.
fn parse_record(bytes: &[u8], at: usize) -> Option<ParsedRecord<'_>> {
    let word = read_u64(bytes, at)?;
    let (length, sum) = (word as u32 as usize, (word >> 32) as u32);
    if length > MAX_RECORD_BYTES {
        return None;
    }
    let checked = bytes.get(at + 8..at + RECORD_HEADER_BYTES + length)?;
    if crc32c::crc32c_append(length as u32, checked) != sum {
        return None;
    }
    Some(ParsedRecord {
        sequence: read_u64(bytes, at + 8)?,
        durable: read_u64(bytes, at + 16)?,
        payload: &bytes[at + RECORD_HEADER_BYTES..at + RECORD_HEADER_BYTES + length],
    })
}

/// End of the valid records of a segment.
struct SegmentEnd {
    /// Byte offset behind the last record.
    offset: usize,
    /// Sequence number after the last record.
    next: u64,
}

/// The end of a log.
pub struct Tail {
    /// The last segment.
    name: String,
    /// Byte offset behind its last record.
    offset: u64,
    /// Bytes of it that are not zero, at least up to `offset`.
    written: u64,
}

/// Pass the records behind sequence number `after` to `record`, in order, and change nothing. Returns
/// the sequence number of the last record, and the end of the log unless it has no segment.
pub fn scan_log<S: Storage>(
    storage: &S,
    after: u64,
    record: &mut impl FnMut(u64, &[u8]) -> Result<(), RecoveryError>,
) -> Result<(u64, Option<Tail>), RecoveryError> {
    let segments = segments_from(storage, after)?;
    let mut expected = after + 1;
    // The segment behind a checkpoint is created before the checkpoint.
    if segments.is_empty() && after > 0 {
        return Err(RecoveryError::MissingRecord { sequence: expected });
    }
    let mut tail = None;
    for (index, (name, first)) in segments.iter().enumerate() {
        if *first > expected {
            return Err(RecoveryError::MissingRecord { sequence: expected });
        }
        let bytes = storage.read_file(name)?;
        let end = read_segment(&bytes, *first, &mut expected, record)?;
        let is_damaged = match segments.get(index + 1) {
            Some((_, next_first)) => *next_first != end.next,
            None => is_durable_behind(&bytes, end.offset, end.next),
        };
        if is_damaged {
            return Err(RecoveryError::DamagedRecord {
                file: name.clone(),
                offset: end.offset as u64,
                sequence: end.next,
            });
        }
        if index + 1 == segments.len() {
            let written = bytes.len() - trailing_zeros(&bytes);
            let written = written.max(end.offset) as u64;
            tail = Some(Tail { name: name.clone(), offset: end.offset as u64, written });
        }
    }
    Ok((expected - 1, tail))
}

/// Pass the records behind sequence number `after` to `record`, in order. Returns the log, open for
/// appending and without its torn tail. New segments get `segment_size` bytes.
pub fn recover_log<S: Storage>(
    storage: S,
    segment_size: u64,
    after: u64,
    mut record: impl FnMut(u64, &[u8]) -> Result<(), RecoveryError>,
) -> Result<Log<S>, RecoveryError> {
    let (last, tail) = scan_log(&storage, after, &mut record)?;
    let mut log = Log {
        storage,
        segment_size,
        name: String::new(),
        offset: 0,
        capacity: 0,
        has_spare: false,
        kept_for_starts: 0,
        next: last + 1,
        durable: after,
        buffer: Vec::new(),
    };
    match tail {
        // Stale records behind the tail must not be replayed once new ones precede them.
        Some(Tail { name, offset, written }) => {
            log.capacity = log.storage.zero_tail(&name, offset..written, segment_size)?;
            log.storage.sync_file(&name)?;
            log.storage.sync_directory()?;
            (log.name, log.offset) = (name, offset);
            log.mark_durable(last)?;
        }
        None => {
            log.has_spare = has_spare_segment(&log.storage)?;
            log.begin_segment()?;
        }
    }
    assert!(log.segment_start_sequence() <= log.next);
    Ok(log)
}

/// Pass the records behind sequence number `after` of all closed segments, i.e. those before the
/// segment that begins with record `segment_start`, to `record`.
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

/// Read the records of a segment that begins with sequence number `first`, and pass those from
/// `expected` on, which is advanced, to `record`.
fn read_segment(
    bytes: &[u8],
    first: u64,
    expected: &mut u64,
    record: &mut impl FnMut(u64, &[u8]) -> Result<(), RecoveryError>,
) -> Result<SegmentEnd, RecoveryError> {
    let mut end = SegmentEnd { offset: 0, next: first };
    while let Some(found) = parse_record(bytes, end.offset).filter(|r| r.sequence == end.next) {
        if found.payload.is_empty() {
            break; // the marker behind the last record
        }
        if end.next == *expected {
            record(end.next, found.payload)?;
            *expected += 1;
        }
        end.next += 1;
        end.offset += RECORD_HEADER_BYTES + found.payload.len();
    }
    assert!(end.offset <= bytes.len());
    Ok(end)
}

/// Segments that may hold records behind `after`, with their first sequence numbers, in order.
fn segments_from<S: Storage>(storage: &S, after: u64) -> io::Result<Vec<(String, u64)>> {
    let mut all: Vec<_> = storage
        .list_files()?
        .into_iter()
        .filter_map(|name| segment_first_sequence(&name).map(|first| (name, first)))
        .collect();
    all.sort_by_key(|(_, first)| *first);
    let skip = all.iter().rposition(|(_, first)| *first <= after + 1).unwrap_or(0);
    Ok(all.split_off(skip))
}

/// Zeros per comparison.
const ZEROS: [u8; 4096] = [0; 4096];

/// Number of trailing zero bytes, rounded down to a multiple of `ZEROS`.
fn trailing_zeros(bytes: &[u8]) -> usize {
    bytes
        .rchunks(ZEROS.len())
        .take_while(|chunk| **chunk == ZEROS[..chunk.len()])
        .map(<[u8]>::len)
        .sum()
}

/// Whether a valid record behind byte `at` states that `sequence` was durable.
fn is_durable_behind(bytes: &[u8], at: usize, sequence: u64) -> bool {
    let Some(tail) = bytes.get(at..) else {
        return false;
    };
    // Later records have slightly larger numbers. This avoids a checksum at every offset.
    let plausible = sequence..sequence + (bytes.len() / RECORD_HEADER_BYTES) as u64;
    // No record begins in the preallocated zeros: sequence numbers begin with 1.
    let written = tail.len() - trailing_zeros(tail);
    (0..written.min((tail.len() + 1).saturating_sub(RECORD_HEADER_BYTES))).any(|offset| {
        read_u64(tail, offset + 8).is_some_and(|s| plausible.contains(&s))
            && parse_record(tail, offset).is_some_and(|r| r.durable >= sequence)
    })
}
