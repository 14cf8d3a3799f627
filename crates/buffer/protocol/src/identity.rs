//! The user at the far end of a connection, and its proof of that.

use serde::{Deserialize, Serialize};

/// The far end of a connection, established by the kernel or by the pool's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// May act for others and administer: root, the daemon's own user, or a holder of the key.
    pub trusted: bool,
    /// On the same host by a Unix socket, so that descriptors can be passed.
    pub local: bool,
}

impl PeerIdentity {
    /// Is `gid` one of the peer's groups?
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// An answer to a challenge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Proof {
    /// By the pool's key: a keyed hash over the challenge.
    Key {
        /// The keyed hash.
        mac: [u8; 32],
        /// User for whom the holder speaks.
        uid: u32,
        /// Group for whom it speaks.
        gid: u32,
    },
    /// A MUNGE credential whose payload is the challenge.
    Munge(Vec<u8>),
}
