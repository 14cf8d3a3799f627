//! Statistics of files and calls, reported when MPI ends.
//!
//! `FOREBAY_MPIIO_STATISTICS` names a file for them in JSON, or is `-` for a table on standard error.

use crate::file::{background, left};
use crate::files;
use crate::mpi::communicator::Communicator;
use crate::mpi::symbols;
use crate::mpi::{MpiError, library};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, c_int};
use std::path::Path;

/// Counts of one file, of one process or the sums of all.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Times that a process opened the file.
    pub opened: u64,
    /// Writes that were logged.
    pub logged_requests: u64,
    /// Their bytes.
    pub logged_bytes: u64,
    /// Writes to the file because the log was full.
    pub past_log_requests: u64,
    /// Their bytes.
    pub past_log_bytes: u64,
    /// Reads and writes that the MPI library carried out: in atomic mode, or with a data
    /// representation other than `native`.
    pub through_requests: u64,
    /// Bytes of the writes among them.
    pub through_bytes: u64,
    /// Reads.
    pub read_requests: u64,
    /// Bytes that reads found in logs.
    pub log_read_bytes: u64,
    /// Collective reads of data that another process had logged and not synced.
    pub overlapping_reads: u64,
    /// Applications of the log to the file.
    pub flushes: u64,
    /// Applications by one process alone, because its log was full.
    pub early_flushes: u64,
    /// Writes to the file from the log.
    pub merged_writes: u64,
    /// Their bytes.
    pub merged_bytes: u64,
    /// Time of applying the log while the program waited.
    pub flush_nanoseconds: u64,
    /// Time of applying the log after the file was closed.
    pub background_nanoseconds: u64,
    /// The part of this time in which the program waited for it.
    pub waited_nanoseconds: u64,
}

impl Counters {
    fn fields(&mut self) -> [&mut u64; 17] {
        [
            &mut self.opened,
            &mut self.logged_requests,
            &mut self.logged_bytes,
            &mut self.past_log_requests,
            &mut self.past_log_bytes,
            &mut self.through_requests,
            &mut self.through_bytes,
            &mut self.read_requests,
            &mut self.log_read_bytes,
            &mut self.overlapping_reads,
            &mut self.flushes,
            &mut self.early_flushes,
            &mut self.merged_writes,
            &mut self.merged_bytes,
            &mut self.flush_nanoseconds,
            &mut self.background_nanoseconds,
            &mut self.waited_nanoseconds,
        ]
    }

    fn add(&mut self, mut other: Counters) {
        for (sum, value) in self.fields().into_iter().zip(other.fields()) {
            *sum += *value;
        }
    }
}

/// Counts of a process, or their sums.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Report {
    /// Number of processes.
    processes: u64,
    /// Counts by path.
    files: BTreeMap<String, Counters>,
    /// Calls of intercepted functions by name.
    calls: BTreeMap<String, u64>,
}

impl Report {
    fn add(&mut self, other: Report) {
        self.processes += other.processes;
        for (path, counters) in other.files {
            self.files.entry(path).or_default().add(counters);
        }
        for (name, calls) in other.calls {
            *self.calls.entry(name).or_default() += calls;
        }
    }

    fn print(&self) {
        for (path, counters) in &self.files {
            let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
            let hidden =
                counters.background_nanoseconds.saturating_sub(counters.waited_nanoseconds);
            let apply = seconds(counters.flush_nanoseconds + counters.background_nanoseconds);
            let rate = counters.merged_bytes as f64 / 1e6 / apply.max(1e-9) * self.processes as f64;
            eprintln!(
                "forebay: {path}: {} writes of {} bytes logged, {} past the log; {} merged writes \
                 of {} bytes at {rate:.0} MB/s; {} bytes read from logs; {:.3} s of all processes \
                 hidden",
                counters.logged_requests,
                counters.logged_bytes,
                counters.past_log_requests + counters.through_requests,
                counters.merged_writes,
                counters.merged_bytes,
                counters.log_read_bytes,
                seconds(hidden)
            );
        }
    }
}

static FILES: Mutex<BTreeMap<String, Counters>> = Mutex::new(BTreeMap::new());

/// Adds the counts of a file that was closed.
pub fn add(path: &Path, counters: Counters) {
    FILES.lock().entry(path.to_string_lossy().into_owned()).or_default().add(counters);
}

/// Ends this library's work before `MPI_Finalize`: closes the files that are open, waits for logs that
/// are being applied, and reports. Collective if a file is open or a report is requested.
pub fn before_finalize() -> Option<c_int> {
    files::close_all();
    background::wait_for_all();
    left::discard_of_unnamed();
    if let Some(to) = std::env::var_os("FOREBAY_MPIIO_STATISTICS").filter(|to| !to.is_empty())
        && let Err(MpiError(code)) = report(&to)
    {
        eprintln!("forebay: cannot collect the statistics of MPI-IO (error {code} of MPI)");
    }
    None
}

fn report(to: &OsStr) -> Result<(), MpiError> {
    let counts = symbols::counts();
    let own = Report {
        processes: 1,
        files: FILES.lock().clone(),
        calls: counts.into_iter().map(|(name, calls)| (name.to_string(), calls)).collect(),
    };
    let world = Communicator::of(library().comm_world)?;
    let bytes = serde_json::to_vec(&own).unwrap_or_default();
    let all = world.gather_all(&bytes)?;
    if world.rank != 0 {
        return Ok(());
    }
    let mut sum = Report::default();
    for bytes in all {
        sum.add(serde_json::from_slice(&bytes).unwrap_or_default());
    }
    if to == "-" {
        sum.print();
        return Ok(());
    }
    let text = serde_json::to_string_pretty(&sum).unwrap_or_default();
    if let Err(error) = std::fs::write(to, text + "\n") {
        eprintln!("forebay: cannot write {}: {error}", to.display());
    }
    Ok(())
}
