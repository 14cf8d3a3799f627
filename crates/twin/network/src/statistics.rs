//! Counters of a group's fabric.

use crate::packet::{Packet, Route};
use forebay_machine_file::machine::LinkClass;

/// Links of the longest path: four legs have at most 4 × 2 local and 2 global links; a late detour
/// may shorten the first leg but never restarts it.
const MAX_HOPS: usize = 12;

/// Packets that reached nodes of one group, or of all groups after [`DeliveryStatistics::merge`].
#[derive(Clone, Debug, Default)]
pub struct DeliveryStatistics {
    /// Packets delivered.
    pub packets: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Packets that nodes put on their links.
    pub injected_packets: u64,
    /// Bytes of these.
    pub injected_bytes: u64,
    /// Packets by router-to-router links crossed.
    pub hops: [u64; MAX_HOPS + 1],
    /// Packets that took a detour.
    pub detours: u64,
    /// Sum of the times from a message's creation to the packet's last bit's arrival, in ps.
    pub latency_sum: u128,
    /// Time of the last delivery, in ps.
    pub last: u64,
}

impl DeliveryStatistics {
    #[inline]
    pub(crate) fn count_injection(&mut self, bytes: u32) {
        self.injected_packets += 1;
        self.injected_bytes += u64::from(bytes);
    }

    #[inline]
    pub(crate) fn count_packet(&mut self, packet: &Packet, now: u64) {
        self.packets += 1;
        self.bytes += u64::from(packet.bytes);
        debug_assert!(usize::from(packet.hops) <= MAX_HOPS, "{packet:?}");
        self.hops[usize::from(packet.hops).min(MAX_HOPS)] += 1;
        self.detours += u64::from(packet.route() == Route::Detour);
        let latency = now - packet.born();
        self.latency_sum += u128::from(latency);
        self.last = self.last.max(now);
    }

    /// Adds another group's counts.
    pub fn merge(&mut self, other: &DeliveryStatistics) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.injected_packets += other.injected_packets;
        self.injected_bytes += other.injected_bytes;
        for (mine, theirs) in self.hops.iter_mut().zip(other.hops) {
            *mine += theirs;
        }
        self.detours += other.detours;
        self.latency_sum += other.latency_sum;
        self.last = self.last.max(other.last);
    }
}

/// Sums over time in a bounded number of intervals: when they run out, each two neighbours are
/// merged and the length of intervals doubles.
#[derive(Clone, Debug)]
pub struct Timeline<const COLUMNS: usize> {
    /// An interval lasts 2^`bits` ps.
    bits: u32,
    /// Start of the first interval, ps.
    origin: u64,
    rows: Vec<[u64; COLUMNS]>,
}

impl<const COLUMNS: usize> Default for Timeline<COLUMNS> {
    fn default() -> Self {
        // 2^20 ps: one microsecond.
        Timeline { bits: 20, origin: 0, rows: Vec::new() }
    }
}

impl<const COLUMNS: usize> Timeline<COLUMNS> {
    /// Intervals before their length doubles.
    const MAX_INTERVALS: usize = 1024;

    /// A timeline whose first interval starts at `origin`, ps.
    pub fn starting_at(origin: u64) -> Self {
        Timeline { origin, ..Timeline::default() }
    }

    /// Adds `amount` to a column at time `now`, ps; what is before the first interval counts there.
    #[inline]
    pub fn add(&mut self, now: u64, column: usize, amount: u64) {
        let since = now.saturating_sub(self.origin);
        let row = (since >> self.bits) as usize;
        if row < self.rows.len() {
            self.rows[row][column] += amount;
        } else {
            self.extend(since, column, amount);
        }
    }

    /// Adds `amount` to a column, spread evenly over the time from `from` to `to`, ps. The sum is
    /// exact: rounding is carried from interval to interval.
    pub fn add_over(&mut self, from: u64, to: u64, column: usize, amount: u64) {
        let length = to.saturating_sub(from);
        if length == 0 {
            self.add(to, column, amount);
            return;
        }
        // Makes the intervals long enough for the last one.
        self.add(to, column, 0);
        let (first, end) = (from.saturating_sub(self.origin), to.saturating_sub(self.origin));
        let share = |until: u64| {
            let part = until.min(end).saturating_sub(first);
            (u128::from(amount) * u128::from(part) / u128::from(length)) as u64
        };
        let mut before = 0;
        for row in (first >> self.bits)..=(end >> self.bits) {
            let after =
                if row == end >> self.bits { amount } else { share((row + 1) << self.bits) };
            self.rows[row as usize][column] += after - before;
            before = after;
        }
    }

    #[cold]
    fn extend(&mut self, since: u64, column: usize, amount: u64) {
        while (since >> self.bits) as usize >= Self::MAX_INTERVALS {
            self.halve();
        }
        let row = (since >> self.bits) as usize;
        if row >= self.rows.len() {
            self.rows.resize(row + 1, [0; COLUMNS]);
        }
        self.rows[row][column] += amount;
    }

