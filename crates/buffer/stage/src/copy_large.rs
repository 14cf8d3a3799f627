//! Copying large files in parts, by all threads that are free.

use crate::context::StageContext;
use crate::copy_range::{CopyRange, Pieces, copy_range};
use crate::error::Failure;
use crate::journal::NO_DIGEST;
use crate::large_file::{CopiedPart, LargeFile};
use crate::open_copy::OpenCopy;
use crate::publish::publish;
use crate::request::Verify;
use crate::split::complete_own_parts;

/// Queues the parts of a large file.
pub(crate) fn queue_large_file(ctx: &StageContext<'_>, copy: OpenCopy) -> Result<(), Failure> {
    let size = copy.stat.size;
    let creating = |e| Failure::target("creating its copy", e);
    let existing = copy.hidden.opened_stat().map_err(creating)?;
    let resumed = existing.size == size;
    if !resumed {
        // Before the copy gets its length, by which a later run recognizes it.
        ctx.durability.void_parts(&copy.to.journal_key)?;
        copy.hidden.truncate(0).map_err(creating)?;
        copy.hidden.truncate(size).map_err(creating)?;
    }
    let parts = size.div_ceil(ctx.segment_bytes());
    ctx.large_files.push(LargeFile::new(copy, parts, resumed));
    Ok(())
}

/// Copies one claimed part. The thread that finishes the last part completes the file.
pub(crate) fn copy_large_part(
    ctx: &StageContext<'_>,
    large: &LargeFile,
    part: u64,
    buffer: &mut [u8],
) {
    let source_path = &large.copy.to.source_path;
    if !large.has_failed() {
        let outcome = if ctx.is_stopped() {
            Err(Failure::Cancelled)
        } else {
            copy_part(ctx, large, part, buffer)
        };
        if let Err(failure) = outcome
            && large.fail()
        {
            ctx.record_outcome(source_path, Err(failure));
        }
    }
    if !large.finish_part() {
        return;
    }
    let failed = large.has_failed();
    let outcome = match (failed, large.is_shared()) {
        (true, _) => Err(Failure::Cancelled),
        (false, true) => complete_own_parts(ctx, large),
        (false, false) => complete(ctx, large),
    };
    // Parts that are in the journal are kept for the next run, unless this file has a problem.
    let keep = ctx.durability.is_journaled() && failed && ctx.keeps_parts();
    // The copy of a file of all shares is removed when the stage ends.
    if outcome.is_err() && !keep && !large.is_shared() {
        large.copy.remove();
    }
    if !failed {
        ctx.record_outcome(source_path, outcome);
    }
}

fn copy_part(
    ctx: &StageContext<'_>,
    large: &LargeFile,
    part: u64,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let (copy, durability) = (&large.copy, &ctx.durability);
    let (key, size) = (&copy.to.journal_key, copy.stat.size);
    let from = part.saturating_mul(ctx.segment_bytes());
    let to = from.saturating_add(ctx.segment_bytes()).min(size);
    assert!(from < to && to <= size, "a part is in the file and not empty");
    // Which pieces of a sparse part an earlier run hashed is unknown, so it cannot be read back.
    let reusable = ctx.options.verify != Verify::ReadBack || !copy.stat.is_sparse();
    let recorded = durability.recorded(key, Some(part)).filter(|recorded| {
        large.resumed && reusable && recorded.digest != NO_DIGEST && recorded.is_source(&copy.stat)
    });
    let (digest, pieces) = if let Some(recorded) = recorded {
        ctx.progress.copied.add_bytes(to - from);
        (recorded.digest.clone(), Pieces::All(from, to))
    } else {
        let range = CopyRange {
            source: &*copy.source,
            target: &*copy.hidden,
            from,
            to,
            sparse: copy.stat.is_sparse(),
        };
        let copied = copy_range(&range, ctx.options.verify, ctx.progress, buffer)?;
        // The journal notices a restart of this host, but not of the storage nodes.
        if copy.hidden.needs_fdatasync() && durability.is_journaled() {
            let synced = copy.hidden.fdatasync();
            synced.map_err(|e| Failure::target("syncing its copy", e))?;
        }
        durability.record(key, Some(part), &copy.stat, copied.digest.clone())?;
        durability.sync_if_due(to - from)?;
        (copied.digest, copied.pieces)
    };
    large.add_copied_part(CopiedPart { index: part, digest, pieces });
    Ok(())
}

fn complete(ctx: &StageContext<'_>, large: &LargeFile) -> Result<(), Failure> {
    let parts = large.take_copied_parts();
    let mut hasher = blake3::Hasher::new();
    for part in &parts {
        hasher.update(part.digest.as_bytes());
    }
    publish(ctx, &large.copy, hasher.finalize().to_hex().to_string())?;
    let parts = parts.into_iter().map(|part| (part.pieces, part.digest));
    ctx.queue_read_back(&large.copy.to.location, parts);
    Ok(())
}
