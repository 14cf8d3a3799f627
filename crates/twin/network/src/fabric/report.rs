//! What the links of a group did, and whether anything is under way.

use super::Fabric;
use crate::port::PortEnd;
use crate::statistics::LinkStatistics;
use forebay_engine::Picoseconds;

impl Fabric {
    /// What every link from this group's routers and nodes did up to `now`.
    pub fn link_statistics(&self, now: Picoseconds) -> Vec<LinkStatistics> {
        let first_nic = self.first_nic();
        let mut links = Vec::new();
        for (index, (port, stall)) in self.ports.iter().zip(&self.stalls).enumerate() {
            let (router, number) = self.router_and_port(index);
            let (router, number, to_group) = match port.end {
                PortEnd::Unplugged => continue,
                PortEnd::Inward => (None, (index - first_nic) as u16, self.group),
                PortEnd::Far => {
                    let far = self.topology.far_end(self.group, router, number);
                    (
                        Some(router),
                        number.into(),
                        far.map_or(self.group, |(group, ..)| group),
                    )
                }
                PortEnd::Router | PortEnd::Node => (Some(router), number.into(), self.group),
            };
            let running = if port.blocked > 0 {
                now.saturating_sub(stall.since)
            } else {
                0
            };
            links.push(LinkStatistics {
                class: port.class,
                router,
                port: number,
                to_group,
                bytes: port.bytes,
                busy: self.costs[port.class as usize].busy_time(port.bytes),
                stalled: stall.total + running,
                max_occupied: port.max_occupied,
            });
        }
        links
    }

    /// Whether nothing is under way: all credits are back, nobody waits.
    pub fn is_idle(&self) -> bool {
        self.ports.iter().all(|p| p.occupied == 0 && p.blocked == 0)
            && self
                .nics
                .iter()
                .all(|n| n.control.is_empty() && n.bulk.is_empty())
    }
}
