//! Finding what is to be copied: directories are made at once, files and symbolic links handed to
//! the copying threads, further names of a file noted for the end.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Sender;
use rustix::io::Errno;

use crate::end::{FileKind, FileStat};
use crate::error::{Failure, Problem, describe};
use crate::mover::{CopyTask, DirTree, HIDDEN_PREFIX, StageContext};
use crate::path::descend;
use crate::request::{ItemKind, StageItem, StageRequest};

/// A directory that was found, with its state at that time.
pub(crate) struct FoundDir {
    pub tree: Arc<DirTree>,
    pub path: Arc<Path>,
    pub state: FileStat,
}

/// A further name of a file.
pub(crate) struct FoundHardLink {
    pub tree: Arc<DirTree>,
    /// The name under which the file is copied.
    pub first: PathBuf,
    /// The further name.
    pub path: PathBuf,
}

/// What is left for the end.
#[derive(Default)]
pub(crate) struct Found {
    /// A directory comes before those in it.
    pub directories: Vec<FoundDir>,
    pub names: Vec<FoundHardLink>,
}

pub(crate) struct Walk<'a, 'j> {
    job: &'a StageContext<'j>,
    tasks: Option<Sender<CopyTask>>,
    /// Nobody else copies.
    alone: bool,
    pub found: Found,
}

impl<'a, 'j> Walk<'a, 'j> {
    pub fn new(job: &'a StageContext<'j>, tasks: Sender<CopyTask>, alone: bool) -> Walk<'a, 'j> {
        Walk {
            job,
            tasks: Some(tasks),
            alone,
            found: Found::default(),
        }
    }

    /// Finds everything; returns early when the stage is stopped.
    pub fn run(&mut self, request: &StageRequest) {
        for (index, item) in request.items.iter().enumerate() {
            if self.job.is_stopped() {
                return;
            }
            match item.kind {
                ItemKind::File => self.send(CopyTask::Single {
                    index,
                    source: item.source.clone(),
                    target: item.target.clone(),
                }),
                ItemKind::Directory => match self.tree(index, item) {
                    Ok(tree) => self.directory_tree(&Arc::new(tree)),
                    Err(problem) => {
                        self.job.problems.add(problem);
                    }
                },
            }
        }
        self.job.progress.all_found();
    }

    /// Nothing more comes.
    pub fn close(&mut self) {
        self.tasks = None;
    }

    fn send(&self, task: CopyTask) {
        if self.alone {
            return self.job.at_once(task);
        }
        // Fails only if all copying threads are gone, which they are not before `close`.
        if let Some(tasks) = &self.tasks {
            self.job.pending.fetch_add(1, Ordering::AcqRel);
            let _ = tasks.send(task);
        }
    }

    fn tree(&self, index: usize, item: &StageItem) -> Result<DirTree, Problem> {
        let source = item.source.open_dir()?;
        let (target, made) = item.target.open_or_mkdir()?;
        // An interrupted run may have made it: then it is still ours to finish.
        let key = PathBuf::from(format!("{index}/"));
        let mut ours = made;
        if let Some(journal) = &self.job.journal {
            if made {
                journal.has_made(&key)?;
            }
            ours |= journal.known(&key, None).is_some();
        }
        let again = target.try_clone();
        let again = again.map_err(|errno| item.target.problem(describe(errno), errno))?;
        self.job
            .remember(&Arc::from(again), item.target.display())?;
        Ok(DirTree {
            index,
            source,
            target,
            shown: item.source.display(),
            copies: item.target.display(),
            made: ours,
        })
    }

    fn directory_tree(&mut self, tree: &Arc<DirTree>) {
        let mut open: Vec<Arc<Path>> = vec![Arc::from(Path::new(""))];
        let mut names: HashMap<(u64, u64), PathBuf> = HashMap::new();
        while let Some(path) = open.pop() {
            if self.job.is_stopped() {
                return;
            }
            let outcome = self.directory(tree, &path, &mut open, &mut names);
            self.job.note(&tree.shown.join(&path), outcome);
        }
    }

    fn directory(
        &mut self,
        tree: &Arc<DirTree>,
        path: &Arc<Path>,
        open: &mut Vec<Arc<Path>>,
        names: &mut HashMap<(u64, u64), PathBuf>,
    ) -> Result<(), Failure> {
        let source = descend(&*tree.source, path)
            .map_err(|e| Failure::source("opening the directory", e))?;
        let state = source
            .stat()
            .map_err(|e| Failure::source("reading its state", e))?;
        if let Some(name) = path.file_name() {
            let above = descend(&*tree.target, path.parent().unwrap_or(Path::new("")))
                .map_err(|e| Failure::target("opening the directory above its copy", e))?;
            let made = above.mkdir(name).and_then(|_| above.open_dir(name));
            made.map_err(|e| Failure::target("making the directory", e))?;
        }
        self.found.directories.push(FoundDir {
            tree: tree.clone(),
            path: path.clone(),
            state,
        });
        self.job.totals.directories.fetch_add(1, Ordering::Relaxed);
        let read = source.read_dir(&mut |name, seen| {
            let shown = || tree.shown.join(path).join(name);
            if name.as_bytes().starts_with(HIDDEN_PREFIX.as_bytes()) {
                let reason = "left out: it is the rest of an interrupted stage";
                self.job.warnings.warn(&shown(), reason);
            } else {
                match seen {
                    Ok(seen) => self.entry(tree, path, name.to_owned(), seen, open, names),
                    Err(errno) => {
                        let failure = Failure::source("reading its state", errno);
                        self.job.note(&shown(), Err(failure));
                    }
                }
            }
            !self.job.is_stopped()
        });
        read.map_err(|e| Failure::source("reading the directory", e))
    }

    fn entry(
        &mut self,
        tree: &Arc<DirTree>,
        path: &Arc<Path>,
        name: OsString,
        seen: FileStat,
        open: &mut Vec<Arc<Path>>,
        names: &mut HashMap<(u64, u64), PathBuf>,
    ) {
        let progress = self.job.progress;
        let (tree, directory) = (tree.clone(), path.clone());
        match seen.kind {
            FileKind::Directory => open.push(Arc::from(path.join(&name))),
            FileKind::Symlink => {
                progress.found(0);
                self.send(CopyTask::Link {
                    tree,
                    directory,
                    name,
                    seen,
                });
            }
            FileKind::File => {
                let full = path.join(&name);
                if seen.nlink > 1 {
                    if let Some(first) = names.get(&seen.inode) {
                        progress.found(0);
                        self.found.names.push(FoundHardLink {
                            tree,
                            first: first.clone(),
                            path: full,
                        });
                        return;
                    }
                    names.insert(seen.inode, full);
                }
                progress.found(seen.size);
                self.send(CopyTask::File {
                    tree,
                    directory,
                    name,
                    seen,
                });
            }
            FileKind::Other => {
                let shown = tree.shown.join(path).join(&name);
                let reason = "is a device, a pipe or a socket, which cannot be staged";
                let failure = Failure::File(reason.to_owned(), Errno::INVAL);
                self.job.note(&shown, Err(failure));
            }
        }
    }
}
