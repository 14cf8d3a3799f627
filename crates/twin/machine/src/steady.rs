//! Steady state of traffic: end of the warm-up, window of measurement, saturation.
//!
//! Time is divided into slices, of which five make a block. Each group counts, by slice, the bytes
//! offered and delivered, and the latencies of the packets created in it. The latencies follow a
//! packet's creation, not its delivery, because a saturated network delivers the packets with short
//! latencies first.
//!
//! The end of the warm-up is found by MSER-5 (White, Cobb, Spratt, "A comparison of five
//! steady-state truncation heuristics for simulation", WSC 2000): of the means of five successive
//! observations, as many are dropped from the beginning as make the standard error of the mean of
//! the others least.

use crate::latency_counts::LatencyCounts;
use hdrhistogram::Histogram;

/// Slices of a block: the five of MSER-5.
const SLICES_PER_BLOCK: usize = 5;
/// Least number of slices in the time in which the messages are generated.
const LEAST_SLICES: f64 = 100.0;
/// Slices that are counted.
const MAX_SLICES: usize = 800;
/// The window of measurement begins after this share of the time at the earliest: all nodes have
/// begun to send.
const LEAST_WARM_UP: f64 = 0.2;
/// And ends at this share at the latest: all nodes still send.
pub(crate) const END_OF_WINDOW: f64 = 0.7;
/// Below this share of the offered bytes, the delivered ones say that the network is saturated, if
/// the bytes in flight and waiting grow all the time.
pub(crate) const ACCEPTED_WHEN_STEADY: f64 = 0.98;

/// Least length of the window, in least latencies of a packet: the backlog of a shorter one grows at any load.
const LATENCIES_PER_WINDOW: u64 = 3;

/// Counts of one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slice {
    offered: u64,
    delivered: u64,
    /// Packets created in it.
    packets: u64,
    /// Sum of their latencies, ps.
    latency: u64,
}

/// Packets created in one block: their latencies.
#[derive(Clone, Debug)]
struct Block {
    latencies: LatencyCounts,
    /// Extremes, ps.
    min: u64,
    max: u64,
}

impl Default for Block {
    fn default() -> Self {
        Block { latencies: LatencyCounts::default(), min: u64::MAX, max: 0 }
    }
}

