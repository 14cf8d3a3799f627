//! Copying the contents of one file.

use forebay_protocol::writeback::WriteBehind;
use rustix::fs::copy_file_range;
use rustix::io::Errno;

use crate::end::FileHandle;
use crate::error::Failure;
use crate::progress::ProgressCounters;
use crate::request::Verify;

/// Bytes that are read at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that the kernel is asked to copy at a time: few enough to be stopped soon.
const KERNEL_CHUNK: u64 = 16 << 20;
/// Runs of zeros that are left out of a file with holes, where the file system does not say
/// where these are.
const PIECE: usize = 64 << 10;

/// A part of a file that is to be copied.
pub(crate) struct CopyRange<'a> {
    pub source: &'a dyn FileHandle,
    pub target: &'a dyn FileHandle,
    pub from: u64,
    pub to: u64,
    /// Whether the source has fewer blocks than bytes.
    pub sparse: bool,
}

/// What was written of a part, in the order in which its checksum was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    /// All of it, up to the second offset, [`CHUNK`] by chunk.
    All(u64, u64),
    /// At these offsets, so many bytes.
    Some(Vec<(u64, u32)>),
}

impl Pieces {
    /// How many bytes they are.
    pub fn length(&self) -> u64 {
        match self {
            Pieces::All(from, to) => to.saturating_sub(*from),
            Pieces::Some(some) => some.iter().map(|(_, length)| u64::from(*length)).sum(),
        }
    }

