//! The valid records of a slot.

use crate::checksum::crc32c_append;
use crate::entry::{Entry, Order, Place};
use crate::format::{Geometry, HEAD_BYTES, Head, Kind, MAX_PART, SlotState};
use crate::log_file::LogFile;
use crate::scan::{Damage, ScannedSlot};
use crate::view::View;
use crate::writer::Sequence;
use std::collections::HashMap;
use std::io;
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
}

struct Walk<'a> {
    window: Window<'a>,
    state: SlotState,
    /// The next record.
    expected: Sequence,
    /// Last record that some record says was durable.
    durable: Sequence,
    views: HashMap<u32, Arc<View>>,
    entries: Vec<Entry>,
    gaps: Vec<Gap>,
}

/// Largest encoded view that is read, in bytes.
const MAX_VIEW_BYTES: u32 = 16 << 20;

/// Finds the valid records of a slot in all its segments.
pub(crate) fn walk_slot(
    file: &dyn LogFile,
    length: u64,
    geometry: Geometry,
    slot: u32,
    state: SlotState,
) -> io::Result<ScannedSlot> {
    let mut walk = Walk {
        window: Window { file, length, salt: geometry.salt, start: 0, bytes: Vec::new() },
        state,
        expected: state.applied + 1,
        durable: state.closed.max(state.durable),
        views: HashMap::new(),
        entries: Vec::new(),
        gaps: Vec::new(),
    };
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
    Ok(walk.finish(slot))
}

impl Walk<'_> {
    /// Reads a segment; the records of the next one begin with `next`.
    fn segment(&mut self, start: u64, end: u64, next: Sequence) -> io::Result<()> {
        self.views.clear();
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
        let sum = self.window.sum(payload, u64::from(head.length))?;
        let is_valid = sum == Some(head.payload_sum) && self.accept(head, payload)?;
        if head.sequence <= self.state.applied {
            return Ok(());
        }
        if head.sequence > self.expected {
            self.gaps.push(Gap { first: self.expected, last: head.sequence - 1, offset });
        }
        self.expected = head.sequence + 1;
        if !is_valid {
            self.gaps.push(Gap { first: head.sequence, last: head.sequence, offset });
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
                    self.entries.push(Entry { order, view, position, length, place });
                }
                Ok(true)
            }
        }
    }

    /// Distinguishes damage of durable records from the end that a crash left.
    fn finish(mut self, slot: u32) -> ScannedSlot {
        if self.durable >= self.expected {
            let (first, last) = (self.expected, self.durable);
            self.gaps.push(Gap { first, last, offset: self.window.length });
        }
        let durable = self.durable;
        let torn =
            self.gaps.iter().find(|gap| gap.last > durable).map(|gap| gap.first.max(durable + 1));
        let end = torn.unwrap_or(self.expected);
        let damage = self.gaps.iter().filter(|gap| gap.first <= durable).map(|gap| Damage {
            first: gap.first,
            last: gap.last.min(durable),
            offset: gap.offset,
        });
        let damage = damage.collect();
        let valid = self.entries.partition_point(|entry| entry.order.sequence < end);
        let dropped = (self.entries.len() - valid) as u64;
        self.entries.truncate(valid);
        ScannedSlot {
            slot,
            rank: self.state.rank,
            applied: self.state.applied,
            last: end - 1,
            closed: self.state.closed > 0,
            entries: self.entries,
            dropped,
            damage,
            state: self.state,
        }
    }
}
