//! The page cache of one server: writes complete in it, and their data go to flash later.
//!
//! Dirty data are kept as extents; adjacent ones merge. They go to flash in the order of files and
//! offsets, round and round, while more than `dirty_background` are held or writes wait for room: one
//! thread submits them. The thread of an fsync submits the data of its file, and those come first.

use super::layout::Extent;
use forebay_machine_file::machine::BurstBuffer;
use forebay_workload::ior::FileId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// Part of an extent on its way to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flush {
    pub extent: Extent,
    /// Time at which its thread submits it, ps.
    pub at: u64,
}

/// A thread that flushes.
#[derive(Clone, Copy, Debug, Default)]
struct Flusher {
    /// End of its last flush: file and byte.
    cursor: (u64, u64),
    /// Time at which it can submit the next, ps.
    free_at: u64,
}

impl Flusher {
    /// Takes a part of an extent of at most `unit` bytes up to a boundary of such units; one that does
    /// not continue the part before costs `cost`.
    fn take(&mut self, (file, begin): (u64, u64), part: u64, now: u64, cost: u64) -> Flush {
        let cost = if self.cursor == (file, begin) { 0 } else { cost };
        let at = self.free_at.max(now) + cost;
        (self.cursor, self.free_at) = ((file, begin + part), at);
        Flush { extent: Extent { file: FileId(file), offset: begin, bytes: part }, at }
    }
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, Default)]
struct FileBytes {
    /// Dirty or on their way to flash.
    unflushed: u64,
    /// Flushed so far.
    flushed: u64,
}

/// An fsync that waits until its file has so many bytes flushed.
#[derive(Clone, Copy, Debug)]
struct Sync {
    file: FileId,
    flushed: u64,
    request: u32,
    flusher: Flusher,
}

/// The page cache of one server.
pub(super) struct PageCache {
    /// Most bytes held for writes; 0: writes go to flash before they complete.
    limit: u64,
    /// Bytes held from which on they are flushed.
    background: u64,
    /// Cost of an extent to the thread that flushes it, ps.
    extent_cost: u64,
    /// Commands on their way to flash at most.
    depth: u32,
    /// Longest flush.
    unit: u64,
    /// Dirty bytes that are not on their way to flash, by file and first byte.
    dirty: BTreeMap<(u64, u64), u64>,
    /// Bytes admitted and not on flash yet.
    held: u64,
    files: FxHashMap<u64, FileBytes>,
    /// Writes that wait for room: the request, its bytes, since when. A server has at most
    /// `threads` of them.
    waiting: VecDeque<(u32, u64, u64)>,
    syncs: Vec<Sync>,
    in_flight: u32,
    flusher: Flusher,
}

impl PageCache {
    pub fn new(make: &BurstBuffer) -> Self {
        PageCache {
            limit: make.dirty_limit.0,
            background: make.dirty_background.0,
            extent_cost: make.extent_cost.0,
            depth: make.flush_depth,
            unit: make.flash_stripe.0.max(1),
            dirty: BTreeMap::new(),
            held: 0,
            files: FxHashMap::default(),
            waiting: VecDeque::new(),
            syncs: Vec::new(),
            in_flight: 0,
            flusher: Flusher::default(),
        }
    }

    /// Whether writes complete in the cache.
    pub fn is_write_back(&self) -> bool {
        self.limit > 0
    }

    /// Whether there is room for `bytes` more; a write above the limit has room in an empty cache.
    fn has_room(&self, bytes: u64) -> bool {
        self.held == 0 || self.held + bytes <= self.limit
    }

    /// Admits a write of `bytes`; otherwise it waits, and false is returned.
    pub fn admit(&mut self, request: u32, bytes: u64, now: u64) -> bool {
        let admitted = self.waiting.is_empty() && self.has_room(bytes);
        if admitted {
            self.held += bytes;
        } else {
            self.waiting.push_back((request, bytes, now));
        }
        admitted
    }

    /// The next write for which there is room now, and since when it has waited.
    pub fn admit_waiting(&mut self) -> Option<(u32, u64)> {
        let &(request, bytes, since) = self.waiting.front()?;
        if !self.has_room(bytes) {
            return None;
        }
        self.waiting.pop_front();
        self.held += bytes;
        Some((request, since))
    }

