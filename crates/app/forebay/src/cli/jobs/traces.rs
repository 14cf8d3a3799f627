//! Traces of `forebay sim jobs`: files, and their jobs on a machine.

use super::JobsArgs;
use flate2::read::MultiGzDecoder;
use forebay_console::Failure;
use forebay_schedule::cluster::Cluster;
use forebay_schedule::job::Job;
use forebay_schedule::requests::Assumptions;
use forebay_schedule::trace::{Trace, TraceOptions, parse_batsim, parse_swf};
use forebay_units::human::counted;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most bytes of a trace, decompressed: 1 GiB.
const MAX_BYTES: u64 = 1 << 30;
/// Jobs that a message names.
const MAX_NAMED: usize = 5;

/// A trace and its file.
#[derive(Debug)]
pub(super) struct TraceFile {
    pub(super) name: String,
    pub(super) trace: Trace,
}

/// The jobs of a trace that are simulated on a machine.
#[derive(Debug)]
pub(super) struct Simulated {
    pub(super) jobs: Vec<Job>,
    /// Jobs that can never run, each with the reason.
    pub(super) impossible: Vec<(u64, String)>,
}

impl TraceFile {
    pub(super) fn read(path: &Path, args: &JobsArgs) -> Result<TraceFile, Failure> {
        let name = path.display().to_string();
        let failed = |problem: String| Failure::Input(format!("{name}: {problem}"));
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let is_compressed = path.extension().is_some_and(|extension| extension == "gz");
        let mut text = String::new();
        let read = match is_compressed {
            true => MultiGzDecoder::new(file).take(MAX_BYTES + 1).read_to_string(&mut text),
            false => file.take(MAX_BYTES + 1).read_to_string(&mut text),
        };
        let length = read.map_err(|error| failed(error.to_string()))?;
        if length as u64 > MAX_BYTES {
            return Err(failed(format!("more than {MAX_BYTES} bytes")));
        }
        let options =
            TraceOptions { processors_per_node: args.processors_per_node, flops: args.flops };
        let parse = match text.trim_start().starts_with('{') {
            true => parse_batsim,
            false => parse_swf,
        };
        let trace = parse(&text, &options).map_err(|error| failed(error.to_string()))?;
        if trace.jobs.is_empty() {
            return Err(failed("no job that can be simulated".to_owned()));
        }
        Ok(TraceFile { name, trace })
    }

    /// The jobs on a machine. Those that can never run are an error, or left out.
    pub(super) fn on(
        &self,
        cluster: &Cluster,
        assumptions: &Assumptions,
        skip_impossible: bool,
    ) -> Result<Simulated, Failure> {
        let mut jobs = Vec::with_capacity(self.trace.jobs.len());
        let mut impossible = Vec::new();
        for job in &self.trace.jobs {
            let mut job = job.clone();
            assumptions.apply(&mut job, cluster);
            match cluster.check(&job) {
                Ok(()) => jobs.push(job),
                Err(reason) => impossible.push((job.id, reason.to_string())),
            }
        }
        if !impossible.is_empty() && (!skip_impossible || jobs.is_empty()) {
            return Err(Failure::Input(format!(
                "{}: {} can never run on this machine: {}; give a larger machine, or --skip-impossible to \
                 leave them out",
                self.name,
                counted(impossible.len() as u64, "job"),
                named(&impossible),
            )));
        }
        Ok(Simulated { jobs, impossible })
    }
}

/// The first jobs of a list, with their reasons.
pub(super) fn named(jobs: &[(u64, String)]) -> String {
    let first = jobs.iter().take(MAX_NAMED).map(|(id, reason)| format!("{id} ({reason})"));
    let mut text = first.collect::<Vec<_>>().join(", ");
    if jobs.len() > MAX_NAMED {
        text.push_str(&format!(" and {} more", jobs.len() - MAX_NAMED));
    }
    text
}
