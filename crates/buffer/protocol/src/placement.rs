//! Instances that lie on several storage nodes: where, and who may open what there.

use crate::ids::{Errno, Ino, InstanceId, NodeIndex, Timestamp};
use forebay_policy::layout::Layout;
use serde::{Deserialize, Serialize};

/// Most nodes an instance may lie on.
pub const MAX_NODES: u16 = Layout::MAX_NODES;
/// Validity of a [`Capability`], in seconds.
pub const CAPABILITY_LIFETIME_S: i64 = 3600;

/// Where an instance lies, as one of its nodes sees it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// This node's place among them.
    pub node: NodeIndex,
    /// Number of nodes, at most [`MAX_NODES`].
    pub nodes: u16,
    /// Length of a stripe in bytes; a multiple of [`BLOCK_BYTES`](crate::space::BLOCK_BYTES).
    pub stripe_bytes: u64,
    /// Known to the instance's nodes only; the same on all of them, and random.
    pub secret: [u8; 32],
    /// Addresses of all nodes in the order of their places, as [`Address`](crate::address::Address)
    /// writes them. Empty for one node.
    pub peers: Vec<String>,
}

impl std::fmt::Debug for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("node", &self.node)
            .field("nodes", &self.nodes)
            .field("stripe", &self.stripe_bytes)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

impl Default for Placement {
    fn default() -> Placement {
        Placement::single_node()
    }
}

impl Placement {
    /// On one node: every file is one data object.
    pub fn single_node() -> Placement {
        Placement {
            node: NodeIndex(0),
            nodes: 1,
            stripe_bytes: 1 << 20,
            secret: [0; 32],
            peers: Vec::new(),
        }
    }

    /// The places of all nodes of a new instance, with a secret from the kernel's random source.
    pub fn distributed(stripe: u64, peers: &[String]) -> std::io::Result<Vec<Placement>> {
        let mut secret = [0; 32];
        crate::random::fill_random(&mut secret)?;
        let nodes = u16::try_from(peers.len()).unwrap_or(u16::MAX);
        let place = |node| Placement {
            node: NodeIndex(node),
            nodes,
            stripe_bytes: stripe,
            secret,
            peers: peers.to_vec(),
        };
        Ok((0..nodes).map(place).collect())
    }

    /// Does it lie on several nodes?
    pub fn is_distributed(&self) -> bool {
        self.nodes > 1
    }

    /// How files are spread. A place that [`validate`](Placement::validate) refuses has the layout of one
    /// node.
    pub fn layout(&self) -> Layout {
        Layout::new(self.nodes, self.stripe_bytes).unwrap_or(Layout::SINGLE_NODE)
    }

    /// `EINVAL` unless the numbers go together.
    pub fn validate(&self) -> Result<(), Errno> {
        let spread = self.nodes > 1;
        let good = (1..=MAX_NODES).contains(&self.nodes)
            && self.node.0 < self.nodes
            && self.stripe_bytes > 0
            && self.stripe_bytes.is_multiple_of(crate::space::BLOCK_BYTES)
            && self.stripe_bytes <= 1 << 40
            && (!spread || self.peers.len() == usize::from(self.nodes));
        if good { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// What others may know of it.
    pub fn without_secret(&self) -> Placement {
        Placement { secret: [0; 32], ..self.clone() }
    }
}

/// What a file's home gives to who has opened it: with it the file's data objects on other nodes
/// can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The file.
    pub ino: Ino,
    /// Reading is allowed.
    pub read: bool,
    /// Writing is allowed.
    pub write: bool,
    /// Until when, in seconds since 1970 on the clocks of the nodes.
    pub expires_at_s: i64,
    /// Keyed with the secret of the placement.
    pub mac: [u8; 32],
}

impl Capability {
    /// A permit of an instance with this secret.
    pub fn new(
        secret: &[u8; 32],
        instance: InstanceId,
        ino: Ino,
        read: bool,
        write: bool,
        until: i64,
    ) -> Capability {
        let mut permit = Capability { ino, read, write, expires_at_s: until, mac: [0; 32] };
        permit.mac = *permit.hash(secret, instance).as_bytes();
        permit
    }

    /// `EACCES` unless it was made with this secret, `EKEYREJECTED` if it has expired.
    pub fn verify(&self, secret: &[u8; 32], instance: InstanceId, now: i64) -> Result<(), Errno> {
        if self.hash(secret, instance) != blake3::Hash::from_bytes(self.mac) {
            return Err(Errno::EACCES);
        }
        if now > self.expires_at_s {
            return Err(Errno::EKEYREJECTED);
        }
        Ok(())
    }

    fn hash(&self, secret: &[u8; 32], instance: InstanceId) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher
            .update(b"forebay permit 1")
            .update(&instance.0.to_le_bytes())
            .update(&self.ino.0.to_le_bytes())
            .update(&[u8::from(self.read), u8::from(self.write)])
            .update(&self.expires_at_s.to_le_bytes());
        hasher.finalize()
    }
}

/// What a data object says about its part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Length in bytes.
    pub size: u64,
    /// Space it takes, in bytes.
    pub space: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last write.
    pub mtime: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_fits_one_file_one_mode_one_instance_and_its_time() {
        let secret = [7; 32];
        let permit = Capability::new(&secret, InstanceId(1), Ino(5), true, false, 100);
        assert_eq!(permit.verify(&secret, InstanceId(1), 100), Ok(()));
        assert_eq!(permit.verify(&secret, InstanceId(1), 101), Err(Errno::EKEYREJECTED));
        let forged = [
            Capability { write: true, ..permit },
            Capability { ino: Ino(6), ..permit },
            Capability { expires_at_s: 1000, ..permit },
            Capability { mac: [0; 32], ..permit },
        ];
        for forged in forged {
            assert_eq!(forged.verify(&secret, InstanceId(1), 50), Err(Errno::EACCES));
        }
        assert_eq!(permit.verify(&secret, InstanceId(2), 50), Err(Errno::EACCES));
        assert_eq!(permit.verify(&[8; 32], InstanceId(1), 50), Err(Errno::EACCES));
    }

    #[test]
    fn a_place_must_be_among_its_nodes() {
        let peers = ["a".to_owned(), "b".to_owned()];
        let places = Placement::distributed(1 << 16, &peers).unwrap();
        assert_eq!(places.len(), 2);
        assert!(places.iter().all(|place| place.validate().is_ok()));
        let bad = Placement { node: NodeIndex(2), ..places[0].clone() };
        assert!(bad.validate().is_err());
        let bad = Placement { peers: Vec::new(), ..places[0].clone() };
        assert!(bad.validate().is_err());
        assert!(Placement::single_node().validate().is_ok());
    }
}
