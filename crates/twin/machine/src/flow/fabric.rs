//! The resources that the flows of all jobs share, as links of one flow system.

use super::links::Links;
use super::network_links::NetworkLinks;
use super::parts::{server_parts, slowest_call};
use super::phase_links::Piece;
use super::servers::{ServerUse, Servers};
use super::traffic::{TrafficFlows, traffic_flows};
use crate::io::{IoJob, ServerRates};
use crate::traffic::TrafficJob;
use forebay_flow::{FlowId, LinkId};
use forebay_machine_file::machine::Network;
use forebay_network::Topology;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;
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

/// The process that a flow belongs to: number of its job, and rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub job: u32,
    pub rank: u32,
}

/// What all phases share: the network, the servers, other jobs' traffic, and the time.
pub(super) struct Fabric {
    pub links: Links,
    pub network: NetworkLinks,
    pub servers: Servers,
    /// Time at which the metadata service of each server is free, ps.
    pub metadata_free: FxHashMap<u32, u64>,
    /// Links of the data paths that the servers of a parallel file system share, by their index in its
    /// storage, which all jobs on it have in common; `None` for those that cannot limit anything before
    /// that of their LNET node does.
    pub shared_paths: Vec<Option<LinkId>>,
    /// Traffic of other jobs, which does not end.
    background: Vec<TrafficFlows>,
    /// Bytes that each of these jobs has moved in skipped times.
    background_skipped: Vec<f64>,
    /// Process of each flow, by the flow's index.
    owners: Vec<Owner>,
    /// Time that was not simulated, because it was steady, ps.
    skipped: u64,
}

impl Fabric {
    /// The network, and servers of the given uses, without links of nodes.
    pub fn new(topology: &Arc<Topology>, network: &Arc<Network>, uses: Vec<ServerUse>) -> Fabric {
        let mut fabric = Fabric {
            links: Links::new(),
            network: NetworkLinks::new(topology, network),
            servers: Servers::new(uses),
            metadata_free: FxHashMap::default(),
            shared_paths: Vec::new(),
            background: Vec::new(),
            background_skipped: Vec::new(),
            owners: Vec::new(),
            skipped: 0,
        };
        fabric.network.add_groups(&mut fabric.links);
        fabric
    }

    /// The time, ps.
    pub fn now(&self) -> u64 {
        self.links.transport.now() + self.skipped
    }

    /// Goes to the next time at which flows end, or to the time `until`, ps.
    pub fn next_ends(&mut self, until: u64) -> Vec<FlowId> {
        let until = if until == u64::MAX { until } else { until.saturating_sub(self.skipped) };
        self.links.transport.next_ends(until).to_vec()
    }

    /// Lets a time pass in which nothing changes but the progress of processes, which is counted elsewhere,
    /// ps. `traffic` is the rate of each job with traffic, bytes per picosecond.
    pub fn skip(&mut self, time: u64, traffic: &[f64]) {
        assert_eq!(traffic.len(), self.background.len(), "rates of other jobs");
        self.skipped += time;
        for (bytes, rate) in self.background_skipped.iter_mut().zip(traffic) {
            *bytes += rate * time as f64;
        }
    }

    /// The process of a flow.
    pub fn owner(&self, flow: FlowId) -> Owner {
        self.owners[flow.index()]
    }

    pub fn set_owner(&mut self, flow: FlowId, owner: Owner) {
        if self.owners.len() <= flow.index() {
            self.owners.resize(flow.index() + 1, Owner::default());
        }
        self.owners[flow.index()] = owner;
    }

    /// Starts the traffic of other jobs.
    pub fn start_traffic(&mut self, jobs: &[Arc<TrafficJob>]) {
        self.background = traffic_flows(jobs, &mut self.network, &mut self.links);
        self.background_skipped = vec![0.0; jobs.len()];
    }

    /// Bytes that the traffic of each of the other jobs has moved so far.
    pub fn traffic_moved(&self) -> Vec<f64> {
        let simulated = self.background.iter().map(|flows| flows.moved(&self.links));
        simulated.zip(&self.background_skipped).map(|(moved, skipped)| moved + skipped).collect()
    }

    /// Runs under way: flows that end.
    pub fn active_runs(&self) -> usize {
        let endless: usize = self.background.iter().map(TrafficFlows::count).sum();
        self.links.transport.active() - endless
    }
}

/// The use that a job makes of servers with one access. `lone` is the duration of a call alone, ps, by the
/// node's index in the job.
pub(super) fn server_use(job: &IoJob, access: Access, lone: &[f64]) -> ServerUse {
    let piece = Piece::of(job, access);
    let rates = ServerRates::of(job, piece.offset, piece.bytes, access);
    let slowest = slowest_call(lone);
    ServerUse {
        parts: server_parts(job, access, &rates, (piece.bytes, slowest)),
        flash: super::flash_queue::FlashQueue::of(job, access, slowest),
    }
}
