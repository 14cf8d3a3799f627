//! Reading logs that a process left: what they contain, and whether anything is damaged.

use crate::batches::{EntryMemory, Outline};
use crate::entry::Entry;
use crate::file_identity::FileIdentity;
use crate::format::{BadHeader, ENCODED_STATE_BYTES, Geometry, HEADER_BYTES, Header, SlotState};
use crate::log_file::{LogFile, LogReader};
use crate::replay::open_plain;
use crate::walk::walk_slot;
use crate::writer::Sequence;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reason why a log cannot be read.
#[derive(Debug)]
pub enum ScanError {
    /// The file cannot be read.
    Io(io::Error),
    /// The file was created, but nothing was synced to it.
    Blank,
    /// The file is no log, or its header is damaged.
    BadHeader,
    /// The file is longer than a log can be.
    TooLong {
        /// Its length in bytes.
        length: u64,
        /// Most bytes of a log with its number and length of segments.
        limit: u64,
    },
    /// The log was written in another version of the format.
    Version(u32),
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScanError::Io(error) => write!(f, "cannot read the log: {error}"),
            ScanError::Blank => f.write_str("the log is empty: nothing was synced"),
            ScanError::BadHeader => f.write_str("not a log, or its header is damaged"),
            ScanError::TooLong { length, limit } => {
                write!(f, "the file has {length} bytes, a log of its kind at most {limit}")
            }
            ScanError::Version(version) => write!(
                f,
                "the log has version {version} of the format, this program reads version {}",
                crate::format::FORMAT_VERSION
            ),
        }
    }
}

impl std::error::Error for ScanError {}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> ScanError {
        ScanError::Io(error)
    }
}

/// Missing or damaged records although they were durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First missing record.
    pub first: Sequence,
    /// Last missing record that is known.
    pub last: Sequence,
    /// Offset in the log at which the first one was expected.
    pub offset: u64,
}

/// The writes that a process left in its slot.
#[derive(Clone, Debug)]
pub struct ScannedSlot {
    /// Number of the slot.
    pub slot: u32,
    /// Rank of the process.
    pub rank: u32,
    /// Entries up to this sequence number are in the file.
    pub applied: Sequence,
    /// Last valid record.
    pub last: Sequence,
    /// The log was closed, so that its end is known.
    pub closed: bool,
    /// Valid entries that are not in the file, in the order of their sequence numbers; none if they
    /// need more than the memory of [`scan_within`].
    pub entries: Vec<Entry>,
    /// Outline of the entries, if they need too much memory.
    pub(crate) outline: Option<Outline>,
    /// Entries behind a gap that were not durable and are therefore ignored.
    pub dropped: u64,
    /// Damage of durable records.
    pub damage: Vec<Damage>,
    pub(crate) state: SlotState,
}

/// The contents of a log.
#[derive(Debug)]
pub struct ScannedLog {
    /// Path of the log.
    pub path: PathBuf,
    /// The file to which the entries belong.
    pub target: PathBuf,
    /// The opening of the file to which the log belongs.
    pub run: String,
    /// Number of processes that opened the file.
    pub ranks: u32,
    /// Time of creation.
    pub created: SystemTime,
    /// The file that the path named then, if that is known.
    pub file: Option<FileIdentity>,
    /// The slots that processes took.
    pub slots: Vec<ScannedSlot>,
    /// For the data of the entries; they have log number 0.
    pub reader: LogReader,
    pub(crate) geometry: Geometry,
}

impl ScannedLog {
    /// Bytes of all entries.
    pub fn bytes(&self) -> u64 {
        self.entries().map(|entry| entry.length).sum()
    }

    /// The entries of all slots.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flat_map(|slot| &slot.entries)
    }

    /// Whether durable records are damaged.
    pub fn is_damaged(&self) -> bool {
        self.slots.iter().any(|slot| !slot.damage.is_empty())
    }
}

/// Reads a log and verifies all checksums. Entries up to the first record that is neither valid nor
/// was durable count; what a crash or a power failure left behind it does not.
///
/// # Errors
/// See [`ScanError`]. Damage of records is no error, but reported in the slots.
pub fn scan(path: &Path) -> Result<ScannedLog, ScanError> {
    scan_file(path, Box::new(open_plain(path, false)?))
}

/// As [`scan`], of an open file; `path` is only noted.
///
/// # Errors
/// See [`ScanError`].
pub fn scan_file(path: &Path, file: Box<dyn LogFile>) -> Result<ScannedLog, ScanError> {
    scan_within(path, file, &mut EntryMemory::unlimited())
}

/// As [`scan_file`], of a log that is to be applied. Entries for which there is no memory are not
/// returned, but read again by [`LoggedRun::apply`](crate::LoggedRun::apply).
///
/// # Errors
/// See [`ScanError`].
pub fn scan_within(
    path: &Path,
    file: Box<dyn LogFile>,
    memory: &mut EntryMemory,
) -> Result<ScannedLog, ScanError> {
    let length = file.length()?;
    let mut bytes = vec![0; HEADER_BYTES.min(length) as usize];
    file.read_range(&mut bytes, 0)?;
    let header = Header::decode(&bytes).map_err(|error| match error {
        BadHeader::Blank => ScanError::Blank,
        BadHeader::Damaged => ScanError::BadHeader,
        BadHeader::Version(version) => ScanError::Version(version),
    })?;
    let limit = header.geometry.longest();
    if length > limit {
        return Err(ScanError::TooLong { length, limit });
    }
    let mut slots = Vec::new();
    for slot in 0..header.geometry.slots {
        // A slot without a state was not taken.
        if let Some(state) = read_state(&*file, header.geometry, slot)? {
            slots.push(walk_slot(&*file, length, header.geometry, slot, state, memory)?);
        }
    }
    let mut reader = LogReader::new();
    reader.add(file);
    Ok(ScannedLog {
        path: path.to_owned(),
        target: PathBuf::from(OsString::from_vec(header.target)),
        run: String::from_utf8_lossy(&header.run).into_owned(),
        ranks: header.ranks,
        created: UNIX_EPOCH + Duration::from_nanos(header.created),
        file: header.file,
        slots,
        reader,
        geometry: header.geometry,
    })
}

/// The file to which a log belongs, from its header alone; `None` if that cannot be read.
pub(crate) fn target_of(file: &File) -> Option<(PathBuf, Option<FileIdentity>)> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    file.read_range(&mut bytes, 0).ok()?;
    let header = Header::decode(&bytes).ok()?;
    Some((PathBuf::from(OsString::from_vec(header.target)), header.file))
}

/// The newer one of the valid copies of a slot's state.
fn read_state(file: &dyn LogFile, geometry: Geometry, slot: u32) -> io::Result<Option<SlotState>> {
    let mut newest: Option<SlotState> = None;
    for copy in 0..2 {
        let mut bytes = [0; ENCODED_STATE_BYTES];
        match file.read_range(&mut bytes, geometry.state_offset(slot, copy)) {
            Ok(()) => {}
            // The file ends before, and the slot has no segments either.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        let state = SlotState::decode(&bytes);
        newest = newest.into_iter().chain(state).max_by_key(|state| state.counter);
    }
    Ok(newest)
}
