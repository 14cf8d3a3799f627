//! The resources that runs cross, as links of a flow system.

use super::objects::LockTimes;
use super::runs::Run;
use crate::io::{IoJob, PS_PER_SECOND, ServerRates};
use crate::storage::PathKind;
use forebay_flow::{LinkId, Transport};
use forebay_machine_file::machine::{Client, Routing};
use forebay_workload::ior::{Access, Transfer};
use rustc_hash::FxHashMap;

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    Client,
    NodeLink,
    LocalLink,
    GlobalLink,
    Server,
    /// Of an LNET node.
    Router,
    Lock,
    Ssd,
}

impl Resource {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Client => "client",
            Resource::NodeLink => "node-link",
            Resource::LocalLink => "local-link",
            Resource::GlobalLink => "global-link",
            Resource::Server | Resource::Lock => "server",
            Resource::Router => "lnet-router",
            Resource::Ssd => "ssd",
        }
    }
}

/// A part of a server or client: kind, name and rate. The slowest of several that carry the same bytes is
/// their link's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub resource: Resource,
    pub name: &'static str,
    pub rate: f64,
}

fn slowest(parts: &[Part]) -> Part {
    let slowest = parts.iter().min_by(|a, b| a.rate.total_cmp(&b.rate));
    *slowest.unwrap_or_else(|| unreachable!("a link without a part"))
}

/// The kind of resource of a link, and the group, pair of groups, node or server it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    pub resource: Resource,
    pub name: String,
}

/// The resources of one phase of a job.
pub(super) struct Fabric<'a> {
    job: &'a IoJob,
    access: Access,
    pub transport: Transport,
    /// By the number of the link.
    pub units: Vec<Unit>,
    /// By the node's index in the job, and by the server's index in the storage.
    pub clients: Vec<LinkId>,
    pub servers: Vec<LinkId>,
    /// The data paths that several servers share, by their index in the storage.
    pub shared_paths: Vec<LinkId>,
    /// Runs at each server, by their shares of bytes.
    at_servers: Vec<f64>,
    /// Parts of each server.
    pub server_parts: Vec<Part>,
    /// All links between groups that lead out of each group, and into it.
    outward: Vec<LinkId>,
    inward: Vec<LinkId>,
    local: Vec<LinkId>,
    /// All links between groups.
    global: Option<LinkId>,
    /// Links between groups that lie on minimal paths.
    pub direct: FxHashMap<LinkKey, DirectLink>,
    pub lock_times: LockTimes,
}

/// A link between groups: the groups from which and to which it leads, router and port in the first.
pub(super) type LinkKey = (u16, u16, u16, u8);

/// A link between groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirectLink {
    pub link: LinkId,
    /// Sum of the most rates of the flows with minimal paths over the link.
    demand: f64,
}

/// Demand of a run at links between groups, for each of its servers [`DRAWS`] times.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    of_links: Vec<(LinkKey, f64)>,
    of_servers: Vec<(u32, f64)>,
}

/// Links, each with the share of a run's bytes that cross it.
pub(super) type Path = Vec<(LinkId, f64)>;

/// Draws among the shortest paths between two nodes, over which minimal traffic is spread evenly.
const DRAWS: u64 = 8;

impl<'a> Fabric<'a> {
    /// `lone` is the duration of a call alone, ps, by the node's index in the job.
    /// `first_run` is a run of the phase.
    pub fn new(
        job: &'a IoJob,
        access: Access,
        lone: &[f64],
        resolution: u64,
        first_run: &Run,
    ) -> Self {
        let first = job.pattern.transfer(0, access, 0);
        let bytes = job.pieces(first.offset, first.bytes).map(|piece| piece.bytes).max();
        let piece = bytes.unwrap_or(1).max(1);
        let at_object = first_run.objects.first().map_or(1.0, |(_, share)| *share);
        let requests_of_run = (first_run.bytes as f64 * at_object / piece as f64).max(1.0);
        let rates = ServerRates::of(job, first.offset, piece, access);
        let slowest_call = lone.iter().copied().fold(1.0, f64::max);
        let mut fabric = Fabric {
            server_parts: server_parts(job, access, &rates, (piece, slowest_call)),
            lock_times: LockTimes {
                hold: rates.lock_hold as f64,
                handover: job.burst_buffer.lock_handover.0 as f64,
                piece: piece as f64,
                batch: match job.storage.is_parallel() {
                    true => requests_of_run,
                    false => requests_together(job, &first),
                },
                extents: job.storage.is_parallel(),
            },
            job,
            access,
            transport: Transport::new(resolution),
            units: Vec::new(),
            clients: Vec::new(),
            servers: Vec::new(),
            at_servers: vec![0.0; job.storage.servers().len()],
            shared_paths: Vec::new(),
            outward: Vec::new(),
            inward: Vec::new(),
            local: Vec::new(),
            global: None,
            direct: FxHashMap::default(),
        };
        fabric.add_nodes((piece, lone));
        fabric.add_groups();
        fabric
    }

