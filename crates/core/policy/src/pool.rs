//! Pools: storage nodes and their granules.

use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

/// Number of a storage node. Ties are broken in the order of these numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Availability of a node for new granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Available.
    Online,
    /// Keeps its instances, gets no new ones.
    Drained,
    /// Unreachable.
    Offline,
}

/// A storage node as allocation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageNode {
    /// Its number.
    pub id: NodeId,
    /// Its state.
    pub state: NodeState,
    /// Granules in total.
    pub total: u64,
    /// Granules in use, including those of instances that are being removed.
    pub used: u64,
    /// Instances with a fragment on the node.
    pub instances: u32,
    /// Bytes written to its flash.
    pub written: Bytes,
}

impl StorageNode {
    /// Granules available to a new instance.
    pub fn free_granules(&self) -> u64 {
        match self.state {
            NodeState::Online => self.total.saturating_sub(self.used),
            NodeState::Drained | NodeState::Offline => 0,
        }
    }
}

/// Granules for `size` bytes: rounded up, at least one. `None` if the granularity is zero.
pub fn granules_for(size: Bytes, granularity: Bytes) -> Option<u64> {
    (granularity.0 > 0).then(|| size.0.div_ceil(granularity.0).max(1))
}

/// Bytes of `granules`, or `None` on overflow.
pub fn bytes_in(granules: u64, granularity: Bytes) -> Option<Bytes> {
    granules.checked_mul(granularity.0).map(Bytes)
}
