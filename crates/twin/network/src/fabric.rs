//! The packet fabric of one group: virtual cut-through, credits, one event per hop.
//!
//! A packet's head arrives at a router (one event). The router chooses an output port; if the
//! virtual channel has credits for the whole packet, the link is granted to it immediately, for the
//! moment when the packets granted before are through: departure times are known in advance,
//! so no further event is needed to start or end a transmission. Without credits the packet waits
//! in its input buffer, in a queue of its output channel, until credits return. With first-in first-out
//! buffers ([`inputs`]) those that arrive in this buffer later wait behind it.
//!
//! A packet moves on before its tail has arrived (cut-through). On a link faster than the previous
//! one its flits have gaps between them, which flits of other packets fill: the link is occupied
//! for the packet's length at the link's rate, and the tail follows when it can. The packet's space
//! in the input buffer is free when its tail has left; the credit for it takes the link's latency
//! to travel back. Credits that arrive within the same 2^15 ps (33 ns) are returned together, at
//! the end of that span: one event for many.

mod delivery;
mod inputs;
mod interfaces;
mod observe;
mod returns;

pub use delivery::Delivery;

use crate::credits::CreditBatches;
use crate::event::{NetContext, NetEvent, NetMessage, NetQueue};
use crate::nic::{Message, MessageClass, Nic};
use crate::packet::{INTERMEDIATE, Packet};
use crate::packet_table::{PacketId, PacketTable};
use crate::port::{
    LinkCost, NODE_CHANNELS, PortEnd, REQUEST_CHANNELS, Ready, Upstream, link_costs,
};
use crate::port_table::PortTable;
use crate::probe::{Grant, Probe};
use crate::routing::RoutePlanner;
use crate::statistics::{DeliveryStatistics, LinkStatistics, Timeline};
use crate::topology::Topology;
use forebay_engine::{Ahead, Context, Picoseconds, Queue, prefetch};
use forebay_machine_file::machine::{InputQueues, LinkClass, Network};
use forebay_random::{RandomSequence, stream_label};
use inputs::InputBuffers;
use std::sync::Arc;

/// Routers, links and network interfaces of one group.
#[derive(Clone)]
pub struct Fabric {
    topology: Arc<Topology>,
    network: Arc<Network>,
    costs: [LinkCost; 4],
    group: u16,
    packet_bytes: u32,
    /// Long messages of a class that an interface interleaves.
    interleaved: usize,
    /// Time of a head to pass a router, ps.
    traversal: u64,
    ports: PortTable,
    nics: Vec<Nic>,
    /// Messages of each class that each node has sent, where nodes have several interfaces.
    turns: Vec<[u32; 2]>,
    packets: PacketTable,
    /// First-in first-out input buffers, if the routers have these.
    inputs: Option<Box<InputBuffers>>,
    batches: CreditBatches,
    random: RandomSequence,
    /// Statistics of the packets of kind 0, and of all others.
    pub deliveries: [DeliveryStatistics; 2],
    /// Bytes granted to the links of each class over time (`LinkClass as usize`).
    pub timeline: Timeline<4>,
    /// Nodes (numbers within the group) of which an interface has free slots again after having had
    /// none. The model empties the list after each event.
    pub drained: Vec<u16>,
    /// Observation of single packets, if requested.
    pub probe: Option<Box<Probe>>,
    /// One bit for each kind of packets whose deliveries are announced.
    announced_kinds: u16,
}

/// The least time from any event to its effect in another group, ps: the lookahead.
pub fn lookahead(network: &Network) -> Picoseconds {
    network.global.latency.0
}

impl Fabric {
    /// The fabric of one group; `seed` determines its random choices.
    pub fn new(topology: Arc<Topology>, network: Arc<Network>, group: u16, seed: u64) -> Self {
        let costs = link_costs(&network);
        let interfaces = topology.interfaces_of_group(group);
        let turns = match topology.has_several_interfaces() {
            true => vec![[0; 2]; topology.nodes_of_group(group).len()],
            false => Vec::new(),
        };
        let ports = PortTable::new(&topology, group, &costs);
        let inputs = match network.input_queues {
            InputQueues::VirtualOutput => None,
            InputQueues::Fifo => Some(Box::new(InputBuffers::new(ports.len()))),
        };
        Fabric {
            costs,
            group,
            packet_bytes: network.packet.0 as u32,
            interleaved: network.nic.interleaved_messages as usize,
            traversal: network.router_traversal.0,
            ports,
            inputs,
            nics: interfaces.iter().map(|_| Nic::default()).collect(),
            turns,
            packets: PacketTable::new(),
            batches: CreditBatches::new(),
            random: RandomSequence::of_unit(seed, stream_label("routing"), group.into()),
            deliveries: Default::default(),
            timeline: Timeline::default(),
            drained: Vec::new(),
            probe: None,
            announced_kinds: 0,
            topology,
            network,
        }
    }

