//! A machine and the jobs on it.

use crate::collective_job::CollectiveJob;
use crate::io::IoJob;
use crate::observe::ObserveOptions;
use crate::traffic::TrafficJob;
use forebay_machine_file::machine::{Machine, Network};
use forebay_network::Topology;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A machine and the jobs on it, shared by all groups of one simulation.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub machine: Arc<Machine>,
    /// The machine's network with the routing and packet size of this run.
    pub network: Arc<Network>,
    pub topology: Arc<Topology>,
    pub traffic: Option<Arc<TrafficJob>>,
    pub io: Option<Arc<IoJob>>,
    pub collective: Option<Arc<CollectiveJob>>,
    /// Report the use of each link.
    pub each_link: bool,
    /// Observation of single packets and requests.
    pub observe: ObserveOptions,
}

impl Scenario {
    /// The share of the work that is done at `now`, ps: of the bytes of IOR, or else of the
    /// collective operations, or else of the time in which traffic is generated.
    pub fn share_done(&self, now: u64) -> f64 {
        if let (None, Some(job)) = (&self.io, &self.collective) {
            return job.done.load(Ordering::Relaxed) as f64 / job.total();
        }
        match (&self.io, &self.traffic) {
            (Some(io), _) => io.bytes_done.load(Ordering::Relaxed) as f64 / io.bytes_in_total(),
            (None, Some(traffic)) => now as f64 / traffic.span,
            (None, None) => 1.0,
        }
    }
}
