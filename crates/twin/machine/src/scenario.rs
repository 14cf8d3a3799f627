//! A machine and the jobs on it.

use crate::collective_job::CollectiveJob;
use crate::io::IoJob;
use crate::observe::{JobLabels, ObserveOptions};
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
    /// Jobs with traffic, in the order of their numbers.
    pub traffic: Vec<Arc<TrafficJob>>,
    /// I/O jobs, in the order of their numbers.
    pub io: Vec<Arc<IoJob>>,
    pub collective: Option<Arc<CollectiveJob>>,
    /// Report the use of each link.
    pub each_link: bool,
    /// Observation of single packets and requests.
    pub observe: ObserveOptions,
    /// Names of the jobs, where delays are attributed to single jobs.
    pub labels: Option<Arc<JobLabels>>,
}

impl Scenario {
    /// The share of the work that is done at `now`, ps: of the bytes of IOR, or else of the
    /// collective operations, or else of the time in which traffic is generated.
    pub fn share_done(&self, now: u64) -> f64 {
        if let ([], Some(job)) = (self.io.as_slice(), &self.collective) {
            return job.done.load(Ordering::Relaxed) as f64 / job.total();
        }
        match (self.io.as_slice(), self.traffic.first()) {
            ([], Some(traffic)) => now as f64 / traffic.span,
            ([], None) => 1.0,
            (all, _) => {
                let sum = |of: fn(&IoJob) -> f64| all.iter().map(|io| of(io)).sum::<f64>();
                sum(|io| io.bytes_done.load(Ordering::Relaxed) as f64) / sum(IoJob::bytes_in_total)
            }
        }
    }
}
