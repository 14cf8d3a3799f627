//! Merging of entries: their pieces in the order of the file, without overlaps.
//!
//! Two stages. Entries are sorted by their hulls; chains of overlapping hulls form *groups*, which
//! do not interleave. An entry alone in its group stays whole: its pieces follow from its view. In
//! a group of several, a sweep over the file merges their pieces and gives each byte to the last
//! write. Only the entries of one group are in work at a time, and of each only the current piece.

use crate::entry::{Entry, Order, Place};
use crate::view::{Segment, Segments};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A contiguous part of the file whose data is contiguous in one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes; never 0.
    pub length: u64,
    /// Place of the first byte.
    pub place: Place,
}

impl Piece {
    /// Offset behind the piece.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// The part from `offset` on, which lies within the piece.
    pub(crate) fn from(self, offset: u64) -> Piece {
        let skipped = offset - self.offset;
        let place = Place { offset: self.place.offset + skipped, ..self.place };
        Piece { offset, length: self.length - skipped, place }
    }

    /// Whether `next` continues this piece in the file and in the log.
    fn continues(&self, next: &Piece) -> bool {
        self.end() == next.offset
            && self.place.log == next.place.log
            && self.place.offset + self.length == next.place.offset
    }
}

/// Pieces of an entry within a range of the file, in the order of the file.
enum EntryPieces<'a> {
    /// The entry's view is ordered.
    Lazy { segments: Segments<'a>, position: u64, place: Place, range: Range<u64> },
    /// Sorted and without overlaps.
    Sorted(std::vec::IntoIter<Piece>),
}

impl<'a> EntryPieces<'a> {
    fn new(entry: &'a Entry, range: &Range<u64>) -> EntryPieces<'a> {
        let (view, first) = (&*entry.view, entry.position);
        let (place, range) = (entry.place, range.clone());
        if view.is_ordered() {
            let end = first + entry.length;
            let from = view.stream_position(range.start).clamp(first, end);
            let to = view.stream_position(range.end).clamp(from, end);
            let segments = view.segments(from, to - from);
            return EntryPieces::Lazy { segments, position: first, place, range };
        }
        let mut pieces: Vec<_> = view
            .segments(first, entry.length)
            .filter_map(|segment| piece_within(segment, first, place, &range))
            .collect();
        if !pieces.is_sorted_by(|a, b| a.end() <= b.offset) {
            pieces = sorted_by_offset(pieces);
        }
        EntryPieces::Sorted(pieces.into_iter())
    }
}

impl Iterator for EntryPieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        match self {
            EntryPieces::Lazy { segments, position, place, range } => {
                segments.find_map(|segment| piece_within(segment, *position, *place, range))
            }
            EntryPieces::Sorted(pieces) => pieces.next(),
        }
    }
}

/// The part of a segment within `range`; the data of stream position `first` is at `place`.
fn piece_within(segment: Segment, first: u64, place: Place, range: &Range<u64>) -> Option<Piece> {
    let (start, end) = (segment.offset.max(range.start), segment.end().min(range.end));
    let place = Place { offset: place.offset + (segment.stream - first), ..place };
    let whole = Piece { offset: segment.offset, length: segment.length, place };
    (start < end).then(|| Piece { length: end - start, ..whole.from(start) })
}

/// Pieces of one entry in the order of the file; the last in the given order wins.
fn sorted_by_offset(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut sweep = Sweep::default();
    for (index, piece) in pieces.into_iter().enumerate() {
        let order = Order { epoch: 0, rank: 0, sequence: index as u64 };
        sweep.add(order, Box::new(std::iter::once(piece)));
    }
    sweep.collect()
}

/// A source of pieces in increasing order, all with one place in the order of writes.
struct Source<'a> {
    order: Order,
    rest: Box<dyn Iterator<Item = Piece> + 'a>,
    /// The piece that is in one of the sweep's heaps.
    piece: Option<Piece>,
}

/// Merges pieces from several sources.
#[derive(Default)]
struct Sweep<'a> {
    sources: Vec<Source<'a>>,
    /// Sources whose piece begins later: (offset, source).
    later: BinaryHeap<Reverse<(u64, usize)>>,
    /// Sources whose piece has begun: the last write first. Sources of equal order do not overlap.
    begun: BinaryHeap<(Order, usize)>,
    /// All bytes of the file below are done.
    at: u64,
}

impl<'a> Sweep<'a> {
    fn add(&mut self, order: Order, rest: Box<dyn Iterator<Item = Piece> + 'a>) {
        self.sources.push(Source { order, rest, piece: None });
        self.advance(self.sources.len() - 1);
    }