impl Block {
    fn merge(&mut self, other: &Block) {
        self.latencies.merge(&other.latencies);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// Counts of traffic by time.
#[derive(Clone, Debug)]
pub(crate) struct Slices {
    /// A slice lasts 2^`bits` ps.
    bits: u32,
    /// Begin of the first slice, ps.
    origin: u64,
    /// Bytes offered and delivered before.
    before: (u64, u64),
    /// Creation, delivery and bytes of the packets that are delivered after the origin, until the length of
    /// slices is known.
    held: Option<Vec<(u64, u64, u64)>>,
    slices: Vec<Slice>,
    blocks: Vec<Block>,
}

impl Slices {
    /// Slices for traffic that is generated for about `span` ps.
    pub fn new(span: f64) -> Slices {
        let bits = (span / LEAST_SLICES).max(1.0).log2() as u32;
        let (slices, blocks) = (Vec::new(), Vec::new());
        Slices { bits, origin: 0, before: (0, 0), held: None, slices, blocks }
    }

    /// The same, which begin at the time `origin`, ps: what happens before is only part of the backlog.
    pub fn starting_at(span: f64, origin: u64) -> Slices {
        Slices { origin, ..Slices::new(span) }
    }

    /// Slices that begin at the time `origin`, ps, and get their length later, before that time has passed.
    pub fn without_span(origin: u64) -> Slices {
        Slices { held: Some(Vec::new()), ..Slices::starting_at(1.0, origin) }
    }

    /// Gives slices the length for traffic that is generated for about `span` ps.
    pub fn set_span(&mut self, span: f64) {
        assert!(self.slices.is_empty(), "counts in slices without a length");
        let held = self.held.take().unwrap_or_default();
        self.bits = Slices::new(span).bits;
        held.into_iter().for_each(|(born, now, bytes)| self.count_delivered(born, now, bytes));
    }

    #[inline]
    fn slice(&mut self, at: u64) -> Option<&mut Slice> {
        let number = (at.checked_sub(self.origin)? >> self.bits) as usize;
        if number >= self.slices.len() {
            if number >= MAX_SLICES {
                return None;
            }
            self.slices.resize(number + 1, Slice::default());
        }
        Some(&mut self.slices[number])
    }

    /// Counts a message of `bytes` that is ready to be sent at `at`.
    pub fn count_offered(&mut self, at: u64, bytes: u64) {
        assert!(at < self.origin || self.held.is_none(), "an offer in a slice without a length");
        if at < self.origin {
            self.before.0 += bytes;
        } else if let Some(slice) = self.slice(at) {
            slice.offered += bytes;
        }
    }

    /// Counts a packet of a message that was ready at `born` and is delivered `now`.
    #[inline]
    pub fn count_delivered(&mut self, born: u64, now: u64, bytes: u64) {
        if now < self.origin {
            self.before.1 += bytes;
            return;
        }
        if let Some(held) = &mut self.held {
            held.push((born, now, bytes));
            return;
        }
        if let Some(slice) = self.slice(now) {
            slice.delivered += bytes;
        }
        let latency = now - born;
        let Some(slice) = self.slice(born) else {
            return;
        };
        slice.packets += 1;
        slice.latency += latency;
        let number = ((born - self.origin) >> self.bits) as usize / SLICES_PER_BLOCK;
        if number >= self.blocks.len() {
            self.blocks.resize(number + 1, Block::default());
        }
        let block = &mut self.blocks[number];
        block.latencies.record(latency / 1000);
        block.min = block.min.min(latency);
        block.max = block.max.max(latency);
    }

    /// Adds the counts of another group.
    pub fn merge(&mut self, other: &Slices) {
        assert_eq!((self.bits, self.origin), (other.bits, other.origin), "different slices");
        self.before.0 += other.before.0;
        self.before.1 += other.before.1;
        if self.slices.len() < other.slices.len() {
            self.slices.resize(other.slices.len(), Slice::default());
        }
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            mine.offered += theirs.offered;
            mine.delivered += theirs.delivered;
            mine.packets += theirs.packets;
            mine.latency += theirs.latency;
        }
        if self.blocks.len() < other.blocks.len() {
            self.blocks.resize(other.blocks.len(), Block::default());
        }
        for (mine, theirs) in self.blocks.iter_mut().zip(&other.blocks) {
            mine.merge(theirs);
        }
    }

    fn block_length(&self) -> u64 {
        (SLICES_PER_BLOCK as u64) << self.bits
    }

    /// The steady state of traffic that all nodes generate until `end`, ps. `earliest` is the least
    /// start of the window, ps; `None`: a fifth of the time.
    pub fn steady_state(&self, end: u64, earliest: Option<u64>) -> SteadyState {
        let length = self.block_length();
        let end = end.saturating_sub(self.origin);
        let earliest = earliest.map(|at| at.saturating_sub(self.origin));
        let blocks = ((end / length) as usize).min(MAX_SLICES / SLICES_PER_BLOCK);
        let means: Vec<f64> = (0..blocks).filter_map(|block| self.mean_latency(block)).collect();
        let warm_up = mser(&means);
        let earliest = earliest.unwrap_or((end as f64 * LEAST_WARM_UP / END_OF_WINDOW) as u64);
        let least = earliest.div_ceil(length) as usize;
        let from = warm_up.unwrap_or(0).max(least).min(blocks.saturating_sub(1));
        let window = from..blocks.max(from + 1);
        let backlog = |block: usize| self.backlog(block * SLICES_PER_BLOCK);
        let sum = |of: fn(&Slice) -> u64| {
            let slices = window.start * SLICES_PER_BLOCK..window.end * SLICES_PER_BLOCK;
            self.slices
                .iter()
                .enumerate()
                .filter(|(i, _)| slices.contains(i))
                .map(|(_, s)| of(s))
                .sum()
        };
        let (offered, delivered): (u64, u64) = (sum(|s| s.offered), sum(|s| s.delivered));
        let third = |k: usize| backlog(window.start + window.len() * k / 3);
        let grows = (0..3).all(|k| third(k + 1) > third(k));
        // Until the first packets arrive, the backlog grows at any load.
        let least_latency = self.blocks.iter().map(|block| block.min).min().unwrap_or(0);
        let is_long =
            window.len() as u64 * length >= LATENCIES_PER_WINDOW.saturating_mul(least_latency);
        let saturated =
            is_long && (delivered as f64) < ACCEPTED_WHEN_STEADY * offered as f64 && grows;
        let mut latency = Block::default();
        let of_window = self.blocks.iter().enumerate().filter(|(i, _)| window.contains(i));
        of_window.for_each(|(_, block)| latency.merge(block));
        let ns = latency.latencies.to_histogram();
        SteadyState {
            state: match (saturated, warm_up) {
                (true, _) => State::Saturated,
                (false, Some(_)) if is_long && window.len() >= 3 => State::Steady,
                (false, _) => State::NotSteady,
            },
            warm_up: warm_up.map(|blocks| self.origin + blocks as u64 * length),
            window: (
                self.origin + window.start as u64 * length,
                self.origin + window.end as u64 * length,
            ),
            offered,
            delivered,
            backlog: (backlog(window.start), backlog(window.end)),
            latency: Latency {
                packets: ns.len(),
                sum: sum(|s| s.latency),
                min: latency.min,
                max: latency.max,
                ns,
            },
        }
    }

    /// Mean latency of the packets created in a block, ps; `None` if there are none.
    fn mean_latency(&self, block: usize) -> Option<f64> {
        let slices = self.slices.iter().skip(block * SLICES_PER_BLOCK).take(SLICES_PER_BLOCK);
        let (packets, sum) = slices.fold((0, 0), |(n, sum), s| (n + s.packets, sum + s.latency));
        (packets > 0).then(|| sum as f64 / packets as f64)
    }

    /// Bytes offered and not delivered before a slice.
    fn backlog(&self, slice: usize) -> u64 {
        let before = &self.slices[..slice.min(self.slices.len())];
        let sum = |of: fn(&Slice) -> u64| before.iter().map(of).sum::<u64>();
        let (offered, delivered) = self.before;
        (offered + sum(|s| s.offered)).saturating_sub(delivered + sum(|s| s.delivered))
    }
}

/// State of the traffic in the window of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The means do not depend on the length of the run.
    Steady,
    /// Less is delivered than offered, and the queues grow.
    Saturated,
    /// The run is too short, or its latencies still change at its end.
    NotSteady,
}

