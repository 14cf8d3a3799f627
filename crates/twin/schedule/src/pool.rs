//! The pool of storage nodes, allocated by the code of the real pool.

use crate::job::Job;
use forebay_job_script::OptimizationStrategy;
use forebay_policy::allocate::{AllocationRequest, Share, Size, allocate};
use forebay_policy::pool::StorageNode;

/// Storage nodes with the granules in use.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    nodes: Vec<StorageNode>,
    total: u64,
    used: u64,
}

impl Pool {
    pub(crate) fn new(nodes: &[StorageNode]) -> Pool {
        assert!(nodes.iter().all(|node| node.used == 0), "a pool that is in use: {nodes:?}");
        Pool { nodes: nodes.to_vec(), total: nodes.iter().map(|node| node.total).sum(), used: 0 }
    }

    /// Granules in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Granules in all.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Allocates the burst buffer of a job.
    ///
    /// # Panics
    /// If the granules are not free: a policy has begun a job for which there is no room.
    pub(crate) fn allocate(&mut self, job: &Job, granules: u64) -> Vec<Share> {
        if granules == 0 {
            return Vec::new();
        }
        let request = AllocationRequest {
            size: Size::Granules(granules),
            preference: OptimizationStrategy::default(),
            equalize: false,
            max_nodes: None,
        };
        let shares = match allocate(&self.nodes, &request) {
            Ok(shares) => shares,
            Err(refusal) => panic!("job {} has begun without room: {refusal}", job.id),
        };
        let allocated: u64 = shares.iter().map(|share| share.granules).sum();
        assert_eq!(allocated, granules, "granules of job {}", job.id);
        for share in &shares {
            let node = &mut self.nodes[share.node.0 as usize];
            node.used += share.granules;
            node.instances += 1;
            assert!(node.used <= node.total, "granules are allocated twice: {node:?}");
        }
        self.used += allocated;
        shares
    }

    /// Frees what was allocated.
    pub(crate) fn free(&mut self, shares: &[Share]) {
        for share in shares {
            let node = &mut self.nodes[share.node.0 as usize];
            assert!(node.used >= share.granules, "granules are freed twice: {node:?}");
            node.used -= share.granules;
            node.instances -= 1;
            self.used -= share.granules;
        }
    }
}
