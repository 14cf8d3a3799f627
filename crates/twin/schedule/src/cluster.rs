//! The machine: compute nodes, storage nodes, and the rates that stages share.

use crate::job::Job;
use crate::time::Millis;
use forebay_policy::pool::{NodeId, NodeState, StorageNode, granules_for};
use forebay_units::Bytes;

/// Rates in bytes per second; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Data that a storage node takes: stage-ins and checkpoints.
    pub storage_in: Option<f64>,
    /// Data that a storage node gives: stage-outs.
    pub storage_out: Option<f64>,
    /// The parallel file system, reading and writing together.
    pub pfs: Option<f64>,
}

/// A machine for jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Compute nodes.
    pub nodes: u32,
    /// Storage nodes, all free.
    pub storage: Vec<StorageNode>,
    /// Bytes of a granule.
    pub granularity: Bytes,
    /// Rates of stages and checkpoints.
    pub rates: Rates,
}

/// The reason why a job can never run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// It has no nodes.
    #[error("requests no nodes")]
    NoNodes,
    /// It requests more nodes than there are.
    #[error("requests {requested} nodes of {there_are}")]
    Nodes {
        /// Requested.
        requested: u32,
        /// Of the machine.
        there_are: u32,
    },
    /// Its burst buffer is larger than the pool.
    #[error("requests a burst buffer of {requested} granules of {there_are}")]
    Buffer {
        /// Granules requested.
        requested: u64,
        /// Granules of the pool.
        there_are: u64,
    },
    /// It stages, or writes at once, more than its burst buffer holds.
    #[error("{what} {bytes}, more than its burst buffer of {buffer}")]
    LargerThanBuffer {
        /// `stages in`, `stages out` or `writes checkpoints of`.
        what: &'static str,
        /// The bytes.
        bytes: Bytes,
        /// Its capacity.
        buffer: Bytes,
    },
}

impl Cluster {
    /// A machine with equal storage nodes; each has a whole number of granules of `capacity`.
    ///
    /// # Panics
    /// If the granularity is zero.
    pub fn new(
        nodes: u32,
        (storage_nodes, capacity): (u32, Bytes),
        granularity: Bytes,
        rates: Rates,
    ) -> Cluster {
        assert!(granularity.0 > 0, "granules of no bytes");
        let of_each = capacity.0 / u64::from(storage_nodes.max(1)) / granularity.0;
        let node = |id| StorageNode {
            id: NodeId(id),
            state: NodeState::Online,
            total: of_each,
            used: 0,
            instances: 0,
            written: Bytes::ZERO,
        };
        Cluster { nodes, storage: (0..storage_nodes).map(node).collect(), granularity, rates }
    }

    /// Granules of the pool.
    pub fn granules(&self) -> u64 {
        self.storage.iter().map(|node| node.total).sum()
    }

    /// Capacity of the pool.
    pub fn capacity(&self) -> Bytes {
        Bytes(self.granules().saturating_mul(self.granularity.0))
    }

    /// Granules of a job's burst buffer.
    pub fn granules_of(&self, job: &Job) -> u64 {
        match job.buffer {
            Bytes::ZERO => 0,
            size => granules_for(size, self.granularity).unwrap_or(0),
        }
    }

    /// Checks that a job can run on the empty machine.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(&self, job: &Job) -> Result<(), Impossible> {
        if job.nodes == 0 {
            return Err(Impossible::NoNodes);
        }
        if job.nodes > self.nodes {
            return Err(Impossible::Nodes { requested: job.nodes, there_are: self.nodes });
        }
        let (requested, there_are) = (self.granules_of(job), self.granules());
        if requested > there_are {
            return Err(Impossible::Buffer { requested, there_are });
        }
        let checkpoint = job.checkpoint.map_or(Bytes::ZERO, |checkpoint| checkpoint.bytes);
        for (what, bytes) in [
            ("stages in", job.stage_in),
            ("stages out", job.stage_out),
            ("writes checkpoints of", checkpoint),
        ] {
            if bytes > job.buffer {
                return Err(Impossible::LargerThanBuffer { what, bytes, buffer: job.buffer });
            }
        }
        Ok(())
    }

    /// Time of a stage-in of a job that has the machine for itself, with granules on as many storage nodes as
    /// possible. Stages that share rates take longer.
    pub fn stage_in_alone(&self, job: &Job) -> Millis {
        self.alone(job, job.stage_in, self.rates.storage_in, self.rates.pfs)
    }

    /// Time of a stage-out of a job that has the machine for itself.
    pub fn stage_out_alone(&self, job: &Job) -> Millis {
        self.alone(job, job.stage_out, self.rates.storage_out, self.rates.pfs)
    }

    /// Time of a checkpoint of a job that has the machine for itself.
    pub fn checkpoint_alone(&self, job: &Job) -> Millis {
        let bytes = job.checkpoint.map_or(Bytes::ZERO, |checkpoint| checkpoint.bytes);
        self.alone(job, bytes, self.rates.storage_in, None)
    }

    /// The limit for which a policy plans: that requested, and the checkpoints in that time.
    pub fn planned_limit(&self, job: &Job) -> Millis {
        let checkpoints = job.checkpoints_in(job.requested);
        job.requested.plus(Millis(self.checkpoint_alone(job).0.saturating_mul(checkpoints)))
    }

    fn alone(&self, job: &Job, bytes: Bytes, node: Option<f64>, pfs: Option<f64>) -> Millis {
        let spread = self.granules_of(job).clamp(1, self.storage.len().max(1) as u64);
        let of_nodes = node.map_or(f64::INFINITY, |rate| rate * spread as f64);
        let seconds = bytes.0 as f64 / of_nodes.min(pfs.unwrap_or(f64::INFINITY));
        Millis::of_seconds(seconds).unwrap_or(Millis::NEVER)
    }
}
