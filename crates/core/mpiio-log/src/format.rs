//! The format of log files.
//!
//! ```text
//! file:     header | state of slot 0 | … | state of slot n-1 | segments
//! segments: slot k owns the segments k, k+n, k+2n, …
//! segment:  segment record | records…           each record begins at a multiple of 8 bytes
//! record:   head (56 bytes) | payload
//! ```
//! One process writes a slot; a log of a process has one slot, a log of a node one for each of its
//! processes. All records of a slot are numbered in sequence. A segment defines the views of its
//! entries, so that it can be read without others. States are kept in two copies, written in turn.
//! All numbers are little-endian.

use crate::checksum::{crc32c, crc32c_append};
use crate::file_identity::FileIdentity;
use std::io;

/// First bytes of a log file.
pub(crate) const MAGIC: [u8; 8] = *b"FBAYLOG\n";
/// Version of the format.
pub const FORMAT_VERSION: u32 = 2;
/// Oldest version that is read: its states say nothing about the logs of other processes.
const OLDEST_VERSION: u32 = 1;
/// Bytes of the header.
pub(crate) const HEADER_BYTES: u64 = 4096;
/// Bytes of the state of a slot.
pub(crate) const STATE_BYTES: u64 = 4096;
/// Distance of the two copies of a state.
const STATE_COPY_BYTES: u64 = STATE_BYTES / 2;
/// Longest part of a write in a record: it stays in the processor's cache between its checksum and its
/// way to the file, and a log that is not ours cannot make a reader list the pieces of a longer one.
/// A multiple of 8.
pub(crate) const MAX_PART: u64 = 256 << 10;
/// Most segments of a log, those of all slots together: 16 TiB in segments of 16 MiB.
pub(crate) const MAX_SEGMENTS: u64 = 1 << 20;
/// Bytes of a record before its payload.
pub(crate) const HEAD_BYTES: usize = 56;
/// Most slots of a log.
pub const MAX_SLOTS: u32 = 4096;
/// Smallest segment.
pub const MIN_SEGMENT_BYTES: u64 = 16 << 10;
/// Largest segment.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// Longest target path and run in a header.
pub(crate) const MAX_NAMES_BYTES: usize = BORN_AT - FIXED_BYTES;
/// Offset of the file's time of creation.
const BORN_AT: usize = HEADER_BYTES as usize - 8;
/// Bytes of a header before the names.
const FIXED_BYTES: usize = 56;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The places of a log's slots and segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub slots: u32,
    pub segment_bytes: u64,
    /// Start of the checksums of records, so that a log within the data of a log is not taken for a
    /// part of it.
    pub salt: u32,
}

impl Geometry {
    /// Whether the numbers are within the limits.
    pub fn is_valid(&self) -> bool {
        (1..=MAX_SLOTS).contains(&self.slots)
            && (MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.segment_bytes)
            && self.segment_bytes.is_multiple_of(4096)
    }

    /// Offset of the copy of a slot's state with this counter.
    pub fn state_offset(&self, slot: u32, counter: u64) -> u64 {
        HEADER_BYTES + u64::from(slot) * STATE_BYTES + (counter % 2) * STATE_COPY_BYTES
    }

    /// Offset of the `index`th segment of a slot.
    pub fn segment_offset(&self, slot: u32, index: u64) -> u64 {
        let before = index * u64::from(self.slots) + u64::from(slot);
        HEADER_BYTES + u64::from(self.slots) * STATE_BYTES + before * self.segment_bytes
    }

    /// Bytes of the longest log.
    pub fn longest(&self) -> u64 {
        self.segment_offset(0, MAX_SEGMENTS.div_ceil(u64::from(self.slots)))
    }
}

/// Most processes that have a file open.
const MAX_RANKS: u32 = 1 << 22;
/// Largest number that counts records, epochs or states: no program reaches it, and sums do not
/// overflow.
const MAX_COUNT: u64 = 1 << 62;

