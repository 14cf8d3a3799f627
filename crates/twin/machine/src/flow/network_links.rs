//! The links of the network as resources of flows.
//!
//! Links that traffic to one destination may take alike are one resource: those within a dragonfly's group,
//! of a leaf to all spines, of a dragonfly+ from group to group, of a fat tree's group to all core routers.
//! Adaptive routing within such a set is not simulated: it fills the set evenly.

use super::fabric::{Path, Resource};
use super::links::Links;
use forebay_flow::LinkId;
use forebay_machine_file::machine::{Network, Routing, Structure};
use forebay_network::{NodeLocation, Topology};
use forebay_random::hash_number;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The links of the network.
#[derive(Debug)]
pub(super) struct NetworkLinks {
    pub topology: Arc<Topology>,
    parameters: Arc<Network>,
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
    /// A network without its links.
    pub fn new(topology: &Arc<Topology>, parameters: &Arc<Network>) -> Self {
        NetworkLinks {
            topology: topology.clone(),
            parameters: parameters.clone(),
            local: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            outward: Vec::new(),
            inward: Vec::new(),
            global: None,
            direct: FxHashMap::default(),
        }
    }

    /// The same network without its links.
    pub fn without_flows(&self) -> NetworkLinks {
        NetworkLinks::new(&self.topology, &self.parameters)
    }

