//! Payloads: data behind a frame, in chunks that are verified one by one, so that sending,
//! receiving, verifying and writing overlap.
//!
//! ```text
//! 0        4         8
//! length   crc32c    data…
//! ```
//! Integers are little-endian. The checksum covers the length and the data; under
//! [`DataProtection::Integrity`](crate::record::DataProtection::Integrity) a keyed hash of 16 bytes
//! replaces it, and under `Encrypted` length and data are in [records](crate::record). A payload ends
//! when the chunks have the announced length, or earlier: with a chunk of length 0 if the file is
//! shorter, or with an error, a chunk without data whose length is an error number with the topmost
//! bit set.

use crate::frame::FrameError;
use forebay_protocol::ids::Errno;

/// Most data in a chunk, in bytes: they stay in a processor's cache.
pub const MAX_CHUNK_BYTES: usize = 256 << 10;
/// Bytes in front of the data of a chunk with a checksum.
pub const CHUNK_HEADER_BYTES: usize = 8;
const FAILED: u32 = 1 << 31;

/// A received chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes of data.
    Data(usize),
    /// The payload ends early: the file is shorter.
    End,
    /// The payload ends early because of an error.
    Failed(Errno),
}

/// First word and checksum of a chunk.
pub(crate) fn header(word: u32, data: &[u8]) -> [u8; CHUNK_HEADER_BYTES] {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&word.to_le_bytes()), data);
    (u64::from(word) | u64::from(sum) << 32).to_le_bytes()
}

/// The first word of a chunk with these data.
pub(crate) fn data_word(data: &[u8]) -> Result<u32, FrameError> {
    if data.len() > MAX_CHUNK_BYTES {
        return Err(FrameError::Length);
    }
    Ok(data.len() as u32)
}

/// The first word of a chunk that reports an error.
pub(crate) fn failure_word(errno: Errno) -> u32 {
    FAILED | (errno.0.unsigned_abs() & !FAILED)
}

/// The part of `into` for the data of a chunk with this first word.
pub(crate) fn data_range(word: u32, into: &mut [u8]) -> Result<&mut [u8], FrameError> {
    let length = if word & FAILED == 0 { word as usize } else { 0 };
    if length > MAX_CHUNK_BYTES {
        return Err(FrameError::Length);
    }
    into.get_mut(..length).ok_or(FrameError::Length)
}

/// The received chunk with this first word.
pub(crate) fn parse_word(word: u32) -> Chunk {
    match word {
        0 => Chunk::End,
        failed if failed & FAILED != 0 => Chunk::Failed(Errno((failed & !FAILED) as i32)),
        length => Chunk::Data(length as usize),
    }
}

/// Lengths of the chunks of `length` bytes at `offset` of an object. They end at multiples of
/// [`MAX_CHUNK_BYTES`] in the object, so that they can be written without being copied.
pub fn chunk_lengths(offset: u64, length: usize) -> impl Iterator<Item = usize> {
    let first = MAX_CHUNK_BYTES - (offset % MAX_CHUNK_BYTES as u64) as usize;
    let mut left = length;
    let mut max = first;
    std::iter::from_fn(move || {
        let now = left.min(max);
        left -= now;
        max = MAX_CHUNK_BYTES;
        (now > 0).then_some(now)
    })
}
