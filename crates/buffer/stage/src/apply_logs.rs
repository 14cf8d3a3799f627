//! Logs of MPI-IO writes that a job left in an instance, applied to their files on the parallel file
//! system.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use forebay_mpiio_log::{
    Alignment, EXTENSION, EntryMemory, FileIdentity, FinishedLog, LogFile, LoggedRun, Marks,
    ScanError, ScannedLog, Target, scan_within,
};
use forebay_protocol::progress::StagePhase;
use rustix::io::Errno;

use crate::end::{DirHandle, FileHandle, FileKind, FileStat};
use crate::error::{Problem, StageError, describe};
use crate::location::StageLocation;
use crate::progress::ProgressCounters;
use crate::request::StageReport;

/// Applies the logs in the directory `logs` to their files, which are below `below` on the parallel
/// file system. A file that was renamed in its directory is found there; one of which the logs do not
/// know the identity is created in an existing directory if it does not exist. When the files are
/// durable, the logs are removed, so that an interrupted stage can be repeated. `owner` is the user for
/// whom this is done.
///
/// # Errors
/// Nothing is written if a log is damaged, unreadable, of another user than `owner`, or names a file
/// that is not below `below`. The logs of files that cannot be written are kept; those of others may
/// have been applied. The logs of files that were removed, or renamed to another directory, are kept
/// and reported when all others are applied.
pub fn apply_logs(
    logs: &StageLocation,
    below: &StageLocation,
    owner: u32,
    progress: &ProgressCounters,
) -> Result<StageReport, StageError> {
    let started = Instant::now();
    let mut report = StageReport::default();
    progress.enter_phase(StagePhase::Copying);
    let directory = logs.open_dir().map_err(StageError::Stopped)?;
    let runs = LoggedRun::group(scan_logs(logs, &*directory, owner, progress)?);
    for run in &runs {
        let is_plain = !run.target().components().any(|part| part == Component::ParentDir);
        if !is_plain || !run.target().starts_with(below.display()) {
            let reason = format!(
                "a log in {} is for this file, which is not below the destination {}",
                logs.display().display(),
                below.display().display()
            );
            let problem = Problem::new(run.target(), reason, Errno::XDEV);
            return Err(StageError::Stopped(problem));
        }
        progress.copied.expect_file(run.bytes());
    }
    progress.set_all_found();
    let mut lost = Vec::new();
    for run in &runs {
        if !apply_run(run, below, progress, &mut report)? {
            lost.push(problem_of_lost(run, logs));
            continue;
        }
        progress.enter_phase(StagePhase::Finishing);
        run.retire(
            |log, marks| {
                let marked = mark(&*directory, log, marks);
                marked.map_err(|errno| stopped(&log.path, "marking an applied log", errno))
            },
            |log| {
                let name = log.path.file_name().unwrap_or_default();
                let removed = directory.unlink(name);
                removed.map_err(|errno| stopped(&log.path, "removing an applied log", errno))
            },
        )?;
    }
    report.time = started.elapsed();
    match lost.into_iter().next() {
        Some(problem) => Err(StageError::Stopped(problem)),
        None => Ok(report),
    }
}

/// The logs of a run have no file to which they could be applied.
fn problem_of_lost(run: &LoggedRun, logs: &StageLocation) -> Problem {
    let reason = format!(
        "was removed or renamed to another directory after it was written; {} logs of it stay in {}: \
         `forebay log replay --replaced` applies them to what has this path, `forebay log discard` \
         removes them",
        run.logs().len(),
        logs.display().display()
    );
    Problem::new(run.target(), reason, Errno::STALE)
}

/// The name of a run's file in its directory. `None` if it was removed or renamed to another one.
fn name_of(
    run: &LoggedRun,
    directory: &dyn DirHandle,
    name: &OsStr,
) -> Result<Option<OsString>, Errno> {
    let Some(file) = run.file() else { return Ok(Some(name.to_owned())) };
    let is_same = |name: &OsStr| match directory.open(name, None) {
        Ok(found) => identity_of(&*found).is_ok_and(|found| found.is_same(file)),
        Err(_) => false,
    };
    if !run.is_superseded() && is_same(name) {
        return Ok(Some(name.to_owned()));
    }
    let mut candidates: Vec<OsString> = Vec::new();
    directory.read_dir(&mut |name, stat| {
        let is_candidate =
            |stat: FileStat| stat.kind == FileKind::File && stat.inode.1 == file.inode;
        if stat.is_ok_and(is_candidate) {
            candidates.push(name.to_owned());
        }
        true
    })?;
    let renamed = candidates.into_iter().find(|name| is_same(name));
    // An earlier stage, which was interrupted, may have created it.
    Ok(renamed.or_else(|| run.was_begun().then(|| name.to_owned())))
}

/// The identity of an open file; without the time of creation if it has no descriptor.
fn identity_of(file: &dyn FileHandle) -> Result<FileIdentity, Errno> {
    if let Some(descriptor) = file.descriptor() {
        let file = File::from(descriptor.try_clone_to_owned().map_err(|_| Errno::IO)?);
        return FileIdentity::of_file(&file).ok_or(Errno::IO);
    }
    Ok(FileIdentity { inode: file.stat()?.inode.1, born: 0 })
}

