//! Small files: read in one request each, and written together where the target supports that.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::context::StageContext;
use crate::copy_range::{Pieces, digest_of_contents};
use crate::end::{DirHandle, FileStat, PutOutcome, SmallFile};
use crate::error::Failure;
use crate::journal::{Copied, NO_DIGEST};
use crate::open_copy::Destination;
use crate::request::Verify;
use crate::tree::{CopyLocation, DirPair, hidden_name};

/// Most files that are written together.
const MAX_FILES: usize = forebay_protocol::message::MAX_BATCH_REQUESTS;
/// Bytes of contents that are collected before they are written.
const MAX_BYTES: usize = 1 << 20;

/// A file that was read, as it was at one moment.
struct ReadFile {
    to: Destination,
    stat: FileStat,
    contents: Vec<u8>,
    digest: String,
}

impl ReadFile {
    fn to_write(&self) -> SmallFile<'_> {
        SmallFile { name: &self.to.name, stat: &self.stat, contents: &self.contents }
    }
}

/// Small files of one directory that were read and are not written yet: at most [`MAX_FILES`], with
/// fewer than [`MAX_BYTES`] and a file.
pub(crate) struct SmallFiles<'a> {
    ctx: &'a StageContext<'a>,
    files: Vec<ReadFile>,
}

impl<'a> SmallFiles<'a> {
    pub fn new(ctx: &'a StageContext<'a>) -> SmallFiles<'a> {
        SmallFiles { ctx, files: Vec::new() }
    }

    /// Reads a small file, which will be written with others of its directory. Returns `to` if the file
    /// has to be opened to be copied.
    pub fn read(
        &mut self,
        here: &DirPair,
        seen: &FileStat,
        to: Destination,
    ) -> Result<Option<Destination>, Failure> {
        // If an earlier run copied the file, there is more to check.
        let recorded = self.ctx.durability.recorded(&to.journal_key, None).is_some();
        if recorded || !seen.is_small() || seen.size > self.ctx.segment_bytes() {
            return Ok(Some(to));
        }
        let mut contents = Vec::new();
        let read = here.source.read_small_file(&to.name, seen, &mut contents);
        let Some(stat) = read.map_err(|e| Failure::source("opening it", e))? else {
            return Ok(Some(to));
        };
        assert_eq!(contents.len() as u64, stat.size);
        if self.ctx.progress.is_cancelled() {
            return Err(Failure::Cancelled);
        }
        let digest = match self.ctx.options.verify {
            Verify::Off => NO_DIGEST.to_owned(),
            Verify::Checksum | Verify::ReadBack => digest_of_contents(&contents),
        };
        if self.files.first().is_some_and(|first| !Arc::ptr_eq(&first.to.parent, &to.parent)) {
            self.write();
        }
        self.files.push(ReadFile { to, stat, contents, digest });
        let bytes: usize = self.files.iter().map(|file| file.contents.len()).sum();
        if self.files.len() == MAX_FILES || bytes >= MAX_BYTES {
            self.write();
        }
        Ok(None)
    }

    /// Writes the files that were read. A stopped stage discards them.
    pub fn write(&mut self) {
        let files = std::mem::take(&mut self.files);
        let Some(first) = files.first() else { return };
        if self.ctx.is_stopped() {
            return;
        }
        if self.ctx.durability.is_resumed() {
            // The earlier run may have left incomplete copies.
            for file in &files {
                let _ = file.to.parent.unlink(&hidden_name(&file.to.name));
            }
        }
        let small: Vec<SmallFile<'_>> = files.iter().map(ReadFile::to_write).collect();
        let puts = first.to.parent.put_small_files(&small);
        assert_eq!(puts.len(), files.len(), "each file has a result");
        for (file, put) in files.into_iter().zip(puts) {
            let source_path = file.to.source_path.clone();
            let put = put.map_err(|e| Failure::target("creating its copy", e));
            let outcome = put.and_then(|put| complete(self.ctx, file, put));
            self.ctx.record_outcome(&source_path, outcome);
        }
    }
}

impl Drop for SmallFiles<'_> {
    fn drop(&mut self) {
        let complete = self.files.is_empty() || self.ctx.is_stopped();
        debug_assert!(complete || std::thread::panicking(), "files were read and not written");
    }
}

/// Completes the copy of a file that was written with this outcome.
fn complete(ctx: &StageContext<'_>, file: ReadFile, put: PutOutcome) -> Result<(), Failure> {
    let ReadFile { to, stat, contents, digest } = file;
    if put == PutOutcome::Unsupported {
        write_stepwise(&*to.parent, &to.name, &contents, &stat)?;
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
    Ok(())
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
