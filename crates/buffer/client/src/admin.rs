//! Making and removing instances.

use crate::session::{Options, Session};
use forebay_wire::message::{InstanceSpec, Usage};
use forebay_wire::stream::Address;
use forebay_wire::{Errno, InstanceId, Reply, Request};

/// An administrator's session with a storage daemon; for root and the daemon's own user.
#[derive(Debug)]
pub struct Admin(Session);

impl Admin {
    /// Connect to a daemon.
    pub fn connect(address: Address, options: Options) -> Result<Admin, Errno> {
        Session::begin(address, None, None, options, false).map(Admin)
    }

    fn done(&self, request: Request) -> Result<(), Errno> {
        self.0.call(None, request).map(|_| ())
    }

    /// Make an instance. `EEXIST` if there is one of that number.
    pub fn create_instance(&self, spec: InstanceSpec) -> Result<(), Errno> {
        self.done(Request::CreateInstance(spec))
    }

    /// Remove an instance with all its data. `EBUSY` while clients are attached, unless `force`.
    pub fn remove_instance(&self, id: InstanceId, force: bool) -> Result<(), Errno> {
        self.done(Request::RemoveInstance { id, force })
    }

    /// Change an instance's capacity. `EBUSY` if it holds more than that.
    pub fn resize_instance(&self, id: InstanceId, capacity: u64) -> Result<(), Errno> {
        self.done(Request::ResizeInstance { id, capacity })
    }

    /// All instances on the node and how full they are.
    pub fn instances(&self) -> Result<Vec<Usage>, Errno> {
        match self.0.call(None, Request::ListInstances)?.reply {
            Reply::Instances(list) => Ok(list),
            _ => Err(Errno::EPROTO),
        }
    }
}
