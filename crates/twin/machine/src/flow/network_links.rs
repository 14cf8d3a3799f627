//! The links of the network as resources of flows.
//!
//! Links that traffic to one destination may take alike are one resource: those within a dragonfly's group,
//! of a leaf to all spines, of a dragonfly+ from group to group, of a fat tree's group to all core routers.
//! Adaptive routing within such a set is not simulated: it fills the set evenly.

use super::fabric::{Fabric, Path, Resource};
use forebay_flow::LinkId;
use forebay_machine_file::machine::{Routing, Structure};
use forebay_network::NodeLocation;
use forebay_random::hash_number;
use rustc_hash::FxHashMap;

/// The links of the network.
#[derive(Debug, Default)]
pub(super) struct NetworkLinks {
    /// All links within each group of a dragonfly.
    local: Vec<LinkId>,
    /// All links up from each leaf, and down to it, group by group.
    up: Vec<LinkId>,
    down: Vec<LinkId>,
    /// All links between groups that lead out of each group, and into it.
    outward: Vec<LinkId>,
    inward: Vec<LinkId>,
    /// All links between groups.
    global: Option<LinkId>,
    /// Links between groups that lie on minimal paths.
    pub direct: FxHashMap<LinkKey, DirectLink>,
}

impl NetworkLinks {
    /// All of them, but that of all links between groups.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        let within = self.local.iter().chain(&self.up).chain(&self.down);
        let of_groups = within.chain(&self.outward).chain(&self.inward).copied();
        of_groups.chain(self.direct.values().map(|direct| direct.link))
    }
}

/// A link between groups: the groups from which and to which it leads, router and port in the first.
pub(super) type LinkKey = (u16, u16, u16, u8);

/// In place of router and port: all links from group to group.
const ALL: (u16, u8) = (u16::MAX, u8::MAX);

fn is_all(key: LinkKey) -> bool {
    (key.2, key.3) == ALL
}

/// A link between groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectLink {
    pub link: LinkId,
    /// Sum of the most rates of the flows with minimal paths over the link.
    pub demand: f64,
}

/// Draws among the shortest paths between two nodes, over which minimal traffic is spread evenly.
const DRAWS: u64 = 8;

