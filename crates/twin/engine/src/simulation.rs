//! A model and its clock.

use crate::cell::{PartitionCell, lock};
use crate::partition::Partition;
use crate::queue::Queue;
use crate::run::{Progress, Run};
use crate::time::Picoseconds;
use std::sync::{Mutex, PoisonError};

/// Counts of a run.
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

/// A model and its clock.
pub struct Simulation<P: Partition> {
    cells: Vec<Mutex<PartitionCell<P>>>,
    lookahead: Picoseconds,
    threads: usize,
    statistics: Statistics,
}

impl<P: Partition> Simulation<P> {
    /// A simulation of `partitions` on at most `threads` threads. Each message between partitions
    /// takes at least `lookahead`.
    ///
    /// # Panics
    /// If `lookahead` is 0: no window would ever end.
    pub fn new(partitions: Vec<P>, lookahead: Picoseconds, threads: usize) -> Self {
        assert!(lookahead > 0, "a lookahead of 0 ps");
        let threads = threads.clamp(1, partitions.len().max(1));
        let cell = |state| Mutex::new(PartitionCell::new(state));
        Simulation {
            cells: partitions.into_iter().map(cell).collect(),
            lookahead,
            threads,
            statistics: Statistics::default(),
        }
    }

    /// Calls `visit` with number, state and queue of every partition in turn, to insert the first
    /// events or read results.
    pub fn for_each_partition(&mut self, mut visit: impl FnMut(u32, &mut P, &mut Queue<P::Event>)) {
        for (index, cell) in (0..).zip(&mut self.cells) {
            let cell = cell.get_mut().unwrap_or_else(PoisonError::into_inner);
            visit(index, &mut cell.state, &mut cell.queue);
        }
    }

    /// A copy at the same time on at most `threads` threads, with the copies of the partitions' states that
    /// `copy` makes. Both go on independently of each other.
    pub fn fork(&self, threads: usize, copy: impl Fn(&P) -> P) -> Self {
        let cells = self.cells.iter().map(|cell| Mutex::new(lock(cell).fork(&copy)));
        Simulation {
            cells: cells.collect(),
            lookahead: self.lookahead,
            threads: threads.clamp(1, self.cells.len().max(1)),
            statistics: self.statistics,
        }
    }

    /// Counts of the runs so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Runs until no event is left, or until `progress` stops the run.
    pub fn run(&mut self, progress: Progress<'_>) -> Statistics {
        self.run_until(Picoseconds::MAX, progress)
    }

    /// Runs the windows that end by the time `until`, as [`Simulation::run`] does: no event at `until` or later
    /// has run, and events may be inserted for `until` and later times, with the same results as if they had
    /// been inserted before.
    pub fn run_until(&mut self, until: Picoseconds, progress: Progress<'_>) -> Statistics {
        let run = Run::new(&self.cells, self.lookahead, self.threads, until);
        let (windows, messages) = run.run_to_end(progress);
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
            let cell = cell.into_inner().unwrap_or_else(PoisonError::into_inner);
            cell.state
        };
        self.cells.into_iter().map(state).collect()
    }
}
