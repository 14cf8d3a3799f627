//! Capacity that storage nodes in one process share.
//!
//! Files are spread evenly over the nodes of an instance, but never quite: without this, writes fail when the
//! first node has no space, while others still have some. Nodes in one process know of each other's use,
//! so one may exceed its share by what others have left.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The part of its share by which a node may exceed it. Its directory may lie on a file system of its own.
const EXCESS_DIVISOR: u64 = 16;

#[derive(Debug, Default)]
struct Member {
    /// The node's share of the instance's capacity, in bytes.
    capacity: AtomicU64,
    /// Bytes in use or granted.
    used: AtomicU64,
}

#[derive(Debug)]
struct Members {
    /// Held while space is granted.
    granting: Mutex<()>,
    nodes: Box<[Member]>,
}

/// One node's view of the capacity of an instance whose nodes are all in this process. Each of their daemons
/// has this instance only.
#[derive(Clone, Debug)]
pub struct SharedSpace {
    members: Arc<Members>,
    index: usize,
}

impl SharedSpace {
    /// The views of `count` nodes of one instance.
    pub fn of_nodes(count: usize) -> Vec<SharedSpace> {
        let nodes = (0..count).map(|_| Member::default()).collect();
        let members = Arc::new(Members { granting: Mutex::new(()), nodes });
        (0..count).map(|index| SharedSpace { members: members.clone(), index }).collect()
    }

    /// Held while space is granted, until the node's new use is published.
    pub(crate) fn begin_grant(&self) -> MutexGuard<'_, ()> {
        self.members.granting.lock()
    }

    /// The present use of this node, whose share is `capacity`.
    pub(crate) fn publish(&self, capacity: u64, used: u64) {
        let own = &self.members.nodes[self.index];
        own.capacity.store(capacity, Ordering::Release);
        own.used.store(used, Ordering::Release);
    }

    /// The bytes that this node may use, of whose share of `capacity` others may have taken a part.
    pub(crate) fn limit(&self, capacity: u64) -> u64 {
        let others = self.members.nodes.iter().enumerate().filter(|(at, _)| *at != self.index);
        let (mut shares, mut used) = (0_u64, 0_u64);
        for (_, other) in others {
            shares = shares.saturating_add(other.capacity.load(Ordering::Acquire));
            used = used.saturating_add(other.used.load(Ordering::Acquire));
        }
        let rest = capacity.saturating_add(shares).saturating_sub(used);
        rest.min(capacity.saturating_add(capacity / EXCESS_DIVISOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_never_use_more_than_the_capacity_together() {
        let nodes = SharedSpace::of_nodes(3);
        let used = [50, 100, 0];
        for (node, used) in nodes.iter().zip(used) {
            node.publish(160, used);
        }
        // Not more than a sixteenth beyond its share.
        assert_eq!(nodes[0].limit(160), 170);
        nodes[2].publish(160, 165);
        nodes[1].publish(160, 150);
        assert_eq!(nodes[0].limit(160), 165);
        // Others have taken a part of it.
        nodes[1].publish(160, 168);
        assert_eq!(nodes[0].limit(160), 147);
        nodes[1].publish(160, 600);
        assert_eq!(nodes[0].limit(160), 0);
    }
}
