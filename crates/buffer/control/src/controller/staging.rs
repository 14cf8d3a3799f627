//! Stages: asked for, queued, put off, stopped.

use forebay_job_script::{Direction, InstanceRef, Stage};

use super::dispatch::Accepted;
use super::state::check_may_act;
use super::*;
use crate::messages::*;

impl Controller {
    /// The instance that a space means in a session; its own, or the only other one, if none is
    /// named.
    pub(super) fn stage_instance(
        &self,
        session: SessionId,
        space: Option<&InstanceRef>,
    ) -> Option<InstanceId> {
        let session = self.state.sessions.get(session.0)?;
        let claimed = self.instances_of(session);
        match space {
            Some(InstanceRef::Persistent(name)) => claimed.into_iter().find(|id| {
                self.state
                    .instances
                    .get(id.0)
                    .is_some_and(|i| &i.label == name)
            }),
            Some(InstanceRef::Job | InstanceRef::LoadBalanced) => session.instance,
            None => session.instance.or_else(|| claimed.first().copied()),
        }
    }

    /// How the paths of a session's stages name an instance.
    pub(super) fn space_of(&self, session: &Session, id: InstanceId) -> Option<InstanceRef> {
        let instance = self.state.instances.get(id.0)?;
        Some(match session.instance == Some(id) {
            true if instance.replicated => InstanceRef::LoadBalanced,
            true => InstanceRef::Job,
            false => InstanceRef::Persistent(instance.label.clone()),
        })
    }

    pub(super) fn add_stage(
        &mut self,
        session: SessionId,
        instance: InstanceId,
        what: Stage,
        state: StageState,
    ) -> StageId {
        let id = StageId(self.state.next_id());
        let attempt = u32::from(state == StageState::Queued);
        let row = StageRecord {
            session,
            instance,
            replica: None,
            directive: what,
            node: None,
            attempt,
            state,
            queued: self.now,
            moved: StageProgress::default(),
            failed_files: Vec::new(),
        };
        self.job_stages.insert(session, id, &row.directive);
        self.state.stages.insert(id.0, row);
        if let Some(session) = self.state.sessions.get_mut(session.0) {
            session.stages.push(id);
        }
        id
    }

    pub(super) fn begin_stage_in(
        &mut self,
        caller: Owner,
        token: &str,
    ) -> Result<Accepted, Failure> {
        let (_, session) = self.state.authorized_session(token, caller)?;
        let session = session.clone();
        self.check_usable(&session)?;
        if session.written && !self.all_done(&session, Direction::In) {
            let reason = format!(
                "`{token}` has run already: staging in again could overwrite what it wrote"
            );
            return Err(Failure::new(Cause::Busy, reason));
        }
        Ok(Accepted::Wait(Wait::Staged(
            self.queue(&session, Direction::In),
        )))
    }

    pub(super) fn begin_stage_out(
        &mut self,
        caller: Owner,
        token: &str,
    ) -> Result<Accepted, Failure> {
        let (_, session) = self.state.authorized_session(token, caller)?;
        let session = session.clone();
        self.check_usable(&session)?;
        if !session.activations.is_empty() {
            let reason = format!(
                "`{token}` is still mounted; unmount it first, so that all its data is here"
            );
            return Err(Failure::new(Cause::Busy, reason));
        }
        Ok(Accepted::Wait(Wait::Staged(
            self.queue(&session, Direction::Out),
        )))
    }

    fn all_done(&self, session: &Session, direction: Direction) -> bool {
        let stages = session
            .stages
            .iter()
            .filter_map(|id| self.state.stages.get(id.0));
        let mut of = stages.filter(|s| s.directive.direction == direction);
        of.all(|s| matches!(s.state, StageState::Done | StageState::Cancelled))
    }

    /// Queues the stages of a direction that are not done, and names all that are to be awaited.
    fn queue(&mut self, session: &Session, direction: Direction) -> Vec<StageId> {
        let mut all = Vec::new();
        for id in &session.stages {
            let Some(stage) = self.state.stages.get(id.0) else {
                continue;
            };
            if stage.directive.direction != direction || stage.state == StageState::Cancelled {
                continue;
            }
            all.push(*id);
            if matches!(stage.state, StageState::Waiting | StageState::Failed(_))
                && let Some(stage) = self.state.stages.get_mut(id.0)
            {
                stage.state = StageState::Queued;
                stage.attempt += 1;
                stage.queued = self.now;
            }
        }
        all
    }

