//! The transfers of one rank, by index or in order.

use forebay_random::Permutation;

/// A file of a test: the same number always denotes the same file. With `-F` it is the writing
/// rank, else 0; with `-m` the numbers of each repetition follow those of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// One operation on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transfer {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Number of bytes: the transfer size of the test.
    pub bytes: u64,
}

/// The transfers of one rank in one phase, addressed by index. `Copy`, 80 bytes.
#[derive(Clone, Copy, Debug)]
pub struct TransferStream {
    pub(super) file: FileId,
    pub(super) transfer: u64,
    pub(super) per_block: u64,
    pub(super) count: u64,
    /// Bytes from a segment's start to the next one's.
    pub(super) segment: u64,
    /// Number of this rank's first transfer among those of the segment.
    pub(super) first: u64,
    pub(super) shuffle: Option<Permutation>,
}

impl TransferStream {
    /// Number of transfers.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether the number of transfers is 0.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The file of all transfers.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// The transfer at `index`, which must be below [`TransferStream::len`].
    #[inline]
    pub fn transfer(&self, index: u64) -> Transfer {
        debug_assert!(index < self.count, "transfer {index} of {}", self.count);
        let per_block = self.per_block.max(1);
        self.in_segment(index / per_block * self.segment, index % per_block)
    }

    #[inline]
    fn in_segment(&self, segment_begins: u64, index: u64) -> Transfer {
        let place = match self.shuffle {
            None => self.first + index,
            Some(shuffle) => shuffle.apply(self.first + index),
        };
        let offset = segment_begins + place * self.transfer;
        Transfer { file: self.file, offset, bytes: self.transfer }
    }

    /// Iterates over the transfers without a division per transfer.
    pub fn cursor(&self) -> TransferCursor {
        TransferCursor { stream: *self, index: 0, within: 0, segment_begins: 0 }
    }
}

/// Iterates over a [`TransferStream`]. `Copy`.
#[derive(Clone, Copy, Debug)]
pub struct TransferCursor {
    stream: TransferStream,
    index: u64,
    within: u64,
    segment_begins: u64,
}

impl Iterator for TransferCursor {
    type Item = Transfer;

    #[inline]
    fn next(&mut self) -> Option<Transfer> {
        if self.index >= self.stream.count {
            return None;
        }
        let transfer = self.stream.in_segment(self.segment_begins, self.within);
        self.index += 1;
        self.within += 1;
        if self.within >= self.stream.per_block {
            self.within = 0;
            // After the last segment the sum is not used and may exceed 64 bits.
            self.segment_begins = self.segment_begins.wrapping_add(self.stream.segment);
        }
        Some(transfer)
    }
}