    /// All of them, but that of all links between groups.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        let within = self.local.iter().chain(&self.up).chain(&self.down);
        let of_groups = within.chain(&self.outward).chain(&self.inward).copied();
        of_groups.chain(self.direct.values().map(|direct| direct.link))
    }

    /// That of all links between groups, which detours cross.
    pub fn all_between(&self) -> Option<LinkId> {
        self.global
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
pub(super) const DRAWS: u64 = 8;

impl NetworkLinks {
    /// Whether packets between groups may take detours over others.
    pub fn has_detours(&self) -> bool {
        self.global.is_some()
    }

    /// Adds the links within groups and between them.
    pub fn add_groups(&mut self, links: &mut Links) {
        let (topology, network) = (self.topology.clone(), self.parameters.clone());
        let [(_, rank1), (_, rank2)] = topology.local_links();
        let local = f64::from(rank1) * network.rank1.rate.0 as f64
            + f64::from(rank2) * network.rank2.rate.0 as f64;
        let global = f64::from(topology.links_out()) * network.global.rate.0 as f64;
        for group in 0..topology.node_groups {
            if topology.has_spines() {
                self.add_leaves(group, links);
            } else {
                let name = format!("the local links of group {group}");
                let link = links.add(Resource::LocalLink, name, local);
                self.local.push(link);
            }
            let name = format!("all rank-3 links out of group {group}");
            let link = links.add(Resource::GlobalLink, name, global);
            self.outward.push(link);
            let name = format!("all rank-3 links into group {group}");
            let link = links.add(Resource::GlobalLink, name, global);
            self.inward.push(link);
        }
        match topology.structure {
            Structure::Dragonfly | Structure::DragonflyPlus if topology.node_groups > 1 => {
                let all = global * f64::from(topology.node_groups);
                let link = links.add(Resource::GlobalLink, "all rank-3 links".into(), all);
                self.global = Some(link);
            }
            // There are no detours.
            Structure::Dragonfly | Structure::DragonflyPlus | Structure::FatTree => {}
        }
    }

    /// Adds the links of each leaf to all spines of its group, and from them.
    fn add_leaves(&mut self, group: u16, links: &mut Links) {
        let (topology, network) = (self.topology.clone(), self.parameters.clone());
        let rate = f64::from(topology.spines) * network.rank1.rate.0 as f64;
        for leaf in 0..topology.slots {
            let name = format!("the links up from leaf {leaf} of group {group}");
            let link = links.add(Resource::LocalLink, name, rate);
            self.up.push(link);
            let name = format!("the links down to leaf {leaf} of group {group}");
            let link = links.add(Resource::LocalLink, name, rate);
            self.down.push(link);
        }
    }

    /// The links between groups on some of the shortest paths between two nodes, or [`ALL`] where all
    /// lie on such paths; none within a group and in a fat tree. `draws` is the number of paths.
    pub fn direct_links(&self, from: u32, to: u32, draws: u64) -> Vec<LinkKey> {
        let (a, b) = (self.topology.location(from), self.topology.location(to));
        let draws = match self.topology.structure {
            _ if a.group == b.group => 0,
            Structure::Dragonfly => draws,
            Structure::DragonflyPlus => return vec![(a.group, b.group, ALL.0, ALL.1)],
            Structure::FatTree => 0,
        };
        // With fewer draws, the pairs of nodes begin at different links.
        let is_few = draws < DRAWS;
        let first = if is_few { hash_number((u64::from(from) << 32) | u64::from(to)) } else { 0 };
        let link = |draw: u64| {
            let random = first.wrapping_add(u64::MAX / draws * draw);
            let ends = ((a.group, a.router), (b.group, b.router));
            let link = self.topology.shortest_link(ends.0, ends.1, random);
            (a.group, b.group, link.router, link.port)
        };
        (0..draws).map(link).collect()
    }

    /// A link between groups.
    pub fn direct_link(&mut self, key: LinkKey, links: &mut Links) -> &mut DirectLink {
        if !self.direct.contains_key(&key) {
            let which = if is_all(key) { "the rank-3 links" } else { "a rank-3 link" };
            let name = format!("{which} from group {} to {}", key.0, key.1);
            let link = links.add(Resource::GlobalLink, name, self.capacity_of(key));
            self.direct.insert(key, DirectLink { link, demand: 0.0 });
        }
        let link = self.direct.get_mut(&key);
        link.unwrap_or_else(|| unreachable!("{key:?} was inserted"))
    }

    /// Links that a key stands for.
    fn count_of(&self, key: LinkKey) -> f64 {
        if is_all(key) { f64::from(self.topology.parallel) } else { 1.0 }
    }

    fn capacity_of(&self, key: LinkKey) -> f64 {
        self.count_of(key) * self.parameters.global.rate.0 as f64
    }

    /// The resources that are links between groups, each with the links that it stands for; in a fat tree
    /// those of groups to all core routers, and from them. In the order of their numbers, on which sums
    /// depend.
    pub fn rank3_links(&self) -> Vec<(LinkId, f64)> {
        let mut links: Vec<(LinkId, f64)> = match self.topology.structure {
            Structure::Dragonfly | Structure::DragonflyPlus => {
                let direct = self.direct.iter();
                direct.map(|(key, direct)| (direct.link, self.count_of(*key))).collect()
            }
            Structure::FatTree => {
                let both = self.outward.iter().chain(&self.inward);
                both.map(|link| (*link, f64::from(self.topology.links_out()))).collect()
            }
        };
        links.sort_unstable_by_key(|(link, _)| *link);
        links
    }

    /// The links of [`NetworkLinks::add_path`] between two nodes, each with the most share of the bytes that crosses it,
    /// with the links between groups on some of the shortest paths, in order.
    pub fn most_shares(&self, (from, to): (u32, u32), direct: &[LinkKey]) -> Path {
        // A path within a group has two links at most.
        const WITHIN: f64 = 2.0;
        let (a, b) = (self.topology.location(from), self.topology.location(to));
        let mut shares = Path::new();
        if self.topology.has_spines() {
            shares.extend([(self.up[self.leaf(&a)], 1.0), (self.down[self.leaf(&b)], 1.0)]);
        } else {
            let groups = [a.group, b.group].map(|group| self.local[usize::from(group)]);
            shares.extend(groups.map(|link| (link, WITHIN)));
        }
        shares.push((self.outward[usize::from(a.group)], 1.0));
        shares.push((self.inward[usize::from(b.group)], 1.0));
        for same in direct.chunk_by(|a, b| a == b) {
            let link = self.direct[&same[0]].link;
            shares.push((link, same.len() as f64 / direct.len() as f64));
        }
        shares.extend(self.global.map(|link| (link, 2.0)));
        shares
    }

    /// Adds the links between two nodes for `share` of a flow's bytes, over `draws` shortest paths.
    pub fn add_path(
        &mut self,
        (from, to): (u32, u32),
        (share, draws): (f64, u64),
        path: &mut Path,
        links: &mut Links,
    ) {
        let topology = self.topology.clone();
        let (a, b) = (topology.location(from), topology.location(to));
        if a.group == b.group && !topology.has_spines() {
            let hops = f64::from(topology.distance(a.router, b.router));
            return self.add_local(a.group, share * hops, path);
        }
        if topology.has_spines() && (a.group, a.router) != (b.group, b.router) {
            path.push((self.up[self.leaf(&a)], share));
            path.push((self.down[self.leaf(&b)], share));
        }
        if a.group == b.group {
            return;
        }
        path.push((self.outward[usize::from(a.group)], share));
        path.push((self.inward[usize::from(b.group)], share));
        let direct = self.direct_links(from, to, draws);
        let part = share / direct.len() as f64;
        let mut minimal = 0.0;
        for key in direct {
            if !topology.has_spines() {
                let far = topology.far_end(key.0, key.2, key.3).map_or(b.router, |far| far.1);
                let near = f64::from(topology.distance(a.router, key.2));
                self.add_local(a.group, part * near, path);
                self.add_local(b.group, part * f64::from(topology.distance(far, b.router)), path);
            }
            let direct = part * self.minimal_share(key, links);
            minimal += direct;
            if direct > 0.0 {
                path.push((self.direct_link(key, links).link, direct));
            }
        }
        // A detour crosses another link, of a group on its way.
        path.extend(self.global.map(|link| (link, 2.0 * share - minimal)));
    }

    /// The share of the minimal traffic that stays on a link: adaptive routing takes detours for what the
    /// link cannot carry.
    fn minimal_share(&mut self, key: LinkKey, links: &mut Links) -> f64 {
        let demand = self.direct_link(key, links).demand;
        match self.parameters.routing.algorithm {
            Routing::Valiant => 0.0,
            _ if self.has_detours_for(key, demand) => self.capacity_of(key) / demand,
            Routing::Minimal | Routing::UgalL | Routing::ProgressiveAdaptive => 1.0,
        }
    }

    /// Whether adaptive routing takes detours for a part of this demand of a link between groups.
    pub fn has_detours_for(&self, key: LinkKey, demand: f64) -> bool {
        let is_adaptive = match self.parameters.routing.algorithm {
            Routing::Minimal | Routing::Valiant => false,
            Routing::UgalL | Routing::ProgressiveAdaptive => self.topology.groups >= 3,
        };
        is_adaptive && demand > self.capacity_of(key)
    }

    /// Links within the group in its middle that a detour of a dragonfly crosses, to a random router and on;
    /// 0 in other structures.
    pub fn local_links_of_detour(&self) -> f64 {
        if self.topology.has_spines() || self.global.is_none() {
            return 0.0;
        }
        // A random router has another slot, and another chassis, with these probabilities.
        let other = |count: u16| 1.0 - 1.0 / f64::from(count.max(1));
        2.0 * (other(self.topology.slots) + other(self.topology.chassis))
    }

    /// Links between routers that a flow with this path crosses, on the mean of its bytes, and the share of
    /// them that take a detour; without [those](NetworkLinks::local_links_of_detour) in its middle.
    pub fn hops(&self, path: &Path) -> (f64, f64) {
        let on = |all: &mut dyn Iterator<Item = &LinkId>| -> f64 {
            let links: std::collections::BTreeSet<LinkId> = all.copied().collect();
            path.iter().filter(|(link, _)| links.contains(link)).map(|(_, share)| share).sum()
        };
        let within = on(&mut self.local.iter().chain(&self.up).chain(&self.down));
        let outward = on(&mut self.outward.iter());
        let between = match self.global {
            Some(_) => on(&mut self.global.iter()),
            None => outward + on(&mut self.inward.iter()),
        };
        let detours = if self.global.is_some() { between - outward } else { 0.0 };
        (within + between, detours)
    }

    fn add_local(&self, group: u16, share: f64, path: &mut Path) {
        if share > 0.0 {
            path.push((self.local[usize::from(group)], share));
        }
    }

    /// Index of the leaf of a node among all leaves.
    fn leaf(&self, place: &NodeLocation) -> usize {
        usize::from(place.group) * usize::from(self.topology.slots) + usize::from(place.router)
    }
}