fn stopped(path: &Path, action: &str, errno: Errno) -> StageError {
    StageError::Stopped(Problem::new(path, format!("{action}: {}", describe(errno)), errno))
}

/// A log that the movers read until the stage is cancelled.
struct Log {
    file: Box<dyn FileHandle>,
    cancelled: Arc<AtomicBool>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

impl LogFile for Log {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.stat()?.size)
    }

    fn read_range(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if self.cancelled.load(Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match self.file.read_at(bytes, offset)? {
            read if read == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Scans all logs of a directory.
fn scan_logs(
    logs: &StageLocation,
    directory: &dyn DirHandle,
    owner: u32,
    progress: &ProgressCounters,
) -> Result<Vec<ScannedLog>, StageError> {
    let mut names: Vec<OsString> = Vec::new();
    let listed = directory.read_dir(&mut |name, stat| {
        let is_log = Path::new(name).extension().is_some_and(|extension| extension == EXTENSION);
        if is_log && stat.is_ok_and(|stat| stat.kind == FileKind::File) {
            names.push(name.to_owned());
        }
        true
    });
    listed.map_err(|errno| stopped(&logs.display(), "reading the directory", errno))?;
    names.sort();
    let mut scanned = Vec::new();
    let mut memory = EntryMemory::default();
    for name in names {
        let path = logs.display().join(&name);
        let file = directory.open(&name, None);
        let file = file.map_err(|errno| stopped(&path, "opening the log", errno))?;
        let stat = file.opened_stat();
        let stat = stat.map_err(|errno| stopped(&path, "reading its attributes", errno))?;
        // Other users of a shared instance must not write with the owner's rights.
        if stat.uid != owner {
            let reason = format!("belongs to user {}, and not to user {owner}", stat.uid);
            return Err(StageError::Stopped(Problem::new(path, reason, Errno::PERM)));
        }
        let log = Log { file, cancelled: progress.cancellation() };
        match scan_within(&path, Box::new(log), &mut memory) {
            Ok(log) if log.is_damaged() => {
                let reason =
                    "synced writes in this log are damaged; `forebay log check` names them";
                return Err(StageError::Stopped(Problem::new(path, reason, Errno::IO)));
            }
            Ok(log) => scanned.push(log),
            Err(ScanError::Blank) => {}
            Err(ScanError::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(StageError::Cancelled);
            }
            Err(error) => {
                return Err(StageError::Stopped(Problem::new(path, error.to_string(), Errno::IO)));
            }
        }
    }
    Ok(scanned)
}

/// A file to which logs are applied.
struct Applied<'a> {
    file: Box<dyn FileHandle>,
    progress: &'a ProgressCounters,
}

impl Target for Applied<'_> {
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if self.progress.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.file.write_all_at(data, offset)?;
        self.progress.copied.add_bytes(data.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.file.fdatasync()?)
    }
}

/// Writes the entries of a run to their file, and makes it durable. Returns whether the file was found.
fn apply_run(
    run: &LoggedRun,
    below: &StageLocation,
    progress: &ProgressCounters,
    report: &mut StageReport,
) -> Result<bool, StageError> {
    // What is in the file already needs no file: the program may have renamed or removed it.
    if run.is_empty() {
        progress.copied.add_file();
        return Ok(true);
    }
    let location = below.sibling(run.target());
    let (directory, name) = location.open_parent().map_err(StageError::Stopped)?;
    let found = name_of(run, &*directory, &name);
    let Some(name) = found.map_err(|errno| stopped(run.target(), "looking for it", errno))? else {
        return Ok(false);
    };
    let opened = directory.create(&name, true);
    let file = opened.map_err(|errno| match errno {
        Errno::EXIST => {
            let reason = "belongs to another user or has several hard links";
            StageError::Stopped(Problem::new(run.target(), reason, errno))
        }
        errno => stopped(run.target(), "opening the file", errno),
    })?;
    let target = Applied { file, progress };
    let failed = |action: &str, error: io::Error| match error.kind() {
        io::ErrorKind::Interrupted => StageError::Cancelled,
        _ => match Errno::from_io_error(&error) {
            Some(errno) => stopped(run.target(), action, errno),
            None => {
                let problem = Problem::new(run.target(), format!("{action}: {error}"), Errno::IO);
                StageError::Stopped(problem)
            }
        },
    };
    let applied = run.apply(&target, Alignment::default(), &EntryMemory::default());
    let applied = applied.map_err(|error| failed("applying its logs", error))?;
    progress.enter_phase(StagePhase::Syncing);
    target.sync().map_err(|error| failed("syncing it", error))?;
    directory.syncfs().map_err(|errno| stopped(run.target(), "syncing its directory", errno))?;
    progress.copied.add_file();
    report.files += 1;
    report.bytes += applied.bytes;
    Ok(true)
}

/// Writes marks to a log and makes them durable.
fn mark(directory: &dyn DirHandle, log: &FinishedLog, marks: &Marks) -> Result<(), Errno> {
    let name = log.path.file_name().ok_or(Errno::INVAL)?;
    let file = directory.create(name, true)?;
    for (offset, mark) in marks {
        file.write_all_at(mark, *offset)?;
    }
    file.fdatasync()
}
