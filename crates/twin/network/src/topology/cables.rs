//! The cables between groups, and the numbering of their sockets.

use super::{GlobalLink, Topology};
use forebay_machine_file::machine::{Arrangement, Network, Plugging};

impl Topology {
    /// Joins each two groups directly.
    pub(super) fn lay_cables(&mut self, network: &Network, sockets: &[u32]) {
        let (groups, cables) = (network.groups, network.cables_per_group_pair);
        let per_cable = network.routers_per_cable;
        let order = sockets_in_order(network, sockets);
        // The number of cable `round` from g to h among all of group g.
        let number = |g: u32, h: u32, round: u32| {
            let offset = offset(network.arrangement, g, h, groups);
            match network.plugging {
                Plugging::InOrder | Plugging::Spread => round * (groups - 1) + offset,
                Plugging::AcrossChassis => offset * cables + round,
            }
        };
        for g in 0..groups {
            for h in (0..groups).filter(|&h| h != g) {
                for round in 0..cables {
                    let near = order[number(g, h, round) as usize];
                    let far = order[number(h, g, round) as usize];
                    for link in 0..per_cable {
                        let (router, port) = self.port_of_socket(near, per_cable, link);
                        let (far_router, far_port) = self.port_of_socket(far, per_cable, link);
                        let parallel = u32::from(self.parallel);
                        let index = (g * groups + h) * parallel + round * per_cable + link;
                        self.links[index as usize] =
                            GlobalLink { router, port, far_router, far_port };
                        let index = self.far_end_index(g as u16, router, port);
                        self.far_ends[index] = (h as u16, far_router, far_port);
                    }
                }
            }
        }
    }

    /// Router and port of one of a cable's links.
    fn port_of_socket(&self, (set, socket): (u32, u32), per_cable: u32, link: u32) -> (u16, u8) {
        (self.first_gateway() + (set * per_cable + link) as u16, self.first_global + socket as u8)
    }

    /// Joins spine s of each group to all core routers of plane s.
    pub(super) fn lay_core_cables(&mut self) {
        for group in 0..self.node_groups {
            for plane in 0..self.groups - self.node_groups {
                for core in 0..self.parallel {
                    let port = |number: u16| self.first_global + number as u8;
                    let spine = (group, self.slots + plane, port(core));
                    let core_end = (self.node_groups + plane, core, port(group));
                    self.join(spine, core_end, core);
                }
            }
        }
    }

    /// Enters a cable between two ends (group, router, port) as link `number` of their groups.
    fn join(&mut self, one: (u16, u16, u8), other: (u16, u16, u8), number: u16) {
        for (near, far) in [(one, other), (other, one)] {
            let pair = usize::from(near.0) * usize::from(self.groups) + usize::from(far.0);
            self.links[pair * usize::from(self.parallel) + usize::from(number)] =
                GlobalLink { router: near.1, port: near.2, far_router: far.1, far_port: far.2 };
            let index = self.far_end_index(near.0, near.1, near.2);
            self.far_ends[index] = far;
        }
    }
}

/// The sockets of a group's cables, in the order of their numbers: set of routers, and number of the
/// socket among those of the set.
fn sockets_in_order(network: &Network, sockets: &[u32]) -> Vec<(u32, u32)> {
    let used = network.cables_per_group_pair * (network.groups - 1);
    let mut all: Vec<(u32, u32)> = (0u32..)
        .zip(sockets)
        .flat_map(|(set, &count)| (0..count).map(move |socket| (set, socket)))
        .collect();
    assert!(used as usize <= all.len(), "{used} rank-3 cables for {} sockets", all.len());
    match network.plugging {
        Plugging::InOrder => {}
        Plugging::Spread => {
            let socket = |i: u32| (u64::from(i) * all.len() as u64 / u64::from(used)) as usize;
            all = (0..used).map(|i| all[socket(i)]).collect();
        }
        Plugging::AcrossChassis => {
            let sets_per_chassis = network.routers_per_chassis / network.routers_per_cable;
            all.sort_by_key(|&(set, socket)| (socket, set % sets_per_chassis, set));
        }
    }
    all
}

/// The number of group h among the G − 1 others, seen from group g.
fn offset(arrangement: Arrangement, g: u32, h: u32, groups: u32) -> u32 {
    let ahead = (h + groups - g) % groups;
    match arrangement {
        Arrangement::Absolute => h - u32::from(h > g),
        Arrangement::Relative => ahead - 1,
        Arrangement::Circulant => {
            if ahead <= groups / 2 {
                2 * (ahead - 1)
            } else {
                2 * (groups - ahead - 1) + 1
            }
        }
    }
}
