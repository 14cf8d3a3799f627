//! Output ports: the link of each, and credits for the buffers at its far end.

use forebay_machine_file::machine::{LinkClass, LinkSpec, Network};

/// Legs of the longest path (see `routing`).
pub(crate) const LEGS: u8 = 4;
/// Virtual channels of every link: two for each leg of requests, and one for each leg of responses.
pub(crate) const CHANNELS: usize = 3 * LEGS as usize;
/// Virtual channels of requests; the others are of responses.
pub(crate) const REQUEST_CHANNELS: usize = 2 * LEGS as usize;
/// The channels on which a node sends packets of the two classes.
pub(crate) const NODE_CHANNELS: [usize; 2] = [0, REQUEST_CHANNELS];
/// In place of an index: none.
pub(crate) const NONE: u32 = u32::MAX;

/// Costs of a class of links, in the fabric's units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkCost {
    /// ps per byte, times 2^20.
    ps_per_byte: u64,
    /// First bit out to first bit in, ps.
    pub latency: u64,
    /// Buffer of each virtual channel at the far end, bytes.
    pub buffer: u32,
    /// Bytes without credit while the link is in steady use and no packet waits: those sent in the
    /// time in which a packet crosses the link and the next router and its credit comes back.
    in_flight: u32,
}

impl LinkCost {
    fn new(spec: &LinkSpec, traversal: u64, packet: u64) -> Self {
        let scaled = (1_000_000_000_000u128 << 20).div_ceil(u128::from(spec.rate.0.max(1)));
        let mut cost = LinkCost {
            ps_per_byte: scaled as u64,
            latency: spec.latency.0,
            buffer: spec.buffer.0.min(u64::from(u32::MAX / 16)) as u32,
            in_flight: 0,
        };
        let round_trip = 2 * cost.latency + traversal + cost.busy_time(packet);
        cost.in_flight = (packet + cost.bytes_in(round_trip)).min(u64::from(u32::MAX)) as u32;
        cost
    }

    /// Time that `bytes` occupy the link, ps; within 1 ps for packets of up to 1 MiB.
    #[inline]
    pub fn serialization(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * self.ps_per_byte) >> 20
    }

    /// Bytes that the link transmits in `time` ps.
    pub fn bytes_in(&self, time: u64) -> u64 {
        ((u128::from(time) << 20) / u128::from(self.ps_per_byte.max(1))) as u64
    }

    /// The same for any number of bytes, in packets of any size, ps.
    pub fn busy_time(&self, bytes: u64) -> u64 {
        ((u128::from(bytes) * u128::from(self.ps_per_byte)) >> 20) as u64
    }
}

/// Costs of the four classes, by `LinkClass as usize`.
pub(crate) fn link_costs(network: &Network) -> [LinkCost; 4] {
    let (traversal, packet) = (network.router_traversal.0, network.packet.0);
    [&network.node, &network.rank1, &network.rank2, &network.global]
        .map(|link| LinkCost::new(link, traversal, packet))
}

/// One output port: what each packet that passes it needs, in one cache line. The rest is in
/// [`PortQueues`](crate::port_table::PortQueues).
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Port {
    /// End of the last grant, ps.
    free_at: u64,
    /// Bytes granted so far.
    pub bytes: u64,
    /// Bytes that wait here, are on the link, or lie in the buffer at the far end.
    pub occupied: u32,
    /// Longest queue that a packet has found here, in units of 2^10 ps.
    longest_queue: u32,
    /// Router-to-router links within the group: router at the far end. Node links: number of the interface within its group. Rank-3
    /// links: number of the link among those of the group.
    pub peer: u16,
    pub class: LinkClass,
    pub end: PortEnd,
    /// One bit for each channel with packets that wait for credits.
    pub waiting: u16,
    /// Links from nodes: the interface has messages to send.
    pub sender_waits: bool,
    /// Bytes free in the buffers of the request channels at the far end.
    pub credits: [u32; REQUEST_CHANNELS],
}

const _: () = assert!(size_of::<Port>() == 64 && CHANNELS <= 16);