    /// The machine's topology.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Statistics of every link from this group's routers and nodes up to `now`.
    pub fn link_statistics(&self, now: Picoseconds) -> Vec<LinkStatistics> {
        self.ports.link_statistics(now, self.group, &self.costs)
    }

    /// Whether nothing is in flight: all credits are back, no packet or message waits.
    pub fn is_idle(&self) -> bool {
        self.ports.is_idle()
            && self.inputs.as_ref().is_none_or(|inputs| inputs.is_idle())
            && self.nics.iter().all(Nic::is_empty)
            && self.probe.as_ref().is_none_or(|probe| probe.is_idle())
    }

    /// Runs an event; returns the packet if it delivers one.
    #[inline]
    pub fn handle<E, M>(
        &mut self,
        event: NetEvent,
        context: &mut Context<'_, E, M>,
    ) -> Option<Delivery>
    where
        E: Copy + From<NetEvent>,
        M: From<NetMessage>,
    {
        match event {
            NetEvent::Arrival(id) => return self.arrive(id, context),
            NetEvent::Credits(slot) => self.return_batch(slot, context),
            NetEvent::LateCredit(place, bytes) => {
                self.return_credit(Upstream(place), bytes, context);
            }
            NetEvent::Delivery(id) => return Some(self.deliver(id, context.now)),
        }
        None
    }

    /// Accepts a message from another group's fabric.
    #[inline]
    pub fn receive<E: Copy + From<NetEvent>>(
        &mut self,
        at: u64,
        message: NetMessage,
        queue: &mut Queue<E>,
    ) {
        match message {
            NetMessage::Packet(packet) => {
                let port = Upstream(packet.credit_to).port();
                queue.push_arrival(at, port, self.packets.insert(packet));
            }
            NetMessage::Credit(place, bytes) => {
                self.batches.add_credit(at, Upstream(place), bytes, queue);
            }
        }
    }

    /// Prefetches the data an event will touch.
    #[inline]
    pub fn prefetch(&self, event: &NetEvent, ahead: Ahead) {
        match (event, ahead) {
            (NetEvent::Arrival(id) | NetEvent::Delivery(id), Ahead::Far) => {
                self.packets.prefetch(*id);
            }
            (NetEvent::Arrival(id), Ahead::Near) => self.prefetch_ports(&self.packets[*id]),
            (NetEvent::Delivery(_) | NetEvent::Credits(_) | NetEvent::LateCredit(..), _) => {}
        }
    }

    /// Prefetches what a packet needs that arrives at a router.
    #[inline]
    fn prefetch_ports(&self, packet: &Packet) {
        if packet.is_unrouted() {
            self.topology.prefetch_near_links((self.group, packet.router), packet.dst);
        } else if packet.router != packet.target {
            let (rank1, rank2) = self.topology.local_ports_toward(packet.router, packet.target);
            prefetch(&self.ports[self.ports.router_port(packet.router, rank1)]);
            prefetch(&self.ports[self.ports.router_port(packet.router, rank2)]);
        } else if packet.exit != INTERMEDIATE {
            prefetch(&self.ports[self.ports.router_port(packet.router, packet.exit)]);
        }
    }

