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

    /// Reads what the file has at an offset, up to its end. Returns the number of bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

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

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = 0;
        while read < buffer.len() {
            match FileExt::read_at(self, &mut buffer[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
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
    let alignment = plan.alignment;
    let applied = write_merged(&mut plan, alignment, 0, source, target)?;
    Ok(Applied { groups: plan.counts(), ..applied })
}

/// Carries out merged writes of at most `alignment.largest` bytes. Those with at most `gap` bytes between
/// them become one write, with what the file has between: nothing else may write there at the same time.
/// Memory is bounded by three times the largest write. Nothing is synced.
///
/// # Errors
/// A log cannot be read or the target not be written; any part may have been written.
pub fn write_merged(
    mut writes: impl Iterator<Item = MergedWrite>,
    alignment: Alignment,
    gap: u64,
    source: &impl DataSource,
    target: &impl Target,
) -> io::Result<Applied> {
    let mut applied = Applied::default();
    let (mut buffer, mut batch, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let mut bytes = 0;
        let mut pieces = 0;
        while bytes < alignment.largest && pieces < MAX_PIECES {
            let Some(write) = writes.next() else { break };
            bytes += write.length;
            pieces += write.pieces.len();
            batch.push(write);
        }
        if batch.is_empty() {
            return Ok(applied);
        }
        gather(source, &batch, &mut buffer)?;
        let mut rest = &batch[..];
        let mut data = &buffer[..];
        while !rest.is_empty() {
            let (run, others) = rest.split_at(near(rest, alignment, gap));
            let length: u64 = run.iter().map(|write| write.length).sum();
            let (own, more) = data.split_at(length as usize);
            applied.writes += write_run(run, own, &mut scratch, target)?;
            applied.bytes += length;
            (rest, data) = (others, more);
        }
        batch.clear();
    }
}

/// Number of the first writes that become one; at least one.
fn near(writes: &[MergedWrite], alignment: Alignment, gap: u64) -> usize {
    let limit = alignment.end(writes[0].offset);
    let pairs = writes.iter().zip(&writes[1..]);
    let joined = pairs.take_while(|(write, next)| {
        let end = write.offset + write.length;
        gap > 0 && next.offset - end <= gap && next.offset + next.length <= limit
    });
    1 + joined.count()
}

/// Carries out writes that are near each other, whose data is given, as one with what the file has between
/// them; one by one if the file cannot be read. Returns the number of writes.
fn write_run(
    run: &[MergedWrite],
    data: &[u8],
    scratch: &mut Vec<u8>,
    target: &impl Target,
) -> io::Result<u64> {
    let (first, last) = (&run[0], &run[run.len() - 1]);
    let length = (last.offset + last.length - first.offset) as usize;
    if length == data.len() {
        target.write_at(data, first.offset)?;
        return Ok(1);
    }
    scratch.resize(length, 0);
    let read = target.read_at(scratch, first.offset);
    if let Ok(read) = read {
        scratch[read..].fill(0);
    }
    let mut rest = data;
    for write in run {
        let (own, others) = rest.split_at(write.length as usize);
        rest = others;
        match read {
            Ok(_) => {
                scratch[(write.offset - first.offset) as usize..][..own.len()].copy_from_slice(own)
            }
            Err(_) => target.write_at(own, write.offset)?,
        }
    }
    if read.is_err() {
        return Ok(run.len() as u64);
    }
    target.write_at(scratch, first.offset)?;
    Ok(1)
}