/// The far end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortEnd {
    /// A router of the same group.
    Router,
    /// A router of another group.
    Far,
    /// A node.
    Node,
    /// From a node into its router.
    Inward,
    /// Nothing: the port has no cable.
    Unplugged,
}

impl Port {
    pub fn new(class: LinkClass, end: PortEnd, peer: u16, costs: &[LinkCost; 4]) -> Self {
        let credits = costs[class as usize].buffer;
        Port {
            free_at: 0,
            bytes: 0,
            occupied: 0,
            longest_queue: 0,
            peer,
            class,
            end,
            waiting: 0,
            sender_waits: false,
            credits: [credits; REQUEST_CHANNELS],
        }
    }

    /// Grants the link to a packet that is ready at `ready`, for the time when all packets granted
    /// before are through; returns the times at which its transmission begins and ends, ps.
    #[inline]
    pub fn grant(&mut self, ready: u64, bytes: u32, cost: &LinkCost) -> (u64, u64) {
        let start = ready.max(self.free_at);
        self.longest_queue = self.longest_queue.max(((start - ready) >> 10) as u32);
        self.free_at = start + cost.serialization(bytes);
        self.bytes += u64::from(bytes);
        (start, self.free_at)
    }

    /// The same for a response, which passes all packets granted before except the one that the link
    /// may be sending, of up to `packet` bytes. Those packets' times stay as they are; the link's
    /// later packets leave later by the time of the response.
    #[inline]
    pub fn grant_response(
        &mut self,
        ready: u64,
        bytes: u32,
        packet: u32,
        cost: &LinkCost,
    ) -> (u64, u64) {
        let start = ready + self.free_at.saturating_sub(ready).min(cost.serialization(packet));
        let end = start + cost.serialization(bytes);
        self.free_at = self.free_at.max(start) + cost.serialization(bytes);
        self.bytes += u64::from(bytes);
        (start, end)
    }

    /// Length of the queue that a packet ready at `ready` finds, as the time to transmit it, ps: the
    /// packets that the link has to send before it, and those in the buffer at the far end that a
    /// link in steady use does not keep there.
    #[inline]
    pub fn queue(&self, ready: u64, cost: &LinkCost) -> u64 {
        let backlog = self.free_at.saturating_sub(ready);
        backlog.max(cost.serialization(self.occupied.saturating_sub(cost.in_flight)))
    }

    /// Counts a packet that has chosen this port.
    #[inline]
    pub fn occupy(&mut self, bytes: u32) {
        self.occupied += bytes;
    }

    /// Counts a packet that begins to wait for credits.
    #[inline]
    pub fn wait(&mut self, ready: u64, cost: &LinkCost) {
        self.longest_queue = self.longest_queue.max((self.queue(ready, cost) >> 10) as u32);
    }

    /// Length of the longest queue that a packet has found here, bytes.
    pub fn longest_queue(&self, cost: &LinkCost) -> u64 {
        cost.bytes_in(u64::from(self.longest_queue) << 10)
    }

    /// Counts a packet that has left the buffer at the far end.
    #[inline]
    pub fn vacate(&mut self, bytes: u32) {
        debug_assert!(self.occupied >= bytes, "{self:?}: {bytes} bytes too many");
        self.occupied -= bytes;
    }

    /// Whether packets wait for credits of a channel.
    #[inline]
    pub fn has_waiting(&self, channel: usize) -> bool {
        self.waiting & (1 << channel) != 0
    }
}

/// Times at which a packet's head and tail have passed the router, at the earliest; ps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub head: u64,
    pub tail: u64,
}

/// Destination of the credit for a packet's buffer space: the output port behind the packet (or,
/// behind a rank-3 link, the port at this end of that link), the class of its link, and the
/// virtual channel. All in one number, so that the port itself need not be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upstream(pub u32);

impl Upstream {
    const FAR: u32 = 1 << 31;

    pub fn near(port: usize, class: LinkClass, channel: u8) -> Self {
        Upstream(((port as u32) << 6) | ((class as u32) << 4) | u32::from(channel))
    }

    pub fn far(port: usize, channel: u8) -> Self {
        Upstream(Self::near(port, LinkClass::Global, channel).0 | Self::FAR)
    }

