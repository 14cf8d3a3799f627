//! Recent transfer rates between pairs of dataspaces, from which times are estimated.

use std::collections::{BTreeMap, VecDeque};

/// Transfers of a pair that are remembered.
const RECENT: usize = 16;
/// Maximum pairs; the one first in order is dropped for another one.
const MAX_PAIRS: usize = 4096;

/// A source and a destination.
pub(crate) type Pair = (String, String);

/// Recent rates in bytes per second.
#[derive(Debug, Default)]
pub(crate) struct Rates(BTreeMap<Pair, VecDeque<f64>>);

impl Rates {
    /// Records a transfer of `bytes` in `seconds`.
    pub fn record(&mut self, pair: Pair, bytes: u64, seconds: f64) {
        if bytes == 0 || seconds <= 0.0 {
            return;
        }
        if self.0.len() >= MAX_PAIRS && !self.0.contains_key(&pair) {
            self.0.pop_first();
        }
        let ring = self.0.entry(pair).or_default();
        if ring.len() == RECENT {
            ring.pop_front();
        }
        ring.push_back(bytes as f64 / seconds);
        assert!(ring.len() <= RECENT);
    }

    /// Seconds in which `bytes` will be transferred at the mean of the recent rates.
    pub fn estimate(&self, pair: &Pair, bytes: u64) -> Option<f64> {
        let ring = self.0.get(pair)?;
        let mean = ring.iter().sum::<f64>() / ring.len() as f64;
        Some(bytes as f64 / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_uses_the_mean_of_the_recent_rates_of_the_pair() {
        let pair = || ("a".to_owned(), "b".to_owned());
        let mut rates = Rates::default();
        assert_eq!(rates.estimate(&pair(), 1), None);
        rates.record(pair(), 0, 1.0);
        assert_eq!(rates.estimate(&pair(), 1), None, "nothing was transferred");
        rates.record(pair(), 100, 1.0);
        rates.record(pair(), 600, 2.0);
        assert_eq!(rates.estimate(&pair(), 400), Some(2.0));
        assert_eq!(rates.estimate(&("b".to_owned(), "a".to_owned()), 400), None);
        for _ in 0..RECENT {
            rates.record(pair(), 800, 1.0);
        }
        assert_eq!(rates.estimate(&pair(), 400), Some(0.5), "older rates are forgotten");
    }
}
