//! Administration of instances.

use super::TrailingField;
use crate::ids::{Ino, InstanceId};
use crate::placement::Placement;
use serde::{Deserialize, Serialize};

/// A new instance on a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Its id; must be new.
    pub id: InstanceId,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory; its members may attach, subject to `mode`.
    pub gid: u32,
    /// Permission bits of the root directory.
    pub mode: u16,
    /// Capacity on this node, in bytes.
    pub capacity: u64,
    /// Limit of inodes on this node.
    pub inodes: u64,
    /// Its nodes.
    pub placement: Placement,
}

/// Usage of an instance on one storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceUsage {
    /// Its specification, without the secret and the peers of its placement.
    pub spec: InstanceSpec,
    /// Bytes in use, including space reserved for writers.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Attached sessions.
    pub sessions: u64,
}

/// Result of comparing an instance's data on one node with their checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Intact objects.
    pub intact: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Objects without valid checksums, which were checksummed.
    pub checksummed: u64,
    /// Objects not checksummed because of recent writes.
    pub not_checksummed: u64,
    /// At most 1,000 damaged objects, with the offset of the first damaged block.
    pub damaged: Vec<(Ino, u64)>,
}

/// Capacity and usage of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatFs {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Limit of inodes.
    pub inodes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// How much of the capacity this node has to itself, on an instance over several.
    pub share: TrailingField<Option<Share>>,
}

/// A node's share of the capacity of an instance over several nodes. The rest of the node's capacity is for
/// writes beyond its share, while others have as much left of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Bytes of the share that are not in use.
    pub free: u64,
    /// Bytes of it that the node gives up to others on [request](super::InodeRequest::LendSpace).
    pub lends: u64,
    /// Bytes that the node can use beyond it if others give up as many of theirs.
    pub borrows: u64,
}
