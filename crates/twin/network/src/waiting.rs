//! Packets that wait for credits, in one queue for each channel of each output port.

use crate::packet::Packet;
use crate::port::{NONE, Ready};

/// A packet that waits for credits. One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct WaitingPacket {
    pub packet: Packet,
    next: u32,
    pub ready: Ready,
}

const _: () = assert!(size_of::<WaitingPacket>() == 64);

/// A queue: its first and its last packet; without packets, neither has a meaning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitingQueue {
    first: u32,
    last: u32,
}

/// The queues' storage.
pub(crate) struct WaitingPackets {
    slots: Vec<WaitingPacket>,
    /// First of the list of unused slots.
    unused: u32,
}

impl WaitingPackets {
    pub fn new() -> Self {
        WaitingPackets { slots: Vec::new(), unused: NONE }
    }

    /// Appends a packet to a queue, which has none before if it `is_empty`.
    pub fn push_back(
        &mut self,
        queue: &mut WaitingQueue,
        is_empty: bool,
        packet: Packet,
        ready: Ready,
    ) {
        let waiting = WaitingPacket { packet, next: NONE, ready };
        let slot = self.unused;
        let slot = if let Some(unused) = self.slots.get_mut(slot as usize) {
            self.unused = unused.next;
            *unused = waiting;
            slot
        } else {
            self.slots.push(waiting);
            self.slots.len() as u32 - 1
        };
        if is_empty {
            queue.first = slot;
        } else {
            self.slots[queue.last as usize].next = slot;
        }
        queue.last = slot;
    }

    /// The first packet of a queue that is not empty.
    #[inline]
    pub fn first(&self, queue: &WaitingQueue) -> &WaitingPacket {
        &self.slots[queue.first as usize]
    }

    /// Drops the first packet of a queue that is not empty; returns whether it was the last one.
    pub fn pop_front(&mut self, queue: &mut WaitingQueue) -> bool {
        let slot = queue.first;
        let next = std::mem::replace(&mut self.slots[slot as usize].next, self.unused);
        self.unused = slot;
        queue.first = next;
        slot == queue.last
    }
}
