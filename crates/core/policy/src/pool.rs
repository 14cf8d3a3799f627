//! What a pool looks like to a decision: granules and the nodes that hold them.

use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

/// A storage node. Its number is the explicit order in which ties are broken.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Whether a node may be given new granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// In service.
    Online,
    /// Keeps what it has, gets nothing new.
    Drained,
    /// Cannot be reached.
    Offline,
}

/// A storage node as an allocation sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageNode {
    /// Which one.
    pub id: NodeId,
    /// Whether it may be used.
    pub state: NodeState,
    /// Granules it has.
    pub total: u64,
    /// Granules in use, those of instances that are still being removed among them.
    pub used: u64,
    /// Instances that have a fragment here.
    pub instances: u32,
    /// Bytes written to its flash so far.
    pub written: Bytes,
}

impl StorageNode {
    /// Granules that a new instance may get here.
    pub fn free_granules(&self) -> u64 {
        match self.state {
            NodeState::Online => self.total.saturating_sub(self.used),
            NodeState::Drained | NodeState::Offline => 0,
        }
    }
}

/// Granules that hold `size` bytes: rounded up, at least one. `None` if the granularity is zero.
pub fn granules_for(size: Bytes, granularity: Bytes) -> Option<u64> {
    (granularity.0 > 0).then(|| size.0.div_ceil(granularity.0).max(1))
}

/// Bytes in `granules`, or `None` if that is more than can be counted.
pub fn bytes_in(granules: u64, granularity: Bytes) -> Option<Bytes> {
    granules.checked_mul(granularity.0).map(Bytes)
}
