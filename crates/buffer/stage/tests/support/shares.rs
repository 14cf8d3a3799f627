//! Several movers that share a stage, on threads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay_protocol::progress::{ShareDecision, ShareTally, StageProgress};
use forebay_stage::{
    ProgressCounters, Share, ShareBarrier, StageError, StageOptions, StageReport, StageRequest,
    run_stage,
};

/// The place where the movers of one attempt wait for each other; decides as the controller does.
#[derive(Debug)]
pub struct Meeting {
    tallies: Mutex<Vec<Option<ShareTally>>>,
    changed: Condvar,
    first_is_done: AtomicBool,
    /// A share has failed, and the others stop.
    failed: AtomicBool,
    key: u64,
}

#[derive(Debug)]
struct Place {
    meeting: Arc<Meeting>,
    index: usize,
}

impl Meeting {
    pub fn new(count: u32, key: u64) -> Arc<Meeting> {
        Arc::new(Meeting {
            tallies: Mutex::new(vec![None; count as usize]),
            changed: Condvar::new(),
            first_is_done: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            key,
        })
    }

    pub fn share(self: &Arc<Meeting>, index: u32) -> Share {
        let place = Place { meeting: self.clone(), index: index as usize };
        let count = self.tallies.lock().unwrap().len() as u32;
        Share { index, count, key: self.key, barrier: Arc::new(place) }
    }

    /// Blocks until these shares wait.
    pub fn await_waiting(&self, indices: &[usize]) {
        let is_missing = |tallies: &mut Vec<Option<ShareTally>>| {
            indices.iter().any(|index| tallies[*index].is_none())
        };
        let tallies = self.tallies.lock().unwrap();
        let limit = Duration::from_secs(60);
        let (_tallies, late) = self.changed.wait_timeout_while(tallies, limit, is_missing).unwrap();
        assert!(!late.timed_out(), "the shares do not reach the barrier");
    }
}

impl ShareBarrier for Place {
    fn wait(&self, tally: &ShareTally, progress: &ProgressCounters) -> Option<ShareDecision> {
        let meeting = &self.meeting;
        let mut tallies = meeting.tallies.lock().unwrap();
        tallies[self.index] = Some(*tally);
        meeting.changed.notify_all();
        loop {
            if meeting.failed.load(Ordering::SeqCst) {
                progress.cancel();
            }
            if progress.is_cancelled() {
                return None;
            }
            if let Some(all) = tallies.iter().copied().collect::<Option<Vec<_>>>() {
                let decision = ShareTally::decide(&all);
                let is_turn = self.index == 0 || meeting.first_is_done.load(Ordering::SeqCst);
                if is_turn || !decision.complete {
                    return Some(decision);
                }
            }
            let step = Duration::from_millis(2);
            tallies = meeting.changed.wait_timeout(tallies, step).unwrap().0;
        }
    }
}

/// The result of one share.
#[derive(Debug)]
pub struct ShareEnd {
    pub outcome: Result<StageReport, StageError>,
    pub progress: StageProgress,
}

/// Runs one share until it ends. It is interrupted, as by a restart of its process, when it has
/// copied these numbers of bytes since its last start.
pub fn run_share(
    meeting: &Arc<Meeting>,
    index: u32,
    request: &StageRequest,
    options: &StageOptions,
    interruptions: &[u64],
) -> ShareEnd {
    let mut options = options.clone();
    options.share = Some(meeting.share(index));
    let of_share = |journal: PathBuf| journal.join(index.to_string());
    if let Some(journal) = options.journal.take() {
        std::fs::create_dir_all(&journal).unwrap();
        options.journal = Some(of_share(journal));
    }
    let mut interruptions = interruptions.iter();
    let end = loop {
        let progress = ProgressCounters::new();
        let limit = interruptions.next();
        let ended = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            if let Some(limit) = limit {
                scope.spawn(|| {
                    while !ended.load(Ordering::SeqCst) && progress.snapshot().bytes < *limit {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                    progress.suspend();
                });
            }
            let outcome = run_stage(request, &options, &progress);
            ended.store(true, Ordering::SeqCst);
            outcome
        });
        if limit.is_some() && outcome == Err(StageError::Cancelled) {
            continue;
        }
        break ShareEnd { outcome, progress: progress.snapshot() };
    };
    let undecided = meeting.tallies.lock().unwrap().iter().any(Option::is_none);
    if end.outcome.is_err() && (undecided || index == 0) {
        meeting.failed.store(true, Ordering::SeqCst);
    }
    if index == 0 && end.outcome.is_ok() {
        meeting.first_is_done.store(true, Ordering::SeqCst);
    }
    end
}

/// Runs all shares at once; each gets its own request, for instance with a connection of its own.
pub fn run_shares(
    meeting: &Arc<Meeting>,
    requests: &[StageRequest],
    options: &StageOptions,
    interruptions: &[Vec<u64>],
) -> Vec<ShareEnd> {
    std::thread::scope(|scope| {
        let start = |(index, request): (usize, _)| {
            let interruptions = interruptions.get(index).cloned().unwrap_or_default();
            scope.spawn(move || run_share(meeting, index as u32, request, options, &interruptions))
        };
        let threads: Vec<_> = requests.iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
