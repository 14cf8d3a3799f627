//! One stage: a thread that walks, threads that copy, and what all of them share.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::copy::CHUNK_BYTES;
use crate::end::{DirHandle, FileKind, FileStat};
use crate::error::{Failure, MAX_LISTED_PROBLEMS, Problem, Problems, StageError};
use crate::file::Destination;
use crate::journal::Journal;
use crate::large_file::Queue;
use crate::path::{StageLocation, descend};
use crate::progress::{Phase, ProgressCounters};
use crate::request::{StageOptions, StageReport, StageRequest};
use crate::small_file::UnconfirmedCopies;
use crate::stable::UnsyncedCopies;
use crate::verify::{CopyLocation, ReadBackQueue};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use rustix::io::Errno;

/// Files that are found ahead of being copied.
const AHEAD: usize = 1 << 16;
/// Beginning of the names of files that are not whole yet.
pub(crate) const HIDDEN_PREFIX: &str = ".forebay-stage-";
/// A further name of a file before it gets its own.
pub(crate) const HIDDEN_LINK_NAME: &str = ".forebay-stage-link";

/// A directory tree that is copied.
pub(crate) struct DirTree {
    /// The item's place in the request: part of its files' names in the journal.
    pub index: usize,
    pub source: Box<dyn DirHandle>,
    pub target: Box<dyn DirHandle>,
    /// For messages.
    pub shown: PathBuf,
    /// For messages about the copies.
    pub copies: PathBuf,
    /// Whether the target was made by this stage.
    pub made: bool,
}

/// What the walk hands to the copying threads.
pub(crate) enum CopyTask {
    /// A file in a directory (relative to its tree).
    File {
        tree: Arc<DirTree>,
        directory: Arc<Path>,
        name: OsString,
        seen: FileStat,
    },
    /// A symbolic link.
    Link {
        tree: Arc<DirTree>,
        directory: Arc<Path>,
        name: OsString,
        seen: FileStat,
    },
    /// A file named by itself.
    Single {
        index: usize,
        source: StageLocation,
        target: StageLocation,
    },
}

/// A directory that gets copies, with a path for messages.
pub(crate) type Target = (PathBuf, Arc<dyn DirHandle>);

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
pub(crate) struct StageContext<'a> {
    pub options: &'a StageOptions,
    pub progress: &'a ProgressCounters,
    pub problems: Problems,
    pub warnings: Problems,
    pub journal: Option<Journal>,
    pub totals: Totals,
    fatal: Mutex<Option<Problem>>,
    stopped: AtomicBool,
    pub large: Queue,
    pub unsynced: Mutex<UnsyncedCopies>,
    /// Tasks that were found and are not dealt with yet.
    pub pending: AtomicU64,
    /// Directories that get copies: one on each file system, by its device number.
    pub targets: Mutex<BTreeMap<u64, Target>>,
    /// What is to be read back in the end.
    pub written: ReadBackQueue,
    /// What is not to be noted in the journal yet.
    pub unsure: Mutex<UnconfirmedCopies>,
    /// What it is doing, and since when.
    since: Mutex<(Phase, Instant)>,
}