    /// Passes a message to an interface of `node`, which is in this group. The messages of each class
    /// take the interfaces of their sender in turn, and those of their receiver.
    #[inline]
    pub fn send<E, M>(&mut self, node: u32, message: Message, context: &mut Context<'_, E, M>)
    where
        E: Copy + From<NetEvent>,
        M: From<NetMessage>,
    {
        let location = self.topology.location(node);
        debug_assert!(location.group == self.group && message.bytes > 0);
        let (local, message) = match self.topology.has_several_interfaces() {
            false => (location.local, message),
            true => self.choose_interfaces(node, message),
        };
        let is_short = message.bytes <= u64::from(self.packet_bytes);
        let index = self.ports.nic_port(local);
        let channel = NODE_CHANNELS[message.class as usize];
        // An empty interface with credits: no need to queue.
        if is_short
            && !self.ports[index].sender_waits
            && u64::from(self.ports.credits(index, channel)) >= message.bytes
        {
            self.emit(index, local, &message, message.bytes as u32, context);
            return;
        }
        self.nics[usize::from(local)].push_message(message, is_short);
        self.inject_packets(local, context);
    }

    /// Sends packets of an interface's messages as far as there are credits.
    fn inject_packets(&mut self, local: u16, context: &mut impl NetContext) {
        let index = self.ports.nic_port(local);
        let was_full = self.nics[usize::from(local)].free_slots() == 0;
        loop {
            let [requests, responses] = NODE_CHANNELS;
            let credits =
                [self.ports.credits(index, requests), self.ports.credits(index, responses)];
            let nic = &mut self.nics[usize::from(local)];
            let Some((message, bytes)) =
                nic.take_packet(self.packet_bytes, self.interleaved, credits)
            else {
                break;
            };
            self.emit(index, local, &message, bytes, context);
        }
        self.ports[index].sender_waits = !self.nics[usize::from(local)].is_empty();
        if was_full && self.nics[usize::from(local)].free_slots() > 0 {
            self.drained.push(self.node_of_local(local));
        }
    }

    /// Puts one packet of a message on the link from an interface to its router; there are credits.
    fn emit(
        &mut self,
        index: usize,
        local: u16,
        message: &Message,
        bytes: u32,
        context: &mut impl NetContext,
    ) {
        let interface = self.topology.interfaces_of_group(self.group)[usize::from(local)];
        let channel = NODE_CHANNELS[message.class as usize];
        self.ports.take_credit(index, channel, bytes);
        self.ports[index].occupy(bytes);
        let (start, end) = self.grant(index, context.now(), bytes, message.class);
        self.deliveries[usize::from(message.kind != 0)].count_injection(bytes);
        let node = self.topology.node_of_interface(interface);
        let mut packet = Packet::new(node, bytes, message);
        packet.router = self.topology.interface(interface).router;
        packet.credit_to = Upstream::near(index, LinkClass::Node, channel as u8).0;
        packet.tail_lag = (end - start) as u32;
        if self.probe.is_some() {
            let now = context.now();
            self.observe_link(
                index,
                Some(channel as u8),
                &packet,
                Grant { ready: now, start, end, now },
            );
        }
        let arrival = start + self.costs[LinkClass::Node as usize].latency;
        context.push_arrival(arrival, index, self.packets.insert(packet));
    }

    /// Grants a port's link to a packet that is ready at `ready`; returns when its transmission
    /// begins and ends, ps.
    #[inline]
    fn grant(&mut self, index: usize, ready: u64, bytes: u32, message: MessageClass) -> (u64, u64) {
        let port = &mut self.ports[index];
        let class = port.class as usize;
        let cost = &self.costs[class];
        let (start, end) = match message {
            MessageClass::Request => port.grant(ready, bytes, cost),
            MessageClass::Response => port.grant_response(ready, bytes, self.packet_bytes, cost),
        };
        self.timeline.add(start, class, bytes.into());
        (start, end)
    }

    /// A packet's head has reached a router. Returns the packet if its delivery is announced.
    fn arrive(&mut self, id: PacketId, context: &mut impl NetContext) -> Option<Delivery> {
        let head = context.now() + self.traversal;
        let ready = Ready { head, tail: head + u64::from(self.packets[id].tail_lag) };
        let begins_leg = self.plan_path(id, head);
        if self.inputs.is_some() && self.waits_behind(id, ready, begins_leg) {
            return None;
        }
        self.forward(id, ready, begins_leg, context)
    }

    /// Chooses the path of a packet that could leave its router at `head`. Returns whether the packet
    /// begins a leg here.
    #[inline(always)]
    fn plan_path(&mut self, id: PacketId, head: u64) -> bool {
        let (mut planner, packets) = self.planner(head);
        let packet = &mut packets[id];
        let at_target = packet.router == packet.target;
        let is_far = Upstream(packet.credit_to).is_far();
        // Without branches: none of these could be predicted.
        let begins_leg =
            packet.is_unrouted() | is_far | (at_target & (packet.exit == INTERMEDIATE));
        let leg = packet.leg;
        if begins_leg {
            packet.leg += u8::from(!packet.is_unrouted());
            planner.plan_leg(packet);
        } else if planner.may_reconsider(packet) {
            planner.reconsider_route(packet);
        }
        begins_leg | (packet.leg != leg)
    }

    /// The planner of paths for a packet that could leave its router at `ready`, and the table of packets.
    #[inline(always)]
    fn planner(&mut self, ready: u64) -> (RoutePlanner<'_>, &mut PacketTable) {
        let planner = RoutePlanner {
            topology: &self.topology,
            ports: &self.ports,
            costs: &self.costs,
            spec: &self.network.routing,
            group: self.group,
            ready,
            random: &mut self.random,
        };
        (planner, &mut self.packets)
    }

    /// Grants the link to a packet that no other in its buffer holds up, or lets it wait for credits.
    /// Returns the packet if its delivery is announced.
    #[inline(always)]
    fn forward(
        &mut self,
        id: PacketId,
        ready: Ready,
        begins_leg: bool,
        context: &mut impl NetContext,
    ) -> Option<Delivery> {
        let (mut planner, packets) = self.planner(ready.head);
        let packet = &packets[id];
        let (router, behind) = (packet.router, Upstream(packet.credit_to));
        let (class, leg, bytes) = (packet.class(), packet.leg, packet.bytes);
        let port = if router == packet.target {
            packet.exit
        } else {
            planner.local_port(router, packet.target, class)
        };
        let index = self.ports.router_port(router, port);
        let port = &mut self.ports[index];
        if port.end == PortEnd::Node {
            return self.eject(index, id, ready, context);
        }
        port.occupy(bytes);
        let behind_rank2 = !begins_leg
            && port.class == LinkClass::Rank1
            && behind.class() == LinkClass::Rank2 as usize;
        let channel = match class {
            MessageClass::Request => 2 * usize::from(leg) + usize::from(behind_rank2),
            MessageClass::Response => REQUEST_CHANNELS + usize::from(leg),
        };
        let is_first = !port.has_waiting(channel);
        if is_first && self.ports.credits(index, channel) >= bytes {
            self.depart(index, channel, id, ready, context);
            return None;
        }
        let port = &mut self.ports[index];
        port.wait(ready.head, &self.costs[port.class as usize]);
        if is_first {
            self.ports.block_channel(index, channel, context.now());
        }
        if self.probe.is_some() {
            self.observe_queue(index, channel as u8, id, ready.head);
        }
        if let Some(inputs) = &mut self.inputs {
            inputs.block(behind);
        }
        let queue = self.ports.queue_mut(index, channel);
        self.packets.push_back(queue, is_first, id, ready);
        None
    }

    /// Grants the link to a packet for which there are credits.
    fn depart(
        &mut self,
        index: usize,
        channel: usize,
        id: PacketId,
        ready: Ready,
        context: &mut impl NetContext,
    ) {
        let packet = &self.packets[id];
        let (bytes, class) = (packet.bytes, packet.class());
        self.ports.take_credit(index, channel, bytes);
        let (start, end) = self.grant(index, ready.head, bytes, class);
        if self.probe.is_some() {
            let grant = Grant { ready: ready.head, start, end, now: context.now() };
            self.observe_link(index, Some(channel as u8), &{ self.packets[id] }, grant);
        }
        let left = ready.tail.max(end);
        self.send_credit(id, left, context);
        let port = &self.ports[index];
        let arrival = start + self.costs[port.class as usize].latency;
        let packet = &mut self.packets[id];
        packet.tail_lag = (left - start) as u32;
        packet.hops += 1;
        if port.end == PortEnd::Router {
            packet.router = port.peer;
            packet.credit_to = Upstream::near(index, port.class, channel as u8).0;
            context.push_arrival(arrival, index, id);
        } else {
            let far = self.ports.far_end(index);
            let mut packet = self.packets.remove(id);
            packet.router = far.router;
            packet.credit_to = Upstream::far(far.index as usize, channel as u8).0;
            context.send_message(far.group, arrival, NetMessage::Packet(packet));
        }
    }

    /// Sends back the credit for the buffer space that a packet frees at time `left`.
    #[inline]
    fn send_credit(&mut self, id: PacketId, left: u64, context: &mut impl NetContext) {
        let packet = &self.packets[id];
        let upstream = Upstream(packet.credit_to);
        let at = left + self.costs[upstream.class()].latency;
        let bytes = match &self.probe {
            Some(probe) => probe.mark_credit(packet),
            None => packet.bytes,
        };
        if upstream.is_far() {
            let far = self.ports.far_end(upstream.port());
            let channel = upstream.channel() as u8;
            let place = Upstream::near(far.index as usize, LinkClass::Global, channel);
            context.send_message(far.group, at, NetMessage::Credit(place.0, bytes));
        } else {
            self.batches.add_credit(at, upstream, bytes, context);
        }
    }
}
