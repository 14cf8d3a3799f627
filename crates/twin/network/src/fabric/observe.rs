//! The fabric's side of observations.

use super::Fabric;
use crate::packet::Packet;
use crate::packet_table::PacketId;
use crate::port::PortEnd;
use crate::probe::{Grant, LinkBins, LinkRef, LinkSeries, Probe, ProbeOptions};

impl Fabric {
    /// Begins to observe packets; nothing has been sent yet.
    pub fn observe(&mut self, options: &ProbeOptions) {
        debug_assert!(self.is_idle());
        self.probe = Some(Box::new(Probe::new(options, self.ports.len())));
    }

    /// The use of each link over time, in the order of [`Fabric::link_statistics`]; empty without
    /// a probe that records it.
    pub fn link_bins(&self) -> Vec<&LinkBins> {
        let series = self.probe.as_ref().and_then(|probe| probe.series.as_ref());
        let links = series.map_or(&[][..], LinkSeries::links);
        let plugged = links.iter().zip(self.ports.iter());
        plugged.filter(|(_, port)| port.end != PortEnd::Unplugged).map(|(bins, _)| bins).collect()
    }

    /// The link of a port, for observations.
    fn link_ref(&self, index: usize) -> LinkRef {
        let port = &self.ports[index];
        if port.end == PortEnd::Inward {
            return LinkRef { index, class: port.class, router: None, port: port.peer };
        }
        let (router, number) = self.ports.router_and_port(index);
        LinkRef { index, class: port.class, router: Some(router), port: number.into() }
    }

    /// Passes a packet that gets a link to the probe.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_link(
        &mut self,
        index: usize,
        channel: Option<u8>,
        packet: &Packet,
        grant: Grant,
    ) {
        let link = self.link_ref(index);
        if let Some(probe) = &mut self.probe {
            probe.take_link(link, channel, packet, grant);
        }
    }

    /// Passes a packet that begins to wait for credits to the probe.
    #[cold]
    #[inline(never)]
    pub(super) fn observe_queue(&mut self, index: usize, channel: u8, id: PacketId, ready: u64) {
        let link = self.link_ref(index);
        if let Some(probe) = &mut self.probe {
            probe.join_queue(link, channel, &self.packets[id], ready);
        }
    }
}
