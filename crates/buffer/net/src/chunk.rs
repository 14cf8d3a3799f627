//! Payloads: data behind a frame, in chunks that are checked one by one, so that checking,
//! sending, receiving and writing overlap.
//!
//! ```text
//! 0        4         8
//! length   crc32c    data…
//! ```
//! Integers are little-endian. The checksum covers the length and the data. A payload ends when the
//! chunks have together what the frame announced; or early, with a chunk of length 0 where a file
//! turns out to be shorter, or with one that says why nothing more can be read: its length is an
//! error number with the topmost bit set, and no data follow.

use crate::frame::FrameError;
use crate::stream::Stream;
use forebay_protocol::ids::Errno;
use std::io;

/// Most data in a chunk, in bytes: few enough to stay in a processor's cache meanwhile.
pub const MAX_CHUNK_BYTES: usize = 256 << 10;
/// Bytes in front of a chunk's data.
pub const CHUNK_HEADER_BYTES: usize = 8;
const FAILED: u32 = 1 << 31;

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// So many bytes.
    Data(usize),
    /// Nothing more: the file is shorter.
    End,
    /// Nothing more, for this reason.
    Failed(Errno),
}

/// Where bytes come from.
pub trait ChunkSource {
    /// Fill all of `into`; an error if the peer closes before.
    fn fill(&mut self, into: &mut [u8]) -> io::Result<()>;
}

fn header(word: u32, data: &[u8]) -> [u8; CHUNK_HEADER_BYTES] {
    let word = word.to_le_bytes();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&word), data).to_le_bytes();
    let [a, b, c, d] = word;
    let [e, f, g, h] = sum;
    [a, b, c, d, e, f, g, h]
}

/// Lengths of the chunks of `length` bytes at `offset` of an object: they end where the object's
/// own multiples of [`MAX_CHUNK`] do, so that they can be written without being copied.
pub fn chunk_lengths(offset: u64, length: usize) -> impl Iterator<Item = usize> {
    let first = MAX_CHUNK_BYTES - (offset % MAX_CHUNK_BYTES as u64) as usize;
    let mut left = length;
    let mut most = first;
    std::iter::from_fn(move || {
        let now = left.min(most);
        left -= now;
        most = MAX_CHUNK_BYTES;
        (now > 0).then_some(now)
    })
}

/// Send `head`, if there is any, and one chunk behind it: `data`, at most [`MAX_CHUNK`] bytes.
pub fn send_chunk(stream: &Stream, head: &[u8], data: &[u8]) -> io::Result<()> {
    if data.len() > MAX_CHUNK_BYTES {
        return Err(FrameError::Length.into());
    }
    stream.send_parts(&[head, &header(data.len() as u32, data), data], None)
}

/// Send the head of a frame and all of its payload, which lies at `offset` of an object.
pub fn send_payload(stream: &Stream, head: &[u8], payload: &[u8], offset: u64) -> io::Result<()> {
    let (mut head, mut rest) = (head, payload);
    for length in chunk_lengths(offset, payload.len()) {
        let (now, later) = rest.split_at(length);
        send_chunk(stream, head, now)?;
        (head, rest) = (&[], later);
    }
    stream.send_parts(&[head], None)
}

/// Send `head` and `data` behind it as chunks, all at once: the receiver is not kept waiting while
/// the sender looks at the next one.
pub fn send_chunks(stream: &Stream, head: &[u8], data: &[u8]) -> io::Result<()> {
    let chunks = || data.chunks(MAX_CHUNK_BYTES);
    let headers: Vec<_> = chunks()
        .map(|data| header(data.len() as u32, data))
        .collect();
    let parts = headers.iter().zip(chunks());
    let parts = parts.flat_map(|(header, data)| [&header[..], data]);
    let parts: Vec<&[u8]> = std::iter::once(head).chain(parts).collect();
    stream.send_parts(&parts, None)
}

