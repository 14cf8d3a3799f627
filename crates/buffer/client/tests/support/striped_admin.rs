//! Creating, resizing and removing instances that lie on several storage nodes.

use forebay_client::{Admin, ClientOptions, NodeAddresses};
use forebay_net::random::random_bytes;
use forebay_protocol::address::Address;
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, InstanceId};
use std::fmt;

/// A failure of one of the daemons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    pub address: Address,
    pub errno: Errno,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "storage daemon at {}: {}", self.address, self.errno)
    }
}

impl std::error::Error for NodeError {}

/// Sessions with the daemons of an instance to administer it, in the order of its nodes.
#[derive(Debug)]
pub struct StripedAdmin(Vec<(Address, Admin)>);

impl StripedAdmin {
    /// Connects to all daemons; fails if one is unreachable. The daemons use the same addresses among
    /// themselves.
    pub fn connect(
        nodes: impl Into<NodeAddresses>,
        options: &ClientOptions,
    ) -> Result<StripedAdmin, NodeError> {
        let connect = |address: Address| match Admin::connect(address.clone(), options.clone()) {
            Ok(admin) => Ok((address, admin)),
            Err(errno) => Err(NodeError { address, errno }),
        };
        nodes.into().0.into_iter().map(connect).collect::<Result<_, _>>().map(StripedAdmin)
    }

    /// Creates an instance over all daemons in stripes of `stripe` bytes. `spec` has the share of
    /// each node. If a daemon refuses, the instance is removed from the others.
    pub fn create_instance(&self, spec: &InstanceSpec, stripe: u64) -> Result<(), NodeError> {
        let peers: Vec<String> = self.0.iter().map(|(address, _)| address.to_string()).collect();
        let placements = match peers.len() {
            1 => vec![Placement::single_node()],
            _ => Placement::distributed(stripe, &peers, random_bytes().unwrap_or([7; 32])),
        };
        let mut created: Vec<&Admin> = Vec::new();
        for ((address, admin), placement) in self.0.iter().zip(placements) {
            if let Err(errno) = admin.create_instance(InstanceSpec { placement, ..spec.clone() }) {
                for admin in created {
                    let _ = admin.remove_instance(spec.id, true);
                }
                return Err(NodeError { address: address.clone(), errno });
            }
            created.push(admin);
        }
        Ok(())
    }

    /// Removes an instance without clients from all daemons.
    pub fn remove_instance(&self, id: InstanceId) -> Result<(), NodeError> {
        self.each(|admin| admin.remove_instance(id, false))
    }

    /// Changes the share of each node. If a daemon refuses, the others keep theirs.
    pub fn resize_instance(&self, id: InstanceId, capacity: u64) -> Result<(), NodeError> {
        let usage = |admin: &Admin| {
            let all = admin.instances().ok()?;
            all.into_iter().find(|usage| usage.spec.id == id).map(|usage| usage.spec.capacity)
        };
        let before: Vec<Option<u64>> = self.0.iter().map(|(_, admin)| usage(admin)).collect();
        let resized = self.each(|admin| admin.resize_instance(id, capacity));
        if resized.is_err() {
            for ((_, admin), before) in self.0.iter().zip(before) {
                let _ = before.map(|before| admin.resize_instance(id, before));
            }
        }
        resized
    }

    fn each(&self, act: impl Fn(&Admin) -> Result<(), Errno>) -> Result<(), NodeError> {
        self.0.iter().try_for_each(|(address, admin)| {
            act(admin).map_err(|errno| NodeError { address: address.clone(), errno })
        })
    }
}
