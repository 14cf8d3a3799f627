//! The packets of one group's fabric, and the queues of those that wait for credits.
//!
//! A packet stays in its slot from its first link to its delivery, or until it leaves the group.
//! Events refer to it by its number, so that it is not copied from hop to hop.

use crate::packet::Packet;
use crate::port::{NONE, Ready};
use forebay_engine::prefetch;
use std::ops::{Index, IndexMut};

/// Number of a packet in its group's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketId(u32);

/// A packet. One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Slot {
    packet: Packet,
    /// The next packet of the queue in which this one waits, or the next unused slot.
    next: u32,
    /// For a packet that waits: times from which it could depart.
    ready: Ready,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// A queue: its first and its last packet; without packets, neither has a meaning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitingQueue {
    first: u32,
    last: u32,
}

/// The packets of one group.
#[derive(Clone)]
pub(crate) struct PacketTable {
    slots: Vec<Slot>,
    /// First of the list of unused slots. The most recently used is reused first: it is in the cache.
    unused: u32,
}

impl PacketTable {
    pub fn new() -> Self {
        PacketTable { slots: Vec::new(), unused: NONE }
    }

    /// Puts a packet into the table.
    #[inline]
    pub fn insert(&mut self, packet: Packet) -> PacketId {
        let id = self.unused;
        if let Some(slot) = self.slots.get_mut(id as usize) {
            self.unused = slot.next;
            slot.packet = packet;
            return PacketId(id);
        }
        self.add_slot(packet)
    }

    #[cold]
    fn add_slot(&mut self, packet: Packet) -> PacketId {
        let id = self.slots.len() as u32;
        assert!(id != NONE, "more than 2^32 - 1 packets in one group");
        self.slots.push(Slot { packet, next: NONE, ready: Ready { head: 0, tail: 0 } });
        PacketId(id)
    }

    /// Takes a packet out of the table.
    #[inline]
    pub fn remove(&mut self, id: PacketId) -> Packet {
        let slot = &mut self.slots[id.0 as usize];
        slot.next = self.unused;
        self.unused = id.0;
        slot.packet
    }

    /// Prefetches a packet.
    #[inline]
    pub fn prefetch(&self, id: PacketId) {
        prefetch(&self.slots[id.0 as usize]);
    }

    /// Appends a packet to a queue, which has none before if it `is_empty`.
    #[inline]
    pub fn push_back(
        &mut self,
        queue: &mut WaitingQueue,
        is_empty: bool,
        id: PacketId,
        ready: Ready,
    ) {
        self.slots[id.0 as usize].ready = ready;
        if is_empty {
            queue.first = id.0;
        } else {
            self.slots[queue.last as usize].next = id.0;
        }
        queue.last = id.0;
    }

    /// The first packet of a queue that is not empty, and the times from which it could depart.
    #[inline]
    pub fn first(&self, queue: &WaitingQueue) -> (PacketId, Ready) {
        (PacketId(queue.first), self.slots[queue.first as usize].ready)
    }

    /// Prefetches the first packet of a queue that is not empty.
    #[inline]
    pub fn prefetch_first(&self, queue: &WaitingQueue) {
        self.prefetch(PacketId(queue.first));
    }

    /// Drops the first packet of a queue that is not empty from it, not from the table; returns
    /// whether it was the last one.
    #[inline]
    pub fn pop_front(&mut self, queue: &mut WaitingQueue) -> bool {
        let first = queue.first;
        queue.first = self.slots[first as usize].next;
        first == queue.last
    }
}

impl Index<PacketId> for PacketTable {
    type Output = Packet;

    #[inline]
    fn index(&self, id: PacketId) -> &Packet {
        &self.slots[id.0 as usize].packet
    }
}

impl IndexMut<PacketId> for PacketTable {
    #[inline]
    fn index_mut(&mut self, id: PacketId) -> &mut Packet {
        &mut self.slots[id.0 as usize].packet
    }
}
