//! Stages on a storage node: begun once, ended once, remembered.

use super::*;

impl Node {
    /// Whether a stage may still go on where it was interrupted.
    pub fn may_go_on(&self, stage: StageId) -> bool {
        let row = self.stages.get(stage.0);
        row.is_some_and(|row| matches!(row.state, StageState::Running | StageState::Failed(_)))
    }

    pub(super) fn start(&mut self, plan: StagePlan) {
        let (stage, attempt) = (plan.stage, plan.attempt);
        let known = self.stages.get(stage.0).map(|row| {
            (
                row.plan.as_ref().map_or(u32::MAX, |plan| plan.attempt),
                row.state.clone(),
            )
        });
        if let Some((last, state)) = known {
            match state {
                StageState::Cancelled => return self.report(News::StageCancelled(stage)),
                StageState::Running | StageState::Cancelling => {
                    if let Some((attempt, progress)) = self.copies.get(&stage).copied() {
                        self.report(News::StageProgress(stage, attempt, progress));
                    }
                    return;
                }
                StageState::Done(_) | StageState::Failed(_) if last > attempt => return,
                StageState::Done(progress) if last == attempt => {
                    return self.report(News::StageDone(stage, attempt, progress));
                }
                StageState::Failed(reason) if last == attempt => {
                    return self.report(News::StageFailed(stage, attempt, reason));
                }
                StageState::Done(_) | StageState::Failed(_) => {}
            }
        }
        if !self.usable(plan.instance) {
            let reason = "no fragment of the instance is on this node".to_owned();
            return self.report(News::StageFailed(stage, attempt, reason.into()));
        }
        self.stages.put(
            stage.0,
            StageRow {
                plan: Some(plan.clone()),
                state: StageState::Running,
            },
        );
        self.forget_old_stages();
        self.begin(plan);
    }

    pub(super) fn begin(&mut self, plan: StagePlan) {
        self.copies
            .insert(plan.stage, (plan.attempt, Progress::default()));
        self.effects.push(Effect::BeginCopy(plan));
    }

    fn forget_old_stages(&mut self) {
        if self.stages.len() > STAGES_KEPT {
            let over = |row: &StageRow| {
                !matches!(row.state, StageState::Running | StageState::Cancelling)
                    && row
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

    pub(super) fn cancel(&mut self, stage: StageId) {
        let copy = self.copies.get(&stage).copied();
        let Some(row) = self.stages.get(stage.0) else {
            self.stages.put(
                stage.0,
                StageRow {
                    plan: None,
                    state: StageState::Cancelled,
                },
            );
            self.forget_old_stages();
            return self.report(News::StageCancelled(stage));
        };
        let attempt = row.plan.as_ref().map_or(0, |plan| plan.attempt);
        match (row.state.clone(), copy) {
            (StageState::Done(progress), _) => {
                self.report(News::StageDone(stage, attempt, progress));
            }
            (StageState::Running | StageState::Cancelling, Some((attempt, _))) => {
                if let Some(row) = self.stages.get_mut(stage.0) {
                    row.state = StageState::Cancelling;
                }
                self.effects.push(Effect::StopCopy(stage, attempt));
            }
            _ => {
                if let Some(row) = self.stages.get_mut(stage.0) {
                    row.state = StageState::Cancelled;
                }
                self.report(News::StageCancelled(stage));
            }
        }
    }

    pub(super) fn copied(&mut self, stage: StageId, attempt: u32, outcome: Copied) {
        if self
            .copies
            .get(&stage)
            .is_none_or(|(current, _)| *current != attempt)
        {
            return;
        }
        self.copies.remove(&stage);
        let Some(row) = self.stages.get_mut(stage.0) else {
            return;
        };
        let cancelling = row.state == StageState::Cancelling;
        let (state, news) = match outcome {
            Copied::Whole(progress) => (
                StageState::Done(progress),
                News::StageDone(stage, attempt, progress),
            ),
            Copied::Stopped | Copied::Failed(_) if cancelling => {
                (StageState::Cancelled, News::StageCancelled(stage))
            }
            Copied::Failed(reason) => (
                StageState::Failed(reason.clone()),
                News::StageFailed(stage, attempt, reason),
            ),
            Copied::Stopped => {
                let reason = Trouble::from("the copy was stopped");
                (
                    StageState::Failed(reason.clone()),
                    News::StageFailed(stage, attempt, reason),
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
            .any(|stage| self.copies.contains_key(stage));
        if !waits {
            for (_, row) in self.fragments.iter() {
                if row.plan.instance == instance && row.state == FragmentState::Removing {
                    self.effects.push(Effect::Destroy(row.plan.clone()));
                }
            }
        }
    }
}
