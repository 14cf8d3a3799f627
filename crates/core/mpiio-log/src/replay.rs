//! Replay of the logs that a program left: their entries are written to the files.
//!
//! A replay that is interrupted is repeated: it writes the same bytes again. When the file is
//! durable, the log is marked as applied and then removed, so that a later replay changes nothing.

use crate::identity::is_log_name;
use crate::logged_run::{FinishedLog, LoggedRun};
use crate::plan::{Alignment, Applied, Target};
use crate::scan::{ScanError, ScannedLog, scan_file};
use crate::writer::sync_parent;
use rustix::fs::FlockOperation;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Options of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Only the logs of this file.
    pub target: Option<PathBuf>,
    /// Replay the valid entries of damaged logs, too. Damaged logs are kept.
    pub skip_damaged: bool,
    /// Alignment of the writes.
    pub alignment: Alignment,
}

/// Failure of a replay. Files whose logs were replayed before stay so.
#[derive(Debug)]
pub enum ReplayError {
    /// The directory, or a log, cannot be read or removed.
    Log {
        /// The path.
        path: PathBuf,
        /// The failure.
        error: io::Error,
    },
    /// A log cannot be scanned.
    Scan {
        /// Path of the log.
        path: PathBuf,
        /// The failure.
        error: ScanError,
    },
    /// A process has the log open.
    InUse(PathBuf),
    /// The log belongs to another user, whose choice of files is not followed.
    Foreign {
        /// Path of the log.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Durable records are damaged.
    Damaged(PathBuf),
    /// The file cannot be written.
    Target {
        /// Path of the file.
        path: PathBuf,
        /// The failure.
        error: io::Error,
    },
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplayError::Log { path, error } => write!(f, "{}: {error}", path.display()),
            ReplayError::Scan { path, error } => write!(f, "{}: {error}", path.display()),
            ReplayError::InUse(path) => {
                write!(f, "{} is in use by a running program", path.display())
            }
            ReplayError::Foreign { path, owner } => write!(
                f,
                "{} belongs to user {owner}; a log is replayed or discarded by its owner",
                path.display()
            ),
            ReplayError::Damaged(path) => {
                write!(f, "{}: durable records are damaged", path.display())
            }
            ReplayError::Target { path, error } => {
                write!(f, "cannot write {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for ReplayError {}

/// The replay of the logs of one file and run.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The file.
    pub target: PathBuf,
    /// The opening of the file to which the logs belong.
    pub run: String,
    /// Time of creation of the first log.
    pub created: SystemTime,
    /// Number of logs.
    pub logs: usize,
    /// Entries.
    pub entries: u64,
    /// Merged writes and their bytes.
    pub applied: Applied,
    /// Ranks whose logs were not found; they may be in the directories of other nodes.
    pub missing_ranks: Vec<u32>,
    /// Records that were damaged and skipped.
    pub skipped: u64,
}

/// A log that was removed.
#[derive(Debug)]
pub struct Discarded {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub contents: Result<ScannedLog, ScanError>,
}

/// Paths of the logs in a directory, in the order of their names.
///
/// # Errors
/// The directory cannot be read.
pub fn logs(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if is_log_name(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether a process has a log open for writing.
///
/// # Errors
/// The log cannot be opened or locked.
pub fn is_in_use(path: &Path) -> io::Result<bool> {
    match rustix::fs::flock(File::open(path)?, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Replays the logs in directories. The logs of several ranks of a run are replayed together, in
/// the order of their entries, and the runs in the order of their creation. Blank logs are removed.
/// Files that do not exist are created.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(
    directories: &[PathBuf],
    options: &ReplayOptions,
) -> Result<Vec<Replayed>, ReplayError> {
    let logs = open_all(directories, options.target.as_deref())?;
    if let Some(log) = logs.iter().find(|log| log.is_damaged() && !options.skip_damaged) {
        return Err(ReplayError::Damaged(log.path.clone()));
    }
    LoggedRun::group(logs).iter().map(|run| replay_run(run, options)).collect()
}

/// Removes the logs in a directory without replaying them, and returns what they contained. Logs that
/// cannot be scanned are removed, too.
///
/// # Errors
/// A log is in use, belongs to another user or cannot be removed.
pub fn discard(directory: &Path, target: Option<&Path>) -> Result<Vec<Discarded>, ReplayError> {
    let mut discarded = Vec::new();
    let listed = logs(directory).map_err(|error| log_error(directory, error))?;
    for path in listed {
        let scanned = scan_file(&path, Box::new(open_exclusively(&path)?));
        let is_wanted =
            target.is_none_or(|target| scanned.as_ref().is_ok_and(|log| log.target == target));
        if is_wanted {
            std::fs::remove_file(&path).map_err(|error| log_error(&path, error))?;
            discarded.push(Discarded { path, contents: scanned });
        }
    }
    Ok(discarded)
}

fn log_error(path: &Path, error: io::Error) -> ReplayError {
    ReplayError::Log { path: path.to_owned(), error }
}

/// Opens a log that no process uses, and that belongs to the user.
fn open_exclusively(path: &Path) -> Result<File, ReplayError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|error| log_error(path, error))?;
    let owner = file.metadata().map_err(|error| log_error(path, error))?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(ReplayError::Foreign { path: path.to_owned(), owner });
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ReplayError::InUse(path.to_owned())),
        Err(error) => Err(log_error(path, error.into())),
    }
}

/// Scans the logs in directories, and removes blank ones.
fn open_all(
    directories: &[PathBuf],
    target: Option<&Path>,
) -> Result<Vec<ScannedLog>, ReplayError> {
    let mut found = Vec::new();
    for directory in directories {
        for path in logs(directory).map_err(|error| log_error(directory, error))? {
            let file = open_exclusively(&path)?;
            match scan_file(&path, Box::new(file)) {
                Ok(log) if target.is_none_or(|target| log.target == target) => found.push(log),
                Ok(_) => {}
                Err(ScanError::Blank) => {
                    std::fs::remove_file(&path).map_err(|error| log_error(&path, error))?;
                }
                Err(error) => return Err(ReplayError::Scan { path, error }),
            }
        }
    }
    Ok(found)
}

fn replay_run(run: &LoggedRun, options: &ReplayOptions) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed {
        target: run.target().to_owned(),
        run: run.run().to_owned(),
        created: run.created(),
        logs: run.logs().len(),
        entries: run.entries().len() as u64,
        applied: Applied::default(),
        missing_ranks: run.missing_ranks().to_vec(),
        skipped: run.skipped(),
    };
    if !run.entries().is_empty() {
        replayed.applied = write_target(run, options)
            .map_err(|error| ReplayError::Target { path: run.target().to_owned(), error })?;
    }
    for log in run.logs().iter().filter(|log| !log.is_damaged) {
        retire(log).map_err(|error| log_error(&log.path, error))?;
    }
    Ok(replayed)
}

/// Writes the entries to the file and makes it durable.
fn write_target(run: &LoggedRun, options: &ReplayOptions) -> io::Result<Applied> {
    let target = run.target();
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(target)?;
    let applied = run.apply(&file, options.alignment)?;
    Target::sync(&file)?;
    sync_parent(target)?;
    Ok(applied)
}

/// Marks a log as applied, so that it is not replayed if its removal is not durable, and removes it.
fn retire(log: &FinishedLog) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(&log.path)?;
    for (offset, mark) in &log.marks {
        file.write_all_at(mark, *offset)?;
    }
    file.sync_data()?;
    std::fs::remove_file(&log.path)
}
