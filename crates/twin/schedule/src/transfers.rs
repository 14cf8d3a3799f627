//! Stages and checkpoints, which share the rates of storage nodes and of the parallel file system.

use crate::cluster::Cluster;
use crate::time::Millis;
use forebay_flow::{FlowId, FlowSpec, LinkId, Transport};
use forebay_policy::allocate::Share;
use forebay_units::Bytes;

/// A [`Transport`] counts in 10^-12 of the unit of time of its rates. With milliseconds this is 10^9 seconds.
const SECONDS_OF_RATES: f64 = 1e9;

/// A direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// From the parallel file system to storage nodes.
    StageIn,
    /// From storage nodes to the parallel file system.
    StageOut,
    /// From compute nodes to storage nodes.
    Checkpoint,
}

/// Links of a storage node; `None`: no limit.
#[derive(Clone, Copy, Debug)]
struct NodeLinks {
    takes: Option<LinkId>,
    gives: Option<LinkId>,
}

/// Transfers that move at max-min fair rates.
#[derive(Debug)]
pub(crate) struct Transfers {
    transport: Transport,
    nodes: Vec<NodeLinks>,
    pfs: Option<LinkId>,
    /// The job of each flow.
    jobs: Vec<usize>,
}

impl Transfers {
    pub(crate) fn new(cluster: &Cluster) -> Transfers {
        let mut transport = Transport::new(1);
        let mut link =
            |rate: Option<f64>| rate.map(|rate| transport.add_link(rate * SECONDS_OF_RATES));
        let pfs = link(cluster.rates.pfs);
        let nodes = cluster.storage.iter().map(|_| NodeLinks {
            takes: link(cluster.rates.storage_in),
            gives: link(cluster.rates.storage_out),
        });
        let nodes = nodes.collect();
        Transfers { transport, nodes, pfs, jobs: Vec::new() }
    }

    /// Starts a transfer of a job; `false` if it takes no time.
    pub(crate) fn start(&mut self, job: usize, path: Path, shares: &[Share], bytes: Bytes) -> bool {
        let granules: u64 = shares.iter().map(|share| share.granules).sum();
        let mut links: Vec<(LinkId, f64)> = Vec::with_capacity(shares.len() + 1);
        if path != Path::Checkpoint {
            links.extend(self.pfs.map(|link| (link, 1.0)));
        }
        links.extend(shares.iter().filter_map(|share| {
            let node = self.nodes[share.node.0 as usize];
            let link = match path {
                Path::StageIn | Path::Checkpoint => node.takes,
                Path::StageOut => node.gives,
            };
            link.map(|link| (link, share.granules as f64 / granules as f64))
        }));
        if links.is_empty() || bytes == Bytes::ZERO {
            return false;
        }
        let spec = FlowSpec { count: 1, weight: 1.0, cap: f64::INFINITY, path: &links };
        let flow = self.transport.start(spec, bytes.0 as f64);
        let place = flow.index();
        if place >= self.jobs.len() {
            self.jobs.resize(place + 1, usize::MAX);
        }
        self.jobs[place] = job;
        true
    }

    /// Goes to the first end of transfers, or to `until` if none ends before. Returns the time, and the jobs
    /// whose transfers end then.
    pub(crate) fn advance(&mut self, until: Millis) -> (Millis, Vec<usize>) {
        let jobs = &self.jobs;
        let ended: Vec<usize> = self
            .transport
            .next_ends(until.0)
            .iter()
            .map(|flow: &FlowId| jobs[flow.index()])
            .collect();
        let now = match ended.is_empty() {
            true => until,
            false => Millis(self.transport.now()),
        };
        (now, ended)
    }
}