    pub fn add_link(&mut self, resource: Resource, name: String, rate: f64) -> LinkId {
        self.units.push(Unit { resource, name });
        self.transport.add_link(rate)
    }

    fn add_nodes(&mut self, (piece, lone): (u64, &[f64])) {
        let job = self.job;
        for (index, (&node, lone)) in job.nodes.iter().zip(lone).enumerate() {
            let client = &job.clients[usize::from(job.client_of_node[index])];
            let part =
                slowest(&client_parts(client, job.node_link.0 as f64, self.access, (piece, *lone)));
            let link =
                self.add_link(part.resource, format!("{} of node {node}", part.name), part.rate);
            self.clients.push(link);
        }
        let part = slowest(&self.server_parts);
        for (number, place) in job.storage.servers().iter().enumerate() {
            let of = server_name(job, number as u32, place.node);
            let link = self.add_link(part.resource, format!("{} of {of}", part.name), part.rate);
            self.servers.push(link);
        }
        if job.storage.is_parallel() {
            self.add_shared_paths();
        }
    }

    /// Adds the data paths of the servers of a parallel file system.
    fn add_shared_paths(&mut self) {
        let job = self.job;
        for path in job.storage.paths() {
            let group = job.topology.location(path.node).group;
            let (resource, name) = match path.kind {
                PathKind::Router => {
                    (Resource::Router, format!("LNET router, node {}, group {group}", path.node))
                }
                PathKind::ObjectServer(server) => {
                    (Resource::Server, format!("data path of OSS {server}"))
                }
                PathKind::Node => (Resource::Server, format!("data path of node {}", path.node)),
            };
            // The link of its node carries no more.
            let rate = path.rate.0.min(job.node_link.0) as f64;
            let link = self.add_link(resource, name, rate);
            self.shared_paths.push(link);
        }
    }

    fn add_groups(&mut self) {
        let (topology, network) = (self.job.topology.clone(), self.job.network.clone());
        let routers = f64::from(topology.routers());
        let local = routers
            * (f64::from(topology.slots - 1) * network.rank1.rate.0 as f64
                + f64::from(topology.chassis - 1) * network.rank2.rate.0 as f64);
        let others = f64::from(topology.groups - 1);
        let global = others * f64::from(topology.parallel) * network.global.rate.0 as f64;
        for group in 0..topology.groups {
            let name = format!("the local links of group {group}");
            let link = self.add_link(Resource::LocalLink, name, local);
            self.local.push(link);
            let name = format!("all rank-3 links out of group {group}");
            let link = self.add_link(Resource::GlobalLink, name, global);
            self.outward.push(link);
            let name = format!("all rank-3 links into group {group}");
            let link = self.add_link(Resource::GlobalLink, name, global);
            self.inward.push(link);
        }
        if topology.groups > 1 {
            let all = global * f64::from(topology.groups);
            let link = self.add_link(Resource::GlobalLink, "all rank-3 links".into(), all);
            self.global = Some(link);
        }
    }

    /// Counts a run at its servers, before those that start with it find their paths.
    pub fn enter_servers(&mut self, run: &Run) {
        for &(server, share) in &run.servers {
            self.at_servers[server as usize] += share;
        }
    }