impl State {
    /// Its name in result documents.
    pub fn name(self) -> &'static str {
        match self {
            State::Steady => "steady",
            State::Saturated => "saturated",
            State::NotSteady => "not-steady",
        }
    }
}

/// Measurements in the window.
#[derive(Clone, Debug)]
pub(crate) struct SteadyState {
    pub state: State,
    /// End of the warm-up, ps; `None` if it was not found in the first half of the time.
    pub warm_up: Option<u64>,
    /// Start and end of the window, ps.
    pub window: (u64, u64),
    /// Bytes that became ready in the window.
    pub offered: u64,
    /// Bytes delivered in the window.
    pub delivered: u64,
    /// Bytes ready and not delivered, at the start and at the end of the window.
    pub backlog: (u64, u64),
    /// Latencies of the packets created in the window.
    pub latency: Latency,
}

/// Distribution of latencies.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    pub packets: u64,
    /// ps.
    pub sum: u64,
    /// ps.
    pub min: u64,
    /// ps.
    pub max: u64,
    /// In ns, exact to 1%.
    ns: Histogram<u64>,
}

impl Latency {
    /// The latency that this share of the packets does not exceed, in ns, exact to 1%; at most the largest one.
    pub fn quantile_ns(&self, share: f64) -> f64 {
        (self.ns.value_at_quantile(share) as f64).min(self.max as f64 / 1000.0)
    }
}

