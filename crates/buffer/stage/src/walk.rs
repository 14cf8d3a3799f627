//! Finding what is to be copied. Directories are created at once; files and symbolic links become
//! copy tasks; further hard links of a file are kept for the end.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Sender;

use crate::context::StageContext;
use crate::end::{FileKind, FileStat};
use crate::error::{Failure, Problem, describe};
use crate::location::open_dir_below;
use crate::request::{ItemKind, StageItem, StageRequest};
use crate::share::{Claim, RunningShare};
use crate::tree::{DirTree, HIDDEN_PREFIX};
use crate::worker::{CopyTask, Worker};

/// A directory, with its attributes when it was found.
pub(crate) struct FoundDir {
    pub tree: Arc<DirTree>,
    pub path: Arc<Path>,
    pub stat: FileStat,
}

/// A further hard link of a file.
pub(crate) struct FoundHardLink {
    pub tree: Arc<DirTree>,
    /// The path under which the file is copied.
    pub first: PathBuf,
    /// The path of the hard link.
    pub path: PathBuf,
}

/// Directories and hard links that are left for the end of the stage.
#[derive(Default)]
pub(crate) struct Found {
    /// A directory precedes those in it.
    pub directories: Vec<FoundDir>,
    pub hard_links: Vec<FoundHardLink>,
}

/// The files with several links that a walk has seen: path of the first link by inode.
type FirstLinks = HashMap<(u64, u64), PathBuf>;

/// Receiver of the tasks of a walk.
pub(crate) enum TaskSink<'a> {
    /// Other threads.
    Threads(Sender<CopyTask>),
    /// The walking thread itself.
    Inline(Box<Worker<'a>>),
}

pub(crate) struct Walk<'a> {
    ctx: &'a StageContext<'a>,
    sink: TaskSink<'a>,
    found: Found,
}

