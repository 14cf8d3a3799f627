//! Instances that are begun anew because a storage node went offline while they were set up.
//!
//! Every fragment is made with the places of all, and with the instance's number. So one that is to
//! be made elsewhere cannot join others that may be there already: the instance gets another number
//! and other fragments, and what there is under the old number is removed when its nodes can be
//! reached. A copy of a load-balanced instance stands alone, and is replaced by itself (`copies.rs`).

use std::collections::BTreeSet;

use forebay_policy::pool;
use forebay_units::Bytes;

use super::*;
use crate::messages::*;

impl Controller {
    /// Instances with a fragment that is still to be made on a node that has gone offline. They were
    /// never ready, so nobody has used them.
    pub(super) fn recreate_instances(&mut self) {
        let fragments = self.state.fragments.iter();
        let stuck: Vec<(FragmentId, InstanceId)> = fragments
            .filter(|(_, f)| f.state == FragmentState::Requested && !self.node_online(f.node))
            .map(|(id, f)| (FragmentId(id), f.instance))
            .collect();
        let (copies, parts): (Vec<_>, Vec<_>) = stuck
            .into_iter()
            .partition(|(_, id)| self.is_replicated_instance(*id));
        for (copy, instance) in copies {
            self.replace_replica(copy, instance);
        }
        let parts: BTreeSet<InstanceId> = parts.into_iter().map(|(_, id)| id).collect();
        for id in parts {
            self.abandon_instance(id);
        }
        let empty = |i: &Instance| i.fragments.is_empty() && !i.ending && i.broken.is_none();
        let instances = self.state.instances.iter();
        let waiting: Vec<u64> = instances
            .filter(|(_, instance)| empty(instance))
            .map(|(id, _)| id)
            .collect();
        for id in waiting {
            self.allocate_anew(InstanceId(id));
        }
    }

    /// The instance gets another number, and has no fragments yet.
    pub(super) fn abandon_instance(&mut self, old: InstanceId) {
        let Some(instance) = self.state.instances.get(old.0).cloned() else {
            return;
        };
        if instance.broken.is_some() || instance.ending {
            return;
        }
        let new = InstanceId(self.state.next_id());
        for fragment in &instance.fragments {
            if let Some(fragment) = self.state.fragments.get_mut(fragment.0) {
                fragment.state = FragmentState::Ending;
            }
        }
        for id in &instance.configurations {
            let Some(configuration) = self.state.configurations.get_mut(id.0) else {
                continue;
            };
            configuration.instance = new;
            for namespace in std::mem::take(&mut configuration.namespaces) {
                self.state.namespaces.remove(namespace.0);
            }
        }
        let stages = self.state.stages.iter();
        let stages: Vec<u64> = stages
            .filter(|(_, stage)| stage.instance == old)
            .map(|(id, _)| id)
            .collect();
        for id in stages {
            if let Some(stage) = self.state.stages.get_mut(id) {
                stage.instance = new;
            }
        }
        if let Some(session) = self.state.sessions.get_mut(instance.session.0) {
            session.instance = Some(new);
        }
        let abandoned = Instance {
            configurations: Vec::new(),
            ending: true,
            ..instance.clone()
        };
        self.state.instances.insert(old.0, abandoned);
        let fragments = Vec::new();
        let row = Instance {
            fragments,
            ..instance
        };
        self.state.instances.insert(new.0, row);
    }

    /// Finds room for an instance that has none, or waits until what it had has been given back.
    fn allocate_anew(&mut self, id: InstanceId) {
        let Some(instance) = self.state.instances.get(id.0).cloned() else {
            return;
        };
        let session = self.state.sessions.get(instance.session.0);
        let Some(spec) = session.and_then(|session| session.setup.instance.clone()) else {
            return;
        };
        let (pool, shares) = match self.allocate_granules(&spec) {
            Ok(found) => found,
            Err(refusal) => {
                let ending = |f: &Fragment| f.state == FragmentState::Ending;
                let mut fragments = self.state.fragments.iter().map(|(_, fragment)| fragment);
                if !fragments.any(|f| ending(f) && self.node_online(f.node)) {
                    let reason = format!(
                        "a storage node of `{}` went offline while it was set up, and the others \
                         cannot take its part: {refusal}",
                        instance.label
                    );
                    if let Some(instance) = self.state.instances.get_mut(id.0) {
                        instance.broken = Some(reason);
                    }
                }
                return;
            }
        };
        let fragments: Vec<FragmentId> = shares
            .iter()
            .map(|share| self.add_fragment(id, *share))
            .collect();
        for configuration in &instance.configurations {
            let row = self.state.configurations.get(configuration.0);
            let Some(mode) = row.map(|row| row.mode) else {
                continue;
            };
            let namespaces = self.add_namespaces(*configuration, mode, &fragments);
            if let Some(row) = self.state.configurations.get_mut(configuration.0) {
                row.namespaces = namespaces;
            }
        }
        if let Some(instance) = self.state.instances.get_mut(id.0) {
            instance.fragments = fragments;
            let granules = shares.iter().map(|share| share.granules);
            let granules = granules.fold(0, u64::saturating_add);
            let capacity = pool::bytes_in(granules, pool.granularity);
            instance.capacity = capacity.unwrap_or(Bytes(u64::MAX));
        }
    }

    /// Instances that were begun anew under another number are gone when their fragments are.
    pub(super) fn drop_abandoned_instances(&mut self) {
        let instances = self.state.instances.iter();
        let gone: Vec<u64> = instances
            .filter(|(_, instance)| instance.ending && instance.fragments.is_empty())
            .map(|(id, _)| id)
            .collect();
        for id in gone {
            let mut sessions = self.state.sessions.iter();
            if !sessions.any(|(_, session)| session.instance == Some(InstanceId(id))) {
                self.state.instances.remove(id);
            }
        }
    }
}
