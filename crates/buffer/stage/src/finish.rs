//! The end of a stage: verification, hard links, attributes of directories, stable storage.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use forebay_protocol::progress::{ShareDecision, StagePhase};
use rustix::io::Errno;

use crate::context::StageContext;
use crate::error::{Failure, Problem};
use crate::journal::CompleteShare;
use crate::metadata::copy_metadata;
use crate::request::{ItemKind, StageItem, StageRequest, Verify};
use crate::share::RunningShare;
use crate::split::{publish_split_file, remove_split_files};
use crate::tree::{DirPair, HIDDEN_LINK_NAME, replace_entry};
use crate::verify::verify_copies;
use crate::walk::{Found, FoundDir, FoundHardLink};

/// Finishes a stage whose files are all copied. Problems are recorded in `ctx`.
pub(crate) fn finish_stage(ctx: &StageContext<'_>, request: &StageRequest, found: &Found) {
    // Before hard links are created: a damaged copy must have one name only.
    if ctx.options.verify == Verify::ReadBack {
        ctx.enter_phase(StagePhase::Syncing);
        if let Err(problem) = ctx.durability.sync() {
            return ctx.stop(problem);
        }
        if ctx.is_stopped() {
            return;
        }
        ctx.enter_phase(StagePhase::ReadingBack);
        verify_copies(ctx);
        if ctx.is_stopped() {
            return;
        }
    }
    ctx.enter_phase(StagePhase::Finishing);
    let mut last_dirs = (None, None);
    for link in &found.hard_links {
        if ctx.is_stopped() {
            return;
        }
        let outcome = create_hard_link(link, &mut last_dirs);
        if outcome.is_ok() {
            ctx.report.lock().hard_links += 1;
            ctx.progress.copied.add_file();
        }
        ctx.record_outcome(&link.tree.source_path.join(&link.path), outcome);
    }
    if let Some(share) = &ctx.share {
        return finish_share(ctx, share, request, found);
    }
    finish_dirs(ctx, found, false);
    if ctx.is_stopped() {
        return;
    }
    // After reading back there is little left to sync; that time counts as finishing.
    if ctx.options.verify != Verify::ReadBack {
        ctx.enter_phase(StagePhase::Syncing);
    }
    if let Err(problem) = sync_and_complete(ctx, request, found) {
        ctx.stop(problem);
    }
}

/// Finishes a share, when its files are all copied and, if that is requested, read back.
fn finish_share(
    ctx: &StageContext<'_>,
    share: &RunningShare<'_>,
    request: &StageRequest,
    found: &Found,
) {
    if ctx.options.verify != Verify::ReadBack {
        ctx.enter_phase(StagePhase::Syncing);
    }
    if let Err(problem) = sync_share(ctx, share, request, found) {
        return ctx.stop(problem);
    }
    let Some(decision) = ctx.await_shares(share) else {
        return;
    };
    let ShareDecision { complete, created } = decision;
    let finished = match (share.is_first(), complete) {
        (true, true) => {
            for file in share.split_files() {
                if ctx.is_stopped() {
                    return;
                }
                let outcome = publish_split_file(ctx, share.share.key, &file);
                ctx.record_outcome(&file.place.source_path(), outcome);
            }
            finish_dirs(ctx, found, created);
            if ctx.is_stopped() {
                return;
            }
            sync_and_complete(ctx, request, found)
        }
        (true, false) => {
            remove_split_files(share.share.key, &share.split_files());
            finish_dirs(ctx, found, created);
            ctx.durability.sync()
        }
        (false, true) => {
            // The user may have renamed the targets while this mover was waiting.
            let checked = check_targets(request, found);
            checked.and_then(|()| ctx.durability.complete())
        }
        (false, false) => Ok(()),
    };
    if let Err(problem) = finished {
        ctx.stop(problem);
    }
}

/// Makes the copies of a share durable, and records that.
fn sync_share(
    ctx: &StageContext<'_>,
    share: &RunningShare<'_>,
    request: &StageRequest,
    found: &Found,
) -> Result<(), Problem> {
    ctx.durability.sync()?;
    if !ctx.problems.is_empty() || ctx.is_stopped() {
        return Ok(());
    }
    // Files of the request may be those of other shares.
    check_target_dirs(request, found)?;
    let copied = ctx.progress.snapshot();
    ctx.durability.record_share(&CompleteShare {
        key: share.share.key,
        tally: share.tally(0),
        files: copied.files,
        bytes: copied.bytes,
    })
}

