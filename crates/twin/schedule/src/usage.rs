//! Resources in use over time.

use crate::time::Millis;

/// Resources in use from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The time.
    pub at: Millis,
    /// Nodes of running jobs.
    pub nodes: u32,
    /// Granules of burst buffers.
    pub granules: u64,
    /// Jobs without nodes: in the queue, in stage-in, and ready.
    pub waiting: u32,
}

/// Mean usage in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanUsage {
    /// Its end.
    pub until: Millis,
    /// Nodes.
    pub nodes: f64,
    /// Granules.
    pub granules: f64,
    /// Waiting jobs.
    pub waiting: f64,
}

/// Means in `count` equal intervals, from the first to the last change.
pub fn means(usage: &[Usage], count: u32) -> Vec<MeanUsage> {
    let (Some(first), Some(last)) = (usage.first(), usage.last()) else {
        return Vec::new();
    };
    let span = last.at.since(first.at).0;
    let mut index = 0;
    let interval = |nth: u32| {
        let edge =
            |n: u32| first.at.0 + (u128::from(span) * u128::from(n) / u128::from(count)) as u64;
        let (from, until) = (edge(nth), edge(nth + 1));
        let mut mean = MeanUsage { until: Millis(until), ..MeanUsage::default() };
        if until == from {
            return mean;
        }
        while index + 1 < usage.len() && usage[index + 1].at.0 <= from {
            index += 1;
        }
        for (nth, now) in usage.iter().enumerate().skip(index) {
            if now.at.0 >= until {
                break;
            }
            let next = usage.get(nth + 1).map_or(until, |next| next.at.0.min(until));
            let share = (next - now.at.0.max(from)) as f64 / (until - from) as f64;
            mean.nodes += share * f64::from(now.nodes);
            mean.granules += share * now.granules as f64;
            mean.waiting += share * f64::from(now.waiting);
        }
        mean
    };
    (0..count).map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted_by_time() {
        let usage = |at, nodes| Usage { at: Millis(at), nodes, granules: 0, waiting: 1 };
        let means = means(&[usage(0, 4), usage(5, 2), usage(6, 8), usage(20, 0)], 2);
        assert_eq!(means[0].nodes, (5.0 * 4.0 + 2.0 + 4.0 * 8.0) / 10.0);
        assert_eq!(means[1].nodes, 8.0);
        assert!((means[0].waiting - 1.0).abs() < 1e-12);
        assert_eq!(means[1].until, Millis(20));
    }
}
