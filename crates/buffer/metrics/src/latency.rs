//! How long things took, as a histogram.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets with an upper bound: 1 µs, 2 µs, 4 µs … 8.4 s.
const BOUNDED: usize = 24;
const BUCKETS: usize = BOUNDED + 1;

/// A histogram of durations in buckets that double from 1 µs to 8.4 s, and one for what took
/// longer. Recording one is two relaxed atomic additions.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

fn bucket(nanos: u64) -> usize {
    let micros = nanos.saturating_sub(1) / 1000;
    ((u64::BITS - micros.leading_zeros()) as usize).min(BOUNDED)
}

impl Latency {
    /// Take in one duration.
    pub fn record_duration(&self, duration: Duration) {
        // Some 584 years fit.
        let nanos = duration.as_nanos() as u64;
        if let Some(count) = self.buckets.get(bucket(nanos)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What was recorded so far. Records of other threads meanwhile may be in it in part.
    pub fn snapshot(&self) -> LatencySnapshot {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut buckets: Vec<u64> = self.buckets.iter().map(read).collect();
        let used = buckets.iter().rposition(|count| *count > 0);
        buckets.truncate(used.map_or(0, |last| last + 1));
        LatencySnapshot {
            buckets,
            nanos: read(&self.nanos),
        }
    }
}

/// What a [`Latency`] held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySnapshot {
    /// Durations in each bucket; those behind the last one that is not empty are left out.
    buckets: Vec<u64>,
    /// All durations together, in nanoseconds.
    nanos: u64,
}

impl LatencySnapshot {
    /// Durations recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All of them together, in seconds.
    pub fn total_seconds(&self) -> f64 {
        self.nanos as f64 / 1e9
    }

    /// Their mean; `None` if there are none.
    pub fn mean(&self) -> Option<Duration> {
        self.nanos
            .checked_div(self.count())
            .map(Duration::from_nanos)
    }

    /// The upper bound of the bucket that holds the duration which a share `q` (0 to 1) of all do
    /// not exceed; the largest bound for what is beyond it. `None` if there are none.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut sum = 0;
        let index = self.buckets.iter().position(|bucket| {
            sum += bucket;
            sum >= wanted
        });
        let index = index.unwrap_or(BOUNDED).min(BOUNDED - 1);
        Some(Duration::from_micros(1 << index))
    }

    /// What was recorded since `earlier`; all of it if `earlier` is not an earlier state of this.
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

    /// Both together.
    pub fn merge(&mut self, other: &LatencySnapshot) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// Upper bounds in seconds and how many durations do not exceed them, without the unbounded
    /// bucket, which is [`count`](LatencySnapshot::count).
    pub fn cumulative_counts(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut sum = 0;
        (0..BOUNDED).map(move |index| {
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
    fn bounds_belong_to_their_bucket() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(1_000), 0);
        assert_eq!(bucket(1_001), 1);
        assert_eq!(bucket(2_000), 1);
        assert_eq!(bucket(2_001), 2);
        assert_eq!(bucket(8_388_608_000), BOUNDED - 1);
        assert_eq!(bucket(8_388_608_001), BOUNDED);
        assert_eq!(bucket(u64::MAX), BOUNDED);
    }

    #[test]
    fn nothing_recorded_has_no_mean() {
        let empty = Latency::default().snapshot();
        assert_eq!(
            (empty.count(), empty.mean(), empty.quantile(0.5)),
            (0, None, None)
        );
    }

    proptest! {
        #[test]
        fn a_snapshot_says_what_was_recorded(
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
            let told = between.quantile(0.5).unwrap();
            let largest = Duration::from_micros(1 << (BOUNDED - 1));
            prop_assert!(told >= median.min(largest));
            prop_assert!(told <= (median * 2).max(Duration::from_micros(1)));
            let mut both = before.clone();
            both.merge(&between);
            prop_assert_eq!(both.count(), after.count());
            // A daemon that was started again counts from zero.
            prop_assert_eq!(before.since(&after).count(), before.count());
        }
    }
}
