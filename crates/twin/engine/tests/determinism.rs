//! Any number of threads gives results that are equal to the bit.

use forebay_engine::{Context, Partition, Picoseconds, Queue, Simulation, Statistics};
use forebay_random::mix;

const PARTITIONS: u32 = 13;
const LOOKAHEAD: u64 = 100_000;

/// A partition whose events create events in its own and in other partitions, with a state that
/// depends on their order.
struct Cascade {
    state: u64,
    visits: u64,
}

impl Partition for Cascade {
    type Event = u32;
    type Message = u32;

    fn handle(&mut self, left: u32, context: &mut Context<'_, Self::Event, Self::Message>) {
        self.state = mix(self.state ^ context.now ^ (u64::from(left) << 40));
        self.visits += 1;
        if left == 0 {
            return;
        }
        // Coarse times, so that many events coincide.
        let delay = (self.state % 16) * 50_000;
        let to = (self.state >> 8) as u32 % PARTITIONS;
        if to == context.partition || !self.state.is_multiple_of(3) {
            let key = (self.state >> 20) as u32 % 4;
            context.queue.push(context.now + delay, key, left - 1);
        } else {
            context.send(to, context.now + LOOKAHEAD + delay, left - 1);
        }
        if self.state.is_multiple_of(5) {
            context.queue.push(context.now + 20 * delay + 1, 0, left / 2);
        }
    }

    fn receive(&mut self, at: Picoseconds, left: u32, queue: &mut Queue<u32>) {
        queue.push(at, 9, left);
    }
}

fn cascades(threads: usize) -> Simulation<Cascade> {
    let cascades = (0..PARTITIONS).map(|p| Cascade { state: mix(p.into()), visits: 0 }).collect();
    let mut simulation = Simulation::new(cascades, LOOKAHEAD, threads);
    simulation.for_each_partition(|p, _, queue| {
        for i in 0..20 {
            queue.push(u64::from(p % 3) * 1_000, i, 100 + i);
        }
    });
    simulation
}

fn states(simulation: Simulation<Cascade>) -> Vec<(u64, u64)> {
    simulation.into_partitions().iter().map(|t| (t.state, t.visits)).collect()
}

fn run(threads: usize) -> (Vec<(u64, u64)>, Statistics) {
    let mut simulation = cascades(threads);
    let statistics = simulation.run(&|_, _| true);
    (states(simulation), statistics)
}

#[test]
fn any_number_of_threads_gives_equal_results() {
    let (states, statistics) = run(1);
    // Long enough to try both modes of sharing the work: epochs have 256 windows.
    assert!(statistics.messages > 10_000, "{statistics:?}");
    assert!(statistics.windows > 3 * 256, "{statistics:?}");
    for threads in [2, 3, 13] {
        assert_eq!(run(threads), (states.clone(), statistics), "{threads} threads");
    }
}

/// Sends messages one picosecond too early.
struct TooEarly;

impl Partition for TooEarly {
    type Event = ();
    type Message = ();
    fn handle(&mut self, (): (), context: &mut Context<'_, Self::Event, Self::Message>) {
        context.send(1 - context.partition, context.now + LOOKAHEAD - 1, ());
    }
    fn receive(&mut self, at: Picoseconds, (): (), queue: &mut Queue<()>) {
        queue.push(at, 0, ());
    }
}

#[test]
fn message_inside_the_window_panics_and_releases_all_threads() {
    for threads in [1, 2] {
        let outcome = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(vec![TooEarly, TooEarly], LOOKAHEAD, threads);
            simulation.for_each_partition(|p, _, queue| {
                if p == 1 {
                    queue.push(0, 0, ());
                }
            });
            simulation.run(&|_, _| true);
        });
        assert!(outcome.is_err(), "{threads} threads");
    }
}

/// A copy at any time goes on as the simulation itself, and both as if there had been no stop.
#[test]
fn copies_and_stops_do_not_change_results() {
    let whole = run(1);
    for (until, threads) in [(0, 1), (350_000, 2), (40_000_000, 1), (40_000_001, 3)] {
        let mut simulation = cascades(threads);
        let before = simulation.run_until(until, &|_, _| true);
        assert!(before.last_event <= until && before.events < whole.1.events, "{before:?}");
        let mut copy = simulation.fork(3, |cascade| Cascade { ..*cascade });
        let results = [simulation.run(&|_, _| true), copy.run(&|_, _| true)];
        assert_eq!(results, [whole.1; 2], "until {until}");
        for simulation in [simulation, copy] {
            assert_eq!(states(simulation), whole.0, "until {until}");
        }
    }
}
