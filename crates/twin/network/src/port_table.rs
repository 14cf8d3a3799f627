//! The ports of one group.

use crate::packet_table::WaitingQueue;
use crate::port::{CHANNELS, LinkCost, Port, PortEnd, REQUEST_CHANNELS};
use crate::statistics::LinkStatistics;
use crate::topology::Topology;
use forebay_engine::{Picoseconds, prefetch};
use forebay_machine_file::machine::LinkClass;
use std::ops::{Deref, DerefMut};

/// Times in which a port had packets waiting for credits; for a link to a node, which accepts all
/// packets, for the link.
#[derive(Clone, Copy, Debug, Default)]
struct Stall {
    total: u64,
    /// Begin of the present stall; for a link to a node, end of the last one.
    since: u64,
}

/// The part of an output port that packets need only if they wait, or are responses.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct PortQueues {
    stall: Stall,
    /// Bytes free in the buffers of the response channels at the far end.
    response_credits: [u32; CHANNELS - REQUEST_CHANNELS],
    /// Packets that wait for credits of each channel.
    queues: [WaitingQueue; CHANNELS],
}

const _: () = assert!(size_of::<PortQueues>() == 128);

/// The far end of a rank-3 link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarEnd {
    pub group: u16,
    pub router: u16,
    /// Index of its port in the other group's table.
    pub index: u32,
}

/// Output ports of a group's routers, router by router, then one port per interface of a node into its router.
#[derive(Clone)]
pub(crate) struct PortTable {
    ports: Vec<Port>,
    queues: Vec<PortQueues>,
    /// Far ends of the group's rank-3 links.
    far_ends: Vec<FarEnd>,
    ports_per_router: usize,
    first_nic: usize,
}

impl PortTable {
    pub fn new(topology: &Topology, group: u16, costs: &[LinkCost; 4]) -> Self {
        let first_nic = usize::from(topology.routers()) * usize::from(topology.ports);
        let mut table = PortTable {
            ports: Vec::with_capacity(first_nic + topology.interfaces_of_group(group).len()),
            queues: Vec::new(),
            far_ends: Vec::new(),
            ports_per_router: usize::from(topology.ports),
            first_nic,
        };
        for router in 0..topology.routers() {
            for port in 0..topology.ports {
                let (class, end, peer) = table.connect(topology, group, router, port);
                table.ports.push(Port::new(class, end, peer, costs));
            }
        }
        for (local, _) in (0..).zip(topology.interfaces_of_group(group)) {
            table.ports.push(Port::new(LinkClass::Node, PortEnd::Inward, local, costs));
        }
        table.queues = table.ports.iter().map(|port| PortQueues::new(port, costs)).collect();
        table
    }

    /// Class, end and peer of a router's port.
    fn connect(
        &mut self,
        topology: &Topology,
        group: u16,
        router: u16,
        port: u8,
    ) -> (LinkClass, PortEnd, u16) {
        let unplugged = (LinkClass::Node, PortEnd::Unplugged, 0);
        match topology.class(group, router, port) {
            None => unplugged,
            Some(LinkClass::Node) => match topology.interface_at(group, router, port) {
                Some(number) => (LinkClass::Node, PortEnd::Node, topology.interface(number).local),
                None => unplugged,
            },
            Some(LinkClass::Global) => {
                let Some((group, router, port)) = topology.far_end(group, router, port) else {
                    return unplugged;
                };
                let index = self.router_port(router, port) as u32;
                self.far_ends.push(FarEnd { group, router, index });
                (LinkClass::Global, PortEnd::Far, self.far_ends.len() as u16 - 1)
            }
            Some(class @ (LinkClass::Rank1 | LinkClass::Rank2)) => {
                (class, PortEnd::Router, topology.neighbour(router, port))
            }
        }
    }

    /// Index of a router's port.
    #[inline]
    pub fn router_port(&self, router: u16, port: u8) -> usize {
        usize::from(router) * self.ports_per_router + usize::from(port)
    }

    /// Index of the port from an interface (number within the group) into its router.
    #[inline]
    pub fn nic_port(&self, local: u16) -> usize {
        self.first_nic + usize::from(local)
    }

    /// The far end of a rank-3 port.
    #[inline]
    pub fn far_end(&self, index: usize) -> FarEnd {
        self.far_ends[usize::from(self.ports[index].peer)]
    }

    /// Router and port number of an index.
    pub fn router_and_port(&self, index: usize) -> (u16, u8) {
        let ports = self.ports_per_router;
        ((index / ports) as u16, (index % ports) as u8)
    }

    /// Bytes of credits of a channel.
    #[inline]
    pub fn credits(&self, index: usize, channel: usize) -> u32 {
        match self.ports[index].credits.get(channel) {
            Some(credits) => *credits,
            None => self.queues[index].response_credits[channel - REQUEST_CHANNELS],
        }
    }

