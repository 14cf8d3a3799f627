//! The packet fabric of one group: virtual cut-through, credits, one event a hop.
//!
//! A packet's head arrives at a router (one event). The router chooses an output port; if the
//! virtual channel has credits for the whole packet, the link is granted to it at once, for the
//! moment when the packets granted before are through: times of departure are known in advance,
//! so no further event is needed to start or end a transmission. Without credits the packet waits
//! in its input buffer, in a queue of its output channel, until credits come back.
//!
//! A packet moves on before its tail has come in (cut-through). On a link faster than the one it
//! came by its flits have gaps between them, which flits of other packets fill: the link is taken
//! for the packet's length at the link's rate, the tail follows when it can. The packet's place in
//! the input buffer is free when its tail has left; the credit for it takes the link's latency to
//! travel back. Credits that arrive within the same
//! 2^15 ps (33 ns) are handed over together, at the end of that span: one event for many.

mod credits;
mod nic;
mod report;

pub use nic::Message;

use crate::packet::{INTERMEDIATE, Packet, Route};
use crate::port::{
    LinkCost, NONE, Passage, Port, PortEnd, Stall, Upstream, WaitingPacket, link_costs,
};
use crate::routing::{Random, RoutePlanner};
use crate::statistics::{DeliveryStatistics, Timeline};
use crate::topology::Topology;
use credits::{Batch, MAX_OPEN_BATCHES};
use forebay_engine::{Context, Partition, Picoseconds, Queue, prefetch};
use forebay_machine_file::machine::{LinkClass, Network, Routing};
use nic::Nic;
use std::sync::Arc;

/// Event keys: order of events at the same time. Below are the fabric's, by kind and port.
const KEY_CREDITS: u32 = 0;
const KEY_ARRIVAL: u32 = 1 << 28;
const KEY_DELIVERY: u32 = 2 << 28;

impl Topology {
    /// Event keys from here on are free for the model around the fabric.
    pub const FIRST_FREE_KEY: u32 = 4 << 28;
}

/// An event of the fabric.
#[derive(Clone, Copy, Debug)]
pub enum NetEvent {
    /// A packet's head at a router.
    Arrival(Packet),
    /// A packet's tail at its node.
    Delivery(Packet),
    /// The credits of a batch.
    Credits(u16),
    /// A single credit, due beyond all open batches.
    LateCredit(u32, u32),
}

/// What crosses from group to group.
#[derive(Clone, Copy, Debug)]
pub enum NetMessage {
    /// A packet on a rank-3 link.
    Packet(Packet),
    /// A credit for a packet that came over one: (place of the credit, bytes).
    Credit(u32, u32),
}

/// Routers, links and interfaces of one group.
pub struct Fabric {
    topology: Arc<Topology>,
    network: Arc<Network>,
    costs: [LinkCost; 4],
    group: u16,
    packet_bytes: u32,
    traversal: u64,
    /// Output ports of the routers, router by router, then one port a node into its router.
    ports: Vec<Port>,
    stalls: Vec<Stall>,
    nics: Vec<Nic>,
    waiting: Vec<WaitingPacket>,
    unused_waiting: u32,
    batches: Vec<Batch>,
    /// Lists for batches to come. The one used last is used next: it is in the cache.
    spare: Vec<Vec<(u32, u32)>>,
    random: Random,
    /// What was delivered here: packets of kind 0, and all others.
    pub traffic: [DeliveryStatistics; 2],
    /// Bytes granted to the links of each class over time (`LinkClass as usize`).
    pub timeline: Timeline<4>,
    /// Nodes (numbers within the group) whose interface has room again after having had none,
    /// for the model to take away after each event.
    pub drained: Vec<u16>,
}

/// The least time from any event to its effect in another group, ps: the lookahead.
pub fn lookahead(network: &Network) -> Picoseconds {
    network.global.latency.0
}

