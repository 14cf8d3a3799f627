//! Completing a copy: metadata, stable storage where needed, and its name.

use rustix::io::Errno;

use crate::context::StageContext;
use crate::error::Failure;
use crate::metadata::copy_metadata;
use crate::open_copy::OpenCopy;

/// Fails if the source has changed since it was opened.
pub(crate) fn check_unchanged(copy: &OpenCopy) -> Result<(), Failure> {
    let now = copy.source.stat().map_err(|e| Failure::source("reading its attributes", e))?;
    if copy.stat.is_unchanged(&now) {
        return Ok(());
    }
    Err(changed())
}

/// The source has changed.
pub(crate) fn changed() -> Failure {
    let reason = "changed while it was staged; stage it again when no program writes to it";
    Failure::File(reason.to_owned(), Errno::BUSY)
}

/// Completes a copy whose contents are all written: if the source is unchanged, the copy gets the
/// metadata of the source, its name, and an entry in the journal.
pub(crate) fn publish(
    ctx: &StageContext<'_>,
    copy: &OpenCopy,
    digest: String,
) -> Result<(), Failure> {
    check_unchanged(copy)?;
    if let Some(lost) = copy_metadata(&*copy.source, &copy.stat, &*copy.hidden)? {
        ctx.warnings.warn(&copy.to.source_path, lost);
    }
    if copy.hidden.needs_fdatasync() {
        copy.hidden.fdatasync().map_err(|e| Failure::target("syncing its copy", e))?;
    }
    copy.rename()?;
    ctx.durability.record(&copy.to.journal_key, None, &copy.stat, digest)?;
    ctx.count_file(copy.stat.size);
    Ok(())
}
