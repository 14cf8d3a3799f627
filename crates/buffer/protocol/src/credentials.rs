//! Users: the peer of a connection, and the user for whom a request is carried out.

use crate::ids::Errno;
use serde::{Deserialize, Serialize};

/// The peer of a connection, identified by the kernel, by MUNGE or by the pool's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// May act for other users and administer: root, the daemon's own user, or a holder of the key.
    pub trusted: bool,
    /// Connected by a Unix socket, over which descriptors can be passed.
    pub local: bool,
}

impl PeerIdentity {
    /// Whether the peer may hold descriptors of data objects. They are subject neither to grants of
    /// space nor to the end of a session, so only peers on this host that are trusted get them.
    pub fn may_hold_descriptors(&self) -> bool {
        self.local && self.trusted
    }

    /// Whether the peer is a member of `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The user for whom a request is carried out. Only root and the daemon's own user may set them in a
/// request; requests of all other peers are carried out for the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups. `None`: unknown. A request whose outcome depends on them is then not
    /// carried out and fails with [`Errno::EGROUPS`], and the sender looks them up.
    pub groups: Option<Vec<u32>>,
    /// The sender has already checked permission bits and owners, as the kernel does for a mount.
    pub checked: bool,
}

impl Credentials {
    /// Whether permission bits and owners do not matter.
    pub fn is_privileged(&self) -> bool {
        self.uid == 0 || self.checked
    }

    /// Whether the user is a member of `gid`; `EGROUPS` if that is unknown.
    pub fn in_group(&self, gid: u32) -> Result<bool, Errno> {
        match &self.groups {
            _ if self.gid == gid => Ok(true),
            Some(groups) => Ok(groups.contains(&gid)),
            None => Err(Errno::EGROUPS),
        }
    }
}