/// Say why a payload that was announced does not come.
pub fn send_failure(stream: &Stream, errno: Errno) -> io::Result<()> {
    let word = FAILED | (errno.0.unsigned_abs() & !FAILED);
    stream.send_parts(&[&header(word, &[])], None)
}

/// Receive a chunk into the front of `into`, which has room for what is still missing of the
/// payload. What is in `into` after an error is damaged.
pub fn receive_chunk(source: &mut impl ChunkSource, into: &mut [u8]) -> io::Result<Chunk> {
    let mut head = [0; CHUNK_HEADER_BYTES];
    source.fill(&mut head)?;
    let [a, b, c, d, ..] = head;
    let word = u32::from_le_bytes([a, b, c, d]);
    let length = if word & FAILED == 0 { word as usize } else { 0 };
    if length > MAX_CHUNK_BYTES {
        return Err(FrameError::Length.into());
    }
    let data = into.get_mut(..length).ok_or(FrameError::Length)?;
    source.fill(data)?;
    if header(word, data) != head {
        return Err(FrameError::Checksum.into());
    }
    Ok(match word {
        0 => Chunk::End,
        failed if failed & FAILED != 0 => Chunk::Failed(Errno((failed & !FAILED) as i32)),
        _ => Chunk::Data(length),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::os::unix::net::UnixStream;

    impl ChunkSource for &[u8] {
        fn fill(&mut self, into: &mut [u8]) -> io::Result<()> {
            io::Read::read_exact(self, into)
        }
    }

    fn sent(act: impl FnOnce(&Stream)) -> Vec<u8> {
        let (near, far) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let (far, mut all, mut some) = (Stream::Unix(far), Vec::new(), vec![0; 1 << 16]);
            loop {
                match far.receive(&mut some, &mut VecDeque::new()).unwrap() {
                    0 => return all,
                    count => all.extend_from_slice(&some[..count]),
                }
            }
        });
        act(&Stream::Unix(near));
        reader.join().unwrap()
    }

    /// All of a payload of `length` bytes.
    fn payload(mut bytes: &[u8], length: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; length];
        let mut have = 0;
        while have < length {
            match receive_chunk(&mut bytes, &mut data[have..])? {
                Chunk::Data(count) => have += count,
                other => panic!("{other:?}"),
            }
        }
        assert!(bytes.is_empty());
        Ok(data)
    }

    #[test]
    fn a_payload_arrives_as_it_was_whatever_its_length_and_place() {
        for (offset, length) in [
            (0, 0),
            (0, 1),
            (5, 2 * MAX_CHUNK_BYTES),
            (1 << 20, 1 << 20),
            (7, 9),
        ] {
            let data: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let bytes = sent(|stream| send_payload(stream, b"head", &data, offset).unwrap());
            assert_eq!(payload(&bytes[4..], length).unwrap(), data);
            let bytes = sent(|stream| send_chunks(stream, b"head", &data).unwrap());
            assert_eq!(payload(&bytes[4..], length).unwrap(), data);
        }
    }

    #[test]
    fn an_early_end_and_a_failure_are_told() {
        let mut bytes = &sent(|stream| {
            send_chunk(stream, b"", b"some").unwrap();
            send_chunk(stream, b"", b"").unwrap();
            send_failure(stream, Errno::EIO).unwrap();
        })[..];
        let mut into = [0; 16];
        let mut next = || receive_chunk(&mut bytes, &mut into).unwrap();
        assert_eq!(next(), Chunk::Data(4));
        assert_eq!(next(), Chunk::End);
        assert_eq!(next(), Chunk::Failed(Errno::EIO));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_seen(at: prop::sample::Index, bit in 0u8..8, data in prop::collection::vec(any::<u8>(), 1..3000)) {
            let mut bytes = sent(|stream| send_payload(stream, &[], &data, 0).unwrap());
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut into = vec![0; 2 * MAX_CHUNK_BYTES];
            prop_assert!(receive_chunk(&mut &bytes[..], &mut into).is_err());
        }

        #[test]
        fn chunks_end_at_their_places(offset in 0u64..1 << 40, length in 0usize..1 << 22) {
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
