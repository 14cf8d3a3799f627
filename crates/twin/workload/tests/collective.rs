//! Schedules of collective operations: every rank ends with the data that it should have.

use forebay_units::Bytes;
use forebay_workload::collective::{Algorithm, CollectiveSpec, Operation, Schedule};
use proptest::prelude::*;

/// The contributions in a block: bit r for that of rank r. In an alltoall: bits for sender and
/// receiver.
type Contributions = u128;

fn schedule(operation: Operation, algorithm: Algorithm, ranks: u32, bytes: u64) -> Schedule {
    let spec = CollectiveSpec { operation, size: Bytes(bytes), algorithm: Some(algorithm) };
    spec.schedule(ranks, 1, 7).unwrap()
}

/// The contributions that each rank has before the operation, by block.
fn before(operation: Operation, rank: u32, ranks: u32, parts: u32) -> Vec<Contributions> {
    let of_block = |block: u32| match operation {
        Operation::Barrier | Operation::Reduce | Operation::Allreduce => 1 << rank,
        Operation::PingPong | Operation::Stream | Operation::RingExchange => 1 << rank,
        Operation::Broadcast => Contributions::from(rank == 0),
        Operation::Allgather => {
            if block == rank {
                1 << rank
            } else {
                0
            }
        }
        // The block for the rank that many ranks further.
        Operation::Alltoall | Operation::Alltoallv => {
            1 << rank | 1 << (64 + (rank + block) % ranks)
        }
    };
    (0..parts).map(of_block).collect()
}

/// The contributions that a rank must have in a block after the operation; `None`: any.
fn expected(operation: Operation, rank: u32, ranks: u32, block: u32) -> Option<Contributions> {
    let all = (1 << ranks) - 1;
    match operation {
        Operation::Barrier | Operation::Allreduce => Some(all),
        Operation::Reduce => (rank == 0).then_some(all),
        Operation::Broadcast => Some(1),
        Operation::Allgather => Some(1 << block),
        Operation::Alltoall | Operation::Alltoallv => {
            Some(1 << ((rank + ranks - block) % ranks) | 1 << (64 + rank))
        }
        // The message in flight replaces the receiver's block; see the tests of the messages.
        Operation::PingPong | Operation::Stream | Operation::RingExchange => None,
    }
}

/// Sends all messages of a schedule, and returns the blocks of each rank.
fn perform(schedule: &Schedule) -> Vec<Vec<Contributions>> {
    let (operation, ranks, parts) = (schedule.operation(), schedule.ranks(), schedule.parts());
    let mut data: Vec<_> = (0..ranks).map(|r| before(operation, r, ranks, parts)).collect();
    for round in 0..schedule.rounds() {
        let sent = data.clone();
        let steps: Vec<_> = (0..ranks).map(|rank| schedule.step(rank, round)).collect();
        for (rank, step) in (0..ranks).zip(&steps) {
            if let Some(send) = step.send {
                let there = steps[send.peer as usize].receive.unwrap();
                assert_eq!((there.peer, there.blocks), (rank, send.blocks), "{schedule:?} {round}");
                assert_ne!(send.peer, rank);
            }
            let Some(receive) = step.receive else { continue };
            let theirs = steps[receive.peer as usize].send.unwrap();
            assert_eq!(theirs.peer, rank, "{schedule:?} {round}");
            if operation == Operation::Barrier {
                data[rank as usize][0] |= sent[receive.peer as usize][0];
            }
            for block in receive.blocks.numbers(parts) {
                let (own, other) = (
                    &mut data[rank as usize][block as usize],
                    sent[receive.peer as usize][block as usize],
                );
                if step.combines {
                    assert_eq!(*own & other, 0, "counted twice: {schedule:?} round {round}");
                    *own |= other;
                } else {
                    *own = other;
                }
            }
        }
    }
    data
}

fn check(schedule: &Schedule) {
    let ranks = schedule.ranks();
    for (rank, blocks) in (0..ranks).zip(perform(schedule)) {
        for (block, found) in (0..).zip(blocks) {
            if let Some(expected) = expected(schedule.operation(), rank, ranks, block) {
                assert_eq!(found, expected, "block {block} of rank {rank}: {schedule:?}");
            }
        }
    }
}

fn all_combinations() -> impl Iterator<Item = (Operation, Algorithm)> {
    Operation::ALL.into_iter().flat_map(|o| o.algorithms().iter().map(move |&a| (o, a)))
}

