//! Stages on a storage node: each attempt is started once, ends once, and is remembered.

use super::fragments::LocalFragmentState;
use super::{
    LocalStageState, MAX_ENDED_STAGES, MoverOutcome, RunningMover, StageRow, StorageEffect,
    StorageNode,
};
use crate::messages::{
    ShareOrder, ShareTally, StageFailure, StageId, StagePlan, StageProgress, StorageReport,
};

impl StorageNode {
    /// Whether a stage may still be resumed, so that its journal is of use.
    pub fn may_resume_stage(&self, stage: StageId) -> bool {
        let row = self.stages.get(stage);
        row.is_some_and(|row| {
            matches!(row.state, LocalStageState::Running | LocalStageState::Failed(_))
        })
    }

    pub(super) fn resume_stages(&mut self) {
        for id in self.stages.keys() {
            let Some(row) = self.stages.get(id) else {
                continue;
            };
            match (&row.state, row.plan.clone()) {
                (LocalStageState::Running, Some(plan)) => self.start_mover(plan),
                // Its mover died with the process.
                (LocalStageState::Cancelling, _) => {
                    self.set_stage_state(id, LocalStageState::Cancelled);
                }
                (LocalStageState::Running, None)
                | (
                    LocalStageState::Done(_)
                    | LocalStageState::Failed(_)
                    | LocalStageState::Cancelled,
                    _,
                ) => {}
            }
        }
    }

    pub(super) fn start_stage(&mut self, plan: StagePlan) {
        let (stage, attempt) = (plan.stage, plan.attempt);
        let known = self.stages.get(stage).map(|row| {
            let last = row.plan.as_ref().map_or(u32::MAX, |plan| plan.attempt);
            let is_same = row.plan.as_ref().is_some_and(|row| row.share == plan.share);
            (last, row.state.clone(), last >= attempt && is_same)
        });
        if let Some((last, state, is_same)) = known {
            match state {
                // The controller was restored from a backup and has decided otherwise.
                LocalStageState::Running if !is_same && self.movers.contains_key(&stage) => {
                    return self.effects.push(StorageEffect::StopMover(stage, last));
                }
                LocalStageState::Cancelled => {
                    return self.report(StorageReport::StageCancelled(stage));
                }
                LocalStageState::Running | LocalStageState::Cancelling => {
                    return self.report_mover(stage);
                }
                LocalStageState::Done(_) | LocalStageState::Failed(_) if last > attempt => return,
                LocalStageState::Done(progress) if last == attempt => {
                    return self.report(StorageReport::StageDone(stage, attempt, progress));
                }
                LocalStageState::Failed(failure) if last == attempt => {
                    return self.report(StorageReport::StageFailed(stage, attempt, failure));
                }
                LocalStageState::Done(_) | LocalStageState::Failed(_) => {}
            }
        }
        if !self.has_ready_fragment_of(plan.instance) {
            let failure = StageFailure::from("no fragment of the instance is on this node");
            return self.report(StorageReport::StageFailed(stage, attempt, failure));
        }
        let row = StageRow { plan: Some(plan.clone()), state: LocalStageState::Running };
        self.stages.insert(stage, row);
        self.forget_old_stages();
        self.start_mover(plan);
    }

    fn start_mover(&mut self, plan: StagePlan) {
        let (attempt, progress) = (plan.attempt, StageProgress::default());
        let new = RunningMover { attempt, progress, tally: None };
        let old = self.movers.insert(plan.stage, new);
        assert!(old.is_none(), "a stage has two movers");
        self.effects.push(StorageEffect::StartMover(plan));
    }

    /// Reports how far a mover is.
    fn report_mover(&mut self, stage: StageId) {
        let Some(RunningMover { attempt, progress, tally }) = self.movers.get(&stage).copied()
        else {
            return;
        };
        self.report(match tally {
            Some(tally) => StorageReport::ShareCopied(stage, attempt, progress, tally),
            None => StorageReport::StageProgress(stage, attempt, progress),
        });
    }

    pub(super) fn share_copied(&mut self, stage: StageId, attempt: u32, tally: ShareTally) {
        if let Some(mover) = self.movers.get_mut(&stage)
            && mover.attempt == attempt
        {
            mover.tally = Some(tally);
            self.report_mover(stage);
        }
    }

