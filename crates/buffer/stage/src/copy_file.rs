//! Copying one file or symbolic link.

use std::ffi::OsStr;

use rustix::io::Errno;

use crate::context::StageContext;
use crate::copy_large::queue_large_file;
use crate::copy_range::{CopyRange, Pieces, copy_range};
use crate::end::{DirHandle, FileHandle, FileKind, FileStat};
use crate::error::Failure;
use crate::journal::NO_DIGEST;
use crate::open_copy::{Destination, OpenCopy};
use crate::publish::publish;
use crate::request::Verify;
use crate::tree::{DirPair, damaged_name, hidden_name, replace_entry};

/// Copies a file of the directory `source`, or queues its parts if it is large; `seen` is its entry as it
/// was found.
pub(crate) fn open_and_copy_file(
    ctx: &StageContext<'_>,
    source: &dyn DirHandle,
    seen: &FileStat,
    to: Destination,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let file = source.open(&to.name, Some(seen)).map_err(|e| Failure::source("opening it", e))?;
    copy_file(ctx, file, to, buffer)
}

/// Copies an open file, or queues its parts if it is large.
pub(crate) fn copy_file(
    ctx: &StageContext<'_>,
    source: Box<dyn FileHandle>,
    to: Destination,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let stat = source.opened_stat().map_err(|e| Failure::source("reading its attributes", e))?;
    let refused = match stat.kind {
        FileKind::File => None,
        FileKind::Directory => Some(("is a directory; stage it with type=directory", Errno::ISDIR)),
        FileKind::Symlink | FileKind::Other => {
            Some(("is a device, a pipe or a socket, which cannot be staged", Errno::INVAL))
        }
    };
    if let Some((reason, errno)) = refused {
        return Err(Failure::File(reason.to_owned(), errno));
    }
    if is_already_copied(ctx, &to, &stat) {
        ctx.progress.copied.add_bytes(stat.size);
        ctx.report.lock().resumed += 1;
        ctx.count_file(stat.size);
        return Ok(());
    }
    if ctx.durability.recorded(&to.journal_key, None).is_some() {
        // An earlier run may have renamed a damaged copy.
        let _ = to.parent.unlink(&damaged_name(&to.name));
    }
    let large = stat.size > ctx.segment_bytes();
    let keep = large && ctx.durability.is_journaled();
    let copy = OpenCopy::create(source, stat, to, keep)?;
    if large {
        return queue_large_file(ctx, copy);
    }
    let outcome = copy_in_one_part(ctx, &copy, buffer);
    if outcome.is_err() {
        copy.remove();
    }
    outcome
}

fn copy_in_one_part(
    ctx: &StageContext<'_>,
    copy: &OpenCopy,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let size = copy.stat.size;
    let range = CopyRange {
        source: &*copy.source,
        target: &*copy.hidden,
        from: 0,
        to: size,
        sparse: copy.stat.is_sparse(),
    };
    let copied = copy_range(&range, ctx.options.verify, ctx.progress, buffer)?;
    if range.sparse {
        // A hole at the end has not been written.
        copy.hidden
            .truncate(size)
            .map_err(|e| Failure::target("setting the length of its copy", e))?;
    }
    publish(ctx, copy, copied.digest.clone())?;
    ctx.durability.sync_if_due(size)?;
    ctx.queue_read_back(&copy.to.location, [(copied.pieces, copied.digest)]);
    Ok(())
}

/// Whether an earlier run copied the file, and nothing has changed since. If copies are to be read
/// back, this one is queued.
fn is_already_copied(ctx: &StageContext<'_>, to: &Destination, stat: &FileStat) -> bool {
    let recorded = ctx.durability.recorded(&to.journal_key, None);
    let Some(recorded) = recorded.filter(|recorded| recorded.is_source(stat)) else {
        return false;
    };
    let copy = to.parent.lstat(&to.name);
    let exists = copy.is_ok_and(|copy| copy.kind == FileKind::File && recorded.is_like_copy(&copy));
    exists && queue_read_back_of_resumed(ctx, to, stat, &recorded.digest)
}

/// Queues a copy of an earlier run for reading back, if that is requested. Returns `false` if it is
/// unknown which pieces its digest covers.
fn queue_read_back_of_resumed(
    ctx: &StageContext<'_>,
    to: &Destination,
    stat: &FileStat,
    digest: &str,
) -> bool {
    if ctx.options.verify != Verify::ReadBack {
        return true;
    }
    if stat.is_sparse() || digest == NO_DIGEST {
        return false;
    }
    let segment = ctx.segment_bytes();
    if stat.size <= segment {
        let all = Pieces::All(0, stat.size);
        ctx.queue_read_back(&to.location, [(all, digest.to_owned())]);
        return true;
    }
    let part = |part: u64| {
        let recorded = ctx.durability.recorded(&to.journal_key, Some(part))?;
        let from = part * segment;
        let pieces = Pieces::All(from, from.saturating_add(segment).min(stat.size));
        (recorded.is_source(stat) && recorded.digest != NO_DIGEST)
            .then(|| (pieces, recorded.digest.clone()))
    };
    let parts: Option<Vec<_>> = (0..stat.size.div_ceil(segment)).map(part).collect();
    let Some(parts) = parts else { return false };
    ctx.queue_read_back(&to.location, parts);
    true
}

/// Copies a symbolic link; `seen` is its entry as it was found.
pub(crate) fn copy_symlink(
    ctx: &StageContext<'_>,
    here: &DirPair,
    name: &OsStr,
    seen: &FileStat,
) -> Result<(), Failure> {
    let link_target = here.source.readlink(name, seen);
    let link_target = link_target.map_err(|e| Failure::source("reading the link", e))?;
    let create = |name: &OsStr| here.target.symlink(name, &link_target, seen);
    let created = match create(name) {
        Err(Errno::EXIST) => replace_entry(&*here.target, &hidden_name(name), name, create),
        outcome => outcome,
    };
    created.map_err(|e| Failure::target("creating the link", e))?;
    ctx.report.lock().symbolic_links += 1;
    ctx.progress.copied.add_file();
    Ok(())
}

/// Copies a device, pipe or socket from one instance to another. Elsewhere they are not staged.
pub(crate) fn copy_special_file(
    ctx: &StageContext<'_>,
    here: &DirPair,
    name: &OsStr,
    seen: &FileStat,
) -> Result<(), Failure> {
    let not_staged = || {
        let reason = "is a device, a pipe or a socket, which cannot be staged";
        Failure::File(reason.to_owned(), Errno::INVAL)
    };
    let special = here.source.special_file(name, seen);
    let special = special.map_err(|e| Failure::source("reading its attributes", e))?;
    let special = special.ok_or_else(not_staged)?;
    let make = |hidden: &OsStr| here.target.make_special_file(hidden, special, seen);
    match replace_entry(&*here.target, &hidden_name(name), name, make) {
        Err(Errno::NOTSUP) => return Err(not_staged()),
        made => made.map_err(|e| Failure::target("creating the device, pipe or socket", e))?,
    }
    ctx.progress.copied.add_file();
    Ok(())
}
