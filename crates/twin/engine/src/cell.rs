//! A partition with its queue and clock, shared by the threads of a run.

use crate::partition::Partition;
use crate::queue::Queue;
use crate::time::Picoseconds;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A partition with its queue and clock.
pub(crate) struct PartitionCell<P: Partition> {
    pub state: P,
    pub queue: Queue<P::Event>,
    /// Events executed.
    pub events: u64,
    /// Time of the last event executed.
    pub last_event: Picoseconds,
    /// Events since the last rebalancing.
    pub recent: u64,
}

impl<P: Partition> PartitionCell<P> {
    pub fn new(state: P) -> Self {
        PartitionCell { state, queue: Queue::default(), events: 0, last_event: 0, recent: 0 }
    }

    /// A copy, with a copy of the state.
    pub fn fork(&self, copy: impl FnOnce(&P) -> P) -> Self {
        let PartitionCell { queue, events, last_event, recent, .. } = self;
        PartitionCell {
            state: copy(&self.state),
            queue: queue.clone(),
            events: *events,
            last_event: *last_event,
            recent: *recent,
        }
    }
}

/// Locks a mutex whose poisoning is irrelevant: it means that a thread panicked, and that panic is
/// propagated when the thread is joined.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
