//! Creating and removing instances on a storage node.

use crate::session::{ClientOptions, ReplyCaches, Session};
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    AdminRequest, HostFence, InstanceSpec, InstanceUsage, MAX_LISTED_SESSIONS, ScrubReport,
    SessionInfo,
};
use forebay_protocol::{Errno, InstanceId, SessionId};
use std::sync::Arc;

/// A session with a storage daemon to administer it; for root and the user of the daemon.
#[derive(Debug)]
pub struct Admin(Session);

impl Admin {
    /// Connects to a daemon.
    pub fn connect(address: Address, options: ClientOptions) -> Result<Admin, Errno> {
        Session::open(address, None, None, options, ReplyCaches::None, Arc::default(), 0).map(Admin)
    }

    /// Creates an instance. `EEXIST` if its id exists.
    pub fn create_instance(&self, spec: InstanceSpec) -> Result<(), Errno> {
        self.0.call(AdminRequest::CreateInstance(spec))
    }

    /// Removes an instance with all its data. `EBUSY` while clients are attached, unless `force`.
    pub fn remove_instance(&self, id: InstanceId, force: bool) -> Result<(), Errno> {
        self.0.call(AdminRequest::RemoveInstance { id, force })
    }

    /// Changes the capacity of an instance. `EBUSY` if it holds more than that.
    pub fn resize_instance(&self, id: InstanceId, capacity: u64) -> Result<(), Errno> {
        self.0.call(AdminRequest::ResizeInstance { id, capacity })
    }

    /// Refuses mounts of hosts that are presumed dead. When this returns, no request of theirs is
    /// carried out any more.
    pub fn fence_hosts(&self, id: InstanceId, hosts: Vec<HostFence>) -> Result<(), Errno> {
        self.0.call(AdminRequest::FenceHosts { id, hosts })
    }

    /// Reads all data of an instance on the node and verifies their checksums.
    pub fn scrub(&self, id: InstanceId) -> Result<ScrubReport, Errno> {
        self.0.call(AdminRequest::ScrubInstance { id })
    }

    /// All sessions of clients on the node, in the order of their numbers.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, Errno> {
        let mut sessions: Vec<SessionInfo> = Vec::new();
        loop {
            let after = sessions.last().map_or(SessionId(0), |last| last.id);
            let page: Vec<SessionInfo> = self.0.call(AdminRequest::ListSessions { after })?;
            let is_last = page.len() < MAX_LISTED_SESSIONS;
            sessions.extend(page.into_iter().filter(|session| session.id > after));
            if is_last {
                return Ok(sessions);
            }
        }
    }

    /// Ends sessions; those that do not exist are skipped. When this returns, no request of theirs is
    /// carried out any more, and they fail with `ESHUTDOWN`.
    pub fn evict_sessions(&self, sessions: &[SessionId]) -> Result<(), Errno> {
        for part in sessions.chunks(MAX_LISTED_SESSIONS) {
            self.0.call::<()>(AdminRequest::EvictSessions { sessions: part.to_vec() })?;
        }
        Ok(())
    }

    /// All instances on the node and their use.
    pub fn instances(&self) -> Result<Vec<InstanceUsage>, Errno> {
        self.0.call(AdminRequest::ListInstances)
    }
}
