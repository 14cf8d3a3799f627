//! Teardown of sessions: refused while it would lose data, and then advanced step by step.

use forebay_job_script::Direction;
use forebay_policy::removal::{self, InstanceUses, RemovalRefused};

use super::dispatch::Accepted;
use super::machine::Controller;
use super::objects::{Fragment, FragmentState, StageRecord, StageState, Wait};
use super::request::{Answer, Cause, Failure, Lifetime, refuse};
use super::session_table::check_may_act;
use super::step_scope::StepScope;
use crate::messages::{FragmentId, InstanceId, Owner, SessionId};

impl Controller {
    pub(super) fn tear_down_session(
        &mut self,
        caller: Owner,
        token: &str,
        hurry: bool,
        lifetime: Lifetime,
    ) -> Result<Accepted, Failure> {
        let found = self.state.sessions.by_token(token);
        let Some((id, session)) = found.filter(|(_, session)| session.lifetime == lifetime) else {
            if lifetime == Lifetime::Job {
                return Ok(Accepted::Answer(Answer::Done)); // Torn down before.
            }
            refuse!(NotFound, "there is no persistent instance `{token}`");
        };
        check_may_act(caller, session.owner, &format!("`{token}`"))?;
        if session.ending {
            return Ok(Accepted::Wait(Wait::TornDown(id)));
        }
        let stages = session.stages.iter();
        let stages = stages.filter_map(|stage| self.state.stages.get(*stage));
        let is_unfinished = |stage: &&StageRecord| {
            stage.directive.direction == Direction::Out
                && !stage.state.is_settled()
                && !stage.has_no_source(lifetime)
        };
        let outs: Vec<&StageRecord> = stages.filter(is_unfinished).collect();
        let failed = outs.iter();
        let failed = failed.filter(|stage| matches!(stage.state, StageState::Failed(_)));
        let others =
            session.instance.map_or(0, |instance| self.state.other_sessions_using(instance).len());
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let uses = InstanceUses {
            // A persistent instance is written by the jobs that use it, not by its own session.
            written: session.written || lifetime == Lifetime::Persistent,
            unfinished_stage_outs: count(outs.len()),
            failed_stage_outs: count(failed.count()),
            other_sessions: count(others),
        };
        removal::check_removal(&uses, hurry)
            .map_err(|keep| Failure::new(Cause::Busy, kept_text(token, lifetime, keep, &outs)))?;
        let (activations, stages) = (session.activations.clone(), session.stages.clone());
        if let Some(instance) = session.instance {
            self.cancel_evacuation(instance, "it is removed");
        }
        if let Some(session) = self.state.sessions.get_mut(id) {
            session.ending = true;
        }
        self.end_activations(&activations);
        for stage in stages {
            self.state.stages.cancel(stage);
        }
        Ok(Accepted::Wait(Wait::TornDown(id)))
    }

    /// Advances each ending session as far as is possible now.
    pub(super) fn advance_teardowns(&mut self, scope: StepScope) {
        let is_ending =
            |id: &SessionId| self.state.sessions.get(*id).is_some_and(|session| session.ending);
        let mut ending = scope.sessions(&self.state);
        ending.retain(is_ending);
        for id in ending {
            self.advance_teardown(id);
        }
    }

    /// Mounts and stages end first, then the session's use of instances, then its own instance.
    fn advance_teardown(&mut self, id: SessionId) {
        let Some(session) = self.state.sessions.get(id).cloned() else {
            return;
        };
        if !session.activations.is_empty() || self.has_stage_in_progress(&session) {
            return;
        }
        if !session.configurations.is_empty()
            && let Some(session) = self.state.sessions.get_mut(id)
        {
            session.configurations.clear();
        }
        self.note_usage_instance(id);
        if let Some(instance) = session.instance
            && !self.advance_instance_removal(instance)
        {
            return;
        }
        self.state.stages.remove_session(id, &session.stages);
        self.state.sessions.remove(id);
        self.end_usage(id);
    }

    /// Has the fragments of an instance removed, and then the instance. Returns whether it is gone.
    fn advance_instance_removal(&mut self, id: InstanceId) -> bool {
        let storage = &mut self.state.storage;
        let Some(instance) = storage.instance(id) else {
            return true;
        };
        if !instance.ending {
            storage.end_instance(id);
        }
        // Nodes that are given up will not confirm a removal.
        let storage = &self.state.storage;
        let fragments = storage.fragments_of(id);
        let gone = fragments.filter(|(_, fragment)| self.is_gone(fragment));
        let gone: Vec<FragmentId> = gone.map(|(id, _)| id).collect();
        for fragment in gone {
            self.remove_fragment(fragment);
        }
        if self.state.storage.fragments_of(id).next().is_some() {
            return false;
        }
        self.state.storage.remove_instance(id);
        self.state.fences.remove_instance(id);
        true
    }

    /// Drops fragments that are to be removed from nodes that were given up. Such a node is emptied
    /// before it is used again.
    pub(super) fn drop_forgotten_fragments(&mut self) {
        let gone = self.state.storage.fragment_ids(|fragment| self.is_gone(fragment));
        for id in gone {
            self.remove_fragment(id);
        }
    }

    /// Whether a fragment is to be removed from a node that was given up.
    fn is_gone(&self, fragment: &Fragment) -> bool {
        fragment.state == FragmentState::Ending && self.state.storage.is_forgotten(fragment.node)
    }
}

/// Why `token` is not removed: the stage-outs `outs` are not done, or it is in use.
fn kept_text(
    token: &str,
    lifetime: Lifetime,
    reason: RemovalRefused,
    outs: &[&StageRecord],
) -> String {
    const SHOWN: usize = 5;
    if !matches!(reason, RemovalRefused::DataPending { .. }) {
        return format!("`{token}` is kept: {reason}");
    }
    let paths = outs.iter().take(SHOWN).map(|stage| stage.source_path());
    let mut paths: Vec<String> = paths.collect();
    if outs.len() > SHOWN {
        paths.push(format!("and {} more", outs.len() - SHOWN));
    }
    let option = match lifetime {
        Lifetime::Persistent => "--hurry",
        Lifetime::Job => "`hurry` (`forebay recover --discard`)",
    };
    format!(
        "`{token}` is kept: {reason}: {}; stage out again, or give {option} to destroy the data",
        paths.join(", ")
    )
}
