//! Merged writes: contiguous, aligned to the stripes of the parallel file system, and the movement
//! of their data from the logs to the file.

use crate::entry::{Entry, Place};
use crate::gather::gather;
use crate::merge::{MergeCounts, Merged, Piece, merge};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Most pieces of a merged write.
pub const MAX_PIECES: usize = 1 << 16;
/// Most writes whose data is read together.
const MAX_BATCH: usize = 1 << 12;

/// Alignment of merged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Bytes of a stripe of the file, or another unit whose boundaries long writes end at; at
    /// least 1.
    pub stripe: u64,
    /// Most bytes of a write; at least 1.
    pub largest: u64,
}

impl Default for Alignment {
    /// Writes of at most 16 MiB that end at multiples of 1 MiB.
    fn default() -> Alignment {
        Alignment { stripe: 1 << 20, largest: 16 << 20 }
    }
}

impl Alignment {
    /// The latest end of a write that begins at `offset`: the last boundary of a stripe within
    /// reach, if there is one.
    fn end(&self, offset: u64) -> u64 {
        let reach = offset.saturating_add(self.largest.max(1));
        let aligned = reach - reach % self.stripe.max(1);
        if aligned > offset { aligned } else { reach }
    }
}

/// A contiguous write to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergedWrite {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The data: adjacent pieces in the order of the file.
    pub pieces: Vec<Piece>,
}

/// The merged writes of entries, in the order of the file.
#[derive(Debug)]
pub struct Plan<'a> {
    merged: Merged<'a>,
    /// The rest of a piece that was cut.
    ahead: Option<Piece>,
    alignment: Alignment,
}

/// Plans the writes that bring the bytes of `range` of the file from the entries into the file.
/// Entries must contain all writes that can overlap within the range; their order is arbitrary.
pub fn plan<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
    range: Range<u64>,
    alignment: Alignment,
) -> Plan<'a> {
    Plan { merged: merge(entries, range), ahead: None, alignment }
}

impl Plan<'_> {
    /// Groups of entries so far.
    pub fn counts(&self) -> MergeCounts {
        self.merged.counts()
    }
}

impl Iterator for Plan<'_> {
    type Item = MergedWrite;

    fn next(&mut self) -> Option<MergedWrite> {
        let mut piece = self.ahead.take().or_else(|| self.merged.next())?;
        let limit = self.alignment.end(piece.offset);
        let mut write = MergedWrite { offset: piece.offset, length: 0, pieces: Vec::new() };
        loop {
            if piece.end() > limit {
                self.ahead = Some(piece.from(limit));
                piece.length = limit - piece.offset;
            }
            write.length += piece.length;
            write.pieces.push(piece);
            let end = piece.end();
            if end == limit || write.pieces.len() == MAX_PIECES {
                break;
            }
            match self.merged.next() {
                Some(next) if next.offset == end => piece = next,
                next => {
                    self.ahead = next;
                    break;
                }
            }
        }
        assert_eq!(write.pieces.iter().map(|piece| piece.length).sum::<u64>(), write.length);
        Some(write)
    }
}

/// Logs from which data is read.
pub trait DataSource {
    /// Reads `buffer.len()` bytes from a place.
    ///
    /// # Errors
    /// The log cannot be read, or ends before.
    fn read_at(&self, place: Place, buffer: &mut [u8]) -> io::Result<()>;
}

/// A file to which logs are applied.
pub trait Target {
    /// Writes data at an offset, all of it.
    ///
    /// # Errors
    /// The file cannot be written.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all data durable.
    ///
    /// # Errors
    /// Written data may be lost.
    fn sync(&self) -> io::Result<()>;
}

impl Target for std::fs::File {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Counts of applied entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Merged writes.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Groups of the merge.
    pub groups: MergeCounts,
}

impl std::ops::AddAssign for Applied {
    fn add_assign(&mut self, other: Applied) {
        self.writes += other.writes;
        self.bytes += other.bytes;
        self.groups.whole += other.groups.whole;
        self.groups.interleaved += other.groups.interleaved;
    }
}

/// Writes the planned data to `target`, in the order of the file. Nothing is synced.
///
/// # Errors
/// As [`write_merged`].
pub fn apply(
    mut plan: Plan<'_>,
    source: &impl DataSource,
    target: &impl Target,
) -> io::Result<Applied> {
    let largest = plan.alignment.largest;
    let applied = write_merged(&mut plan, largest, source, target)?;
    Ok(Applied { groups: plan.counts(), ..applied })
}

/// Carries out merged writes of at most `largest` bytes. Memory is bounded by twice the largest write.
/// Nothing is synced.
///
/// # Errors
/// A log cannot be read or the target not be written; any part may have been written.
pub fn write_merged(
    mut writes: impl Iterator<Item = MergedWrite>,
    largest: u64,
    source: &impl DataSource,
    target: &impl Target,
) -> io::Result<Applied> {
    let mut applied = Applied::default();
    let (mut buffer, mut batch) = (Vec::new(), Vec::new());
    loop {
        let mut bytes = 0;
        let mut pieces = 0;
        while bytes < largest && pieces < MAX_PIECES && batch.len() < MAX_BATCH {
            let Some(write) = writes.next() else { break };
            bytes += write.length;
            pieces += write.pieces.len();
            batch.push(write);
        }
        if batch.is_empty() {
            return Ok(applied);
        }
        gather(source, &batch, &mut buffer)?;
        let mut rest = &buffer[..];
        for write in batch.drain(..) {
            let (data, others) = rest.split_at(write.length as usize);
            target.write_at(data, write.offset)?;
            rest = others;
            applied.writes += 1;
            applied.bytes += write.length;
        }
    }
}
