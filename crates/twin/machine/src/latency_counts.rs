//! Counts of latencies by logarithmic classes.

use hdrhistogram::Histogram;

/// An octave of latencies has 2^7 classes, so a class is narrower than 1% of its latencies.
const BITS: u32 = 7;
/// Counts are allocated for whole octaves.
const OCTAVE: usize = 1 << BITS;

/// Numbers of latencies, exact to 1%. Octaves that do not occur take no memory: a run has many
/// instances, one for each block of time and group.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencyCounts {
    /// Class of the first count.
    first: usize,
    counts: Vec<u64>,
}

/// Class of a latency, ns.
#[inline]
fn class_of(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    ((shift << BITS) as usize) + (ns >> shift) as usize
}

/// Least latency of a class, ns.
fn least_of(class: usize) -> u64 {
    let shift = (class >> BITS).saturating_sub(1);
    ((class - (shift << BITS)) as u64) << shift
}

impl LatencyCounts {
    /// Counts a latency, ns.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        let class = class_of(ns);
        match self.counts.get_mut(class.wrapping_sub(self.first)) {
            Some(count) => *count += 1,
            None => *self.count_mut(class) += 1,
        }
    }

    /// The count of a class, which is allocated if it was not.
    #[cold]
    fn count_mut(&mut self, class: usize) -> &mut u64 {
        let octave = class / OCTAVE * OCTAVE;
        if self.counts.is_empty() {
            self.first = octave;
        }
        if octave < self.first {
            let added = self.first - octave;
            self.counts.splice(0..0, std::iter::repeat_n(0, added));
            self.first = octave;
        }
        let least = octave + OCTAVE - self.first;
        if self.counts.len() < least {
            self.counts.resize(least, 0);
        }
        &mut self.counts[class - self.first]
    }

    /// Adds the counts of another instance.
    pub fn merge(&mut self, other: &LatencyCounts) {
        for (class, &count) in (other.first..).zip(&other.counts).filter(|(_, count)| **count > 0) {
            *self.count_mut(class) += count;
        }
    }

    /// The same as a histogram with two significant digits, whose buckets are the classes.
    pub fn to_histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new(2).unwrap_or_else(|e| unreachable!("{e}"));
        for (class, &count) in (self.first..).zip(&self.counts).filter(|(_, count)| **count > 0) {
            // Cannot fail: the histogram grows as needed.
            histogram.record_n(least_of(class), count).unwrap_or_else(|e| unreachable!("{e}"));
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_begins_with_its_least_latency() {
        for class in 0..5_000 {
            assert_eq!(class_of(least_of(class)), class);
        }
        for ns in [0, 1, 127, 128, 255, 256, 300, 511, 512, 1_023, 1_024, 123_456_789] {
            let least = least_of(class_of(ns));
            assert!(least <= ns && (ns - least) as f64 <= 0.01 * ns as f64, "{ns}: {least}");
        }
        assert_eq!(class_of(u64::MAX), (58 << BITS) - 1);
    }

    #[test]
    fn counts_equal_those_of_a_histogram() {
        let (mut early, mut late) = (LatencyCounts::default(), LatencyCounts::default());
        let mut expected = Histogram::<u64>::new(2).unwrap();
        for i in 0..4_000_u64 {
            // From long to short latencies, so that octaves are added at both ends.
            let ns = (i * i * 7_919) % 1_000_003 / (1 + i / 500) + 40;
            if i.is_multiple_of(3) {
                early.record(ns)
            } else {
                late.record(ns)
            }
            expected.record(ns).unwrap();
        }
        early.merge(&late);
        let counts = early.to_histogram();
        assert_eq!(counts.len(), 4_000);
        for quantile in [0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0] {
            assert_eq!(
                counts.value_at_quantile(quantile),
                expected.highest_equivalent(expected.value_at_quantile(quantile)),
                "{quantile}"
            );
        }
    }
}
