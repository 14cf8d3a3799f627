//! Allocation of an instance's granules on storage nodes.
//!
//! As in DataWarp, a request is rounded up to granules, and granules go to distinct nodes before any
//! node gets a second one, so the requested size determines the bandwidth. Nodes that are offline
//! or drained get nothing; no node gets more than it has free.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use forebay_job_script::{Capacity, OptimizationStrategy};
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::pool::{NodeId, NodeState, StorageNode, granules_for};

/// Size of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A number of granules.
    Granules(u64),
    /// All granules of a number of nodes that hold nothing else.
    WholeNodes(u32),
    /// A complete copy of this many granules on each node. The number of copies is the number of
    /// granules, or of nodes with space for a complete copy if that is less.
    Copies(u64),
    /// Copies on a number of nodes that hold nothing else, each as large as the smallest node.
    WholeNodeCopies(u32),
}

impl Size {
    /// The allocation for an instance of this capacity, with a copy on each node if `replicated`,
    /// in granules of `granularity`; `None` if the granularity is zero.
    pub fn of_instance(capacity: Capacity, replicated: bool, granularity: Bytes) -> Option<Size> {
        Some(match (capacity, replicated) {
            (Capacity::Bytes(size), false) => Size::Granules(granules_for(size, granularity)?),
            (Capacity::Bytes(size), true) => Size::Copies(granules_for(size, granularity)?),
            (Capacity::Nodes(count), false) => Size::WholeNodes(count),
            (Capacity::Nodes(count), true) => Size::WholeNodeCopies(count),
        })
    }

    fn is_zero(self) -> bool {
        match self {
            Size::Granules(count) | Size::Copies(count) => count == 0,
            Size::WholeNodes(count) | Size::WholeNodeCopies(count) => count == 0,
        }
    }
}

/// A request for an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationRequest {
    /// Requested size.
    pub size: Size,
    /// Criterion for the choice of nodes.
    pub preference: OptimizationStrategy,
    /// Enlarge the request where necessary to make all shares equal.
    pub equalize: bool,
    /// Largest number of nodes; `None`: any number.
    pub max_nodes: Option<u32>,
}

/// Granules of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    /// The node.
    pub node: NodeId,
    /// Number of its granules; at least one.
    pub granules: u64,
}

/// A request that cannot be satisfied now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// The requested size is zero.
    #[error("a request for zero bytes; request at least one byte")]
    Nothing,
    /// No node is in service.
    #[error("no storage node of the pool is online")]
    NoNodes,
    /// Nodes are online, but all of them are drained.
    #[error("all storage nodes of the pool that are online are drained")]
    Drained {
        /// The first of them.
        node: NodeId,
    },
    /// The pool has fewer granules than requested, free ones and others.
    #[error("the request is larger than the pool: {wanted} granules requested, {total} in all")]
    LargerThanPool {
        /// Granules requested.
        wanted: u64,
        /// Granules of all nodes, online or not.
        total: u64,
    },
    /// Fewer granules are free, on the usable nodes, than requested.
    #[error("the pool is full: {wanted} granules requested, {free} free")]
    Full {
        /// Granules requested.
        wanted: u64,
        /// Granules free.
        free: u64,
    },
    /// Fewer nodes are entirely free than requested.
    #[error("{wanted} whole nodes requested, {free} entirely free")]
    TooFewNodes {
        /// Nodes requested.
        wanted: u32,
        /// Nodes entirely free.
        free: u32,
    },
    /// No node has space for a complete copy.
    #[error(
        "no storage node has space for a complete copy: {wanted} granules requested on each node, \
         at most {free} free on one"
    )]
    NoRoomForCopy {
        /// Granules of one copy.
        wanted: u64,
        /// Largest number of free granules on one node.
        free: u64,
    },
    /// Enough granules are free, but they cannot be divided into equal shares.
    #[error(
        "{wanted} granules requested in equal shares; {free} are free, but not in equal shares"
    )]
    Unequal {
        /// Granules requested.
        wanted: u64,
        /// Granules free.
        free: u64,
    },
}

impl AllocationError {
    /// Granules requested and granules there are, where these are too few.
    pub fn wanted_and_found(&self) -> Option<(u64, u64)> {
        match *self {
            AllocationError::LargerThanPool { wanted, total } => Some((wanted, total)),
            AllocationError::Full { wanted, free }
            | AllocationError::NoRoomForCopy { wanted, free }
            | AllocationError::Unequal { wanted, free } => Some((wanted, free)),
            AllocationError::Nothing
            | AllocationError::NoNodes
            | AllocationError::Drained { .. }
            | AllocationError::TooFewNodes { .. } => None,
        }
    }
}

