//! Requests for staging: stages are added, queued, deferred, limited and stopped.

use forebay_job_script::{Direction, InstanceRef, Stage};

use super::dispatch::Accepted;
use super::limits::stage_bytes;
use super::machine::Controller;
use super::objects::{Session, StageRecord, StageState, Wait};
use super::request::{Answer, Cause, Failure, Lifetime, refuse};
use super::session_table::check_may_act;
use crate::messages::{InstanceId, Owner, SessionId, StageId};

impl Controller {
    /// The instance that a directive names within a session. Without a name it is the session's
    /// own, or the only other one.
    pub(super) fn stage_instance(
        &self,
        session: SessionId,
        named: Option<&InstanceRef>,
    ) -> Option<InstanceId> {
        let session = self.state.sessions.get(session)?;
        let used = self.instances_of(session);
        match named {
            Some(InstanceRef::Persistent(name)) => used.into_iter().find(|id| {
                let instance = self.state.storage.instance(*id);
                instance.is_some_and(|instance| &instance.label == name)
            }),
            Some(InstanceRef::Job | InstanceRef::LoadBalanced) => session.instance,
            None => session.instance.or_else(|| used.first().copied()),
        }
    }

    /// Reference by which the directives of a session name an instance.
    pub(super) fn instance_ref_of(&self, session: &Session, id: InstanceId) -> Option<InstanceRef> {
        let instance = self.state.storage.instance(id)?;
        Some(match session.instance == Some(id) {
            true if instance.replicated => InstanceRef::LoadBalanced,
            true => InstanceRef::Job,
            false => InstanceRef::Persistent(instance.label.clone()),
        })
    }

    /// Adds a stage that waits until it is queued.
    pub(super) fn add_stage(
        &mut self,
        session: SessionId,
        instance: InstanceId,
        directive: Stage,
    ) -> StageId {
        let id = StageId(self.state.next_id());
        self.state.sessions.note_stage(session, &directive);
        let stage = StageRecord::waiting(session, instance, directive, self.now);
        self.state.stages.insert(id, stage);
        if let Some(session) = self.state.sessions.get_mut(session) {
            session.stages.push(id);
        }
        id
    }

    pub(super) fn begin_stage_in(
        &mut self,
        caller: Owner,
        token: &str,
    ) -> Result<Accepted, Failure> {
        let (_, session) = self.usable_session(token, caller)?;
        if session.written && !self.is_settled(&session, Direction::In) {
            refuse!(Busy, "`{token}` has already run: a stage-in could overwrite what it wrote");
        }
        Ok(self.queue_stages(&session, Direction::In))
    }

    pub(super) fn begin_stage_out(
        &mut self,
        caller: Owner,
        token: &str,
    ) -> Result<Accepted, Failure> {
        let (_, session) = self.usable_session(token, caller)?;
        if !session.activations.is_empty() {
            refuse!(
                Busy,
                "`{token}` is still mounted; unmount it first, so that no data is missing"
            );
        }
        Ok(self.queue_stages(&session, Direction::Out))
    }

    /// Whether no stage of a direction is left to move.
    fn is_settled(&self, session: &Session, direction: Direction) -> bool {
        let stages = session.stages.iter();
        let stages = stages.filter_map(|id| self.state.stages.get(*id));
        let mut stages = stages.filter(|stage| stage.directive.direction == direction);
        stages.all(|stage| stage.state.is_settled())
    }

    /// Queues the stages of a direction that have not started or have failed, and waits for all.
    fn queue_stages(&mut self, session: &Session, direction: Direction) -> Accepted {
        let mut awaited = Vec::new();
        for id in &session.stages {
            let Some(stage) = self.state.stages.get(*id) else {
                continue;
            };
            if stage.directive.direction != direction || stage.state == StageState::Cancelled {
                continue;
            }
            awaited.push(*id);
            if matches!(stage.state, StageState::Waiting | StageState::Failed(_)) {
                self.state.stages.queue(*id, self.now);
            }
        }
        Accepted::Wait(Wait::Staged(awaited))
    }

