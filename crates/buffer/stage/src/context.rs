//! The state that all threads of one stage share.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay_protocol::progress::{ShareDecision, StagePhase};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::copy_range::Pieces;
use crate::durability::Durability;
use crate::error::{Failure, MAX_LISTED_PROBLEMS, Problem, Problems, StageError};
use crate::large_file::LargeFileQueue;
use crate::progress::ProgressCounters;
use crate::request::{StageOptions, StageReport, Verify};
use crate::share::{Claim, RunningShare};
use crate::tree::CopyLocation;

/// The state of a copy of which parts are read back.
#[derive(Debug, Default)]
pub(crate) struct ReadBackState {
    /// Whether a damaged part was found.
    pub damaged: AtomicBool,
    /// Parts not yet verified.
    pub unverified: AtomicUsize,
}

/// A copy, or a part of one, to be read back.
pub(crate) struct ReadBackItem {
    pub location: CopyLocation,
    pub pieces: Pieces,
    pub digest: String,
    /// The state of the whole copy.
    pub state: Arc<ReadBackState>,
}

/// The state that all threads of one stage share.
pub(crate) struct StageContext<'a> {
    pub options: &'a StageOptions,
    pub progress: &'a ProgressCounters,
    pub problems: Problems,
    pub warnings: Problems,
    pub durability: Durability<'a>,
    /// Report of what was copied so far.
    pub report: Mutex<StageReport>,
    pub large_files: LargeFileQueue,
    /// Copies to be read back.
    pub read_back: Mutex<Vec<ReadBackItem>>,
    /// Tasks that were found and are not completed.
    pub pending_tasks: AtomicU64,
    /// This mover's share, if several share the stage.
    pub share: Option<RunningShare<'a>>,
    /// Another mover could not copy all of its share.
    incomplete: AtomicBool,
    fatal: Mutex<Option<Problem>>,
    stopped: AtomicBool,
    /// The current phase, and when its time was last counted.
    phase: Mutex<(StagePhase, Instant)>,
}

