//! Instances as those who administer a daemon see them.

use crate::ids::{Ino, InstanceId};
use crate::placement::Placement;
use serde::{Deserialize, Serialize};

/// A new instance on a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Its name; must be new.
    pub id: InstanceId,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory; its members may attach, subject to `mode`.
    pub gid: u32,
    /// Permission bits of the root directory.
    pub mode: u16,
    /// Bytes of data it may hold on this node.
    pub capacity: u64,
    /// Inodes it may hold on this node.
    pub inodes: u64,
    /// Where it lies, if on several nodes.
    pub placement: Placement,
}

/// How full an instance is on one storage node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceUsage {
    /// The instance as it was made, without the secret and the peers of its placement.
    pub spec: InstanceSpec,
    /// Bytes in use, those promised to writers included.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Sessions attached.
    pub sessions: u64,
}

/// What was found when an instance's data on one node were compared with their checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Objects that are what they were.
    pub intact: u64,
    /// Bytes in these.
    pub bytes: u64,
    /// Objects that had no checksums that hold, and have been given some.
    pub checksummed: u64,
    /// Objects without checksums, because they were written to a moment ago.
    pub not_checksummed: u64,
    /// Damaged objects, 1,000 at most, and where the first damaged part begins.
    pub damaged: Vec<(Ino, u64)>,
}

/// Capacity and use of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatFs {
    /// Bytes in total.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Inodes in total.
    pub inodes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}