    /// The data of an admitted write are in the cache. Bytes that were dirty already count once.
    pub fn add(&mut self, extent: Extent) {
        let file = extent.file.0;
        let (mut begin, mut end) = (extent.offset, extent.offset + extent.bytes);
        let mut merged = 0;
        // Extents that overlap or touch: the last that begins before the end, repeatedly.
        while let Some((&(of, at), &bytes)) = self.dirty.range((file, 0)..=(file, end)).next_back()
            && of == file
            && at + bytes >= begin
        {
            merged += bytes;
            (begin, end) = (begin.min(at), end.max(at + bytes));
            self.dirty.remove(&(file, at));
        }
        self.dirty.insert((file, begin), end - begin);
        let added = end - begin - merged;
        self.held -= extent.bytes - added;
        self.files.entry(file).or_default().unflushed += added;
    }

    /// Whether all bytes of an extent are dirty.
    pub fn is_dirty(&self, extent: Extent) -> bool {
        let upto = (extent.file.0, extent.offset);
        let before = self.dirty.range((extent.file.0, 0)..=upto).next_back();
        before.is_some_and(|(&(_, at), bytes)| at + bytes >= extent.offset + extent.bytes)
    }

    /// An fsync of a file begins; false if there is nothing to wait for.
    pub fn sync(&mut self, file: FileId, request: u32) -> bool {
        let bytes = self.files.get(&file.0).copied().unwrap_or_default();
        if bytes.unflushed > 0 {
            let flushed = bytes.flushed + bytes.unflushed;
            self.syncs.push(Sync { file, flushed, request, flusher: Flusher::default() });
        }
        bytes.unflushed > 0
    }

    /// An fsync whose data are on flash.
    pub fn end_sync(&mut self) -> Option<u32> {
        let is_done = |sync: &Sync| {
            self.files.get(&sync.file.0).is_none_or(|bytes| bytes.flushed >= sync.flushed)
        };
        let done = self.syncs.iter().position(is_done)?;
        Some(self.syncs.remove(done).request)
    }

    /// The next data to flush, if any are to be flushed now.
    pub fn next_flush(&mut self, now: u64) -> Option<Flush> {
        if self.in_flight >= self.depth {
            return None;
        }
        let of_sync = self.next_of_syncs();
        let in_background = self.held > self.background || !self.waiting.is_empty();
        let next = of_sync.map(|(_, begin)| begin);
        let begin = next.or_else(|| in_background.then(|| self.next_in_background()).flatten())?;
        let bytes = self.dirty.remove(&begin)?;
        let part = bytes.min(self.unit - begin.1 % self.unit);
        if part < bytes {
            self.dirty.insert((begin.0, begin.1 + part), bytes - part);
        }
        self.in_flight += 1;
        let flusher = match of_sync {
            Some((sync, _)) => &mut self.syncs[sync].flusher,
            None => &mut self.flusher,
        };
        Some(flusher.take(begin, part, now, self.extent_cost))
    }

    /// The fsync whose thread is free first among those with dirty data, and the extent it takes.
    fn next_of_syncs(&self) -> Option<(usize, (u64, u64))> {
        let syncs = self.syncs.iter().enumerate();
        let with_data = syncs.filter_map(|(nth, sync)| {
            let file = sync.file.0;
            let from =
                (file, if sync.flusher.cursor.0 == file { sync.flusher.cursor.1 } else { 0 });
            let after = self.dirty.range(from..=(file, u64::MAX)).next();
            let next = after.or_else(|| self.dirty.range((file, 0)..from).next());
            next.map(|(&begin, _)| (nth, begin))
        });
        with_data.min_by_key(|&(nth, _)| self.syncs[nth].flusher.free_at)
    }

    /// The extent at which the flushing of all files goes on.
    fn next_in_background(&self) -> Option<(u64, u64)> {
        let after = self.dirty.range(self.flusher.cursor..).next();
        after.or_else(|| self.dirty.iter().next()).map(|(&begin, _)| begin)
    }

