//! Copy tasks, and the threads that carry them out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rustix::io::Errno;

use crate::context::StageContext;
use crate::copy_file::{copy_file, copy_special_file, copy_symlink, open_and_copy_file};
use crate::copy_large::copy_large_part;
use crate::copy_range::CHUNK_BYTES;
use crate::copy_small::SmallFiles;
use crate::end::{DirHandle, FileKind, FileStat};
use crate::error::{Failure, Problem};
use crate::location::StageLocation;
use crate::open_copy::Destination;
use crate::publish::changed;
use crate::share::Claim;
use crate::split::{SplitPlace, queue_split_file};
use crate::tree::{CopyLocation, DirPair, DirTree};

/// Time for which an idle thread waits for a task before it looks for parts of large files.
const TASK_TIMEOUT: Duration = Duration::from_millis(20);
/// Interval at which an idle thread looks for parts of large files when no tasks are left.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Something that the walk found.
pub(crate) enum CopyTask {
    /// A file or symbolic link in a directory, whose path is relative to the tree.
    Entry { tree: Arc<DirTree>, directory: Arc<Path>, name: OsString, seen: FileStat, claim: Claim },
    /// A file that is an item of the request, one of `items`.
    Single { index: usize, items: usize, source: StageLocation, target: StageLocation },
}

/// Counts a task as completed when dropped, also by a panic: other threads wait for the count.
struct PendingTask<'a>(&'a AtomicU64);

impl Drop for PendingTask<'_> {
    fn drop(&mut self) {
        let pending = self.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(pending > 0, "each task is completed once");
    }
}

/// A thread's view of the stage, with its buffers and the directory that it used last.
pub(crate) struct Worker<'a> {
    ctx: &'a StageContext<'a>,
    last_dir: Option<DirPair>,
    buffer: Vec<u8>,
    /// Small files of the directory that it used last.
    small_files: SmallFiles<'a>,
}

