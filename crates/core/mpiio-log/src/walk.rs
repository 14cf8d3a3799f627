//! The valid records of a slot.

use crate::batches::{EntryBlock, EntryMemory, Orders, Outline, contains};
use crate::checksum::crc32c_append;
use crate::entry::{Entry, Order, Place};
use crate::format::{Geometry, HEAD_BYTES, Head, Kind, MAX_PART, SlotState};
use crate::log_file::LogFile;
use crate::scan::{Damage, ScannedSlot};
use crate::view::{MAX_LOGGED_VIEW, View};
use crate::writer::Sequence;
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that are read at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// A file that is read in windows.
struct Window<'a> {
    file: &'a dyn LogFile,
    /// Length of the file.
    length: u64,
    salt: u32,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// The bytes from `offset` on: at least `least`, which is at most `WINDOW_BYTES`, unless the file
    /// ends before.
    fn at(&mut self, offset: u64, least: usize) -> io::Result<&[u8]> {
        let end = (offset + least as u64).min(self.length);
        if offset < self.start || end > self.start + self.bytes.len() as u64 {
            let length = self.length.saturating_sub(offset).min(WINDOW_BYTES as u64);
            self.bytes.resize(length as usize, 0);
            self.file.read_range(&mut self.bytes, offset)?;
            self.start = offset;
        }
        let from = ((offset - self.start) as usize).min(self.bytes.len());
        Ok(&self.bytes[from..])
    }

    fn head(&mut self, offset: u64) -> io::Result<Option<Head>> {
        let salt = self.salt;
        Ok(Head::decode(self.at(offset, HEAD_BYTES)?, salt))
    }

    /// CRC-32C of a range; `None` if the file ends before.
    fn sum(&mut self, mut offset: u64, length: u64) -> io::Result<Option<u32>> {
        let (mut sum, end) = (0, offset + length);
        while offset < end {
            let bytes = self.at(offset, 1)?;
            let bytes = &bytes[..bytes.len().min((end - offset) as usize)];
            if bytes.is_empty() {
                return Ok(None);
            }
            sum = crc32c_append(sum, bytes);
            offset += bytes.len() as u64;
        }
        Ok(Some(sum))
    }
}

/// A record that was expected and is not valid.
struct Gap {
    first: Sequence,
    last: Sequence,
    offset: u64,
    /// Entries before it, and their bytes of data.
    before: (u64, u64),
}

/// The entries of a walk, or what is known of them if they need too much memory.
struct Entries {
    kept: Vec<Entry>,
    /// Those that are wanted.
    orders: Orders,
    /// Bytes of memory of those that were found, and most bytes for those that are kept.
    memory: u64,
    limit: u64,
    /// Bytes of memory of a block.
    block_bytes: u64,
    outline: Outline,
    /// Views of the entries of the last block.
    block_views: HashSet<u32>,
}

impl Entries {
    fn new(orders: Orders, limit: u64, block_bytes: u64) -> Entries {
        Entries {
            kept: Vec::new(),
            orders,
            memory: 0,
            limit,
            block_bytes,
            outline: Outline::default(),
            block_views: HashSet::new(),
        }
    }

    /// Entries, and their bytes of data.
    fn count(&self) -> (u64, u64) {
        (self.outline.entries, self.outline.bytes)
    }

    /// Adds an entry through the view with a number.
    fn add(&mut self, entry: Entry, view: u32) {
        if !contains(&self.orders, &entry.order) {
            return;
        }
        self.outline.entries += 1;
        self.outline.bytes += entry.length;
        self.outline.last_epoch = self.outline.last_epoch.max(entry.order.epoch);
        let bytes = self.block_bytes;
        if self.outline.blocks.last().is_none_or(|block| block.memory >= bytes) {
            self.outline.blocks.push(EntryBlock { first: entry.order, memory: 0 });
            self.block_views.clear();
        }
        let mut memory = size_of::<Entry>() as u64;
        if self.block_views.insert(view) {
            memory += entry.view.memory();
        }
        if let Some(block) = self.outline.blocks.last_mut() {
            block.memory += memory;
        }
        let fitted = self.fit();
        self.memory += memory;
        if self.fit() {
            self.kept.push(entry);
        } else if fitted {
            self.kept = Vec::new();
        }
    }