impl Fabric<'_> {
    /// Adds the links within groups and between them.
    pub(super) fn add_groups(&mut self) {
        let (topology, network) = (self.job.topology.clone(), self.job.network.clone());
        let [(_, rank1), (_, rank2)] = topology.local_links();
        let local = f64::from(rank1) * network.rank1.rate.0 as f64
            + f64::from(rank2) * network.rank2.rate.0 as f64;
        let global = f64::from(topology.links_out()) * network.global.rate.0 as f64;
        for group in 0..topology.node_groups {
            if topology.has_spines() {
                self.add_leaves(group);
            } else {
                let name = format!("the local links of group {group}");
                let link = self.add_link(Resource::LocalLink, name, local);
                self.network.local.push(link);
            }
            let name = format!("all rank-3 links out of group {group}");
            let link = self.add_link(Resource::GlobalLink, name, global);
            self.network.outward.push(link);
            let name = format!("all rank-3 links into group {group}");
            let link = self.add_link(Resource::GlobalLink, name, global);
            self.network.inward.push(link);
        }
        match topology.structure {
            Structure::Dragonfly | Structure::DragonflyPlus if topology.node_groups > 1 => {
                let all = global * f64::from(topology.node_groups);
                let link = self.add_link(Resource::GlobalLink, "all rank-3 links".into(), all);
                self.network.global = Some(link);
            }
            // There are no detours.
            Structure::Dragonfly | Structure::DragonflyPlus | Structure::FatTree => {}
        }
    }

    /// Adds the links of each leaf to all spines of its group, and from them.
    fn add_leaves(&mut self, group: u16) {
        let (topology, network) = (self.job.topology.clone(), self.job.network.clone());
        let rate = f64::from(topology.spines) * network.rank1.rate.0 as f64;
        for leaf in 0..topology.slots {
            let name = format!("the links up from leaf {leaf} of group {group}");
            let link = self.add_link(Resource::LocalLink, name, rate);
            self.network.up.push(link);
            let name = format!("the links down to leaf {leaf} of group {group}");
            let link = self.add_link(Resource::LocalLink, name, rate);
            self.network.down.push(link);
        }
    }

    /// Draws for each of the servers of a run. The many targets of a wide file on the parallel file system
    /// spread its traffic themselves.
    fn draws(&self, servers: usize) -> u64 {
        match self.job.storage.is_parallel() {
            true => (DRAWS / servers.max(1) as u64).max(1),
            false => DRAWS,
        }
    }

    /// The links between groups on some of the shortest paths between two nodes, or [`ALL`] where all
    /// lie on such paths; none within a group and in a fat tree. `servers` are those of the run.
    pub(super) fn direct_links(&self, from: u32, to: u32, servers: usize) -> Vec<LinkKey> {
        let (a, b) = (self.job.topology.location(from), self.job.topology.location(to));
        let draws = match self.job.topology.structure {
            _ if a.group == b.group => 0,
            Structure::Dragonfly => self.draws(servers),
            Structure::DragonflyPlus => return vec![(a.group, b.group, ALL.0, ALL.1)],
            Structure::FatTree => 0,
        };
        // With fewer draws, the pairs of nodes begin at different links.
        let is_few = draws < DRAWS;
        let first = if is_few { hash_number((u64::from(from) << 32) | u64::from(to)) } else { 0 };
        let link = |draw: u64| {
            let random = first.wrapping_add(u64::MAX / draws * draw);
            let ends = ((a.group, a.router), (b.group, b.router));
            let link = self.job.topology.shortest_link(ends.0, ends.1, random);
            (a.group, b.group, link.router, link.port)
        };
        (0..draws).map(link).collect()
    }

    pub(super) fn direct_link(&mut self, key: LinkKey) -> &mut DirectLink {
        if !self.network.direct.contains_key(&key) {
            let which = if is_all(key) { "the rank-3 links" } else { "a rank-3 link" };
            let name = format!("{which} from group {} to {}", key.0, key.1);
            let link = self.add_link(Resource::GlobalLink, name, self.capacity_of(key));
            self.network.direct.insert(key, DirectLink { link, demand: 0.0 });
        }
        let link = self.network.direct.get_mut(&key);
        link.unwrap_or_else(|| unreachable!("{key:?} was inserted"))
    }

    /// Links that a key stands for.
    fn count_of(&self, key: LinkKey) -> f64 {
        if is_all(key) { f64::from(self.job.topology.parallel) } else { 1.0 }
    }

    fn capacity_of(&self, key: LinkKey) -> f64 {
        self.count_of(key) * self.job.network.global.rate.0 as f64
    }

    /// The resources that are links between groups, each with the links that it stands for; in a fat tree
    /// those of groups to all core routers, and from them. In the order of their numbers, on which sums
    /// depend.
    pub fn rank3_links(&self) -> Vec<(LinkId, f64)> {
        let mut links: Vec<(LinkId, f64)> = match self.job.topology.structure {
            Structure::Dragonfly | Structure::DragonflyPlus => {
                let direct = self.network.direct.iter();
                direct.map(|(key, direct)| (direct.link, self.count_of(*key))).collect()
            }
            Structure::FatTree => {
                let both = self.network.outward.iter().chain(&self.network.inward);
                both.map(|link| (*link, f64::from(self.job.topology.links_out()))).collect()
            }
        };
        links.sort_unstable_by_key(|(link, _)| *link);
        links
    }

    /// Adds the links between two nodes, of which one is one of the `servers` servers of a run, for `share`
    /// of its bytes.
    pub(super) fn add_network(
        &mut self,
        (from, to): (u32, u32),
        (share, servers): (f64, usize),
        path: &mut Path,
    ) {
        let topology = self.job.topology.clone();
        let (a, b) = (topology.location(from), topology.location(to));
        if a.group == b.group && !topology.has_spines() {
            let hops = f64::from(topology.distance(a.router, b.router));
            return self.add_local(a.group, share * hops, path);
        }
        if topology.has_spines() && (a.group, a.router) != (b.group, b.router) {
            path.push((self.network.up[self.leaf(&a)], share));
            path.push((self.network.down[self.leaf(&b)], share));
        }
        if a.group == b.group {
            return;
        }
        path.push((self.network.outward[usize::from(a.group)], share));
        path.push((self.network.inward[usize::from(b.group)], share));
        let direct = self.direct_links(from, to, servers);
        let part = share / direct.len() as f64;
        let mut minimal = 0.0;
        for key in direct {
            if !topology.has_spines() {
                let far = topology.far_end(key.0, key.2, key.3).map_or(b.router, |far| far.1);
                let near = f64::from(topology.distance(a.router, key.2));
                self.add_local(a.group, part * near, path);
                self.add_local(b.group, part * f64::from(topology.distance(far, b.router)), path);
            }
            let direct = part * self.minimal_share(key);
            minimal += direct;
            if direct > 0.0 {
                path.push((self.direct_link(key).link, direct));
            }
        }
        // A detour crosses another link, of a group on its way.
        path.extend(self.network.global.map(|link| (link, 2.0 * share - minimal)));
    }

    /// The share of the minimal traffic that stays on a link: adaptive routing takes detours for what the
    /// link cannot carry.
    fn minimal_share(&mut self, key: LinkKey) -> f64 {
        let demand = self.direct_link(key).demand;
        let capacity = self.capacity_of(key);
        match self.job.network.routing.algorithm {
            Routing::Minimal => 1.0,
            Routing::Valiant => 0.0,
            Routing::UgalL | Routing::ProgressiveAdaptive if self.job.topology.groups < 3 => 1.0,
            Routing::UgalL | Routing::ProgressiveAdaptive => (capacity / demand).min(1.0),
        }
    }

    fn add_local(&self, group: u16, share: f64, path: &mut Path) {
        if share > 0.0 {
            path.push((self.network.local[usize::from(group)], share));
        }
    }

    /// Index of the leaf of a node among all leaves.
    fn leaf(&self, place: &NodeLocation) -> usize {
        usize::from(place.group) * usize::from(self.job.topology.slots) + usize::from(place.router)
    }
}
