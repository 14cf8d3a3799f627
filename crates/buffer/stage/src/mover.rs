//! One stage: a thread that walks, threads that copy, and what all of them share.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use rustix::fs::{Mode, OFlags, fstat, openat};

use crate::copy::CHUNK;
use crate::error::{Failure, LISTED, Problem, Problems, StageError};
use crate::journal::Journal;
use crate::large::Queue;
use crate::place::{Place, strictly_beneath};
use crate::progress::Progress;
use crate::request::{Options, Report, Request};

/// Files that are found ahead of being copied.
const AHEAD: usize = 1 << 16;
/// Beginning of the names of files that are not whole yet.
pub(crate) const HIDDEN: &str = ".forebay-stage-";

/// A directory tree that is copied.
pub(crate) struct Tree {
    /// The item's place in the request: part of its files' names in the journal.
    pub index: usize,
    pub source: OwnedFd,
    pub target: OwnedFd,
    /// For messages.
    pub shown: PathBuf,
    /// Whether the target was made by this stage.
    pub made: bool,
}

/// What the walk hands to the copying threads.
pub(crate) enum Task {
    /// A file in a directory (relative to its tree).
    File {
        tree: Arc<Tree>,
        directory: Arc<Path>,
        name: OsString,
    },
    /// A symbolic link.
    Link {
        tree: Arc<Tree>,
        directory: Arc<Path>,
        name: OsString,
    },
    /// A file named by itself.
    Single {
        index: usize,
        source: Place,
        target: Place,
    },
}

#[derive(Default)]
pub(crate) struct Totals {
    pub files: AtomicU64,
    pub directories: AtomicU64,
    pub symbolic_links: AtomicU64,
    pub hard_links: AtomicU64,
    pub bytes: AtomicU64,
    pub resumed: AtomicU64,
}

/// What the threads of one stage share.
pub(crate) struct Job<'a> {
    pub options: &'a Options,
    pub progress: &'a Progress,
    pub problems: Problems,
    pub warnings: Problems,
    pub journal: Option<Journal>,
    pub totals: Totals,
    fatal: Mutex<Option<Problem>>,
    stopped: AtomicBool,
    pub large: Queue,
    pub unsynced: AtomicU64,
    /// Tasks that were found and are not dealt with yet.
    pub pending: AtomicU64,
    /// Directories that got single files: one on each file system, by its device number.
    parents: Mutex<BTreeMap<u64, (PathBuf, Arc<OwnedFd>)>>,
}

/// Stages everything in `request`. Blocks until it is done, has failed or was cancelled through
/// `progress`.
pub fn stage(
    request: &Request,
    options: &Options,
    progress: &Progress,
) -> Result<Report, StageError> {
    let begun = Instant::now();
    let journal = match &options.journal {
        None => None,
        Some(path) => {
            Some(Journal::open(path, &fingerprint(request)).map_err(StageError::Stopped)?)
        }
    };
    if journal.as_ref().is_some_and(Journal::is_complete) {
        progress.all_found();
        return Ok(Report {
            time: begun.elapsed(),
            ..Report::default()
        });
    }
    let job = Job {
        options,
        progress,
        problems: Problems::default(),
        warnings: Problems::default(),
        journal,
        totals: Totals::default(),
        fatal: Mutex::new(None),
        stopped: AtomicBool::new(false),
        large: Mutex::new(VecDeque::new()),
        unsynced: AtomicU64::new(0),
        pending: AtomicU64::new(0),
        parents: Mutex::new(BTreeMap::new()),
    };
    let (sender, receiver) = bounded(AHEAD);
    let mut walk = crate::walk::Walk::new(&job, sender);
    std::thread::scope(|scope| {
        for _ in 0..options.workers.clamp(1, 256) {
            let (job, receiver) = (&job, receiver.clone());
            scope.spawn(move || job.work(&receiver));
        }
        drop(receiver);
        walk.run(request);
        walk.close();
    });
    if !job.is_stopped() {
        crate::finish::finish(&job, &walk.found);
    }
    job.outcome(begun.elapsed())
}

/// A name for the stage: the same request has the same one.
fn fingerprint(request: &Request) -> String {
    let mut hasher = blake3::Hasher::new();
    for item in &request.items {
        for path in [item.source.display(), item.target.display()] {
            hasher.update(path.as_os_str().as_bytes());
            hasher.update(b"\0");
        }
    }
    hasher.finalize().to_hex().to_string()
}

