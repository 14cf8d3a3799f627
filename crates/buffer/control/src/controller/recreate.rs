//! Instances that are created again because a storage node went offline while they were set up.
//!
//! Every fragment is created with the positions of all fragments and with the id of the instance.
//! A replacement therefore cannot join fragments that may exist already: the instance gets another
//! id and other fragments, and what exists under the old id is removed when its nodes can be
//! reached. A replica of a load-balanced instance is complete on its own and is replaced alone
//! (`replicas.rs`).

use std::collections::BTreeSet;

use super::machine::Controller;
use super::objects::{Fragment, FragmentState, Instance};
use super::step_scope::StepScope;
use crate::messages::{FragmentId, InstanceId};

impl Controller {
    /// Creates instances again that have a fragment still to be created on a node that has gone
    /// offline. They have never been ready, so they have never been used.
    pub(super) fn recreate_instances(&mut self) {
        let is_stuck = |fragment: &Fragment| {
            fragment.state == FragmentState::Requested && !self.is_node_online(fragment.node)
        };
        let stuck = self.state.storage.fragments().filter(|(_, f)| is_stuck(f));
        let stuck: Vec<(FragmentId, InstanceId)> = stuck.map(|(id, f)| (id, f.instance)).collect();
        let (replicas, stripes): (Vec<_>, Vec<_>) =
            stuck.into_iter().partition(|(_, instance)| self.is_replicated(*instance));
        for (replica, instance) in replicas {
            self.replace_replica(replica, instance);
        }
        let instances: BTreeSet<InstanceId> = stripes.into_iter().map(|(_, id)| id).collect();
        for id in instances {
            self.abandon_instance(id);
        }
        let is_waiting = |i: &Instance| i.fragments.is_empty() && !i.ending && i.broken.is_none();
        let instances = self.state.storage.instances();
        let waiting = instances.filter(|(_, instance)| is_waiting(instance));
        let waiting: Vec<InstanceId> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            self.allocate_again(id);
        }
    }

    /// Gives an instance another id and takes its fragments away.
    pub(super) fn abandon_instance(&mut self, old: InstanceId) {
        let Some(instance) = self.state.storage.instance(old) else {
            return;
        };
        if instance.broken.is_some() || instance.ending {
            return;
        }
        if let Some(source) = instance.replaces {
            let reason = "a storage node to which it was to move is offline";
            return self.postpone_evacuation(source, reason.to_owned());
        }
        let session = instance.session;
        let new = InstanceId(self.state.next_id());
        self.state.storage.renumber_instance(old, new);
        self.state.stages.move_to_instance(old, new);
        if let Some(row) = self.state.sessions.get_mut(session) {
            row.instance = Some(new);
        }
        self.note_usage_instance(session);
    }

    /// Allocates fragments for an instance without any, or waits until its earlier ones are removed.
    fn allocate_again(&mut self, id: InstanceId) {
        let Some(instance) = self.state.storage.instance(id) else {
            return;
        };
        let session = self.state.sessions.get(instance.session);
        let Some(spec) = session.and_then(|session| session.setup.instance.clone()) else {
            return;
        };
        match self.allocate_granules(&spec) {
            Ok(allocation) => {
                self.add_fragments(id, &allocation.shares);
                if let Some(instance) = self.state.storage.instance_mut(id) {
                    instance.capacity = allocation.capacity();
                }
            }
            Err(refusal) => {
                let frees_granules = |fragment: &Fragment| {
                    fragment.state == FragmentState::Ending && self.is_node_online(fragment.node)
                };
                let mut fragments = self.state.storage.fragments();
                if fragments.any(|(_, fragment)| frees_granules(fragment)) {
                    return;
                }
                drop(fragments);
                if let Some(instance) = self.state.storage.instance_mut(id) {
                    instance.broken = Some(format!(
                        "a storage node of `{}` went offline while it was set up, and the others \
                         cannot take its part: {refusal}",
                        instance.label
                    ));
                }
            }
        }
    }

    /// Drops instances that were created again under another id, when their fragments are removed.
    pub(super) fn drop_abandoned_instances(&mut self, scope: StepScope) {
        let is_abandoned = |id: &InstanceId| {
            self.state.storage.instance(*id).is_some_and(|instance| {
                let session = self.state.sessions.get(instance.session);
                let current = session.and_then(|session| session.instance);
                instance.ending && instance.fragments.is_empty() && current != Some(*id)
            })
        };
        let mut gone = scope.instances(&self.state);
        gone.retain(is_abandoned);
        for id in gone {
            self.state.storage.remove_instance(id);
        }
    }
}
