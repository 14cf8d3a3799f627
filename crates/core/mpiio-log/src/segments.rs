//! The segments of a slot: which are in use, free, or not allocated yet.

use crate::format::{Geometry, HEAD_BYTES, MAX_PART};
use crate::writer::Sequence;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;

/// Smallest part of a write for which a record is begun at the end of a segment.
pub(crate) const MIN_PART: u64 = 4096;

/// Bytes of data that at least fit into `room` bytes of a segment.
pub(crate) fn capacity(room: u64) -> u64 {
    let record = MAX_PART + HEAD_BYTES as u64;
    let rest = (room % record).saturating_sub(HEAD_BYTES as u64);
    room / record * MAX_PART + if rest < MIN_PART { 0 } else { rest }
}

/// Allocates a segment, if the file system can, so that buffered data has its space.
pub(crate) fn allocate(file: &File, geometry: Geometry, slot: u32, index: u64) -> io::Result<()> {
    let offset = geometry.segment_offset(slot, index);
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(file, flags, offset, geometry.segment_bytes) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A segment with records.
#[derive(Debug)]
struct Used {
    index: u64,
    /// Sequence number of its segment record.
    first: Sequence,
}

/// The segments of a slot.
#[derive(Debug)]
pub(crate) struct Segments {
    /// Most segments.
    limit: u64,
    /// Segments that were allocated so far.
    allocated: u64,
    free: BTreeSet<u64>,
    /// In the order of their records.
    used: VecDeque<Used>,
}

impl Segments {
    pub fn new(limit: u64) -> Segments {
        Segments { limit, allocated: 0, free: BTreeSet::new(), used: VecDeque::new() }
    }

    /// Makes `count` segments free by allocating new ones. Returns false at the limit; then nothing
    /// is allocated.
    pub fn reserve(
        &mut self,
        count: u64,
        mut allocate: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.used.len() as u64 + count > self.limit {
            return Ok(false);
        }
        while (self.free.len() as u64) < count {
            allocate(self.allocated)?;
            self.free.insert(self.allocated);
            self.allocated += 1;
        }
        Ok(true)
    }

    /// The segment that would be taken next.
    pub fn next(&self) -> Option<u64> {
        self.free.first().copied()
    }

    /// Takes the next segment for records from `first` on.
    pub fn take(&mut self, first: Sequence) {
        let index = self.free.pop_first();
        let index = index.unwrap_or_else(|| unreachable!("a segment was reserved"));
        assert!(self.used.back().is_none_or(|used| used.first < first));
        self.used.push_back(Used { index, first });
        assert!(self.used.len() as u64 <= self.limit, "the log keeps its limit");
    }

    /// Frees the segments that contain only records up to `through`; `last` is the last record.
    pub fn release(&mut self, through: Sequence, last: Sequence) {
        while let Some(used) = self.used.front() {
            let end = self.used.get(1).map_or(last, |next| next.first - 1);
            if end > through {
                break;
            }
            self.free.insert(used.index);
            self.used.pop_front();
        }
    }

    /// Number of segments in use.
    pub fn used(&self) -> u64 {
        self.used.len() as u64
    }
}