    /// Adds the demand of a run of a process on a node of the job to that at links between groups. `cap`
    /// is the run's most rate, bytes per second; more runs than a server can feed add no demand.
    pub fn add_demand(&mut self, node: u32, run: &Run, cap: f64) -> Demand {
        let mut demand = Demand { of_links: Vec::new(), of_servers: run.servers.clone() };
        for &(server, share) in &run.servers {
            let capacity = self.transport.solver().capacity(self.servers[server as usize]);
            let fair = capacity * share / self.at_servers[server as usize].max(share);
            let (from, to) = self.ends(node, server);
            for link in self.direct_links(from, to) {
                let part = (cap * share).min(fair) / DRAWS as f64;
                demand.of_links.push((link, part));
                self.direct_link(link).demand += part;
            }
        }
        demand
    }

    /// Takes a run away from its servers and links.
    pub fn remove_demand(&mut self, demand: &Demand) {
        for &(link, part) in &demand.of_links {
            let link = self.direct_link(link);
            link.demand = (link.demand - part).max(0.0);
        }
        for &(server, share) in &demand.of_servers {
            let at_server = &mut self.at_servers[server as usize];
            *at_server = (*at_server - share).max(0.0);
        }
    }

    /// The nodes from which and to which data move between a node of the job and a server.
    fn ends(&self, node: u32, server: u32) -> (u32, u32) {
        let client = self.job.nodes[node as usize];
        let server = self.job.storage.node_of(server);
        match self.access {
            Access::Write => (client, server),
            Access::Read => (server, client),
        }
    }

    /// The links between groups on [`DRAWS`] of the shortest paths between two nodes; none within a group.
    fn direct_links(&self, from: u32, to: u32) -> Vec<LinkKey> {
        let (a, b) = (self.job.topology.location(from), self.job.topology.location(to));
        let draws = if a.group == b.group { 0 } else { DRAWS };
        let link = |draw: u64| {
            let random = u64::MAX / DRAWS * draw;
            let ends = ((a.group, a.router), (b.group, b.router));
            let link = self.job.topology.shortest_link(ends.0, ends.1, random);
            (a.group, b.group, link.router, link.port)
        };
        (0..draws).map(link).collect()
    }

    fn direct_link(&mut self, key: LinkKey) -> &mut DirectLink {
        if !self.direct.contains_key(&key) {
            let name = format!("a rank-3 link from group {} to {}", key.0, key.1);
            let capacity = self.job.network.global.rate.0 as f64;
            let link = self.add_link(Resource::GlobalLink, name, capacity);
            self.direct.insert(key, DirectLink { link, demand: 0.0 });
        }
        let link = self.direct.get_mut(&key);
        link.unwrap_or_else(|| unreachable!("{key:?} was inserted"))
    }

    /// The path of a run of a process on a node of the job, without locks.
    pub fn path(&mut self, node: u32, run: &Run) -> Path {
        let mut path = vec![(self.clients[node as usize], 1.0)];
        for &(server, share) in &run.servers {
            path.push((self.servers[server as usize], share));
            if !self.shared_paths.is_empty() {
                let shared = &self.job.storage.servers()[server as usize].paths;
                path.extend(shared.iter().map(|at| (self.shared_paths[*at as usize], share)));
            }
            let ends = self.ends(node, server);
            self.add_network(ends, share, &mut path);
        }
        path.sort_unstable_by_key(|(link, _)| *link);
        path.dedup_by(|next, before| {
            let same = next.0 == before.0;
            before.1 += if same { next.1 } else { 0.0 };
            same
        });
        path
    }

    /// Adds the links between two nodes.
    fn add_network(&mut self, (from, to): (u32, u32), share: f64, path: &mut Path) {
        let topology = self.job.topology.clone();
        let (a, b) = (topology.location(from), topology.location(to));
        if a.group == b.group {
            let hops = f64::from(topology.distance(a.router, b.router));
            return self.add_local(a.group, share * hops, path);
        }
        path.push((self.outward[usize::from(a.group)], share));
        path.push((self.inward[usize::from(b.group)], share));
        let part = share / DRAWS as f64;
        let mut minimal = 0.0;
        for key in self.direct_links(from, to) {
            let far = topology.far_end(key.0, key.2, key.3).map_or(b.router, |far| far.1);
            self.add_local(a.group, part * f64::from(topology.distance(a.router, key.2)), path);
            self.add_local(b.group, part * f64::from(topology.distance(far, b.router)), path);
            let direct = part * self.minimal_share(key);
            minimal += direct;
            if direct > 0.0 {
                path.push((self.direct_link(key).link, direct));
            }
        }
        // A detour crosses another link, of a group on its way.
        path.extend(self.global.map(|link| (link, 2.0 * share - minimal)));
    }

