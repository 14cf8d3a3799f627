//! The rounds of the algorithms.

use super::schedule::{Blocks, Step, Transfer};

/// Rounds of a tree: the logarithm of the number of ranks, rounded up.
pub(super) fn levels(ranks: u32) -> u32 {
    ranks.next_power_of_two().ilog2()
}

/// The greatest power of two that is at most the number of ranks.
pub(super) fn power_of_two_below(ranks: u32) -> u32 {
    1 << ranks.max(1).ilog2()
}

fn range(first: u32, count: u32) -> Blocks {
    Blocks::Range { first, count }
}

fn exchange(to: (u32, Blocks), from: (u32, Blocks)) -> Step {
    let end = |(peer, blocks)| Some(Transfer { peer, blocks });
    Step { send: end(to), receive: end(from), combines: false }
}

fn sends(peer: u32, blocks: Blocks) -> Step {
    Step { send: Some(Transfer { peer, blocks }), ..Step::default() }
}

fn receives(peer: u32, blocks: Blocks) -> Step {
    Step { receive: Some(Transfer { peer, blocks }), ..Step::default() }
}

/// Ranks 2^k away in both directions, in round k.
fn neighbours(rank: u32, ranks: u32, distance: u32) -> (u32, u32) {
    ((rank + distance) % ranks, (rank + ranks - distance) % ranks)
}

pub(super) fn dissemination(rank: u32, ranks: u32, round: u32) -> Step {
    let (to, from) = neighbours(rank, ranks, 1 << round);
    exchange((to, Blocks::NONE), (from, Blocks::NONE))
}

/// From rank 0 down a binomial tree: the whole vector, or to each subtree its part.
pub(super) fn from_root(rank: u32, ranks: u32, round: u32, scatters: bool) -> Step {
    let width = 1 << (levels(ranks) - 1 - round);
    let blocks = |child: u32| match scatters {
        true => range(child, width.min(ranks - child)),
        false => range(0, 1),
    };
    if rank.is_multiple_of(2 * width) && rank + width < ranks {
        sends(rank + width, blocks(rank + width))
    } else if rank % (2 * width) == width {
        receives(rank - width, blocks(rank))
    } else {
        Step::default()
    }
}

/// Up a binomial tree to rank 0: the whole vector, which is combined, or the parts of the subtree.
pub(super) fn gather_to_root(rank: u32, ranks: u32, round: u32, gathers: bool) -> Step {
    let width = 1 << round;
    let blocks = |child: u32| match gathers {
        true => range(child, width.min(ranks - child)),
        false => range(0, 1),
    };
    if rank % (2 * width) == width {
        sends(rank - width, blocks(rank))
    } else if rank.is_multiple_of(2 * width) && rank + width < ranks {
        Step { combines: !gathers, ..receives(rank + width, blocks(rank + width)) }
    } else {
        Step::default()
    }
}

/// The whole vector is exchanged with the rank that differs in one bit.
pub(super) fn exchange_all(rank: u32, round: u32) -> Step {
    let peer = rank ^ (1 << round);
    Step { combines: true, ..exchange((peer, range(0, 1)), (peer, range(0, 1))) }
}

/// Each rank of 2^k has the blocks of those that differ in lower bits only, and exchanges them.
pub(super) fn doubling(rank: u32, round: u32) -> Step {
    let width = 1 << round;
    let own = |rank: u32| range(rank & !(width - 1), width);
    let peer = rank ^ width;
    exchange((peer, own(rank)), (peer, own(peer)))
}

/// Two ranks of 2^k that differ in one bit, and have been given the same part of the vector, send each
/// other half of it, to be combined there.
pub(super) fn halving(rank: u32, ranks: u32, round: u32) -> Step {
    let width = ranks >> (round + 1);
    let half = |rank: u32| range(rank & !(width - 1), width);
    let peer = rank ^ width;
    Step { combines: true, ..exchange((peer, half(peer)), (peer, half(rank))) }
}

