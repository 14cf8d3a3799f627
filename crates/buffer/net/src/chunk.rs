//! Payloads: data behind a frame, in chunks that are checked one by one, so that checking,
//! sending, receiving and writing overlap.
//!
//! ```text
//! 0        4         8
//! length   crc32c    data…
//! ```
//! Integers are little-endian. The checksum covers the length and the data; under
//! [`DataProtection::Integrity`](crate::record::DataProtection::Integrity) a keyed hash of 16 bytes
//! takes its place, and under `Encrypted` the length and the data travel in
//! [records](crate::record). A payload ends when the chunks have together what the frame announced;
//! or early, with a chunk of length 0 where a file turns out to be shorter, or with one that reports
//! an error: its length is an error number with the topmost bit set, and no data follow.

use crate::frame::FrameError;
use forebay_protocol::ids::Errno;

/// Most data in a chunk, in bytes: few enough to stay in a processor's cache meanwhile.
pub const MAX_CHUNK_BYTES: usize = 256 << 10;
/// Bytes in front of a chunk's data, if it has a checksum.
pub const CHUNK_HEADER_BYTES: usize = 8;
const FAILED: u32 = 1 << 31;

/// A received chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes of data.
    Data(usize),
    /// The payload ends early: the file is shorter.
    End,
    /// The payload ends early, for this reason.
    Failed(Errno),
}

/// Length and checksum.
pub(crate) fn header(word: u32, data: &[u8]) -> [u8; CHUNK_HEADER_BYTES] {
    let word = word.to_le_bytes();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&word), data).to_le_bytes();
    let [a, b, c, d] = word;
    let [e, f, g, h] = sum;
    [a, b, c, d, e, f, g, h]
}

/// The first four bytes of a chunk with these data.
pub(crate) fn data_word(data: &[u8]) -> Result<u32, FrameError> {
    if data.len() > MAX_CHUNK_BYTES {
        return Err(FrameError::Length);
    }
    Ok(data.len() as u32)
}

/// The first four bytes of a chunk that reports an error.
pub(crate) fn failure_word(errno: Errno) -> u32 {
    FAILED | (errno.0.unsigned_abs() & !FAILED)
}

/// The part of `into` for the data of a chunk that begins with `word`.
pub(crate) fn data_range(word: u32, into: &mut [u8]) -> Result<&mut [u8], FrameError> {
    let length = if word & FAILED == 0 { word as usize } else { 0 };
    if length > MAX_CHUNK_BYTES {
        return Err(FrameError::Length);
    }
    into.get_mut(..length).ok_or(FrameError::Length)
}

/// The chunk that begins with `word`.
pub(crate) fn parse_word(word: u32) -> Chunk {
    match word {
        0 => Chunk::End,
        failed if failed & FAILED != 0 => Chunk::Failed(Errno((failed & !FAILED) as i32)),
        length => Chunk::Data(length as usize),
    }
}

/// Lengths of the chunks of `length` bytes at `offset` of an object: they end where the object's
/// own multiples of [`MAX_CHUNK_BYTES`] do, so that they can be written without being copied.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_end_at_multiples_of_their_maximum(offset in 0u64..1 << 40, length in 0usize..1 << 22) {
            let lengths: Vec<_> = chunk_lengths(offset, length).collect();
            prop_assert_eq!(lengths.iter().sum::<usize>(), length);
            let mut at = offset;
            for (i, one) in lengths.iter().enumerate() {
                at += *one as u64;
                prop_assert!(*one > 0 && *one <= MAX_CHUNK_BYTES);
                prop_assert!(i + 1 == lengths.len() || at.is_multiple_of(MAX_CHUNK_BYTES as u64));
            }
        }
    }
}