    pub fn is_far(self) -> bool {
        self.0 & Self::FAR != 0
    }

    #[inline]
    pub fn port(self) -> usize {
        ((self.0 & !Self::FAR) >> 6) as usize
    }

    /// `LinkClass as usize`.
    #[inline]
    pub fn class(self) -> usize {
        ((self.0 >> 4) & 3) as usize
    }

    #[inline]
    pub fn channel(self) -> usize {
        (self.0 & 15) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::{Bytes, Rate, Time};

    #[test]
    fn upstream_unpacks_what_was_packed() {
        let place = Upstream::near(123_456, LinkClass::Rank2, 3);
        assert_eq!((place.port(), place.class(), place.channel()), (123_456, 2, 3));
        assert!(!place.is_far());
        let place = Upstream::far(7, 1);
        assert_eq!((place.port(), place.class(), place.channel()), (7, 3, 1));
        assert!(place.is_far());
    }

    #[test]
    fn serialization_is_exact_to_the_picosecond() {
        let spec = |rate| LinkSpec {
            rate: Rate(rate),
            raw_rate: Rate(rate),
            tiles: 1,
            latency: Time(0),
            buffer: Bytes(1),
        };
        let cost = |rate| LinkCost::new(&spec(rate), 0, 4096);
        assert_eq!(cost(8_000_000_000).serialization(4096), 512_000);
        assert_eq!(cost(5_250_000_000).serialization(4096), 780_190);
        assert_eq!(cost(18_750_000_000).serialization(1 << 20), 55_924_054);
    }

    /// 20 GB/s, 150 ns each way, routers of 100 ns, packets of 4,000 bytes (200 ns): a packet's
    /// credit is away for 600 ns, in which the link sends 12,000 bytes, and one packet waits.
    #[test]
    fn bytes_in_flight_on_a_long_link_are_no_queue() {
        let link = LinkSpec {
            rate: Rate(20_000_000_000),
            raw_rate: Rate(20_000_000_000),
            tiles: 1,
            latency: Time(150_000),
            buffer: Bytes(64_000),
        };
        let costs = [LinkCost::new(&link, 100_000, 4_000); 4];
        let mut port = Port::new(LinkClass::Global, PortEnd::Far, 0, &costs);
        port.occupy(16_000);
        assert_eq!(port.queue(1_000_000, &costs[0]), 0);
        // 10,000 bytes more have to leave the far buffer first: 500 ns.
        port.occupy(10_000);
        assert_eq!(port.queue(1_000_000, &costs[0]), 500_000);
        // Packets that the link has yet to send are a queue wherever their credits are.
        let end = port.grant(1_000_000, 40_000, &costs[0]).1;
        assert_eq!(end, 3_000_000);
        assert_eq!(port.queue(1_000_000, &costs[0]), 2_000_000);
    }

    /// 8 GB/s; a packet of 4,000 bytes takes 500 ns.
    #[test]
    fn response_waits_for_one_packet_and_delays_later_ones() {
        let link = LinkSpec {
            rate: Rate(8_000_000_000),
            raw_rate: Rate(8_000_000_000),
            tiles: 1,
            latency: Time(0),
            buffer: Bytes(64_000),
        };
        let costs = [LinkCost::new(&link, 0, 4_000); 4];
        let mut port = Port::new(LinkClass::Rank1, PortEnd::Router, 0, &costs);
        for _ in 0..10 {
            port.grant(0, 4_000, &costs[0]);
        }
        // Ten packets until 5,000 ns; the response of 80 bytes (10 ns) leaves behind the first.
        assert_eq!(port.grant_response(0, 80, 4_000, &costs[0]), (500_000, 510_000));
        assert_eq!(port.grant(0, 4_000, &costs[0]), (5_010_000, 5_510_000));
        // On a free link it leaves at once.
        assert_eq!(port.grant_response(9_000_000, 80, 4_000, &costs[0]), (9_000_000, 9_010_000));
        assert_eq!(port.grant(9_000_000, 80, &costs[0]), (9_010_000, 9_020_000));
    }
}
