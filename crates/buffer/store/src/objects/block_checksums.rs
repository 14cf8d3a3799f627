//! Checksums of a data object at rest, one CRC-32C per block.
//!
//! [`BlockChecksums`] are stored in an extended attribute of the object. They apply as long as the
//! object has the length and modification time recorded in them; opening the object for writing
//! invalidates them. A power failure can undo the invalidation and part of the writes, so the
//! attribute also records a [`ChecksumEpoch`]: the boot of the host and a generation within it.
//! `checksum_validity` decides which epochs are valid after a power failure. The block size grows
//! with the object, so that the attribute fits the limits of common file systems.

use forebay_protocol::Timestamp;

/// The extended attribute that holds an object's checksums.
pub const CHECKSUMS_XATTR: &str = "user.forebay.checksums";
/// Smallest block, in bytes.
pub const MIN_BLOCK_BYTES: u64 = 64 << 10;
/// Most blocks per object: their checksums fit into 4 KiB.
const MAX_BLOCKS: u64 = 960;
/// Longest encoded checksums.
pub const MAX_ENCODED_BYTES: usize = 4096;
const MAGIC: &[u8; 4] = b"FBs3";
/// Magic of the previous format, without a generation.
const MAGIC_WITHOUT_GENERATION: &[u8; 4] = b"FBs2";
const HEADER_BYTES: usize = 4 + 16 + 8 + 4 + 8 + 8 + 4;

/// Epoch in which checksums were stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumEpoch {
    /// Boot id of the host.
    pub boot: u128,
    /// Generation within that boot, from 1; 0: never valid after this boot.
    pub generation: u64,
}

impl ChecksumEpoch {
    /// The epoch of encoded checksums, which may be damaged; `None` if `bytes` has another format.
    pub fn epoch_of(bytes: &[u8]) -> Option<ChecksumEpoch> {
        split_epoch(bytes).map(|(epoch, _)| epoch)
    }
}

/// Epoch and remainder of encoded checksums.
fn split_epoch(bytes: &[u8]) -> Option<(ChecksumEpoch, &[u8])> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let (boot, rest) = rest.split_first_chunk::<16>()?;
    let boot = u128::from_le_bytes(*boot);
    if magic == MAGIC_WITHOUT_GENERATION {
        let generation = 0;
        return Some((ChecksumEpoch { boot, generation }, rest));
    }
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let generation = u64::from_le_bytes(*generation);
    (magic == MAGIC).then_some((ChecksumEpoch { boot, generation }, rest))
}

/// Checksums of all blocks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockChecksums {
    epoch: ChecksumEpoch,
    size: u64,
    mtime: Timestamp,
    block_bytes: u64,
    sums: Vec<u32>,
}

/// Computes [`BlockChecksums`] from an object's bytes in order.
#[derive(Debug)]
pub struct ChecksumBuilder {
    checksums: BlockChecksums,
    /// Checksum of the current block so far.
    sum: u32,
    /// Bytes of the current block so far.
    filled: u64,
    /// Checksum of a block of zeros, once computed.
    zero_block_sum: Option<u32>,
}

