//! Creating and removing instances, on one storage node and over several.

use crate::session::{ClientOptions, Session};
use crate::sessions::NodeAddresses;
use forebay_protocol::address::Address;
use forebay_protocol::message::AdminRequest;
use forebay_protocol::message::{InstanceSpec, InstanceUsage, ScrubReport};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, InstanceId, Reply, Request};
use std::fmt;

/// A session with a storage daemon to administer it; for root and the user of the daemon.
#[derive(Debug)]
pub struct Admin(Session);

impl Admin {
    /// Connects to a daemon.
    pub fn connect(address: Address, options: ClientOptions) -> Result<Admin, Errno> {
        Session::open(address, None, None, options, false).map(Admin)
    }

    fn call_unit(&self, request: Request) -> Result<(), Errno> {
        self.0.call(None, request).map(|_| ())
    }

    /// Creates an instance. `EEXIST` if its id exists.
    pub fn create_instance(&self, spec: InstanceSpec) -> Result<(), Errno> {
        self.call_unit(Request::Admin(AdminRequest::CreateInstance(spec)))
    }

    /// Removes an instance with all its data. `EBUSY` while clients are attached, unless `force`.
    pub fn remove_instance(&self, id: InstanceId, force: bool) -> Result<(), Errno> {
        self.call_unit(Request::Admin(AdminRequest::RemoveInstance { id, force }))
    }

    /// Changes the capacity of an instance. `EBUSY` if it holds more than that.
    pub fn resize_instance(&self, id: InstanceId, capacity: u64) -> Result<(), Errno> {
        self.call_unit(Request::Admin(AdminRequest::ResizeInstance { id, capacity }))
    }

    /// Reads all data of an instance on the node and verifies their checksums.
    pub fn scrub(&self, id: InstanceId) -> Result<ScrubReport, Errno> {
        match self.0.call(None, Request::Admin(AdminRequest::ScrubInstance { id }))?.reply {
            Reply::ScrubReport(found) => Ok(found),
            _ => Err(Errno::EPROTO),
        }
    }

    /// All instances on the node and their use.
    pub fn instances(&self) -> Result<Vec<InstanceUsage>, Errno> {
        match self.0.call(None, Request::Admin(AdminRequest::ListInstances))?.reply {
            Reply::Instances(list) => Ok(list),
            _ => Err(Errno::EPROTO),
        }
    }
}

/// A failure of one of several storage nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    /// The daemon that failed.
    pub address: Address,
    /// The error.
    pub errno: Errno,
    /// Daemons that still hold a part of the instance after a failed rollback or removal.
    pub leftover: Vec<Address>,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "storage daemon at {}: {}", self.address, self.errno)?;
        if let [first, rest @ ..] = self.leftover.as_slice() {
            write!(f, "; parts of the instance are left at {first}")?;
            for address in rest {
                write!(f, ", {address}")?;
            }
        }
        Ok(())
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
            Err(errno) => Err(node_error(&address, errno)),
        };
        let admins = nodes.into().0.into_iter().map(connect);
        admins.collect::<Result<_, _>>().map(StripedAdmin)
    }

    /// Make an instance over all the daemons, in stripes of `stripe` bytes. `capacity` and `inodes`
    /// of `spec` are every node's share; its `place` is not looked at. If one refuses, the
    /// instance is removed from the others again.
    pub fn create_instance(&self, spec: &InstanceSpec, stripe: u64) -> Result<(), NodeError> {
        let Some((first, _)) = self.0.first() else {
            return Ok(());
        };
        let places = if self.0.len() == 1 {
            vec![Placement::single_node()]
        } else {
            let peers: Vec<String> = self.0.iter().map(|(at, _)| at.to_string()).collect();
            let secret = forebay_net::random::random_bytes();
            let secret = secret.map_err(|error| node_error(first, error.into()))?;
            Placement::distributed(stripe, &peers, secret)
        };
        for (made, ((address, admin), place)) in self.0.iter().zip(places).enumerate() {
            let part = InstanceSpec { placement: place, ..spec.clone() };
            if let Err(errno) = admin.create_instance(part) {
                let is_left =
                    |(_, admin): &&(Address, Admin)| admin.remove_instance(spec.id, true).is_err();
                let left = self.0.iter().take(made).filter(is_left);
                return Err(NodeError {
                    leftover: left.map(|(address, _)| address.clone()).collect(),
                    ..node_error(address, errno)
                });
            }
        }
        Ok(())
    }

    /// Remove an instance from all the daemons. `EBUSY`, and nothing has been removed, while
    /// clients are attached to any of them, unless `force`. A daemon that no longer knows the
    /// instance counts as done, so that this can be called again after a failure; `ENOENT` if
    /// none knows it.
    pub fn remove_instance(&self, id: InstanceId, force: bool) -> Result<(), NodeError> {
        let mut holders = Vec::new();
        for (address, admin) in &self.0 {
            let all = admin.instances().map_err(|errno| node_error(address, errno))?;
            let Some(usage) = all.iter().find(|usage| usage.spec.id == id) else {
                continue;
            };
            if usage.sessions > 0 && !force {
                return Err(node_error(address, Errno::EBUSY));
            }
            holders.push((address, admin));
        }
        if holders.is_empty() {
            return match self.0.first() {
                Some((address, _)) => Err(node_error(address, Errno::ENOENT)),
                None => Ok(()),
            };
        }
        let mut failed: Option<NodeError> = None;
        for (at, (address, admin)) in holders.iter().enumerate() {
            // Someone may have attached since. Once a part is gone, though, so is the instance.
            match admin.remove_instance(id, force || at > 0) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) if at == 0 => return Err(node_error(address, errno)),
                Err(errno) => {
                    let failed = failed.get_or_insert_with(|| node_error(address, errno));
                    failed.leftover.push((*address).clone());
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Changes every node's share of an instance's capacity. If one refuses, because it holds more
    /// than that, the others keep theirs.
    pub fn resize_instance(&self, id: InstanceId, capacity: u64) -> Result<(), NodeError> {
        let mut done = Vec::new();
        for (address, admin) in &self.0 {
            let before = admin.instances().and_then(|all| {
                let found = all.iter().find(|usage| usage.spec.id == id);
                found.map(|usage| usage.spec.capacity).ok_or(Errno::ENOENT)
            });
            let resized = before.and_then(|before| {
                admin.resize_instance(id, capacity)?;
                Ok(before)
            });
            match resized {
                Ok(before) => done.push((address, admin, before)),
                Err(errno) => {
                    let mut error = node_error(address, errno);
                    for (address, admin, before) in done {
                        if admin.resize_instance(id, before).is_err() {
                            error.leftover.push(address.clone());
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Sets the addresses of the daemons on all of them, in the order of the nodes, for example after
    /// a host has a new address.
    pub fn set_peer_addresses(
        &self,
        id: InstanceId,
        peers: &NodeAddresses,
    ) -> Result<(), NodeError> {
        let peers: Vec<String> = peers.0.iter().map(Address::to_string).collect();
        for (address, admin) in &self.0 {
            let peers = peers.clone();
            let set = admin.call_unit(Request::Admin(AdminRequest::SetPeers { id, peers }));
            set.map_err(|errno| node_error(address, errno))?;
        }
        Ok(())
    }
}

fn node_error(address: &Address, errno: Errno) -> NodeError {
    NodeError { address: address.clone(), errno, leftover: Vec::new() }
}
