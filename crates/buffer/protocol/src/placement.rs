//! The placement of an instance on storage nodes, and capabilities for its data objects.

use crate::ids::{Errno, HandleId, Ino, InstanceId, NodeIndex, SessionId, Timestamp};
use crate::space::BLOCK_BYTES;
use forebay_policy::layout::Layout;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Most nodes of an instance.
pub const MAX_NODES: u16 = Layout::MAX_NODES;
/// Longest stripe, in bytes.
const MAX_STRIPE_BYTES: u64 = 1 << 40;

/// The placement of an instance, as stored by one of its nodes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Index of this node.
    pub node: NodeIndex,
    /// Number of nodes, at most [`MAX_NODES`].
    pub nodes: u16,
    /// Length of a stripe in bytes; a multiple of [`BLOCK_BYTES`].
    pub stripe_bytes: u64,
    /// Random; the same on all nodes of the instance, and known only to them.
    pub secret: [u8; 32],
    /// Addresses of all nodes in the order of their indices, as displayed by
    /// [`Address`](crate::address::Address). Empty for one node.
    pub peers: Vec<String>,
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement")
            .field("node", &self.node)
            .field("nodes", &self.nodes)
            .field("stripe_bytes", &self.stripe_bytes)
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

    /// The placements of a new instance, one for each of the nodes at `peers`. `secret` is random.
    pub fn distributed(stripe_bytes: u64, peers: &[String], secret: [u8; 32]) -> Vec<Placement> {
        let nodes = u16::try_from(peers.len()).unwrap_or(u16::MAX);
        let place = |node| Placement {
            node: NodeIndex(node),
            nodes,
            stripe_bytes,
            secret,
            peers: peers.to_vec(),
        };
        (0..nodes).map(place).collect()
    }

    /// Whether the instance has several nodes.
    pub fn is_distributed(&self) -> bool {
        self.nodes > 1
    }

    /// The layout of files; that of a single node if the placement is not
    /// [valid](Placement::validate).
    pub fn layout(&self) -> Layout {
        Layout::new(self.nodes, self.stripe_bytes).unwrap_or(Layout::SINGLE_NODE)
    }

    /// `EINVAL` if the values contradict each other or exceed a limit.
    pub fn validate(&self) -> Result<(), Errno> {
        let is_valid = (1..=MAX_NODES).contains(&self.nodes)
            && self.node.0 < self.nodes
            && (BLOCK_BYTES..=MAX_STRIPE_BYTES).contains(&self.stripe_bytes)
            && self.stripe_bytes.is_multiple_of(BLOCK_BYTES)
            && (self.nodes == 1 || self.peers.len() == usize::from(self.nodes));
        if is_valid { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The public part.
    pub fn without_secret(&self) -> Placement {
        Placement { secret: [0; 32], ..self.clone() }
    }
}

/// Permission to open a file's data objects on other nodes, issued by the file's metadata node to a
/// client that has opened the file. It is valid for the user of that client, as long as the file is open at
/// the metadata node; other nodes ask for that. It does not depend on clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// The file.
    pub ino: Ino,
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// For writing: on this number of nodes, the first ones of the file's rounds.
    pub width: u16,
    /// The session with the metadata node by which the file is open.
    pub session: SessionId,
    /// The handle by which it is open.
    pub handle: HandleId,
    /// The user of that session.
    pub uid: u32,
    /// The start of the metadata node, as it counts them.
    pub epoch: u64,
    /// Hash of the other fields and the instance, keyed with the secret of the placement.
    pub mac: [u8; 32],
}

impl Capability {
    /// This capability, issued by a node that knows the secret of the instance's placement.
    pub fn issue(mut self, secret: &[u8; 32], instance: InstanceId) -> Capability {
        self.mac = *self.hash(secret, instance).as_bytes();
        self
    }

    /// `EACCES` if it was not issued with this secret.
    pub fn verify(&self, secret: &[u8; 32], instance: InstanceId) -> Result<(), Errno> {
        // Hashes are compared in constant time.
        if self.hash(secret, instance) != blake3::Hash::from_bytes(self.mac) {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    fn hash(&self, secret: &[u8; 32], instance: InstanceId) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher
            .update(b"forebay capability 2")
            .update(&instance.0.to_le_bytes())
            .update(&self.ino.0.to_le_bytes())
            .update(&[u8::from(self.read), u8::from(self.write)])
            .update(&self.width.to_le_bytes())
            .update(&self.session.0.to_le_bytes())
            .update(&self.handle.0.to_le_bytes())
            .update(&self.uid.to_le_bytes())
            .update(&self.epoch.to_le_bytes());
        hasher.finalize()
    }
}

/// State of a data object, one node's part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectInfo {
    /// Length in bytes.
    pub size: u64,
    /// Allocated space in bytes.
    pub space: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last write.
    pub mtime: Timestamp,
}
