//! The resources that runs cross, as links of a flow system.

use super::flash_queue::FlashQueue;
use super::links::Links;
use super::network_links::{DRAWS, DirectLink, LinkKey, NetworkLinks};
use super::objects::LockTimes;
use super::runs::Run;
use super::traffic::{TrafficFlows, traffic_flows};
use crate::io::{IoJob, PS_PER_SECOND, ServerRates};
use crate::storage::{DataPath, PathKind};
use crate::traffic::TrafficJob;
use forebay_flow::LinkId;
use forebay_machine_file::machine::Client;
use forebay_units::Bytes;
use forebay_workload::ior::{Access, Transfer};
use std::sync::Arc;

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

/// The resources of one phase of a job.
pub(super) struct Fabric<'a> {
    pub(super) job: &'a IoJob,
    access: Access,
    pub links: Links,
    /// By the node's index in the job, and by the server's index in the storage.
    pub clients: Vec<LinkId>,
    pub servers: Vec<LinkId>,
    /// The data paths that several servers share, by their index in the storage; `None` for those that
    /// cannot limit anything before that of their LNET node does.
    pub shared_paths: Vec<Option<LinkId>>,
    /// Runs at each server, by their shares of bytes.
    at_servers: Vec<f64>,
    flash: Option<FlashQueue>,
    /// Parts of each server.
    pub server_parts: Vec<Part>,
    pub network: NetworkLinks,
    pub lock_times: LockTimes,
    /// Traffic of other jobs, which does not end.
    background: Vec<TrafficFlows>,
}

/// Demand of a run at links between groups, for each of its servers [`DRAWS`] times.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    of_links: Vec<(LinkKey, f64)>,
    of_servers: Vec<(u32, f64)>,
}

/// Links, each with the share of a run's bytes that cross it.
pub(super) type Path = Vec<(LinkId, f64)>;

/// Adds the shares of each link, and sorts the links.
pub(super) fn merge(path: &mut Path) {
    path.sort_unstable_by_key(|(link, _)| *link);
    path.dedup_by(|next, before| {
        let same = next.0 == before.0;
        before.1 += if same { next.1 } else { 0.0 };
        same
    });
}

