//! Means of replicates, with confidence intervals.

use serde::{Deserialize, Serialize};

/// Confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// 97.5% quantiles of Student's t distribution for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// The 97.5% quantile of Student's t distribution; for more than 30 degrees of freedom by the first
/// terms of its expansion around the normal distribution (Abramowitz, Stegun, 26.7.5), exact to
/// 0.001.
pub fn t_quantile(degrees_of_freedom: usize) -> f64 {
    const Z: f64 = 1.959_964;
    match T_975.get(degrees_of_freedom.wrapping_sub(1)) {
        Some(quantile) => *quantile,
        None if degrees_of_freedom == 0 => f64::INFINITY,
        None => {
            let n = degrees_of_freedom as f64;
            let (z3, z5) = (Z.powi(3), Z.powi(5));
            Z + (z3 + Z) / (4.0 * n) + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * n * n)
        }
    }
}

/// A quantity estimated from independent replicates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Name of the quantity: a field of the document.
    pub name: String,
    /// Its unit; empty for shares and ratios.
    pub unit: String,
    /// Mean of the replicates.
    pub mean: f64,
    /// Half the width of the 95% confidence interval of the mean; `None` with fewer than two
    /// values.
    pub half_width: Option<f64>,
    /// Standard deviation of the values; `None` with fewer than two values.
    pub deviation: Option<f64>,
    /// Value of each replicate, in the order of the seeds.
    pub values: Vec<f64>,
}

impl Estimate {
    /// The estimate from the values of the replicates; `None` if there are none.
    pub fn of(name: &str, unit: &str, values: Vec<f64>) -> Option<Estimate> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Some(Estimate {
            name: name.to_string(),
            unit: unit.to_string(),
            mean,
            half_width: deviation.map(|d| t_quantile(values.len() - 1) * d / count.sqrt()),
            deviation,
            values,
        })
    }
}

/// The replicates of a result: runs that differ in the seed only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replication {
    /// The seeds; the rest of the result is of the first.
    pub seeds: Vec<u64>,
    /// Confidence of the intervals.
    pub confidence: f64,
    /// Estimates of the result's main quantities that all replicates have: the mean of some, such
    /// as the latency of those that are not saturated, would be biased.
    pub estimates: Vec<Estimate>,
}

/// A quantity of one run: name, unit, value if it has one.
pub type Quantity = (&'static str, &'static str, Option<f64>);

impl Replication {
    /// The estimates from the quantities of each replicate, which are the same for all.
    pub fn of(seeds: Vec<u64>, replicates: &[Vec<Quantity>]) -> Replication {
        let names = replicates.first().map(Vec::as_slice).unwrap_or_default();
        let estimates = names.iter().enumerate().filter_map(|(i, (name, unit, _))| {
            let value = |quantities: &Vec<Quantity>| quantities.get(i).and_then(|(.., v)| *v);
            Estimate::of(name, unit, replicates.iter().map(value).collect::<Option<_>>()?)
        });
        Replication { seeds, confidence: CONFIDENCE, estimates: estimates.collect() }
    }

    /// The estimate of a quantity.
    pub fn estimate(&self, name: &str) -> Option<&Estimate> {
        self.estimates.iter().find(|e| e.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: mean 12, deviation 2, t(2) = 4.303, half width 4.303 · 2 / √3.
    #[test]
    fn interval_of_three_values_is_students() {
        let estimate = Estimate::of("x", "s", vec![10.0, 12.0, 14.0]).unwrap();
        assert_eq!(estimate.mean, 12.0);
        assert_eq!(estimate.deviation, Some(2.0));
        assert!((estimate.half_width.unwrap() - 4.9687).abs() < 1e-3, "{estimate:?}");
    }

    #[test]
    fn one_value_has_no_interval_and_none_no_estimate() {
        let estimate = Estimate::of("x", "", vec![3.0]).unwrap();
        assert_eq!((estimate.mean, estimate.half_width), (3.0, None));
        assert_eq!(Estimate::of("x", "", vec![]), None);
    }

    #[test]
    fn quantity_that_a_replicate_lacks_has_no_mean() {
        let replicates = [
            vec![("load", "", Some(1.0)), ("latency", "ns", Some(5.0))],
            vec![("load", "", Some(3.0)), ("latency", "ns", None)],
        ];
        let replication = Replication::of(vec![1, 2], &replicates);
        assert_eq!(replication.estimate("load").unwrap().mean, 2.0);
        assert_eq!(replication.estimate("latency"), None);
    }

    #[test]
    fn quantiles_beyond_the_table_continue_it() {
        assert_eq!(t_quantile(1), 12.706);
        assert!((t_quantile(31) - 2.0395).abs() < 0.001, "{}", t_quantile(31));
        assert!((t_quantile(120) - 1.9799).abs() < 0.001, "{}", t_quantile(120));
        assert!(t_quantile(0).is_infinite());
    }

    /// 95 of 100 intervals contain the true mean, within the error of 1,000 trials.
    #[test]
    fn intervals_contain_the_mean_as_often_as_they_promise() {
        use forebay_random::{exponential, hash};
        let trials = 1_000;
        let covered = (0..trials).filter(|trial| {
            // Means of 30 exponential numbers are about normal.
            let value = |replicate: u64| {
                let draw = |i| exponential(hash(*trial, replicate, i));
                (0..30).map(draw).sum::<f64>() / 30.0
            };
            let estimate = Estimate::of("x", "", (0..8).map(value).collect()).unwrap();
            (estimate.mean - 1.0).abs() <= estimate.half_width.unwrap()
        });
        let share = covered.count() as f64 / trials as f64;
        assert!((0.925..0.97).contains(&share), "{share}");
    }
}
