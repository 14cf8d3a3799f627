//! An output port: the link behind it, credits for the buffers at its far end, packets waiting.

use crate::packet::Packet;
use forebay_machine_file::machine::{LinkClass, LinkSpec, Network};

/// Virtual channels of every link. A packet travels on the one that counts the legs it has
/// behind it, and no way has more than four legs (see `routing`).
pub(crate) const CHANNELS: usize = 4;
pub(crate) const NONE: u32 = u32::MAX;

/// What a class of links costs, in the fabric's units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkCost {
    /// ps a byte, times 2^20.
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
    [
        &network.node,
        &network.rank1,
        &network.rank2,
        &network.global,
    ]
    .map(LinkCost::new)
}

/// One virtual channel of an output port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channel {
    /// Bytes free in the buffer at the far end.
    pub credits: u32,
    /// Last of the packets that wait for credits, in a ring (`Waiting::next` of the last is the
    /// first); [`NONE`] if none waits.
    pub tail: u32,
}

/// One output port; a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Port {
    /// When the link has sent all that was granted to it, ps.
    pub free_at: u64,
    /// Bytes granted to the link so far.
    pub bytes: u64,
    /// Bytes that wait here, are on the link, or still lie in the buffer at the far end.
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

/// What a port leads to.
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
            channels: [Channel {
                credits,
                tail: NONE,
            }; CHANNELS],
            peer,
            class,
            end,
            blocked: 0,
        }
    }
}

/// When a packet's head and tail are through the router, at the earliest; ps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    pub head: u64,
    pub tail: u64,
}

/// A packet that waits for credits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingPacket {
    pub packet: Packet,
    pub next: u32,
    pub passage: Passage,
}

/// Times in which a port had packets waiting for credits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stall {
    pub total: u64,
    pub since: u64,
}

/// Where the credit for a packet's place goes when the packet leaves: the output port behind it
/// (or, behind a rank-3 link, the port at this end of that link), the class of its link, and the
/// virtual channel. All in one number, so that the port itself need not be looked at.
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
    fn a_port_is_a_cache_line() {
        assert_eq!(size_of::<Port>(), 64);
    }

    #[test]
    fn a_place_comes_back_as_it_was() {
        let place = Upstream::near(123_456, LinkClass::Rank2, 3);
        assert_eq!(
            (place.port(), place.class(), place.channel()),
            (123_456, 2, 3)
        );
        assert!(!place.is_far());
        let place = Upstream::far(7, 1);
        assert_eq!((place.port(), place.class(), place.channel()), (7, 3, 1));
        assert!(place.is_far());
    }

    #[test]
    fn serialization_is_right_to_the_picosecond() {
        let spec = |rate| LinkSpec {
            rate: Rate(rate),
            tiles: 1,
            latency: Time(0),
            buffer: Bytes(1),
        };
        assert_eq!(
            LinkCost::new(&spec(8_000_000_000)).serialization(4096),
            512_000
        );
        assert_eq!(
            LinkCost::new(&spec(5_250_000_000)).serialization(4096),
            780_190
        );
        assert_eq!(
            LinkCost::new(&spec(18_750_000_000)).serialization(1 << 20),
            55_924_054
        );
    }
}
