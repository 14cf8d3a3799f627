//! The movers of a storage node: each stage in progress is a thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use forebay_control::messages::{ShareDecision, SharePlan, StageId, StagePlan};
use forebay_control::storage_node::{MoverOutcome, StorageInput};
use forebay_job_script::Direction;
use forebay_protocol::progress::StagePhase;
use forebay_stage::{ProgressCounters, Share, StageOptions};

use super::mover_barrier::MoverBarrier;
use super::run_stage::{AttachedInstances, run_stage, share_of, verify_mode};
use crate::activity::StageTotals;
use crate::worker::work_and_report;

struct Mover {
    attempt: u32,
    direction: Direction,
    progress: Arc<ProgressCounters>,
    barrier: Arc<MoverBarrier>,
    /// Whether the stage counts as one of this node: of several movers, the first counts it.
    counts: bool,
    thread: JoinHandle<()>,
}

/// The end of a mover.
pub(super) struct MoverEnd {
    pub stage: StageId,
    pub attempt: u32,
    pub outcome: MoverOutcome,
}

/// The movers of one process.
pub(super) struct Movers {
    journals: PathBuf,
    running: BTreeMap<StageId, Mover>,
    /// Totals of those that have ended, in and out.
    ended: (StageTotals, StageTotals),
}

impl Movers {
    /// Movers whose journals are in this directory.
    pub fn new(journals: PathBuf) -> Movers {
        Movers { journals, running: BTreeMap::new(), ended: Default::default() }
    }

    /// Whether none is running.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Starts the mover of a stage into or out of an attached instance. Its end comes through
    /// `report`, which is called on the mover's thread.
    pub fn start(
        &mut self,
        plan: StagePlan,
        attached: AttachedInstances,
        barrier: Arc<MoverBarrier>,
        report: impl Fn(MoverEnd) + Send + 'static,
    ) -> Result<(), String> {
        let counters = Arc::new(ProgressCounters::new());
        let (stage, attempt) = (plan.stage, plan.attempt);
        let direction = plan.directive.direction;
        let counts = plan.share.is_none_or(|share| share.index == 0);
        let (journal, progress) = (self.journal(stage), counters.clone());
        let share = share_of(&plan, barrier.clone());
        let run = move || {
            let work = || run_logged(&plan, attached, journal, share, &progress);
            let panicked = || MoverOutcome::Failed("the mover panicked; see the log".into());
            work_and_report(work, panicked, |outcome| {
                report(MoverEnd { stage, attempt, outcome });
            });
        };
        let thread = std::thread::Builder::new().name(format!("forebay-stage-{}", stage.0));
        let thread = thread.spawn(run).map_err(|e| format!("cannot start a thread: {e}"))?;
        let mover = Mover { attempt, direction, progress: counters, barrier, counts, thread };
        let before = self.running.insert(stage, mover);
        assert!(before.is_none(), "stage {} has two movers", stage.0);
        Ok(())
    }

    fn journal(&self, stage: StageId) -> PathBuf {
        self.journals.join(format!("s{}", stage.0))
    }

    /// Asks a mover to stop.
    pub fn cancel(&self, stage: StageId) {
        if let Some(mover) = self.running.get(&stage) {
            mover.progress.cancel();
        }
    }

    /// Lets a mover continue that has copied its share of a stage.
    pub fn release(&self, stage: StageId, attempt: u32, decision: ShareDecision) {
        let mover = self.running.get(&stage);
        if let Some(mover) = mover.filter(|mover| mover.attempt == attempt) {
            mover.barrier.release(decision);
        }
    }

    /// A mover has reported its end.
    pub fn ended(&mut self, stage: StageId, attempt: u32, outcome: &MoverOutcome) {
        let Some(mover) = self.running.remove(&stage) else {
            return;
        };
        assert_eq!(mover.attempt, attempt, "a stage has one mover at a time");
        let totals = totals_of(&mut self.ended, mover.direction);
        add_progress(totals, &mover);
        match outcome {
            MoverOutcome::Completed(_) => totals.done += u64::from(mover.counts),
            MoverOutcome::Failed(_) | MoverOutcome::Stopped => {
                totals.failed += u64::from(mover.counts);
            }
        }
        let _ = mover.thread.join();
    }