impl<'a> Walk<'a> {
    pub fn new(ctx: &'a StageContext<'a>, sink: TaskSink<'a>) -> Walk<'a> {
        Walk { ctx, sink, found: Found::default() }
    }

    /// Finds everything in `request`, unless the stage is stopped.
    pub fn run(mut self, request: &StageRequest) -> Found {
        self.walk(request);
        if let TaskSink::Inline(worker) = &mut self.sink {
            worker.finish();
        }
        self.found
    }

    fn walk(&mut self, request: &StageRequest) {
        for (index, item) in request.items.iter().enumerate() {
            if self.ctx.is_stopped() {
                return;
            }
            match item.kind {
                ItemKind::File => {
                    let (source, target) = (item.source.clone(), item.target.clone());
                    let items = request.items.len();
                    let ends = [source.display(), target.display()];
                    let ends = [ends[0].as_path(), ends[1].as_path()];
                    let share = self.ctx.share.as_ref();
                    if share.is_none_or(|share| share.opens_single(ends, items)) {
                        self.send(CopyTask::Single { index, items, source, target });
                    }
                }
                ItemKind::Directory => match self.open_tree(index, item) {
                    Ok(tree) => self.walk_tree(&Arc::new(tree)),
                    Err(problem) => {
                        self.ctx.problems.add(problem);
                    }
                },
            }
        }
        self.ctx.progress.set_all_found();
    }

    fn send(&mut self, task: CopyTask) {
        match &mut self.sink {
            TaskSink::Threads(tasks) => {
                self.ctx.pending_tasks.fetch_add(1, Ordering::AcqRel);
                // The threads run as long as the sender exists.
                let sent = tasks.send(task);
                assert!(sent.is_ok(), "a thread receives the task");
            }
            TaskSink::Inline(worker) => worker.run_to_completion(task),
        }
    }

    fn open_tree(&self, index: usize, item: &StageItem) -> Result<DirTree, Problem> {
        let source = item.source.open_dir()?;
        let (target, created) = item.target.open_or_mkdir()?;
        // A target that an interrupted run created gets its attributes from this one.
        let durability = &self.ctx.durability;
        let key = PathBuf::from(format!("{index}/"));
        if created {
            durability.record_created_dir(&key)?;
        }
        let created_before = durability.recorded(&key, None).is_some();
        if let Some(share) = &self.ctx.share
            && (created || created_before)
        {
            share.note_created();
        }
        let target_path = item.target.display();
        let handle = target.try_clone();
        let handle = handle.map_err(|errno| item.target.problem(describe(errno), errno))?;
        durability.add_target(&Arc::from(handle), target_path.clone())?;
        Ok(DirTree {
            index,
            source,
            target,
            source_path: item.source.display(),
            target_path,
            created: created || created_before,
        })
    }

    fn walk_tree(&mut self, tree: &Arc<DirTree>) {
        let mut unvisited: Vec<Arc<Path>> = vec![Arc::from(Path::new(""))];
        let mut links = FirstLinks::new();
        while let Some(path) = unvisited.pop() {
            if self.ctx.is_stopped() {
                return;
            }
            let outcome = self.walk_dir(tree, &path, &mut unvisited, &mut links);
            self.ctx.record_outcome(&tree.source_path.join(&path), outcome);
        }
    }

    fn walk_dir(
        &mut self,
        tree: &Arc<DirTree>,
        path: &Arc<Path>,
        unvisited: &mut Vec<Arc<Path>>,
        links: &mut FirstLinks,
    ) -> Result<(), Failure> {
        let source = open_dir_below(&*tree.source, path)
            .map_err(|e| Failure::source("opening the directory", e))?;
        let stat = source.stat().map_err(|e| Failure::source("reading its attributes", e))?;
        if let Some(name) = path.file_name() {
            let parent = open_dir_below(&*tree.target, path.parent().unwrap_or(Path::new("")))
                .map_err(|e| Failure::target("opening the parent of its copy", e))?;
            let created = parent.mkdir(name).and_then(|_| parent.open_dir(name));
            created.map_err(|e| Failure::target("creating the directory", e))?;
        }
        if let Some(share) = &self.ctx.share {
            share.see_dir(tree.index, path, &stat);
        }
        self.found.directories.push(FoundDir { tree: tree.clone(), path: path.clone(), stat });
        let is_first = self.ctx.share.as_ref().is_none_or(RunningShare::is_first);
        self.ctx.report.lock().directories += u64::from(is_first);
        let read = source.read_dir(&mut |name, seen| {
            let source_path = || tree.source_path.join(path).join(name);
            if name.as_bytes().starts_with(HIDDEN_PREFIX.as_bytes()) {
                if is_first {
                    let reason = "left out: an interrupted stage left it";
                    self.ctx.warnings.warn(&source_path(), reason);
                }
            } else {
                match seen {
                    Ok(seen) => {
                        self.add_entry(tree, path, name.to_owned(), seen, unvisited, links);
                    }
                    Err(_) if self.claim(tree, path, name, None) == Claim::Other => {}
                    Err(errno) => {
                        let failure = Failure::source("reading its attributes", errno);
                        self.ctx.record_outcome(&source_path(), Err(failure));
                    }
                }
            }
            !self.ctx.is_stopped()
        });
        read.map_err(|e| Failure::source("reading the directory", e))
    }

    fn add_entry(
        &mut self,
        tree: &Arc<DirTree>,
        path: &Arc<Path>,
        name: OsString,
        seen: FileStat,
        unvisited: &mut Vec<Arc<Path>>,
        links: &mut FirstLinks,
    ) {
        if seen.kind == FileKind::Directory {
            return unvisited.push(Arc::from(path.join(&name)));
        }
        let claim = self.claim(tree, path, &name, Some(&seen));
        if claim == Claim::Other {
            return;
        }
        let (tree, directory) = (tree.clone(), path.clone());
        if seen.kind != FileKind::Symlink && seen.nlink > 1 {
            let full = path.join(&name);
            if let Some(first) = links.get(&seen.inode) {
                self.ctx.progress.copied.expect_file(0);
                let first = first.clone();
                self.found.hard_links.push(FoundHardLink { tree, first, path: full });
                return;
            }
            links.insert(seen.inode, full);
        }
        let is_file = seen.kind == FileKind::File;
        self.ctx.expect_copy(claim, if is_file { seen.size } else { 0 });
        self.send(CopyTask::Entry { tree, directory, name, seen, claim });
    }

    /// The mover, or movers, that copy the entry `name` of a directory.
    fn claim(
        &self,
        tree: &DirTree,
        directory: &Path,
        name: &OsStr,
        seen: Option<&FileStat>,
    ) -> Claim {
        let Some(share) = &self.ctx.share else {
            return Claim::Own;
        };
        share.claim(&tree.journal_key(directory, name), seen, self.ctx.segment_bytes())
    }
}
