//! Which nodes an instance gets its granules from.
//!
//! As the original's users know it: a request is rounded up to granules, granules go to distinct
//! servers before any server gets a second one, so the size asked for picks the bandwidth.
//! Nodes that are offline or drained get nothing; no node gets more than it has free.

use std::cmp::Reverse;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::pool::{NodeId, StorageNode};

/// How much is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many granules.
    Granules(u64),
    /// All granules of so many nodes that hold nothing else.
    WholeNodes(u32),
    /// So many granules on each node: every node is to hold a copy of everything. There are as
    /// many copies as granules in one, as other requests are spread, as far as nodes have room for
    /// a whole one.
    Copies(u64),
    /// Copies on so many nodes that hold nothing else, each as large as the smallest of them.
    WholeNodeCopies(u32),
}

/// What the nodes are chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preference {
    /// Over as many nodes as there are granules, emptiest nodes first.
    #[default]
    Bandwidth,
    /// On as few nodes as will hold it, leaving the least remainder.
    Capacity,
    /// Over nodes with the fewest other instances.
    Interference,
    /// Over nodes to which least has been written.
    Wear,
}

/// A request for an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationRequest {
    /// How much.
    pub size: Size,
    /// What for.
    pub preference: Preference,
    /// Enlarge the request, if need be, so that all shares are equal.
    pub equalize: bool,
    /// At most so many nodes; `None` for any number.
    pub max_nodes: Option<u32>,
}

/// Granules of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    /// The node.
    pub node: NodeId,
    /// How many of its granules; at least one.
    pub granules: u64,
}

/// Why a request cannot be met now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationError {
    /// Nothing was asked for.
    Nothing,
    /// No node is in service.
    NoNodes,
    /// Fewer granules are free, on the nodes that may be used, than are wanted.
    Full {
        /// Granules wanted.
        wanted: u64,
        /// Granules free.
        free: u64,
    },
    /// Fewer nodes are wholly free than are wanted.
    TooFewNodes {
        /// Nodes wanted.
        wanted: u32,
        /// Nodes wholly free.
        free: u32,
    },
    /// No node has room for a whole copy.
    NoRoomForCopy {
        /// Granules of one copy.
        wanted: u64,
        /// Most granules that are free on one node.
        free: u64,
    },
    /// Enough granules are free, but they cannot be divided into equal shares.
    Unequal {
        /// Granules wanted.
        wanted: u64,
        /// Granules free.
        free: u64,
    },
}

impl AllocationError {
    /// Granules that are wanted and that are free, where it is for want of them.
    pub fn wanted_and_free(&self) -> Option<(u64, u64)> {
        match *self {
            AllocationError::Full { wanted, free }
            | AllocationError::NoRoomForCopy { wanted, free }
            | AllocationError::Unequal { wanted, free } => Some((wanted, free)),
            AllocationError::Nothing
            | AllocationError::NoNodes
            | AllocationError::TooFewNodes { .. } => None,
        }
    }
}

impl fmt::Display for AllocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocationError::Nothing => {
                write!(f, "the request asks for nothing; ask for at least one byte")
            }
            AllocationError::NoNodes => write!(f, "no storage node of the pool is in service"),
            AllocationError::Full { wanted, free } => {
                write!(
                    f,
                    "the pool is full: {wanted} granules are wanted, {free} are free"
                )
            }
            AllocationError::TooFewNodes { wanted, free } => {
                write!(f, "{wanted} whole nodes are wanted, {free} are wholly free")
            }
            AllocationError::NoRoomForCopy { wanted, free } => write!(
                f,
                "no storage node has room for a whole copy: {wanted} granules are wanted on each, at most {free} are free on one"
            ),
            AllocationError::Unequal { wanted, free } => write!(
                f,
                "{wanted} granules are wanted in equal shares; {free} are free, but not so"
            ),
        }
    }
}

impl std::error::Error for AllocationError {}

/// Chooses nodes for a request: distinct nodes in ascending order of their number.
pub fn allocate(
    nodes: &[StorageNode],
    request: &AllocationRequest,
) -> Result<Vec<Share>, AllocationError> {
    let mut ranked: Vec<(NodeId, u64)> = ranked(nodes, request.preference);
    let most = request
        .max_nodes
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut shares = match request.size {
        Size::Granules(0) | Size::WholeNodes(0) | Size::Copies(0) | Size::WholeNodeCopies(0) => {
            return Err(AllocationError::Nothing);
        }
        _ if !nodes
            .iter()
            .any(|n| n.state == crate::pool::NodeState::Online && n.total > 0) =>
        {
            return Err(AllocationError::NoNodes);
        }
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
            if ranked.len() > most
                && request.preference != Preference::Interference
                && request.preference != Preference::Wear
            {
                // A bound on the number of nodes must not refuse what the largest could hold.
                ranked.sort_by_key(|(id, free)| (Reverse(*free), *id));
            }
            ranked.truncate(most);
            let free = ranked
                .iter()
                .fold(0u64, |sum, (_, free)| sum.saturating_add(*free));
            if free < wanted {
                return Err(AllocationError::Full { wanted, free });
            }
            let pack = request.preference == Preference::Capacity;
            match (request.equalize, pack) {
                (true, _) => {
                    equal(&ranked, wanted, pack).ok_or(AllocationError::Unequal { wanted, free })?
                }
                (false, true) => packed(&ranked, wanted),
                (false, false) => spread(&ranked, wanted),
            }
        }
    };
    shares.sort_by_key(|share| share.node);
    Ok(shares)
}