/// Stages everything in `request`. Blocks until it is done, has failed or was cancelled through
/// `progress`.
pub fn run_stage(
    request: &StageRequest,
    options: &StageOptions,
    progress: &ProgressCounters,
) -> Result<StageReport, StageError> {
    let begun = options.host.now();
    let journal = match &options.journal {
        None => None,
        Some(path) => Some(
            Journal::open(&options.host, path, &fingerprint(request))
                .map_err(StageError::Stopped)?,
        ),
    };
    if journal.as_ref().is_some_and(Journal::is_complete) {
        progress.all_found();
        return Ok(StageReport {
            time: options.host.now().saturating_duration_since(begun),
            ..StageReport::default()
        });
    }
    let job = StageContext {
        options,
        progress,
        problems: Problems::default(),
        warnings: Problems::default(),
        journal,
        totals: Totals::default(),
        fatal: Mutex::new(None),
        stopped: AtomicBool::new(false),
        large: Mutex::new(VecDeque::new()),
        unsynced: Mutex::new(UnsyncedCopies::none(options.host.now())),
        pending: AtomicU64::new(0),
        targets: Mutex::new(BTreeMap::new()),
        written: Mutex::default(),
        unsure: Mutex::default(),
        since: Mutex::new((Phase::Copying, begun)),
    };
    let (sender, receiver) = bounded(AHEAD);
    let alone = options.workers == 0;
    let mut walk = crate::walk::Walk::new(&job, sender, alone);
    std::thread::scope(|scope| {
        for _ in 0..options.workers.min(256) {
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
    let time = job.spend(None).saturating_duration_since(begun);
    job.outcome(time)
}

/// A name for the stage: the same request has the same one.
fn fingerprint(request: &StageRequest) -> String {
    let mut hasher = blake3::Hasher::new();
    for item in &request.items {
        for path in [item.source.display(), item.target.display()] {
            hasher.update(path.as_os_str().as_bytes());
            hasher.update(b"\0");
        }
    }
    hasher.finalize().to_hex().to_string()
}

impl StageContext<'_> {
    /// The next phase begins.
    pub fn enter(&self, phase: Phase) {
        self.spend(Some(phase));
        self.progress.enter(phase);
    }

    /// Counts the time since the present phase began or was counted last. Returns the time now.
    fn spend(&self, next: Option<Phase>) -> Instant {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let (phase, begun) = *since;
        let now = self.options.host.now();
        *since = (next.unwrap_or(phase), now);
        self.progress
            .spent(phase, now.saturating_duration_since(begun));
        now
    }

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
            Err(Failure::Fatal(reason, errno)) => self.stop(Problem::new(shown, reason, errno)),
            Err(Failure::File(reason, errno)) => {
                if self.problems.add(Problem::new(shown, reason, errno))
                    > MAX_LISTED_PROBLEMS as u64
                {
                    let reason =
                        format!("stopped after {MAX_LISTED_PROBLEMS} problems; this was the last");
                    self.stop(Problem::new(shown, reason, errno));
                }
            }
        }
    }

    fn outcome(&self, time: Duration) -> Result<StageReport, StageError> {
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
        let now = self.progress.snapshot();
        Ok(StageReport {
            files: read(&self.totals.files),
            directories: read(&self.totals.directories),
            symbolic_links: read(&self.totals.symbolic_links),
            hard_links: read(&self.totals.hard_links),
            bytes: read(&self.totals.bytes),
            resumed: read(&self.totals.resumed),
            read_back: now.read_back.bytes,
            time,
            times: now.times,
            warnings: self.warnings.take().0,
        })
    }

    /// Copies at once what was found, large files with all their parts.
    pub fn at_once(&self, task: CopyTask) {
        if self.is_stopped() {
            return;
        }
        let mut desk = Desk::default();
        self.task(task, &mut desk);
        while let Some((large, part)) = self.claim() {
            self.part(&large, part, &mut desk.buffer);
        }
    }

    /// One copying thread: parts of large files first, then the next thing that was found.
    fn work(&self, tasks: &Receiver<CopyTask>) {
        let mut desk = Desk::default();
        let mut more = true;
        loop {
            if let Some((large, part)) = self.claim() {
                self.part(&large, part, &mut desk.buffer);
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
                        self.task(task, &mut desk);
                    }
                    self.pending.fetch_sub(1, Ordering::AcqRel);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => more = false,
            }
        }
    }

    fn task(&self, task: CopyTask, desk: &mut Desk) {
        let Desk {
            nearby,
            buffer,
            whole,
        } = desk;
        match task {
            CopyTask::File {
                tree,
                directory,
                name,
                seen,
            } => {
                let shown = tree.shown.join(&directory).join(&name);
                let key = tree_key(&tree, &directory, &name);
                let outcome = DirPair::at(nearby, &tree, &directory).and_then(|here| {
                    let at = CopyLocation::Tree {
                        tree: tree.clone(),
                        directory: directory.clone(),
                        name: name.clone(),
                    };
                    let to = Destination {
                        parent: here.target.clone(),
                        name,
                        key,
                        shown: shown.clone(),
                        at,
                    };
                    if self.small(here, &seen, &to, whole)? {
                        return Ok(());
                    }
                    let source = here
                        .source
                        .open(&to.name, Some(&seen))
                        .map_err(|e| Failure::source("opening it", e))?;
                    self.file(source, to, buffer)
                });
                self.note(&shown, outcome);
            }
            CopyTask::Link {
                tree,
                directory,
                name,
                seen,
            } => {
                let shown = tree.shown.join(&directory).join(&name);
                let outcome = DirPair::at(nearby, &tree, &directory)
                    .and_then(|here| self.link(here, &name, &seen));
                self.note(&shown, outcome);
            }
            CopyTask::Single {
                index,
                source,
                target,
            } => {
                if let Err(problem) = self.single(index, &source, &target, buffer) {
                    self.problems.add(problem);
                }
            }
        }
    }

    /// Copies a file that is named by itself. Fails only if one end cannot be opened.
    fn single(
        &self,
        index: usize,
        source: &StageLocation,
        target: &StageLocation,
        buffer: &mut [u8],
    ) -> Result<(), Problem> {
        let file = source.open_file()?;
        let (parent, name) = target.open_parent()?;
        if parent
            .lstat(&name)
            .is_ok_and(|there| there.kind == FileKind::Other)
        {
            let reason = "is a device, a pipe or a socket; a file is not put in its place";
            return Err(target.problem(reason, Errno::EXIST));
        }
        let parent: Arc<dyn DirHandle> = Arc::from(parent);
        self.remember(&parent, target.display())?;
        let size = file.opened_stat().map_or(0, |state| state.size);
        self.progress.found(size);
        let shown = source.display();
        let to = Destination {
            parent,
            name,
            key: PathBuf::from(index.to_string()),
            shown: shown.clone(),
            at: CopyLocation::Single(target.clone()),
        };
        let outcome = self.file(file, to, buffer);
        self.note(&shown, outcome);
        Ok(())
    }
}