impl Job<'_> {
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.progress.is_cancelled()
    }

    /// Stops the whole stage.
    pub fn stop(&self, problem: Problem) {
        self.fatal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(problem);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Notes what became of one file.
    pub fn note(&self, shown: &Path, outcome: Result<(), Failure>) {
        match outcome {
            Ok(()) | Err(Failure::Cancelled) => {}
            Err(Failure::Fatal(reason)) => self.stop(Problem {
                path: shown.to_owned(),
                reason,
            }),
            Err(Failure::File(reason)) => {
                if self.problems.add(shown, reason) > LISTED as u64 {
                    let reason = format!("stopped after {LISTED} problems; this was the last");
                    self.stop(Problem {
                        path: shown.to_owned(),
                        reason,
                    });
                }
            }
        }
    }

    fn outcome(&self, time: Duration) -> Result<Report, StageError> {
        if let Some(problem) = self
            .fatal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            return Err(StageError::Stopped(problem));
        }
        if self.progress.is_cancelled() {
            return Err(StageError::Cancelled);
        }
        let (problems, count) = self.problems.take();
        if count > 0 {
            return Err(StageError::Incomplete { problems, count });
        }
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(Report {
            files: read(&self.totals.files),
            directories: read(&self.totals.directories),
            symbolic_links: read(&self.totals.symbolic_links),
            hard_links: read(&self.totals.hard_links),
            bytes: read(&self.totals.bytes),
            resumed: read(&self.totals.resumed),
            time,
            warnings: self.warnings.take().0,
        })
    }

    /// One copying thread: parts of large files first, then the next thing that was found.
    fn work(&self, tasks: &Receiver<Task>) {
        let mut buffer = vec![0u8; CHUNK];
        let mut nearby: Option<Directory> = None;
        let mut more = true;
        loop {
            if let Some((large, part)) = self.claim() {
                self.part(&large, part, &mut buffer);
                continue;
            }
            if !more {
                // While others deal with their last tasks, these may become large files to share.
                if self.pending.load(Ordering::Acquire) == 0 {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            match tasks.recv_timeout(Duration::from_millis(20)) {
                Ok(task) => {
                    // Taken even if it comes to nothing, so that the walk does not wait for room.
                    if !self.is_stopped() {
                        self.task(task, &mut nearby, &mut buffer);
                    }
                    self.pending.fetch_sub(1, Ordering::AcqRel);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => more = false,
            }
        }
    }

    fn task(&self, task: Task, nearby: &mut Option<Directory>, buffer: &mut [u8]) {
        match task {
            Task::File {
                tree,
                directory,
                name,
            } => {
                let shown = tree.shown.join(&directory).join(&name);
                let key = tree_key(&tree, &directory, &name);
                let outcome = Directory::at(nearby, &tree, &directory).and_then(|here| {
                    let flags =
                        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    let source = openat(&here.source, &name, flags, Mode::empty())
                        .map_err(|e| Failure::source("opening it", e))?;
                    self.file(
                        source,
                        here.target.clone(),
                        name,
                        key,
                        shown.clone(),
                        buffer,
                    )
                });
                self.note(&shown, outcome);
            }
            Task::Link {
                tree,
                directory,
                name,
            } => {
                let shown = tree.shown.join(&directory).join(&name);
                let outcome = Directory::at(nearby, &tree, &directory)
                    .and_then(|here| self.link(here, &name));
                self.note(&shown, outcome);
            }
            Task::Single {
                index,
                source,
                target,
            } => {
                let opened = source.open(OFlags::RDONLY | OFlags::NONBLOCK);
                let opened = opened.and_then(|source| Ok((source, target.open_parent()?)));
                match opened {
                    Err(problem) => {
                        self.problems.add(&problem.path, problem.reason);
                    }
                    Ok((file, (parent, name))) => {
                        let key = PathBuf::from(index.to_string());
                        let parent = Arc::new(parent);
                        self.remember(&parent, target.display());
                        let size =
                            fstat(&file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
                        self.progress.found(size);
                        let shown = source.display();
                        let outcome = self.file(file, parent, name, key, shown.clone(), buffer);
                        self.note(&shown, outcome);
                    }
                }
            }
        }
    }

    /// Keeps a directory open for the end, when its file system is put on stable storage.
    fn remember(&self, parent: &Arc<OwnedFd>, shown: PathBuf) {
        if let Ok(stat) = fstat(&**parent) {
            let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
            parents
                .entry(stat.st_dev)
                .or_insert_with(|| (shown, parent.clone()));
        }
    }

    /// A directory on each file system that got single files, with a path for messages.
    pub fn parents(&self) -> Vec<(PathBuf, Arc<OwnedFd>)> {
        let parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        parents.values().cloned().collect()
    }
}

pub(crate) fn tree_key(tree: &Tree, directory: &Path, name: &OsStr) -> PathBuf {
    Path::new(&tree.index.to_string())
        .join(directory)
        .join(name)
}

/// A directory on both sides; the one a thread used last is kept open.
pub(crate) struct Directory {
    tree: usize,
    path: Arc<Path>,
    pub source: OwnedFd,
    pub target: Arc<OwnedFd>,
}

impl Directory {
    fn at<'d>(
        last: &'d mut Option<Directory>,
        tree: &Tree,
        path: &Arc<Path>,
    ) -> Result<&'d Directory, Failure> {
        let same = last
            .as_ref()
            .is_some_and(|d| d.tree == tree.index && d.path == *path);
        if !same {
            *last = Some(Directory::open(tree, path)?);
        }
        last.as_ref()
            .ok_or_else(|| Failure::Fatal("no directory is open".to_owned()))
    }

    pub fn open(tree: &Tree, path: &Arc<Path>) -> Result<Directory, Failure> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let source = strictly_beneath(&tree.source, path, flags)
            .map_err(|e| Failure::source("opening its directory", e))?;
        let target = strictly_beneath(&tree.target, path, flags)
            .map_err(|e| Failure::target("opening its directory's copy", e))?;
        Ok(Directory {
            tree: tree.index,
            path: path.clone(),
            source,
            target: Arc::new(target),
        })
    }
}
