//! Replay of the logs that a program left: their entries are written to the files.
//!
//! A replay that is interrupted is repeated: it writes the same bytes again. When the file is
//! durable, the log is marked as applied and then removed, so that a later replay changes nothing.

use crate::batches::EntryMemory;
use crate::file_identity::FileIdentity;
use crate::identity::{MARK_EXTENSION, is_log_name};
use crate::logged_run::{FinishedLog, LoggedRun, Marks, Whereabouts};
use crate::plan::{Alignment, Applied, Target};
use crate::scan::{ScanError, ScannedLog, scan_file, scan_within, target_of};
use crate::writer::sync_parent;
use rustix::fs::{FlockOperation, OFlags};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Options of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Only the logs of this file.
    pub target: Option<PathBuf>,
    /// Replay the valid entries of damaged logs, too. Damaged logs are kept.
    pub skip_damaged: bool,
    /// Replay also the logs of files that were removed, or renamed to another directory, to what has
    /// their paths now.
    pub replaced: bool,
    /// Leave runs of which the log of a process is missing or may be in use, and the later runs of
    /// their files; ignore logs that may belong to other files.
    pub complete_only: bool,
    /// Alignment of the writes.
    pub alignment: Alignment,
    /// Memory for the entries.
    pub memory: EntryMemory,
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

/// Reason to leave the logs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Their path names another file, which was created later.
    Replaced,
    /// The file was removed, or renamed to another directory.
    Missing,
    /// Logs are missing, of this run or of an earlier one.
    Incomplete,
}

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
    /// Nothing was written, and the logs stay.
    pub left: Option<Left>,
}

/// A log that was removed.
#[derive(Debug)]
pub struct Discarded {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub contents: Result<ScannedLog, ScanError>,
}

/// Paths of the logs in a directory, in the order of their names: regular files, no links.
///
/// # Errors
/// The directory cannot be read.
pub fn logs(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if is_log_name(&path) && entry.file_type()?.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Opens a regular file, and nothing else that has its name: no link is followed, and no pipe waited
/// for.
pub(crate) fn open_plain(path: &Path, write: bool) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Number of logs in a directory that belong to other users, who replay or discard them.
///
/// # Errors
/// The directory cannot be read.
pub fn foreign_logs(directory: &Path) -> io::Result<usize> {
    Ok(logs(directory)?.iter().filter(|path| is_foreign(path)).count())
}

/// Whether a log belongs to another user. One that was removed meanwhile does not.
fn is_foreign(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() != user)
}

/// Paths of the user's logs in a directory.
fn own_logs(directory: &Path) -> Result<Vec<PathBuf>, ReplayError> {
    let mut paths = logs(directory).map_err(|error| log_error(directory, error))?;
    paths.retain(|path| !is_foreign(path));
    Ok(paths)
}

