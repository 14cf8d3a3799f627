//! The last link of a packet, and its delivery.

use super::Fabric;
use crate::event::{NetContext, NetEvent};
use crate::packet::Packet;
use crate::packet_table::PacketId;
use crate::port::Ready;
use crate::probe::Grant;
use forebay_engine::Picoseconds;
use forebay_machine_file::machine::LinkClass;

/// The delivery of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The packet.
    pub packet: Packet,
    /// Time at which its last bit reaches the node, ps.
    pub at: Picoseconds,
}

impl Fabric {
    /// Announces deliveries of packets of a kind when they get their last link, with the time at which
    /// they will be complete: for kinds to whose arrival no node reacts. That saves an event each. From
    /// first-in first-out buffers packets also go to their nodes when credits return: none are announced.
    pub fn announce_deliveries(&mut self, kind: u8) {
        if self.inputs.is_none() {
            self.announced_kinds |= 1 << kind;
        }
    }

    /// Takes a packet whose last bit reaches its node at time `at` out of the fabric.
    pub(super) fn deliver(&mut self, id: PacketId, at: u64) -> Delivery {
        let mut packet = self.packets.remove(id);
        packet.dst = self.topology.node_of_interface(packet.dst);
        self.deliveries[usize::from(packet.kind() != 0)].count_packet(&packet, at);
        Delivery { packet, at }
    }

    /// Sends a packet to its node, which accepts all packets. Returns it if its delivery is announced.
    #[inline(always)]
    pub(super) fn eject(
        &mut self,
        index: usize,
        id: PacketId,
        ready: Ready,
        context: &mut impl NetContext,
    ) -> Option<Delivery> {
        let packet = &self.packets[id];
        let (bytes, class, kind) = (packet.bytes, packet.class(), packet.kind());
        let (start, end) = self.grant(index, ready.head, bytes, class);
        if self.probe.is_some() {
            let grant = Grant { ready: ready.head, start, end, now: context.now() };
            self.observe_link(index, None, &{ self.packets[id] }, grant);
        }
        self.ports.count_ejection_wait(index, ready.head, start);
        let left = ready.tail.max(end);
        self.send_credit(id, left, context);
        let at = left + self.costs[LinkClass::Node as usize].latency;
        if self.announced_kinds & (1 << kind) != 0 {
            return Some(self.deliver(id, at));
        }
        let key = NetEvent::KEY_DELIVERY + u32::from(self.ports[index].peer);
        context.push_event(at, key, NetEvent::Delivery(id));
        None
    }
}