/// The header of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub geometry: Geometry,
    /// Processes that have the file open.
    pub ranks: u32,
    /// Time of creation in nanoseconds since 1970.
    pub created: u64,
    pub run: Vec<u8>,
    pub target: Vec<u8>,
    /// The file that the target's path named; `None` also in logs of older programs.
    pub file: Option<FileIdentity>,
}

/// Reason why a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// It was never written.
    Blank,
    /// It is no header, or damaged.
    Damaged,
    /// A format of another version.
    Version(u32),
}

impl Header {
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        if self.run.len() + self.target.len() > MAX_NAMES_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("path and run together exceed {MAX_NAMES_BYTES} bytes"),
            ));
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.geometry.segment_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.created.to_le_bytes());
        bytes.extend_from_slice(&self.geometry.slots.to_le_bytes());
        bytes.extend_from_slice(&self.ranks.to_le_bytes());
        bytes.extend_from_slice(&(self.run.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.target.len() as u32).to_le_bytes());
        let file = self.file.unwrap_or(FileIdentity { inode: 0, born: 0 });
        bytes.extend_from_slice(&file.inode.to_le_bytes());
        assert_eq!(bytes.len(), FIXED_BYTES);
        bytes.extend_from_slice(&self.run);
        bytes.extend_from_slice(&self.target);
        bytes.resize(HEADER_BYTES as usize, 0);
        bytes[BORN_AT..].copy_from_slice(&file.born.to_le_bytes());
        let sum = crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    pub fn decode(bytes: &[u8]) -> Result<Header, BadHeader> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(BadHeader::Blank);
        }
        if bytes.len() != HEADER_BYTES as usize || bytes[..8] != MAGIC {
            return Err(BadHeader::Damaged);
        }
        match u32_at(bytes, 8) {
            Some(OLDEST_VERSION..=FORMAT_VERSION) => {}
            Some(other) => return Err(BadHeader::Version(other)),
            None => return Err(BadHeader::Damaged),
        }
        Header::parse(bytes).ok_or(BadHeader::Damaged)
    }

    fn parse(bytes: &[u8]) -> Option<Header> {
        if u32_at(bytes, 12)? != crc32c(&bytes[16..]) {
            return None;
        }
        let created = u64_at(bytes, 24)?;
        let (segment_bytes, slots) = (u64_at(bytes, 16)?, u32_at(bytes, 32)?);
        let geometry = Geometry { slots, segment_bytes, salt: salt(created) };
        let (run, target) = (u32_at(bytes, 40)? as usize, u32_at(bytes, 44)? as usize);
        let names = bytes.get(FIXED_BYTES..)?;
        let file = FileIdentity { inode: u64_at(bytes, 48)?, born: u64_at(bytes, BORN_AT)? };
        let header = Header {
            geometry,
            ranks: u32_at(bytes, 36)?,
            created,
            run: names.get(..run)?.to_vec(),
            target: names.get(run..run.checked_add(target)?)?.to_vec(),
            file: Some(file).filter(|file| file.inode != 0),
        };
        (geometry.is_valid() && header.ranks <= MAX_RANKS).then_some(header)
    }
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotState {
    /// Number of states written before; a newer state has a larger number.
    pub counter: u64,
    /// Rank of the process.
    pub rank: u32,
    /// Entries up to this sequence number are in the target.
    pub applied: u64,
    /// Entries up to this sequence number are durable.
    pub durable: u64,
    /// Last sequence number of a log that was closed; 0 while it is written.
    pub closed: u64,
    /// The entries of all processes of the run with epochs below this one are in the target: a flush
    /// that was interrupted between two logs is complete.
    pub applied_epoch: u64,
    /// The replay that applies this log together with all others that name it; 0 for none.
    pub replay: u64,
    /// The replay whose entries are in the target, of all logs that name it; 0 for none.
    pub replayed: u64,
}

/// Bytes of an encoded state.
pub(crate) const ENCODED_STATE_BYTES: usize = 72;
/// Bytes of a state of version 1.
const FIRST_STATE_BYTES: usize = 48;