impl<'a> Worker<'a> {
    pub fn new(ctx: &'a StageContext<'a>) -> Worker<'a> {
        Worker {
            ctx,
            last_dir: None,
            buffer: vec![0; CHUNK_BYTES],
            small_files: SmallFiles::new(ctx),
        }
    }

    /// Carries out tasks until the walk has ended and no task is pending. Parts of large files come
    /// first.
    pub fn run(&mut self, tasks: &Receiver<CopyTask>) {
        let pending_tasks = &self.ctx.pending_tasks;
        let mut walk_ended = false;
        loop {
            if self.copy_claimed_part() {
                continue;
            }
            if walk_ended {
                if self.copy_small_files() {
                    continue;
                }
                // The last tasks of other threads may become large files.
                if pending_tasks.load(Ordering::Acquire) == 0 {
                    return;
                }
                std::thread::sleep(IDLE_POLL_INTERVAL);
                continue;
            }
            let received = tasks.try_recv().or_else(|_| {
                self.copy_small_files();
                tasks.recv_timeout(TASK_TIMEOUT)
            });
            match received {
                Ok(task) => {
                    let _pending = PendingTask(pending_tasks);
                    // A stopped stage discards tasks, so that the walk does not block.
                    if !self.ctx.is_stopped() {
                        self.run_task(task);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => walk_ended = true,
            }
        }
    }

    /// Carries out one task, with all parts of a large file.
    pub fn run_to_completion(&mut self, task: CopyTask) {
        if self.ctx.is_stopped() {
            return;
        }
        self.run_task(task);
        while self.copy_claimed_part() {}
    }

    /// Completes what waits for more tasks.
    pub fn finish(&mut self) {
        self.copy_small_files();
        while self.copy_claimed_part() {}
    }

    /// Copies the small files that wait for more of their directory. Returns whether there were any, which
    /// may have become large.
    fn copy_small_files(&mut self) -> bool {
        self.small_files.copy(&mut self.buffer)
    }

    /// Copies a part of a large file, if there is one to claim.
    fn copy_claimed_part(&mut self) -> bool {
        let Some((large, part)) = self.ctx.large_files.claim_part() else {
            return false;
        };
        copy_large_part(self.ctx, &large, part, &mut self.buffer);
        true
    }

    fn run_task(&mut self, task: CopyTask) {
        match task {
            CopyTask::Entry { tree, directory, name, seen, claim } => {
                let source_path = tree.source_path.join(&directory).join(&name);
                let outcome = self.copy_entry(&tree, &directory, name, &seen, claim, &source_path);
                self.ctx.record_outcome(&source_path, outcome);
            }
            CopyTask::Single { index, items, source, target } => {
                if let Err(problem) = self.copy_single(index, items, source, target) {
                    self.ctx.problems.add(problem);
                }
            }
        }
    }

    fn copy_entry(
        &mut self,
        tree: &Arc<DirTree>,
        directory: &Arc<Path>,
        name: OsString,
        seen: &FileStat,
        claim: Claim,
        source_path: &Path,
    ) -> Result<(), Failure> {
        let here = DirPair::open_cached(&mut self.last_dir, tree, directory)?;
        if seen.kind == FileKind::Symlink {
            return copy_symlink(self.ctx, here, &name, seen);
        }
        if seen.kind == FileKind::Other {
            return copy_special_file(self.ctx, here, &name, seen);
        }
        let to = Destination {
            parent: here.target.clone(),
            journal_key: tree.journal_key(directory, &name),
            source_path: source_path.to_owned(),
            location: CopyLocation::Tree {
                tree: tree.clone(),
                directory: directory.clone(),
                name: name.clone(),
            },
            name,
        };
        if let (Claim::Split { first }, Some(share)) = (claim, &self.ctx.share) {
            let source = here.source.open(&to.name, Some(seen));
            let source = source.map_err(|e| Failure::source("opening it", e))?;
            let stat = source.opened_stat();
            let stat = stat.map_err(|e| Failure::source("reading its attributes", e))?;
            if !seen.is_unchanged(&stat) {
                return Err(changed());
            }
            let place = SplitPlace::Tree {
                tree: tree.clone(),
                directory: directory.clone(),
                name: to.name.clone(),
            };
            return queue_split_file(self.ctx, share, place, (source, stat), to, first);
        }
        match self.small_files.add(here, seen, to, &mut self.buffer) {
            Some(to) => open_and_copy_file(self.ctx, &*here.source, seen, to, &mut self.buffer),
            None => Ok(()),
        }
    }

    /// Copies a file that is an item of the request. Fails only if one side cannot be opened.
    fn copy_single(
        &mut self,
        index: usize,
        items: usize,
        source: StageLocation,
        target: StageLocation,
    ) -> Result<(), Problem> {
        let file = source.open_file()?;
        let stat = file.opened_stat();
        let size = stat.map_or(0, |stat| stat.size);
        let mut claim = Claim::Own;
        if let Some(share) = &self.ctx.share {
            let ends = [source.display(), target.display()];
            let ends = [ends[0].as_path(), ends[1].as_path()];
            let is_file = stat.is_ok_and(|stat| stat.kind == FileKind::File);
            let file_bytes = if is_file { size } else { 0 };
            claim = share.claim_single(ends, items, file_bytes, self.ctx.segment_bytes());
            if claim == Claim::Other {
                return Ok(());
            }
        }
        let (parent, name) = target.open_parent()?;
        match parent.lstat(&name).map(|existing| existing.kind) {
            Ok(FileKind::Other) => {
                let reason = "is a device, a pipe or a socket; it is not replaced by a file";
                return Err(target.problem(reason, Errno::EXIST));
            }
            Ok(FileKind::Directory) => {
                let reason = "is a directory, which is not replaced by a file; end the destination \
                              with `/` to stage the file into it";
                return Err(target.problem(reason, Errno::ISDIR));
            }
            Ok(FileKind::File | FileKind::Symlink) | Err(_) => {}
        }
        let parent: Arc<dyn DirHandle> = Arc::from(parent);
        let durability = &self.ctx.durability;
        durability.add_target(&parent, target.display())?;
        self.ctx.expect_copy(claim, size);
        let source_path = source.display();
        let to = Destination {
            parent,
            name,
            journal_key: PathBuf::from(index.to_string()),
            source_path: source_path.clone(),
            location: CopyLocation::Single(target.clone()),
        };
        let outcome = match (claim, &self.ctx.share, stat) {
            (Claim::Split { first }, Some(share), Ok(stat)) => {
                let place = SplitPlace::Single { source, target };
                queue_split_file(self.ctx, share, place, (file, stat), to, first)
            }
            _ => copy_file(self.ctx, file, to, &mut self.buffer),
        };
        self.ctx.record_outcome(&source_path, outcome);
        Ok(())
    }
}
