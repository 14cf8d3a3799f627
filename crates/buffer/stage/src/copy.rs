//! Copying the contents of one file.

use std::os::fd::OwnedFd;

use rustix::fs::{Advice, SeekFrom, copy_file_range, fadvise, fdatasync, seek};
use rustix::io::{Errno, pread, pwrite};

use crate::error::Failure;
use crate::progress::Progress;
use crate::request::Verify;

/// Bytes that are read at a time.
pub(crate) const CHUNK: usize = 1 << 20;
/// Runs of zeros that are left out of a file with holes, where the file system does not say
/// where these are.
const PIECE: usize = 64 << 10;

/// A part of a file that is to be copied.
pub(crate) struct Part<'a> {
    pub source: &'a OwnedFd,
    pub target: &'a OwnedFd,
    pub from: u64,
    pub to: u64,
    /// Whether the source has fewer blocks than bytes.
    pub sparse: bool,
}

/// The checksum of what was copied, and where it is.
pub(crate) struct Sum {
    pub digest: String,
    /// Offsets and lengths of what was written, when it is to be read back.
    pieces: Vec<(u64, usize)>,
}

/// Copies a part, leaving out holes, and takes its checksum.
pub(crate) fn copy(
    part: &Part<'_>,
    verify: Verify,
    progress: &Progress,
    buffer: &mut [u8],
) -> Result<Sum, Failure> {
    let mut hasher = blake3::Hasher::new();
    let mut pieces = Vec::new();
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
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(buffer.len());
            if kernel {
                match within_kernel(part, at, wanted)? {
                    Some(copied) => {
                        progress.staged_bytes(copied);
                        at += copied;
                        continue;
                    }
                    None => kernel = false,
                }
            }
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
                write_all(part.target, piece, offset)?;
                if verify != Verify::Off {
                    add(&mut hasher, offset, piece);
                }
                if verify == Verify::ReadBack {
                    pieces.push((offset, piece.len()));
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
    Ok(Sum { digest, pieces })
}

fn add(hasher: &mut blake3::Hasher, offset: u64, piece: &[u8]) {
    hasher.update(&offset.to_le_bytes());
    hasher.update(&(piece.len() as u64).to_le_bytes());
    hasher.update(piece);
}

/// Reads a copy back from its storage and compares checksums.
pub(crate) fn read_back(
    target: &OwnedFd,
    sum: &Sum,
    progress: &Progress,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    fdatasync(target).map_err(|e| Failure::target("writing it", e))?;
    // Without this the copy would be compared with the memory it was just written to.
    let _ = fadvise(target, 0, None, Advice::DontNeed);
    let mut hasher = blake3::Hasher::new();
    for (offset, length) in &sum.pieces {
        if progress.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let Some(piece) = buffer.get_mut(..*length) else {
            continue;
        };
        read_all(target, piece, *offset)?;
        add(&mut hasher, *offset, piece);
    }
    if hasher.finalize().to_hex().to_string() == sum.digest {
        return Ok(());
    }
    Err(Failure::File(
        "what was read back differs from what was written: the storage there is faulty".to_owned(),
    ))
}

/// The next stretch of data at or after `at`, not going beyond `to`; empty at `to` if there is
/// none.
fn extent(source: &OwnedFd, at: u64, to: u64) -> Result<(u64, u64), Failure> {
    let start = match seek(source, SeekFrom::Data(at)) {
        Ok(start) => start.min(to),
        Err(Errno::NXIO) => return Ok((to, to)),
        // The file system does not know: everything may be data.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok((at, to)),
        Err(errno) => return Err(Failure::source("looking for its holes", errno)),
    };
    let end = match seek(source, SeekFrom::Hole(start)) {
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
fn within_kernel(part: &Part<'_>, at: u64, wanted: usize) -> Result<Option<u64>, Failure> {
    let (mut from, mut to) = (at, at);
    match copy_file_range(
        part.source,
        Some(&mut from),
        part.target,
        Some(&mut to),
        wanted,
    ) {
        Ok(0) => Err(changed()),
        Ok(copied) => Ok(Some(copied as u64)),
        Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Ok(None),
        Err(errno) => Err(Failure::target("copying it", errno)),
    }
}

fn changed() -> Failure {
    Failure::File("changed while it was staged: it is shorter than it was".to_owned())
}

fn read_all(source: &OwnedFd, mut buffer: &mut [u8], mut at: u64) -> Result<(), Failure> {
    while !buffer.is_empty() {
        match pread(source, &mut *buffer, at) {
            Ok(0) => return Err(changed()),
            Ok(read) => {
                at += read as u64;
                buffer = buffer.get_mut(read..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::source("reading it", errno)),
        }
    }
    Ok(())
}

fn write_all(target: &OwnedFd, mut piece: &[u8], mut at: u64) -> Result<(), Failure> {
    while !piece.is_empty() {
        match pwrite(target, piece, at) {
            Ok(written) => {
                at += written as u64;
                piece = piece.get(written..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::target("writing it", errno)),
        }
    }
    Ok(())
}
