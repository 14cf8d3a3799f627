//! JSON of the simulator Batsim: `jobs` with `id`, `subtime`, `walltime`, `res` and `profile`, and `profiles`.
//! As in the workloads of Kopanski and Rzadca, a profile has in `bb` the bytes of the burst buffer for each node.
//! Forebay also reads `stage_in` and `stage_out`, bytes for each node.

use super::{Trace, TraceError, TraceOptions};
use crate::job::Job;
use crate::time::Millis;
use forebay_units::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Document {
    nb_res: Option<u32>,
    jobs: Vec<JobEntry>,
    profiles: BTreeMap<String, Profile>,
}

#[derive(Deserialize)]
struct JobEntry {
    id: Id,
    subtime: f64,
    walltime: Option<f64>,
    res: u32,
    profile: String,
}

/// A number, or a text that ends in one, as `w0!12`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Text(String),
}

#[derive(Deserialize)]
struct Profile {
    #[serde(rename = "type")]
    kind: String,
    delay: Option<f64>,
    cpu: Option<f64>,
    bb: Option<u64>,
    stage_in: Option<u64>,
    stage_out: Option<u64>,
}

impl Profile {
    /// Run time, in seconds. The communication of `parallel_homogeneous` is left out.
    fn seconds(&self, options: &TraceOptions) -> Result<f64, String> {
        match (self.kind.as_str(), self.delay, self.cpu) {
            ("delay", Some(delay), _) => Ok(delay),
            ("parallel_homogeneous", _, Some(cpu)) => Ok(cpu / options.flops),
            ("delay", None, _) => Err("has no `delay`".into()),
            ("parallel_homogeneous", _, None) => Err("has no `cpu`".into()),
            (kind, ..) => Err(format!(
                "has the type {kind:?}; profiles of the types delay and parallel_homogeneous can be simulated"
            )),
        }
    }
}

impl Id {
    fn number(&self) -> Option<u64> {
        match self {
            Id::Number(number) => Some(*number),
            Id::Text(text) => text.rsplit('!').next()?.parse().ok(),
        }
    }
}

/// Reads a workload.
///
/// # Errors
/// The text is not such a document, or a job is not as it should be.
pub fn parse_batsim(text: &str, options: &TraceOptions) -> Result<Trace, TraceError> {
    let document: Document = serde_json::from_str(text)
        .map_err(|error| TraceError::Document(format!("not a workload of Batsim: {error}")))?;
    let mut trace = Trace { nodes: document.nb_res, ..Trace::default() };
    for (index, entry) in document.jobs.iter().enumerate() {
        let failed = |problem: String| TraceError::Document(format!("jobs[{index}]: {problem}"));
        let id = entry.id.number().ok_or_else(|| failed("`id` has no number".into()))?;
        let profile = document
            .profiles
            .get(&entry.profile)
            .ok_or_else(|| failed(format!("there is no profile {:?}", entry.profile)))?;
        let run = profile
            .seconds(options)
            .map_err(|problem| failed(format!("profile {:?} {problem}", entry.profile)))?;
        let time = |name: &str, value: f64| {
            let time = Millis::of_seconds(value);
            time.ok_or_else(|| failed(format!("{name} of {value} s; times are 0 s or more")))
        };
        let (arrival, run) = (time("`subtime`", entry.subtime)?, time("a run time", run)?);
        let requested = entry.walltime.map_or(Ok(run), |limit| time("`walltime`", limit))?;
        let bytes =
            |each: Option<u64>| Bytes(each.unwrap_or(0).saturating_mul(u64::from(entry.res)));
        let job = Job {
            buffer: bytes(profile.bb),
            stage_in: bytes(profile.stage_in),
            stage_out: bytes(profile.stage_out),
            ..Job::new(id, arrival, entry.res, requested, run)
        };
        trace.has_buffers |= job.buffer > Bytes::ZERO;
        trace.push(job, run)?;
    }
    Ok(trace.sorted())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_the_burst_buffers_of_their_profiles() {
        let text = r#"{"nb_res": 8, "jobs": [
            {"id": "w0!7", "subtime": 5, "walltime": 20, "res": 2, "profile": "a"},
            {"id": 6, "subtime": 1.5, "res": 1, "profile": "b"}
        ], "profiles": {
            "a": {"type": "parallel_homogeneous", "cpu": 3e10, "com": 5, "bb": 100, "stage_out": 50},
            "b": {"type": "delay", "delay": 4}
        }}"#;
        let trace = parse_batsim(text, &TraceOptions::default()).unwrap();
        let seconds = Millis::from_seconds;
        let first = Job::new(6, Millis(1500), 1, seconds(4), seconds(4));
        let second = Job {
            buffer: Bytes(200),
            stage_out: Bytes(100),
            ..Job::new(7, seconds(5), 2, seconds(20), seconds(30))
        };
        assert_eq!(trace.jobs, [first, second]);
        assert_eq!((trace.nodes, trace.cut, trace.has_buffers), (Some(8), 1, true));
    }

    #[test]
    fn errors_name_the_job_and_what_can_be_read() {
        let with = |job: &str, profile: &str| {
            let text = format!("{{\"jobs\": [{job}], \"profiles\": {{\"a\": {profile}}}}}");
            parse_batsim(&text, &TraceOptions::default()).unwrap_err().to_string()
        };
        let job = r#"{"id": 1, "subtime": 0, "res": 1, "profile": "a"}"#;
        let error = with(job, r#"{"type": "smpi"}"#);
        assert!(error.starts_with("jobs[0]: profile \"a\" has the type \"smpi\""), "{error}");
        let error = with(&job.replace("\"a\"", "\"b\""), r#"{"type": "delay", "delay": 1}"#);
        assert_eq!(error, "jobs[0]: there is no profile \"b\"");
        let error = with(&job.replace("0", "-1"), r#"{"type": "delay", "delay": 1}"#);
        assert!(error.contains("`subtime` of -1 s"), "{error}");
        let error = parse_batsim("{\n\"jobs\": 3}", &TraceOptions::default()).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
