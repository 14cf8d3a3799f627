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
            let here = |f: &&controller::Fragment| {
                f.node.0 as usize == index && f.state != FragmentState::Forgotten
            };
            let fragments = state.storage.fragments().map(|(_, f)| f);
            let booked: u64 = fragments.filter(here).map(|f| f.granules).sum();
            let stored: u64 = node.fragments.values().map(|plan| plan.granules).sum();
            let most = node.granules;
            assert!(booked <= most, "node {index}: {booked} granules of {most}");
            assert!(stored <= most, "disk {index}: {stored} granules of {most}");
        }
        for (id, fragment) in state.storage.fragments() {
            let node = &self.nodes[fragment.node.0 as usize];
            // A node that was given up is used again only when its old fragments are gone.
            if fragment.state == FragmentState::Forgotten
                && !state.storage.is_forgotten(fragment.node)
            {
                let left = node.fragments.contains_key(&id);
                assert!(!left, "{id:?} is given up and there");
            }
            let damaged = self.truth.damaged.contains(&fragment.instance);
            let Some((daemon, _)) = node.running.as_ref().filter(|_| !damaged) else {
                continue;
            };
            if matches!(fragment.state, FragmentState::Ready(_)) {
                let instance = forebay_protocol::InstanceId(fragment.instance.0);
                let there = daemon.node.volume(instance).is_some();
                assert!(there, "{id:?} is ready but not there");
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        let Some(controller) = &self.controller else {
            return false;
        };
        let state = controller.state();
        let books = state.sessions.is_empty()
            && state.storage.is_unused()
            && state.sessions.activations().next().is_none()
            && state.stages.iter().next().is_none();
        // Data on a node that is lost for good does not count.
        let gone = |index: usize| self.nodes[index].down == u64::MAX && self.is_given_up(index);
        let mut nodes = self.nodes.iter().enumerate();
        let flash = nodes.all(|(index, node)| {
            gone(index)
                || node.running.as_ref().is_some_and(|(daemon, control)| {
                    daemon.node.volumes().next().is_none()
                        && daemon.node.session_count() == 0
                        && control.fragments().is_empty()
                }) && node.objects.list_instances().unwrap().is_empty()
        });
        let mounts = |host: &Compute| host.mounts.lock().unwrap().is_empty();
        books && flash && self.hosts.iter().all(mounts) && self.actors.is_empty()
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
            let objects = node.objects.list_instances();
            text += &format!("; node {index}: fragments {:?}", node.fragments.keys());
            text += &format!(", objects of {objects:?}");
            if let Some((daemon, _)) = &node.running {
                for volume in daemon.node.volumes() {
                    text += &format!(", {} prepared {:?}", volume.spec.id, volume.prepared);
                    text += &format!(", decided {:?}", volume.decided);
                }
                let sessions: Vec<_> = daemon.node.sessions().map(|(id, _)| id).collect();
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
