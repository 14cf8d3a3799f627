//! Checksums of a data object at rest.
//!
//! A seal says what an object of some length and time of last change held, chunk by chunk, as
//! CRC-32C. It is kept beside the object, in an extended attribute, and is about the object as long
//! as that has that length and that time: whoever writes to the object breaks it. A power cut may
//! undo that, and half of what was written, too, so a seal also says when it was made: in which
//! start of the host, and in which generation there (`store/objects/lasting.rs` says which hold
//! over a power cut). Chunks are so large that the seal fits the attribute space of common file
//! systems.

use forebay_protocol::Timestamp;

/// The extended attribute that holds an object's seal.
pub const CHECKSUMS_XATTR: &str = "user.forebay.seal";
/// Smallest chunk with a sum of its own, in bytes.
pub const MIN_BLOCK_BYTES: u64 = 64 << 10;
/// Most chunks: their sums fit an attribute of 4 KiB.
const MOST_CHUNKS: u64 = 960;
const MAGIC: &[u8; 4] = b"FBs3";
/// Of seals without a generation.
const OLDER: &[u8; 4] = b"FBs2";
const HEADER: usize = 4 + 16 + 8 + 4 + 8 + 8 + 4;

/// When a seal was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumEpoch {
    /// The start of the host.
    pub boot: u128,
    /// Which of those that follow each other in that start; 0: it holds no longer than that.
    pub generation: u64,
}

impl ChecksumEpoch {
    /// That of an encoded seal, whole or not; `None` if it is no seal.
    pub fn epoch_of(bytes: &[u8]) -> Option<ChecksumEpoch> {
        split(bytes).map(|(era, _)| era)
    }
}

/// An encoded seal's era, and what follows.
fn split(bytes: &[u8]) -> Option<(ChecksumEpoch, &[u8])> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (boot, rest) = rest.split_first_chunk::<16>()?;
    let boot = u128::from_le_bytes(*boot);
    if magic == OLDER {
        return Some((
            ChecksumEpoch {
                boot,
                generation: 0,
            },
            rest,
        ));
    }
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let generation = u64::from_le_bytes(*generation);
    (magic == MAGIC).then_some((ChecksumEpoch { boot, generation }, rest))
}

/// The sums of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockChecksums {
    era: ChecksumEpoch,
    size: u64,
    mtime: Timestamp,
    chunk: u64,
    sums: Vec<u32>,
}

/// Makes a seal from an object's bytes, from the first to the last.
#[derive(Debug)]
pub struct ChecksumBuilder {
    seal: BlockChecksums,
    sum: u32,
    /// Bytes of the current chunk so far.
    filled: u64,
    zero_chunk: Option<u32>,
}

impl ChecksumBuilder {
    /// For an object of `size` bytes that was last changed at `mtime`.
    pub fn new(size: u64, mtime: Timestamp) -> ChecksumBuilder {
        let chunk = size.div_ceil(MOST_CHUNKS).next_power_of_two();
        ChecksumBuilder {
            seal: BlockChecksums {
                era: ChecksumEpoch::default(),
                size,
                mtime,
                chunk: chunk.max(MIN_BLOCK_BYTES),
                sums: Vec::new(),
            },
            sum: 0,
            filled: 0,
            zero_chunk: None,
        }
    }

    /// The next bytes.
    pub fn add_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(self.seal.chunk - self.filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.sum = crc32c::crc32c_append(self.sum, now);
            self.filled += now.len() as u64;
            if self.filled == self.seal.chunk {
                self.end_chunk();
            }
            bytes = later;
        }
    }

    /// The next bytes are `count` zeros: a hole.
    pub fn add_zeros(&mut self, mut count: u64) {
        while count > 0 {
            let now = count.min(self.seal.chunk - self.filled);
            let zeros = match self.zero_chunk {
                Some(sum) if now == self.seal.chunk => sum,
                _ => sum_of_zeros(now),
            };
            if now == self.seal.chunk {
                self.zero_chunk = Some(zeros);
            }
            self.sum = combine(self.sum, zeros, now);
            self.filled += now;
            if self.filled == self.seal.chunk {
                self.end_chunk();
            }
            count -= now;
        }
    }

    fn end_chunk(&mut self) {
        self.seal.sums.push(self.sum);
        self.sum = 0;
        self.filled = 0;
    }

    /// The seal, of no era yet; `None` if other than the announced number of bytes were added.
    pub fn finish(mut self) -> Option<BlockChecksums> {
        if self.filled > 0 {
            self.end_chunk();
        }
        let seal = self.seal;
        (seal.sums.len() as u64 == seal.size.div_ceil(seal.chunk)).then_some(seal)
    }
}

