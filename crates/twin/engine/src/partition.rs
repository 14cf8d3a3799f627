//! Partitions of a model, and the context in which their events run.

use crate::queue::{Ahead, Queue};
use crate::time::Picoseconds;

/// A part of the model with state of its own, reached by others through messages only.
pub trait Partition: Send {
    /// Events within the partition; 16 bytes take half a cache line together with time and key.
    type Event: Copy + Send;
    /// Messages to other partitions.
    type Message: Send;

    /// Runs one event.
    fn handle(&mut self, event: Self::Event, context: &mut Context<'_, Self::Event, Self::Message>);

    /// Accepts a message sent to this partition that takes effect at time `at`, usually by
    /// inserting an event into the queue. `at` is not before the next window's start.
    fn receive(&mut self, at: Picoseconds, message: Self::Message, queue: &mut Queue<Self::Event>);

    /// A hint that `event` will be handled soon: prefetches the data it needs into the cache.
    #[inline]
    fn prefetch(&self, event: &Self::Event, ahead: Ahead) {
        let _ = (event, ahead);
    }
}

/// The context of an event: the clock, the partition's queue, messages to other partitions.
pub struct Context<'a, E, M> {
    /// Time of the event being handled.
    pub now: Picoseconds,
    /// The partition's own queue.
    pub queue: &'a mut Queue<E>,
    /// Number of this partition.
    pub partition: u32,
    pub(crate) window_end: Picoseconds,
    /// One list per thread.
    pub(crate) outbox: &'a mut [Vec<OutgoingMessage<M>>],
    /// The thread that runs each partition.
    pub(crate) owner: &'a [u32],
}

impl<E, M> Context<'_, E, M> {
    /// Sends a message to partition `to` (another than this one), to take effect at time `at`.
    ///
    /// # Panics
    /// If `at` lies within the current window: the model violates its lookahead.
    #[inline]
    pub fn send(&mut self, to: u32, at: Picoseconds, message: M) {
        assert!(
            at >= self.window_end,
            "message from partition {} to {to} for {at} ps, inside the window that ends at {} ps",
            self.partition,
            self.window_end
        );
        debug_assert!(to != self.partition, "message from partition {to} to itself");
        let thread = self.owner[to as usize];
        self.outbox[thread as usize].push(OutgoingMessage { to, at, message });
    }
}

/// A message in flight to partition `to`.
pub(crate) struct OutgoingMessage<M> {
    pub to: u32,
    pub at: Picoseconds,
    pub message: M,
}
