//! Operations, their algorithms, and the choice among these.

use super::schedule::{Schedule, Sizes};
use forebay_units::Bytes;
use std::fmt;
use std::str::FromStr;

/// A collective operation, or an exchange of point-to-point messages that benchmarks of networks
/// measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// No rank leaves before all have entered.
    Barrier,
    /// Rank 0's vector goes to all.
    Broadcast,
    /// The vectors of all ranks are combined at rank 0.
    Reduce,
    /// The vectors of all ranks are combined at all.
    Allreduce,
    /// Each rank's block goes to all.
    Allgather,
    /// Each rank has a block for each other, all of one size.
    Alltoall,
    /// Each rank has a block for each other, of random sizes from 0 to twice the given one.
    Alltoallv,
    /// Each rank of the first half sends a message to its partner in the second half, and gets one of
    /// the same size back (`osu_latency`; of several pairs `osu_multi_lat`).
    PingPong,
    /// Each rank of the first half sends [`STREAM_MESSAGES`] messages to its partner in the second
    /// half, one after the other, and gets one without data back (`osu_bw`).
    Stream,
    /// Each rank exchanges messages with the next one, then with the previous one, in the order of the
    /// ranks (GPCNeT's rings: a random one with random placement).
    RingExchange,
}

/// Messages of a stream: `osu_bw` sends as many before it waits for an answer.
pub const STREAM_MESSAGES: u32 = 64;

impl Operation {
    /// All operations.
    pub const ALL: [Operation; 10] = [
        Operation::Barrier,
        Operation::Broadcast,
        Operation::Reduce,
        Operation::Allreduce,
        Operation::Allgather,
        Operation::Alltoall,
        Operation::Alltoallv,
        Operation::PingPong,
        Operation::Stream,
        Operation::RingExchange,
    ];

    /// The name in commands and result documents.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Barrier => "barrier",
            Operation::Broadcast => "broadcast",
            Operation::Reduce => "reduce",
            Operation::Allreduce => "allreduce",
            Operation::Allgather => "allgather",
            Operation::Alltoall => "alltoall",
            Operation::Alltoallv => "alltoallv",
            Operation::PingPong => "ping-pong",
            Operation::Stream => "stream",
            Operation::RingExchange => "ring-exchange",
        }
    }

    /// Whether it consists of messages between pairs of nodes, in which one process of each node takes
    /// part.
    pub fn is_point_to_point(self) -> bool {
        match self {
            Operation::PingPong | Operation::Stream | Operation::RingExchange => true,
            Operation::Barrier
            | Operation::Broadcast
            | Operation::Reduce
            | Operation::Allreduce
            | Operation::Allgather
            | Operation::Alltoall
            | Operation::Alltoallv => false,
        }
    }

    /// The algorithms that implement it.
    pub fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::{
            BinomialTree, Bruck, Direct, Dissemination, Pairwise, Rabenseifner, RecursiveDoubling,
            Ring, ScatterAllgather,
        };
        match self {
            Operation::Barrier => &[Dissemination],
            Operation::Broadcast => &[BinomialTree, ScatterAllgather],
            Operation::Reduce => &[BinomialTree, Rabenseifner],
            Operation::Allreduce => &[RecursiveDoubling, Rabenseifner, Ring],
            Operation::Allgather => &[RecursiveDoubling, Bruck, Ring],
            Operation::Alltoall => &[Bruck, Pairwise],
            Operation::Alltoallv => &[Pairwise],
            Operation::PingPong | Operation::Stream | Operation::RingExchange => &[Direct],
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = CollectiveError;

    fn from_str(text: &str) -> Result<Self, CollectiveError> {
        Operation::ALL.into_iter().find(|o| o.name() == text).ok_or_else(|| {
            let names = Operation::ALL.map(Operation::name).join(", ");
            CollectiveError(format!("unknown operation `{text}`; use one of {names}"))
        })
    }
}

