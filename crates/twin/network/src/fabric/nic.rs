//! Network interfaces of nodes: messages in, packets out.

use super::{Fabric, KEY_ARRIVAL, NetEvent};
use crate::packet::Packet;
use crate::port::Upstream;
use forebay_engine::{Context, Partition, Picoseconds};
use forebay_machine_file::machine::LinkClass;
use std::collections::VecDeque;

/// Messages that a node's interface holds of each kind before [`Fabric::room`] is 0.
const NIC_MESSAGES: usize = 256;

/// A message for a node's interface to send.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Receiving node.
    pub to: u32,
    /// Length.
    pub bytes: u64,
    /// Written on each of its packets.
    pub tag: u64,
    /// What it is, 0 to 15; written on each of its packets.
    pub kind: u8,
    /// When it was made, ps: latencies count from here.
    pub born: Picoseconds,
}

/// Interface of one node: messages to send, control messages before bulk data.
#[derive(Default)]
pub(super) struct Nic {
    pub(super) control: VecDeque<Message>,
    pub(super) bulk: VecDeque<Message>,
}

impl Fabric {
    /// Messages of either kind that the interface of a node (number within the group) takes.
    pub fn free_message_slots(&self, local: u16) -> usize {
        let nic = &self.nics[usize::from(local)];
        NIC_MESSAGES.saturating_sub(nic.control.len().max(nic.bulk.len()))
    }

    /// Hands a message to the interface of `node`, which is in this group. Messages of one
    /// packet go before longer ones.
    #[inline]
    pub fn send<P>(&mut self, node: u32, message: Message, context: &mut Context<'_, P>)
    where
        P: Partition,
        P::Event: From<NetEvent>,
    {
        let place = self.topology.location(node);
        debug_assert!(place.group == self.group && message.bytes > 0);
        let nic = &mut self.nics[usize::from(place.local)];
        let short = message.bytes <= u64::from(self.packet_bytes);
        let (queue, ahead) = if short {
            (&mut nic.control, nic.bulk.len())
        } else {
            (&mut nic.bulk, nic.control.len())
        };
        let index = usize::from(self.topology.routers()) * usize::from(self.topology.ports)
            + usize::from(place.local);
        // Nothing is ahead and there are credits: no need to queue.
        if short
            && queue.is_empty()
            && ahead == 0
            && u64::from(self.ports[index].channels[0].credits) >= message.bytes
        {
            self.emit(index, place.local, &message, message.bytes as u32, context);
            return;
        }
        queue.push_back(message);
        self.inject_packets(place.local, context);
    }

    /// Sends packets of a node's messages as far as there are credits.
    pub(super) fn inject_packets<P>(&mut self, local: u16, context: &mut Context<'_, P>)
    where
        P: Partition,
        P::Event: From<NetEvent>,
    {
        let index = self.first_nic() + usize::from(local);
        let waiting = |nic: &Nic| nic.control.len().max(nic.bulk.len());
        let full = waiting(&self.nics[usize::from(local)]) >= NIC_MESSAGES;
        loop {
            let nic = &mut self.nics[usize::from(local)];
            let queue = if nic.control.is_empty() {
                &mut nic.bulk
            } else {
                &mut nic.control
            };
            let Some(message) = queue.front_mut() else {
                break;
            };
            let bytes = message.bytes.min(self.packet_bytes.into()) as u32;
            if self.ports[index].channels[0].credits < bytes {
                break;
            }
            message.bytes -= u64::from(bytes);
            let message = *message;
            if message.bytes == 0 {
                queue.pop_front();
            }
            self.emit(index, local, &message, bytes, context);
        }
        if full && waiting(&self.nics[usize::from(local)]) < NIC_MESSAGES {
            self.drained.push(local);
        }
    }

    /// Puts one packet of a message on the link from a node to its router; there are credits.
    fn emit<P>(
        &mut self,
        index: usize,
        local: u16,
        message: &Message,
        bytes: u32,
        context: &mut Context<'_, P>,
    ) where
        P: Partition,
        P::Event: From<NetEvent>,
    {
        let node = self.topology.nodes_of_group(self.group)[usize::from(local)];
        let port = &mut self.ports[index];
        let cost = self.costs[port.class as usize];
        port.channels[0].credits -= bytes;
        port.occupied += bytes;
        port.max_occupied = port.max_occupied.max(port.occupied);
        let start = context.now.max(port.free_at);
        let time = cost.serialization(bytes);
        port.free_at = start + time;
        port.bytes += u64::from(bytes);
        self.traffic[usize::from(message.kind != 0)].injected_bytes += u64::from(bytes);
        self.timeline.add(start, port.class as usize, bytes.into());
        let mut packet = Packet::new(
            node,
            message.to,
            bytes,
            message.tag,
            message.born,
            message.kind,
        );
        packet.router = self.topology.location(node).router;
        packet.credit_to = Upstream::near(index, LinkClass::Node, 0).0;
        packet.tail_lag = time as u32;
        let event = NetEvent::Arrival(packet);
        context.queue.push(
            start + cost.latency,
            KEY_ARRIVAL + index as u32,
            event.into(),
        );
    }
}