    /// Data are on flash.
    pub fn end_flush(&mut self, flush: Flush) {
        let Extent { file, bytes, .. } = flush.extent;
        assert!(self.held >= bytes && self.in_flight > 0, "flushed twice: {flush:?}");
        self.held -= bytes;
        self.in_flight -= 1;
        let of_file = self.files.entry(file.0).or_default();
        assert!(of_file.unflushed >= bytes, "flushed twice: {flush:?}");
        of_file.unflushed -= bytes;
        of_file.flushed += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_machine_file::machine::Machine;
    use forebay_units::{Bytes, Time};
    use proptest::prelude::*;

    fn cache(limit: u64) -> PageCache {
        let mut make = Machine::load("toy").unwrap().burst_buffer.unwrap();
        (make.dirty_limit, make.dirty_background) = (Bytes(limit), Bytes(limit / 2));
        (make.flash_stripe, make.extent_cost) = (Bytes(1_000), Time(10));
        PageCache::new(&make)
    }

    fn extent(file: u64, offset: u64, bytes: u64) -> Extent {
        Extent { file: FileId(file), offset, bytes }
    }

    #[test]
    fn adjacent_data_merge_and_are_flushed_in_order_of_their_offsets() {
        let mut cache = cache(1_000);
        for (request, offset) in [(0, 800), (1, 0), (2, 400), (3, 200)] {
            assert!(cache.admit(request, 200, 0));
            cache.add(extent(7, offset, 200));
        }
        assert!(cache.is_dirty(extent(7, 100, 450)) && !cache.is_dirty(extent(7, 500, 200)));
        let first = cache.next_flush(100).unwrap();
        assert_eq!(first, Flush { extent: extent(7, 0, 600), at: 110 });
        // More than half of the limit is held until the flush has ended.
        assert_eq!(cache.next_flush(100), Some(Flush { extent: extent(7, 800, 200), at: 120 }));
        cache.end_flush(first);
        assert_eq!(cache.held, 200);
    }

    #[test]
    fn writes_wait_for_room_in_order() {
        let mut cache = cache(1_000);
        assert!(cache.admit(0, 900, 0));
        cache.add(extent(1, 0, 900));
        assert!(!cache.admit(1, 500, 5));
        assert!(!cache.admit(2, 50, 6), "it does not overtake");
        assert_eq!(cache.admit_waiting(), None);
        let flush = cache.next_flush(0).unwrap();
        cache.end_flush(flush);
        assert_eq!(cache.admit_waiting(), Some((1, 5)));
        assert_eq!(cache.admit_waiting(), Some((2, 6)));
        assert_eq!(cache.admit_waiting(), None);
    }

    #[test]
    fn fsync_waits_for_the_dirty_data_of_its_file_which_come_first() {
        let mut cache = cache(1_000_000);
        for file in [1, 2] {
            assert!(cache.admit(0, 100, 0));
            cache.add(extent(file, 0, 100));
        }
        assert_eq!(cache.next_flush(0), None, "far below the limit");
        assert!(!cache.sync(FileId(3), 9), "a file without dirty data");
        assert!(cache.sync(FileId(2), 4));
        let flush = cache.next_flush(0).unwrap();
        assert_eq!((flush.extent.file, cache.end_sync()), (FileId(2), None));
        cache.end_flush(flush);
        assert_eq!(cache.end_sync(), Some(4));
    }

    #[test]
    fn fsyncs_flush_their_files_in_threads_of_their_own() {
        let mut cache = cache(1_000_000);
        for (file, offset) in [(1, 0), (1, 500), (2, 0), (2, 500)] {
            assert!(cache.admit(0, 100, 0));
            cache.add(extent(file, offset, 100));
        }
        assert!(cache.sync(FileId(1), 4) && cache.sync(FileId(2), 5));
        let flushes: Vec<_> = std::iter::from_fn(|| cache.next_flush(0)).collect();
        let order: Vec<_> =
            flushes.iter().map(|f| (f.extent.file.0, f.extent.offset, f.at)).collect();
        assert_eq!(order, [(1, 0, 10), (2, 0, 10), (1, 500, 20), (2, 500, 20)]);
    }

    proptest! {
        #[test]
        fn bytes_are_flushed_once_however_they_were_written(
            writes in proptest::collection::vec((0u64..3, 0u64..5_000, 1u64..2_000), 1..40)
        ) {
            let mut cache = cache(1);
            let mut bytes = std::collections::BTreeSet::new();
            for &(file, offset, length) in &writes {
                cache.held += length;
                cache.add(extent(file, offset, length));
                bytes.extend((offset..offset + length).map(|at| (file, at)));
            }
            prop_assert_eq!(cache.held, bytes.len() as u64);
            while let Some(flush) = cache.next_flush(0) {
                let Extent { file, offset, bytes: length } = flush.extent;
                for at in offset..offset + length {
                    prop_assert!(bytes.remove(&(file.0, at)));
                }
                cache.end_flush(flush);
            }
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(cache.held, 0);
        }
    }
}