    /// From the first byte to behind the last one.
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

/// The checksum of what was copied, and where it is.
pub(crate) struct Sum {
    pub digest: String,
    pub pieces: Pieces,
}

/// Copies a part, leaving out holes, and takes its checksum.
pub(crate) fn copy(
    part: &CopyRange<'_>,
    verify: Verify,
    progress: &ProgressCounters,
    buffer: &mut [u8],
) -> Result<Sum, Failure> {
    let mut hasher = blake3::Hasher::new();
    let behind = WriteBehind::default();
    let mut some = Vec::new();
    let mut at = part.from;
    let mut kernel = verify == Verify::Off;
    while at < part.to {
        let (start, end) = if part.sparse {
            extent(part.source, at, part.to)?
        } else {
            (at, part.to)
        };
        progress.staged_bytes(start - at);
        at = start;
        while at < end {
            if progress.is_cancelled() {
                return Err(Failure::Cancelled);
            }
            if kernel {
                match within_kernel(part, at, (end - at).min(KERNEL_CHUNK))? {
                    Some(copied) => {
                        progress.staged_bytes(copied);
                        at += copied;
                        continue;
                    }
                    None => kernel = false,
                }
            }
            let wanted = usize::try_from(end - at)
                .unwrap_or(CHUNK_BYTES)
                .min(buffer.len());
            let Some(chunk) = buffer.get_mut(..wanted) else {
                break;
            };
            read_all(part.source, chunk, at)?;
            let size = if part.sparse { PIECE } else { chunk.len() };
            for (index, piece) in chunk.chunks(size.max(1)).enumerate() {
                let offset = at + (index * size) as u64;
                if part.sparse && piece.iter().all(|byte| *byte == 0) {
                    continue;
                }
                part.target
                    .write_all_at(piece, offset)
                    .map_err(|e| Failure::target("writing it", e))?;
                if let Some(descriptor) = part.target.descriptor() {
                    behind.record_write(descriptor, offset, piece.len() as u64);
                }
                if verify != Verify::Off {
                    add(&mut hasher, offset, piece);
                }
                if verify == Verify::ReadBack && part.sparse {
                    some.push((offset, u32::try_from(piece.len()).unwrap_or(u32::MAX)));
                }
            }
            at += wanted as u64;
            progress.staged_bytes(wanted as u64);
        }
    }
    let digest = if verify == Verify::Off {
        "-".to_owned()
    } else {
        hasher.finalize().to_hex().to_string()
    };
    let pieces = match part.sparse {
        true => Pieces::Some(some),
        false => Pieces::All(part.from, part.to),
    };
    Ok(Sum { digest, pieces })
}

fn add(hasher: &mut blake3::Hasher, offset: u64, piece: &[u8]) {
    hasher.update(&offset.to_le_bytes());
    hasher.update(&(piece.len() as u64).to_le_bytes());
    hasher.update(piece);
}

/// The checksum of a file that is copied in one piece.
pub(crate) fn digest_of(whole: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    if !whole.is_empty() {
        add(&mut hasher, 0, whole);
    }
    hasher.finalize().to_hex().to_string()
}

/// The checksum of these pieces of a copy.
pub(crate) fn digest(
    copy: &dyn FileHandle,
    pieces: &Pieces,
    progress: &ProgressCounters,
    buffer: &mut [u8],
) -> Result<String, Failure> {
    let mut hasher = blake3::Hasher::new();
    let mut take = |offset: u64, length: usize| {
        if progress.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let piece = buffer.get_mut(..length);
        let piece = piece.ok_or_else(|| Failure::target("reading it back", Errno::INVAL))?;
        read_all(copy, piece, offset)?;
        add(&mut hasher, offset, piece);
        progress.read_back_bytes(length as u64);
        Ok(())
    };
    match pieces {
        Pieces::All(from, to) => {
            let mut at = *from;
            while at < *to {
                let length = usize::try_from(*to - at)
                    .unwrap_or(CHUNK_BYTES)
                    .min(CHUNK_BYTES);
                take(at, length)?;
                at += length as u64;
            }
        }
        Pieces::Some(some) => {
            for (offset, length) in some {
                take(*offset, *length as usize)?;
            }
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// The next stretch of data at or after `at`, not going beyond `to`; empty at `to` if there is
/// none.
fn extent(source: &dyn FileHandle, at: u64, to: u64) -> Result<(u64, u64), Failure> {
    let start = match source.seek(at, false) {
        Ok(start) => start.min(to),
        Err(Errno::NXIO) => return Ok((to, to)),
        // The file system does not know: everything may be data.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok((at, to)),
        Err(errno) => return Err(Failure::source("looking for its holes", errno)),
    };
    let end = match source.seek(start, true) {
        Ok(end) => end.min(to),
        Err(_) => to,
    };
    // A file that is cut off meanwhile must not keep us here.
    if end <= start {
        Ok((start, to))
    } else {
        Ok((start, end))
    }
}

/// Lets the kernel copy, or `None` if it cannot between these two.
fn within_kernel(part: &CopyRange<'_>, at: u64, wanted: u64) -> Result<Option<u64>, Failure> {
    let (Some(source), Some(target)) = (part.source.descriptor(), part.target.descriptor()) else {
        return Ok(None);
    };
    part.target
        .reserve_space(at, wanted)
        .map_err(|e| Failure::target("copying it", e))?;
    let wanted = usize::try_from(wanted).unwrap_or(CHUNK_BYTES);
    let (mut from, mut to) = (at, at);
    match copy_file_range(source, Some(&mut from), target, Some(&mut to), wanted) {
        Ok(0) => Err(changed()),
        Ok(copied) => Ok(Some(copied as u64)),
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
        Err(errno) => Err(Failure::target("copying it", errno)),
    }
}

fn changed() -> Failure {
    let reason = "changed while it was staged: it is shorter than it was".to_owned();
    Failure::File(reason, Errno::BUSY)
}

fn read_all(source: &dyn FileHandle, buffer: &mut [u8], at: u64) -> Result<(), Failure> {
    match source.read_at(buffer, at) {
        Ok(read) if read == buffer.len() => Ok(()),
        Ok(_) => Err(changed()),
        Err(errno) => Err(Failure::source("reading it", errno)),
    }
}
