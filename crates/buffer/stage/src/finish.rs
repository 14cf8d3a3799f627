//! The end of a stage: further names of files, what belongs to directories, stable storage.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, fstat, linkat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::error::{Failure, Problem};
use crate::metadata::{apply, same_contents};
use crate::mover::{Directory, HIDDEN, Job};
use crate::walk::{Found, FoundDirectory, FoundName};

/// Finishes a stage whose files are copied. Problems are noted in the job.
pub(crate) fn finish(job: &Job<'_>, found: &Found) {
    for name in &found.names {
        let outcome = further_name(name);
        if outcome.is_ok() {
            job.totals.hard_links.fetch_add(1, Ordering::Relaxed);
            job.progress.staged_file();
        }
        job.note(&name.tree.shown.join(&name.path), outcome);
    }
    // Inner directories first: making something in a directory changes its times.
    for directory in found.directories.iter().rev() {
        if job.is_stopped() {
            return;
        }
        job.note(
            &directory.tree.shown.join(&directory.path),
            finish_directory(job, directory),
        );
    }
    if let Err(problem) = sync(job, found) {
        job.stop(problem);
    }
}

fn parts(path: &Path) -> (Arc<Path>, &OsStr) {
    let parent = path.parent().unwrap_or(Path::new(""));
    (Arc::from(parent), path.file_name().unwrap_or_default())
}

fn further_name(name: &FoundName) -> Result<(), Failure> {
    let (first_directory, first) = parts(&name.first);
    let (directory, last) = parts(&name.path);
    let from = Directory::open(&name.tree, &first_directory)?;
    let to = Directory::open(&name.tree, &directory)?;
    let made = |errno| match errno {
        Errno::NOENT => Failure::File(format!(
            "its other name {} was not staged",
            name.first.display()
        )),
        errno => Failure::target("making a further name", errno),
    };
    let source = statat(&*from.target, first, AtFlags::SYMLINK_NOFOLLOW).map_err(made)?;
    match statat(&*to.target, last, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) if (there.st_dev, there.st_ino) == (source.st_dev, source.st_ino) => {
            return Ok(());
        }
        _ => {}
    }
    let hidden = format!("{HIDDEN}link");
    match unlinkat(&*to.target, &hidden, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(made(errno)),
    }
    linkat(&*from.target, first, &*to.target, &hidden, AtFlags::empty()).map_err(made)?;
    renameat(&*to.target, &hidden, &*to.target, last).map_err(made)
}

fn finish_directory(job: &Job<'_>, found: &FoundDirectory) -> Result<(), Failure> {
    let here = Directory::open(&found.tree, &found.path)?;
    let now = fstat(&here.source).map_err(|e| Failure::source("reading its state", e))?;
    // The target of a request that existed before keeps what it has.
    let own = found.tree.made || !found.path.as_os_str().is_empty();
    if own {
        if let Some(lost) = apply(&here.source, &found.stat, &here.target)? {
            job.warnings.add(&found.tree.shown.join(&found.path), lost);
        }
    }
    if same_contents(&found.stat, &now) {
        return Ok(());
    }
    let reason = "files were made or removed in it while it was staged; stage it again when nobody writes to it";
    Err(Failure::File(reason.to_owned()))
}

/// Puts everything on stable storage: only then may anyone remove the source.
fn sync(job: &Job<'_>, found: &Found) -> Result<(), Problem> {
    let flush = || {
        for directory in found
            .directories
            .iter()
            .filter(|d| d.path.as_os_str().is_empty())
        {
            flush(&directory.tree.target, &directory.tree.shown)?;
        }
        for (path, parent) in job.parents() {
            flush(&*parent, &path)?;
        }
        Ok(())
    };
    match &job.journal {
        None => flush(),
        Some(journal) => {
            journal.synced(flush)?;
            if job.problems.is_empty() {
                journal.complete()
            } else {
                Ok(())
            }
        }
    }
}

fn flush(fd: &impl std::os::fd::AsFd, path: &Path) -> Result<(), Problem> {
    rustix::fs::syncfs(fd).map_err(|errno| Problem {
        path: path.to_owned(),
        reason: format!(
            "its copy cannot be put on stable storage: {}",
            crate::error::describe(errno)
        ),
    })
}
