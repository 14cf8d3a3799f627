//! Replay of the logs that a program left: their entries are written to the files.
//!
//! A replay that is interrupted is repeated: it writes the same bytes again. When the file is
//! durable, the log is marked as applied and then removed, so that a later replay changes nothing.

use crate::entry::{Entry, Place};
use crate::format::SlotState;
use crate::identity::is_log_name;
use crate::plan::{Alignment, Applied, Target, apply, plan};
use crate::scan::{LogReader, ScanError, ScannedLog, scan_file};
use rustix::fs::FlockOperation;
use std::collections::{BTreeMap, BTreeSet};
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
    /// What it contained.
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
    let mut runs: BTreeMap<(PathBuf, String), Vec<ScannedLog>> = BTreeMap::new();
    for log in open_all(directories, options.target.as_deref())? {
        if log.is_damaged() && !options.skip_damaged {
            return Err(ReplayError::Damaged(log.path));
        }
        runs.entry((log.target.clone(), log.run.clone())).or_default().push(log);
    }
    let mut runs: Vec<_> = runs.into_values().collect();
    runs.sort_by_key(|logs| logs.iter().map(|log| log.created).min());
    runs.into_iter().map(|logs| replay_run(logs, options)).collect()
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
        let scanned = scan_file(&path, open_exclusively(&path)?);
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
            match scan_file(&path, file) {
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

fn replay_run(logs: Vec<ScannedLog>, options: &ReplayOptions) -> Result<Replayed, ReplayError> {
    let Some(first) = logs.first() else { unreachable!("a run has a log") };
    let present: BTreeSet<u32> =
        logs.iter().flat_map(|log| &log.slots).map(|slot| slot.rank).collect();
    let mut replayed = Replayed {
        target: first.target.clone(),
        run: first.run.clone(),
        created: logs.iter().map(|log| log.created).min().unwrap_or(first.created),
        logs: logs.len(),
        entries: 0,
        applied: Applied::default(),
        missing_ranks: (0..first.ranks).filter(|rank| !present.contains(rank)).collect(),
        skipped: 0,
    };
    let (mut reader, mut entries) = (LogReader::new(), Vec::new());
    let mut finished = Vec::new();
    for log in logs {
        let number = reader.files().len() as u32;
        let numbered = |entry: Entry| {
            let place = Place { log: number, ..entry.place };
            Entry { place, ..entry }
        };
        let is_damaged = log.is_damaged();
        let damage = log.slots.iter().flat_map(|slot| &slot.damage);
        replayed.skipped += damage.map(|damage| damage.last + 1 - damage.first).sum::<u64>();
        let mut states = Vec::new();
        for slot in log.slots {
            let offset = log.geometry.state_offset(slot.slot, slot.state.counter + 1);
            let counter = slot.state.counter + 1;
            states.push((offset, SlotState { counter, applied: slot.last, ..slot.state }));
            entries.extend(slot.entries.into_iter().map(numbered));
        }
        log.reader.into_files().into_iter().for_each(|file| {
            reader.add(file);
        });
        if !is_damaged {
            finished.push((number, log.path, states));
        }
    }
    replayed.entries = entries.len() as u64;
    if !entries.is_empty() {
        replayed.applied = write_target(&replayed.target, &entries, &reader, options)
            .map_err(|error| ReplayError::Target { path: replayed.target.clone(), error })?;
    }
    for (number, path, states) in finished {
        let file = &reader.files()[number as usize];
        retire(file, &path, &states).map_err(|error| log_error(&path, error))?;
    }
    Ok(replayed)
}

/// Writes entries to the file and makes it durable.
fn write_target(
    target: &Path,
    entries: &[Entry],
    reader: &LogReader,
    options: &ReplayOptions,
) -> io::Result<Applied> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(target)?;
    let applied = apply(plan(entries, 0..u64::MAX, options.alignment), reader, &file)?;
    Target::sync(&file)?;
    crate::writer::sync_parent(target)?;
    Ok(applied)
}

/// Marks a log as applied, so that it is not replayed if its removal is not durable, and removes it.
fn retire(file: &File, path: &Path, states: &[(u64, SlotState)]) -> io::Result<()> {
    for (offset, state) in states {
        file.write_all_at(&state.encode(), *offset)?;
    }
    file.sync_data()?;
    std::fs::remove_file(path)
}