    fn halve(&mut self) {
        self.bits += 1;
        for i in 0..self.rows.len().div_ceil(2) {
            let mut sum = self.rows[2 * i];
            if let Some(next) = self.rows.get(2 * i + 1) {
                sum.iter_mut().zip(next).for_each(|(a, b)| *a += b);
            }
            self.rows[i] = sum;
        }
        self.rows.truncate(self.rows.len().div_ceil(2));
    }

    /// An empty timeline with intervals of `interval` ps, rounded up to a power of two.
    pub fn with_interval(interval: u64) -> Self {
        let bits = interval.next_power_of_two().trailing_zeros();
        Timeline { bits, ..Timeline::default() }
    }

    /// Merges intervals until each lasts at least `interval` ps.
    pub fn lengthen_intervals(&mut self, interval: u64) {
        while self.interval() < interval {
            self.halve();
        }
    }

    /// Adds a timeline with another origin; each of its intervals counts at its start.
    pub fn absorb(&mut self, other: &Timeline<COLUMNS>) {
        for (i, row) in (0..).zip(&other.rows) {
            let at = other.origin + (i << other.bits);
            for (column, &amount) in row.iter().enumerate().filter(|(_, amount)| **amount > 0) {
                self.add(at, column, amount);
            }
        }
    }

    /// Adds another timeline of the same origin, interval by interval. An empty timeline takes the
    /// origin of the other.
    pub fn merge(&mut self, other: &Timeline<COLUMNS>) {
        if self.rows.is_empty() {
            self.origin = other.origin;
        }
        assert!(
            other.rows.is_empty() || self.origin == other.origin,
            "timelines that start at {} and {}",
            self.origin,
            other.origin
        );
        let mut other = other.clone();
        while self.bits < other.bits {
            self.halve();
        }
        while other.bits < self.bits {
            other.halve();
        }
        if self.rows.len() < other.rows.len() {
            self.rows.resize(other.rows.len(), [0; COLUMNS]);
        }
        for (mine, theirs) in self.rows.iter_mut().zip(&other.rows) {
            mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        }
    }

    /// Length of an interval, ps.
    pub fn interval(&self) -> u64 {
        1 << self.bits
    }

    /// Start of the first interval, ps.
    pub fn origin(&self) -> u64 {
        self.origin
    }

    /// The sums of each interval from the origin on.
    pub fn rows(&self) -> &[[u64; COLUMNS]] {
        &self.rows
    }
}

/// Counters of one link (one direction) up to some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Class of the link.
    pub class: LinkClass,
    /// Router at its near end, within its group; `None` for links from nodes.
    pub router: Option<u16>,
    /// Port of that router; for links from nodes, the number of the interface within its group.
    pub port: u16,
    /// Group at the far end.
    pub to_group: u16,
    /// Bytes granted to the link.
    pub bytes: u64,
    /// Time to transmit them, ps.
    pub busy: u64,
    /// Time during which packets waited at the link for credits, ps; at a link to a node, which
    /// needs no credits, for packets before them.
    pub stalled: u64,
    /// Longest queue that a packet found at the link, bytes: those that it would transmit before.
    pub longest_queue: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_spread_over_time_is_split_by_the_length_in_each_interval() {
        let mut timeline = Timeline::<1>::starting_at(5 << 20);
        // From the middle of the first interval to the middle of the third: 1/4, 1/2, 1/4.
        timeline.add_over((5 << 20) + (1 << 19), (7 << 20) + (1 << 19), 0, 1_001);
        assert_eq!(timeline.rows(), [[250], [500], [251]]);
        timeline.add_over(6 << 20, 6 << 20, 0, 7);
        assert_eq!(timeline.rows()[1], [507]);
        // Far beyond the end: intervals grow, and no amount is lost.
        timeline.add_over(6 << 20, 90_000 << 20, 0, 1 << 40);
        assert_eq!(timeline.rows().iter().map(|r| r[0]).sum::<u64>(), (1 << 40) + 1_008);
        assert!(timeline.rows().len() <= 1024);
    }

    #[test]
    fn absorbed_timeline_keeps_its_place_in_time() {
        let mut whole = Timeline::<1>::default();
        let mut part = Timeline::<1>::starting_at(100 << 20);
        part.add(102 << 20, 0, 9);
        whole.absorb(&part);
        assert_eq!(whole.rows()[102], [9]);
    }

    #[test]
    fn timeline_that_outgrows_its_intervals_keeps_all_sums() {
        let mut one = Timeline::<2>::default();
        let mut other = Timeline::<2>::default();
        for i in 0..5_000u64 {
            one.add(i << 20, 0, i);
            other.add(i << 18, 1, 1);
        }
        assert!(one.rows().len() <= 1024);
        one.merge(&other);
        assert_eq!(one.interval(), 1 << 23);
        assert_eq!(one.rows()[0], [28, 32]);
        let total = |c: usize| one.rows().iter().map(|r| r[c]).sum::<u64>();
        assert_eq!((total(0), total(1)), (4_999 * 2_500, 5_000));
    }
}