impl<'a> StageContext<'a> {
    pub fn new(
        options: &'a StageOptions,
        progress: &'a ProgressCounters,
        durability: Durability<'a>,
        started: Instant,
    ) -> StageContext<'a> {
        StageContext {
            options,
            progress,
            problems: Problems::default(),
            warnings: Problems::default(),
            durability,
            report: Mutex::default(),
            large_files: LargeFileQueue::default(),
            read_back: Mutex::default(),
            pending_tasks: AtomicU64::new(0),
            share: options.share.as_ref().map(RunningShare::new),
            incomplete: AtomicBool::new(false),
            fatal: Mutex::default(),
            stopped: AtomicBool::new(false),
            phase: Mutex::new((StagePhase::Copying, started)),
        }
    }

    /// Bytes of a part of a large file.
    pub fn segment_bytes(&self) -> u64 {
        self.options.segment_bytes.max(1)
    }

    /// Starts the next phase.
    pub fn enter_phase(&self, phase: StagePhase) {
        let previous = self.count_phase_time(Some(phase)).0;
        assert_ne!(previous, phase, "each phase is entered once");
        self.progress.enter_phase(phase);
    }

    /// Counts the time in the last phase. Returns the time now.
    pub fn end_phases(&self) -> Instant {
        self.count_phase_time(None).1
    }

    /// Ends an interruption of the current phase, whose time does not count.
    fn resume_phase(&self) {
        self.phase.lock().1 = self.options.host.now();
    }

    /// Waits for the other movers of the stage; copies are on stable storage. `None`: it was
    /// cancelled.
    pub fn await_shares(&self, share: &RunningShare<'_>) -> Option<ShareDecision> {
        self.count_phase_time(None);
        let tally = share.tally(self.problems.count());
        let decision = share.share.barrier.wait(&tally, self.progress);
        self.resume_phase();
        if decision.is_some_and(|decision| !decision.complete) {
            self.incomplete.store(true, Ordering::Relaxed);
        }
        decision
    }

    fn count_phase_time(&self, next: Option<StagePhase>) -> (StagePhase, Instant) {
        let mut current = self.phase.lock();
        let (phase, started) = *current;
        let now = self.options.host.now();
        *current = (next.unwrap_or(phase), now);
        self.progress.add_phase_time(phase, now.saturating_duration_since(started));
        (phase, now)
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.progress.is_cancelled()
    }

    /// Whether the stage was stopped such that the next run continues its incomplete copies. They
    /// are not left in a full file system, nor after a cancellation for good.
    pub fn keeps_parts(&self) -> bool {
        if !self.options.keep_parts {
            return false;
        }
        let is_full = |problem: &Problem| {
            let code = Errno::from_raw_os_error(problem.code);
            matches!(code, Errno::NOSPC | Errno::DQUOT)
        };
        match &*self.fatal.lock() {
            Some(problem) => !is_full(problem),
            None => self.progress.is_suspended(),
        }
    }

    /// Stops the whole stage.
    pub fn stop(&self, problem: Problem) {
        self.fatal.lock().get_or_insert(problem);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Records the outcome of one file, whose source is `path`.
    pub fn record_outcome(&self, path: &Path, outcome: Result<(), Failure>) {
        match outcome {
            Ok(()) | Err(Failure::Cancelled) => {}
            Err(Failure::Fatal(reason, errno)) => self.stop(Problem::new(path, reason, errno)),
            Err(Failure::File(reason, errno)) => {
                let count = self.problems.add(Problem::new(path, reason, errno));
                if count > MAX_LISTED_PROBLEMS as u64 {
                    let reason =
                        format!("stopped after {MAX_LISTED_PROBLEMS} problems; this was the last");
                    self.stop(Problem::new(path, reason, errno));
                }
            }
        }
    }

    /// A file of `bytes` bytes was found that this mover copies, or a part of which it copies.
    pub fn expect_copy(&self, claim: Claim, bytes: u64) {
        match (claim, &self.share) {
            (Claim::Split { first }, Some(share)) => {
                let segment = self.segment_bytes();
                let own = share.own_bytes(first, bytes, segment);
                match share.is_first() {
                    true => self.progress.copied.expect_file(own),
                    false => self.progress.copied.expect_bytes(own),
                }
            }
            _ => self.progress.copied.expect_file(bytes),
        }
    }

    /// Counts a regular file of `bytes` bytes whose copy is complete.
    pub fn count_file(&self, bytes: u64) {
        let mut report = self.report.lock();
        report.files += 1;
        report.bytes += bytes;
        self.progress.copied.add_file();
    }

    /// Queues the parts of a copy for reading back, if that is requested.
    pub fn queue_read_back(
        &self,
        location: &CopyLocation,
        parts: impl IntoIterator<Item = (Pieces, String)>,
    ) {
        if self.options.verify != Verify::ReadBack {
            return;
        }
        let state = Arc::new(ReadBackState::default());
        let item = |(pieces, digest)| ReadBackItem {
            location: location.clone(),
            pieces,
            digest,
            state: state.clone(),
        };
        let items: Vec<ReadBackItem> = parts.into_iter().map(item).collect();
        assert!(!items.is_empty(), "an empty file has one empty part");
        state.unverified.store(items.len(), Ordering::Relaxed);
        let bytes = items.iter().map(|item| item.pieces.length()).sum();
        self.progress.read_back.expect_file(bytes);
        self.read_back.lock().extend(items);
    }

    /// The result of the stage, which took `time`.
    pub fn outcome(&self, time: Duration) -> Result<StageReport, StageError> {
        if let Some(problem) = self.fatal.lock().take() {
            return Err(StageError::Stopped(problem));
        }
        if self.progress.is_cancelled() {
            return Err(StageError::Cancelled);
        }
        let (problems, count) = self.problems.take();
        if count > 0 {
            return Err(StageError::Incomplete { problems, count });
        }
        if self.incomplete.load(Ordering::Relaxed) {
            return Err(StageError::OtherShare);
        }
        let now = self.progress.snapshot();
        assert!(now.all_found, "a successful stage has seen everything");
        let (verified, expected) = (now.read_back.bytes, now.read_back.bytes_total);
        assert_eq!(verified, expected, "a successful stage has verified every copy");
        Ok(StageReport {
            read_back: verified,
            time,
            times: now.times,
            warnings: self.warnings.take().0,
            ..std::mem::take(&mut *self.report.lock())
        })
    }
}
