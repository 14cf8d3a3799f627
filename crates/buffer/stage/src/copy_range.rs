//! Copying and verifying the contents of a range of a file.

use forebay_net::writeback::WriteBehind;
use rustix::io::Errno;

use crate::end::FileHandle;
use crate::error::Failure;
use crate::journal::NO_DIGEST;
use crate::progress::ProgressCounters;
use crate::request::Verify;

/// Bytes read at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that the kernel copies at a time; small enough to react to cancellation soon.
const KERNEL_CHUNK_BYTES: u64 = 16 << 20;
/// Unit in which runs of zeros of a sparse file are left out, where the file system does not report
/// its holes.
const SPARSE_PIECE_BYTES: usize = 64 << 10;

/// A range of a file to be copied.
pub(crate) struct CopyRange<'a> {
    pub source: &'a dyn FileHandle,
    pub target: &'a dyn FileHandle,
    pub from: u64,
    pub to: u64,
    /// Whether the source has fewer blocks than bytes.
    pub sparse: bool,
}

/// Written pieces of a range, in the order in which they were hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// Everything from the first offset to the second, in pieces of [`CHUNK_BYTES`].
    All(u64, u64),
    /// These offsets and lengths, in ascending order.
    Some(Vec<(u64, u32)>),
}

impl Pieces {
    /// Total bytes.
    pub fn length(&self) -> u64 {
        match self {
            Pieces::All(from, to) => to.saturating_sub(*from),
            Pieces::Some(some) => some.iter().map(|(_, length)| u64::from(*length)).sum(),
        }
    }

    /// The first offset, and the end of the last piece.
    pub fn bounds(&self) -> (u64, u64) {
        match self {
            Pieces::All(from, to) => (*from, *to),
            Pieces::Some(some) => {
                let first = some.first().map_or(0, |(offset, _)| *offset);
                let end = |(offset, length): &(u64, u32)| offset.saturating_add((*length).into());
                (first, some.last().map_or(first, end))
            }
        }
    }
}

/// The digest of a copied range.
pub(crate) struct RangeDigest {
    pub digest: String,
    pub pieces: Pieces,
}

/// Copies a range, leaving out holes, and computes its digest.
pub(crate) fn copy_range(
    range: &CopyRange<'_>,
    verify: Verify,
    progress: &ProgressCounters,
    buffer: &mut [u8],
) -> Result<RangeDigest, Failure> {
    assert!(range.from <= range.to && !buffer.is_empty());
    let mut copier = RangeCopier {
        range,
        verify,
        hasher: blake3::Hasher::new(),
        write_behind: WriteBehind::default(),
        pieces: Vec::new(),
    };
    let mut at = range.from;
    let mut in_kernel = verify == Verify::Off;
    while at < range.to {
        let (start, end) =
            if range.sparse { next_extent(range.source, at, range.to)? } else { (at, range.to) };
        assert!(at <= start && start <= end && end <= range.to);
        progress.copied.add_bytes(start - at);
        at = start;
        while at < end {
            if progress.is_cancelled() {
                return Err(Failure::Cancelled);
            }
            if in_kernel {
                let wanted = (end - at).min(KERNEL_CHUNK_BYTES);
                if let Some(copied) = copy_in_kernel(range, at, wanted)? {
                    progress.copied.add_bytes(copied);
                    at += copied;
                    continue;
                }
                in_kernel = false;
            }
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK_BYTES);
            let wanted = wanted.min(buffer.len());
            copier.copy_chunk(&mut buffer[..wanted], at)?;
            at += wanted as u64;
            progress.copied.add_bytes(wanted as u64);
        }
    }
    assert_eq!(at, range.to, "the range is covered");
    Ok(copier.finish())
}

struct RangeCopier<'a> {
    range: &'a CopyRange<'a>,
    verify: Verify,
    hasher: blake3::Hasher,
    write_behind: WriteBehind,
    /// Of a sparse range that is to be read back.
    pieces: Vec<(u64, u32)>,
}

impl RangeCopier<'_> {
    /// Copies the bytes at `at` that fill `chunk`.
    fn copy_chunk(&mut self, chunk: &mut [u8], at: u64) -> Result<(), Failure> {
        let (sparse, target) = (self.range.sparse, self.range.target);
        read_exact(self.range.source, chunk, at)?;
        let size = if sparse { SPARSE_PIECE_BYTES } else { chunk.len() };
        let (mut offset, mut zeros, mut written) = (at, 0, 0);
        for piece in chunk.chunks(size) {
            let start = offset;
            offset += piece.len() as u64;
            if sparse && piece.iter().all(|byte| *byte == 0) {
                zeros += piece.len();
                continue;
            }
            target
                .write_all_at(piece, start)
                .map_err(|e| Failure::target("writing its copy", e))?;
            written += piece.len();
            if let Some(descriptor) = target.descriptor() {
                self.write_behind.record_write(descriptor, start, piece.len() as u64);
            }
            if self.verify != Verify::Off {
                hash_piece(&mut self.hasher, start, piece);
            }
            if self.verify == Verify::ReadBack && sparse {
                self.pieces.push((start, piece.len() as u32));
            }
        }
        assert_eq!(written + zeros, chunk.len(), "every byte read is written");
        Ok(())
    }

    fn finish(self) -> RangeDigest {
        let digest = if self.verify == Verify::Off {
            NO_DIGEST.to_owned()
        } else {
            self.hasher.finalize().to_hex().to_string()
        };
        let pieces = if self.range.sparse {
            Pieces::Some(self.pieces)
        } else {
            Pieces::All(self.range.from, self.range.to)
        };
        let (from, to) = pieces.bounds();
        debug_assert!(pieces.length() <= to - from, "pieces do not overlap");
        RangeDigest { digest, pieces }
    }
}