/// Allocates a request: shares of distinct nodes, in ascending order of [`NodeId`]. Ties are broken by
/// [`NodeId`], so the order of `nodes` is irrelevant.
pub fn allocate(
    nodes: &[StorageNode],
    request: &AllocationRequest,
) -> Result<Vec<Share>, AllocationError> {
    let mut ranked: Vec<(NodeId, u64)> = ranked(nodes, request.preference);
    let most = request.max_nodes.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    if request.size.is_zero() {
        return Err(AllocationError::Nothing);
    }
    if !nodes.iter().any(|n| n.state == NodeState::Online && n.total > 0) {
        let drained = nodes.iter().filter(|n| n.state == NodeState::Drained && n.total > 0);
        return Err(match drained.map(|n| n.id).min() {
            Some(node) => AllocationError::Drained { node },
            None => AllocationError::NoNodes,
        });
    }
    let mut shares = match request.size {
        Size::WholeNodes(wanted) => whole_nodes(nodes, request, &ranked, wanted)?,
        Size::WholeNodeCopies(wanted) => {
            let mut shares = whole_nodes(nodes, request, &ranked, wanted)?;
            let least = shares.iter().map(|share| share.granules).min();
            for share in &mut shares {
                share.granules = least.unwrap_or(share.granules);
            }
            shares
        }
        Size::Copies(wanted) => copies(&ranked, wanted, most)?,
        Size::Granules(wanted) => {
            ranked.truncate(most);
            let free = ranked.iter().fold(0u64, |sum, (_, free)| sum.saturating_add(*free));
            let total = nodes.iter().fold(0u64, |sum, node| sum.saturating_add(node.total));
            if total < wanted {
                return Err(AllocationError::LargerThanPool { wanted, total });
            }
            if free < wanted {
                return Err(AllocationError::Full { wanted, free });
            }
            if request.equalize {
                equal(&ranked, wanted).ok_or(AllocationError::Unequal { wanted, free })?
            } else {
                round_robin(&ranked, wanted)
            }
        }
    };
    shares.sort_by_key(|share| share.node);
    assert!(
        shares.windows(2).all(|pair| pair[0].node < pair[1].node),
        "two shares of one node: {shares:?}"
    );
    Ok(shares)
}

/// Bytes by which the flash of two nodes must differ in wear for it to decide between nodes that are
/// alike otherwise: 1 TiB.
const WEAR_STEP: u64 = 1 << 40;

/// Usable nodes and their free granules, best first.
fn ranked(nodes: &[StorageNode], preference: OptimizationStrategy) -> Vec<(NodeId, u64)> {
    let mut usable: Vec<&StorageNode> =
        nodes.iter().filter(|node| node.free_granules() > 0).collect();
    usable.sort_by_key(|node| {
        let first = match preference {
            OptimizationStrategy::Bandwidth => 0,
            OptimizationStrategy::Interference => u64::from(node.instances),
            OptimizationStrategy::Wear => node.written.0,
        };
        (first, Reverse(node.free_granules()), node.written.0 / WEAR_STEP, node.id)
    });
    // A node listed twice counts once: its granules exist once.
    let mut seen = BTreeSet::new();
    usable.retain(|node| seen.insert(node.id));
    usable.iter().map(|node| (node.id, node.free_granules())).collect()
}

fn whole_nodes(
    nodes: &[StorageNode],
    request: &AllocationRequest,
    ranked: &[(NodeId, u64)],
    wanted: u32,
) -> Result<Vec<Share>, AllocationError> {
    let empty = |id: NodeId| nodes.iter().any(|node| node.id == id && node.used == 0);
    let mut free: Vec<(NodeId, u64)> =
        ranked.iter().copied().filter(|(id, _)| empty(*id)).collect();
    if request.equalize {
        // Nodes of one size: the largest size of which there are enough nodes.
        let enough = |size: u64| {
            free.iter().filter(|(_, granules)| *granules == size).count() >= wanted as usize
        };
        if let Some(size) =
            free.iter().map(|(_, granules)| *granules).filter(|size| enough(*size)).max()
        {
            free.retain(|(_, granules)| *granules == size);
        } else {
            free.clear();
        }
    }
    let available =
        u32::try_from(free.len()).unwrap_or(u32::MAX).min(request.max_nodes.unwrap_or(u32::MAX));
    if available < wanted {
        return Err(AllocationError::TooFewNodes { wanted, free: available });
    }
    let chosen = free.into_iter().take(wanted as usize);
    Ok(chosen.map(|(node, granules)| Share { node, granules }).collect())
}

/// `wanted` granules on each of `wanted` nodes, or on all that have space for them.
fn copies(
    ranked: &[(NodeId, u64)],
    wanted: u64,
    most: usize,
) -> Result<Vec<Share>, AllocationError> {
    let free = ranked.iter().map(|(_, free)| *free).max().unwrap_or(0);
    if free < wanted {
        return Err(AllocationError::NoRoomForCopy { wanted, free });
    }
    let count = usize::try_from(wanted).unwrap_or(usize::MAX).min(most);
    let eligible = ranked.iter().filter(|(_, free)| *free >= wanted);
    let share = |(node, _): &(NodeId, u64)| Share { node: *node, granules: wanted };
    Ok(eligible.take(count).map(share).collect())
}

/// One granule to each node in turn until all are allocated; the sum of `ranked` is at least
/// `wanted`.
fn round_robin(ranked: &[(NodeId, u64)], wanted: u64) -> Vec<Share> {
    // Binary search for the number of complete rounds.
    let allocated = |rounds: u64| {
        ranked.iter().fold(0u128, |sum, (_, free)| sum + u128::from((*free).min(rounds)))
    };
    let (mut low, mut high) = (0u64, wanted);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if allocated(middle) <= u128::from(wanted) { low = middle } else { high = middle - 1 }
    }
    let mut left = u128::from(wanted) - allocated(low);
    let mut shares = Vec::new();
    for (node, free) in ranked {
        let extra = u64::from(left > 0 && *free > low);
        left -= u128::from(extra);
        let granules = (*free).min(low) + extra;
        if granules > 0 {
            shares.push(Share { node: *node, granules });
        }
    }
    shares
}

/// Equal shares of at least `wanted` in total, on as many nodes as possible.
fn equal(ranked: &[(NodeId, u64)], wanted: u64) -> Option<Vec<Share>> {
    let max_count = u64::try_from(ranked.len()).unwrap_or(u64::MAX).min(wanted);
    (1..=max_count).rev().find_map(|count| {
        let granules = wanted.div_ceil(count);
        let chosen: Vec<Share> = ranked
            .iter()
            .filter(|(_, free)| *free >= granules)
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .map(|(node, _)| Share { node: *node, granules })
            .collect();
        (chosen.len() as u64 == count).then_some(chosen)
    })
}
