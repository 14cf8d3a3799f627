//! What all groups of one simulation share and none changes.

use crate::traffic::TrafficJob;
use forebay_model::machine::{Machine, Network};
use forebay_network::Topology;
use std::sync::Arc;

/// A machine and the jobs on it.
pub(crate) struct World {
    pub machine: Machine,
    /// The machine's network with the routing and packet size of this run.
    pub network: Arc<Network>,
    pub topology: Arc<Topology>,
    pub traffic: Option<TrafficJob>,
}
