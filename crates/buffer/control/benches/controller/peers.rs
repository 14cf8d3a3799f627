//! Simulated storage nodes and agents, which carry every command out at once.

use std::collections::{BTreeMap, BTreeSet};

use forebay_control::controller::{ControllerEffect, ControllerInput};
use forebay_control::messages::{
    ActivationId, ComputeCommand, ComputeReport, FragmentId, Report, StateStamp, StorageCommand,
    StorageReport,
};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

/// All peers of the controller.
pub struct Peers {
    /// The last report's sequence number.
    sequence: u64,
    fragments: Vec<BTreeSet<FragmentId>>,
    mounts: BTreeMap<String, BTreeSet<ActivationId>>,
}

impl Peers {
    /// Storage nodes without fragments, and hosts without mounts.
    pub fn new(nodes: usize, hosts: &[String]) -> Peers {
        Peers {
            sequence: 0,
            fragments: vec![BTreeSet::new(); nodes],
            mounts: hosts.iter().map(|host| (host.clone(), BTreeSet::new())).collect(),
        }
    }

    /// Number of mounts on all hosts.
    pub fn mounts(&self) -> usize {
        self.mounts.values().map(BTreeSet::len).sum()
    }

    /// Number of fragments on all nodes.
    pub fn fragments(&self) -> usize {
        self.fragments.iter().map(BTreeSet::len).sum()
    }

    /// A heartbeat of every node and host.
    pub fn heartbeats(&mut self) -> Vec<ControllerInput> {
        let mut inputs = Vec::new();
        for index in 0..self.fragments.len() {
            let heartbeat = StorageReport::Heartbeat {
                fragments: self.fragments[index].iter().copied().collect(),
                written: Bytes(0),
                obeyed: StateStamp::default(),
                copies_instances: true,
                shares_stages: false,
            };
            inputs.push(self.of_node(index, heartbeat));
        }
        let mounts = self.mounts.iter();
        let mounts: Vec<(String, Vec<ActivationId>)> =
            mounts.map(|(host, ids)| (host.clone(), ids.iter().copied().collect())).collect();
        for (host, ids) in mounts {
            inputs.push(self.of_host(host, ComputeReport::Heartbeat(ids)));
        }
        inputs
    }

    /// The report that follows a command.
    pub fn obey(&mut self, effect: ControllerEffect) -> Option<ControllerInput> {
        match effect {
            ControllerEffect::SendToStorageNode(node, command) => {
                let index = node.0 as usize;
                let fragments = &mut self.fragments[index];
                let body = match command.command {
                    StorageCommand::CreateFragment(plan) => {
                        fragments.insert(plan.fragment);
                        StorageReport::FragmentReady(plan.fragment)
                    }
                    StorageCommand::RemoveFragment(id) => {
                        fragments.remove(&id);
                        StorageReport::FragmentRemoved(id)
                    }
                    StorageCommand::StartStage(_)
                    | StorageCommand::CancelStage(_)
                    | StorageCommand::EndShare(_)
                    | StorageCommand::FenceHosts { .. } => return None,
                };
                Some(self.of_node(index, body))
            }
            ControllerEffect::SendToComputeNode(host, command) => {
                let mounts = self.mounts.get_mut(&host)?;
                let body = match command.command {
                    ComputeCommand::Mount(plan) => {
                        mounts.insert(plan.activation);
                        ComputeReport::Mounted(plan.activation, plan.generation)
                    }
                    ComputeCommand::Unmount(id) => {
                        mounts.remove(&id);
                        ComputeReport::Unmounted(id)
                    }
                };
                Some(self.of_host(host, body))
            }
            ControllerEffect::Persist(_) | ControllerEffect::Reply(..) => None,
        }
    }

    fn of_node(&mut self, index: usize, body: StorageReport) -> ControllerInput {
        self.sequence += 1;
        let node = NodeId(u32::try_from(index).expect("few nodes"));
        ControllerInput::Report(Report::Storage { node, disk: 1, sequence: self.sequence, body })
    }

    fn of_host(&mut self, host: String, body: ComputeReport) -> ControllerInput {
        self.sequence += 1;
        ControllerInput::Report(Report::Compute { host, sequence: self.sequence, body })
    }
}