impl<'a> Fabric<'a> {
    /// `lone` is the duration of a call alone, ps, by the node's index in the job.
    /// `first_run` is a run of the phase.
    pub fn new(job: &'a IoJob, access: Access, lone: &[f64], first_run: &Run) -> Self {
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
                handover: job.burst_buffer.handover_time(Bytes(piece)).0 as f64,
                piece: piece as f64,
                batch: match job.storage.is_parallel() {
                    true => requests_of_run,
                    false => requests_together(job, &first),
                },
                extents: job.storage.is_parallel(),
            },
            job,
            access,
            flash: FlashQueue::of(job, access, slowest_call),
            clients: Vec::new(),
            servers: Vec::new(),
            at_servers: vec![0.0; job.storage.servers().len()],
            shared_paths: Vec::new(),
            network: NetworkLinks::new(&job.topology, &job.network),
            links: Links::new(),
            background: Vec::new(),
        };
        fabric.add_nodes((piece, lone));
        fabric.network.add_groups(&mut fabric.links);
        fabric
    }

    /// Time, ps, in which all processes move `bytes` each, at the rate of all clients or of all servers.
    pub fn shared_time(&self, bytes: u64) -> f64 {
        let solver = self.links.transport.solver();
        let rate = |links: &[LinkId]| links.iter().map(|link| solver.capacity(*link)).sum::<f64>();
        let servers = self.job.storage.data_servers().len();
        let slower = rate(&self.clients).min(rate(&self.servers[..servers]));
        bytes as f64 * f64::from(self.job.tasks()) * PS_PER_SECOND as f64 / slower
    }

    pub fn add_link(&mut self, resource: Resource, name: String, rate: f64) -> LinkId {
        self.links.add(resource, name, rate)
    }

    /// Starts the traffic of other jobs.
    pub fn start_traffic(&mut self, jobs: &[Arc<TrafficJob>]) {
        self.background = traffic_flows(jobs, &mut self.network, &mut self.links);
    }

    /// Bytes that the traffic of each of the other jobs has moved so far.
    pub fn traffic_moved(&self) -> Vec<f64> {
        self.background.iter().map(|flows| flows.moved(&self.links)).collect()
    }

    /// Runs under way: flows that end.
    pub fn active_runs(&self) -> usize {
        let endless: usize = self.background.iter().map(TrafficFlows::count).sum();
        self.links.transport.active() - endless
    }

    /// Shortest paths over which the traffic with each of the servers of a run is spread. The many targets of
    /// a wide file on the parallel file system spread its traffic themselves.
    fn draws(&self, servers: usize) -> u64 {
        match self.job.storage.is_parallel() {
            true => (DRAWS / servers.max(1) as u64).max(1),
            false => DRAWS,
        }
    }

    fn direct_link(&mut self, key: LinkKey) -> &mut DirectLink {
        self.network.direct_link(key, &mut self.links)
    }

    fn add_nodes(&mut self, (piece, lone): (u64, &[f64])) {
        let job = self.job;
        for (index, (&node, lone)) in job.nodes.iter().zip(lone).enumerate() {
            let client = &job.clients[usize::from(job.client_of_node[index])];
            let part =
                slowest(&client_parts(client, job.links_rate(node), self.access, (piece, *lone)));
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
            let link = binds.then(|| self.add_link(resource, name, rate(path)));
            self.shared_paths.push(link);
        }
    }

    /// Counts a run at its servers, before those that start with it find their paths.
    pub fn enter_servers(&mut self, run: &Run) {
        for &(server, share) in &run.servers {
            self.at_servers[server as usize] += share;
            self.limit_flash(server);
        }
    }

    /// The resource that limits a run whose rate is that of a link; `None`: the process itself, which
    /// waits little for others at the flash.
    pub fn resource_of(&mut self, link: LinkId, run: &Run) -> Option<Resource> {
        let resource = self.links.units[link.index()].resource;
        let Some(flash) = self.flash.as_mut().filter(|_| resource == Resource::Ssd) else {
            return Some(resource);
        };
        let at = run.servers.iter().map(|(server, _)| self.at_servers[*server as usize]);
        flash.is_limit(at.fold(0.0, f64::max)).then_some(resource)
    }

    /// Gives a server the rate that the processes at it can reach.
    fn limit_flash(&mut self, server: u32) {
        let Some(flash) = &mut self.flash else { return };
        let used = flash.used(self.at_servers[server as usize]);
        let rate = |part: &Part| match part.resource {
            Resource::Ssd => part.rate * used,
            _ => part.rate,
        };
        let least = self.server_parts.iter().map(rate).fold(f64::INFINITY, f64::min);
        if least > 0.0 {
            self.links.transport.set_capacity(self.servers[server as usize], least);
        }
    }

    /// Adds the demand of a run of a process on a node of the job to that at links between groups. `cap`
    /// is the run's most rate, bytes per second; more runs than a server can feed add no demand.
    pub fn add_demand(&mut self, node: u32, run: &Run, cap: f64) -> Demand {
        let mut demand = Demand { of_links: Vec::new(), of_servers: run.servers.clone() };
        for &(server, share) in &run.servers {
            let capacity = self.links.transport.solver().capacity(self.servers[server as usize]);
            let fair = capacity * share / self.at_servers[server as usize].max(share);
            let (from, to) = self.ends(node, server);
            let links = self.network.direct_links(from, to, self.draws(run.servers.len()));
            for &link in &links {
                let part = (cap * share).min(fair) / links.len() as f64;
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
            self.limit_flash(server);
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
    pub fn path(&mut self, node: u32, run: &Run) -> Path {
        let mut path = vec![(self.clients[node as usize], 1.0)];
        for &(server, share) in &run.servers {
            path.push((self.servers[server as usize], share));
            if !self.shared_paths.is_empty() {
                let shared = &self.job.storage.servers()[server as usize].paths;
                let links = shared.iter().filter_map(|at| self.shared_paths[*at as usize]);
                path.extend(links.map(|link| (link, share)));
            }
            let (ends, draws) = (self.ends(node, server), self.draws(run.servers.len()));
            self.network.add_path(ends, (share, draws), &mut path, &mut self.links);
        }
        merge(&mut path);
        path
    }

    /// The links of a kind of resource, without those of servers.
    pub fn links_of(&self, resource: Resource) -> Vec<LinkId> {
        let of_clients = self.clients.iter().chain(self.shared_paths.iter().flatten()).copied();
        let mut links: Vec<LinkId> = of_clients.chain(self.network.links()).collect();
        links.retain(|link| self.links.units[link.index()].resource == resource);
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
    let mut parts = vec![part(Resource::Server, "dispatch", rates.dispatch)];
    if job.storage.is_parallel() {
        parts.push(part(Resource::Server, "threads", threads));
        parts.push(part(Resource::Ssd, "disks", rates.flash));
        return parts;
    }
    parts.push(part(Resource::Server, path, rates.data_path));
    parts.push(part(Resource::Server, "threads", threads));
    let of_nodes = job.storage.servers().iter().map(|server| job.links_rate(server.node));
    parts.push(part(Resource::NodeLink, "link", of_nodes.fold(f64::INFINITY, f64::min)));
    if access == Access::Read || make.dirty_limit.0 == 0 {
        parts.push(part(Resource::Ssd, "flash", rates.flash));
    }
    parts
}
