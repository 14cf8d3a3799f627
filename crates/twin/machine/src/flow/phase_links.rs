//! The links of one phase of a job, and the paths of its runs.

use super::extent_waits::CallbackTimes;
use super::fabric::{Fabric, Path, Resource, merge};
use super::network_links::{DRAWS, LinkKey};
use super::objects::LockTimes;
use super::parts::{
    Part, client_parts, requests_together, server_name, server_parts, slowest, slowest_call,
};
use super::runs::Run;
use crate::io::{IoJob, PS_PER_SECOND, ServerRates};
use crate::storage::{DataPath, PathKind};
use forebay_flow::LinkId;
use forebay_workload::ior::Access;
use std::collections::BTreeMap;

/// The largest request of the transfers of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Offset of the first transfer.
    pub offset: u64,
    pub bytes: u64,
}

impl Piece {
    pub fn of(job: &IoJob, access: Access) -> Piece {
        let first = job.pattern.transfer(0, access, 0);
        let bytes = job.pieces(first.offset, first.bytes).map(|piece| piece.bytes).max();
        Piece { offset: first.offset, bytes: bytes.unwrap_or(1).max(1) }
    }
}

/// The number of a server of a job's storage, by its index there, that it has for all jobs of the same file
/// system. Targets of a parallel file system are servers of their own behind the same node.
pub(super) fn server_key(job: &IoJob, number: u32) -> u32 {
    if job.storage.is_parallel() { number } else { job.storage.node_of(number) }
}

/// The links of one phase of a job.
pub(super) struct PhaseLinks<'a> {
    job: &'a IoJob,
    access: Access,
    /// The use that it makes of the servers.
    of_use: usize,
    /// By the node's index in the job.
    pub clients: Vec<LinkId>,
    /// Servers of the simulation by their indices in the job's storage.
    servers: Vec<u32>,
    /// Parts of each server.
    pub server_parts: Vec<Part>,
    pub lock_times: LockTimes,
    pub callback_times: CallbackTimes,
}

/// Demand of a run at links between groups, for each of its servers [`DRAWS`] times.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    of_links: Vec<(LinkKey, f64)>,
    of_servers: Vec<(u32, f64)>,
}