#[test]
fn every_algorithm_gives_every_rank_its_data() {
    for (operation, algorithm) in all_combinations() {
        for ranks in 1..=36u32 {
            let doubles =
                (operation, algorithm) == (Operation::Allgather, Algorithm::RecursiveDoubling);
            let alone = operation.is_point_to_point() && ranks < 2;
            if doubles && !ranks.is_power_of_two() || alone {
                continue;
            }
            // Both ways of the broadcast's allgather.
            for bytes in [8, 1 << 20] {
                check(&schedule(operation, algorithm, ranks, bytes));
            }
        }
    }
}

proptest! {
    #[test]
    fn chosen_algorithm_gives_every_rank_its_data(
        operation in 0usize..7, ranks in 1u32..60, per_node in 1u32..70, bytes in 0u64..2_000_000
    ) {
        let spec = CollectiveSpec::new(Operation::ALL[operation], Bytes(bytes));
        check(&spec.schedule(ranks, per_node, 3).unwrap());
    }

    #[test]
    fn blocks_of_a_message_have_the_sum_of_their_bytes(
        ranks in 1u32..40, bytes in 0u64..100_000, first in 0u32..40, count in 0u32..40
    ) {
        use forebay_workload::collective::Blocks;
        let (first, count) = (first % ranks, count.min(ranks));
        let ring = schedule(Operation::Allreduce, Algorithm::Ring, ranks, bytes);
        let blocks = Blocks::Range { first, count };
        let one = |first| ring.bytes(0, Blocks::Range { first, count: 1 });
        prop_assert_eq!(ring.bytes(0, blocks), blocks.numbers(ranks).map(one).sum::<u64>());
        prop_assert_eq!((0..ranks).map(one).sum::<u64>(), bytes);
        let alltoall = schedule(Operation::Alltoall, Algorithm::Bruck, ranks, bytes);
        let with_bit = Blocks::WithBit(count.min(5));
        let numbers = with_bit.numbers(ranks).count() as u64;
        prop_assert_eq!(alltoall.bytes(0, with_bit), bytes * numbers);
    }
}

#[test]
fn rounds_and_bytes_are_those_of_the_algorithms_analysis() {
    let of = |o, a, ranks, bytes| {
        let schedule = schedule(o, a, ranks, bytes);
        (schedule.rounds(), schedule.bytes_sent_by(0))
    };
    use Algorithm::*;
    use Operation::*;
    // Rounds: log2 n, rounded up.
    assert_eq!(of(Barrier, Dissemination, 8192, 0), (13, 0));
    assert_eq!(of(Barrier, Dissemination, 8193, 0), (14, 0));
    // 2 (n - 1) / n of the vector, in 2 (n - 1) rounds; Rabenseifner's in 2 log2 n.
    assert_eq!(of(Allreduce, Ring, 10, 1_000_000), (18, 1_800_000));
    assert_eq!(of(Allreduce, Rabenseifner, 8, 800_000), (6, 1_400_000));
    // With one rank more than 2^k: one round before, one after, each with the whole vector.
    assert_eq!(of(Allreduce, Rabenseifner, 9, 800_000), (8, 2_200_000));
    assert_eq!(of(Allreduce, RecursiveDoubling, 8, 64), (3, 192));
    assert_eq!(of(Allreduce, RecursiveDoubling, 12, 64), (5, 256));
    // (n - 1) blocks, by all three.
    for algorithm in [RecursiveDoubling, Bruck, Ring] {
        assert_eq!(of(Allgather, algorithm, 16, 100).1, 1_500);
    }
    assert_eq!(of(Alltoall, Pairwise, 12, 1000), (11, 11_000));
    // Half of 16 blocks in each of 4 rounds.
    assert_eq!(of(Alltoall, Bruck, 16, 10), (4, 320));
    assert_eq!(of(Broadcast, BinomialTree, 16, 10), (4, 40));
}

#[test]
fn sizes_of_alltoallv_are_independent_of_direction_and_have_the_mean() {
    let schedule = schedule(Operation::Alltoallv, Algorithm::Pairwise, 50, 1000);
    let sent: u64 = (0..50).map(|rank| schedule.bytes_sent_by(rank)).sum();
    let mean = sent as f64 / (50.0 * 49.0);
    assert!((mean - 1000.0).abs() < 50.0, "{mean}");
    assert_ne!(schedule.bytes_sent_by(0), schedule.bytes_sent_by(1));
}

