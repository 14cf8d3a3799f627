//! The storage nodes of a machine as a pool, and instances allocated on them.
//!
//! Nodes are chosen and stripes are placed by `forebay-policy`, the code that the buffer's
//! controller, clients and storage nodes use.

use forebay_job_script::Capacity;
use forebay_job_script::OptimizationStrategy;
use forebay_machine_file::machine::{BurstBuffer, Machine, NodeKind};
use forebay_policy::allocate::{AllocationError, AllocationRequest, Share, Size, allocate};
use forebay_policy::layout::Layout;
use forebay_policy::pool::{NodeId, NodeState, StorageNode};
use forebay_units::Bytes;

/// The burst-buffer nodes of a machine. Node `i` of the pool is the machine's `i`-th burst-buffer
/// node.
#[derive(Clone, Debug)]
pub struct StoragePool {
    /// The machine's numbers of the nodes.
    machine_nodes: Vec<u32>,
    nodes: Vec<StorageNode>,
    granularity: Bytes,
    burst_buffer: BurstBuffer,
}

impl StoragePool {
    /// The pool of a machine with these burst buffers, all of it free, in granules of `granularity`.
    ///
    /// # Panics
    /// If `granularity` is 0.
    pub fn new(machine: &Machine, burst_buffer: &BurstBuffer, granularity: Bytes) -> StoragePool {
        assert!(granularity.0 > 0, "a granularity of 0 bytes");
        let capacity = burst_buffer.card_capacity.0 * u64::from(burst_buffer.cards);
        let machine_nodes = machine.nodes_of_kind(NodeKind::BurstBuffer);
        let node = |id| StorageNode {
            id: NodeId(id),
            state: NodeState::Online,
            total: capacity / granularity.0,
            used: 0,
            instances: 0,
            written: Bytes(0),
        };
        StoragePool {
            nodes: (0..machine_nodes.len() as u32).map(node).collect(),
            machine_nodes,
            granularity,
            burst_buffer: burst_buffer.clone(),
        }
    }

    /// Offers only those nodes, by the machine's numbers, for new instances.
    pub fn offer_only(&mut self, offered: impl Fn(u32) -> bool) {
        for (node, number) in self.nodes.iter_mut().zip(&self.machine_nodes) {
            node.state = if offered(*number) { NodeState::Online } else { NodeState::Drained };
        }
    }

    /// Nodes that are offered for new instances.
    pub fn count_offered(&self) -> u32 {
        self.nodes.iter().filter(|node| node.state == NodeState::Online).count() as u32
    }

    /// Nodes of the pool.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the pool has no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Allocates an instance as a job script would request it, striped over its nodes.
    ///
    /// # Errors
    /// [`AllocationError`] if the pool does not have the capacity; nothing is allocated then.
    pub fn allocate(
        &mut self,
        capacity: Capacity,
        preference: OptimizationStrategy,
    ) -> Result<Instance, AllocationError> {
        let size = Size::of_instance(capacity, false, self.granularity);
        let request = AllocationRequest {
            size: size.unwrap_or_else(|| unreachable!("the granularity is positive")),
            preference,
            equalize: false,
            max_nodes: Some(Layout::MAX_NODES.into()),
        };
        let shares = allocate(&self.nodes, &request)?;
        for share in &shares {
            let node = &mut self.nodes[share.node.0 as usize];
            node.used += share.granules;
            node.instances += 1;
            assert!(node.used <= node.total, "{node:?} is overcommitted");
        }
        let machine_node = |share: &Share| self.machine_nodes[share.node.0 as usize];
        let nodes: Vec<u32> = shares.iter().map(machine_node).collect();
        let stripe = self.burst_buffer.stripe.0;
        let Some(layout) =
            u16::try_from(nodes.len()).ok().and_then(|count| Layout::new(count, stripe))
        else {
            unreachable!("{} nodes with stripes of {stripe} bytes", nodes.len())
        };
        Ok(Instance { nodes, shares, layout: layout.with_order(self.burst_buffer.stripe_order) })
    }

    /// Frees the granules of an instance of this pool.
    pub fn release(&mut self, instance: &Instance) {
        for share in &instance.shares {
            let node = &mut self.nodes[share.node.0 as usize];
            assert!(node.used >= share.granules, "{share:?} released twice");
            node.used -= share.granules;
            node.instances -= 1;
        }
    }
}

/// An allocation of storage nodes, and the layout of its files.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The machine's numbers of the nodes, in the order of `shares`.
    nodes: Vec<u32>,
    shares: Vec<Share>,
    layout: Layout,
}

impl Instance {
    /// The machine's numbers of the instance's nodes.
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Granules on each node.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// The layout of the instance's files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The machine's number of the node with the byte at `offset` of a file.
    pub fn node_of(&self, file: u64, offset: u64) -> u32 {
        let index = self.layout.node_of_offset(file, offset);
        self.nodes[usize::from(index.0)]
    }
}
