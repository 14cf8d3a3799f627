//! Application of logs after the file was closed, by a thread of each process.
//!
//! The processes know all entries when the file is closed, so that the threads need no messages.
//! Each writes its part of the file and leaves a mark next to its log. When all marks exist, the
//! thread removes its log, and then its mark.

use super::flush::{alignment, apply, part_of_rank};
use super::sources::{Logs, Sources};
use super::{IN_FILE, LoggedFile, report};
use crate::mpi::MpiError;
use crate::statistics::{self, Counters};
use forebay_mpiio_log::{Index, LogWriter};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest and longest time between looks at the marks of other processes.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Mark of a process whose part is in the file.
const APPLIED: &[u8] = b"applied";
/// Mark of a process that failed.
const FAILED: &[u8] = b"failed";

/// The remains of a closed file.
#[derive(Debug)]
pub struct Remains {
    pub path: PathBuf,
    pub rank: usize,
    pub ranks: usize,
    pub stripe: u64,
    pub writer: LogWriter,
    pub logs: Logs,
    pub index: Index,
    pub target: Arc<File>,
    pub synced: bool,
    pub counters: Counters,
}

/// A thread, and the file to which it applies a log.
struct Pending {
    path: PathBuf,
    thread: JoinHandle<Counters>,
}

static PENDING: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

/// Closes a file, whose logs a thread will apply. Collective.
pub fn start(mut file: LoggedFile) -> Result<(), MpiError> {
    let failed = file.prepare_background();
    if failed? {
        let result = file.flush();
        return file.end(result, LogWriter::discard);
    }
    let remains = file.into_background();
    let path = remains.path.clone();
    let mark = mark(remains.writer.path());
    let thread = std::thread::Builder::new()
        .name("forebay-flush".to_string())
        .spawn(move || remains.apply());
    match thread {
        Ok(thread) => PENDING.lock().push(Pending { path, thread }),
        Err(error) => {
            // The others keep their logs, too.
            if let Err(error) = std::fs::write(&mark, FAILED) {
                report(&mark, "write", &error);
            }
            return Err(report(&path, "apply the log, which stays, to", &error));
        }
    }
    Ok(())
}

/// Waits until the logs of a file that was closed before are applied.
pub fn wait_for(path: &Path) {
    wait(|pending| pending.path == path);
}

/// Waits until all logs are applied.
pub fn wait_for_all() {
    wait(|_| true);
}

fn wait(selected: impl Fn(&Pending) -> bool) {
    let threads: Vec<Pending> =
        PENDING.lock().extract_if(.., |pending| selected(pending)).collect();
    for Pending { path, thread } in threads {
        let started = Instant::now();
        let Ok(mut counters) = thread.join() else {
            report(&path, "apply the log, which stays, to", &"the thread has panicked");
            continue;
        };
        counters.waited_nanoseconds += started.elapsed().as_nanos() as u64;
        statistics::add(&path, counters);
    }
}

impl LoggedFile {
    /// Makes all entries known to all processes. Returns whether a process cannot write its log, so
    /// that the others cannot read it.
    fn prepare_background(&mut self) -> Result<bool, MpiError> {
        self.advance();
        let [failed] = self.comm.max([u64::from(self.writer.flush().is_err())])?;
        if failed == 0 {
            self.exchange()?;
        }
        Ok(failed != 0)
    }
}

impl Remains {
    /// Applies this process's part of the file, and removes the log when all have done so.
    fn apply(mut self) -> Counters {
        let started = Instant::now();
        let result = self.apply_part();
        self.counters.background_nanoseconds += started.elapsed().as_nanos() as u64;
        if let Err(error) = &result {
            report(&self.path, "apply the log, which stays, to", error);
        }
        let mark = mark(self.writer.path());
        let written = std::fs::write(&mark, if result.is_ok() { APPLIED } else { FAILED });
        if let Err(error) = written {
            report(&mark, "write", &error);
        }
        if result.is_ok() && self.wait_for_others() {
            let log = self.writer.path().to_owned();
            if let Err(error) = self.writer.discard() {
                report(&log, "remove", &error);
            }
            let _ = std::fs::remove_file(mark);
        }
        self.counters
    }

    fn apply_part(&mut self) -> io::Result<()> {
        let Some(range) = self.index.cover(1).pop() else { return Ok(()) };
        let part = part_of_rank(&range, self.rank as u64, self.ranks as u64, self.stripe);
        let sources = Sources { rank: self.rank as u32, writer: &self.writer, logs: &self.logs };
        let applied = apply(
            self.index.touching(part.clone()),
            part,
            alignment(self.stripe),
            |rank| rank != IN_FILE,
            &sources,
            &self.target,
        )?;
        self.counters.merged_writes += applied.writes;
        self.counters.merged_bytes += applied.bytes;
        self.counters.flushes += 1;
        if self.synced { self.target.sync_data() } else { Ok(()) }
    }

    /// Whether all processes have applied their parts. Returns when this is known.
    fn wait_for_others(&self) -> bool {
        let mut pause = LOOK_AGAIN.0;
        for log in self.logs.paths() {
            loop {
                match std::fs::read(mark(log)) {
                    Ok(content) if content == APPLIED => break,
                    Ok(content) if content == FAILED => return false,
                    // The process has removed its log, and therefore seen all marks.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && !log.exists() => break,
                    Ok(_) | Err(_) => {}
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(LOOK_AGAIN.1);
            }
        }
        true
    }
}

/// Path of the mark next to a log.
fn mark(log: &Path) -> PathBuf {
    log.with_extension("applied")
}
