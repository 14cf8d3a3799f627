//! The messages of a collective operation, by rank and round.

use super::operation::{Algorithm, Operation, STREAM_MESSAGES};
use super::rounds;
use forebay_random::{hash, stream_label};

/// Blocks of the data of an operation. Their meaning depends on the algorithm: the parts of a
/// vector, the ranks' contributions, or in an alltoall the block for the rank that many ranks further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// This many from the first on, modulo their number.
    Range {
        /// The first.
        first: u32,
        /// Their number.
        count: u32,
    },
    /// All whose number has this bit.
    WithBit(u32),
}

impl Blocks {
    /// No data.
    pub(super) const NONE: Blocks = Blocks::Range { first: 0, count: 0 };

    /// The numbers of the blocks, of `parts` in all.
    pub fn numbers(self, parts: u32) -> impl Iterator<Item = u32> {
        (0..parts).filter(move |&block| match self {
            Blocks::Range { first, count } => (block + parts - first) % parts < count,
            Blocks::WithBit(bit) => block >> bit & 1 == 1,
        })
    }

    fn count(self, parts: u32) -> u64 {
        match self {
            Blocks::Range { count, .. } => count.into(),
            Blocks::WithBit(bit) => {
                let (parts, half) = (u64::from(parts), 1u64 << bit);
                parts / (2 * half) * half + (parts % (2 * half)).saturating_sub(half)
            }
        }
    }
}

/// One end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The rank at the other end.
    pub peer: u32,
    /// The data.
    pub blocks: Blocks,
}

/// The actions of a rank in a round: it sends and receives at most one message. A message is sent and
/// received in the same round. A round without messages takes no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The message sent.
    pub send: Option<Transfer>,
    /// The message received.
    pub receive: Option<Transfer>,
    /// The received blocks are combined with the rank's own; otherwise they replace them.
    pub combines: bool,
}

/// Sizes of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Parts of a vector of this length, which differ by at most a byte.
    Parts(u64),
    /// All of this size.
    Equal(u64),
    /// From 0 to twice the mean.
    Random { mean: u64, seed: u64 },
}

/// The messages of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    operation: Operation,
    algorithm: Algorithm,
    ranks: u32,
    sizes: Sizes,
    /// The allgather of a broadcast goes by recursive doubling, not round a ring.
    doubling: bool,
}

