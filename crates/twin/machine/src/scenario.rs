//! A machine and the jobs on it.

use crate::io::IoJob;
use crate::traffic::TrafficJob;
use forebay_machine_file::machine::{Machine, Network};
use forebay_network::Topology;
use std::sync::Arc;

/// A machine and the jobs on it, shared by all groups of one simulation.
pub(crate) struct Scenario {
    pub machine: Machine,
    /// The machine's network with the routing and packet size of this run.
    pub network: Arc<Network>,
    pub topology: Arc<Topology>,
    pub traffic: Option<Arc<TrafficJob>>,
    pub io: Option<Arc<IoJob>>,
    /// Report the use of each link.
    pub each_link: bool,
}
