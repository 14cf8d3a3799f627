//! The event queue, in given cases and against the simplest correct one.

use forebay_engine::Queue;
use forebay_random::RandomSequence;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

fn pop_before<E: Copy>(queue: &mut Queue<E>, end: u64) -> Option<(u64, E)> {
    queue.pop_before(end, |_, _| ())
}

#[test]
fn equal_times_run_by_key_then_by_insertion() {
    let mut queue = Queue::default();
    for (key, event) in [(7, 'a'), (3, 'b'), (7, 'c'), (3, 'd')] {
        queue.push(5_000, key, event);
    }
    let mut order = String::new();
    while let Some((time, event)) = pop_before(&mut queue, u64::MAX) {
        assert_eq!(time, 5_000);
        order.push(event);
    }
    assert_eq!(order, "bdac");
}

#[test]
fn pop_stops_at_the_end_of_the_window() {
    let mut queue = Queue::default();
    queue.push(1_000, 0, 1);
    queue.push(1_500, 0, 2);
    queue.push(9_000_000_000, 0, 3);
    assert_eq!(pop_before(&mut queue, 1_500), Some((1_000, 1)));
    assert_eq!(pop_before(&mut queue, 1_500), None);
    assert_eq!(queue.next_time(), 1_500);
    assert_eq!(pop_before(&mut queue, 1_501), Some((1_500, 2)));
    assert_eq!(pop_before(&mut queue, 9_000_000_000), None);
    assert_eq!(queue.next_time(), 9_000_000_000);
    assert_eq!(pop_before(&mut queue, u64::MAX), Some((9_000_000_000, 3)));
    assert!(queue.is_empty());
}

/// Runs `count` events, each of which inserts another one up to `delay` ps later, and compares their
/// order with that of a heap. Times are multiples of 100 ps, so that some are equal.
fn run_chain(queue: &mut Queue<u64>, start: u64, count: u64, delay: u64) -> u64 {
    let mut oracle = BinaryHeap::new();
    let mut random = RandomSequence::new(delay);
    let mut push = |queue: &mut Queue<u64>, oracle: &mut BinaryHeap<_>, now: u64, number: u64| {
        let time = now / 100 * 100 + 100 + u64::from(random.below((delay / 100) as u32)) * 100;
        let key = random.below(3);
        queue.push(time, key, number);
        oracle.push(Reverse((time, key, number)));
    };
    for number in 0..200 {
        push(queue, &mut oracle, start, number);
    }
    let mut now = start;
    for number in 200..200 + count {
        let Some(Reverse((time, _, expected))) = oracle.pop() else { panic!("no event left") };
        assert_eq!(pop_before(queue, u64::MAX), Some((time, expected)), "event {number}");
        now = time;
        push(queue, &mut oracle, now, number);
    }
    while let Some(Reverse((time, _, expected))) = oracle.pop() {
        assert_eq!(pop_before(queue, u64::MAX), Some((time, expected)));
        now = time;
    }
    now
}

/// Mean distances of events of 50 ps, 5 ns and 500 ns: buckets of all widths.
#[test]
fn order_stays_exact_while_the_width_of_buckets_follows_the_density() {
    let mut queue = Queue::default();
    let mut now = 0;
    for delay in [20_000, 200_000_000, 2_000_000, 20_000, 200_000_000] {
        now = run_chain(&mut queue, now, 40_000, delay);
    }
    assert!(queue.is_empty());
}

/// The simplest correct queue: a list that is searched for its least element.
#[derive(Default)]
struct Oracle(Vec<(u64, u32, usize)>);

impl Oracle {
    fn pop_before(&mut self, end: u64) -> Option<(u64, usize)> {
        let (at, _) = self.0.iter().enumerate().min_by_key(|(_, e)| **e)?;
        if self.0[at].0 >= end {
            return None;
        }
        let (time, _, event) = self.0.remove(at);
        Some((time, event))
    }
}

proptest! {
    /// Near, far, in the open slot, at equal times.
    #[test]
    fn random_pushes_and_pops_agree_with_the_oracle(
        steps in prop::collection::vec((0u64..5, 0u64..80_000_000, 0u32..3, 0u64..40_000_000), 1..200)
    ) {
        let mut queue = Queue::default();
        let mut oracle = Oracle::default();
        let (mut now, mut window, mut inserted) = (0, 0, 0);
        for (what, delay, key, length) in steps {
            let mut push = |queue: &mut Queue<usize>, oracle: &mut Oracle, time| {
                inserted += 1;
                queue.push(time, key, inserted);
                oracle.0.push((time, key, inserted));
            };
            let delay = match what {
                0 => delay,
                1 => delay % 3_000,
                2 => 0,
                _ => delay % 100_000,
            };
            if what < 4 {
                push(&mut queue, &mut oracle, now.max(window) + delay);
            } else {
                window = now.max(window) + length;
                loop {
                    let got = pop_before(&mut queue, window);
                    prop_assert_eq!(got, oracle.pop_before(window));
                    let Some((time, event)) = got else { break };
                    now = time;
                    if event % 3 == 0 {
                        push(&mut queue, &mut oracle, now + delay % 5_000 + 1);
                    }
                }
            }
            prop_assert_eq!(queue.len(), oracle.0.len());
            let earliest = oracle.0.iter().map(|e| e.0).min().unwrap_or(u64::MAX);
            prop_assert_eq!(queue.next_time(), earliest);
        }
    }
}
