//! Packets.

use crate::nic::{Message, MessageClass};

/// The route of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Route {
    /// None yet: the packet has not reached its first router.
    Unrouted,
    /// The shortest path.
    Minimal,
    /// A path over another group or another router.
    Detour,
}

/// A packet. 44 bytes, so that a packet and its place in a queue share a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Packet {
    /// Sending node.
    pub src: u32,
    /// Receiving node; while the packet is in the fabric, its interface.
    pub dst: u32,
    tag: [u32; 2],
    born: [u32; 2],
    /// Length in bytes.
    pub bytes: u32,
    /// Time from head to tail on the link last crossed, ps.
    pub(crate) tail_lag: u32,
    /// Destination of its credit: output port behind it and virtual channel (see `Upstream`).
    pub(crate) credit_to: u32,
    /// Current router within its group.
    pub(crate) router: u16,
    /// Router at the end of the current leg.
    pub(crate) target: u16,
    /// Port to take at `target`, or [`INTERMEDIATE`].
    pub(crate) exit: u8,
    /// Legs completed: the virtual channel it travels on.
    pub(crate) leg: u8,
    /// Router-to-router links crossed.
    pub hops: u8,
    /// Low four bits: the sender's kind; then the route in two bits, the class in one, and whether a packet
    /// that waits behind others begins a leg at its router.
    flags: u8,
}

/// In place of an exit port: the leg ends at an intermediate router, where another leg begins.
pub(crate) const INTERMEDIATE: u8 = u8::MAX;

impl Packet {
    /// A packet of a message from node `src`, at its sender.
    pub(crate) fn new(src: u32, bytes: u32, message: &Message) -> Self {
        let Message { to: dst, tag, born, kind, class, .. } = *message;
        debug_assert!(kind < 16, "packet kind {kind}");
        Packet {
            src,
            dst,
            tag: [tag as u32, (tag >> 32) as u32],
            born: [born as u32, (born >> 32) as u32],
            bytes,
            tail_lag: 0,
            credit_to: 0,
            router: 0,
            target: 0,
            exit: 0,
            leg: 0,
            hops: 0,
            flags: kind | ((class as u8) << 6),
        }
    }

    /// The sender's tag.
    #[inline]
    pub fn tag(&self) -> u64 {
        (u64::from(self.tag[1]) << 32) | u64::from(self.tag[0])
    }

    /// Time at which its message was created, ps.
    #[inline]
    pub fn born(&self) -> u64 {
        (u64::from(self.born[1]) << 32) | u64::from(self.born[0])
    }

    /// The sender's kind of message, 0 to 15.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.flags & 15
    }

    /// The class of its message.
    #[inline]
    pub fn class(&self) -> MessageClass {
        if self.flags & 0x40 == 0 { MessageClass::Request } else { MessageClass::Response }
    }

    /// Its route.
    #[inline]
    pub fn route(&self) -> Route {
        match (self.flags >> 4) & 3 {
            0 => Route::Unrouted,
            1 => Route::Minimal,
            _ => Route::Detour,
        }
    }

    /// Whether it has no route yet.
    #[inline]
    pub(crate) fn is_unrouted(&self) -> bool {
        self.flags & 0x30 == 0
    }

    /// Whether a packet that waits behind others of its buffer begins a leg at its router.
    pub(crate) fn begins_leg(&self) -> bool {
        self.flags & 0x80 != 0
    }

    pub(crate) fn set_begins_leg(&mut self, begins_leg: bool) {
        self.flags = (self.flags & !0x80) | (u8::from(begins_leg) << 7);
    }

    #[inline]
    pub(crate) fn set_route(&mut self, route: Route) {
        self.flags = (self.flags & !0x30) | ((route as u8) << 4);
    }
}
