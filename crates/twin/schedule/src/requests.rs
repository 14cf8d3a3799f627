//! Burst buffers of jobs whose trace does not have them: assumed distributions.

use crate::cluster::Cluster;
use crate::job::{Checkpoint, Job};
use crate::time::Millis;
use forebay_random::{RandomStream, exponential, stream_label, unit_interval};
use forebay_units::Bytes;
use std::fmt;
use std::str::FromStr;

/// Distribution of the burst buffer of a job, in bytes for each of its nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PerNode {
    /// The same for all jobs.
    Fixed(Bytes),
    /// Log-normal.
    LogNormal {
        /// Median.
        median: Bytes,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Larger values are replaced by this one.
        max: Option<Bytes>,
        /// Share of the jobs with a burst buffer.
        share: f64,
    },
}

const FORMS: &str = "write fixed:4GiB, or lognormal:median=2GiB,sigma=1.5[,max=40GB][,share=0.5]";

impl FromStr for PerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<PerNode, String> {
        let size = |text: &str| text.parse::<Bytes>().map_err(|error| format!("{error}; {FORMS}"));
        if let Some(value) = text.strip_prefix("fixed:") {
            return Ok(PerNode::Fixed(size(value)?));
        }
        let Some(parameters) = text.strip_prefix("lognormal:") else {
            return Err(format!("{text:?} is not a distribution; {FORMS}"));
        };
        let (mut median, mut sigma, mut max, mut share) = (None, None, None, 1.0);
        for parameter in parameters.split(',') {
            let number = |value: &str| {
                let number =
                    value.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
                number.ok_or_else(|| format!("{parameter:?} is not a number of 0 or more; {FORMS}"))
            };
            match parameter.split_once('=') {
                Some(("median", value)) => median = Some(size(value)?),
                Some(("sigma", value)) => sigma = Some(number(value)?),
                Some(("max", value)) => max = Some(size(value)?),
                Some(("share", value)) => share = number(value)?,
                _ => return Err(format!("{parameter:?} is not a parameter; {FORMS}")),
            }
        }
        if share > 1.0 {
            return Err(format!("share={share} is more than 1; {FORMS}"));
        }
        match (median, sigma) {
            (Some(median), Some(sigma)) => Ok(PerNode::LogNormal { median, sigma, max, share }),
            _ => Err(format!("{text:?} has no median, or no sigma; {FORMS}")),
        }
    }
}

impl fmt::Display for PerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PerNode::Fixed(size) => write!(f, "fixed:{size}"),
            PerNode::LogNormal { median, sigma, max, share } => {
                write!(f, "lognormal:median={median},sigma={sigma}")?;
                if let Some(max) = max {
                    write!(f, ",max={max}")?;
                }
                write!(f, ",share={share}")
            }
        }
    }
}

impl PerNode {
    /// The bytes for each node of a job: a function of the seed and the job's number.
    pub fn of_job(&self, seed: u64, id: u64) -> Bytes {
        match *self {
            PerNode::Fixed(size) => size,
            PerNode::LogNormal { median, sigma, max, share } => {
                let random = RandomStream::of_unit(seed, stream_label("burst buffer of job"), id);
                if unit_interval(random.at(0)) > share {
                    return Bytes::ZERO;
                }
                let value = median.0 as f64 * libm::exp(sigma * normal(random));
                Bytes(value as u64).min(max.unwrap_or(Bytes(u64::MAX)))
            }
        }
    }
}

/// A number of the standard normal distribution (Box and Muller, 1958).
fn normal(random: RandomStream) -> f64 {
    let radius = (2.0 * exponential(random.at(1))).sqrt();
    radius * libm::cos(2.0 * std::f64::consts::PI * unit_interval(random.at(2)))
}

/// What is assumed about the jobs of a trace beyond what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Assumptions {
    /// Burst buffers, instead of those of the trace.
    pub per_node: Option<PerNode>,
    /// Bytes that are staged in, as a share of the burst buffer; for jobs whose trace does not have them.
    pub stage_in: Option<f64>,
    /// Bytes that are staged out, as a share of the burst buffer.
    pub stage_out: Option<f64>,
    /// Computing time between checkpoints, and the bytes of each as a share of the burst buffer.
    pub checkpoint: Option<(Millis, f64)>,
    /// Seed of the burst buffers.
    pub seed: u64,
}

impl Assumptions {
    /// Adds what is assumed to a job. Burst buffers that are drawn are at most as large as the pool.
    pub fn apply(&self, job: &mut Job, cluster: &Cluster) {
        if let Some(per_node) = self.per_node {
            let each = per_node.of_job(self.seed, job.id).0;
            job.buffer = Bytes(each.saturating_mul(job.nodes.into())).min(cluster.capacity());
            (job.stage_in, job.stage_out) = (Bytes::ZERO, Bytes::ZERO);
        }
        let share = |share: f64| Bytes((job.buffer.0 as f64 * share) as u64).min(job.buffer);
        let (stage_in, stage_out) = (self.stage_in.map(share), self.stage_out.map(share));
        let checkpoint = self.checkpoint.map(|(every, of)| Checkpoint { every, bytes: share(of) });
        if job.stage_in == Bytes::ZERO {
            job.stage_in = stage_in.unwrap_or_default();
        }
        if job.stage_out == Bytes::ZERO {
            job.stage_out = stage_out.unwrap_or_default();
        }
        if job.buffer > Bytes::ZERO {
            job.checkpoint = checkpoint.or(job.checkpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_read_and_written() {
        let given = "lognormal:median=2 GiB,sigma=1.5,max=40 GB,share=0.5";
        assert_eq!(given.parse::<PerNode>().unwrap().to_string(), given);
        assert_eq!("fixed:4GiB".parse::<PerNode>(), Ok(PerNode::Fixed(Bytes(4 << 30))));
        for (text, word) in [
            ("normal:1", "not a distribution"),
            ("lognormal:median=2GiB", "no sigma"),
            ("lognormal:median=2,sigma=1", "no unit"),
            ("lognormal:median=2GiB,sigma=-1", "0 or more"),
            ("lognormal:median=2GiB,sigma=1,share=2", "more than 1"),
            ("lognormal:mode=2GiB", "not a parameter"),
        ] {
            let error = text.parse::<PerNode>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn log_normal_values_have_the_median_and_the_deviation() {
        let per_node =
            PerNode::LogNormal { median: Bytes(1_000_000_000), sigma: 1.5, max: None, share: 0.75 };
        let values: Vec<f64> = (0..40_000)
            .map(|id| per_node.of_job(3, id).0 as f64)
            .filter(|value| *value > 0.0)
            .map(|value| (value / 1e9).ln())
            .collect();
        assert!((values.len() as f64 / 40_000.0 - 0.75).abs() < 0.01, "{}", values.len());
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.03, "{mean}");
        assert!((variance.sqrt() - 1.5).abs() < 0.03, "{variance}");
    }
}