/// Gives directories their attributes, inner ones first: creating an entry changes the times of its
/// directory. `created`: another mover of the stage has created the target.
fn finish_dirs(ctx: &StageContext<'_>, found: &Found, created: bool) {
    for directory in found.directories.iter().rev() {
        if ctx.is_stopped() {
            return;
        }
        let outcome = finish_dir(ctx, directory, created);
        ctx.record_outcome(&directory.tree.source_path.join(&directory.path), outcome);
    }
}

fn split_path(path: &Path) -> (Arc<Path>, &OsStr) {
    let parent = path.parent().unwrap_or(Path::new(""));
    (Arc::from(parent), path.file_name().unwrap_or_default())
}

/// Creates a hard link. `last_first_dir` and `last_dir` are the directories of the previous one.
fn create_hard_link(
    link: &FoundHardLink,
    (last_first_dir, last_dir): &mut (Option<DirPair>, Option<DirPair>),
) -> Result<(), Failure> {
    let (first_dir, first) = split_path(&link.first);
    let (dir, name) = split_path(&link.path);
    let from = &DirPair::open_cached(last_first_dir, &link.tree, &first_dir)?.target;
    let to = &DirPair::open_cached(last_dir, &link.tree, &dir)?.target;
    let creating = |errno| match errno {
        Errno::NOENT => {
            Failure::File(format!("its other name {} was not staged", link.first.display()), errno)
        }
        errno => Failure::target("creating the hard link", errno),
    };
    match to.link(name, &**from, first) {
        // An earlier run may have created it.
        Err(Errno::EXIST) => {}
        outcome => return outcome.map_err(creating),
    }
    let file = from.lstat(first).map_err(creating)?;
    if to.lstat(name).is_ok_and(|existing| existing.inode == file.inode) {
        return Ok(());
    }
    let link = |hidden: &OsStr| to.link(hidden, &**from, first);
    replace_entry(&**to, OsStr::new(HIDDEN_LINK_NAME), name, link).map_err(creating)
}

fn finish_dir(ctx: &StageContext<'_>, found: &FoundDir, created: bool) -> Result<(), Failure> {
    let here = DirPair::open(&found.tree, &found.path)?;
    let now = here.source.stat().map_err(|e| Failure::source("reading its attributes", e))?;
    // A target of the request that existed before keeps its attributes.
    let created = created || found.tree.created || !found.path.as_os_str().is_empty();
    if created && let Some(lost) = copy_metadata(&*here.source, &found.stat, &*here.target)? {
        let source_path = found.tree.source_path.join(&found.path);
        ctx.warnings.warn(&source_path, lost);
    }
    if found.stat.has_same_contents(&now) {
        return Ok(());
    }
    let reason = "entries were created or removed while it was staged; \
                  stage it again when no program writes to it";
    Err(Failure::File(reason.to_owned(), Errno::BUSY))
}

/// Checks that the copies are where the request wants them: a user may have renamed a directory of
/// their path meanwhile.
fn check_targets(request: &StageRequest, found: &Found) -> Result<(), Problem> {
    check_target_dirs(request, found)?;
    let is_file = |item: &&StageItem| item.kind == ItemKind::File && item.target.is_in_pfs();
    for item in request.items.iter().filter(is_file) {
        item.target.check_is_file()?;
    }
    Ok(())
}

/// Checks that the target directories are where the request wants them.
fn check_target_dirs(request: &StageRequest, found: &Found) -> Result<(), Problem> {
    for directory in &found.directories {
        let tree = &directory.tree;
        if directory.path.as_os_str().is_empty()
            && let Some(item) = request.items.get(tree.index)
        {
            item.target.check_is_dir(&*tree.target)?;
        }
    }
    Ok(())
}

/// Syncs everything. Only after that may the source be removed.
fn sync_and_complete(
    ctx: &StageContext<'_>,
    request: &StageRequest,
    found: &Found,
) -> Result<(), Problem> {
    ctx.durability.sync()?;
    if ctx.problems.is_empty() {
        check_targets(request, found)?;
    }
    if ctx.problems.is_empty() {
        ctx.durability.complete()?;
    }
    Ok(())
}
