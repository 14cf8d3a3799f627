//! One step of the controller.

use super::machine::{Controller, ControllerEffect, ControllerInput};
use crate::messages::UnixMillis;

impl Controller {
    /// Processes an input and returns its effects, in the order in which to carry them out.
    pub fn step(&mut self, now: UnixMillis, input: ControllerInput) -> Vec<ControllerEffect> {
        assert!(self.effects.is_empty(), "effects of an earlier step are left");
        self.now = now;
        self.contacts.start(now);
        if self.epoch.is_none() {
            self.epoch = Some((now.0, self.state.begin_epoch(now.0)));
        }
        if self.lost_revision.is_some() {
            return self.step_outdated(input);
        }
        match input {
            ControllerInput::Request(envelope) => self.accept_request(*envelope),
            ControllerInput::Report(report) => self.apply_report(report),
            ControllerInput::Tick => {
                let retention = self.settings.reply_retention_ms;
                self.state.requests.forget_old(now, retention);
            }
        }
        if self.lost_revision.is_some() {
            return self.finish_step();
        }
        self.remove_ended_activations();
        self.recreate_instances();
        self.drop_forgotten_fragments();
        self.choose_replicas();
        self.drop_abandoned_instances();
        self.advance_teardowns();
        self.start_stages();
        self.answer_pending_requests();
        self.send_commands();
        self.finish_step()
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
