//! Invariants, checked during a history and at its end.

use forebay_control::controller::{self, FragmentState};
use forebay_store::objects::Objects;

use crate::machines::Compute;
use crate::users::Step;
use crate::world::World;

impl World {
    /// Checks that no granule is allocated twice, in the records or on the disks, and that fragments
    /// that are ready exist.
    pub fn check_allocation(&self) {
        let Some(controller) = &self.controller else {
            return;
        };
        let state = controller.state();
        for (index, node) in self.nodes.iter().enumerate() {
            let on_node = |f: &&controller::Fragment| {
                f.node.0 as usize == index && f.state != FragmentState::Forgotten
            };
            let fragments = state.storage.fragments().map(|(_, f)| f);
            let recorded: u64 = fragments.filter(on_node).map(|f| f.granules).sum();
            let stored: u64 = node.fragments.values().map(|plan| plan.granules).sum();
            let total = node.granules;
            assert!(recorded <= total, "node {index}: {recorded} granules of {total}");
            assert!(stored <= total, "disk {index}: {stored} granules of {total}");
        }
        for (id, fragment) in state.storage.fragments() {
            let node = &self.nodes[fragment.node.0 as usize];
            // A node that was given up is used again only when its old fragments are gone.
            if fragment.state == FragmentState::Forgotten
                && !state.storage.is_forgotten(fragment.node)
            {
                let left = node.fragments.contains_key(&id);
                assert!(!left, "{id:?} was given up and exists on its node");
            }
            let damaged = self.oracle.damaged.contains(&fragment.instance);
            let Some(daemon) = node.daemon.node().filter(|_| !damaged) else {
                continue;
            };
            if matches!(fragment.state, FragmentState::Ready(_)) {
                let instance = forebay_protocol::InstanceId(fragment.instance.0);
                let exists = daemon.volume(instance).is_some();
                assert!(exists, "{id:?} is ready but does not exist");
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        let Some(controller) = &self.controller else {
            return false;
        };
        let state = controller.state();
        let records_empty = state.sessions.is_empty()
            && state.storage.is_unused()
            && state.sessions.activations().next().is_none()
            && state.stages.iter().next().is_none();
        // Data on a node that is lost for good does not count.
        let is_lost =
            |index: usize| self.nodes[index].down_until == u64::MAX && self.is_given_up(index);
        let mut nodes = self.nodes.iter().enumerate();
        let nodes_empty = nodes.all(|(index, node)| {
            is_lost(index)
                || node.daemon.node().is_some_and(|daemon| {
                    daemon.volumes().next().is_none() && daemon.session_count() == 0
                }) && node.node.as_ref().is_some_and(|node| node.fragments().is_empty())
                    && node.daemon.objects.list_instances().unwrap().is_empty()
        });
        let mounts = |host: &Compute| host.mounts.lock().unwrap().is_empty();
        records_empty && nodes_empty && self.hosts.iter().all(mounts) && self.actors.is_empty()
    }

    /// Describes what is left at the end and should not be.
    pub fn unfinished(&self) -> String {
        let users = self.users.iter().filter(|user| user.step != Step::Ended);
        let users: Vec<_> = users.map(|user| (&user.token, user.step)).collect();
        let mut text = format!("not ended: {users:?}");
        if let Some(controller) = &self.controller {
            let state = controller.state();
            text += &format!("; sessions {:?}", state.sessions);
            text += &format!("; {:?}", state.storage);
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let objects = node.daemon.objects.list_instances();
            text += &format!("; node {index}: fragments {:?}", node.fragments.keys());
            text += &format!(", objects of {objects:?}");
            if let Some(daemon) = node.daemon.node() {
                for volume in daemon.volumes() {
                    text += &format!(", {} prepared {:?}", volume.spec.id, volume.prepared);
                    text += &format!(", decided {:?}", volume.decided);
                }
                let sessions: Vec<_> = daemon.sessions().map(|(id, _)| id).collect();
                text += &format!(", sessions {sessions:?}");
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            text += &format!("; host {index}: {:?}", host.plans.keys());
        }
        let actors: Vec<_> = self.actors.values().map(|actor| actor.place).collect();
        text + &format!("; actors {actors:?} wait for {:?}", self.awaited())
    }
}