/// The number of values to drop from the beginning of a series, by MSER: that which makes the
/// standard error of the mean of the rest least. `None` if the least is not in the first half of
/// the series, which then has not reached a steady state.
pub(crate) fn mser(values: &[f64]) -> Option<usize> {
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best: Option<(f64, usize)> = None;
    // From the end: sums of the last values.
    for (dropped, value) in values.iter().enumerate().rev() {
        sum += value;
        squares += value * value;
        let rest = (values.len() - dropped) as f64;
        // The standard error of fewer than five values is itself too uncertain.
        if rest < 5.0 {
            continue;
        }
        let error = (squares - sum * sum / rest).max(0.0) / (rest * rest);
        if best.is_none_or(|(least, _)| error <= least) {
            best = Some((error, dropped));
        }
    }
    best.map(|(_, dropped)| dropped).filter(|dropped| dropped * 2 <= values.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_of_a_known_series_is_found() {
        // Ten falling values, then forty that alternate around 10.
        let decay = (0..10).map(|i| 10.0 + 40.0 * 0.6_f64.powi(i));
        let steady = (0..40).map(|i| if i % 2 == 0 { 9.5 } else { 10.5 });
        let series: Vec<f64> = decay.chain(steady).collect();
        let dropped = mser(&series).unwrap();
        assert!((6..=10).contains(&dropped), "{dropped}");
    }

    /// The standard errors by hand: of all six values (mean 3, squared differences 25 + 5 · 1)
    /// 30 / 36; without the first 0.
    #[test]
    fn warm_up_of_one_outlier_is_one_value() {
        assert_eq!(mser(&[8.0, 2.0, 2.0, 2.0, 2.0, 2.0]), Some(1));
    }

    #[test]
    fn constant_series_has_no_warm_up_and_growing_one_no_steady_state() {
        assert_eq!(mser(&[3.0; 20]), Some(0));
        let growing: Vec<f64> = (0..30).map(|i| f64::from(i * i)).collect();
        assert_eq!(mser(&growing), None);
        assert_eq!(mser(&[1.0, 1.0]), None);
    }

    /// Slices of 1,024 ps; one message a slice, delivered `delay(slice)` slices later.
    fn slices(count: u64, delay: impl Fn(u64) -> u64) -> Slices {
        let mut slices = Slices::new(102_400.0);
        for i in 0..count {
            slices.count_offered(i << 10, 100);
            slices.count_delivered(i << 10, (i + delay(i)) << 10, 100);
        }
        slices
    }

    #[test]
    fn constant_latency_is_steady_and_everything_is_accepted() {
        let steady = slices(100, |_| 2).steady_state(70 << 10, None);
        assert_eq!(steady.state, State::Steady);
        assert_eq!(steady.warm_up, Some(0));
        assert_eq!(steady.window, (20 << 10, 70 << 10));
        assert_eq!((steady.offered, steady.delivered), (5_000, 5_000));
        assert_eq!(steady.backlog, (200, 200));
        assert_eq!((steady.latency.packets, steady.latency.sum), (50, 50 * 2_048));
    }

    #[test]
    fn latency_that_grows_all_the_time_is_saturated() {
        // Every second message's worth of time is lost.
        let steady = slices(100, |i| i / 2).steady_state(70 << 10, None);
        assert_eq!(steady.state, State::Saturated);
        assert!(steady.backlog.1 > steady.backlog.0);
        let accepted = steady.delivered as f64 / steady.offered as f64;
        assert!((accepted - 2.0 / 3.0).abs() < 0.03, "{accepted}");
    }

    #[test]
    fn slow_start_is_not_part_of_the_window() {
        let steady = slices(100, |i| if i < 30 { 9 } else { 2 }).steady_state(70 << 10, None);
        assert_eq!(steady.warm_up, Some(30 << 10));
        assert_eq!(steady.window.0, 30 << 10);
        assert_eq!(steady.latency.max, 2_048);
    }

    /// A message each 1,024 ps, delivered two slices later; counted from the 30th on.
    #[test]
    fn counts_from_a_later_time_on_are_those_of_its_window() {
        let mut later = Slices::without_span(30 << 10);
        let count = |slices: &mut Slices, messages: std::ops::Range<u64>| {
            for i in messages {
                slices.count_offered(i << 10, 100);
                slices.count_delivered(i << 10, (i + 2) << 10, 100);
            }
        };
        count(&mut later, 0..30);
        later.set_span(102_400.0);
        count(&mut later, 30..130);
        let steady = later.steady_state(100 << 10, None);
        assert_eq!(steady.window, (50 << 10, 100 << 10));
        assert_eq!((steady.offered, steady.delivered), (5_000, 5_000));
        assert_eq!(steady.backlog, (200, 200));
        assert_eq!((steady.latency.packets, steady.latency.sum), (50, 50 * 2_048));
    }

    #[test]
    fn groups_merged_count_as_one() {
        let mut sum = slices(50, |_| 1);
        sum.merge(&slices(60, |_| 3));
        let steady = sum.steady_state(40 << 10, Some(0));
        assert_eq!(steady.latency.packets, 80);
        assert_eq!((steady.latency.min, steady.latency.max), (1_024, 3_072));
    }
}
