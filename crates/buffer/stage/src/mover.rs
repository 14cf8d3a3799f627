//! Running a stage: one thread walks, others copy, and the end is common.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::bounded;
use forebay_protocol::progress::ShareDecision;

use crate::context::StageContext;
use crate::durability::Durability;
use crate::error::StageError;
use crate::finish::finish_stage;
use crate::journal::{CompleteShare, Journal};
use crate::progress::ProgressCounters;
use crate::request::{StageOptions, StageReport, StageRequest};
use crate::share::Share;
use crate::split::remove_split_files;
use crate::walk::{TaskSink, Walk};
use crate::worker::Worker;

/// Maximum number of tasks that the walk is ahead of the copying threads.
const MAX_QUEUED_TASKS: usize = 1 << 16;
/// Maximum number of copying threads.
const MAX_WORKERS: usize = 256;

/// Stages everything in `request`. Blocks until the stage is complete, has failed, or was cancelled
/// through `progress`.
pub fn run_stage(
    request: &StageRequest,
    options: &StageOptions,
    progress: &ProgressCounters,
) -> Result<StageReport, StageError> {
    let started = options.host.now();
    let share = options.share.as_ref();
    let attempt = share.map(|share| share.key);
    let open = |path| Journal::open(&options.host, path, &fingerprint(request), attempt);
    let journal = options.journal.as_deref().map(open).transpose();
    let journal = journal.map_err(StageError::Stopped)?;
    if journal.as_ref().is_some_and(Journal::is_complete) {
        progress.set_all_found();
        return Ok(StageReport {
            time: options.host.now().saturating_duration_since(started),
            ..StageReport::default()
        });
    }
    // Share 0 needs what it finds in the source to finish the stage.
    if let (Some(share), Some(journal)) = (share, &journal)
        && share.index > 0
        && let Some(complete) = journal.complete_share()
    {
        return await_finish(share, complete, journal, progress);
    }
    let durability = Durability::new(options, journal);
    let ctx = StageContext::new(options, progress, durability, started);
    let found = if options.workers == 0 {
        let worker = Worker::new(&ctx);
        Walk::new(&ctx, TaskSink::Inline(Box::new(worker))).run(request)
    } else {
        let (sender, receiver) = bounded(MAX_QUEUED_TASKS);
        std::thread::scope(|scope| {
            for _ in 0..options.workers.min(MAX_WORKERS) {
                scope.spawn(|| Worker::new(&ctx).run(&receiver));
            }
            // The end of the walk drops the sender, which ends the threads.
            Walk::new(&ctx, TaskSink::Threads(sender)).run(request)
        })
    };
    assert_eq!(ctx.pending_tasks.load(Ordering::Acquire), 0);
    if !ctx.is_stopped() {
        finish_stage(&ctx, request, &found);
    }
    let outcome = end_stage(&ctx, started);
    if let Some(share) = &ctx.share
        && outcome.is_err()
        && !progress.is_suspended()
    {
        remove_split_files(share.share.key, &share.split_files());
    }
    outcome
}

fn end_stage(ctx: &StageContext<'_>, started: Instant) -> Result<StageReport, StageError> {
    let time = ctx.end_phases().saturating_duration_since(started);
    ctx.outcome(time)
}

/// Waits for the other movers of a stage with a share whose copies are on stable storage.
fn await_finish(
    share: &Share,
    complete: &CompleteShare,
    journal: &Journal,
    progress: &ProgressCounters,
) -> Result<StageReport, StageError> {
    progress.copied.restore(complete.files, complete.bytes);
    progress.set_all_found();
    match share.barrier.wait(&complete.tally, progress) {
        None => Err(StageError::Cancelled),
        Some(ShareDecision { complete: false, .. }) => Err(StageError::OtherShare),
        Some(ShareDecision { complete: true, .. }) => {
            journal.record_completion().map_err(StageError::Stopped)?;
            Ok(StageReport::default())
        }
    }
}

/// Identifies a stage: equal requests have equal fingerprints.
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
