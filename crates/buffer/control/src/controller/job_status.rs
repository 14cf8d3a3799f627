//! Status of one job or persistent instance, whose size does not depend on those of others.

use std::collections::BTreeSet;

use forebay_policy::pool::NodeId;

use super::machine::Controller;
use super::status::ControlStatus;
use crate::messages::InstanceId;

/// Most storage nodes without data of the job that are named because they are offline.
const MAX_OTHER_NODES: usize = 16;

impl Controller {
    /// The session of this name with its instances, its stages and the nodes of its instances; and some
    /// of the nodes that are offline, for which its set-up may wait. Other objects are left out.
    pub fn job_status(&self, token: &str) -> ControlStatus {
        let mut status =
            ControlStatus { outdated: self.lost_revision.is_some(), ..ControlStatus::default() };
        let mut holders: BTreeSet<NodeId> = BTreeSet::new();
        if let Some((id, session)) = self.state.sessions.by_token(token) {
            status.sessions.push(self.session_status(id, session));
            let used = self.instances_of(session).into_iter();
            let instances: BTreeSet<InstanceId> = used.chain(session.instance).collect();
            for id in instances {
                if let Some(instance) = self.state.storage.instance(id) {
                    status.instances.push(self.instance_status(id, instance));
                    holders.extend(self.state.storage.fragments_of(id).map(|(_, f)| f.node));
                }
            }
            let stages = session.stages.iter();
            let stages = stages.filter_map(|id| Some((*id, self.state.stages.get(*id)?)));
            status.stages = stages.map(|(id, stage)| self.stage_status(id, stage)).collect();
        }
        let nodes = self.state.storage.nodes();
        let offline = nodes.filter(|(id, node)| {
            node.forgotten.is_none() && !holders.contains(id) && !self.is_node_online(*id)
        });
        let others: Vec<NodeId> = offline.map(|(id, _)| id).take(MAX_OTHER_NODES).collect();
        holders.extend(others);
        let pools = self.state.storage.pools();
        let nodes = pools.flat_map(|pool| self.candidate_nodes(&pool.name, |_| true));
        let wanted = nodes.filter(|node| holders.contains(&node.id));
        status.nodes = wanted.filter_map(|node| self.node_status(&node)).collect();
        status.nodes.sort_by_key(|node| node.id);
        status
    }
}
