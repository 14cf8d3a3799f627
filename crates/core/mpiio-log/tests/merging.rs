//! Merging, reads from the log and planned writes, compared with a byte-by-byte model.

use crate::random;
use forebay_mpiio_log::{
    Alignment, Block, DataSource, Datatype, Entry, Index, MergedWrite, Order, Piece, Place, Target,
    View, apply, decode_entries, encode_entries, gather, merge, plan, write_merged,
};
use forebay_random::RandomSequence;
use random::{below, offset, type_map, view};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The byte at a place: all places of a test differ as far as a byte can.
fn byte_at(place: Place) -> u8 {
    (place.offset ^ (place.offset >> 8) ^ u64::from(place.log) << 5) as u8
}

/// Logs whose bytes are `byte_at`.
struct Logs;

impl DataSource for Logs {
    fn read_at(&self, place: Place, buffer: &mut [u8]) -> io::Result<()> {
        for (byte, offset) in buffer.iter_mut().zip(place.offset..) {
            *byte = byte_at(Place { offset, ..place });
        }
        Ok(())
    }
}

/// A file that records the writes to it.
#[derive(Default)]
struct Recorder(RefCell<Vec<(u64, Vec<u8>)>>);

impl Target for Recorder {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.borrow_mut().push((offset, data.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Random writes of three ranks, in random order, and the place of each byte of the file by the
/// rule that the last write wins.
fn entries(seed: u64) -> (Vec<Entry>, BTreeMap<u64, Place>) {
    let mut random = RandomSequence::new(seed);
    let mut any_view = || {
        let ordered = below(&mut random, 4) > 0;
        Arc::new(view(&mut random, ordered))
    };
    let views = [any_view(), any_view(), any_view()];
    let mut entries = Vec::new();
    let mut log = 0;
    for sequence in 1..1 + below(&mut random, 12) {
        let view = &views[below(&mut random, 3) as usize];
        let order =
            Order { epoch: below(&mut random, 3), rank: below(&mut random, 3) as u32, sequence };
        let length = 1 + below(&mut random, 40);
        let place = Place { log: order.rank, offset: log };
        log += length + below(&mut random, 3) * 4000;
        let position = below(&mut random, 80);
        entries.push(Entry { order, view: Arc::clone(view), position, length, place });
    }
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| entry.order);
    let mut file = BTreeMap::new();
    for entry in sorted {
        let map = type_map(entry.view.filetype());
        for i in 0..entry.length {
            let place = Place { offset: entry.place.offset + i, ..entry.place };
            file.insert(offset(&entry.view, &map, entry.position + i), place);
        }
    }
    (entries, file)
}

/// Bytes of pieces by their offsets in the file.
fn places(pieces: impl IntoIterator<Item = forebay_mpiio_log::Piece>) -> Vec<(u64, Place)> {
    let byte = |piece: forebay_mpiio_log::Piece, i| {
        (piece.offset + i, Place { offset: piece.place.offset + i, ..piece.place })
    };
    pieces.into_iter().flat_map(|piece| (0..piece.length).map(move |i| byte(piece, i))).collect()
}

fn range_of(file: &BTreeMap<u64, Place>, range: Range<u64>) -> Vec<(u64, Place)> {
    file.range(range).map(|(offset, place)| (*offset, *place)).collect()
}

#[test]
fn merged_pieces_are_those_of_the_last_writes() {
    let (mut whole, mut interleaved) = (0, 0);
    for seed in 0..4000 {
        let (entries, file) = entries(seed);
        let mut merged = merge(&entries, 0..u64::MAX);
        assert_eq!(places(&mut merged), range_of(&file, 0..u64::MAX), "seed {seed}");
        whole += merged.counts().whole;
        interleaved += merged.counts().interleaved;
        let mut random = RandomSequence::new(seed);
        let start = below(&mut random, 200);
        let range = start..start + below(&mut random, 100);
        let part = places(merge(&entries, range.clone()));
        assert_eq!(part, range_of(&file, range), "seed {seed}");
    }
    assert!(whole > 500 && interleaved > 500, "{whole} whole, {interleaved} interleaved");
}

#[test]
fn index_overlays_the_last_writes_on_a_read() {
    for seed in 0..2000 {
        let (entries, file) = entries(seed);
        let mut index = Index::new();
        for entry in &entries {
            index.insert(entry.clone());
        }
        assert_eq!(index.len(), entries.len());
        for start in (0..300).step_by(7) {
            let range = start..start + 1 + seed % 50;
            assert_eq!(places(index.overlay(range.clone())), range_of(&file, range), "seed {seed}");
        }
        let cover = index.cover(3);
        assert!(cover.len() <= 3 && cover.windows(2).all(|pair| pair[0].end < pair[1].start));
        let covered = |offset: &u64| cover.iter().any(|range| range.contains(offset));
        assert!(file.keys().all(covered), "seed {seed}: {cover:?}");
        index.remove_through(0, 5);
        let stays = |e: &&Entry| e.order.rank != 0 || e.order.sequence > 5;
        assert_eq!(index.len(), entries.iter().filter(stays).count());
    }
}

#[test]
fn planned_writes_are_contiguous_aligned_and_contain_the_last_data() {
    for seed in 0..2000 {
        let (entries, file) = entries(seed);
        let alignment = Alignment { stripe: 1 + seed % 32, largest: 1 + seed % 100 };
        let mut end = 0;
        for write in plan(&entries, 0..u64::MAX, alignment) {
            assert!(write.length <= alignment.largest);
            let is_cut = write.offset == end && end > 0;
            assert!(
                !is_cut || write.offset % alignment.stripe == 0 || alignment.largest < 32,
                "seed {seed}: a cut inside a stripe"
            );
            end = write.offset + write.length;
        }
        let target = Recorder::default();
        let applied = apply(plan(&entries, 0..u64::MAX, alignment), &Logs, &target).unwrap();
        let writes = target.0.into_inner();
        assert_eq!(applied.writes, writes.len() as u64);
        let written: Vec<(u64, u8)> = writes
            .iter()
            .flat_map(|(offset, data)| (*offset..).zip(data.iter().copied()))
            .collect();
        let expected: Vec<(u64, u8)> =
            file.iter().map(|(offset, place)| (*offset, byte_at(*place))).collect();
        assert_eq!(written, expected, "seed {seed}");
        assert_eq!(applied.bytes, expected.len() as u64);
    }
}

/// A write of `rank` whose data begins at `log` in its log.
/// The bytes of a file that had `before`, and what the writes of a plan with gaps wrote to it.
fn written_with_gaps(
    entries: &[Entry],
    before: &[u8],
    alignment: Alignment,
    gap: u64,
    readable: bool,
) -> (Vec<u8>, u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, before).unwrap();
    let file = std::fs::OpenOptions::new().read(readable).write(true).open(&path).unwrap();
    let writes = plan(entries, 0..u64::MAX, alignment);
    let applied = write_merged(writes, alignment, gap, &Logs, &file).unwrap();
    (std::fs::read(&path).unwrap(), applied.writes)
}

#[test]
fn gaps_that_are_written_with_the_data_keep_what_the_file_has() {
    let (mut alone, mut joined) = (0, 0);
    for seed in 0..500 {
        let (entries, file) = entries(seed);
        let mut random = RandomSequence::new(seed);
        let before: Vec<u8> = (0..below(&mut random, 300)).map(|i| 200 ^ i as u8).collect();
        let mut expected = before.clone();
        for (offset, place) in &file {
            expected.resize(expected.len().max(*offset as usize + 1), 0);
            expected[*offset as usize] = byte_at(*place);
        }
        let largest = 1 + below(&mut random, 200);
        let alignment = Alignment { stripe: 1 + below(&mut random, 20), largest };
        for gap in [0, 1, 8, 1000] {
            let (found, writes) = written_with_gaps(&entries, &before, alignment, gap, true);
            assert_eq!(found, expected, "seed {seed}, gap {gap}");
            *if gap == 0 { &mut alone } else { &mut joined } += writes;
            // A file that cannot be read is written in single writes.
            let (found, single) = written_with_gaps(&entries, &before, alignment, gap, false);
            assert_eq!(found, expected, "seed {seed}, gap {gap}");
            assert!(single >= writes, "seed {seed}, gap {gap}");
        }
    }
    assert!(joined < 2 * alone, "{joined} joined writes of three gaps, {alone} single ones");
}

fn entry(view: &Arc<View>, rank: u32, position: u64, length: u64, log: u64) -> Entry {
    let order = Order { epoch: 0, rank, sequence: log + 1 };
    let place = Place { log: rank, offset: log };
    Entry { order, view: Arc::clone(view), position, length, place }
}

#[test]
fn strided_writes_of_four_ranks_become_large_writes() {
    // 16 writes of 64 KiB of each of 4 ranks, round-robin: 4 MiB without holes.
    let bytes = Arc::new(View::bytes(0));
    let block =
        |rank: u32, i: u64| entry(&bytes, rank, (i * 4 + u64::from(rank)) << 16, 1 << 16, i << 16);
    let entries: Vec<_> = (0..4).flat_map(|rank| (0..16).map(move |i| (rank, i))).collect();
    let entries: Vec<_> = entries.into_iter().map(|(rank, i)| block(rank, i)).collect();
    let alignment = Alignment { stripe: 1 << 20, largest: 2 << 20 };
    let writes: Vec<_> = plan(&entries, 0..u64::MAX, alignment).collect();
    let ranges: Vec<_> = writes.iter().map(|write| (write.offset, write.length)).collect();
    assert_eq!(ranges, [(0, 2 << 20), (2 << 20, 2 << 20)]);
    assert_eq!(writes[0].pieces.len(), 32);
    // Rank 0 alone: its blocks stay apart.
    assert_eq!(plan(&entries[..16], 0..u64::MAX, alignment).count(), 16);
}

#[test]
fn long_write_ends_at_boundaries_of_stripes() {
    let bytes = Arc::new(View::bytes(0));
    let entries = [entry(&bytes, 0, 700, 5000, 0)];
    let alignment = Alignment { stripe: 1000, largest: 2500 };
    let writes: Vec<_> =
        plan(&entries, 0..u64::MAX, alignment).map(|w| (w.offset, w.length)).collect();
    // 700 + 2500 reaches beyond 3000, 3000 + 2500 beyond 5000.
    assert_eq!(writes, [(700, 2300), (3000, 2000), (5000, 700)]);
}

#[test]
fn subarrays_of_two_ranks_interleave_row_by_row() {
    // The left and the right half of a matrix of 100 x 64 bytes.
    let half = |start| {
        let part = Datatype::subarray(&[100, 64], &[100, 32], &[0, start], 1).unwrap();
        Arc::new(View::new(0, part).unwrap())
    };
    let entries = [entry(&half(0), 0, 0, 3200, 0), entry(&half(32), 1, 0, 3200, 0)];
    let mut plan = plan(&entries, 0..u64::MAX, Alignment::default());
    let write = plan.next().unwrap();
    assert_eq!((write.offset, write.length, write.pieces.len()), (0, 6400, 200));
    assert_eq!(plan.next(), None);
    assert_eq!((plan.counts().whole, plan.counts().interleaved), (0, 1));
}

#[test]
fn entries_survive_the_way_to_other_ranks() {
    for seed in 0..500 {
        let (entries, _) = entries(seed);
        let bytes = encode_entries(&entries);
        assert_eq!(decode_entries(&bytes).unwrap(), entries);
        for length in 0..bytes.len() {
            assert!(decode_entries(&bytes[..length]).is_err());
        }
    }
}

#[test]
fn file_type_at_several_places_is_sent_once() {
    let blocks: Vec<_> = (0..1000).map(|i| Block { displacement: i * i * 8, length: 1 }).collect();
    let element = Arc::new(Datatype::Bytes(8));
    let first = View::new(0, Datatype::Indexed { blocks, element }).unwrap();
    let views = |count: u64| -> Vec<Entry> {
        let at = |i: u64| Arc::new(first.at(i << 24).unwrap());
        (0..count).map(|i| entry(&at(i), 0, 0, 8000, i + 1)).collect()
    };
    let (one, many) = (encode_entries(&views(1)), encode_entries(&views(30)));
    assert!(many.len() < 2 * one.len(), "{} bytes instead of {}", many.len(), one.len());
    assert_eq!(decode_entries(&many).unwrap(), views(30));
}

/// Logs in memory.
struct Memory(Vec<Vec<u8>>);

impl DataSource for Memory {
    fn read_at(&self, place: Place, buffer: &mut [u8]) -> io::Result<()> {
        let start = place.offset as usize;
        let log = self.0.get(place.log as usize);
        let data = log.and_then(|log| log.get(start..start + buffer.len()));
        buffer.copy_from_slice(data.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[test]
fn data_of_pieces_of_all_lengths_comes_from_their_places() {
    for seed in 0..4 {
        let mut random = RandomSequence::new(seed);
        let mut logs: Vec<Vec<u8>> = vec![Vec::new(); 3];
        let (mut pieces, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let log = below(&mut random, 3) as usize;
            // Heads of records and what was overwritten lie between.
            let gap = [8, 64, 5000][below(&mut random, 3) as usize];
            let least = [1, 100, 9000, 20_000][below(&mut random, 4) as usize];
            let length = least + below(&mut random, least);
            let start = logs[log].len() + gap;
            logs[log].resize(start, 0xff);
            let place = Place { log: log as u32, offset: start as u64 };
            let data: Vec<u8> =
                (0..length).map(|at| ((at * 31 + start as u64) % 251) as u8).collect();
            logs[log].extend_from_slice(&data);
            pieces.push((place, data));
        }
        // Not in the order of the logs.
        for at in (1..pieces.len()).rev() {
            pieces.swap(at, below(&mut random, at as u64 + 1) as usize);
        }
        let mut writes = Vec::new();
        for (place, data) in pieces {
            let (offset, length) = (expected.len() as u64, data.len() as u64);
            let pieces = vec![Piece { offset, length, place }];
            writes.push(MergedWrite { offset, length, pieces });
            expected.extend(data);
        }
        let mut found = vec![1; 10];
        gather(&Memory(logs), &writes, &mut found).unwrap();
        assert!(found == expected, "seed {seed}");
    }
}
