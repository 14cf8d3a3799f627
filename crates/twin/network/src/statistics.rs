//! What a group of the fabric counts while it carries packets.

use crate::packet::{Packet, Route};
use forebay_model::machine::LinkClass;
use hdrhistogram::Histogram;

/// Longest way that is counted by its length: four legs have at most 4 × 2 local and 2 global
/// links; the way's first leg may be cut short by a late detour, but never begins anew.
const MOST_HOPS: usize = 12;

/// Packets that reached nodes of one group, or of all groups after [`Traffic::add`].
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Packets delivered.
    pub packets: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes that nodes handed to their links.
    pub injected_bytes: u64,
    /// Packets by router-to-router links crossed.
    pub hops: [u64; MOST_HOPS + 1],
    /// Packets that took a detour.
    pub detours: u64,
    /// Times from birth to the last bit's arrival, in ns, exact to 1%.
    pub latency_ns: Histogram<u64>,
    /// Sum of the same, in ps.
    pub latency_sum: u128,
    /// Shortest of the same, in ps.
    pub latency_min: u64,
    /// Longest of the same, in ps.
    pub latency_max: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic {
            packets: 0,
            bytes: 0,
            injected_bytes: 0,
            hops: [0; MOST_HOPS + 1],
            detours: 0,
            // Two digits are always representable; the histogram grows as needed.
            latency_ns: Histogram::new(2).unwrap_or_else(|e| unreachable!("{e}")),
            latency_sum: 0,
            latency_min: u64::MAX,
            latency_max: 0,
        }
    }
}

impl Traffic {
    #[inline]
    pub(crate) fn count(&mut self, packet: &Packet, now: u64) {
        self.packets += 1;
        self.bytes += u64::from(packet.bytes);
        self.hops[usize::from(packet.hops).min(MOST_HOPS)] += 1;
        self.detours += u64::from(packet.route() == Route::Detour);
        let latency = now - packet.born();
        self.latency_sum += u128::from(latency);
        self.latency_min = self.latency_min.min(latency);
        self.latency_max = self.latency_max.max(latency);
        self.latency_ns.saturating_record(latency / 1000);
    }

    /// Adds another group's counts.
    pub fn add(&mut self, other: &Traffic) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.injected_bytes += other.injected_bytes;
        for (mine, theirs) in self.hops.iter_mut().zip(other.hops) {
            *mine += theirs;
        }
        self.detours += other.detours;
        self.latency_ns
            .add(&other.latency_ns)
            .unwrap_or_else(|e| unreachable!("{e}"));
        self.latency_sum += other.latency_sum;
        self.latency_min = self.latency_min.min(other.latency_min);
        self.latency_max = self.latency_max.max(other.latency_max);
    }
}

/// What one link (one direction) did up to some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Class of the link.
    pub class: LinkClass,
    /// Router in its group from which it leads; `None` for links from nodes.
    pub router: Option<u16>,
    /// Port of that router; for links from nodes, the node's number within its group.
    pub port: u16,
    /// Group at the far end.
    pub to_group: u16,
    /// Bytes granted to the link.
    pub bytes: u64,
    /// Time the link needs for them, ps.
    pub busy: u64,
    /// Time in which packets waited at the link for credits, ps.
    pub stalled: u64,
    /// Most bytes that ever waited for it, were on it, or lay in the buffers at its far end.
    pub most_occupied: u32,
}