impl SlotState {
    pub fn encode(&self) -> [u8; ENCODED_STATE_BYTES] {
        let mut bytes = [0; ENCODED_STATE_BYTES];
        bytes[4..8].copy_from_slice(&self.rank.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.counter.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.applied.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.closed.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable.to_le_bytes());
        bytes[40..48].copy_from_slice(&MAGIC);
        bytes[48..56].copy_from_slice(&self.applied_epoch.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.replay.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.replayed.to_le_bytes());
        let sum = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<SlotState> {
        let bytes = bytes.get(..ENCODED_STATE_BYTES)?;
        let sum = u32_at(bytes, 0)?;
        let is_current = sum == crc32c(&bytes[4..]);
        let is_first = !is_current && sum == crc32c(&bytes[4..FIRST_STATE_BYTES]);
        let valid = (is_current || is_first) && bytes[40..48] == MAGIC;
        let later = |at| if is_first { Some(0) } else { u64_at(bytes, at) };
        let state = SlotState {
            rank: u32_at(bytes, 4)?,
            counter: u64_at(bytes, 8)?,
            applied: u64_at(bytes, 16)?,
            closed: u64_at(bytes, 24)?,
            durable: u64_at(bytes, 32)?,
            applied_epoch: later(48)?,
            replay: later(56)?,
            replayed: later(64)?,
        };
        let counts =
            [state.counter, state.applied, state.closed, state.durable, state.applied_epoch];
        (valid && counts.iter().all(|count| *count <= MAX_COUNT)).then_some(state)
    }
}

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The start of a segment.
    Segment,
    /// The definition of view `view` of the segment; the payload is the encoded view.
    View,
    /// Data of a write, at position `position` of the stream of view `view`.
    Write,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub sequence: u64,
    /// Last sequence number that was durable when the record was written.
    pub durable: u64,
    pub epoch: u64,
    /// Number of the view within the segment; of a segment record, the slot.
    pub view: u32,
    /// Position in the stream of the view; of a segment record, the index of the segment.
    pub position: u64,
    /// Bytes of the payload.
    pub length: u32,
    /// CRC-32C of the payload.
    pub payload_sum: u32,
}

/// First bytes of a record.
const RECORD_MAGIC: [u8; 3] = *b"fbR";

impl Head {
    pub fn encode(&self, salt: u32) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..3].copy_from_slice(&RECORD_MAGIC);
        bytes[3] = match self.kind {
            Kind::Segment => 1,
            Kind::View => 2,
            Kind::Write => 3,
        };
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.position.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.view.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.length.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.payload_sum.to_le_bytes());
        let sum = head_sum(&bytes, salt);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8], salt: u32) -> Option<Head> {
        let bytes = bytes.get(..HEAD_BYTES)?;
        if bytes[..3] != RECORD_MAGIC {
            return None;
        }
        let kind = match bytes[3] {
            1 => Kind::Segment,
            2 => Kind::View,
            3 => Kind::Write,
            _ => return None,
        };
        let sum = head_sum(bytes, salt);
        if u32_at(bytes, 4)? != sum {
            return None;
        }
        let head = Head {
            kind,
            sequence: u64_at(bytes, 8)?,
            durable: u64_at(bytes, 16)?,
            epoch: u64_at(bytes, 24)?,
            position: u64_at(bytes, 32)?,
            view: u32_at(bytes, 40)?,
            length: u32_at(bytes, 44)?,
            payload_sum: u32_at(bytes, 48)?,
        };
        let counts = [head.sequence, head.durable, head.epoch];
        counts.iter().all(|count| *count <= MAX_COUNT).then_some(head)
    }

    /// Bytes of the whole record, padded.
    pub fn record_bytes(&self) -> u64 {
        padded(HEAD_BYTES as u64 + u64::from(self.length))
    }
}

fn head_sum(bytes: &[u8], salt: u32) -> u32 {
    crc32c_append(crc32c_append(salt, &bytes[..4]), &bytes[8..])
}

/// The salt of a log created at this time.
pub(crate) fn salt(created: u64) -> u32 {
    (created ^ (created >> 32)) as u32
}

/// `length` rounded up to the alignment of records.
pub(crate) fn padded(length: u64) -> u64 {
    length.next_multiple_of(8)
}
