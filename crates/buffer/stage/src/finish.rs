//! The end of a stage: further names of files, what belongs to directories, stable storage.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::error::{Failure, Problem};
use crate::metadata::apply;
use crate::mover::{DirPair, HIDDEN_LINK_NAME, StageContext};
use crate::progress::Phase;
use crate::request::Verify;
use crate::verify::verify;
use crate::walk::{Found, FoundDir, FoundHardLink};

/// Finishes a stage whose files are copied. Problems are noted in the job.
pub(crate) fn finish(job: &StageContext<'_>, found: &Found) {
    // Before files get further names: a copy that is damaged is to have none.
    if job.options.verify == Verify::ReadBack {
        job.enter(Phase::Syncing);
        if let Err(problem) = job.sync() {
            return job.stop(problem);
        }
        if job.is_stopped() {
            return;
        }
        job.enter(Phase::ReadingBack);
        verify(job);
        if job.is_stopped() {
            return;
        }
    }
    job.enter(Phase::Finishing);
    let mut nearby = (None, None);
    for name in &found.names {
        if job.is_stopped() {
            return;
        }
        let outcome = further_name(name, &mut nearby);
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
    // After reading back there is little left, and it belongs to finishing.
    if job.options.verify != Verify::ReadBack {
        job.enter(Phase::Syncing);
    }
    if let Err(problem) = complete(job) {
        job.stop(problem);
    }
}

fn parts(path: &Path) -> (Arc<Path>, &OsStr) {
    let parent = path.parent().unwrap_or(Path::new(""));
    (Arc::from(parent), path.file_name().unwrap_or_default())
}

/// Makes a further name. `nearby` are the directories of the last one.
fn further_name(
    name: &FoundHardLink,
    (first_nearby, nearby): &mut (Option<DirPair>, Option<DirPair>),
) -> Result<(), Failure> {
    let (first_directory, first) = parts(&name.first);
    let (directory, last) = parts(&name.path);
    let from = DirPair::at(first_nearby, &name.tree, &first_directory)?;
    let to = DirPair::at(nearby, &name.tree, &directory)?;
    let made = |errno| match errno {
        Errno::NOENT => Failure::File(
            format!("its other name {} was not staged", name.first.display()),
            errno,
        ),
        errno => Failure::target("making a further name", errno),
    };
    match to.target.link(last, &*from.target, first) {
        // An earlier run may have made it.
        Err(Errno::EXIST) => {}
        outcome => return outcome.map_err(made),
    }
    let source = from.target.lstat(first).map_err(made)?;
    if to
        .target
        .lstat(last)
        .is_ok_and(|there| there.inode == source.inode)
    {
        return Ok(());
    }
    let hidden = OsStr::new(HIDDEN_LINK_NAME);
    match to.target.link(hidden, &*from.target, first) {
        // The rest of an interrupted stage.
        Err(Errno::EXIST) => {
            to.target.unlink(hidden).map_err(made)?;
            to.target.link(hidden, &*from.target, first).map_err(made)?;
        }
        outcome => outcome.map_err(made)?,
    }
    to.target.rename(hidden, last).map_err(made)
}

fn finish_directory(job: &StageContext<'_>, found: &FoundDir) -> Result<(), Failure> {
    let here = DirPair::open(&found.tree, &found.path)?;
    let now = here
        .source
        .stat()
        .map_err(|e| Failure::source("reading its state", e))?;
    // The target of a request that existed before keeps what it has.
    let own = found.tree.made || !found.path.as_os_str().is_empty();
    if own && let Some(lost) = apply(&*here.source, &found.state, &*here.target)? {
        job.warnings.warn(&found.tree.shown.join(&found.path), lost);
    }
    if found.state.has_same_contents(&now) {
        return Ok(());
    }
    let reason = "files were made or removed in it while it was staged; stage it again when nobody writes to it";
    Err(Failure::File(reason.to_owned(), Errno::BUSY))
}

/// Puts everything on stable storage: only after that may anyone remove the source.
fn complete(job: &StageContext<'_>) -> Result<(), Problem> {
    job.sync()?;
    match &job.journal {
        Some(journal) if job.problems.is_empty() => journal.complete(),
        _ => Ok(()),
    }
}
