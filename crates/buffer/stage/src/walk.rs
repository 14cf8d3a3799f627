//! Finding what is to be copied: directories are made at once, files and symbolic links handed to
//! the copying threads, further names of a file noted for the end.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_channel::Sender;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, fstat, statat};

use crate::error::{Failure, Problem};
use crate::journal::Copied;
use crate::mover::{HIDDEN, Job, Task, Tree};
use crate::place::{make_in, strictly_beneath};
use crate::request::{Item, Request, What};

/// A directory that was found, with its state at that time.
pub(crate) struct FoundDirectory {
    pub tree: Arc<Tree>,
    pub path: Arc<Path>,
    pub stat: Stat,
}

/// A further name of a file.
pub(crate) struct FoundName {
    pub tree: Arc<Tree>,
    /// The name under which the file is copied.
    pub first: PathBuf,
    /// The further name.
    pub path: PathBuf,
}

/// What is left for the end.
#[derive(Default)]
pub(crate) struct Found {
    /// A directory comes before those in it.
    pub directories: Vec<FoundDirectory>,
    pub names: Vec<FoundName>,
}

pub(crate) struct Walk<'a, 'j> {
    job: &'a Job<'j>,
    tasks: Option<Sender<Task>>,
    pub found: Found,
}

impl<'a, 'j> Walk<'a, 'j> {
    pub fn new(job: &'a Job<'j>, tasks: Sender<Task>) -> Walk<'a, 'j> {
        Walk {
            job,
            tasks: Some(tasks),
            found: Found::default(),
        }
    }

    /// Finds everything; returns early when the stage is stopped.
    pub fn run(&mut self, request: &Request) {
        for (index, item) in request.items.iter().enumerate() {
            if self.job.is_stopped() {
                return;
            }
            match item.what {
                What::File => self.send(Task::Single {
                    index,
                    source: item.source.clone(),
                    target: item.target.clone(),
                }),
                What::Directory => match self.tree(index, item) {
                    Ok(tree) => self.directory_tree(&Arc::new(tree)),
                    Err(problem) => {
                        self.job.problems.add(&problem.path, problem.reason);
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

    fn send(&self, task: Task) {
        // Fails only if all copying threads are gone, which they are not before `close`.
        if let Some(tasks) = &self.tasks {
            self.job.pending.fetch_add(1, Ordering::AcqRel);
            let _ = tasks.send(task);
        }
    }

    fn tree(&self, index: usize, item: &Item) -> Result<Tree, Problem> {
        let source = item.source.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let (target, made) = item.target.make()?;
        // An interrupted run may have made it: then it is still ours to finish.
        let key = PathBuf::from(format!("{index}/"));
        let mut ours = made;
        if let Some(journal) = &self.job.journal {
            ours |= journal.known(&key, None).is_some();
            if ours {
                journal.add(
                    &key,
                    None,
                    &Copied {
                        size: 0,
                        modified: 0,
                        digest: "-".to_owned(),
                    },
                )?;
            }
        }
        Ok(Tree {
            index,
            source,
            target,
            shown: item.source.display(),
            made: ours,
        })
    }

    fn directory_tree(&mut self, tree: &Arc<Tree>) {
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
        tree: &Arc<Tree>,
        path: &Arc<Path>,
        open: &mut Vec<Arc<Path>>,
        names: &mut HashMap<(u64, u64), PathBuf>,
    ) -> Result<(), Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let source = strictly_beneath(&tree.source, path, flags)
            .map_err(|e| Failure::source("opening the directory", e))?;
        let stat = fstat(&source).map_err(|e| Failure::source("reading its state", e))?;
        if let Some(name) = path.file_name() {
            let above =
                strictly_beneath(&tree.target, path.parent().unwrap_or(Path::new("")), flags)
                    .map_err(|e| Failure::target("opening the directory above its copy", e))?;
            make_in(&above, Path::new(name), false)
                .map_err(|e| Failure::target("making the directory", e))?;
        }
        self.found.directories.push(FoundDirectory {
            tree: tree.clone(),
            path: path.clone(),
            stat,
        });
        self.job.totals.directories.fetch_add(1, Ordering::Relaxed);
        let entries =
            Dir::read_from(&source).map_err(|e| Failure::source("reading the directory", e))?;
        for entry in entries {
            if self.job.is_stopped() {
                return Err(Failure::Cancelled);
            }
            let entry = entry.map_err(|e| Failure::source("reading the directory", e))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let shown = || tree.shown.join(path).join(name);
            if name.as_bytes().starts_with(HIDDEN.as_bytes()) {
                self.job
                    .warnings
                    .add(&shown(), "left out: it is the rest of an interrupted stage");
                continue;
            }
            let stat = match statat(&source, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(errno) => {
                    self.job
                        .note(&shown(), Err(Failure::source("reading its state", errno)));
                    continue;
                }
            };
            self.entry(tree, path, name.to_owned(), &stat, open, names);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        tree: &Arc<Tree>,
        path: &Arc<Path>,
        name: OsString,
        stat: &Stat,
        open: &mut Vec<Arc<Path>>,
        names: &mut HashMap<(u64, u64), PathBuf>,
    ) {
        let progress = self.job.progress;
        let (tree, directory) = (tree.clone(), path.clone());
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => open.push(Arc::from(path.join(&name))),
            FileType::Symlink => {
                progress.found(0);
                self.send(Task::Link {
                    tree,
                    directory,
                    name,
                });
            }
            FileType::RegularFile => {
                let full = path.join(&name);
                if stat.st_nlink > 1 {
                    let inode = (stat.st_dev, stat.st_ino);
                    if let Some(first) = names.get(&inode) {
                        progress.found(0);
                        self.found.names.push(FoundName {
                            tree,
                            first: first.clone(),
                            path: full,
                        });
                        return;
                    }
                    names.insert(inode, full);
                }
                progress.found(u64::try_from(stat.st_size).unwrap_or(0));
                self.send(Task::File {
                    tree,
                    directory,
                    name,
                });
            }
            _ => {
                let shown = tree.shown.join(path).join(&name);
                let reason = "is a device, a pipe or a socket, which cannot be staged";
                self.job.note(&shown, Err(Failure::File(reason.to_owned())));
            }
        }
    }
}
