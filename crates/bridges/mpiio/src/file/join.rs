//! Entries of writes past the log, joined into few: a program may write any number of times after its
//! log is full, and without a collective call that would empty it.
//!
//! The data of these entries is in the file; they only hide older entries of the logs. Between two
//! collective calls nothing but entries of this process's log comes in their order, so that those
//! without one between them hide the same as one entry with all their bytes.

use super::{COLLECTIVE, IN_FILE};
use forebay_mpiio_log::{Block, Datatype, Entry, Place, View};
use std::sync::Arc;

/// Most runs of a joined entry: more entries than that are several ones.
const MAX_RUNS: usize = 1 << 20;

/// Entries that were joined.
#[derive(Debug, Default)]
pub struct Joined {
    /// The entries, and those that could not be joined.
    pub entries: Vec<Entry>,
    /// Runs whose places are kept one by one.
    pub runs: usize,
}

/// Joins entries of a process whose data is in the file. `logged` are those of its log, in their
/// order.
pub fn join(mut entries: Vec<Entry>, logged: &[Entry]) -> Joined {
    entries.sort_by_key(|entry| entry.order);
    let group = |entry: &Entry| {
        let before = logged.partition_point(|logged| logged.order < entry.order);
        (entry.order.epoch / COLLECTIVE, before)
    };
    let mut joined = Joined::default();
    for group in entries.chunk_by(|one, next| group(one) == group(next)) {
        let mut rest = group;
        while !rest.is_empty() {
            let (count, runs) = runs(rest);
            let (first, others) = rest.split_at(count);
            rest = others;
            joined.add(first, runs);
        }
    }
    joined
}

impl Joined {
    /// Adds consecutive entries, which have these runs.
    fn add(&mut self, entries: &[Entry], runs: Vec<(u64, u64)>) {
        let Some(last) = entries.last() else { return };
        let count = runs.len();
        let entry = if count <= 2 * entries.len() { entry(last, runs) } else { None };
        match entry {
            Some((entry, regular)) => {
                self.entries.push(entry);
                self.runs += if regular { 0 } else { count };
            }
            None => self.entries.extend_from_slice(entries),
        }
    }
}

/// The runs of the first entries, sorted and joined: at most [`MAX_RUNS`] before that, or those of one
/// entry. Returns the number of entries, too.
fn runs(entries: &[Entry]) -> (usize, Vec<(u64, u64)>) {
    let mut runs = Vec::new();
    let mut count = 0;
    for entry in entries {
        let limit = MAX_RUNS.saturating_sub(runs.len());
        let segments = entry.view.segments(entry.position, entry.length);
        let before = runs.len();
        runs.extend(segments.take(limit + 1).map(|part| (part.offset, part.end())));
        if runs.len() - before > limit {
            // One with so many pieces stays as it is.
            let alone = count == 0;
            runs.truncate(if alone { MAX_RUNS } else { before });
            count += usize::from(alone);
            break;
        }
        count += 1;
    }
    runs.sort_unstable();
    runs.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
    (count, runs)
}

/// An entry with these runs and the order of `last`, and whether they are at equal distances. `None`
/// if a view cannot describe them.
fn entry(last: &Entry, runs: Vec<(u64, u64)>) -> Option<(Entry, bool)> {
    let (start, first_end) = *runs.first()?;
    let block = first_end - start;
    let stride = runs.get(1).map_or(block, |second| second.0 - start);
    let is_regular = runs
        .iter()
        .enumerate()
        .all(|(index, run)| run.0 - start == stride * index as u64 && run.1 - run.0 == block);
    let element = Arc::new(Datatype::Bytes(1));
    let filetype = if is_regular {
        let (count, stride) = (runs.len() as u64, i64::try_from(stride).ok()?);
        Datatype::Vector { count, block, stride, element }
    } else {
        let block = |(from, to): &(u64, u64)| Block {
            displacement: (from - start) as i64,
            length: to - from,
        };
        Datatype::Indexed { blocks: runs.iter().map(block).collect(), element }
    };
    let length = runs.iter().map(|(from, to)| to - from).sum();
    drop(runs);
    let view = Arc::new(View::new(start, filetype).ok()?);
    let place = Place { log: IN_FILE, offset: 0 };
    Some((Entry { order: last.order, view, position: 0, length, place }, is_regular))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_mpiio_log::{Index, Order};

    fn order(epoch: u64, sequence: u64) -> Order {
        Order { epoch, rank: 1, sequence }
    }

    fn at(order: Order, offset: u64, length: u64, log: u32) -> Entry {
        let view = Arc::new(View::bytes(0));
        Entry { order, view, position: offset, length, place: Place { log, offset } }
    }

    /// The first bytes in an index: places of those that are not in the file.
    fn shown(entries: &[Entry]) -> Vec<Option<u64>> {
        let mut index = Index::new();
        entries.iter().for_each(|entry| index.insert(entry.clone()));
        let mut shown = vec![None; 600];
        for piece in index.overlay(0..600) {
            for byte in 0..piece.length {
                let source = (piece.place.log != IN_FILE).then_some(piece.place.offset + byte);
                shown[(piece.offset + byte) as usize] = source;
            }
        }
        shown
    }

    #[test]
    fn joined_entries_hide_what_the_entries_hid() {
        for seed in 0..200_u64 {
            let mut state = seed;
            let mut random = |bound: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1442695);
                (state >> 33) % bound
            };
            let (mut past, mut logged, mut others) = (Vec::new(), Vec::new(), Vec::new());
            for step in 1..60 {
                let epoch = step / 20 * COLLECTIVE + step;
                let (offset, length) = (random(500), 1 + random(40));
                match random(6) {
                    0 => logged.push(at(order(epoch, step), offset, length, 1)),
                    1 => {
                        // What others have written is known up to the last collective call.
                        let order =
                            Order { epoch: step / 20 * COLLECTIVE, rank: 0, sequence: step };
                        others.push(at(order, offset, length, 0));
                    }
                    _ => past.push(at(order(epoch, step), offset, length, IN_FILE)),
                }
            }
            let count = past.len();
            let before = [&past[..], &logged, &others].concat();
            let joined = join(past, &logged).entries;
            assert!(joined.len() < count, "seed {seed}");
            let after = [&joined[..], &logged, &others].concat();
            assert_eq!(shown(&before), shown(&after), "seed {seed}");
        }
    }

    #[test]
    fn entries_at_equal_distances_become_one_of_constant_size() {
        let entries = |step: u64| -> Vec<Entry> {
            (0..1000).map(|i| at(order(5 + i, 3), i * step + i % 7 / 6, 8, IN_FILE)).collect()
        };
        let irregular = join(entries(16), &[]);
        assert_eq!((irregular.entries.len(), irregular.runs), (1, 1000));
        let regular: Vec<_> =
            (0..1000).map(|i| at(order(5 + i, 3), 100 + i * 16, 8, IN_FILE)).collect();
        let joined = join(regular, &[]);
        assert_eq!((joined.entries.len(), joined.runs), (1, 0));
        assert!(joined.entries[0].view.memory() < 1000);
        assert_eq!(joined.entries[0].hull(), 100..100 + 999 * 16 + 8);
    }
}
