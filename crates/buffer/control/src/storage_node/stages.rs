//! Stages on a storage node: begun once, ended once, remembered.

use super::*;

impl StorageNode {
    /// Whether a stage may still go on where it was interrupted.
    pub fn may_resume_stage(&self, stage: StageId) -> bool {
        let row = self.stages.get(stage.0);
        row.is_some_and(|row| {
            matches!(
                row.state,
                LocalStageState::Running | LocalStageState::Failed(_)
            )
        })
    }

    pub(super) fn start_stage(&mut self, plan: StagePlan) {
        let (stage, attempt) = (plan.stage, plan.attempt);
        let known = self.stages.get(stage.0).map(|row| {
            (
                row.plan.as_ref().map_or(u32::MAX, |plan| plan.attempt),
                row.state.clone(),
            )
        });
        if let Some((last, state)) = known {
            match state {
                LocalStageState::Cancelled => {
                    return self.report(ReportBody::StageCancelled(stage));
                }
                LocalStageState::Running | LocalStageState::Cancelling => {
                    if let Some((attempt, progress)) = self.movers.get(&stage).copied() {
                        self.report(ReportBody::StageProgress(stage, attempt, progress));
                    }
                    return;
                }
                LocalStageState::Done(_) | LocalStageState::Failed(_) if last > attempt => return,
                LocalStageState::Done(progress) if last == attempt => {
                    return self.report(ReportBody::StageDone(stage, attempt, progress));
                }
                LocalStageState::Failed(reason) if last == attempt => {
                    return self.report(ReportBody::StageFailed(stage, attempt, reason));
                }
                LocalStageState::Done(_) | LocalStageState::Failed(_) => {}
            }
        }
        if !self.usable(plan.instance) {
            let reason = "no fragment of the instance is on this node".to_owned();
            return self.report(ReportBody::StageFailed(stage, attempt, reason.into()));
        }
        self.stages.insert(
            stage.0,
            StageRow {
                plan: Some(plan.clone()),
                state: LocalStageState::Running,
            },
        );
        self.forget_old_stages();
        self.start_mover(plan);
    }

    pub(super) fn start_mover(&mut self, plan: StagePlan) {
        self.movers
            .insert(plan.stage, (plan.attempt, StageProgress::default()));
        self.effects.push(StorageEffect::StartMover(plan));
    }

    fn forget_old_stages(&mut self) {
        if self.stages.len() > STAGES_KEPT {
            let over = |row: &StageRow| {
                !matches!(
                    row.state,
                    LocalStageState::Running | LocalStageState::Cancelling
                ) && row
                    .plan
                    .as_ref()
                    .is_none_or(|plan| !self.has(plan.instance))
            };
            let oldest = self
                .stages
                .iter()
                .find(|(_, row)| over(row))
                .map(|(key, _)| key);
            oldest.map(|key| self.stages.remove(key));
        }
    }

    pub(super) fn cancel_stage(&mut self, stage: StageId) {
        let copy = self.movers.get(&stage).copied();
        let Some(row) = self.stages.get(stage.0) else {
            self.stages.insert(
                stage.0,
                StageRow {
                    plan: None,
                    state: LocalStageState::Cancelled,
                },
            );
            self.forget_old_stages();
            return self.report(ReportBody::StageCancelled(stage));
        };
        let attempt = row.plan.as_ref().map_or(0, |plan| plan.attempt);
        match (row.state.clone(), copy) {
            (LocalStageState::Done(progress), _) => {
                self.report(ReportBody::StageDone(stage, attempt, progress));
            }
            (LocalStageState::Running | LocalStageState::Cancelling, Some((attempt, _))) => {
                if let Some(row) = self.stages.get_mut(stage.0) {
                    row.state = LocalStageState::Cancelling;
                }
                self.effects.push(StorageEffect::StopMover(stage, attempt));
            }
            _ => {
                if let Some(row) = self.stages.get_mut(stage.0) {
                    row.state = LocalStageState::Cancelled;
                }
                self.report(ReportBody::StageCancelled(stage));
            }
        }
    }

    pub(super) fn mover_ended(&mut self, stage: StageId, attempt: u32, outcome: MoverOutcome) {
        if self
            .movers
            .get(&stage)
            .is_none_or(|(current, _)| *current != attempt)
        {
            return;
        }
        self.movers.remove(&stage);
        let Some(row) = self.stages.get_mut(stage.0) else {
            return;
        };
        let cancelling = row.state == LocalStageState::Cancelling;
        let (state, news) = match outcome {
            MoverOutcome::Completed(progress) => (
                LocalStageState::Done(progress),
                ReportBody::StageDone(stage, attempt, progress),
            ),
            MoverOutcome::Stopped | MoverOutcome::Failed(_) if cancelling => (
                LocalStageState::Cancelled,
                ReportBody::StageCancelled(stage),
            ),
            MoverOutcome::Failed(reason) => (
                LocalStageState::Failed(reason.clone()),
                ReportBody::StageFailed(stage, attempt, reason),
            ),
            MoverOutcome::Stopped => {
                let reason = StageFailure::from("the copy was stopped");
                (
                    LocalStageState::Failed(reason.clone()),
                    ReportBody::StageFailed(stage, attempt, reason),
                )
            }
        };
        row.state = state;
        let instance = row.plan.as_ref().map(|plan| plan.instance);
        self.report(news);
        // A removal may have waited for this copy.
        let Some(instance) = instance else { return };
        let waits = self
            .stages_of(instance)
            .iter()
            .any(|stage| self.movers.contains_key(stage));
        if !waits {
            for (_, row) in self.fragments.iter() {
                if row.plan.instance == instance && row.state == LocalFragmentState::Removing {
                    self.effects.push(StorageEffect::Destroy(row.plan.clone()));
                }
            }
        }
    }
}
