//! Latency histograms.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets with an upper bound: 1 µs, 2 µs, 4 µs … 8.4 s.
const BOUNDED_BUCKETS: usize = 24;
const BUCKETS: usize = BOUNDED_BUCKETS + 1;

/// A histogram of durations. Bucket bounds double from 1 µs to 8.4 s; longer durations fall into a
/// last, unbounded bucket. Recording a duration takes two relaxed atomic additions.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

fn bucket_of(nanos: u64) -> usize {
    let micros = nanos.saturating_sub(1) / 1000;
    ((u64::BITS - micros.leading_zeros()) as usize).min(BOUNDED_BUCKETS)
}

impl Latency {
    /// Record one duration.
    pub fn record_duration(&self, duration: Duration) {
        // Holds 584 years.
        let nanos = duration.as_nanos() as u64;
        if let Some(count) = self.buckets.get(bucket_of(nanos)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// The durations recorded so far. Concurrent records may be included in part.
    pub fn snapshot(&self) -> LatencySnapshot {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut buckets: Vec<u64> = self.buckets.iter().map(load).collect();
        let last_used = buckets.iter().rposition(|count| *count > 0);
        buckets.truncate(last_used.map_or(0, |last| last + 1));
        LatencySnapshot { buckets, nanos: load(&self.nanos) }
    }
}

/// State of a [`Latency`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySnapshot {
    /// Durations per bucket, without trailing empty buckets.
    buckets: Vec<u64>,
    /// Sum of all durations, in nanoseconds.
    nanos: u64,
}

impl LatencySnapshot {
    /// Number of recorded durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Sum of all durations, in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// Mean duration; `None` if none was recorded.
    pub fn mean(&self) -> Option<Duration> {
        self.nanos.checked_div(self.count()).map(Duration::from_nanos)
    }

    /// Upper bound of the bucket that contains the `q` quantile (0 to 1), limited to the largest
    /// bound; `None` if nothing was recorded.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut sum = 0;
        let index = self.buckets.iter().position(|bucket| {
            sum += bucket;
            sum >= rank
        });
        let index = index.unwrap_or(BOUNDED_BUCKETS).min(BOUNDED_BUCKETS - 1);
        Some(Duration::from_micros(1 << index))
    }

    /// Durations recorded since `earlier`; all of them if `earlier` is not an earlier state of the
    /// same histogram.
    pub fn since(&self, earlier: &LatencySnapshot) -> LatencySnapshot {
        let before = |index: usize| earlier.buckets.get(index).copied().unwrap_or(0);
        let less = |(index, now): (usize, &u64)| now.checked_sub(before(index));
        let buckets: Option<Vec<u64>> = self.buckets.iter().enumerate().map(less).collect();
        let nanos = self.nanos.checked_sub(earlier.nanos);
        match (buckets, nanos) {
            (Some(buckets), Some(nanos)) if earlier.buckets.len() <= self.buckets.len() => {
                LatencySnapshot { buckets, nanos }
            }
            _ => self.clone(),
        }
    }

    /// Add the durations of `other`.
    pub fn merge(&mut self, other: &LatencySnapshot) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// Upper bounds in seconds, each with the number of durations that do not exceed it. The
    /// unbounded bucket is omitted; its cumulative count is [`count`](LatencySnapshot::count).
    pub fn cumulative_counts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut sum = 0;
        (0..BOUNDED_BUCKETS).map(move |index| {
            sum += self.buckets.get(index).copied().unwrap_or(0);
            ((1u64 << index) as f64 / 1e6, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn upper_bound_belongs_to_its_bucket() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(1_000), 0);
        assert_eq!(bucket_of(1_001), 1);
        assert_eq!(bucket_of(2_000), 1);
        assert_eq!(bucket_of(2_001), 2);
        assert_eq!(bucket_of(8_388_608_000), BOUNDED_BUCKETS - 1);
        assert_eq!(bucket_of(8_388_608_001), BOUNDED_BUCKETS);
        assert_eq!(bucket_of(u64::MAX), BOUNDED_BUCKETS);
    }

    #[test]
    fn empty_histogram_has_neither_mean_nor_quantile() {
        let empty = Latency::default().snapshot();
        assert_eq!((empty.count(), empty.mean(), empty.quantile(0.5)), (0, None, None));
    }

    proptest! {
        #[test]
        fn snapshot_matches_recorded_durations(
            first in proptest::collection::vec(0u64..20_000_000_000, 0..50),
            second in proptest::collection::vec(0u64..20_000_000_000, 1..50),
        ) {
            let latency = Latency::default();
            let record = |all: &[u64]| {
                for nanos in all {
                    latency.record_duration(Duration::from_nanos(*nanos));
                }
                latency.snapshot()
            };
            let before = record(&first);
            let after = record(&second);
            let between = after.since(&before);
            prop_assert_eq!(between.count(), second.len() as u64);
            let sum: u64 = second.iter().sum();
            prop_assert_eq!(between.mean(), Some(Duration::from_nanos(sum / second.len() as u64)));
            for (bound, count) in between.cumulative_counts() {
                let within = second.iter().filter(|n| **n as f64 / 1e9 <= bound).count();
                prop_assert_eq!(count, within as u64);
            }
            let mut sorted = second.clone();
            sorted.sort_unstable();
            let median = Duration::from_nanos(sorted[(sorted.len() - 1) / 2]);
            let bound = between.quantile(0.5).unwrap();
            let largest = Duration::from_micros(1 << (BOUNDED_BUCKETS - 1));
            prop_assert!(bound >= median.min(largest));
            prop_assert!(bound <= (median * 2).max(Duration::from_micros(1)));
            let mut both = before.clone();
            both.merge(&between);
            prop_assert_eq!(both.count(), after.count());
            // A restarted daemon counts from zero.
            prop_assert_eq!(before.since(&after).count(), before.count());
        }
    }
}