fn hash_piece(hasher: &mut blake3::Hasher, offset: u64, piece: &[u8]) {
    hasher.update(&offset.to_le_bytes());
    hasher.update(&(piece.len() as u64).to_le_bytes());
    hasher.update(piece);
}

/// The digest of a file that is copied in one piece.
pub(crate) fn digest_of_contents(contents: &[u8]) -> String {
    debug_assert!(contents.len() <= CHUNK_BYTES, "read back in one piece, too");
    let mut hasher = blake3::Hasher::new();
    if !contents.is_empty() {
        hash_piece(&mut hasher, 0, contents);
    }
    hasher.finalize().to_hex().to_string()
}

/// Reads these pieces of a copy and returns their digest.
pub(crate) fn digest_of_copy(
    copy: &dyn FileHandle,
    pieces: &Pieces,
    progress: &ProgressCounters,
    buffer: &mut [u8],
) -> Result<String, Failure> {
    let mut hasher = blake3::Hasher::new();
    let mut hashed = 0;
    let mut read_piece = |offset: u64, length: usize| {
        if progress.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let piece = buffer.get_mut(..length);
        let piece = piece.ok_or_else(|| Failure::target("reading it back", Errno::INVAL))?;
        read_exact(copy, piece, offset)?;
        hash_piece(&mut hasher, offset, piece);
        hashed += length as u64;
        progress.read_back.add_bytes(length as u64);
        Ok(())
    };
    match pieces {
        Pieces::All(from, to) => {
            let mut at = *from;
            while at < *to {
                let length = usize::try_from(*to - at).unwrap_or(CHUNK_BYTES);
                let length = length.min(CHUNK_BYTES);
                read_piece(at, length)?;
                at += length as u64;
            }
        }
        Pieces::Some(some) => {
            for (offset, length) in some {
                read_piece(*offset, *length as usize)?;
            }
        }
    }
    assert_eq!(hashed, pieces.length(), "every piece is hashed");
    Ok(hasher.finalize().to_hex().to_string())
}

/// The next data at or after `at`, up to `to`; empty at `to` if there is none.
fn next_extent(source: &dyn FileHandle, at: u64, to: u64) -> Result<(u64, u64), Failure> {
    let start = match source.seek(at, false) {
        Ok(start) => start.clamp(at, to),
        Err(Errno::NXIO) => return Ok((to, to)),
        // The file system does not report holes: treat everything as data.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok((at, to)),
        Err(errno) => return Err(Failure::source("looking for its holes", errno)),
    };
    let end = source.seek(start, true).map_or(to, |end| end.min(to));
    // If the file is truncated meanwhile, an empty extent would be returned for ever.
    Ok((start, if end <= start { to } else { end }))
}

/// Copies by `copy_file_range`; `None` if that does not work between these two files.
fn copy_in_kernel(range: &CopyRange<'_>, at: u64, wanted: u64) -> Result<Option<u64>, Failure> {
    let (Some(source), Some(_)) = (range.source.descriptor(), range.target.descriptor()) else {
        return Ok(None);
    };
    range
        .target
        .reserve_space(at, wanted)
        .map_err(|e| Failure::target("reserving space for its copy", e))?;
    let wanted = usize::try_from(wanted).unwrap_or(CHUNK_BYTES);
    match range.target.copy_from(source, at, at, wanted) {
        Ok(0) => Err(truncated_source()),
        Ok(copied) => {
            assert!(copied <= wanted);
            Ok(Some(copied as u64))
        }
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
        Err(errno) => Err(Failure::target("writing its copy", errno)),
    }
}

fn truncated_source() -> Failure {
    let reason = "changed while it was staged: it was truncated".to_owned();
    Failure::File(reason, Errno::BUSY)
}

fn read_exact(source: &dyn FileHandle, buffer: &mut [u8], at: u64) -> Result<(), Failure> {
    match source.read_at(buffer, at) {
        Ok(read) if read == buffer.len() => Ok(()),
        Ok(_) => Err(truncated_source()),
        Err(errno) => Err(Failure::source("reading it", errno)),
    }
}