    /// Has a mover finish its share of a stage, or stop.
    pub(super) fn end_share(&mut self, order: ShareOrder) {
        let ShareOrder { stage, attempt, tally, decision } = order;
        let row = self.stages.get(stage).cloned();
        let known = row.as_ref().map(|row| row.plan.as_ref().map_or(u32::MAX, |plan| plan.attempt));
        if known.is_none_or(|known| known < attempt) {
            // Its mover was never started here, or this is another disk.
            let failure = StageFailure::from(StageFailure::STOPPED);
            if let Some(row) = self.stages.get_mut(stage)
                && let Some(plan) = &mut row.plan
            {
                // A late command does not start it.
                plan.attempt = attempt;
                row.state = LocalStageState::Failed(failure.clone());
            }
            return self.report(StorageReport::StageFailed(stage, attempt, failure));
        }
        let Some(row) = row.filter(|row| known == Some(attempt) || row.plan.is_none()) else {
            return;
        };
        match row.state {
            LocalStageState::Done(progress) => {
                self.report(StorageReport::StageDone(stage, attempt, progress));
            }
            LocalStageState::Failed(failure) => {
                self.report(StorageReport::StageFailed(stage, attempt, failure));
            }
            LocalStageState::Cancelled => self.report(StorageReport::StageCancelled(stage)),
            LocalStageState::Cancelling => {}
            LocalStageState::Running => {
                let copied = self.movers.get(&stage).and_then(|mover| mover.tally);
                match decision {
                    None => self.effects.push(StorageEffect::StopMover(stage, attempt)),
                    Some(decision) if copied == Some(tally) => {
                        self.effects.push(StorageEffect::ReleaseMover(stage, attempt, decision));
                    }
                    // It was started again, and may have seen another source.
                    Some(_) => self.report_mover(stage),
                }
            }
        }
    }

    fn set_stage_state(&mut self, stage: StageId, state: LocalStageState) {
        if let Some(row) = self.stages.get_mut(stage) {
            row.state = state;
        }
    }

    fn forget_old_stages(&mut self) {
        if self.stages.len() <= MAX_ENDED_STAGES {
            return;
        }
        let is_over = |row: &StageRow| {
            let plan = row.plan.as_ref();
            !matches!(row.state, LocalStageState::Running | LocalStageState::Cancelling)
                && plan.is_none_or(|plan| !self.has_fragment_of(plan.instance))
        };
        let oldest = self.stages.iter().find(|(_, row)| is_over(row));
        if let Some(id) = oldest.map(|(id, _)| id) {
            self.stages.remove(id);
        }
    }

    pub(super) fn cancel_stage(&mut self, stage: StageId) {
        let mover = self.movers.get(&stage).copied();
        let Some(row) = self.stages.get(stage) else {
            let row = StageRow { plan: None, state: LocalStageState::Cancelled };
            self.stages.insert(stage, row);
            self.forget_old_stages();
            return self.report(StorageReport::StageCancelled(stage));
        };
        let attempt = row.plan.as_ref().map_or(0, |plan| plan.attempt);
        match (row.state.clone(), mover.map(|mover| mover.attempt)) {
            (LocalStageState::Done(progress), _) => {
                self.report(StorageReport::StageDone(stage, attempt, progress));
            }
            (LocalStageState::Running | LocalStageState::Cancelling, Some(attempt)) => {
                self.set_stage_state(stage, LocalStageState::Cancelling);
                self.effects.push(StorageEffect::StopMover(stage, attempt));
            }
            (LocalStageState::Running | LocalStageState::Cancelling, None)
            | (LocalStageState::Failed(_) | LocalStageState::Cancelled, _) => {
                self.set_stage_state(stage, LocalStageState::Cancelled);
                self.report(StorageReport::StageCancelled(stage));
            }
        }
    }

    pub(super) fn mover_progress(&mut self, stage: StageId, attempt: u32, now: StageProgress) {
        if let Some(mover) = self.movers.get_mut(&stage)
            && mover.attempt == attempt
        {
            mover.progress = now;
            self.report(StorageReport::StageProgress(stage, attempt, now));
        }
    }

    pub(super) fn mover_ended(&mut self, stage: StageId, attempt: u32, outcome: MoverOutcome) {
        let current = self.movers.get(&stage).map(|mover| mover.attempt);
        if current != Some(attempt) {
            return;
        }
        self.movers.remove(&stage);
        let Some(row) = self.stages.get_mut(stage) else {
            return;
        };
        let cancelling = row.state == LocalStageState::Cancelling;
        let (state, report) = match outcome {
            MoverOutcome::Completed(progress) => (
                LocalStageState::Done(progress),
                StorageReport::StageDone(stage, attempt, progress),
            ),
            MoverOutcome::Stopped | MoverOutcome::Failed(_) if cancelling => {
                (LocalStageState::Cancelled, StorageReport::StageCancelled(stage))
            }
            MoverOutcome::Failed(failure) => (
                LocalStageState::Failed(failure.clone()),
                StorageReport::StageFailed(stage, attempt, failure),
            ),
            MoverOutcome::Stopped => {
                let failure = StageFailure::from(StageFailure::STOPPED);
                (
                    LocalStageState::Failed(failure.clone()),
                    StorageReport::StageFailed(stage, attempt, failure),
                )
            }
        };
        row.state = state;
        let instance = row.plan.as_ref().map(|plan| plan.instance);
        self.report(report);
        // The removal of a fragment may have waited for this mover.
        let Some(instance) = instance else { return };
        let stages = self.stages_of(instance);
        if stages.iter().any(|stage| self.movers.contains_key(stage)) {
            return;
        }
        for (_, row) in self.fragments.iter() {
            if row.plan.instance == instance && row.state == LocalFragmentState::Removing {
                self.effects.push(StorageEffect::Destroy(row.plan.clone()));
            }
        }
    }
}
