//! Two-phase collective transfers of MPI-IO: the bytes that each aggregator accesses.
//!
//! Processes that write (or read) collectively do not access the file individually. The range
//! from the first accessed byte to the last is divided evenly among *aggregators* (`aggregators.rs`). An
//! aggregator goes through its part in
//! *windows* of at most the collective buffer: to write, it gathers the window's bytes from the
//! processes that have them and writes the runs of adjacent bytes; to read, it reads the runs and
//! sends each process its own. Before the first phase all processes exchange their offsets, and then the
//! numbers of pieces that each has for each; after the last they combine their errors.
//!
//! Holes between runs are not accessed (ROMIO with `romio_ds_read` and `romio_ds_write` disabled).

use super::job::IoJob;
use super::pieces::Piece;
use forebay_workload::ior::{Access, AccessPattern};
use std::ops::Range;

/// The ranks that read each rank's data, where that is not the rank itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    /// The readers of rank r's data are `ranks[starts[r]..starts[r + 1]]`.
    starts: Vec<u32>,
    ranks: Vec<u32>,
}

impl Readers {
    pub fn new(pattern: &AccessPattern) -> Self {
        let tasks = pattern.tasks();
        let mut starts = vec![0u32; tasks as usize + 1];
        for rank in 0..tasks {
            starts[pattern.data_owner(rank, Access::Read) as usize + 1] += 1;
        }
        for owner in 0..tasks as usize {
            starts[owner + 1] += starts[owner];
        }
        let mut next = starts.clone();
        let mut ranks = vec![0; tasks as usize];
        for rank in 0..tasks {
            let at = &mut next[pattern.data_owner(rank, Access::Read) as usize];
            ranks[*at as usize] = rank;
            *at += 1;
        }
        Readers { starts, ranks }
    }

    fn readers_of(&self, owner: u64) -> &[u32] {
        let owner = owner as usize;
        &self.ranks[self.starts[owner] as usize..self.starts[owner + 1] as usize]
    }
}

/// One collective call: every rank's data are an *extent* of the file; all extents have the same
/// length and distance, in the order of the ranks that write them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectiveCall<'a> {
    /// First byte of the extent of rank 0.
    start: u64,
    /// From one extent's start to the next one's.
    distance: u64,
    /// Bytes of an extent.
    bytes: u64,
    /// Extents.
    ranks: u64,
    aggregators: u64,
    buffer: u64,
    /// The ranks that access each extent; `None`: the rank that wrote it.
    readers: Option<&'a Readers>,
}

impl<'a> CollectiveCall<'a> {
    /// Call number `index` of a phase.
    pub fn new(
        job: &IoJob,
        pattern: &AccessPattern,
        index: u64,
        readers: Option<&'a Readers>,
    ) -> Self {
        CollectiveCall {
            start: pattern.transfer(0, Access::Write, index).offset,
            distance: pattern.block_bytes(),
            bytes: pattern.transfer_bytes(),
            ranks: u64::from(pattern.tasks()),
            aggregators: u64::from(job.aggregators.count()),
            buffer: job.client.collective_buffer.0.max(1),
            readers,
        }
    }

    /// The ranks that access an extent.
    fn ranks_of(&self, extent: u64) -> ExtentRanks<'a> {
        match self.readers {
            Some(readers) => ExtentRanks::Listed(readers.readers_of(extent).iter()),
            None => ExtentRanks::Own(Some(extent as u32)),
        }
    }

    fn is_accessed(&self, extent: u64) -> bool {
        self.readers.is_none_or(|r| !r.readers_of(extent).is_empty())
    }

    fn extent(&self, extent: u64) -> Range<u64> {
        let begin = self.start + extent * self.distance;
        begin..begin + self.bytes
    }

    /// The extents that may have bytes in a range.
    fn extents_in(&self, range: &Range<u64>) -> Range<u64> {
        let number = |offset: u64| offset.saturating_sub(self.start) / self.distance;
        let end = number(range.end.saturating_sub(1)) + 1;
        number(range.start)..end.min(self.ranks)
    }

    /// The first run of adjacent accessed bytes in a range.
    fn first_run(&self, range: Range<u64>) -> Option<Range<u64>> {
        let mut extents = self.extents_in(&range).filter(|&e| self.is_accessed(e));
        let clip = |e: u64| {
            let extent = self.extent(e);
            extent.start.max(range.start)..extent.end.min(range.end)
        };
        let mut run = extents.by_ref().map(clip).find(|run| !run.is_empty())?;
        if self.bytes == self.distance {
            for more in extents.map(clip) {
                if more.start != run.end || more.is_empty() {
                    break;
                }
                run.end = more.end;
            }
        }
        Some(run)
    }

    /// The part of the file that an aggregator accesses.
    fn domain(&self, aggregator: u32) -> Range<u64> {
        let mut accessed = (0..self.ranks).filter(|&e| self.is_accessed(e));
        let first = accessed.next().unwrap_or(0);
        let last = (0..self.ranks).rev().find(|&e| self.is_accessed(e));
        let (begin, end) = (self.extent(first).start, self.extent(last.unwrap_or(first)).end);
        let size = (end - begin).div_ceil(self.aggregators.max(1));
        let from = (begin + u64::from(aggregator) * size).min(end);
        from..(from + size).min(end)
    }

    /// The windows of an aggregator that contain accessed bytes, in order.
    pub fn windows(self, aggregator: u32) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let mut rest = self.domain(aggregator);
        let mut first = None;
        std::iter::from_fn(move || {
            let run = self.first_run(rest.clone())?;
            let first = *first.get_or_insert(run.start);
            let begin = first + (run.start - first) / self.buffer * self.buffer;
            let window = begin.max(rest.start)..(begin + self.buffer).min(rest.end);
            rest.start = window.end;
            Some(window)
        })
    }

    /// The requests of an aggregator, in order: its windows' runs, each cut into pieces.
    pub fn pieces(self, aggregator: u32, job: &IoJob) -> impl Iterator<Item = Piece> {
        self.windows(aggregator).flat_map(move |window| self.pieces_in(window, job))
    }

    /// The requests for a range.
    pub fn pieces_in(self, range: Range<u64>, job: &IoJob) -> impl Iterator<Item = Piece> {
        let mut rest = range;
        std::iter::from_fn(move || {
            let run = self.first_run(rest.clone())?;
            rest.start = run.end;
            Some(job.pieces(run.start, run.end - run.start))
        })
        .flatten()
    }

    /// The ranks that write or read bytes in a range, and the number of bytes.
    pub fn shares(self, range: Range<u64>) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        self.extents_in(&range).flat_map(move |e| {
            let extent = self.extent(e);
            let bytes = extent.end.min(range.end).saturating_sub(extent.start.max(range.start));
            self.ranks_of(e).filter(move |_| bytes > 0).map(move |rank| (rank, bytes))
        })
    }
}