pub(crate) fn tree_key(tree: &DirTree, directory: &Path, name: &OsStr) -> PathBuf {
    Path::new(&tree.index.to_string())
        .join(directory)
        .join(name)
}

/// What a copying thread has at hand.
struct Desk {
    nearby: Option<DirPair>,
    buffer: Vec<u8>,
    /// All of a small file.
    whole: Vec<u8>,
}

impl Default for Desk {
    fn default() -> Desk {
        Desk {
            nearby: None,
            buffer: vec![0; CHUNK_BYTES],
            whole: Vec::new(),
        }
    }
}

/// A directory on both sides; the one a thread used last is kept open.
pub(crate) struct DirPair {
    tree: usize,
    path: Arc<Path>,
    pub source: Box<dyn DirHandle>,
    pub target: Arc<dyn DirHandle>,
}

impl DirPair {
    pub fn at<'d>(
        last: &'d mut Option<DirPair>,
        tree: &DirTree,
        path: &Arc<Path>,
    ) -> Result<&'d DirPair, Failure> {
        let same = last
            .as_ref()
            .is_some_and(|d| d.tree == tree.index && d.path == *path);
        if !same {
            *last = Some(DirPair::open(tree, path)?);
        }
        last.as_ref()
            .ok_or_else(|| Failure::Fatal("no directory is open".to_owned(), Errno::IO))
    }

    pub fn open(tree: &DirTree, path: &Arc<Path>) -> Result<DirPair, Failure> {
        let source = descend(&*tree.source, path)
            .map_err(|e| Failure::source("opening its directory", e))?;
        let target = descend(&*tree.target, path)
            .map_err(|e| Failure::target("opening its directory's copy", e))?;
        Ok(DirPair {
            tree: tree.index,
            path: path.clone(),
            source,
            target: Arc::from(target),
        })
    }
}