    /// Takes a stage that a running job asks for: to be moved now, or, if `Waiting`, at its end.
    pub(super) fn accept_stage(
        &mut self,
        caller: Owner,
        token: &str,
        what: Stage,
        state: StageState,
    ) -> Result<Accepted, Failure> {
        let (id, session) = self.state.authorized_session(token, caller)?;
        self.check_usable(session)?;
        self.check_pfs_paths(&what)?;
        if session.lifetime == Lifetime::Persistent {
            self.forget_ended_stages(id);
        }
        let (_, session) = self.state.authorized_session(token, caller)?;
        if session.stages.len() >= self.settings.max_stages {
            let reason = format!(
                "`{token}` has {} stages, the most there can be",
                session.stages.len()
            );
            return Err(Failure::new(Cause::Full, reason));
        }
        let instance = self.stage_instance(id, what.instance()).ok_or_else(|| {
            Failure::new(
                Cause::NotFound,
                format!("`{token}` has no such instance to stage"),
            )
        })?;
        let row = self.state.instances.get(instance.0);
        if row.is_some_and(|row| row.replicated) {
            let reason = format!(
                "the instance of `{token}` is load-balanced: only `stage_in` lines of its job fill it, \
                 before the job runs"
            );
            return Err(Failure::new(Cause::Invalid, reason));
        }
        if let Some(reason) = self.conflicting_stage(id, &what) {
            return Err(Failure::new(Cause::Busy, reason));
        }
        Ok(Accepted::Answer(Answer::Stage(
            self.add_stage(id, instance, what, state),
        )))
    }

    /// Drops the oldest stages of a persistent instance that are over, so that it can be staged from
    /// and to for ever. Those of a job stay: its processes may ask for them until it ends.
    fn forget_ended_stages(&mut self, id: SessionId) {
        let Some(session) = self.state.sessions.get(id.0) else {
            return;
        };
        let over = |stage: &&StageId| {
            let stage = self.state.stages.get(stage.0);
            stage.is_none_or(|s| !s.in_progress() && s.state != StageState::Waiting)
        };
        let many = (session.stages.len() + 1).saturating_sub(self.settings.max_kept_stages);
        let old: Vec<StageId> = session
            .stages
            .iter()
            .filter(over)
            .take(many)
            .copied()
            .collect();
        if old.is_empty() {
            return;
        }
        for stage in &old {
            self.state.stages.remove(stage.0);
            self.progress.remove(stage);
            self.last_sent
                .remove(&commands::CommandTarget::Stage(*stage));
        }
        self.job_stages.remove_stages(&old);
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.stages.retain(|stage| !old.contains(stage));
        }
    }

    /// Begins a stage that waits for the end of its job.
    pub(super) fn release_stage(&mut self, id: StageId) -> Result<Accepted, Failure> {
        match self.state.stages.get_mut(id.0) {
            Some(stage) if stage.state == StageState::Waiting => {
                stage.state = StageState::Queued;
                stage.attempt += 1;
                stage.queued = self.now;
                Ok(Accepted::Answer(Answer::Stage(id)))
            }
            _ => {
                let reason = format!("stage {} is not deferred", id.0);
                Err(Failure::new(Cause::Invalid, reason))
            }
        }
    }

    pub(super) fn limit_stages(
        &mut self,
        caller: Owner,
        token: &str,
        space: &InstanceRef,
        most: u32,
    ) -> Result<Accepted, Failure> {
        let (id, _) = self.state.authorized_session(token, caller)?;
        if most == 0 {
            let reason = "at least one stage must be moved at a time";
            return Err(Failure::new(Cause::Invalid, reason));
        }
        let instance = self.stage_instance(id, Some(space)).ok_or_else(|| {
            let reason = format!("`{token}` has no such instance");
            Failure::new(Cause::NotFound, reason)
        })?;
        // Of this session alone: others that use a persistent instance have limits of their own.
        if let Some(session) = self.state.sessions.get_mut(id.0) {
            session.stages_at_once.retain(|(of, _)| *of != instance);
            session.stages_at_once.push((instance, most));
        }
        Ok(Accepted::Answer(Answer::Done))
    }

    pub(super) fn check_stage_owner(&self, caller: Owner, stage: StageId) -> Result<(), Failure> {
        let owner = self
            .state
            .stages
            .get(stage.0)
            .and_then(|s| self.state.sessions.get(s.session.0))
            .map(|session| session.owner)
            .ok_or_else(|| {
                Failure::new(Cause::NotFound, format!("there is no stage {}", stage.0))
            })?;
        check_may_act(caller, owner, &format!("stage {}", stage.0))
    }

    pub(super) fn cancel_stage(&mut self, id: StageId) {
        let Some(stage) = self.state.stages.get(id.0) else {
            return;
        };
        let next = match (&stage.state, stage.node) {
            (StageState::Waiting | StageState::Failed(_), _) => StageState::Cancelled,
            // A queued stage may have been with a node in an earlier attempt; no matter, that ended.
            (StageState::Queued, _) => StageState::Cancelled,
            (StageState::Running, _) => StageState::Cancelling,
            (StageState::Cancelling | StageState::Done | StageState::Cancelled, _) => return,
        };
        if let Some(stage) = self.state.stages.get_mut(id.0) {
            stage.state = next;
        }
    }
}