/// Whether a process has a log open for writing.
///
/// # Errors
/// The log cannot be opened or locked.
pub fn is_in_use(path: &Path) -> io::Result<bool> {
    match rustix::fs::flock(open_plain(path, false)?, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Replays the user's logs in directories. The logs of several ranks of a run are replayed together, in
/// the order of their entries, and the runs in the order of their creation. Blank logs are removed.
/// Logs of a file that was created after them are left, unless the options say otherwise.
/// Files that do not exist are created.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(
    directories: &[PathBuf],
    options: &ReplayOptions,
) -> Result<Vec<Replayed>, ReplayError> {
    let logs = open_all(directories, options)?;
    if let Some(log) = logs.iter().find(|log| log.is_damaged() && !options.skip_damaged) {
        return Err(ReplayError::Damaged(log.path.clone()));
    }
    let mut incomplete = BTreeSet::new();
    let replay_next = |run: &LoggedRun| {
        let place = place_of(run, options);
        let left = left(run, &place, &incomplete, options);
        if left == Some(Left::Incomplete) {
            incomplete.insert(run.target().to_owned());
        }
        let path = match &place {
            Whereabouts::At(path) => path,
            Whereabouts::Replaced | Whereabouts::Missing => run.target(),
        };
        replay_run(run, path, left, options)
    };
    LoggedRun::group(logs).iter().map(replay_next).collect()
}

/// Removes the user's logs in a directory without replaying them, and returns what they contained. Logs that
/// cannot be scanned are removed, too.
///
/// # Errors
/// A log is in use, belongs to another user or cannot be removed.
pub fn discard(directory: &Path, target: Option<&Path>) -> Result<Vec<Discarded>, ReplayError> {
    let mut discarded = Vec::new();
    for path in own_logs(directory)? {
        let scanned = scan_file(&path, Box::new(open_exclusively(&path, false)?));
        let is_wanted =
            target.is_none_or(|target| scanned.as_ref().is_ok_and(|log| log.target == target));
        if is_wanted {
            remove(&path)?;
            discarded.push(Discarded { path, contents: scanned });
        }
    }
    Ok(discarded)
}

/// Removes the user's logs of a file that was removed: those of this path, unless they belong to another
/// file that had it, or of this identity. Logs in use stay.
///
/// # Errors
/// The directory cannot be read, or a log not be removed.
pub fn discard_of_removed(
    directory: &Path,
    target: &Path,
    removed: FileIdentity,
) -> Result<(), ReplayError> {
    for path in own_logs(directory)? {
        let header = open_plain(&path, false).ok().and_then(|file| target_of(&file));
        let is_of_removed = header
            .is_some_and(|(of, file)| file.map_or(of == target, |file| file.is_same(removed)));
        if is_of_removed && open_exclusively(&path, true).is_ok() {
            remove(&path)?;
        }
    }
    Ok(())
}

fn log_error(path: &Path, error: io::Error) -> ReplayError {
    ReplayError::Log { path: path.to_owned(), error }
}

/// Opens a log that no process uses, and that belongs to the user. `strict`: on a file system
/// without locks every log counts as in use.
fn open_exclusively(path: &Path, strict: bool) -> Result<File, ReplayError> {
    let file = open_plain(path, true).map_err(|error| log_error(path, error))?;
    let owner = file.metadata().map_err(|error| log_error(path, error))?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(ReplayError::Foreign { path: path.to_owned(), owner });
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) if !strict => Ok(file),
        Err(
            rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS,
        ) => Err(ReplayError::InUse(path.to_owned())),
        Err(error) => Err(log_error(path, error.into())),
    }
}

/// Scans the logs in directories, and removes blank ones.
fn open_all(
    directories: &[PathBuf],
    options: &ReplayOptions,
) -> Result<Vec<ScannedLog>, ReplayError> {
    let mut found = Vec::new();
    let mut memory = options.memory;
    for directory in directories {
        for path in own_logs(directory)? {
            found.extend(open_log(&path, options, &mut memory)?);
        }
    }
    Ok(found)
}

