//! Events of a group's fabric, and messages between the fabrics of different groups.

use crate::packet::Packet;

/// An event of the fabric.
#[derive(Clone, Copy, Debug)]
pub enum NetEvent {
    /// A packet's head reaches a router.
    Arrival(Packet),
    /// A packet's tail reaches its destination node.
    Delivery(Packet),
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
