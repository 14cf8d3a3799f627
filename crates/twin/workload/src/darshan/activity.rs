//! The I/O of a process to a file in one direction, without long pauses.

use crate::ior::Access;
use forebay_darshan_log::{FileUse, SIZE_BINS, Segment, Transfers};

/// Seconds without a call after which an activity, or a phase, has ended.
pub(super) const PAUSE: f64 = 1.0;

/// The processes of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ranks {
    /// This one.
    One(u32),
    /// So many; the log does not say which.
    Some(u32),
}

/// Requests of a range of sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bin {
    pub operations: u64,
    pub bytes: u64,
    /// Calls that begin where the one before, of any size, ended.
    pub consecutive: u64,
    /// Calls that begin behind the one before.
    pub sequential: u64,
}

impl Bin {
    pub fn add(&mut self, other: Bin) {
        self.operations = self.operations.saturating_add(other.operations);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.consecutive = self.consecutive.saturating_add(other.consecutive);
        self.sequential = self.sequential.saturating_add(other.sequential);
    }
}

/// An activity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Activity {
    pub file: u64,
    pub ranks: Ranks,
    pub access: Access,
    /// Start of the first call and end of the last one, seconds since the program's start.
    pub begin: f64,
    pub end: f64,
    /// Time of the process, or of the slowest one, in the calls.
    pub seconds: f64,
    pub bins: [Bin; 10],
    /// Whether the file was synced.
    pub is_synced: bool,
}

impl Activity {
    pub fn total(&self) -> Bin {
        let mut total = Bin::default();
        self.bins.iter().for_each(|bin| total.add(*bin));
        total
    }

    /// The activity that counters describe, if there were any calls with data.
    pub fn of_counters(file: &FileUse, access: Access, processes: u32) -> Option<Activity> {
        let transfers = match access {
            Access::Write => &file.write,
            Access::Read => &file.read,
        };
        if transfers.operations == 0 || transfers.bytes == 0 {
            return None;
        }
        let (begin, end) = transfers.span.unwrap_or_default();
        let both = file.read.seconds + file.write.seconds;
        let seconds = match (file.rank, both > 0.0) {
            (Some(_), _) => transfers.seconds,
            (None, true) => file.slowest_seconds * transfers.seconds / both,
            (None, false) => 0.0,
        };
        Some(Activity {
            file: file.id,
            ranks: file.rank.map_or_else(|| Ranks::Some(sharing(file, processes)), Ranks::One),
            access,
            begin,
            end: end.max(begin),
            seconds,
            bins: bins(transfers, &file.common_sizes),
            is_synced: file.syncs > 0,
        })
    }
}

/// Processes that moved the data of a file with a shared record: its bytes divided by those of the slowest, or of the
/// fastest, process.
fn sharing(file: &FileUse, processes: u32) -> u32 {
    let calls = file.read.operations.saturating_add(file.write.operations);
    let most = u32::try_from(calls).unwrap_or(u32::MAX).min(processes).max(1);
    if file.most_bytes == 0 {
        return most;
    }
    let count = (file.bytes() as f64 / file.most_bytes as f64).round();
    (count as u32).clamp(1, most)
}

/// The bin of a size, as Darshan has it: a size of exactly 1 MiB is in the bin from 100 KiB to 1 MiB.
pub(super) fn bin_of(bytes: u64) -> usize {
    SIZE_BINS.iter().rposition(|least| bytes > *least).unwrap_or(0)
}

/// The calls by size with their bytes. The counters have the number of each bin, the bytes of all, and the four
/// most common sizes: each bin gets the mean of its common sizes, or the middle of its range, and the bin with
/// most bytes what is left of all. Consecutive and sequential calls, of which only the sums are counted, are divided
/// in proportion to the calls.
fn bins(transfers: &Transfers, common: &[(u64, u64)]) -> [Bin; 10] {
    let mut bins = bytes_of_bins(transfers, common);
    let all = transfers.operations.max(1) as f64;
    for bin in &mut bins {
        let share = bin.operations as f64 / all;
        bin.consecutive = (transfers.consecutive as f64 * share).round() as u64;
        bin.sequential = (transfers.sequential as f64 * share).round() as u64;
    }
    bins
}

