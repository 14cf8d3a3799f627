//! What the processes of a pool have done and how fast: collected on each host, shown by
//! `forebay top`, and served to Prometheus.

mod exposition;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use forebay_client::MountReport;
use forebay_store::daemon;
use forebay_store::objects::RemovalProgress;
use serde::{Deserialize, Serialize};

pub use exposition::exposition;
pub use forebay_metrics::Exporter;

use forebay_control::controller::ControlStatus;
use forebay_control::messages::{InstanceId, UnixMillis};
use forebay_protocol::progress::PhaseTimes;

/// What stages of one direction have done on one host since its process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTotals {
    /// Stages that are under way.
    pub running: u64,
    /// Stages that were finished.
    pub done: u64,
    /// Stages that failed or were cancelled.
    pub failed: u64,
    /// Files and links staged; those that a resumed stage had before count again.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of these that were read back and compared.
    #[serde(default)]
    pub read_back: u64,
    /// How long they were in each phase; phases that are over count.
    #[serde(default)]
    pub times: PhaseTimes,
}

/// What the process on one host has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostActivity {
    /// The host.
    pub host: String,
    /// When this was found.
    pub at: UnixMillis,
    /// Its storage daemon, if it has one.
    pub store: Option<daemon::StoreReport>,
    /// Its mounts.
    pub mounts: BTreeMap<InstanceId, MountReport>,
    /// Stages into the buffer.
    pub staged_in: StageTotals,
    /// Stages out of it.
    pub staged_out: StageTotals,
}

/// State of a pool's controller, and activity on its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// State of the controller.
    #[serde(flatten)]
    pub control: ControlStatus,
    /// Activity of the hosts that report it.
    #[serde(default)]
    pub activity: Vec<HostActivity>,
}

impl Deref for Status {
    type Target = ControlStatus;

    fn deref(&self) -> &ControlStatus {
        &self.control
    }
}

impl DerefMut for Status {
    fn deref_mut(&mut self) -> &mut ControlStatus {
        &mut self.control
    }
}

impl From<ControlStatus> for Status {
    fn from(control: ControlStatus) -> Status {
        Status {
            control,
            activity: Vec::new(),
        }
    }
}

impl Status {
    /// Bytes and inodes that an instance uses, on all hosts that tell.
    pub fn instance_usage(&self, instance: InstanceId) -> Option<(u64, u64)> {
        let present = self.activity.iter().filter_map(|host| host.store.as_ref());
        let usages = present
            .filter_map(|store| store.gauges.as_ref())
            .flat_map(|present| &present.instances)
            .filter(|usage| usage.spec.id.0 == instance.0);
        usages.fold(None, |sum, usage| {
            let (bytes, inodes) = sum.unwrap_or_default();
            Some((bytes + usage.used, inodes + usage.inodes))
        })
    }
}

impl Status {
    /// How far the removal of an instance is, on all hosts that tell; `None`: nothing is removed.
    pub fn removal_progress(&self, instance: InstanceId) -> Option<RemovalProgress> {
        let stores = self.activity.iter().filter_map(|host| host.store.as_ref());
        let removals = stores
            .flat_map(|store| &store.removals)
            .filter(|removal| removal.instance == instance.0);
        removals.copied().reduce(|sum, removal| RemovalProgress {
            total_objects: sum.total_objects + removal.total_objects,
            removed_objects: sum.removed_objects + removal.removed_objects,
            ..sum
        })
    }
}

/// Where a status comes from, again and again, or the reason why there is none.
pub type StatusSource = Box<dyn Fn() -> Result<Status, String> + Send>;

/// Serves what `source` says over HTTP at `/metrics`, until the responder is dropped. Where
/// `source` fails the answer is status 503 with the reason.
pub fn serve_metrics(address: SocketAddr, source: StatusSource) -> Result<Exporter, String> {
    let document = move || source().map(|status| exposition(&status));
    Exporter::start(address, document)
        .map_err(|error| format!("metrics cannot be served at {address}: {error}"))
}