    /// Queues the next piece of a source. Pieces that later writes replaced completely are skipped.
    fn advance(&mut self, source: usize) {
        let at = self.at;
        let state = &mut self.sources[source];
        state.piece = state.rest.find(|piece| piece.end() > at);
        if let Some(piece) = state.piece {
            self.later.push(Reverse((piece.offset, source)));
        }
    }

    /// Moves the sources whose piece begins at or below the current offset.
    fn begin_pieces(&mut self) {
        while let Some(Reverse((offset, source))) = self.later.peek().copied() {
            if offset > self.at {
                break;
            }
            self.later.pop();
            self.begun.push((self.sources[source].order, source));
        }
    }
}

impl Iterator for Sweep<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        loop {
            self.begin_pieces();
            let Some((_, source)) = self.begun.peek().copied() else {
                let Reverse((offset, _)) = self.later.peek().copied()?;
                self.at = offset;
                continue;
            };
            let piece = self.sources[source].piece;
            let piece = piece.unwrap_or_else(|| unreachable!("a begun source has a piece"));
            if piece.end() <= self.at {
                self.begun.pop();
                self.advance(source);
                continue;
            }
            let begin = self.later.peek().map_or(u64::MAX, |Reverse((offset, _))| *offset);
            let rest = piece.from(self.at);
            let length = rest.end().min(begin) - self.at;
            self.at += length;
            return Some(Piece { length, ..rest });
        }
    }
}

/// Counts of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// Groups of one entry, which stayed whole.
    pub whole: u64,
    /// Groups of several interleaving entries.
    pub interleaved: u64,
}

/// The pieces of entries within a range of the file: in the order of the file, without overlaps;
/// the last write of each byte wins. Pieces adjacent in file and log are joined.
pub struct Merged<'a> {
    /// Hulls and entries in the order of the file; the next one is last.
    entries: Vec<(Range<u64>, &'a Entry)>,
    range: Range<u64>,
    group: Group<'a>,
    ahead: Option<Piece>,
    counts: MergeCounts,
}

/// The group in work.
enum Group<'a> {
    Whole(EntryPieces<'a>),
    Interleaved(Box<Sweep<'a>>),
}

impl std::fmt::Debug for Merged<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merged").field("left", &self.entries.len()).finish_non_exhaustive()
    }
}

/// Merges entries within a range of the file.
pub fn merge<'a>(entries: impl IntoIterator<Item = &'a Entry>, range: Range<u64>) -> Merged<'a> {
    let mut hulls: Vec<_> = entries
        .into_iter()
        .map(|entry| (entry.hull(), entry))
        .filter(|(hull, _)| hull.start < range.end && range.start < hull.end)
        .collect();
    hulls.sort_by_key(|(hull, entry)| Reverse((hull.start, entry.order)));
    let group = Group::Interleaved(Box::default());
    Merged { entries: hulls, range, group, ahead: None, counts: MergeCounts::default() }
}

impl<'a> Merged<'a> {
    /// Groups so far.
    pub fn counts(&self) -> MergeCounts {
        self.counts
    }

    /// Begins the next group of entries.
    fn next_group(&mut self) -> Option<()> {
        let (hull, first) = self.entries.pop()?;
        let mut end = hull.end;
        let mut group = vec![first];
        while let Some((hull, entry)) = self.entries.pop_if(|(hull, _)| hull.start < end) {
            end = end.max(hull.end);
            group.push(entry);
        }
        self.group = if group.len() == 1 {
            self.counts.whole += 1;
            Group::Whole(EntryPieces::new(first, &self.range))
        } else {
            self.counts.interleaved += 1;
            let mut sweep = Box::<Sweep<'a>>::default();
            for entry in group {
                sweep.add(entry.order, Box::new(EntryPieces::new(entry, &self.range)));
            }
            Group::Interleaved(sweep)
        };
        Some(())
    }

    /// The next piece before joining.
    fn raw(&mut self) -> Option<Piece> {
        loop {
            let piece = match &mut self.group {
                Group::Whole(pieces) => pieces.next(),
                Group::Interleaved(sweep) => sweep.next(),
            };
            match piece {
                Some(piece) => return Some(piece),
                None => self.next_group()?,
            }
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut piece = self.ahead.take().or_else(|| self.raw())?;
        while let Some(next) = self.raw() {
            if !piece.continues(&next) {
                self.ahead = Some(next);
                break;
            }
            piece.length += next.length;
        }
        Some(piece)
    }
}
