//! What all groups of one simulation share and none changes.

use crate::io::IoJob;
use crate::traffic::TrafficJob;
use forebay_machine_file::machine::{Machine, Network};
use forebay_network::Topology;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A machine and the jobs on it.
pub(crate) struct Scenario {
    pub machine: Machine,
    /// The machine's network with the routing and packet size of this run.
    pub network: Arc<Network>,
    pub topology: Arc<Topology>,
    pub traffic: Option<TrafficJob>,
    pub io: Option<IoJob>,
    /// Bytes that IOR's processes have moved so far, for reports of progress only.
    pub bytes_done: AtomicU64,
    /// The results are to say what each link did.
    pub each_link: bool,
}

impl Scenario {
    /// Notes progress.
    pub fn count_done(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
}
