//! Application of logs after the file was closed, by a thread of each process.
//!
//! The processes know all entries when the file is closed, so that the threads need no messages.
//! Each log has a mark next to it, a file of constant length that is made while the processes can
//! still agree to apply the logs at once. A thread writes its part of the file, then `APPLIED` into
//! its mark; when all say so, it releases its log and writes `RELEASED`; when all say so, it removes
//! its log, and then its mark. So no log is gone while another one could be replayed alone, over
//! later writes of the first.

use super::flush::{apply, part_of_rank};
use super::log_mapping::CreatedLog;
use super::sources::{Logs, Sources};
use super::{FileId, IN_FILE, LoggedFile, file_id, report};
use crate::mpi::MpiError;
use crate::statistics::{self, Counters};
use forebay_mpiio_log::{Index, LogWriter, MARK_EXTENSION, alignment_for};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest and longest time between looks at the marks of other processes.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Mark of a process that applies its part.
const PENDING: &[u8; 8] = b"pending ";
/// Mark of a process whose part is in the file.
const APPLIED: &[u8; 8] = b"applied ";
/// Mark of a process whose log is released, too.
const RELEASED: &[u8; 8] = b"released";
/// Mark of a process that failed.
const FAILED: &[u8; 8] = b"failed  ";

/// The remains of a closed file.
#[derive(Debug)]
pub struct ClosedFile {
    pub path: PathBuf,
    pub id: FileId,
    pub rank: usize,
    pub ranks: usize,
    pub stripe: u64,
    pub writer: LogWriter,
    pub logs: Logs,
    pub index: Index,
    pub target: Arc<File>,
    pub synced: bool,
    pub epoch: u64,
    pub counters: Counters,
}

/// A thread, and the file to which it applies a log.
struct Pending {
    path: PathBuf,
    id: FileId,
    thread: JoinHandle<Counters>,
}

static PENDING_THREADS: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

/// Ends the logging of a file that is about to be closed. Collective. Returns what a thread applies
/// after the close; `None` if it was applied at once.
pub fn prepare(mut file: LoggedFile) -> Result<Option<ClosedFile>, MpiError> {
    let result = match file.prepare_background() {
        Ok(false) => return Ok(Some(file.into_background())),
        Ok(true) => file.flush(),
        Err(error) => Err(error),
    };
    file.end(result, CreatedLog::discard).map(|()| None)
}

/// Changes a mark, in place. If that fails it is removed, which the others take for a failure.
/// Returns whether the mark says what it should.
fn set(mark: &Path, content: &[u8; 8]) -> bool {
    let file = OpenOptions::new().write(true).open(mark);
    let written = file.and_then(|file| file.write_all_at(content, 0));
    if let Err(error) = &written {
        report(mark, "write", error);
        let _ = std::fs::remove_file(mark);
    }
    written.is_ok()
}

/// Waits until the logs of a file that was closed before are applied.
pub fn wait_for(path: &Path) {
    let id = file_id(path);
    wait(|pending| id == Some(pending.id) || pending.path == path);
}

/// Waits until all logs are applied.
pub fn wait_for_all() {
    wait(|_| true);
}

fn wait(selected: impl Fn(&Pending) -> bool) {
    let threads: Vec<Pending> =
        PENDING_THREADS.lock().extract_if(.., |pending| selected(pending)).collect();
    for Pending { path, thread, .. } in threads {
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
    /// Makes all entries known to all processes, and the mark of this one. Returns whether a process
    /// can write neither its log, so that the others cannot read it, nor its mark.
    fn prepare_background(&mut self) -> Result<bool, MpiError> {
        self.advance();
        let mark = mark(self.writer.path());
        let written = self.writer.flush().and_then(|()| {
            // Another user may have made a file or link of this name.
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&mark)?;
            file.write_all_at(PENDING, 0)
        });
        if let Err(error) = &written {
            self.failed("prepare the application of the log to", error);
        }
        let [failed, epoch, synced] =
            self.comm.max([u64::from(written.is_err()), self.epoch, u64::from(self.synced)])?;
        self.agree(epoch);
        self.synced = synced != 0;
        if failed == 0 {
            self.exchange()?;
        } else if written.is_ok() {
            let _ = std::fs::remove_file(mark);
        }
        Ok(failed != 0)
    }
}

impl ClosedFile {
    /// Starts the thread that applies the log.
    pub fn start(self) -> Result<(), MpiError> {
        let (path, id) = (self.path.clone(), self.id);
        let mark = mark(self.writer.path());
        let thread = std::thread::Builder::new()
            .name("forebay-flush".to_string())
            .spawn(move || self.apply());
        match thread {
            Ok(thread) => PENDING_THREADS.lock().push(Pending { path, id, thread }),
            Err(error) => {
                // The others keep their logs, too.
                set(&mark, FAILED);
                return Err(report(&path, "apply the log, which stays, to", &error));
            }
        }
        Ok(())
    }

    /// Applies this process's part of the file, and removes the log when all have done so.
    fn apply(mut self) -> Counters {
        let started = Instant::now();
        let result = self.apply_part();
        self.counters.background_nanoseconds += started.elapsed().as_nanos() as u64;
        let mark = mark(self.writer.path());
        if let Err(error) = &result {
            report(&self.path, "apply the log, which stays, to", error);
            set(&mark, FAILED);
            return self.counters;
        }
        if !set(&mark, APPLIED) || !self.wait_for_others(&[APPLIED, RELEASED]) {
            return self.counters;
        }
        let log = self.writer.path().to_owned();
        if let Err(error) = self.writer.reset_together(self.epoch) {
            report(&log, "release the log", &error);
            set(&mark, FAILED);
            return self.counters;
        }
        if !set(&mark, RELEASED) || !self.wait_for_others(&[RELEASED]) {
            return self.counters;
        }
        if let Err(error) = self.writer.discard() {
            report(&log, "remove", &error);
        }
        let _ = std::fs::remove_file(mark);
        self.counters
    }

    fn apply_part(&mut self) -> io::Result<()> {
        let Some(range) = self.index.cover(1).pop() else { return Ok(()) };
        let part = part_of_rank(&range, self.rank as u64, self.ranks as u64, self.stripe);
        let sources = Sources { rank: self.rank as u32, writer: &self.writer, logs: &self.logs };
        let applied = apply(
            self.index.touching(part.clone()),
            part,
            (alignment_for(self.stripe), 0),
            |rank| rank != IN_FILE,
            &sources,
            &self.target,
        )?;
        self.counters.merged_writes += applied.writes;
        self.counters.merged_bytes += applied.bytes;
        self.counters.flushes += 1;
        if self.synced { self.target.sync_data() } else { Ok(()) }
    }

    /// Waits until the marks of all processes have one of these contents. Returns false if one has
    /// failed.
    fn wait_for_others(&self, expected: &[&[u8; 8]]) -> bool {
        let mut pause = LOOK_AGAIN.0;
        for log in self.logs.paths() {
            loop {
                match std::fs::read(mark(log)) {
                    Ok(content) if expected.iter().any(|mark| content == **mark) => break,
                    Ok(content) if content == FAILED => return false,
                    // A process removes its log when it has seen all marks, and the mark last.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        if log.exists() {
                            return false;
                        }
                        break;
                    }
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
    log.with_extension(MARK_EXTENSION)
}