/// An algorithm of 2^k ranks on any number: each of the first odd ranks gives its vector to the even
/// rank before it, which takes part for both, and gets the result at the end if `returns`.
pub(super) fn folded(
    rank: u32,
    ranks: u32,
    round: u32,
    returns: bool,
    parts: u32,
    step: impl Fn(u32, u32) -> Step,
) -> Step {
    let rest = ranks - power_of_two_below(ranks);
    if rest == 0 {
        return step(rank, round);
    }
    let all = range(0, parts);
    let is_folded = rank < 2 * rest && rank % 2 == 1;
    let has_folded = rank < 2 * rest && rank.is_multiple_of(2);
    let inner = power_of_two_below(ranks).ilog2();
    // The inner algorithm has one or two passes over the bits.
    let passes = if returns && parts == 1 { 1 } else { 2 };
    if round == 0 {
        return match (is_folded, has_folded) {
            (true, _) => sends(rank - 1, all),
            (_, true) => Step { combines: true, ..receives(rank + 1, all) },
            (false, false) => Step::default(),
        };
    }
    if returns && round == 1 + passes * inner {
        return match (is_folded, has_folded) {
            (true, _) => receives(rank - 1, all),
            (_, true) => sends(rank + 1, all),
            (false, false) => Step::default(),
        };
    }
    if is_folded {
        return Step::default();
    }
    let number = if has_folded { rank / 2 } else { rank - rest };
    let rank_of = |number: u32| if number < rest { 2 * number } else { number + rest };
    let mut step = step(number, round - 1);
    for end in [&mut step.send, &mut step.receive].into_iter().flatten() {
        end.peer = rank_of(end.peer);
    }
    step
}

/// To the next rank, block by block backwards; the first is the own one or the `ahead`-th after it.
pub(super) fn ring(rank: u32, ranks: u32, round: u32, ahead: u32) -> Step {
    let (next, previous) = neighbours(rank, ranks, 1);
    let block = |back: u32| range((rank + ahead + 2 * ranks - back) % ranks, 1);
    exchange((next, block(round)), (previous, block(round + 1)))
}

/// All blocks that a rank has, as far as they are missing there, go to the rank 2^k before.
pub(super) fn bruck_allgather(rank: u32, ranks: u32, round: u32) -> Step {
    let distance = 1 << round;
    let (after, before) = neighbours(rank, ranks, distance);
    let count = distance.min(ranks - distance);
    exchange((before, range(rank, count)), (after, range(after, count)))
}

/// All blocks with a way to go that has bit k go 2^k ranks further.
pub(super) fn bruck_alltoall(rank: u32, ranks: u32, round: u32) -> Step {
    let (to, from) = neighbours(rank, ranks, 1 << round);
    exchange((to, Blocks::WithBit(round)), (from, Blocks::WithBit(round)))
}

pub(super) fn pairwise(rank: u32, ranks: u32, round: u32) -> Step {
    let distance = round + 1;
    let (to, from) = neighbours(rank, ranks, distance);
    exchange((to, range(distance, 1)), (from, range(distance, 1)))
}

/// The same place in the other half of the ranks, and whether the rank is in the first half. The last
/// of an odd number has no partner.
fn partner(rank: u32, ranks: u32) -> Option<(u32, bool)> {
    let half = ranks / 2;
    match rank {
        _ if rank < half => Some((rank + half, true)),
        _ if rank < 2 * half => Some((rank - half, false)),
        _ => None,
    }
}

/// To the second half of the ranks, then back.
pub(super) fn ping_pong(rank: u32, ranks: u32, round: u32) -> Step {
    match partner(rank, ranks) {
        Some((partner, is_first)) if is_first == (round == 0) => sends(partner, range(0, 1)),
        Some((partner, _)) => receives(partner, range(0, 1)),
        None => Step::default(),
    }
}

/// `messages` messages to the second half of the ranks, then one without data back.
pub(super) fn stream(rank: u32, ranks: u32, round: u32, messages: u32) -> Step {
    let is_answer = round == messages;
    let blocks = if is_answer { Blocks::NONE } else { range(0, 1) };
    match partner(rank, ranks) {
        Some((partner, is_first)) if is_first != is_answer => sends(partner, blocks),
        Some((partner, _)) => receives(partner, blocks),
        None => Step::default(),
    }
}

/// To the next rank and from the previous one, then the other way round.
pub(super) fn ring_exchange(rank: u32, ranks: u32, round: u32) -> Step {
    let (next, previous) = neighbours(rank, ranks, 1);
    let (to, from) = if round == 0 { (next, previous) } else { (previous, next) };
    exchange((to, range(0, 1)), (from, range(0, 1)))
}
