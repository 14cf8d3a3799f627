//! Reads from the log: the entries by the range of the file that they touch.

use crate::entry::{Entry, Order};
use crate::merge::{Merged, Piece, merge};
use std::collections::BTreeMap;
use std::ops::Range;

/// An interval index of entries. Entries are kept whole: its memory grows with their number, not
/// with the number of their pieces.
///
/// Level n holds the entries whose hulls have at most 2^n bytes, by the start of the hull, so that
/// those which touch a range begin in a range that is at most 2^n bytes longer.
#[derive(Debug, Default)]
pub struct Index {
    levels: BTreeMap<u32, Level>,
}

/// Entries and the ends of their hulls, by the start of the hull.
type Level = BTreeMap<(u64, Order), (u64, Entry)>;

/// The level of an entry with this hull.
fn level(hull: &Range<u64>) -> u32 {
    u64::BITS - (hull.end - hull.start).leading_zeros()
}

impl Index {
    /// An empty index.
    pub fn new() -> Index {
        Index::default()
    }

    /// Adds an entry. An entry of the same order is replaced.
    pub fn insert(&mut self, entry: Entry) {
        let hull = entry.hull();
        let entries = self.levels.entry(level(&hull)).or_default();
        entries.insert((hull.start, entry.order), (hull.end, entry));
    }

    /// Removes an entry.
    pub fn remove(&mut self, entry: &Entry) {
        let hull = entry.hull();
        let level = level(&hull);
        let Some(entries) = self.levels.get_mut(&level) else { return };
        entries.remove(&(hull.start, entry.order));
        if entries.is_empty() {
            self.levels.remove(&level);
        }
    }

    /// Removes the entries of a rank up to a sequence number, because the file contains them.
    pub fn remove_through(&mut self, rank: u32, sequence: u64) {
        for entries in self.levels.values_mut() {
            entries.retain(|(_, order), _| order.rank != rank || order.sequence > sequence);
        }
        self.levels.retain(|_, entries| !entries.is_empty());
    }

    /// Removes the entries of epochs below this one, because the file contains them.
    pub fn remove_before(&mut self, epoch: u64) {
        for entries in self.levels.values_mut() {
            entries.retain(|(_, order), _| order.epoch >= epoch);
        }
        self.levels.retain(|_, entries| !entries.is_empty());
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.levels.clear();
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.levels.values().map(BTreeMap::len).sum()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// The entries whose hulls touch a range of the file.
    pub fn touching(&self, range: Range<u64>) -> impl Iterator<Item = &Entry> {
        self.levels.iter().flat_map(move |(level, entries)| {
            let longest = 1_u64.checked_shl(*level).unwrap_or(u64::MAX);
            let first = Order { epoch: 0, rank: 0, sequence: 0 };
            let from = (range.start.saturating_sub(longest), first);
            let (start, end) = (range.start, range.end.max(range.start));
            let near = entries.range(from..).take_while(move |((at, _), _)| *at < end);
            near.filter(move |(_, (hull_end, _))| *hull_end > start).map(|(_, (_, entry))| entry)
        })
    }

    /// The logged bytes of a range of the file: pieces in the order of the file, without overlaps,
    /// the last write of each byte. Bytes between them are those of the file itself.
    pub fn overlay(&self, range: Range<u64>) -> Vec<Piece> {
        self.pieces(range).collect()
    }

    /// As [`Index::overlay`], one after another.
    pub fn pieces(&self, range: Range<u64>) -> Merged<'_> {
        merge(self.touching(range.clone()), range)
    }

    /// At most `limit` ranges of the file that contain all entries, in increasing order: a summary
    /// for other ranks, which need the entries only if a read or write of theirs touches it.
    ///
    /// # Panics
    /// If `limit` is 0.
    pub fn cover(&self, limit: usize) -> Vec<Range<u64>> {
        assert!(limit > 0, "a cover needs at least one range");
        let all = self.levels.values().flatten();
        let mut hulls: Vec<_> = all.map(|((start, _), (end, _))| *start..*end).collect();
        hulls.sort_by_key(|hull| hull.start);
        let mut cover: Vec<Range<u64>> = Vec::new();
        for hull in hulls {
            match cover.last_mut() {
                Some(last) if hull.start <= last.end => last.end = last.end.max(hull.end),
                Some(_) | None => cover.push(hull),
            }
        }
        if cover.len() <= limit {
            return cover;
        }
        // The widest gaps stay.
        let mut gaps: Vec<usize> = (1..cover.len()).collect();
        gaps.sort_by_key(|at| (std::cmp::Reverse(cover[*at].start - cover[*at - 1].end), *at));
        gaps.truncate(limit - 1);
        gaps.sort_unstable();
        let starts = std::iter::once(0).chain(gaps.iter().copied());
        let ends = gaps.iter().copied().chain([cover.len()]);
        starts.zip(ends).map(|(from, to)| cover[from].start..cover[to - 1].end).collect()
    }
}
