//! Small files of one directory, which are collected, read, and written together where the target supports that.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::context::StageContext;
use crate::copy_file::open_and_copy_file;
use crate::copy_range::{Pieces, digest_of_contents};
use crate::end::{DirHandle, FileStat, PutOutcome, SmallFile};
use crate::error::Failure;
use crate::journal::{Copied, NO_DIGEST};
use crate::open_copy::Destination;
use crate::request::Verify;
use crate::tree::{CopyLocation, DirPair, hidden_name};

/// Most files that are copied together.
const MAX_FILES: usize = forebay_protocol::message::MAX_BATCH_REQUESTS;
/// Bytes of contents that are collected before they are copied.
const MAX_BYTES: u64 = 1 << 20;

/// A file of a directory.
struct FoundFile {
    to: Destination,
    /// Its entry as it was found.
    seen: FileStat,
}

/// A file that was read, as it was at one moment.
struct FileToWrite {
    to: Destination,
    stat: FileStat,
    contents: Vec<u8>,
    digest: String,
}

impl FileToWrite {
    fn small_file(&self) -> SmallFile<'_> {
        SmallFile { name: &self.to.name, stat: &self.stat, contents: &self.contents }
    }
}

/// Small files of one directory that are not copied yet: at most [`MAX_FILES`], with fewer than
/// [`MAX_BYTES`] and a file.
pub(crate) struct SmallFiles<'a> {
    ctx: &'a StageContext<'a>,
    /// Their directory.
    source: Option<Arc<dyn DirHandle>>,
    files: Vec<FoundFile>,
}

impl<'a> SmallFiles<'a> {
    pub fn new(ctx: &'a StageContext<'a>) -> SmallFiles<'a> {
        SmallFiles { ctx, source: None, files: Vec::new() }
    }

    /// Adds a small file, which will be copied with others of its directory. Returns `to` if the file has
    /// to be opened to be copied.
    pub fn add(
        &mut self,
        here: &DirPair,
        seen: &FileStat,
        to: Destination,
        buffer: &mut [u8],
    ) -> Option<Destination> {
        // If an earlier run copied the file, there is more to check.
        let recorded = self.ctx.durability.recorded(&to.journal_key, None).is_some();
        if recorded || !seen.is_small() || seen.size > self.ctx.segment_bytes() {
            return Some(to);
        }
        if self.source.as_ref().is_some_and(|source| !Arc::ptr_eq(source, &here.source)) {
            self.copy(buffer);
        }
        self.source.get_or_insert_with(|| here.source.clone());
        self.files.push(FoundFile { to, seen: *seen });
        let bytes: u64 = self.files.iter().map(|file| file.seen.size).sum();
        if self.files.len() == MAX_FILES || bytes >= MAX_BYTES {
            self.copy(buffer);
        }
        None
    }

    /// Copies the files, or queues the parts of those that have become large. Returns whether there were
    /// any. A stopped stage discards them.
    pub fn copy(&mut self, buffer: &mut [u8]) -> bool {
        let files = std::mem::take(&mut self.files);
        let Some(source) = self.source.take() else { return false };
        if self.ctx.is_stopped() {
            return false;
        }
        let found: Vec<_> = files.iter().map(|file| (&*file.to.name, &file.seen)).collect();
        let read = source.read_small_files(&found);
        assert_eq!(read.len(), files.len(), "each file has a result");
        let mut to_write = Vec::with_capacity(files.len());
        for (FoundFile { to, seen }, read) in files.into_iter().zip(read) {
            let source_path = to.source_path.clone();
            let outcome = match read {
                Ok(Some((stat, contents))) => {
                    to_write.push(self.file_to_write(to, stat, contents));
                    continue;
                }
                Ok(None) => open_and_copy_file(self.ctx, &*source, &seen, to, buffer),
                Err(errno) => Err(Failure::source("opening it", errno)),
            };
            self.ctx.record_outcome(&source_path, outcome);
        }
        self.write(to_write);
        true
    }

    fn file_to_write(&self, to: Destination, stat: FileStat, contents: Vec<u8>) -> FileToWrite {
        assert_eq!(contents.len() as u64, stat.size);
        let digest = match self.ctx.options.verify {
            Verify::Off => NO_DIGEST.to_owned(),
            Verify::Checksum | Verify::ReadBack => digest_of_contents(&contents),
        };
        FileToWrite { to, stat, contents, digest }
    }

    /// Writes the files that were read.
    fn write(&self, files: Vec<FileToWrite>) {
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
        let small: Vec<SmallFile<'_>> = files.iter().map(FileToWrite::small_file).collect();
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
        debug_assert!(complete || std::thread::panicking(), "files were found and not copied");
    }
}

/// Completes the copy of a file that was written with this outcome.
fn complete(ctx: &StageContext<'_>, file: FileToWrite, put: PutOutcome) -> Result<(), Failure> {
    let FileToWrite { to, stat, contents, digest } = file;
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
        let set = hidden.set_metadata(stat, &mut |mode| mode);
        set.map_err(failed("setting owner, permissions and times of its copy"))?;
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
