//! Any number of threads gives the same results to the bit.

use forebay_engine::{Context, NoProgress, Partition, Picoseconds, Queue, Simulation, Statistics};

const PARTITIONS: u32 = 13;
const LOOKAHEAD: u64 = 100_000;

/// Events that beget events at home and abroad, with a state that depends on their order.
struct Town {
    state: u64,
    visits: u64,
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Partition for Town {
    type Event = u32;
    type Message = u32;

    fn handle(&mut self, left: u32, context: &mut Context<'_, Self>) {
        self.state = mix(self.state ^ context.now ^ (u64::from(left) << 40));
        self.visits += 1;
        if left == 0 {
            return;
        }
        // Coarse times, so that many events fall together.
        let delay = (self.state % 16) * 50_000;
        let to = (self.state >> 8) as u32 % PARTITIONS;
        if to == context.partition || !self.state.is_multiple_of(3) {
            let key = (self.state >> 20) as u32 % 4;
            context.queue.push(context.now + delay, key, left - 1);
        } else {
            context.send(to, context.now + LOOKAHEAD + delay, left - 1);
        }
        if self.state.is_multiple_of(5) {
            context
                .queue
                .push(context.now + 20 * delay + 1, 0, left / 2);
        }
    }

    fn receive(&mut self, at: Picoseconds, left: u32, queue: &mut Queue<u32>) {
        queue.push(at, 9, left);
    }
}

fn run(threads: usize) -> (Vec<(u64, u64)>, Statistics) {
    let towns = (0..PARTITIONS)
        .map(|p| Town {
            state: mix(p.into()),
            visits: 0,
        })
        .collect();
    let mut simulation = Simulation::new(towns, LOOKAHEAD, threads);
    simulation.for_each_partition(|p, _, queue| {
        for i in 0..20 {
            queue.push(u64::from(p % 3) * 1_000, i, 100 + i);
        }
    });
    let statistics = simulation.run(&NoProgress);
    (
        simulation
            .into_partitions()
            .iter()
            .map(|t| (t.state, t.visits))
            .collect(),
        statistics,
    )
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (states, statistics) = run(1);
    // Long enough for both ways of sharing the work to be tried: epochs have 256 windows.
    assert!(statistics.messages > 10_000, "{statistics:?}");
    assert!(statistics.windows > 3 * 256, "{statistics:?}");
    for threads in [2, 3, 13] {
        assert_eq!(
            run(threads),
            (states.clone(), statistics),
            "{threads} threads"
        );
    }
}

struct Hasty;

impl Partition for Hasty {
    type Event = ();
    type Message = ();
    fn handle(&mut self, (): (), context: &mut Context<'_, Self>) {
        context.send(1 - context.partition, context.now + LOOKAHEAD - 1, ());
    }
    fn receive(&mut self, at: Picoseconds, (): (), queue: &mut Queue<()>) {
        queue.push(at, 0, ());
    }
}

#[test]
fn a_message_inside_the_window_is_refused_and_no_thread_is_left_waiting() {
    for threads in [1, 2] {
        let outcome = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(vec![Hasty, Hasty], LOOKAHEAD, threads);
            simulation.for_each_partition(|p, _, queue| {
                if p == 1 {
                    queue.push(0, 0, ());
                }
            });
            simulation.run(&NoProgress);
        });
        assert!(outcome.is_err(), "{threads} threads");
    }
}