    #[inline]
    fn credits_mut(&mut self, index: usize, channel: usize) -> &mut u32 {
        match self.ports[index].credits.get_mut(channel) {
            Some(credits) => credits,
            None => &mut self.queues[index].response_credits[channel - REQUEST_CHANNELS],
        }
    }

    /// Takes credits of a channel that has enough of them.
    #[inline]
    pub fn take_credit(&mut self, index: usize, channel: usize, bytes: u32) {
        let credits = self.credits_mut(index, channel);
        debug_assert!(*credits >= bytes, "{credits} bytes of credits for {bytes}");
        *credits -= bytes;
    }

    /// Returns credits to a channel whose buffer has `capacity` bytes.
    #[inline]
    pub fn return_credit(&mut self, index: usize, channel: usize, bytes: u32, capacity: u32) {
        self.ports[index].vacate(bytes);
        let credits = self.credits_mut(index, channel);
        *credits += bytes;
        debug_assert!(
            *credits <= capacity,
            "{credits} bytes of credits for a buffer of {capacity}"
        );
    }

    /// The packets that wait for credits of a channel.
    #[inline]
    pub fn queue(&self, index: usize, channel: usize) -> &WaitingQueue {
        &self.queues[index].queues[channel]
    }

    /// The packets that wait for credits of a channel.
    #[inline]
    pub fn queue_mut(&mut self, index: usize, channel: usize) -> &mut WaitingQueue {
        &mut self.queues[index].queues[channel]
    }

    /// Prefetches the part of a port that packets need only if they wait.
    #[inline]
    pub fn prefetch_queues(&self, index: usize) {
        prefetch(&self.queues[index]);
    }

    /// Marks a channel of a port that has its first waiting packet.
    pub fn block_channel(&mut self, index: usize, channel: usize, now: u64) {
        let port = &mut self.ports[index];
        if port.waiting == 0 {
            self.queues[index].stall.since = now;
        }
        port.waiting |= 1 << channel;
    }

    /// Clears the mark of a channel that has no waiting packet any more.
    pub fn unblock_channel(&mut self, index: usize, channel: usize, now: u64) {
        let port = &mut self.ports[index];
        port.waiting &= !(1 << channel);
        if port.waiting == 0 {
            let stall = &mut self.queues[index].stall;
            stall.total += now - stall.since;
        }
    }

    /// Counts the time from `ready` to `start` in which a packet waited for its node's link. The
    /// times of packets that waited together count once.
    #[inline]
    pub fn count_ejection_wait(&mut self, index: usize, ready: u64, start: u64) {
        if start > ready {
            let stall = &mut self.queues[index].stall;
            stall.total += start.saturating_sub(ready.max(stall.since));
            stall.since = stall.since.max(start);
        }
    }

    /// Whether all credits are back and no packet waits.
    pub fn is_idle(&self) -> bool {
        self.ports.iter().all(|p| p.occupied == 0 && p.waiting == 0)
    }

    /// Statistics of every link from the group's routers and nodes up to `now`.
    pub fn link_statistics(
        &self,
        now: Picoseconds,
        group: u16,
        costs: &[LinkCost; 4],
    ) -> Vec<LinkStatistics> {
        let mut links = Vec::new();
        for (index, (port, PortQueues { stall, .. })) in
            self.ports.iter().zip(&self.queues).enumerate()
        {
            let (router, number) = self.router_and_port(index);
            let (router, number, to_group) = match port.end {
                PortEnd::Unplugged => continue,
                PortEnd::Inward => (None, (index - self.first_nic) as u16, group),
                PortEnd::Far => (Some(router), number.into(), self.far_end(index).group),
                PortEnd::Router | PortEnd::Node => (Some(router), number.into(), group),
            };
            let stalled_now = if port.waiting != 0 { now.saturating_sub(stall.since) } else { 0 };
            links.push(LinkStatistics {
                class: port.class,
                router,
                port: number,
                to_group,
                bytes: port.bytes,
                busy: costs[port.class as usize].busy_time(port.bytes),
                stalled: stall.total + stalled_now,
                longest_queue: port.longest_queue(&costs[port.class as usize]),
            });
        }
        links
    }
}

impl PortQueues {
    fn new(port: &Port, costs: &[LinkCost; 4]) -> Self {
        let credits = costs[port.class as usize].buffer;
        PortQueues {
            stall: Stall::default(),
            response_credits: [credits; CHANNELS - REQUEST_CHANNELS],
            queues: [WaitingQueue::default(); CHANNELS],
        }
    }
}

impl Deref for PortTable {
    type Target = [Port];

    #[inline]
    fn deref(&self) -> &[Port] {
        &self.ports
    }
}

impl DerefMut for PortTable {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }
}