/// The ranks that access an extent.
enum ExtentRanks<'a> {
    Own(Option<u32>),
    Listed(std::slice::Iter<'a, u32>),
}

impl Iterator for ExtentRanks<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            ExtentRanks::Own(rank) => rank.take(),
            ExtentRanks::Listed(ranks) => ranks.next().copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(
        distance: u64,
        bytes: u64,
        ranks: u64,
        aggregators: u64,
        buffer: u64,
    ) -> CollectiveCall<'static> {
        CollectiveCall { start: 1000, distance, bytes, ranks, aggregators, buffer, readers: None }
    }

    #[test]
    fn adjacent_extents_form_one_run_that_is_cut_into_windows() {
        let call = call(100, 100, 8, 2, 150);
        let windows: Vec<_> = call.windows(1).collect();
        assert_eq!(windows, [1400..1550, 1550..1700, 1700..1800]);
        assert_eq!(call.first_run(1400..1550), Some(1400..1550));
        let shares: Vec<_> = call.shares(1400..1550).collect();
        assert_eq!(shares, [(4, 100), (5, 50)]);
    }

    #[test]
    fn windows_without_data_are_skipped() {
        // Extents of 10 bytes every 1,000: the domain of the second aggregator begins in the hole
        // before the third extent.
        let call = call(1000, 10, 4, 2, 50);
        let windows: Vec<_> = call.windows(1).collect();
        assert_eq!(windows.len(), 2);
        assert_eq!(call.first_run(windows[0].clone()), Some(3000..3010));
        assert_eq!(call.first_run(windows[1].clone()), Some(4000..4010));
    }

    proptest! {
        #[test]
        fn windows_give_every_rank_its_bytes_once(
            blocks in 1u64..40, bytes in 1u64..50, ranks in 1u64..30, aggregators in 1u64..8, buffer in 1u64..300,
            shuffled in any::<bool>(), seed in any::<u64>()
        ) {
            let readers = {
                // Rank r reads the data of some other rank; several may read the same.
                let of = |r: u64| (r * 7 + seed % 5 * (r / 2)) % ranks;
                let mut starts = vec![0u32];
                let mut list = Vec::new();
                for owner in 0..ranks {
                    list.extend((0..ranks).filter(|&r| of(r) == owner).map(|r| r as u32));
                    starts.push(list.len() as u32);
                }
                Readers { starts, ranks: list }
            };
            let call = CollectiveCall { readers: shuffled.then_some(&readers), ..call(blocks * bytes, bytes, ranks, aggregators, buffer) };
            let mut got = vec![0; ranks as usize];
            let mut end = 0;
            for aggregator in 0..aggregators as u32 {
                for window in call.windows(aggregator) {
                    prop_assert!(window.start >= end && !window.is_empty());
                    prop_assert!(window.end - window.start <= buffer);
                    end = window.end;
                    let mut shares = 0;
                    for (rank, bytes) in call.shares(window.clone()) {
                        got[rank as usize] += bytes;
                        shares += bytes;
                    }
                    prop_assert!(shares > 0);
                    let run = call.first_run(window.clone());
                    prop_assert!(run.is_some_and(|run| run.start >= window.start && run.end <= window.end));
                }
            }
            prop_assert!(got.iter().all(|&b| b == bytes), "{:?}", got);
        }
    }
}