/// The sum of two runs of bytes, one behind the other, the second of `length` bytes.
fn combine(first: u32, second: u32, length: u64) -> u32 {
    crc32c::crc32c_combine(first, second, length as usize)
}

/// The sum of `count` zeros: of a run put together from runs of 1, 2, 4, … zeros.
fn sum_of_zeros(count: u64) -> u32 {
    let (mut sum, mut run) = (0, crc32c::crc32c(&[0]));
    for bit in 0..u64::BITS - count.leading_zeros() {
        if count & (1 << bit) != 0 {
            sum = combine(sum, run, 1 << bit);
        }
        run = combine(run, run, 1 << bit);
    }
    sum
}

impl BlockChecksums {
    /// As it is kept in the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.sums.len() * 4 + 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.era.boot.to_le_bytes());
        out.extend_from_slice(&self.era.generation.to_le_bytes());
        out.extend_from_slice(&self.chunk.trailing_zeros().to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.mtime.secs.to_le_bytes());
        out.extend_from_slice(&self.mtime.nanos.to_le_bytes());
        for sum in &self.sums {
            out.extend_from_slice(&sum.to_le_bytes());
        }
        let own = crc32c::crc32c(&out);
        out.extend_from_slice(&own.to_le_bytes());
        out
    }

    /// What [`encode`](Seal::encode) made; `None` if it is not whole.
    pub fn decode(bytes: &[u8]) -> Option<BlockChecksums> {
        let (body, own) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*own) {
            return None;
        }
        let (era, rest) = split(body)?;
        let (chunk, rest) = rest.split_first_chunk::<4>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let (secs, rest) = rest.split_first_chunk::<8>()?;
        let (nanos, rest) = rest.split_first_chunk::<4>()?;
        let chunk = 1u64.checked_shl(u32::from_le_bytes(*chunk))?;
        let size = u64::from_le_bytes(*size);
        let sums = rest.chunks_exact(4);
        if rest.len() % 4 != 0 || sums.len() as u64 != size.div_ceil(chunk) {
            return None;
        }
        Some(BlockChecksums {
            era,
            size,
            mtime: Timestamp {
                secs: i64::from_le_bytes(*secs),
                nanos: u32::from_le_bytes(*nanos),
            },
            chunk,
            sums: sums
                .filter_map(|sum| sum.try_into().ok().map(u32::from_le_bytes))
                .collect(),
        })
    }

    /// Is it about an object of this length and time of last change?
    pub fn matches_object(&self, size: u64, mtime: Timestamp) -> bool {
        (self.size, self.mtime) == (size, mtime)
    }

    /// When it was made.
    pub fn epoch(&self) -> ChecksumEpoch {
        self.era
    }

    /// It is made in this era.
    pub fn set_epoch(&mut self, era: ChecksumEpoch) {
        self.era = era;
    }

    /// First byte, and the one behind the last, of the chunk with the byte `at`.
    pub fn block_range(&self, at: u64) -> Option<(u64, u64)> {
        let from = at / self.chunk * self.chunk;
        (at < self.size).then(|| (from, from.saturating_add(self.chunk).min(self.size)))
    }

    /// The object got another time of last change, and the same bytes.
    pub fn set_mtime(&mut self, mtime: Timestamp) {
        self.mtime = mtime;
    }

    /// The first chunk that `other`, made of the same number of bytes, has differently: its offset.
    pub fn first_difference(&self, other: &BlockChecksums) -> Option<u64> {
        let pairs = self.sums.iter().zip(&other.sums);
        let same = pairs.take_while(|(mine, theirs)| mine == theirs).count();
        let differs = same < self.sums.len() || same < other.sums.len();
        differs.then_some(same as u64 * self.chunk)
    }

    /// The first of the chunks lying whole in `data`, which was read at `offset`, that is not what
    /// was sealed: its offset.
    pub fn first_damage(&self, offset: u64, data: &[u8]) -> Option<u64> {
        let end = offset.checked_add(data.len() as u64)?;
        let mut index = offset.div_ceil(self.chunk);
        loop {
            let from = index.checked_mul(self.chunk)?;
            let to = from.checked_add(self.chunk)?.min(self.size);
            if from >= to || to > end {
                return None;
            }
            let sum = *self.sums.get(usize::try_from(index).ok()?)?;
            let bytes = data.get((from - offset) as usize..(to - offset) as usize)?;
            if crc32c::crc32c(bytes) != sum {
                return Some(from);
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: Timestamp = Timestamp { secs: 7, nanos: 8 };
    const ERA: ChecksumEpoch = ChecksumEpoch {
        boot: 5,
        generation: 6,
    };

    fn seal(bytes: &[u8], step: usize) -> BlockChecksums {
        let mut maker = ChecksumBuilder::new(bytes.len() as u64, AT);
        for part in bytes.chunks(step) {
            if part.iter().all(|byte| *byte == 0) {
                maker.add_zeros(part.len() as u64);
            } else {
                maker.add_bytes(part);
            }
        }
        let mut seal = maker.finish().unwrap();
        seal.set_epoch(ERA);
        seal
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn a_changed_byte_is_found_where_it_is(
            size in 1usize..400_000, step in 1usize..200_000, at: prop::sample::Index, flip in 1u8..,
            holes in prop::collection::vec((0usize..400_000, 0usize..200_000), 0..3),
        ) {
            let mut bytes: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
            for (from, length) in holes {
                let to = (from + length).min(size);
                if from < to {
                    bytes[from..to].fill(0);
                }
            }
            let sealed = seal(&bytes, step);
            prop_assert_eq!(&sealed, &seal(&bytes, 4096));
            prop_assert_eq!(BlockChecksums::decode(&sealed.encode()), Some(sealed.clone()));
            prop_assert_eq!(sealed.first_damage(0, &bytes), None);
            let at = at.index(size);
            bytes[at] ^= flip;
            let chunk = at as u64 / MIN_BLOCK_BYTES * MIN_BLOCK_BYTES;
            prop_assert_eq!(sealed.first_damage(0, &bytes), Some(chunk));
            prop_assert_eq!(sealed.first_difference(&seal(&bytes, step)), Some(chunk));
            // A read that has only part of the chunk cannot tell.
            if at as u64 > chunk {
                prop_assert_eq!(sealed.first_damage(at as u64, &bytes[at..]), None);
            }
        }

        #[test]
        fn what_is_not_a_seal_is_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(BlockChecksums::decode(&bytes), None);
            let whole = seal(&bytes.repeat(3), 50).encode();
            bytes = whole.clone();
            let last = bytes.len() - 1;
            bytes[last / 2] ^= 1;
            prop_assert_eq!(BlockChecksums::decode(&bytes), None);
            prop_assert_eq!(BlockChecksums::decode(&whole[..last]), None);
        }
    }

    #[test]
    fn the_seal_of_a_large_object_fits_an_attribute() {
        for size in [
            1 << 20,
            960 * MIN_BLOCK_BYTES,
            960 * MIN_BLOCK_BYTES + 1,
            1 << 40,
            (1 << 50) - 1,
        ] {
            let mut maker = ChecksumBuilder::new(size, AT);
            maker.add_zeros(size - 1);
            maker.add_bytes(&[1]);
            let seal = maker.finish().unwrap();
            assert!(seal.encode().len() < 4000, "{size}");
            assert!(seal.matches_object(size, AT) && !seal.matches_object(size - 1, AT));
            assert_eq!(seal.block_range(size), None);
            assert_eq!(seal.block_range(size - 1).unwrap().1, size);
        }
        let mut short = ChecksumBuilder::new(100_000, AT);
        short.add_zeros(10);
        assert_eq!(short.finish(), None);
    }

    #[test]
    fn an_older_seal_is_read_and_has_no_generation() {
        let whole = seal(b"some bytes", 4);
        let encoded = whole.encode();
        assert_eq!(ChecksumEpoch::epoch_of(&encoded), Some(ERA));
        let mut older = OLDER.to_vec();
        older.extend_from_slice(&encoded[4..20]);
        older.extend_from_slice(&encoded[28..encoded.len() - 4]);
        let sum = crc32c::crc32c(&older);
        older.extend_from_slice(&sum.to_le_bytes());
        let era = ChecksumEpoch {
            generation: 0,
            ..ERA
        };
        assert_eq!(ChecksumEpoch::epoch_of(&older), Some(era));
        let mut expected = whole;
        expected.set_epoch(era);
        assert_eq!(BlockChecksums::decode(&older), Some(expected));
        assert_eq!(
            ChecksumEpoch::epoch_of(b"FBs4 and something that is long enough"),
            None
        );
    }
}