    /// Totals of all stages, in and out.
    pub fn totals(&self) -> (StageTotals, StageTotals) {
        let mut totals = self.ended;
        for mover in self.running.values() {
            let totals = totals_of(&mut totals, mover.direction);
            totals.running += u64::from(mover.counts);
            add_progress(totals, mover);
        }
        totals
    }

    /// Removes the journal of a stage that is done: a later stage with its number would find it.
    pub fn remove_journal(&self, stage: StageId) {
        let _ = std::fs::remove_file(self.journal(stage));
    }

    /// Removes the journals of stages that are not to be resumed, such as those of torn down jobs.
    pub fn sweep_journals(&self, may_resume: impl Fn(StageId) -> bool) {
        for entry in std::fs::read_dir(&self.journals).into_iter().flatten() {
            let Ok(entry) = entry else { continue };
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix('s'));
            let stage = number.and_then(|number| number.parse().ok()).map(StageId);
            // Other names are journals that were not complete when their process ended.
            if !stage.is_some_and(&may_resume) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// The progress of all movers.
    pub fn progress(&self) -> Vec<StorageInput> {
        self.running.keys().filter_map(|stage| self.progress_of(*stage)).collect()
    }

    /// The progress of a mover.
    pub fn progress_of(&self, stage: StageId) -> Option<StorageInput> {
        let mover = self.running.get(&stage)?;
        let progress = mover.progress.snapshot();
        Some(StorageInput::MoverProgress(stage, mover.attempt, progress))
    }

    /// Stops all movers and waits for them. The next process continues their stages.
    pub fn suspend_all(&mut self) {
        for mover in self.running.values() {
            mover.progress.suspend();
        }
        for (_, mover) in std::mem::take(&mut self.running) {
            let _ = mover.thread.join();
        }
    }
}

fn totals_of(totals: &mut (StageTotals, StageTotals), direction: Direction) -> &mut StageTotals {
    match direction {
        Direction::In => &mut totals.0,
        Direction::Out => &mut totals.1,
    }
}

fn add_progress(totals: &mut StageTotals, mover: &Mover) {
    let progress = mover.progress.snapshot();
    totals.files += progress.files;
    totals.bytes += progress.bytes;
    totals.read_back += progress.read_back.bytes;
    totals.times = totals.times.plus(&progress.times);
}

/// Runs a stage and logs its start and end.
fn run_logged(
    plan: &StagePlan,
    attached: AttachedInstances,
    journal: PathBuf,
    share: Option<Share>,
    progress: &ProgressCounters,
) -> MoverOutcome {
    let direction = plan.directive.direction.name();
    let (instance, line) = (plan.instance.0, plan.directive.line);
    let stage = plan.stage.0;
    let span = tracing::error_span!("stage", stage, instance, direction, line);
    let _entered = span.entered();
    match plan.share {
        None => tracing::info!(attempt = plan.attempt, "stage started"),
        Some(SharePlan { index, count, .. }) => {
            tracing::info!(attempt = plan.attempt, share = index, of = count, "stage started");
        }
    }
    let options = StageOptions {
        journal: Some(journal),
        verify: verify_mode(plan),
        share,
        ..StageOptions::default()
    };
    let outcome = run_stage(plan, attached, None, &options, progress);
    match &outcome {
        MoverOutcome::Completed(moved) => {
            let seconds = |phase| moved.times.of(phase).as_secs_f64();
            tracing::info!(
                files = moved.files,
                bytes = moved.bytes,
                read_back = moved.read_back.bytes,
                copying = seconds(StagePhase::Copying),
                syncing = seconds(StagePhase::Syncing),
                reading_back = seconds(StagePhase::ReadingBack),
                finishing = seconds(StagePhase::Finishing),
                "stage completed"
            );
        }
        MoverOutcome::Stopped => tracing::info!("stage cancelled"),
        MoverOutcome::Failed(failure) => tracing::warn!(failure.reason, "stage failed"),
    }
    outcome
}