/// An algorithm of collective operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// In round k to the rank 2^k further (Hensgen, Finkel, Manber).
    Dissemination,
    /// A tree with a level for each bit of the ranks.
    BinomialTree,
    /// The vector is scattered by a tree, and gathered at all ranks.
    ScatterAllgather,
    /// Exchange with the rank that differs in one bit.
    RecursiveDoubling,
    /// The vector is scattered while it is combined, by recursive halving, and then gathered.
    Rabenseifner,
    /// Each rank sends to the next one only.
    Ring,
    /// In round k to the rank 2^k away, with all blocks that go in this direction (Bruck et al.).
    Bruck,
    /// In round k with the ranks k further and k before.
    Pairwise,
    /// Each message goes to its receiver.
    Direct,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Algorithm; 9] = [
        Algorithm::Dissemination,
        Algorithm::BinomialTree,
        Algorithm::ScatterAllgather,
        Algorithm::RecursiveDoubling,
        Algorithm::Rabenseifner,
        Algorithm::Ring,
        Algorithm::Bruck,
        Algorithm::Pairwise,
        Algorithm::Direct,
    ];

    /// The name in commands and result documents.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Dissemination => "dissemination",
            Algorithm::BinomialTree => "binomial-tree",
            Algorithm::ScatterAllgather => "scatter-allgather",
            Algorithm::RecursiveDoubling => "recursive-doubling",
            Algorithm::Rabenseifner => "rabenseifner",
            Algorithm::Ring => "ring",
            Algorithm::Bruck => "bruck",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Direct => "direct",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = CollectiveError;

    fn from_str(text: &str) -> Result<Self, CollectiveError> {
        Algorithm::ALL.into_iter().find(|a| a.name() == text).ok_or_else(|| {
            let names = Algorithm::ALL.map(Algorithm::name).join(", ");
            CollectiveError(format!("unknown algorithm `{text}`; use one of {names}"))
        })
    }
}

/// The reason why a collective operation cannot be scheduled, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CollectiveError(pub(super) String);

/// A collective operation of the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveSpec {
    /// The operation.
    pub operation: Operation,
    /// Length of the vector; of each rank's block (allgather); of each pair's (alltoall); of each
    /// message between pairs.
    pub size: Bytes,
    /// The algorithm; `None`: the one that MPICH chooses.
    pub algorithm: Option<Algorithm>,
}

/// Longest vector of the broadcast by a tree (MPIR_CVAR_BCAST_SHORT_MSG_SIZE), exclusive.
const BROADCAST_SHORT: u64 = 12_288;
/// Ranks below which a broadcast always goes by a tree (MPIR_CVAR_BCAST_MIN_PROCS).
const BROADCAST_MIN_RANKS: u32 = 8;
/// Longest vector of a broadcast by recursive doubling (MPIR_CVAR_BCAST_LONG_MSG_SIZE), exclusive.
const BROADCAST_LONG: u64 = 524_288;
/// Longest vector of the reduction by a tree (MPIR_CVAR_REDUCE_SHORT_MSG_SIZE).
const REDUCE_SHORT: u64 = 2_048;
/// Longest vector of the allreduce by recursive doubling (MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE).
const ALLREDUCE_SHORT: u64 = 2_048;
/// Result of an allgather by Bruck's algorithm (MPIR_CVAR_ALLGATHER_SHORT_MSG_SIZE), exclusive.
const ALLGATHER_SHORT: u64 = 81_920;
/// Result of an allgather by recursive doubling (MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE), exclusive.
const ALLGATHER_LONG: u64 = 524_288;
/// Longest block of the alltoall by Bruck's algorithm (MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE).
const ALLTOALL_SHORT: u64 = 256;
/// Ranks below which no alltoall goes by Bruck's algorithm.
const BRUCK_MIN_RANKS: u32 = 8;
/// Length of a number: a vector of fewer numbers than ranks is not scattered.
const NUMBER_BYTES: u64 = 8;

impl CollectiveSpec {
    /// An operation on this size, with the algorithm that MPICH chooses.
    pub const fn new(operation: Operation, size: Bytes) -> Self {
        CollectiveSpec { operation, size, algorithm: None }
    }

