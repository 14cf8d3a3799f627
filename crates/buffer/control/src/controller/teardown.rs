//! What follows from the objects' states alone.

use super::*;
use crate::messages::*;

impl Controller {
    pub(super) fn advance_teardowns(&mut self) {
        self.release_mounts();
        self.recreate_instances();
        self.drop_forgotten_fragments();
        self.choose_replicas();
        self.drop_abandoned_instances();
        for key in self.state.sessions.keys() {
            if self
                .state
                .sessions
                .get(key)
                .is_some_and(|session| session.ending)
            {
                self.end_session(SessionId(key));
            }
        }
    }

    /// Activations whose hosts have all given them back are gone.
    fn release_mounts(&mut self) {
        for key in self.state.activations.keys() {
            let Some(row) = self.state.activations.get(key) else {
                continue;
            };
            let Some(since) = row.ending else { continue };
            let dead: Vec<String> = row
                .hosts
                .keys()
                .filter(|host| {
                    let silence = self.silence(&Peer::ComputeNode((*host).clone()));
                    silence.min(self.now.ms_since(since)) > self.settings.host_dead_after_ms
                })
                .cloned()
                .collect();
            let empty = row.hosts.len() == dead.len();
            let session = row.session;
            if empty {
                self.state.activations.remove(key);
                if let Some(session) = self.state.sessions.get_mut(session.0) {
                    session.activations.retain(|id| id.0 != key);
                }
            } else if !dead.is_empty()
                && let Some(row) = self.state.activations.get_mut(key)
            {
                row.hosts.retain(|host, _| !dead.contains(host));
            }
        }
    }

    /// Takes an ending session as far down as it can go now: mounts and stages first, then its
    /// claims, then its instance, then itself.
    fn end_session(&mut self, id: SessionId) {
        let Some(session) = self.state.sessions.get(id.0).cloned() else {
            return;
        };
        let busy = |stage: &StageId| {
            self.state
                .stages
                .get(stage.0)
                .is_some_and(StageRecord::in_progress)
        };
        if !session.activations.is_empty() || session.stages.iter().any(busy) {
            return;
        }
        for registration in &session.registrations {
            self.state.registrations.remove(registration.0);
        }
        if !session.registrations.is_empty()
            && let Some(session) = self.state.sessions.get_mut(id.0)
        {
            session.registrations.clear();
        }
        if let Some(instance) = session.instance
            && !self.end_instance(instance)
        {
            return;
        }
        for stage in &session.stages {
            self.state.stages.remove(stage.0);
            self.progress.remove(stage);
            self.last_sent
                .remove(&commands::CommandTarget::Stage(*stage));
        }
        self.job_stages.remove_session(id);
        self.failed_files.remove(&id);
        self.state.sessions.remove(id.0);
    }

    /// Whether an instance is gone; if not, its fragments are on their way out.
    fn end_instance(&mut self, id: InstanceId) -> bool {
        let Some(instance) = self.state.instances.get(id.0).cloned() else {
            return true;
        };
        if !instance.ending {
            if let Some(instance) = self.state.instances.get_mut(id.0) {
                instance.ending = true;
            }
            for fragment in &instance.fragments {
                self.end_fragment(*fragment);
            }
        }
        // Of what its nodes have not removed some may be on nodes that are given up.
        self.drop_forgotten_fragments();
        if self.state.fragments_of(id).next().is_some() {
            return false;
        }
        for configuration in &instance.configurations {
            if let Some(row) = self.state.configurations.remove(configuration.0) {
                for namespace in row.namespaces {
                    self.state.namespaces.remove(namespace.0);
                }
            }
        }
        self.state.instances.remove(id.0);
        true
    }
}
