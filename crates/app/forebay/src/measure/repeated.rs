//! A rate that was measured several times.

use serde::{Deserialize, Serialize};

/// Repetitions of each measurement: the median of so many is not changed much by one that was disturbed.
pub(super) const REPETITIONS: u32 = 3;

/// Medians of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// Rate, bytes per second.
    pub rate: u64,
    /// Time that does not depend on the amount of data, seconds.
    pub seconds: f64,
    /// Greatest less least rate, as a share of the median.
    pub spread: f64,
}

impl Repeated {
    /// Of the rate and the time that each repetition found; `None` without one.
    pub fn of(found: &[(u64, f64)]) -> Option<Repeated> {
        let mut rates: Vec<u64> = found.iter().map(|(rate, _)| *rate).collect();
        let mut seconds: Vec<f64> = found.iter().map(|(_, seconds)| *seconds).collect();
        rates.sort_unstable();
        seconds.sort_by(f64::total_cmp);
        let rate = *rates.get(rates.len() / 2)?;
        let (least, greatest) = (*rates.first()?, *rates.last()?);
        Some(Repeated {
            rate,
            seconds: *seconds.get(seconds.len() / 2)?,
            spread: (greatest - least) as f64 / rate.max(1) as f64,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::super::probe::rate_between;
    use super::*;
    use proptest::prelude::*;

    /// A quarter of 8 MB in 1 s and all in 4 s are 2 MB/s; a delay of 2 s of either is seen in the spread.
    #[test]
    fn one_disturbed_repetition_does_not_change_the_rate() {
        let times = [(1.0, 4.0), (3.0, 4.0), (1.0, 4.0)];
        let found = times.map(|(less, all)| rate_between(8_000_000, less, all));
        let repeated = Repeated::of(&found).unwrap();
        assert_eq!((repeated.rate, repeated.seconds), (2_000_000, 0.0));
        let times = [(1.0, 4.0), (1.0, 4.0), (1.0, 6.0)];
        let found = times.map(|(less, all)| rate_between(8_000_000, less, all));
        let repeated = Repeated::of(&found).unwrap();
        assert_eq!((repeated.rate, repeated.spread), (2_000_000, 0.4));
        assert_eq!(Repeated::of(&[]), None);
    }

    proptest! {
        #[test]
        fn median_is_between_the_undisturbed_repetitions(
            undisturbed in prop::array::uniform2(1u64..1_000_000_000),
            disturbed in 1u64..10_000_000_000,
            place in 0usize..3,
        ) {
            let mut found: Vec<(u64, f64)> = undisturbed.map(|rate| (rate, 0.1)).to_vec();
            found.insert(place, (disturbed, 9.0));
            let repeated = Repeated::of(&found).unwrap();
            let (least, greatest) =
                (undisturbed[0].min(undisturbed[1]), undisturbed[0].max(undisturbed[1]));
            prop_assert!((least..=greatest).contains(&repeated.rate));
            prop_assert!(repeated.seconds < 1.0 && repeated.spread >= 0.0);
        }
    }
}