/// Scans a log, if it is to be replayed, or removes it, if it is blank.
fn open_log(
    path: &Path,
    options: &ReplayOptions,
    memory: &mut EntryMemory,
) -> Result<Option<ScannedLog>, ReplayError> {
    if let Some(wanted) = &options.target {
        // Logs of other files may be in use, or be removed at any time.
        let of = match open_plain(path, false) {
            Ok(file) => target_of(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(_) => None,
        };
        let is_other = of.map_or(options.complete_only, |of| !is_of(&of, wanted));
        if is_other {
            return Ok(None);
        }
    }
    let file = match open_exclusively(path, options.complete_only) {
        Err(ReplayError::InUse(_)) if options.complete_only => return Ok(None),
        other => other?,
    };
    let is_wanted = |log: &ScannedLog| {
        let of = (log.target.clone(), log.file);
        options.target.as_ref().is_none_or(|wanted| is_of(&of, wanted))
    };
    match scan_within(path, Box::new(file), memory) {
        Ok(log) => Ok(Some(log).filter(is_wanted)),
        Err(ScanError::Blank) => {
            std::fs::remove_file(path).map_err(|error| log_error(path, error))?;
            Ok(None)
        }
        Err(error) => Err(ReplayError::Scan { path: path.to_owned(), error }),
    }
}

/// Whether a log with this path and file is of the file `wanted`, which may have been renamed.
fn is_of((path, file): &(PathBuf, Option<FileIdentity>), wanted: &Path) -> bool {
    let is_renamed =
        |file: &FileIdentity| FileIdentity::of(wanted).is_some_and(|wanted| wanted.is_same(*file));
    path == wanted || file.as_ref().is_some_and(is_renamed)
}

/// Where the entries of a run are written.
fn place_of(run: &LoggedRun, options: &ReplayOptions) -> Whereabouts {
    match run.find_target() {
        Whereabouts::Replaced | Whereabouts::Missing if options.replaced => {
            Whereabouts::At(run.target().to_owned())
        }
        found => found,
    }
}

/// Writes the entries of a run to the file with this path.
fn replay_run(
    run: &LoggedRun,
    path: &Path,
    left: Option<Left>,
    options: &ReplayOptions,
) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed {
        target: run.target().to_owned(),
        run: run.run().to_owned(),
        created: run.created(),
        logs: run.logs().len(),
        entries: run.count(),
        applied: Applied::default(),
        missing_ranks: run.missing_ranks().to_vec(),
        skipped: run.skipped(),
        left,
    };
    if replayed.left.is_some() {
        return Ok(replayed);
    }
    if !run.is_empty() {
        // Before the file is created, so that it is not taken for one that came later. If it exists,
        // nothing may say that a replay has created it: the replay may fail, and the user remove it.
        if !path.exists() {
            for log in run.logs() {
                mark(log, &log.together).map_err(|error| log_error(&log.path, error))?;
            }
        }
        replayed.applied = write_target(run, path, options)
            .map_err(|error| ReplayError::Target { path: path.to_owned(), error })?;
    }
    run.retire(
        |log, marks| mark(log, marks).map_err(|error| log_error(&log.path, error)),
        |log| remove(&log.path),
    )?;
    Ok(replayed)
}

/// Reason to leave a run. `incomplete` are files with an earlier run that is left: a later one stays,
/// too, or a replay of the earlier one by hand would put older data over newer.
fn left(
    run: &LoggedRun,
    place: &Whereabouts,
    incomplete: &BTreeSet<PathBuf>,
    options: &ReplayOptions,
) -> Option<Left> {
    if run.is_empty() {
        return None;
    }
    match place {
        Whereabouts::At(_) => {}
        Whereabouts::Replaced => return Some(Left::Replaced),
        Whereabouts::Missing => return Some(Left::Missing),
    }
    let is_incomplete = !run.missing_ranks().is_empty() || incomplete.contains(run.target());
    (options.complete_only && is_incomplete).then_some(Left::Incomplete)
}

/// Writes the entries to the file and makes it durable.
fn write_target(run: &LoggedRun, target: &Path, options: &ReplayOptions) -> io::Result<Applied> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(target)?;
    let applied = run.apply(&file, options.alignment, &options.memory)?;
    Target::sync(&file)?;
    sync_parent(target)?;
    Ok(applied)
}

/// Removes a log, and what a process left next to it that applied it in the background.
fn remove(path: &Path) -> Result<(), ReplayError> {
    std::fs::remove_file(path).map_err(|error| log_error(path, error))?;
    let _ = std::fs::remove_file(path.with_extension(MARK_EXTENSION));
    Ok(())
}

/// Writes marks to a log and makes them durable.
fn mark(log: &FinishedLog, marks: &Marks) -> io::Result<()> {
    let file = open_plain(&log.path, true)?;
    for (offset, mark) in marks {
        file.write_all_at(mark, *offset)?;
    }
    file.sync_data()
}