    /// Whether all entries so far fit into memory.
    fn fit(&self) -> bool {
        self.memory <= self.limit
    }
}

struct Walk<'a> {
    window: Window<'a>,
    state: SlotState,
    /// The next record.
    expected: Sequence,
    /// Last record that some record says was durable.
    durable: Sequence,
    /// The views of the current segment.
    views: HashMap<u32, Arc<View>>,
    /// Bytes of memory that they need.
    view_memory: u64,
    entries: Entries,
    gaps: Vec<Gap>,
}

/// Largest encoded view that is read, in bytes.
const MAX_VIEW_BYTES: u32 = 16 << 20;
/// Most bytes of memory for the views of a segment. The bytes of segments that the interception library
/// writes are too few for more.
const MAX_SEGMENT_VIEWS: u64 = 5 * MAX_LOGGED_VIEW;

/// Finds the valid records of a slot in all its segments.
pub(crate) fn walk_slot(
    file: &dyn LogFile,
    length: u64,
    geometry: Geometry,
    slot: u32,
    state: SlotState,
    memory: &mut EntryMemory,
) -> io::Result<ScannedSlot> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let entries = Entries::new(all, memory.left(), memory.block_bytes());
    let mut walk = Walk::new(file, length, geometry.salt, state, entries);
    let mut segments = Vec::new();
    for index in 0.. {
        let offset = geometry.segment_offset(slot, index);
        if offset >= length {
            break;
        }
        let head = walk.window.head(offset)?;
        let is_start =
            |head: &Head| (head.kind, head.view, head.position) == (Kind::Segment, slot, index);
        if let Some(head) = head.filter(is_start) {
            segments.push((head.sequence, offset));
        }
    }
    segments.sort_unstable();
    for (index, (_, offset)) in segments.iter().enumerate() {
        let next = segments.get(index + 1).map_or(Sequence::MAX, |(first, _)| *first);
        if next > state.applied + 1 {
            walk.segment(*offset, *offset + geometry.segment_bytes, next)?;
        }
    }
    if walk.entries.fit() {
        memory.take(walk.entries.memory);
    }
    walk.entries.outline.segments = segments;
    Ok(walk.finish(slot))
}

/// Reads the entries with certain orders in segments, which are given by their offsets and the sequence
/// numbers behind them. They need at most `limit` bytes of memory, of which the rest is left.
pub(crate) fn read_entries(
    file: &dyn LogFile,
    geometry: Geometry,
    state: SlotState,
    segments: impl IntoIterator<Item = (u64, Sequence)>,
    orders: &Orders,
    limit: &mut u64,
) -> io::Result<Vec<Entry>> {
    let entries = Entries::new(*orders, *limit, u64::MAX);
    let mut walk = Walk::new(file, file.length()?, geometry.salt, state, entries);
    for (offset, next) in segments {
        walk.segment(offset, offset + geometry.segment_bytes, next)?;
        if !walk.entries.fit() {
            return Err(io::Error::other(
                "its logs are not applied, because few of their writes need more memory than may be \
                 used for them; 'forebay log check' shows whether they are damaged",
            ));
        }
    }
    *limit -= walk.entries.memory;
    Ok(walk.entries.kept)
}

