//! Events of a group's fabric, and messages between the fabrics of different groups.

use crate::packet::Packet;
use crate::packet_table::PacketId;
use forebay_engine::{Context, Queue};

/// An event of the fabric.
#[derive(Clone, Copy, Debug)]
pub enum NetEvent {
    /// A packet's head reaches a router.
    Arrival(PacketId),
    /// A packet's tail reaches its destination node.
    Delivery(PacketId),
    /// The credits of a batch are due.
    Credits(u16),
    /// A single credit (port and channel, bytes) is due that fitted no batch.
    LateCredit(u32, u32),
}

impl NetEvent {
    /// Keys of the fabric's events, which order events of the same time by kind and port.
    pub(crate) const KEY_CREDITS: u32 = 0;
    pub(crate) const KEY_ARRIVAL: u32 = 1 << 28;
    pub(crate) const KEY_DELIVERY: u32 = 2 << 28;
    /// Event keys from here on are free for the model around the fabric.
    pub const FIRST_FREE_KEY: u32 = 4 << 28;
}

/// A message from one group's fabric to another's.
#[derive(Clone, Copy, Debug)]
pub enum NetMessage {
    /// A packet on a rank-3 link.
    Packet(Packet),
    /// A credit (port and channel, bytes) for a packet that crossed a rank-3 link.
    Credit(u32, u32),
}

/// The queue of the model around a fabric.
pub(crate) trait NetQueue {
    fn push_event(&mut self, at: u64, key: u32, event: NetEvent);

    /// Inserts the arrival of a packet over a link, which is the one at output port `port`.
    #[inline]
    fn push_arrival(&mut self, at: u64, port: usize, packet: PacketId) {
        self.push_event(at, NetEvent::KEY_ARRIVAL + port as u32, NetEvent::Arrival(packet));
    }
}

/// The context in which the model around a fabric runs its events.
pub(crate) trait NetContext: NetQueue {
    fn now(&self) -> u64;

    /// Sends a message to another group's fabric.
    fn send_message(&mut self, group: u16, at: u64, message: NetMessage);
}

impl<E: Copy + From<NetEvent>> NetQueue for Queue<E> {
    #[inline]
    fn push_event(&mut self, at: u64, key: u32, event: NetEvent) {
        self.push(at, key, event.into());
    }
}

impl<E: Copy + From<NetEvent>, M> NetQueue for Context<'_, E, M> {
    #[inline]
    fn push_event(&mut self, at: u64, key: u32, event: NetEvent) {
        self.queue.push_event(at, key, event);
    }
}

impl<E: Copy + From<NetEvent>, M: From<NetMessage>> NetContext for Context<'_, E, M> {
    #[inline]
    fn now(&self) -> u64 {
        self.now
    }

    #[inline]
    fn send_message(&mut self, group: u16, at: u64, message: NetMessage) {
        self.send(group.into(), at, message.into());
    }
}