#[test]
fn algorithms_change_at_the_thresholds_of_mpich() {
    let chosen = |operation, ranks, bytes| {
        CollectiveSpec::new(operation, Bytes(bytes)).schedule(ranks, 1, 1).unwrap().algorithm()
    };
    use Algorithm::*;
    use Operation::*;
    for (operation, ranks, bytes, algorithm) in [
        (Broadcast, 64, 12_287, BinomialTree),
        (Broadcast, 64, 12_288, ScatterAllgather),
        (Broadcast, 7, 1 << 20, BinomialTree),
        (Reduce, 64, 2_048, BinomialTree),
        (Reduce, 64, 2_056, Rabenseifner),
        (Allreduce, 64, 2_048, RecursiveDoubling),
        (Allreduce, 64, 2_056, Rabenseifner),
        // 2,056 bytes are 257 numbers.
        (Allreduce, 512, 2_056, RecursiveDoubling),
        (Allgather, 64, 8_191, RecursiveDoubling),
        (Allgather, 64, 8_192, Ring),
        (Allgather, 10, 8_191, Bruck),
        (Allgather, 10, 8_192, Ring),
        (Alltoall, 64, 256, Bruck),
        (Alltoall, 64, 257, Pairwise),
        (Alltoall, 7, 8, Pairwise),
    ] {
        assert_eq!(chosen(operation, ranks, bytes), algorithm, "{operation} {ranks} {bytes}");
    }
}

/// Peers to which a rank sends and from which it receives, by round.
type Peers = (Option<u32>, Option<u32>);

#[test]
fn point_to_point_messages_go_to_the_partner_or_the_neighbours() {
    let of = |operation, ranks, bytes, rank| {
        let schedule = schedule(operation, Algorithm::Direct, ranks, bytes);
        let step = |round| schedule.step(rank, round);
        let peers = |round| (step(round).send.map(|t| t.peer), step(round).receive.map(|t| t.peer));
        let peers: Vec<Peers> = (0..schedule.rounds()).map(peers).collect();
        (peers, schedule.bytes_sent_by(rank))
    };
    // Five ranks: 0 and 2, 1 and 3; the last is idle.
    let there_and_back = |peer| (vec![(Some(peer), None), (None, Some(peer))], 100);
    assert_eq!(of(Operation::PingPong, 5, 100, 0), there_and_back(2));
    assert_eq!(of(Operation::PingPong, 5, 100, 1), there_and_back(3));
    assert_eq!(of(Operation::PingPong, 5, 100, 3).0, [(None, Some(1)), (Some(1), None)]);
    assert_eq!(of(Operation::PingPong, 5, 100, 4), (vec![(None, None); 2], 0));
    let (peers, sent) = of(Operation::Stream, 2, 100, 0);
    assert_eq!((peers.len(), sent), (65, 6400));
    assert_eq!((peers[63], peers[64]), ((Some(1), None), (None, Some(1))));
    assert_eq!(of(Operation::Stream, 2, 100, 1).1, 0, "an answer without data");
    let ring = of(Operation::RingExchange, 4, 100, 0);
    assert_eq!(ring, (vec![(Some(1), Some(3)), (Some(3), Some(1))], 200));
}

#[test]
fn processes_of_a_node_send_their_blocks_together() {
    let bytes = |operation, per_node| {
        let spec = CollectiveSpec::new(operation, Bytes(1000));
        spec.schedule(4, per_node, 1).unwrap().bytes_sent_by(0)
    };
    assert_eq!(bytes(Operation::Allreduce, 64), bytes(Operation::Allreduce, 1));
    assert_eq!(bytes(Operation::Allgather, 8), 8 * bytes(Operation::Allgather, 1));
    assert_eq!(bytes(Operation::Alltoall, 8), 64 * bytes(Operation::Alltoall, 1));
}

#[test]
fn impossible_combinations_are_refused_with_the_remedy() {
    let error = |operation, algorithm, ranks, size| {
        let spec = CollectiveSpec { operation, size: Bytes(size), algorithm: Some(algorithm) };
        spec.schedule(ranks, 64, 1).unwrap_err().to_string()
    };
    let wrong = error(Operation::Barrier, Algorithm::Ring, 4, 0);
    assert!(wrong.contains("use dissemination"), "{wrong}");
    let odd = error(Operation::Allgather, Algorithm::RecursiveDoubling, 12, 8);
    assert!(odd.contains("use bruck or ring"), "{odd}");
    let long = error(Operation::Alltoall, Algorithm::Pairwise, 1000, 1 << 50);
    assert!(long.contains("smaller size"), "{long}");
    let crowded = error(Operation::PingPong, Algorithm::Direct, 4, 8);
    assert!(crowded.contains("one process each of at least two nodes"), "{crowded}");
    assert!("sum".parse::<Operation>().unwrap_err().to_string().contains("allreduce"));
    assert!("tree".parse::<Algorithm>().unwrap_err().to_string().contains("binomial-tree"));
}
