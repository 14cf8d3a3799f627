//! One step of the controller.

use super::machine::{Controller, ControllerEffect, ControllerInput};
use super::request::RequestId;
use super::step_scope::StepScope;
use crate::messages::UnixMillis;

impl Controller {
    /// Processes an input and returns its effects, in the order in which to carry them out.
    pub fn step(&mut self, now: UnixMillis, input: ControllerInput) -> Vec<ControllerEffect> {
        assert!(self.effects.is_empty(), "effects of an earlier step are left");
        self.now = now;
        self.contacts.start(now);
        if self.epoch.is_none() {
            self.state.forget_future(now);
            self.epoch = Some((now.0, self.state.begin_epoch(now.0)));
        }
        if self.lost_revision.is_some() {
            self.looks_at_all = true;
            return self.step_outdated(input);
        }
        let accepted = match &input {
            ControllerInput::Request(envelope) => Some(envelope.id),
            ControllerInput::Report(_) | ControllerInput::Use(_) | ControllerInput::Tick => None,
        };
        match input {
            ControllerInput::Request(envelope) => self.accept_request(*envelope),
            ControllerInput::Report(report) => self.apply_report(report),
            ControllerInput::Use(measured) => self.record_use(measured),
            ControllerInput::Tick => {
                self.state.usage.settle(self.date());
                self.state.requests.forget_old(now, &self.settings);
                self.expire_instances();
                self.looks_at_all = true;
            }
        }
        if self.lost_revision.is_some() {
            self.looks_at_all = true;
            return self.finish_step();
        }
        match std::mem::take(&mut self.looks_at_all) {
            true => self.reconcile(StepScope::All, accepted),
            // Most reports are heartbeats without news.
            false if !self.state.has_changes() => {}
            false => self.reconcile(StepScope::Changed, accepted),
        }
        self.finish_step()
    }

    /// Advances the changed objects as far as is possible now.
    fn reconcile(&mut self, scope: StepScope, accepted: Option<RequestId>) {
        if scope.is_all() {
            self.release_silent_mounts();
        }
        self.remove_ended_activations(scope);
        if scope.is_all() {
            self.recreate_instances();
            self.drop_forgotten_fragments();
        }
        self.choose_replicas(scope);
        self.drop_abandoned_instances(scope);
        self.advance_teardowns(scope);
        self.advance_evacuations(scope);
        // What an evacuation held back, or holds back now, was not changed itself.
        let scope = match std::mem::take(&mut self.looks_at_all) {
            true => StepScope::All,
            false => scope,
        };
        let may_start = accepted.is_some()
            || self.state.stages.changed().next().is_some()
            || self.state.storage.has_changes();
        if scope.is_all() || may_start {
            self.start_stages();
        }
        self.answer_pending_requests(scope, accepted);
        self.send_commands(scope);
        if cfg!(debug_assertions) {
            let needed = self.needed_commands();
            assert!(self.sent.needed().eq(&needed), "the commands that are needed are known");
        }
    }

    /// Makes the changes of a step its first effect, and stamps its commands.
    pub(super) fn finish_step(&mut self) -> Vec<ControllerEffect> {
        let changes = self.state.take_changes();
        let mut effects = Vec::with_capacity(self.effects.len() + 1);
        if !changes.is_empty() {
            effects.push(ControllerEffect::Persist(changes));
        }
        effects.append(&mut self.effects);
        let stamp = self.stamp();
        for effect in &mut effects {
            match effect {
                ControllerEffect::SendToStorageNode(_, command) => command.state = stamp,
                ControllerEffect::SendToComputeNode(_, command) => command.state = stamp,
                ControllerEffect::Persist(_) | ControllerEffect::Reply(..) => {}
            }
        }
        self.check_step(&effects);
        effects
    }

    /// Panics if a step has broken an invariant.
    fn check_step(&self, effects: &[ControllerEffect]) {
        let is_reply_to_known = |effect: &ControllerEffect| match effect {
            ControllerEffect::Reply(id, _) => {
                self.lost_revision.is_some() || self.state.requests.get(*id).is_some()
            }
            ControllerEffect::Persist(_)
            | ControllerEffect::SendToStorageNode(..)
            | ControllerEffect::SendToComputeNode(..) => true,
        };
        assert!(effects.iter().all(is_reply_to_known), "a reply to a request without a record");
        if cfg!(debug_assertions) {
            self.state.check_invariants();
        }
    }
}