impl Fabric {
    /// The fabric of one group; `seed` drives its random choices.
    pub fn new(topology: Arc<Topology>, network: Arc<Network>, group: u16, seed: u64) -> Self {
        let costs = link_costs(&network);
        let mut ports = Vec::new();
        for router in 0..topology.routers() {
            for port in 0..topology.ports {
                ports.push(router_port(&topology, group, router, port, &costs));
            }
        }
        let members = topology.nodes_of_group(group);
        for (local, _) in (0..).zip(members) {
            ports.push(Port::new(LinkClass::Node, PortEnd::Inward, local, &costs));
        }
        let nics = members.iter().map(|_| Nic::default()).collect();
        Fabric {
            costs,
            group,
            packet_bytes: network.packet.0 as u32,
            traversal: network.router_traversal.0,
            stalls: vec![Stall::default(); ports.len()],
            ports,
            nics,
            waiting: Vec::new(),
            unused_waiting: NONE,
            batches: (0..MAX_OPEN_BATCHES).map(|_| Batch::default()).collect(),
            spare: Vec::new(),
            random: Random::new(seed, group.into()),
            traffic: Default::default(),
            timeline: Timeline::default(),
            drained: Vec::new(),
            topology,
            network,
        }
    }

    /// Who is joined to whom.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Runs an event; a packet delivered is returned.
    #[inline]
    pub fn handle<P>(&mut self, event: NetEvent, context: &mut Context<'_, P>) -> Option<Packet>
    where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        match event {
            NetEvent::Arrival(packet) => self.arrive(packet, context),
            NetEvent::Credits(slot) => self.return_batch(slot, context),
            NetEvent::LateCredit(place, bytes) => {
                self.return_credit(Upstream(place), bytes, context)
            }
            NetEvent::Delivery(packet) => {
                self.traffic[usize::from(packet.kind() != 0)].count_packet(&packet, context.now);
                return Some(packet);
            }
        }
        None
    }

    /// Takes what another group sent.
    #[inline]
    pub fn receive<E: Copy + From<NetEvent>>(
        &mut self,
        at: u64,
        message: NetMessage,
        queue: &mut Queue<E>,
    ) {
        match message {
            NetMessage::Packet(packet) => {
                let key = KEY_ARRIVAL + Upstream(packet.credit_to).port() as u32;
                queue.push(at, key, NetEvent::Arrival(packet).into());
            }
            NetMessage::Credit(place, bytes) => {
                self.batch_credit(at, Upstream(place), bytes, queue)
            }
        }
    }

    /// Fetches what an event will touch.
    #[inline]
    pub fn prefetch(&self, event: &NetEvent) {
        if let NetEvent::Arrival(packet) = event {
            let first = usize::from(packet.router) * usize::from(self.topology.ports);
            if packet.route() != Route::Unrouted && packet.router != packet.target {
                let port = self
                    .topology
                    .local_port_toward(packet.router, packet.target);
                prefetch(&self.ports[first + usize::from(port)]);
            } else if packet.exit != INTERMEDIATE {
                prefetch(&self.ports[first + usize::from(packet.exit)]);
            }
        }
    }

    fn arrive<P>(&mut self, mut packet: Packet, context: &mut Context<'_, P>)
    where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        let came_from_far = Upstream(packet.credit_to).is_far();
        let at_target = packet.router == packet.target;
        let begins_leg = packet.route() == Route::Unrouted
            || came_from_far
            || (at_target && packet.exit == INTERMEDIATE);
        if begins_leg || self.may_reconsider(&packet) {
            let mut router = RoutePlanner {
                topology: &self.topology,
                ports: &self.ports,
                costs: &self.costs,
                spec: &self.network.routing,
                group: self.group,
                random: &mut self.random,
            };
            if begins_leg {
                packet.leg += u8::from(packet.route() != Route::Unrouted);
                router.plan_leg(&mut packet);
            } else {
                router.reconsider_route(&mut packet);
            }
        }
        let port = if packet.router == packet.target {
            packet.exit
        } else {
            self.topology
                .local_port_toward(packet.router, packet.target)
        };
        let index =
            usize::from(packet.router) * usize::from(self.topology.ports) + usize::from(port);
        let port = &mut self.ports[index];
        // Through the router: when the head can leave, and the tail.
        let head = context.now + self.traversal;
        let passage = Passage {
            head,
            tail: head + u64::from(packet.tail_lag),
        };
        if port.end == PortEnd::Node {
            self.eject(index, packet, passage, context);
            return;
        }
        port.occupied += packet.bytes;
        port.max_occupied = port.max_occupied.max(port.occupied);
        let channel = port.channels[usize::from(packet.leg)];
        if channel.tail == NONE && channel.credits >= packet.bytes {
            self.depart(index, packet, passage, context);
        } else {
            self.queue_for_credits(index, packet, passage, context.now);
        }
    }

