//! First-in first-out input buffers.
//!
//! A packet with credits passes the switch to the queue of its output at once: the switch is no limit. One
//! without credits stays at the head of its buffer, and the packets that arrive in it later wait behind
//! it. They have chosen their paths when they arrived, but count in no output's queue before they are first.

use super::Fabric;
use crate::event::NetContext;
use crate::packet_table::{PacketId, WaitingQueue};
use crate::port::{CHANNELS, Ready, Upstream};

/// The buffers of a link, one for each channel.
#[derive(Clone, Default)]
struct LinkBuffers {
    /// One bit for each buffer whose first packet waits for credits.
    blocked: u16,
    /// One bit for each of these in which others wait behind it.
    filled: u16,
    /// The packets behind the first.
    queues: [WaitingQueue; CHANNELS],
}

/// The input buffers of one group's routers, by the port of the link (see [`Upstream`]).
#[derive(Clone)]
pub(super) struct InputBuffers {
    links: Vec<LinkBuffers>,
}

impl InputBuffers {
    pub fn new(ports: usize) -> Self {
        InputBuffers { links: vec![LinkBuffers::default(); ports] }
    }

    /// Lets the packets that arrive in a buffer wait: its first one has no credits.
    pub fn block(&mut self, buffer: Upstream) {
        self.links[buffer.port()].blocked |= 1 << buffer.channel();
    }

    pub fn is_idle(&self) -> bool {
        self.links.iter().all(|link| link.blocked == 0 && link.filled == 0)
    }
}

impl Fabric {
    // Neither function is inlined: with queues for each output, the default, none of both runs.

    /// Whether a packet that has arrived waits behind the first of its buffer.
    #[inline(never)]
    pub(super) fn waits_behind(&mut self, id: PacketId, ready: Ready, begins_leg: bool) -> bool {
        let packet = &mut self.packets[id];
        packet.set_begins_leg(begins_leg);
        let buffer = Upstream(packet.credit_to);
        let Some(inputs) = &mut self.inputs else { return false };
        let link = &mut inputs.links[buffer.port()];
        let bit = 1 << buffer.channel();
        if link.blocked & bit == 0 {
            return false;
        }
        let is_empty = link.filled & bit == 0;
        link.filled |= bit;
        self.packets.push_back(&mut link.queues[buffer.channel()], is_empty, id, ready);
        true
    }

    /// Forwards the packets of a buffer, whose first one has left, up to one without credits.
    #[inline(never)]
    pub(super) fn forward_next(&mut self, buffer: Upstream, context: &mut impl NetContext) {
        let bit = 1 << buffer.channel();
        if let Some(inputs) = &mut self.inputs {
            inputs.links[buffer.port()].blocked &= !bit;
        }
        while let Some(inputs) = &mut self.inputs
            && let link = &mut inputs.links[buffer.port()]
            && link.filled & bit != 0
            && link.blocked & bit == 0
        {
            let queue = &mut link.queues[buffer.channel()];
            let (id, mut ready) = self.packets.first(queue);
            if self.packets.pop_front(queue) {
                link.filled &= !bit;
            }
            ready.head = ready.head.max(context.now());
            let begins_leg = self.packets[id].begins_leg();
            let delivery = self.forward(id, ready, begins_leg, context);
            debug_assert!(delivery.is_none(), "no deliveries are announced with such buffers");
        }
    }
}
