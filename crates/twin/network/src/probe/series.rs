//! Use of each link over time.

use super::Grant;

/// Intervals of a link before each two neighbours are merged.
const MAX_BINS: usize = 128;

/// Use of a link in each interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkBins {
    /// Bytes transmitted; those of a packet are spread over its transmission.
    pub bytes: Vec<u64>,
    /// Longest queue: bytes granted and not transmitted, and bytes that wait for credits.
    pub deepest: Vec<u32>,
    /// Bytes that wait for credits at present.
    waiting: u32,
}

/// Use of each link of a group over time, in intervals of one length, from time 0 on. When one of
/// the links has 128 intervals, each two are merged at all links.
#[derive(Clone, Debug)]
pub struct LinkSeries {
    /// An interval lasts 2^`bits` ps.
    bits: u32,
    /// By index of the port; empty for a port that no packet took.
    links: Vec<LinkBins>,
}

impl LinkSeries {
    pub(super) fn new(ports: usize) -> Self {
        // 2^20 ps: one microsecond.
        LinkSeries { bits: 20, links: vec![LinkBins::default(); ports] }
    }

    /// Length of an interval, ps.
    pub fn interval(&self) -> u64 {
        1 << self.bits
    }

    /// The links, by index of their ports.
    pub fn links(&self) -> &[LinkBins] {
        &self.links
    }

    /// Merges intervals until each lasts at least `interval` ps.
    pub fn lengthen_intervals(&mut self, interval: u64) {
        while self.interval() < interval {
            self.halve();
        }
    }

    pub(super) fn join_queue(&mut self, index: usize, at: u64, bytes: u32) {
        self.links[index].waiting += bytes;
        let waiting = self.links[index].waiting;
        let bin = self.bin(index, at);
        let deepest = &mut self.links[index].deepest[bin];
        *deepest = (*deepest).max(waiting);
    }

    pub(super) fn leave_queue(&mut self, index: usize, bytes: u32) {
        self.links[index].waiting -= bytes;
    }

    /// Counts a packet that gets the link.
    pub(super) fn transmit(&mut self, index: usize, bytes: u32, grant: Grant) {
        let (start, end) = (grant.start, grant.end.max(grant.start + 1));
        // Makes the intervals long enough for the last one.
        let last = self.bin(index, end - 1);
        let (mut before, length) = (0, u128::from(end - start));
        for bin in (start >> self.bits) as usize..=last {
            let until = ((bin as u64 + 1) << self.bits).min(end);
            let after = (u128::from(bytes) * u128::from(until - start) / length) as u64;
            self.links[index].bytes[bin] += after - before;
            before = after;
        }
        // The link sends until `end` at the rate of this packet.
        let backlog = u128::from(bytes) * u128::from(end - grant.ready) / length;
        let depth = u32::try_from(backlog).unwrap_or(u32::MAX).max(self.links[index].waiting);
        let bin = self.bin(index, grant.ready);
        let deepest = &mut self.links[index].deepest[bin];
        *deepest = (*deepest).max(depth);
    }

    /// The interval of a time.
    fn bin(&mut self, index: usize, at: u64) -> usize {
        while (at >> self.bits) as usize >= MAX_BINS {
            self.halve();
        }
        let bin = (at >> self.bits) as usize;
        let link = &mut self.links[index];
        if link.bytes.len() <= bin {
            link.bytes.resize(bin + 1, 0);
            link.deepest.resize(bin + 1, 0);
        }
        bin
    }

    #[cold]
    fn halve(&mut self) {
        self.bits += 1;
        for link in &mut self.links {
            link.bytes = link.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
            let deepest = link.deepest.chunks(2);
            link.deepest = deepest.map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(start: u64, end: u64) -> Grant {
        Grant { ready: start, start, end, now: start }
    }

    #[test]
    fn bytes_are_spread_over_the_transmission_and_intervals_merge() {
        let mut series = LinkSeries::new(2);
        let unit = series.interval();
        series.transmit(1, 4_000, grant(unit / 2, unit + unit / 2));
        assert_eq!(series.links()[1].bytes, [2_000, 2_000]);
        assert!(series.links()[0].bytes.is_empty());
        series.transmit(1, 1_000, grant(1_000 * unit, 1_000 * unit + 1));
        assert_eq!(series.interval(), 8 * unit);
        assert_eq!(series.links()[1].bytes[0], 4_000);
        assert_eq!(series.links()[1].bytes.iter().sum::<u64>(), 5_000);
        assert_eq!(series.links()[1].bytes.len(), 126);
    }

    /// A packet of 1,000 bytes takes 1,000 ps. Ready at 0, it starts at 3,000: 3,000 bytes and its own
    /// are before its end.
    #[test]
    fn queue_is_the_backlog_that_a_packet_finds_or_the_bytes_without_credits() {
        let mut series = LinkSeries::new(1);
        series.transmit(0, 1_000, grant(3_000, 4_000));
        assert_eq!(series.links()[0].deepest, [1_000]);
        let late = Grant { ready: 0, start: 3_000, end: 4_000, now: 0 };
        series.transmit(0, 1_000, late);
        assert_eq!(series.links()[0].deepest, [4_000]);
        series.join_queue(0, 10, 9_000);
        series.leave_queue(0, 9_000);
        assert_eq!(series.links()[0].deepest, [9_000]);
    }
}