    fn may_reconsider(&self, packet: &Packet) -> bool {
        self.network.routing.algorithm == Routing::ProgressiveAdaptive
            && packet.leg == 0
            && packet.route() == Route::Minimal
            && packet.exit >= self.topology.first_global
            && packet.exit < self.topology.first_node
    }

    /// Grants the link to a packet for which there are credits.
    fn depart<P>(
        &mut self,
        index: usize,
        mut packet: Packet,
        passage: Passage,
        context: &mut Context<'_, P>,
    ) where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        let port = &mut self.ports[index];
        let cost = self.costs[port.class as usize];
        let channel = packet.leg;
        port.channels[usize::from(channel)].credits -= packet.bytes;
        let start = passage.head.max(port.free_at);
        let time = cost.serialization(packet.bytes);
        port.free_at = start + time;
        let left = passage.tail.max(port.free_at);
        port.bytes += u64::from(packet.bytes);
        self.timeline
            .add(start, port.class as usize, packet.bytes.into());
        let (peer, end, class) = (port.peer, port.end, port.class);
        self.send_credit(&packet, left, context);
        packet.tail_lag = (left - start) as u32;
        packet.hops += 1;
        let arrival = start + cost.latency;
        if end == PortEnd::Router {
            packet.router = peer as u16;
            packet.credit_to = Upstream::near(index, class, channel).0;
            context.queue.push(
                arrival,
                KEY_ARRIVAL + index as u32,
                NetEvent::Arrival(packet).into(),
            );
        } else {
            let (router, port) = self.router_and_port(index);
            let Some((group, far_router, far_port)) =
                self.topology.far_end(self.group, router, port)
            else {
                unreachable!("a packet was routed to a socket without a cable")
            };
            packet.router = far_router;
            let far =
                usize::from(far_router) * usize::from(self.topology.ports) + usize::from(far_port);
            packet.credit_to = Upstream::far(far, channel).0;
            context.send(group.into(), arrival, NetMessage::Packet(packet).into());
        }
    }

    /// Sends a packet down to its node, which always has room.
    fn eject<P>(
        &mut self,
        index: usize,
        packet: Packet,
        passage: Passage,
        context: &mut Context<'_, P>,
    ) where
        P: Partition,
        P::Event: From<NetEvent>,
        P::Message: From<NetMessage>,
    {
        let port = &mut self.ports[index];
        let cost = self.costs[port.class as usize];
        let start = passage.head.max(port.free_at);
        port.free_at = start + cost.serialization(packet.bytes);
        port.bytes += u64::from(packet.bytes);
        let left = passage.tail.max(port.free_at);
        self.timeline
            .add(start, LinkClass::Node as usize, packet.bytes.into());
        let key = KEY_DELIVERY + port.peer;
        self.send_credit(&packet, left, context);
        context
            .queue
            .push(left + cost.latency, key, NetEvent::Delivery(packet).into());
    }

    fn router_and_port(&self, index: usize) -> (u16, u8) {
        let ports = usize::from(self.topology.ports);
        ((index / ports) as u16, (index % ports) as u8)
    }

    fn first_nic(&self) -> usize {
        usize::from(self.topology.routers()) * usize::from(self.topology.ports)
    }
}

fn router_port(
    topology: &Topology,
    group: u16,
    router: u16,
    port: u8,
    costs: &[LinkCost; 4],
) -> Port {
    let unplugged = Port::new(LinkClass::Node, PortEnd::Unplugged, 0, costs);
    match topology.class(router, port) {
        None => unplugged,
        Some(LinkClass::Node) => {
            let here = |&&n: &&u32| {
                let place = topology.location(n);
                place.router == router && place.port == port
            };
            match topology.nodes_of_group(group).iter().find(here) {
                Some(&node) => Port::new(
                    LinkClass::Node,
                    PortEnd::Node,
                    topology.location(node).local.into(),
                    costs,
                ),
                None => unplugged,
            }
        }
        Some(LinkClass::Global) => match topology.far_end(group, router, port) {
            Some(_) => Port::new(LinkClass::Global, PortEnd::Far, 0, costs),
            None => unplugged,
        },
        Some(class) => Port::new(
            class,
            PortEnd::Router,
            topology.neighbour(router, port).into(),
            costs,
        ),
    }
}
