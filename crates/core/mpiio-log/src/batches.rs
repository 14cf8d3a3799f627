//! Application of more writes than memory holds: in batches, in the order of the writes.
//!
//! A scan keeps entries while there is memory for them. Of the other slots it keeps an outline: where
//! their segments are, and the orders and sizes of blocks of entries. From these follow ranges of
//! orders that fit into memory; for each, the segments that contain it are read again. The order of
//! the entries of a slot increases, as that of their sequence numbers does.

use crate::entry::{Entry, Order};
use crate::format::{Geometry, SlotState};
use crate::log_file::LogFile;
use crate::walk::read_entries;
use crate::writer::Sequence;
use std::io;
use std::ops::{Bound, RangeBounds};

/// Memory for the entries of logs that are scanned together.
#[derive(Clone, Copy, Debug)]
pub struct EntryMemory {
    /// Bytes for them, and for a batch of the others.
    limit: u64,
    /// Bytes that are left.
    left: u64,
}

impl Default for EntryMemory {
    /// 256 MiB: four million entries.
    fn default() -> EntryMemory {
        EntryMemory::new(256 << 20)
    }
}

impl EntryMemory {
    /// Room for entries that need so many bytes, and their views. A batch of those that do not fit
    /// has the same room.
    pub fn new(bytes: u64) -> EntryMemory {
        EntryMemory { limit: bytes, left: bytes }
    }

    /// No limit.
    pub(crate) fn unlimited() -> EntryMemory {
        EntryMemory::new(u64::MAX)
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Bytes of the blocks of an outline.
    pub(crate) fn block_bytes(&self) -> u64 {
        (self.limit >> 14).clamp(1, 64 << 10)
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }
}

/// Consecutive entries of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryBlock {
    /// Order of the first one.
    pub first: Order,
    /// Bytes of memory that they need.
    pub memory: u64,
}

/// The part of a slot that is kept if its entries need too much memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    /// Number of entries, and their bytes of data.
    pub entries: u64,
    pub bytes: u64,
    /// The largest epoch.
    pub last_epoch: u64,
    /// In the order of the entries.
    pub blocks: Vec<EntryBlock>,
    /// Sequence number and offset of each segment, in their order.
    pub segments: Vec<(Sequence, u64)>,
}

/// A slot whose entries are read when they are applied.
#[derive(Clone, Debug)]
pub(crate) struct OutlinedSlot {
    /// Number of the log.
    pub log: u32,
    pub geometry: Geometry,
    pub state: SlotState,
    /// The last entry that counts.
    pub last: Sequence,
    pub outline: Outline,
}

/// A range of orders.
pub(crate) type Orders = (Bound<Order>, Bound<Order>);

impl OutlinedSlot {
    /// The entries of a batch, which need at most `limit` bytes of memory, of which the rest is left.
    pub fn read(
        &self,
        file: &dyn LogFile,
        orders: &Orders,
        limit: &mut u64,
    ) -> io::Result<Vec<Entry>> {
        let blocks = &self.outline.blocks;
        let is_before = |block: &EntryBlock| match orders.0 {
            Bound::Included(start) => block.first <= start,
            Bound::Excluded(_) | Bound::Unbounded => false,
        };
        let from = blocks.partition_point(is_before).checked_sub(1);
        let from = from.map_or(0, |block| blocks[block].first.sequence);
        let is_within = |block: &EntryBlock| match orders.1 {
            Bound::Excluded(end) => block.first < end,
            Bound::Included(_) | Bound::Unbounded => true,
        };
        let behind = blocks.get(blocks.partition_point(is_within));
        let behind = behind.map_or(Sequence::MAX, |block| block.first.sequence);
        let segments = &self.outline.segments;
        let needed = segments.iter().enumerate().filter_map(|(index, (first, offset))| {
            let next = segments.get(index + 1).map_or(Sequence::MAX, |(next, _)| *next);
            (next > from && *first < behind).then_some((*offset, next))
        });
        let mut entries = read_entries(file, self.geometry, self.state, needed, orders, limit)?;
        entries.retain(|entry| entry.order.sequence <= self.last);
        Ok(entries)
    }
}

/// Ranges of orders, one behind another, that contain all orders; the entries of slots in each need
/// about `limit` bytes of memory.
pub(crate) fn batches(slots: &[OutlinedSlot], limit: u64) -> Vec<Orders> {
    let mut blocks: Vec<EntryBlock> =
        slots.iter().flat_map(|slot| slot.outline.blocks.iter().copied()).collect();
    blocks.sort_unstable_by_key(|block| block.first);
    let mut batches = Vec::new();
    let (mut start, mut memory) = (Bound::Unbounded, 0);
    for block in blocks {
        if memory > 0 && memory + block.memory > limit {
            batches.push((start, Bound::Excluded(block.first)));
            (start, memory) = (Bound::Included(block.first), 0);
        }
        memory += block.memory;
    }
    batches.push((start, Bound::Unbounded));
    batches
}

/// Whether an order belongs to a batch.
pub(crate) fn contains(orders: &Orders, order: &Order) -> bool {
    orders.contains(order)
}
