//! What a log does not determine, and what its reduction leaves out.

use super::collect::{Collector, STREAM_BUFFER};
use super::phase::Phase;
use forebay_darshan_log::Log;
use forebay_units::human::{bytes, counted, grouped, percent};
use std::collections::HashSet;
use std::io::{Read, Seek};

/// What the warnings are about.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub left_out_records: u64,
    pub untraced_files: HashSet<u64>,
    pub mapped_files: HashSet<u64>,
    pub collective: bool,
    pub stream_bytes: u64,
    pub meta_seconds: f64,
    pub io_seconds: f64,
}

impl Collector {
    /// What the log does not determine, or the reduction leaves out.
    pub(super) fn warnings<R: Read + Seek>(
        &self,
        log: &Log<R>,
        phases: &[Phase],
        (has_traces, is_counted): (bool, bool),
    ) -> Vec<String> {
        let mut found = Vec::new();
        let mut warn = |applies: bool, text: String| {
            if applies {
                found.push(text);
            }
        };
        let partial: Vec<String> = log
            .header()
            .modules
            .iter()
            .filter(|m| m.is_partial)
            .map(|region| region.module.to_string())
            .collect();
        let files = |count: usize| counted(count as u64, "file");
        let seen = &self.seen;
        warn(
            !partial.is_empty(),
            format!(
                "the log is incomplete: Darshan's memory for {} was full; what it did not record is not \
                 simulated",
                partial.join(", ")
            ),
        );
        warn(
            seen.left_out_records > 0,
            format!(
                "{} that also count calls of streams: left out",
                counted(seen.left_out_records, "record")
            ),
        );
        warn(
            is_counted && !has_traces,
            "the log has no traces (DXT): times, sizes and offsets of single requests are not known, and \
             phases are those of the counters"
                .into(),
        );
        warn(
            has_traces && !seen.untraced_files.is_empty(),
            format!(
                "no complete traces of {}: their counters are used",
                files(seen.untraced_files.len())
            ),
        );
        warn(
            !seen.mapped_files.is_empty(),
            format!(
                "{} mapped into memory: what moved through the maps is not in the log",
                files(seen.mapped_files.len())
            ),
        );
        let both = self.files.values().filter(|facts| facts.read > 0 && facts.written > 0).count();
        warn(
            both > 0,
            format!(
                "{} written and read: the reads are simulated as reads from storage, whatever a cache \
                 on the nodes still had",
                files(both)
            ),
        );
        let repeated = self.files.values().filter(|facts| facts.is_read_repeatedly()).count();
        warn(
            repeated > 0,
            format!(
                "{} of which more was read than they contain: bytes that caches give to several reads or \
                 processes are simulated as bytes at different places, so that the reads take much too long",
                files(repeated)
            ),
        );
        warn(
            seen.collective,
            "collective MPI-IO: simulated are the POSIX calls that the library made, without the exchange of \
             data between processes before and after them"
                .into(),
        );
        let all_bytes = self.performance.bytes();
        warn(
            seen.stream_bytes as f64 > 0.01 * all_bytes as f64,
            format!(
                "{} moved through C streams, whose requests are not in the log: simulated with buffers of \
                 {STREAM_BUFFER} bytes",
                bytes(seen.stream_bytes)
            ),
        );
        let meta = seen.meta_seconds / seen.io_seconds.max(f64::MIN_POSITIVE);
        warn(
            meta > 0.1,
            format!(
                "{} of the time in calls was spent in opens, closes, seeks and the like: simulated is one \
                 open and one close of each process in each part",
                percent(meta)
            ),
        );
        let is_several = |phase: &&Phase| {
            !phase.parts.is_empty()
                && phase.files > if phase.is_shared { 1 } else { u64::from(phase.processes) }
        };
        let several: Vec<u64> = phases.iter().filter(is_several).map(|phase| phase.files).collect();
        warn(
            !several.is_empty(),
            format!(
                "{} with more files than simulated ({} in one of them): a process has one file in a phase, \
                 processes that share files share one",
                counted(several.len() as u64, "phase"),
                grouped(several.iter().copied().max().unwrap_or(0))
            ),
        );
        warn(
            is_some_overlap(phases),
            "phases that overlap in time are simulated one after the other".into(),
        );
        let left_out: u64 = phases.iter().map(Phase::left_out).sum();
        warn(left_out > 0, format!("small parts with {} in all are left out", bytes(left_out)));
        found
    }
}

/// Whether simulated phases overlap in time.
fn is_some_overlap(phases: &[Phase]) -> bool {
    let mut end = f64::NEG_INFINITY;
    phases.iter().filter(|phase| !phase.parts.is_empty()).any(|phase| {
        let overlaps = phase.begin < end;
        end = end.max(phase.end);
        overlaps
    })
}
