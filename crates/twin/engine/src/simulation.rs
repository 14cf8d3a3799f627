//! A model of partitions, and its clock.

use crate::run::Run;
use crate::{Picoseconds, Queue};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A part of the model with state of its own, reached by others through messages only.
pub trait Partition: Send {
    /// What happens inside; at most 48 bytes fit a cache line together with time and key.
    type Event: Copy + Send;
    /// What crosses to another partition.
    type Message: Send;

    /// Runs one event.
    fn handle(&mut self, event: Self::Event, context: &mut Context<'_, Self>);

    /// Takes a message that was sent to this partition, to act at time `at`; usually by
    /// putting an event into the queue. `at` is not before the next window's start.
    fn receive(&mut self, at: Picoseconds, message: Self::Message, queue: &mut Queue<Self::Event>);

    /// A hint that `event` will be handled soon: fetch what it needs into the cache.
    #[inline]
    fn prefetch(&self, event: &Self::Event) {
        let _ = event;
    }
}

/// What an event can do to the world: its time, its partition's queue, messages to others.
pub struct Context<'a, P: Partition + ?Sized> {
    /// Time of the event being handled.
    pub now: Picoseconds,
    /// The partition's own queue.
    pub queue: &'a mut Queue<P::Event>,
    /// Number of this partition.
    pub partition: u32,
    pub(crate) window_end: Picoseconds,
    /// One list a thread.
    pub(crate) outbox: &'a mut [Vec<OutgoingMessage<P::Message>>],
    /// Which thread runs a partition.
    pub(crate) owner: &'a [u32],
}

impl<P: Partition + ?Sized> Context<'_, P> {
    /// Sends a message to partition `to` (not to this one), to act at time `at`.
    ///
    /// # Panics
    /// When `at` lies within the present window: the model then promised a lookahead that it
    /// does not keep.
    #[inline]
    pub fn send(&mut self, to: u32, at: Picoseconds, message: P::Message) {
        assert!(
            at >= self.window_end,
            "message from partition {} to {to} for {at} ps, inside the window that ends at {} ps",
            self.partition,
            self.window_end
        );
        let thread = self.owner[to as usize];
        self.outbox[thread as usize].push(OutgoingMessage { to, at, message });
    }
}

/// A message on its way to partition `to`.
pub(crate) struct OutgoingMessage<M> {
    pub to: u32,
    pub at: Picoseconds,
    pub message: M,
}

/// Told about the progress of a run from time to time, by one of its threads.
pub trait Progress: Sync {
    /// Simulated time reached and events executed so far. `false` ends the run early.
    fn update(&self, now: Picoseconds, events: u64) -> bool;
}

/// Tells nobody.
pub struct NoProgress;

impl Progress for NoProgress {
    fn update(&self, _: Picoseconds, _: u64) -> bool {
        true
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Events executed.
    pub events: u64,
    /// Messages between partitions.
    pub messages: u64,
    /// Windows.
    pub windows: u64,
    /// Time of the last event executed.
    pub last_event: Picoseconds,
}

/// A partition with its queue and clock.
pub(crate) struct PartitionCell<P: Partition> {
    pub state: P,
    pub queue: Queue<P::Event>,
    pub events: u64,
    pub last_event: Picoseconds,
    /// Events since the last rebalancing.
    pub recent: u64,
}

/// A model and its clock.
pub struct Simulation<P: Partition> {
    cells: Vec<Mutex<PartitionCell<P>>>,
    lookahead: Picoseconds,
    threads: usize,
    statistics: Statistics,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock means that a thread panicked; the panic itself is passed on at the join.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<P: Partition> Simulation<P> {
    /// A simulation of `partitions`, each message between which takes at least `lookahead`,
    /// on at most `threads` threads.
    ///
    /// # Panics
    /// When `lookahead` is 0: no window would ever end.
    pub fn new(partitions: Vec<P>, lookahead: Picoseconds, threads: usize) -> Self {
        assert!(lookahead > 0, "a lookahead of 0 ps");
        let threads = threads.clamp(1, partitions.len().max(1));
        let cell = |state| {
            Mutex::new(PartitionCell {
                state,
                queue: Queue::default(),
                events: 0,
                last_event: 0,
                recent: 0,
            })
        };
        Simulation {
            cells: partitions.into_iter().map(cell).collect(),
            lookahead,
            threads,
            statistics: Statistics::default(),
        }
    }

    /// State and queue of every partition in turn, to insert the first events or read results.
    pub fn for_each_partition(&mut self, mut visit: impl FnMut(u32, &mut P, &mut Queue<P::Event>)) {
        for (index, cell) in (0..).zip(&mut self.cells) {
            let cell = cell.get_mut().unwrap_or_else(PoisonError::into_inner);
            visit(index, &mut cell.state, &mut cell.queue);
        }
    }

    /// Runs until no event is left, or until `progress` asks for an end.
    pub fn run(&mut self, progress: &dyn Progress) -> Statistics {
        let (windows, messages) =
            Run::new(&self.cells, self.lookahead, self.threads).run_to_end(progress);
        self.statistics.windows += windows;
        self.statistics.messages += messages;
        self.statistics.events = 0;
        for cell in &mut self.cells {
            let cell = cell.get_mut().unwrap_or_else(PoisonError::into_inner);
            self.statistics.events += cell.events;
            self.statistics.last_event = self.statistics.last_event.max(cell.last_event);
        }
        self.statistics
    }

    /// The partitions' states.
    pub fn into_partitions(self) -> Vec<P> {
        let state = |cell: Mutex<PartitionCell<P>>| {
            cell.into_inner()
                .unwrap_or_else(PoisonError::into_inner)
                .state
        };
        self.cells.into_iter().map(state).collect()
    }
}