impl<'a> PhaseLinks<'a> {
    /// Adds the links of a phase to a fabric with its use number `of_use`. `lone` is the duration of a call
    /// alone, ps, by the node's index in the job.
    pub fn new(
        (job, access): (&'a IoJob, Access),
        of_use: usize,
        lone: &[f64],
        fabric: &mut Fabric,
    ) -> Self {
        let first = job.pattern.transfer(0, access, 0);
        let piece = Piece::of(job, access);
        let rates = ServerRates::of(job, piece.offset, piece.bytes, access);
        let mut links = PhaseLinks {
            server_parts: server_parts(job, access, &rates, (piece.bytes, slowest_call(lone))),
            lock_times: LockTimes {
                hold: rates.lock_hold as f64,
                handover: rates.handover as f64,
                piece: piece.bytes as f64,
                batch: requests_together(job, &first),
            },
            callback_times: CallbackTimes {
                messages: job.burst_buffer.lock_handover.0,
                on_disk: rates.on_disk,
                disks: (piece.bytes as f64 * PS_PER_SECOND as f64 / rates.flash) as u64,
            },
            job,
            access,
            of_use,
            clients: Vec::new(),
            servers: Vec::new(),
        };
        links.add_clients((piece.bytes, lone), fabric);
        links.add_servers(fabric);
        if job.storage.is_parallel() && fabric.shared_paths.is_empty() {
            links.add_shared_paths(fabric);
        }
        links
    }

    /// Time, ps, in which all processes move `bytes` each, at the rate of all clients or of all servers.
    pub fn shared_time(&self, bytes: u64, fabric: &Fabric) -> f64 {
        let solver = fabric.links.transport.solver();
        let clients: f64 = self.clients.iter().map(|link| solver.capacity(*link)).sum();
        let servers = &self.servers[..self.job.storage.data_servers().len()];
        let of_server = |server: &u32| fabric.servers.rate(self.of_use, *server, &fabric.links);
        let slower = clients.min(servers.iter().map(of_server).sum());
        bytes as f64 * f64::from(self.job.tasks()) * PS_PER_SECOND as f64 / slower
    }

    /// The rate at which a server of the job's storage can serve the phase, bytes per second.
    pub fn rate_of_server(&self, number: u32, fabric: &Fabric) -> f64 {
        fabric.servers.rate(self.of_use, self.servers[number as usize], &fabric.links)
    }

    /// The links of the servers, each of which has one, by their indices in the storage: of a simulation
    /// with one use of them.
    pub fn server_links(&self, fabric: &Fabric) -> Vec<LinkId> {
        self.servers.iter().map(|server| fabric.servers.first_link(*server)).collect()
    }

    /// Bytes of the runs that have crossed the links of each node of the job and of its servers, by node: of a
    /// simulation with one use of the servers.
    pub fn bytes_of_nodes(&self, fabric: &Fabric) -> BTreeMap<u32, f64> {
        let of_servers = self.server_links(fabric);
        let servers = self.job.storage.servers().iter().map(|server| server.node);
        let nodes = self.job.nodes.iter().copied().chain(servers);
        let mut bytes = BTreeMap::new();
        for (link, node) in self.clients.iter().chain(&of_servers).zip(nodes) {
            *bytes.entry(node).or_default() += fabric.links.transport.carried(*link);
        }
        bytes
    }

    /// Shortest paths over which the traffic with each of the servers of a run is spread. The many targets of
    /// a wide file on the parallel file system spread its traffic themselves.
    fn draws(&self, servers: usize) -> u64 {
        match self.job.storage.is_parallel() {
            true => (DRAWS / servers.max(1) as u64).max(1),
            false => DRAWS,
        }
    }

    fn add_clients(&mut self, (piece, lone): (u64, &[f64]), fabric: &mut Fabric) {
        let job = self.job;
        for (index, (&node, lone)) in job.nodes.iter().zip(lone).enumerate() {
            let client = &job.clients[usize::from(job.client_of_node[index])];
            let link = job.links_rate(node);
            let part = slowest(&client_parts(job, client, link, self.access, (piece, *lone)));
            let name = format!("{} of node {node}", part.name);
            self.clients.push(fabric.links.add(part.resource, name, part.rate));
        }
    }

    fn add_servers(&mut self, fabric: &mut Fabric) {
        let job = self.job;
        for (number, place) in job.storage.servers().iter().enumerate() {
            let (number, name) = (number as u32, server_name(job, number as u32, place.node));
            let server = fabric.servers.add(server_key(job, number), &name, &mut fabric.links);
            if let Some(limit) = job.rate_limit {
                let at = (job.number, server);
                fabric.servers.add_limit(at, limit.0 as f64, &mut fabric.links);
            }
            self.servers.push(server);
        }
    }

    /// Adds the data paths of the servers of a parallel file system.
    fn add_shared_paths(&self, fabric: &mut Fabric) {
        let job = self.job;
        let paths = job.storage.paths();
        let routers = paths.iter().filter(|path| path.kind == PathKind::Router);
        // The links of its node carry no more.
        let rate = |path: &DataPath| (path.rate.0 as f64).min(job.links_rate(path.node));
        let of_router = routers.map(rate).fold(f64::INFINITY, f64::min);
        for path in paths {
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
            let binds = path.kind == PathKind::Router || rate(path) < of_router;
            let link = binds.then(|| fabric.links.add(resource, name, rate(path)));
            fabric.shared_paths.push(link);
        }
    }

    /// Counts a run at its servers, before those that start with it find their paths.
    pub fn enter_servers(&self, run: &Run, fabric: &mut Fabric) {
        for &(server, share) in &run.servers {
            let at = (self.servers[server as usize], share);
            fabric.servers.enter(self.of_use, at, &mut fabric.links);
        }
    }

    /// The resource that limits a run whose rate is that of a link; `None`: the process itself, which
    /// waits little for others at the flash.
    pub fn resource_of(&self, link: LinkId, run: &Run, fabric: &mut Fabric) -> Option<Resource> {
        let resource = fabric.links.units[link.index()].resource;
        if resource != Resource::Ssd {
            return Some(resource);
        }
        let servers = run.servers.iter().map(|(server, _)| self.servers[*server as usize]);
        let most = servers.map(|server| fabric.servers.processes(server)).fold(0.0, f64::max);
        fabric.servers.is_flash_limit(self.of_use, most).then_some(resource)
    }

    /// Adds the demand of a run of a process on a node of the job to that at links between groups. `cap`
    /// is the run's most rate, bytes per second; more runs than a server can feed add no demand.
    pub fn add_demand(&self, node: u32, run: &Run, cap: f64, fabric: &mut Fabric) -> Demand {
        let mut demand = Demand { of_links: Vec::new(), of_servers: run.servers.clone() };
        for &(number, share) in &run.servers {
            let server = self.servers[number as usize];
            let capacity = fabric.servers.rate(self.of_use, server, &fabric.links);
            let fair = capacity * share / fabric.servers.processes(server).max(share);
            let (from, to) = self.ends(node, number);
            let keys = fabric.network.direct_links(from, to, self.draws(run.servers.len()));
            for &key in &keys {
                let part = (cap * share).min(fair) / keys.len() as f64;
                demand.of_links.push((key, part));
                fabric.network.direct_link(key, &mut fabric.links).demand += part;
            }
        }
        demand
    }

    /// Takes a run away from its servers and links.
    pub fn remove_demand(&self, demand: &Demand, fabric: &mut Fabric) {
        for &(key, part) in &demand.of_links {
            let link = fabric.network.direct_link(key, &mut fabric.links);
            link.demand = (link.demand - part).max(0.0);
        }
        for &(server, share) in &demand.of_servers {
            let at = (self.servers[server as usize], share);
            fabric.servers.leave(self.of_use, at, &mut fabric.links);
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

    /// The path of a run of a process on a node of the job, without locks.
    pub fn path(&self, node: u32, run: &Run, fabric: &mut Fabric) -> Path {
        let mut path = vec![(self.clients[node as usize], 1.0)];
        for &(number, share) in &run.servers {
            let at = (self.servers[number as usize], share);
            fabric.servers.add_path((self.job.number, self.of_use), at, &mut path);
            if self.job.storage.is_parallel() {
                let shared = &self.job.storage.servers()[number as usize].paths;
                let links = shared.iter().filter_map(|at| fabric.shared_paths[*at as usize]);
                path.extend(links.map(|link| (link, share)));
            }
            let (ends, draws) = (self.ends(node, number), self.draws(run.servers.len()));
            fabric.network.add_path(ends, (share, draws), &mut path, &mut fabric.links);
        }
        merge(&mut path);
        path
    }

    /// The links of a kind of resource, without those of servers.
    pub fn links_of(&self, resource: Resource, fabric: &Fabric) -> Vec<LinkId> {
        let of_clients = self.clients.iter().chain(fabric.shared_paths.iter().flatten()).copied();
        let mut links: Vec<LinkId> = of_clients.chain(fabric.network.links()).collect();
        links.retain(|link| fabric.links.units[link.index()].resource == resource);
        links.sort_unstable();
        links
    }
}