impl<'a> Walk<'a> {
    fn new(
        file: &'a dyn LogFile,
        length: u64,
        salt: u32,
        state: SlotState,
        entries: Entries,
    ) -> Walk<'a> {
        Walk {
            window: Window { file, length, salt, start: 0, bytes: Vec::new() },
            state,
            expected: state.applied + 1,
            durable: state.closed.max(state.durable),
            views: HashMap::new(),
            view_memory: 0,
            entries,
            gaps: Vec::new(),
        }
    }

    /// Reads a segment; the records of the next one begin with `next`.
    fn segment(&mut self, start: u64, end: u64, next: Sequence) -> io::Result<()> {
        self.views.clear();
        self.view_memory = 0;
        self.entries.block_views.clear();
        let mut before = 0;
        let mut offset = start;
        while offset + HEAD_BYTES as u64 <= end {
            // Records of an earlier use of the segment have smaller numbers.
            let head = self.window.head(offset)?.filter(|head| {
                (before + 1..next).contains(&head.sequence) && offset + head.record_bytes() <= end
            });
            match head {
                Some(head) => {
                    before = head.sequence;
                    self.record(&head, offset)?;
                    offset += head.record_bytes();
                }
                // Behind damage: the next record begins at one of the next multiples of 8.
                None => offset += 8,
            }
        }
        Ok(())
    }

    fn record(&mut self, head: &Head, offset: u64) -> io::Result<()> {
        self.durable = self.durable.max(head.durable);
        let payload = offset + HEAD_BYTES as u64;
        let before = self.entries.count();
        let sum = self.window.sum(payload, u64::from(head.length))?;
        let is_valid = sum == Some(head.payload_sum) && self.accept(head, payload)?;
        if head.sequence <= self.state.applied {
            return Ok(());
        }
        if head.sequence > self.expected {
            let (first, last) = (self.expected, head.sequence - 1);
            self.gaps.push(Gap { first, last, offset, before });
        }
        self.expected = head.sequence + 1;
        if !is_valid {
            self.gaps.push(Gap { first: head.sequence, last: head.sequence, offset, before });
        }
        Ok(())
    }

    /// Takes a record whose checksums are right. Returns false if it makes no sense.
    fn accept(&mut self, head: &Head, payload: u64) -> io::Result<bool> {
        match head.kind {
            Kind::Segment => Ok(true),
            Kind::View if head.length > MAX_VIEW_BYTES => Ok(false),
            Kind::View => {
                let mut bytes = vec![0; head.length as usize];
                self.window.file.read_range(&mut bytes, payload)?;
                let Ok(view) = View::decode(&bytes) else { return Ok(false) };
                self.view_memory += view.memory();
                if self.view_memory > MAX_SEGMENT_VIEWS {
                    return Ok(false);
                }
                self.entries.block_views.remove(&head.view);
                self.views.insert(head.view, Arc::new(view));
                Ok(true)
            }
            Kind::Write if u64::from(head.length) > MAX_PART => Ok(false),
            Kind::Write => {
                let (position, length) = (head.position, u64::from(head.length));
                let view = self.views.get(&head.view);
                let Some(view) = view.filter(|view| view.contains(position, length)) else {
                    return Ok(false);
                };
                if head.sequence > self.state.applied {
                    let (epoch, rank) = (head.epoch, self.state.rank);
                    let order = Order { epoch, rank, sequence: head.sequence };
                    let (view, place) = (Arc::clone(view), Place { log: 0, offset: payload });
                    self.entries.add(Entry { order, view, position, length, place }, head.view);
                }
                Ok(true)
            }
        }
    }

    /// Distinguishes damage of durable records from the end that a crash left.
    fn finish(mut self, slot: u32) -> ScannedSlot {
        if self.durable >= self.expected {
            let (first, last) = (self.expected, self.durable);
            let before = self.entries.count();
            self.gaps.push(Gap { first, last, offset: self.window.length, before });
        }
        let durable = self.durable;
        let torn = self.gaps.iter().find(|gap| gap.last > durable);
        let end = torn.map_or(self.expected, |gap| gap.first.max(durable + 1));
        let valid = torn.map_or(self.entries.count(), |gap| gap.before);
        let damage = self.gaps.iter().filter(|gap| gap.first <= durable).map(|gap| Damage {
            first: gap.first,
            last: gap.last.min(durable),
            offset: gap.offset,
        });
        let damage = damage.collect();
        let is_kept = self.entries.fit();
        let Entries { mut kept, mut outline, .. } = self.entries;
        let dropped = outline.entries - valid.0;
        (outline.entries, outline.bytes) = valid;
        outline.blocks.retain(|block| block.first.sequence < end);
        kept.retain(|entry| entry.order.sequence < end);
        ScannedSlot {
            slot,
            rank: self.state.rank,
            applied: self.state.applied,
            last: end - 1,
            closed: self.state.closed > 0,
            entries: kept,
            outline: (!is_kept).then_some(outline),
            dropped,
            damage,
            state: self.state,
        }
    }
}