    /// Accepts a stage that a running job requests: to start now, or at the end of the job.
    pub(super) fn accept_stage(
        &mut self,
        caller: Owner,
        token: &str,
        directive: Stage,
        deferred: bool,
    ) -> Result<Accepted, Failure> {
        let (id, session) = self.state.sessions.authorized(token, caller)?;
        self.check_usable(session)?;
        self.check_pfs_paths(&directive)?;
        if session.lifetime == Lifetime::Persistent {
            self.forget_ended_stages(id);
        }
        let stages = self.state.sessions.get(id).map_or(0, |s| s.stages.len());
        if stages >= self.settings.max_stages {
            refuse!(Full, "limit reached: `{token}` has {stages} stages");
        }
        let owner = self.state.sessions.get(id).map_or(caller, |session| session.owner);
        self.check_text_limits(owner, stage_bytes(&directive))?;
        let instance = self.stage_instance(id, directive.instance());
        let instance = instance.ok_or_else(|| {
            let reason = format!("`{token}` has no such instance to stage");
            Failure::new(Cause::NotFound, reason)
        })?;
        if self.is_replicated(instance) {
            refuse!(
                Invalid,
                "the instance of `{token}` is load-balanced: it is filled by the `stage_in` lines \
                 of its job only, before the job runs"
            );
        }
        if let Some(reason) = self.conflicting_stage(id, &directive) {
            return Err(Failure::new(Cause::Busy, reason));
        }
        if let Some(failed) = self.failed_predecessor(id, &directive) {
            self.state.stages.cancel(failed);
        }
        let stage = self.add_stage(id, instance, directive);
        if !deferred {
            self.state.stages.queue(stage, self.now);
        }
        Ok(Accepted::Answer(Answer::Stage(stage)))
    }

    /// Forgets the oldest ended stages of a persistent instance, so that it can be used for staging
    /// indefinitely. Those of a job are kept: its processes may query them until it ends.
    fn forget_ended_stages(&mut self, id: SessionId) {
        let Some(session) = self.state.sessions.get(id) else {
            return;
        };
        let has_ended = |stage: &&StageId| {
            let stage = self.state.stages.get(**stage);
            stage.is_none_or(|stage| {
                !stage.state.is_in_progress() && stage.state != StageState::Waiting
            })
        };
        let excess = (session.stages.len() + 1).saturating_sub(self.settings.max_kept_stages);
        let ended = session.stages.iter().filter(has_ended);
        let old: Vec<StageId> = ended.take(excess).copied().collect();
        if old.is_empty() {
            return;
        }
        for stage in &old {
            if let Some(stage) = self.state.stages.get(*stage) {
                self.state.sessions.forget_stage(id, &stage.directive);
            }
        }
        self.state.stages.remove(&old);
        if let Some(session) = self.state.sessions.get_mut(id) {
            session.stages.retain(|stage| !old.contains(stage));
        }
    }

    /// Starts a deferred stage.
    pub(super) fn release_stage(
        &mut self,
        caller: Owner,
        id: StageId,
    ) -> Result<Accepted, Failure> {
        self.check_stage_owner(caller, id)?;
        let state = self.state.stages.get(id).map(|stage| &stage.state);
        if state != Some(&StageState::Waiting) {
            refuse!(Invalid, "stage {} is not deferred", id.0);
        }
        self.state.stages.queue(id, self.now);
        Ok(Accepted::Answer(Answer::Stage(id)))
    }

    pub(super) fn limit_stages(
        &mut self,
        caller: Owner,
        token: &str,
        named: &InstanceRef,
        max_concurrent: u32,
    ) -> Result<Accepted, Failure> {
        let (id, _) = self.state.sessions.authorized(token, caller)?;
        if max_concurrent == 0 {
            refuse!(Invalid, "the limit on concurrent stages must be at least 1");
        }
        let instance = self.stage_instance(id, Some(named)).ok_or_else(|| {
            let reason = format!("`{token}` has no such instance");
            Failure::new(Cause::NotFound, reason)
        })?;
        // Other sessions that use a persistent instance have limits of their own.
        if let Some(session) = self.state.sessions.get_mut(id) {
            session.stage_limits.insert(instance, max_concurrent);
        }
        Ok(Accepted::Answer(Answer::Done))
    }

    pub(super) fn check_stage_owner(&self, caller: Owner, id: StageId) -> Result<(), Failure> {
        // The copy of an evacuation is no user's: `forebay undrain` ends it.
        let stage = self.state.stages.get(id).filter(|stage| stage.copy_of.is_none());
        let session = stage.and_then(|stage| self.state.sessions.get(stage.session));
        let session = session
            .ok_or_else(|| Failure::new(Cause::NotFound, format!("there is no stage {}", id.0)))?;
        check_may_act(caller, session.owner, &format!("stage {}", id.0))
    }
}
