//! The state of a pool and the counters of its hosts.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};

use forebay_client::MountReport;
use forebay_control::controller::{ControlStatus, HostIo};
use forebay_control::messages::{InstanceId, PhaseTimes, UnixMillis};
use forebay_store::daemon;
use forebay_store::objects::RemovalProgress;
use serde::{Deserialize, Serialize};

/// Totals of the stages of one direction on one host, since its process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTotals {
    /// Stages in progress.
    pub running: u64,
    /// Stages that completed.
    pub done: u64,
    /// Stages that failed or were cancelled.
    pub failed: u64,
    /// Files and links staged. A resumed stage counts those again that it had staged before.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were read back and compared.
    #[serde(default)]
    pub read_back: u64,
    /// Time in each phase. A phase counts when it is over.
    #[serde(default)]
    pub times: PhaseTimes,
}

/// Counters of one host's process since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostActivity {
    /// The host.
    pub host: String,
    /// The time of the report.
    pub at: UnixMillis,
    /// Its storage daemon, if it has one.
    pub store: Option<daemon::StoreReport>,
    /// Its mounts.
    pub mounts: BTreeMap<InstanceId, MountReport>,
    /// Counters of its mounts, also of those that were unmounted in the last minutes.
    #[serde(default)]
    pub io: BTreeMap<InstanceId, HostIo>,
    /// Stages into the buffer.
    pub staged_in: StageTotals,
    /// Stages out of it.
    pub staged_out: StageTotals,
}

/// A host whose processes fail to authenticate at the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedHost {
    /// Its address.
    pub address: String,
    /// The storage nodes that have this address.
    pub nodes: Vec<String>,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for RefusedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes.is_empty() {
            true => write!(f, "host {}", self.address)?,
            false => write!(f, "{} ({})", self.nodes.join(", "), self.address)?,
        }
        write!(f, " is refused: {}", self.reason)
    }
}

/// The state of a pool, and the counters of its hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The controller's state.
    #[serde(flatten)]
    pub control: ControlStatus,
    /// Counters of the hosts that report.
    #[serde(default)]
    pub activity: Vec<HostActivity>,
    /// Hosts that failed to authenticate within the last 15 s.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedHost>,
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
        Status { control, ..Status::default() }
    }
}

impl Status {
    /// Bytes and inodes that an instance uses, on all hosts that report.
    pub fn instance_usage(&self, instance: InstanceId) -> Option<(u64, u64)> {
        let stores = self.activity.iter().filter_map(|host| host.store.as_ref());
        let usages = stores
            .filter_map(|store| store.gauges.as_ref())
            .flat_map(|gauges| &gauges.instances)
            .filter(|usage| usage.spec.id.0 == instance.0);
        usages.fold(None, |sum, usage| {
            let (bytes, inodes) = sum.unwrap_or_default();
            Some((bytes + usage.used, inodes + usage.inodes))
        })
    }

    /// The progress of removing an instance, on all hosts that report; `None` if it is not being
    /// removed.
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
