//! Packets that wait for credits, in one queue for each channel of each output port.

use crate::packet::Packet;
use crate::port::{Channel, NONE, Ready};

/// A packet that waits for credits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingPacket {
    pub packet: Packet,
    next: u32,
    pub ready: Ready,
}

/// The queues' storage. A channel's queue is a ring whose last element the channel names.
pub(crate) struct WaitingPackets {
    slots: Vec<WaitingPacket>,
    /// First of the list of unused slots.
    unused: u32,
}

impl WaitingPackets {
    pub fn new() -> Self {
        WaitingPackets { slots: Vec::new(), unused: NONE }
    }

    /// Appends a packet to a channel's queue.
    pub fn push_back(&mut self, channel: &mut Channel, packet: Packet, ready: Ready) {
        let mut waiting = WaitingPacket { packet, next: NONE, ready };
        let slot = if self.unused == NONE { self.slots.len() as u32 } else { self.unused };
        if channel.tail == NONE {
            waiting.next = slot;
        } else {
            let tail = &mut self.slots[channel.tail as usize];
            waiting.next = tail.next;
            tail.next = slot;
        }
        if self.unused == NONE {
            self.slots.push(waiting);
        } else {
            let unused = &mut self.slots[slot as usize];
            self.unused = unused.next;
            *unused = waiting;
        }
        channel.tail = slot;
    }

    /// Takes the first packet of a channel's queue if the channel has credits for it.
    pub fn pop_sendable(&mut self, channel: &mut Channel) -> Option<WaitingPacket> {
        if channel.tail == NONE {
            return None;
        }
        let head = self.slots[channel.tail as usize].next;
        let waiting = self.slots[head as usize];
        if channel.credits < waiting.packet.bytes {
            return None;
        }
        self.slots[head as usize].next = self.unused;
        self.unused = head;
        if head == channel.tail {
            channel.tail = NONE;
        } else {
            self.slots[channel.tail as usize].next = waiting.next;
        }
        Some(waiting)
    }
}
