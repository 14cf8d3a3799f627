//! Small files: read in one request, and written in one where the target supports that.

use std::ffi::OsStr;

use crate::context::StageContext;
use crate::copy_range::{Pieces, digest_of_contents};
use crate::end::{DirHandle, FileStat, PutOutcome};
use crate::error::Failure;
use crate::journal::{Copied, NO_DIGEST};
use crate::open_copy::Destination;
use crate::request::Verify;
use crate::tree::{CopyLocation, DirPair, hidden_name};

/// Copies a small file in one piece, as it is at one moment; `contents` is scratch space. Returns
/// `false` if the file has to be opened to be copied.
pub(crate) fn copy_small_file(
    ctx: &StageContext<'_>,
    here: &DirPair,
    seen: &FileStat,
    to: &Destination,
    contents: &mut Vec<u8>,
) -> Result<bool, Failure> {
    // If an earlier run copied the file, there is more to check.
    let recorded = ctx.durability.recorded(&to.journal_key, None).is_some();
    if recorded || !seen.is_small() || seen.size > ctx.segment_bytes() {
        return Ok(false);
    }
    let read = here.source.read_small_file(&to.name, seen, contents);
    let Some(stat) = read.map_err(|e| Failure::source("opening it", e))? else {
        return Ok(false);
    };
    assert_eq!(contents.len() as u64, stat.size);
    if ctx.progress.is_cancelled() {
        return Err(Failure::Cancelled);
    }
    let digest = match ctx.options.verify {
        Verify::Off => NO_DIGEST.to_owned(),
        Verify::Checksum | Verify::ReadBack => digest_of_contents(contents),
    };
    if ctx.durability.is_resumed() {
        // The earlier run may have left an incomplete copy.
        let _ = to.parent.unlink(&hidden_name(&to.name));
    }
    let put = to.parent.put_small_file(&to.name, contents, &stat);
    let put = put.map_err(|e| Failure::target("creating its copy", e))?;
    if put == PutOutcome::Unsupported {
        write_stepwise(&*to.parent, &to.name, contents, &stat)?;
    }
    ctx.progress.copied.add_bytes(stat.size);
    let (key, durability) = (&to.journal_key, &ctx.durability);
    match put {
        PutOutcome::Unsynced => {
            let tree = match &to.location {
                CopyLocation::Tree { tree, .. } => tree.index,
                CopyLocation::Single(_) => 0,
            };
            let copied = Copied::of(&stat, digest.clone());
            durability.record_when_synced(tree, &to.parent, key, copied)?;
        }
        PutOutcome::Stored | PutOutcome::Unsupported => {
            durability.record(key, None, &stat, digest.clone())?;
        }
    }
    ctx.count_file(stat.size);
    ctx.queue_read_back(&to.location, [(Pieces::All(0, stat.size), digest)]);
    durability.sync_if_due(stat.size)?;
    Ok(true)
}

/// Writes a file under a hidden name, and renames it when it is complete.
fn write_stepwise(
    parent: &dyn DirHandle,
    name: &OsStr,
    contents: &[u8],
    stat: &FileStat,
) -> Result<(), Failure> {
    let hidden_name = hidden_name(name);
    let hidden = parent.create(&hidden_name, false);
    let hidden = hidden.map_err(|e| Failure::target("creating its copy", e))?;
    let fill = || {
        let failed = |action| move |errno| Failure::target(action, errno);
        hidden.write_all_at(contents, 0).map_err(failed("writing its copy"))?;
        let set = hidden.set_metadata(stat, &mut || Ok(()));
        let _ = set.map_err(failed("setting owner, permissions and times of its copy"))?;
        if hidden.needs_fdatasync() {
            hidden.fdatasync().map_err(failed("syncing its copy"))?;
        }
        parent.rename(&hidden_name, name).map_err(failed("renaming its copy"))
    };
    let filled = fill();
    if filled.is_err() {
        let _ = parent.unlink(&hidden_name);
    }
    filled
}