fn bytes_of_bins(transfers: &Transfers, common: &[(u64, u64)]) -> [Bin; 10] {
    let counted: u64 = transfers.sizes.iter().fold(0, |sum, count| sum.saturating_add(*count));
    let mut bins = [Bin::default(); 10];
    if counted == 0 {
        let mean = transfers.bytes.div_ceil(transfers.operations.max(1));
        let (operations, bytes) = (transfers.operations, transfers.bytes);
        bins[bin_of(mean)] = Bin { operations, bytes, ..Bin::default() };
        return bins;
    }
    for (index, operations) in transfers.sizes.iter().copied().enumerate() {
        let size = common_size(index, common);
        bins[index] = Bin { operations, bytes: operations.saturating_mul(size), ..Bin::default() };
    }
    let Some(largest) = (0..10).max_by_key(|index| bins[*index].bytes) else { return bins };
    let others: u64 = (0..10)
        .filter(|index| *index != largest)
        .fold(0, |sum, index| sum.saturating_add(bins[index].bytes));
    let least = SIZE_BINS[largest].saturating_mul(bins[largest].operations);
    match transfers.bytes.checked_sub(others).filter(|left| *left >= least) {
        Some(left) => bins[largest].bytes = left,
        // The common sizes are those of the other direction.
        None => {
            let all = others.saturating_add(bins[largest].bytes).max(1);
            let share = transfers.bytes as f64 / all as f64;
            bins.iter_mut().for_each(|bin| bin.bytes = (bin.bytes as f64 * share) as u64);
        }
    }
    bins
}

/// The mean of the common sizes in a bin, or the middle of its range.
fn common_size(index: usize, common: &[(u64, u64)]) -> u64 {
    let here = common.iter().filter(|(size, _)| bin_of(*size) == index);
    let (bytes, count) = here.fold((0u128, 0u128), |(bytes, count), (size, times)| {
        (bytes + u128::from(*size) * u128::from(*times), count + u128::from(*times))
    });
    match bytes.checked_div(count) {
        Some(mean) => mean as u64,
        None => {
            let least = SIZE_BINS[index];
            let most = SIZE_BINS.get(index + 1).copied().unwrap_or(2 * least);
            least.midpoint(most)
        }
    }
}

/// Activities from the segments of a file and process, which come in their order.
#[derive(Debug)]
pub(super) struct Tracer {
    present: Option<Activity>,
    /// Where the last segment ended in the file.
    at: Option<u64>,
}

impl Tracer {
    pub fn new() -> Tracer {
        Tracer { present: None, at: None }
    }

    /// Adds a segment; returns the activity that ended before it, if one has.
    pub fn add(
        &mut self,
        (file, rank, access): (u64, u32, Access),
        segment: &Segment,
        may_end: bool,
    ) -> Option<Activity> {
        let is_valid = segment.start.is_finite() && segment.end.is_finite();
        let (begin, end) = match is_valid {
            true => (segment.start.max(0.0), segment.end.max(segment.start).max(0.0)),
            false => (0.0, 0.0),
        };
        let ended = match &self.present {
            Some(present) if may_end && begin > present.end + PAUSE => self.present.take(),
            Some(_) | None => None,
        };
        if ended.is_some() {
            self.at = None;
        }
        let activity = self.present.get_or_insert_with(|| Activity {
            file,
            ranks: Ranks::One(rank),
            access,
            begin,
            end,
            seconds: 0.0,
            bins: [Bin::default(); 10],
            is_synced: false,
        });
        activity.begin = activity.begin.min(begin);
        activity.end = activity.end.max(end);
        activity.seconds += end - begin;
        let follows = |is: fn(u64, u64) -> bool| match (self.at, segment.offset) {
            (Some(at), Some(offset)) => u64::from(is(offset, at)),
            (None, _) | (_, None) => 0,
        };
        activity.bins[bin_of(segment.bytes)].add(Bin {
            operations: 1,
            bytes: segment.bytes,
            consecutive: follows(|offset, at| offset == at),
            sequential: follows(|offset, at| offset >= at),
        });
        self.at = segment.offset.and_then(|offset| offset.checked_add(segment.bytes));
        ended
    }

    /// The last activity of the file and process.
    pub fn end(&mut self) -> Option<Activity> {
        self.at = None;
        self.present.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3 calls of 512 B, 2 of 4 MiB and one of unknown size above 10 MiB: what is left of all bytes.
    #[test]
    fn bytes_of_bins_add_up_to_all_bytes() {
        let mut sizes = [0; 10];
        (sizes[1], sizes[5], sizes[7]) = (3, 2, 1);
        let (bytes, operations) = (3 * 512 + (8 << 20) + (30 << 20), 6);
        let transfers = Transfers { operations, bytes, sizes, ..Transfers::default() };
        let found = bins(&transfers, &[(512, 3), (4 << 20, 2)]);
        assert_eq!((found[1].operations, found[1].bytes), (3, 1536));
        assert_eq!((found[5].operations, found[5].bytes), (2, 8 << 20));
        assert_eq!((found[7].operations, found[7].bytes), (1, 30 << 20));
    }

    #[test]
    fn sizes_at_the_bounds_are_in_darshans_bins() {
        let bins =
            [(1, 0), (100, 0), (101, 1), (1024, 1), (1 << 20, 4), (4 << 20, 5), (1 << 31, 9)];
        for (bytes, bin) in bins {
            assert_eq!(bin_of(bytes), bin, "{bytes}");
        }
    }
}