impl Schedule {
    pub(super) fn new(
        operation: Operation,
        algorithm: Algorithm,
        ranks: u32,
        sizes: Sizes,
        doubling: bool,
    ) -> Self {
        assert!(ranks > 0, "a collective operation of no ranks");
        Schedule { operation, algorithm, ranks, sizes, doubling }
    }

    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Ranks that take part.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Blocks into which the data are divided.
    pub fn parts(&self) -> u32 {
        match (self.operation, self.algorithm) {
            (Operation::Barrier, _)
            | (_, Algorithm::BinomialTree | Algorithm::Direct)
            | (Operation::Allreduce, Algorithm::RecursiveDoubling) => 1,
            (_, Algorithm::Rabenseifner) => rounds::power_of_two_below(self.ranks),
            (
                Operation::Broadcast
                | Operation::Reduce
                | Operation::Allreduce
                | Operation::Allgather
                | Operation::Alltoall
                | Operation::Alltoallv
                | Operation::PingPong
                | Operation::Stream
                | Operation::RingExchange,
                _,
            ) => self.ranks,
        }
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u32 {
        let ranks = self.ranks;
        let levels = rounds::levels(ranks);
        let halvings = rounds::power_of_two_below(ranks).ilog2();
        let folds = if ranks.is_power_of_two() { 0 } else { 1 };
        match (self.algorithm, self.operation) {
            (Algorithm::Dissemination | Algorithm::BinomialTree | Algorithm::Bruck, _) => levels,
            (Algorithm::ScatterAllgather, _) if self.doubling => 2 * levels,
            (Algorithm::ScatterAllgather, _) => levels + ranks - 1,
            (Algorithm::RecursiveDoubling, Operation::Allreduce) => halvings + 2 * folds,
            (Algorithm::RecursiveDoubling, _) => levels,
            (Algorithm::Rabenseifner, Operation::Allreduce) => 2 * halvings + 2 * folds,
            (Algorithm::Rabenseifner, _) => 2 * halvings + folds,
            (Algorithm::Ring, Operation::Allreduce) => 2 * (ranks - 1),
            (Algorithm::Ring | Algorithm::Pairwise, _) => ranks - 1,
            (Algorithm::Direct, Operation::Stream) => STREAM_MESSAGES + 1,
            (Algorithm::Direct, _) => 2,
        }
    }

    /// The messages of `rank` in a round.
    ///
    /// # Panics
    /// If there is no such rank or round.
    pub fn step(&self, rank: u32, round: u32) -> Step {
        let ranks = self.ranks;
        assert!(rank < ranks && round < self.rounds(), "round {round} of rank {rank}: {self:?}");
        match (self.algorithm, self.operation) {
            (Algorithm::Dissemination, _) => rounds::dissemination(rank, ranks, round),
            (Algorithm::BinomialTree, Operation::Reduce) => {
                rounds::gather_to_root(rank, ranks, round, false)
            }
            (Algorithm::BinomialTree, _) => rounds::from_root(rank, ranks, round, false),
            (Algorithm::ScatterAllgather, _) => match round.checked_sub(rounds::levels(ranks)) {
                None => rounds::from_root(rank, ranks, round, true),
                Some(round) if self.doubling => rounds::doubling(rank, round),
                Some(round) => rounds::ring(rank, ranks, round, 0),
            },
            (Algorithm::RecursiveDoubling, Operation::Allreduce) => {
                rounds::folded(rank, ranks, round, true, 1, |rank, round| {
                    rounds::exchange_all(rank, round)
                })
            }
            (Algorithm::RecursiveDoubling, _) => rounds::doubling(rank, round),
            (Algorithm::Rabenseifner, Operation::Allreduce) => {
                let parts = self.parts();
                rounds::folded(rank, ranks, round, true, parts, |rank, round| {
                    match round.checked_sub(parts.ilog2()) {
                        None => rounds::halving(rank, parts, round),
                        Some(round) => rounds::doubling(rank, round),
                    }
                })
            }
            (Algorithm::Rabenseifner, _) => {
                let parts = self.parts();
                rounds::folded(rank, ranks, round, false, parts, |rank, round| {
                    match round.checked_sub(parts.ilog2()) {
                        None => rounds::halving(rank, parts, round),
                        Some(round) => rounds::gather_to_root(rank, parts, round, true),
                    }
                })
            }
            (Algorithm::Ring, Operation::Allreduce) => match round.checked_sub(ranks - 1) {
                None => Step { combines: true, ..rounds::ring(rank, ranks, round, 0) },
                Some(round) => rounds::ring(rank, ranks, round, 1),
            },
            (Algorithm::Ring, _) => rounds::ring(rank, ranks, round, 0),
            (Algorithm::Bruck, Operation::Allgather) => rounds::bruck_allgather(rank, ranks, round),
            (Algorithm::Bruck, _) => rounds::bruck_alltoall(rank, ranks, round),
            (Algorithm::Pairwise, _) => rounds::pairwise(rank, ranks, round),
            (Algorithm::Direct, Operation::Stream) => {
                rounds::stream(rank, ranks, round, STREAM_MESSAGES)
            }
            (Algorithm::Direct, Operation::RingExchange) => {
                rounds::ring_exchange(rank, ranks, round)
            }
            (Algorithm::Direct, _) => rounds::ping_pong(rank, ranks, round),
        }
    }

    /// Bytes of blocks that rank `from` sends.
    pub fn bytes(&self, from: u32, blocks: Blocks) -> u64 {
        let parts = self.parts();
        match self.sizes {
            Sizes::Equal(bytes) => bytes * blocks.count(parts),
            Sizes::Parts(bytes) => {
                let Blocks::Range { first, count } = blocks else {
                    unreachable!("parts of a vector are sent as ranges: {self:?}")
                };
                let start =
                    |part: u32| (u128::from(bytes) * u128::from(part) / u128::from(parts)) as u64;
                let end = first + count;
                let wrapped = if end > parts { start(end - parts) } else { 0 };
                start(end.min(parts)) - start(first) + wrapped
            }
            Sizes::Random { mean, seed } => {
                let size = |block: u32| {
                    let to = (from + block) % self.ranks;
                    let pair = (u64::from(from) << 32) | u64::from(to);
                    hash(seed, stream_label("alltoallv"), pair) % (2 * mean + 1)
                };
                blocks.numbers(parts).map(size).sum()
            }
        }
    }

    /// Bytes that a rank sends in all rounds.
    pub fn bytes_sent_by(&self, rank: u32) -> u64 {
        let sent = (0..self.rounds()).filter_map(|round| self.step(rank, round).send);
        sent.map(|send| self.bytes(rank, send.blocks)).sum()
    }
}