impl ChecksumBuilder {
    /// For an object of `size` bytes that was last modified at `mtime`.
    pub fn new(size: u64, mtime: Timestamp) -> ChecksumBuilder {
        let block_bytes = size.div_ceil(MAX_BLOCKS).next_power_of_two();
        let block_bytes = block_bytes.max(MIN_BLOCK_BYTES);
        assert!(size.div_ceil(block_bytes) <= MAX_BLOCKS);
        ChecksumBuilder {
            checksums: BlockChecksums {
                epoch: ChecksumEpoch::default(),
                size,
                mtime,
                block_bytes,
                sums: Vec::new(),
            },
            sum: 0,
            filled: 0,
            zero_block_sum: None,
        }
    }

    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.checksums.size
    }

    /// Add the next bytes.
    pub fn add_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let missing = self.checksums.block_bytes - self.filled;
            let missing = usize::try_from(missing).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.sum = crc32c::crc32c_append(self.sum, now);
            self.advance(now.len() as u64);
            bytes = later;
        }
    }

    /// Add `count` zero bytes, i.e. a hole.
    pub fn add_zeros(&mut self, mut count: u64) {
        let block_bytes = self.checksums.block_bytes;
        while count > 0 {
            let now = count.min(block_bytes - self.filled);
            let zeros = match self.zero_block_sum {
                Some(sum) if now == block_bytes => sum,
                _ => checksum_of_zeros(now),
            };
            if now == block_bytes {
                self.zero_block_sum = Some(zeros);
            }
            self.sum = crc32c::crc32c_combine(self.sum, zeros, now as usize);
            self.advance(now);
            count -= now;
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.filled += bytes;
        assert!(self.filled <= self.checksums.block_bytes);
        if self.filled == self.checksums.block_bytes {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        self.checksums.sums.push(self.sum);
        self.sum = 0;
        self.filled = 0;
    }

    /// The checksums, without an epoch; `None` if the number of bytes differs from the announced
    /// size.
    pub fn finish(mut self) -> Option<BlockChecksums> {
        if self.filled > 0 {
            self.end_block();
        }
        let checksums = self.checksums;
        checksums.covers_object().then_some(checksums)
    }
}

/// Checksum of `count` zeros, combined from runs of 1, 2, 4, … zeros.
fn checksum_of_zeros(count: u64) -> u32 {
    let (mut sum, mut run) = (0, crc32c::crc32c(&[0]));
    for bit in 0..u64::BITS - count.leading_zeros() {
        if count & (1 << bit) != 0 {
            sum = crc32c::crc32c_combine(sum, run, 1 << bit);
        }
        run = crc32c::crc32c_combine(run, run, 1 << bit);
    }
    sum
}

impl BlockChecksums {
    /// Whether there is one checksum for each block of the object.
    fn covers_object(&self) -> bool {
        self.sums.len() as u64 == self.size.div_ceil(self.block_bytes)
    }

    /// Encode for storage in the extended attribute.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.covers_object(), "checksums do not cover the object");
        let mut out = Vec::with_capacity(HEADER_BYTES + self.sums.len() * 4 + 4);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.epoch.boot.to_le_bytes());
        out.extend_from_slice(&self.epoch.generation.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.trailing_zeros().to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.mtime.secs.to_le_bytes());
        out.extend_from_slice(&self.mtime.nanos.to_le_bytes());
        for sum in &self.sums {
            out.extend_from_slice(&sum.to_le_bytes());
        }
        let own = crc32c::crc32c(&out);
        out.extend_from_slice(&own.to_le_bytes());
        assert!(out.len() <= MAX_ENCODED_BYTES);
        out
    }

    /// Decode the output of [`encode`](BlockChecksums::encode); `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<BlockChecksums> {
        let (body, own) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body) != u32::from_le_bytes(*own) {
            return None;
        }
        let (epoch, rest) = split_epoch(body)?;
        let (block_bytes, rest) = rest.split_first_chunk::<4>()?;
        let (size, rest) = rest.split_first_chunk::<8>()?;
        let (secs, rest) = rest.split_first_chunk::<8>()?;
        let (nanos, rest) = rest.split_first_chunk::<4>()?;
        let sums = rest.chunks_exact(4);
        if !sums.remainder().is_empty() {
            return None;
        }
        let checksums = BlockChecksums {
            epoch,
            size: u64::from_le_bytes(*size),
            mtime: Timestamp { secs: i64::from_le_bytes(*secs), nanos: u32::from_le_bytes(*nanos) },
            block_bytes: 1u64.checked_shl(u32::from_le_bytes(*block_bytes))?,
            sums: sums.filter_map(|sum| sum.try_into().ok().map(u32::from_le_bytes)).collect(),
        };
        checksums.covers_object().then_some(checksums)
    }

    /// Whether they apply to an object of this length and modification time.
    pub fn matches_object(&self, size: u64, mtime: Timestamp) -> bool {
        (self.size, self.mtime) == (size, mtime)
    }

    /// Epoch in which they were stored.
    pub fn epoch(&self) -> ChecksumEpoch {
        self.epoch
    }

    /// Set the epoch in which they are stored.
    pub fn set_epoch(&mut self, epoch: ChecksumEpoch) {
        self.epoch = epoch;
    }

    /// First byte and end of the block that contains byte `at`; `None` behind the object's end.
    pub fn block_range(&self, at: u64) -> Option<(u64, u64)> {
        let from = at / self.block_bytes * self.block_bytes;
        let to = from.saturating_add(self.block_bytes).min(self.size);
        debug_assert!(at >= self.size || (from..to).contains(&at));
        (at < self.size).then_some((from, to))
    }

    /// The object's modification time was set without changing its bytes.
    pub fn set_mtime(&mut self, mtime: Timestamp) {
        self.mtime = mtime;
    }

    /// Offset of the first block whose checksum differs in `other`, which has the same size.
    pub fn first_difference(&self, other: &BlockChecksums) -> Option<u64> {
        let pairs = self.sums.iter().zip(&other.sums);
        let same = pairs.take_while(|(mine, theirs)| mine == theirs).count();
        let differs = same < self.sums.len() || same < other.sums.len();
        differs.then_some(same as u64 * self.block_bytes)
    }

    /// Offset of the first damaged block among those completely contained in `data`, which was
    /// read at `offset`.
    pub fn first_damage(&self, offset: u64, data: &[u8]) -> Option<u64> {
        let end = offset.checked_add(data.len() as u64)?;
        let mut index = offset.div_ceil(self.block_bytes);
        loop {
            let from = index.checked_mul(self.block_bytes)?;
            let to = from.checked_add(self.block_bytes)?.min(self.size);
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

    const MTIME: Timestamp = Timestamp { secs: 7, nanos: 8 };
    const EPOCH: ChecksumEpoch = ChecksumEpoch { boot: 5, generation: 6 };

    fn checksums_of(bytes: &[u8], step: usize) -> BlockChecksums {
        let mut builder = ChecksumBuilder::new(bytes.len() as u64, MTIME);
        for part in bytes.chunks(step) {
            if part.iter().all(|byte| *byte == 0) {
                builder.add_zeros(part.len() as u64);
            } else {
                builder.add_bytes(part);
            }
        }
        let mut checksums = builder.finish().unwrap();
        checksums.set_epoch(EPOCH);
        checksums
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn changed_byte_is_located_in_its_block(
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
            let checksums = checksums_of(&bytes, step);
            prop_assert_eq!(&checksums, &checksums_of(&bytes, 4096));
            let decoded = BlockChecksums::decode(&checksums.encode());
            prop_assert_eq!(decoded, Some(checksums.clone()));
            prop_assert_eq!(checksums.first_damage(0, &bytes), None);
            let at = at.index(size);
            bytes[at] ^= flip;
            let block = at as u64 / MIN_BLOCK_BYTES * MIN_BLOCK_BYTES;
            prop_assert_eq!(checksums.first_damage(0, &bytes), Some(block));
            prop_assert_eq!(checksums.first_difference(&checksums_of(&bytes, step)), Some(block));
            // Part of a block cannot be checked.
            if at as u64 > block {
                prop_assert_eq!(checksums.first_damage(at as u64, &bytes[at..]), None);
            }
        }

        #[test]
        fn damaged_or_foreign_attribute_is_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            prop_assert_eq!(BlockChecksums::decode(&bytes), None);
            let encoded = checksums_of(&bytes.repeat(3), 50).encode();
            bytes = encoded.clone();
            let last = bytes.len() - 1;
            bytes[last / 2] ^= 1;
            prop_assert_eq!(BlockChecksums::decode(&bytes), None);
            prop_assert_eq!(BlockChecksums::decode(&encoded[..last]), None);
        }
    }

    #[test]
    fn checksums_of_large_object_fit_an_attribute() {
        for size in
            [1 << 20, 960 * MIN_BLOCK_BYTES, 960 * MIN_BLOCK_BYTES + 1, 1 << 40, (1 << 50) - 1]
        {
            let mut builder = ChecksumBuilder::new(size, MTIME);
            builder.add_zeros(size - 1);
            builder.add_bytes(&[1]);
            let checksums = builder.finish().unwrap();
            assert!(checksums.encode().len() < 4000, "{size}");
            assert!(checksums.matches_object(size, MTIME));
            assert!(!checksums.matches_object(size - 1, MTIME));
            assert_eq!(checksums.block_range(size), None);
            assert_eq!(checksums.block_range(size - 1).unwrap().1, size);
        }
        let mut short = ChecksumBuilder::new(100_000, MTIME);
        short.add_zeros(10);
        assert_eq!(short.finish(), None);
    }

    #[test]
    fn previous_format_is_decoded_without_generation() {
        let current = checksums_of(b"some bytes", 4);
        let encoded = current.encode();
        assert_eq!(ChecksumEpoch::epoch_of(&encoded), Some(EPOCH));
        let mut previous = MAGIC_WITHOUT_GENERATION.to_vec();
        previous.extend_from_slice(&encoded[4..20]);
        previous.extend_from_slice(&encoded[28..encoded.len() - 4]);
        let sum = crc32c::crc32c(&previous);
        previous.extend_from_slice(&sum.to_le_bytes());
        let epoch = ChecksumEpoch { generation: 0, ..EPOCH };
        assert_eq!(ChecksumEpoch::epoch_of(&previous), Some(epoch));
        let mut expected = current;
        expected.set_epoch(epoch);
        assert_eq!(BlockChecksums::decode(&previous), Some(expected));
        let foreign = b"FBs4 and something that is long enough";
        assert_eq!(ChecksumEpoch::epoch_of(foreign), None);
    }
}