/// Usable nodes and their free granules, best first.
fn ranked(nodes: &[StorageNode], preference: Preference) -> Vec<(NodeId, u64)> {
    let mut usable: Vec<&StorageNode> = nodes
        .iter()
        .filter(|node| node.free_granules() > 0)
        .collect();
    usable.sort_by_key(|node| {
        let first = match preference {
            Preference::Bandwidth | Preference::Capacity => 0,
            Preference::Interference => u64::from(node.instances),
            Preference::Wear => node.written.0,
        };
        (first, Reverse(node.free_granules()), node.id)
    });
    // A node given twice counts once: its granules exist once.
    let mut seen = std::collections::BTreeSet::new();
    usable.retain(|node| seen.insert(node.id));
    usable
        .iter()
        .map(|node| (node.id, node.free_granules()))
        .collect()
}

fn whole_nodes(
    nodes: &[StorageNode],
    request: &AllocationRequest,
    ranked: &[(NodeId, u64)],
    wanted: u32,
) -> Result<Vec<Share>, AllocationError> {
    let empty = |id: NodeId| nodes.iter().any(|node| node.id == id && node.used == 0);
    let mut free: Vec<(NodeId, u64)> = ranked
        .iter()
        .copied()
        .filter(|(id, _)| empty(*id))
        .collect();
    if request.equalize {
        // Equal shares: as many nodes of one size as there are, the largest such size.
        let enough = |size: u64| {
            free.iter()
                .filter(|(_, granules)| *granules == size)
                .count()
                >= wanted as usize
        };
        if let Some(size) = free
            .iter()
            .map(|(_, granules)| *granules)
            .filter(|size| enough(*size))
            .max()
        {
            free.retain(|(_, granules)| *granules == size);
        } else {
            free.clear();
        }
    }
    let available = u32::try_from(free.len())
        .unwrap_or(u32::MAX)
        .min(request.max_nodes.unwrap_or(u32::MAX));
    if available < wanted {
        return Err(AllocationError::TooFewNodes {
            wanted,
            free: available,
        });
    }
    let chosen = free.into_iter().take(wanted as usize);
    Ok(chosen
        .map(|(node, granules)| Share { node, granules })
        .collect())
}

/// `wanted` granules on each of as many nodes, or as many as have room for them.
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
    let roomy = ranked.iter().filter(|(_, free)| *free >= wanted);
    let share = |(node, _): &(NodeId, u64)| Share {
        node: *node,
        granules: wanted,
    };
    Ok(roomy.take(count).map(share).collect())
}

/// One granule to each node in turn until all are given; the sum of `ranked` is at least `wanted`.
fn spread(ranked: &[(NodeId, u64)], wanted: u64) -> Vec<Share> {
    // The highest number of whole rounds that does not give more than wanted.
    let given = |rounds: u64| {
        ranked.iter().fold(0u128, |sum, (_, free)| {
            sum + u128::from((*free).min(rounds))
        })
    };
    let (mut low, mut high) = (0u64, wanted);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if given(middle) <= u128::from(wanted) {
            low = middle
        } else {
            high = middle - 1
        }
    }
    let mut left = u128::from(wanted) - given(low);
    let mut shares = Vec::new();
    for (node, free) in ranked {
        let extra = u64::from(left > 0 && *free > low);
        left -= u128::from(extra);
        let granules = (*free).min(low) + extra;
        if granules > 0 {
            shares.push(Share {
                node: *node,
                granules,
            });
        }
    }
    shares
}

/// The fullest nodes that hold it, on as few nodes as possible.
fn packed(ranked: &[(NodeId, u64)], wanted: u64) -> Vec<Share> {
    let mut left: Vec<(NodeId, u64)> = ranked.to_vec();
    let mut shares = Vec::new();
    let mut missing = wanted;
    while missing > 0 {
        let fits = left
            .iter()
            .enumerate()
            .filter(|(_, (_, free))| *free >= missing);
        // The tightest node that holds the rest, else the one that holds most of it.
        let best = fits.min_by_key(|(_, (id, free))| (*free, *id)).or_else(|| {
            left.iter()
                .enumerate()
                .max_by_key(|(_, (id, free))| (*free, Reverse(*id)))
        });
        let Some(index) = best.map(|(index, _)| index) else {
            break;
        };
        let (node, free) = left.swap_remove(index);
        let granules = free.min(missing);
        missing -= granules;
        shares.push(Share { node, granules });
    }
    shares
}

/// Equal shares that hold at least `wanted`: over many nodes, or few when packing.
fn equal(ranked: &[(NodeId, u64)], wanted: u64, pack: bool) -> Option<Vec<Share>> {
    let most = u64::try_from(ranked.len()).unwrap_or(u64::MAX).min(wanted);
    let mut counts: Box<dyn Iterator<Item = u64>> = if pack {
        Box::new(1..=most)
    } else {
        Box::new((1..=most).rev())
    };
    counts.find_map(|count| {
        let granules = wanted.div_ceil(count);
        let chosen: Vec<Share> = ranked
            .iter()
            .filter(|(_, free)| *free >= granules)
            .take(usize::try_from(count).unwrap_or(usize::MAX))
            .map(|(node, _)| Share {
                node: *node,
                granules,
            })
            .collect();
        (chosen.len() as u64 == count).then_some(chosen)
    })
}
