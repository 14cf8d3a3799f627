//! Output ports: the link of each, and credits for the buffers at its far end.

use forebay_machine_file::machine::{LinkClass, LinkSpec, Network};

/// Virtual channels of every link. A packet travels on the channel numbered by the legs it has
/// completed, and no path has more than four legs (see `routing`).
pub(crate) const CHANNELS: usize = 4;
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
}

impl LinkCost {
    fn new(spec: &LinkSpec) -> Self {
        let scaled = (1_000_000_000_000u128 << 20).div_ceil(u128::from(spec.rate.0.max(1)));
        LinkCost {
            ps_per_byte: scaled as u64,
            latency: spec.latency.0,
            buffer: spec.buffer.0.min(u64::from(u32::MAX / 8)) as u32,
        }
    }

    /// Time that `bytes` occupy the link, ps; within 1 ps for packets of up to 1 MiB.
    #[inline]
    pub fn serialization(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * self.ps_per_byte) >> 20
    }

    /// The same for any number of bytes, in packets of any size, ps.
    pub fn busy_time(&self, bytes: u64) -> u64 {
        ((u128::from(bytes) * u128::from(self.ps_per_byte)) >> 20) as u64
    }
}

/// Costs of the four classes, by `LinkClass as usize`.
pub(crate) fn link_costs(network: &Network) -> [LinkCost; 4] {
    [&network.node, &network.rank1, &network.rank2, &network.global].map(LinkCost::new)
}

/// One virtual channel of an output port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    /// Bytes free in the buffer at the far end.
    pub credits: u32,
    /// Last of the packets that wait for credits; [`NONE`] if none waits.
    pub tail: u32,
}

/// One output port; a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Port {
    /// End of the last grant, ps.
    free_at: u64,
    /// Bytes granted so far.
    pub bytes: u64,
    /// Bytes that wait here, are on the link, or lie in the buffer at the far end.
    pub occupied: u32,
    pub max_occupied: u32,
    pub channels: [Channel; CHANNELS],
    /// Router-to-router links within the group: router at the far end. Node links: node number.
    pub peer: u32,
    pub class: LinkClass,
    pub end: PortEnd,
    /// Channels with packets waiting.
    pub blocked: u8,
}

const _: () = assert!(size_of::<Port>() == 64);

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
    pub fn new(class: LinkClass, end: PortEnd, peer: u32, costs: &[LinkCost; 4]) -> Self {
        let credits = costs[class as usize].buffer;
        Port {
            free_at: 0,
            bytes: 0,
            occupied: 0,
            max_occupied: 0,
            channels: [Channel { credits, tail: NONE }; CHANNELS],
            peer,
            class,
            end,
            blocked: 0,
        }
    }

    /// Grants the link to a packet that is ready at `ready`, for the time when all packets granted
    /// before are through; returns the times at which its transmission begins and ends, ps.
    #[inline]
    pub fn grant(&mut self, ready: u64, bytes: u32, cost: &LinkCost) -> (u64, u64) {
        let start = ready.max(self.free_at);
        self.free_at = start + cost.serialization(bytes);
        self.bytes += u64::from(bytes);
        (start, self.free_at)
    }

    /// Counts a packet that has chosen this port.
    #[inline]
    pub fn occupy(&mut self, bytes: u32) {
        self.occupied += bytes;
        self.max_occupied = self.max_occupied.max(self.occupied);
    }

    /// Returns credits to a channel whose buffer has `capacity` bytes.
    #[inline]
    pub fn return_credit(&mut self, channel: usize, bytes: u32, capacity: u32) {
        debug_assert!(self.occupied >= bytes, "{self:?}: {bytes} bytes too many");
        self.occupied -= bytes;
        let credits = &mut self.channels[channel].credits;
        *credits += bytes;
        debug_assert!(
            *credits <= capacity,
            "{credits} bytes of credits for a buffer of {capacity}"
        );
    }

    /// Takes credits of a channel that has enough of them.
    #[inline]
    pub fn take_credit(&mut self, channel: usize, bytes: u32) {
        let credits = &mut self.channels[channel].credits;
        debug_assert!(*credits >= bytes, "{credits} bytes of credits for {bytes}");
        *credits -= bytes;
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
        Upstream(((port as u32) << 4) | ((class as u32) << 2) | u32::from(channel))
    }

    pub fn far(port: usize, channel: u8) -> Self {
        Upstream(Self::near(port, LinkClass::Global, channel).0 | Self::FAR)
    }

    pub fn is_far(self) -> bool {
        self.0 & Self::FAR != 0
    }

    #[inline]
    pub fn port(self) -> usize {
        ((self.0 & !Self::FAR) >> 4) as usize
    }

    /// `LinkClass as usize`.
    #[inline]
    pub fn class(self) -> usize {
        ((self.0 >> 2) & 3) as usize
    }

    #[inline]
    pub fn channel(self) -> usize {
        (self.0 & 3) as usize
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
        let spec =
            |rate| LinkSpec { rate: Rate(rate), tiles: 1, latency: Time(0), buffer: Bytes(1) };
        let cost = |rate| LinkCost::new(&spec(rate));
        assert_eq!(cost(8_000_000_000).serialization(4096), 512_000);
        assert_eq!(cost(5_250_000_000).serialization(4096), 780_190);
        assert_eq!(cost(18_750_000_000).serialization(1 << 20), 55_924_054);
    }
}