    /// The share of the minimal traffic that stays on a link: adaptive routing takes detours for what the
    /// link cannot carry.
    fn minimal_share(&mut self, key: LinkKey) -> f64 {
        let demand = self.direct_link(key).demand;
        let capacity = self.job.network.global.rate.0 as f64;
        match self.job.network.routing.algorithm {
            Routing::Minimal => 1.0,
            Routing::Valiant => 0.0,
            Routing::UgalL | Routing::ProgressiveAdaptive if self.job.topology.groups < 3 => 1.0,
            Routing::UgalL | Routing::ProgressiveAdaptive => (capacity / demand).min(1.0),
        }
    }

    fn add_local(&self, group: u16, share: f64, path: &mut Path) {
        if share > 0.0 {
            path.push((self.local[usize::from(group)], share));
        }
    }

    /// The links of a kind of resource, without those of servers.
    pub fn links_of(&self, resource: Resource) -> Vec<LinkId> {
        let of_clients = self.clients.iter().chain(&self.shared_paths).copied();
        let of_groups = self.local.iter().chain(&self.outward).chain(&self.inward).copied();
        let direct = self.direct.values().map(|direct| direct.link);
        let mut links: Vec<LinkId> = of_clients.chain(of_groups).chain(direct).collect();
        links.retain(|link| self.units[link.index()].resource == resource);
        links.sort_unstable();
        links
    }
}

/// Requests of a transfer that are in flight to one object together.
fn requests_together(job: &IoJob, transfer: &Transfer) -> f64 {
    let object = |offset| (job.server_of(transfer.file, offset), job.object_of(offset));
    let first = object(transfer.offset);
    let in_flight = job.pieces(transfer.offset, transfer.bytes);
    let in_flight = in_flight.take(job.client.requests_in_flight.max(1) as usize);
    in_flight.filter(|piece| object(piece.offset) == first).count().max(1) as f64
}

/// The parts of a client in the direction of an access, for requests of `piece` bytes in calls of `lone`
/// ps.
fn client_parts(
    client: &Client,
    node_link: f64,
    access: Access,
    (piece, lone): (u64, f64),
) -> [Part; 3] {
    let rate = match access {
        Access::Write => client.write_rate,
        Access::Read => client.read_rate,
    };
    let in_flight = f64::from(client.requests_per_node) * piece as f64;
    [
        Part { resource: Resource::Client, name: "client", rate: rate.0 as f64 },
        Part {
            resource: Resource::Client,
            name: "requests in flight",
            rate: in_flight * PS_PER_SECOND as f64 / lone,
        },
        Part { resource: Resource::NodeLink, name: "link", rate: node_link },
    ]
}

/// The name of a server: that of its node, or of the target of a parallel file system.
fn server_name(job: &IoJob, number: u32, node: u32) -> String {
    let group = job.topology.location(node).group;
    match job.storage.is_parallel() {
        true => format!("OST {number} behind node {node}, group {group}"),
        false => format!("node {node}, group {group}"),
    }
}

/// The parts of a server. A request takes a thread for the time of a lone call at most.
fn server_parts(
    job: &IoJob,
    access: Access,
    rates: &ServerRates,
    (piece, lone): (u64, f64),
) -> Vec<Part> {
    let make = &job.burst_buffer;
    let at_server = (lone - job.client.call_overhead.0 as f64).max(1.0);
    let threads = f64::from(make.threads) * piece as f64 * PS_PER_SECOND as f64 / at_server;
    let part = |resource, name, rate| Part { resource, name, rate };
    let path = match access {
        Access::Write => "data path in",
        Access::Read => "data path out",
    };
    let mut parts = vec![
        part(Resource::Server, "dispatch", rates.dispatch),
        part(Resource::Server, "threads", threads),
    ];
    if job.storage.is_parallel() {
        parts.push(part(Resource::Ssd, "disks", rates.flash));
        return parts;
    }
    parts.push(part(Resource::Server, path, rates.data_path));
    parts.push(part(Resource::NodeLink, "link", job.node_link.0 as f64));
    if access == Access::Read || make.dirty_limit.0 == 0 {
        parts.push(part(Resource::Ssd, "flash", rates.flash));
    }
    parts
}