    /// The schedule among the leaders of `nodes` nodes with `per_node` processes each: blocks of
    /// processes are combined to blocks of nodes. Random sizes are drawn with `seed`.
    ///
    /// # Errors
    /// [`CollectiveError`] if the algorithm does not implement the operation, or not for this number
    /// of nodes or processes, or if a node's data exceed 2^60 bytes.
    pub fn schedule(
        &self,
        nodes: u32,
        per_node: u32,
        seed: u64,
    ) -> Result<Schedule, CollectiveError> {
        let algorithm = self.algorithm.unwrap_or_else(|| self.algorithm_of_mpich(nodes, per_node));
        self.check(algorithm, nodes, per_node)?;
        let (bytes, processes) = (self.size.0, u64::from(per_node));
        let sizes = match self.operation {
            Operation::Barrier => Sizes::Equal(0),
            Operation::Broadcast | Operation::Reduce | Operation::Allreduce => Sizes::Parts(bytes),
            Operation::Allgather => Sizes::Equal(bytes * processes),
            Operation::Alltoall => Sizes::Equal(bytes * processes * processes),
            Operation::Alltoallv => Sizes::Random { mean: bytes * processes * processes, seed },
            Operation::PingPong | Operation::Stream | Operation::RingExchange => {
                Sizes::Equal(bytes)
            }
        };
        let doubling = nodes.is_power_of_two() && bytes < BROADCAST_LONG;
        Ok(Schedule::new(self.operation, algorithm, nodes, sizes, doubling))
    }

    fn check(
        &self,
        algorithm: Algorithm,
        nodes: u32,
        per_node: u32,
    ) -> Result<(), CollectiveError> {
        const MAX_NODE_BYTES: u128 = 1 << 60;
        let known = self.operation.algorithms();
        if !known.contains(&algorithm) {
            let names: Vec<&str> = known.iter().map(|a| a.name()).collect();
            return Err(CollectiveError(format!(
                "{algorithm} does not implement {}; use {}",
                self.operation,
                names.join(" or ")
            )));
        }
        let doubles =
            (self.operation, algorithm) == (Operation::Allgather, Algorithm::RecursiveDoubling);
        if doubles && !nodes.is_power_of_two() {
            return Err(CollectiveError(format!(
                "recursive doubling implements allgather on 2^k nodes only, not on {nodes}; use \
                 bruck or ring"
            )));
        }
        if self.operation.is_point_to_point() && (nodes < 2 || per_node != 1) {
            return Err(CollectiveError(format!(
                "{} is between one process each of at least two nodes, not of {nodes} with \
                 {per_node} processes each",
                self.operation
            )));
        }
        let per_node = u128::from(per_node);
        if u128::from(self.size.0) * per_node * per_node * u128::from(nodes) > MAX_NODE_BYTES {
            return Err(CollectiveError(format!(
                "{} of {}: the data of a node exceed 2^60 bytes; use a smaller size",
                self.operation, self.size
            )));
        }
        Ok(())
    }

    /// The algorithm that MPICH chooses.
    fn algorithm_of_mpich(&self, nodes: u32, per_node: u32) -> Algorithm {
        let bytes = self.size.0;
        // A vector that is scattered has at least a number for each rank.
        let scatters = bytes / NUMBER_BYTES >= 1 << nodes.max(1).ilog2();
        match self.operation {
            Operation::Barrier => Algorithm::Dissemination,
            Operation::Broadcast if bytes < BROADCAST_SHORT || nodes < BROADCAST_MIN_RANKS => {
                Algorithm::BinomialTree
            }
            Operation::Broadcast => Algorithm::ScatterAllgather,
            Operation::Reduce if bytes <= REDUCE_SHORT || !scatters => Algorithm::BinomialTree,
            Operation::Reduce => Algorithm::Rabenseifner,
            Operation::Allreduce if bytes <= ALLREDUCE_SHORT || !scatters => {
                Algorithm::RecursiveDoubling
            }
            Operation::Allreduce => Algorithm::Rabenseifner,
            Operation::Allgather => {
                let result = bytes.saturating_mul(u64::from(per_node) * u64::from(nodes));
                match nodes.is_power_of_two() {
                    true if result < ALLGATHER_LONG => Algorithm::RecursiveDoubling,
                    false if result < ALLGATHER_SHORT => Algorithm::Bruck,
                    true | false => Algorithm::Ring,
                }
            }
            Operation::Alltoall if bytes <= ALLTOALL_SHORT && nodes >= BRUCK_MIN_RANKS => {
                Algorithm::Bruck
            }
            Operation::Alltoall | Operation::Alltoallv => Algorithm::Pairwise,
            Operation::PingPong | Operation::Stream | Operation::RingExchange => Algorithm::Direct,
        }
    }
}
