//! What a storage daemon counts, and how others read it while it works.

use super::data::DataPath;
use super::mailbox::Mailbox;
use crate::log::LogSpace;
use crate::objects::{RemovalProgress, RemovalQueue};
use forebay_metrics::{Counter, Latency, LatencySnapshot};
use forebay_protocol::Request;
use forebay_protocol::message::InstanceUsage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

macro_rules! kinds {
    ($($pattern:pat => $name:literal,)*) => {
        const NAMES: &[&str] = &[$($name,)* "other"];

        /// The place of a request's kind in [`NAMES`].
        fn place(request: &Request) -> usize {
            let mut place = 0;
            $(
                if let $pattern = request {
                    return place;
                }
                place += 1;
            )*
            place
        }
    };
}

// The most frequent ones first: this is searched from the top. All others are called `other`.
kinds! {
    Request::Read { .. } => "read",
    Request::Write { .. } => "write",
    Request::Lookup { .. } => "lookup",
    Request::GetAttr { .. } => "getattr",
    Request::GetAttrs { .. } => "getattrs",
    Request::Create { .. } => "create",
    Request::Put { .. } => "put",
    Request::Fetch { .. } => "fetch",
    Request::Open { .. } => "open",
    Request::Close { .. } => "close",
    Request::CloseAll { .. } => "close_all",
    Request::Reserve { .. } => "reserve",
    Request::OpenObject { .. } => "open_object",
    Request::StatObjects { .. } => "stat_objects",
    Request::Permit { .. } => "permit",
    Request::SetAttr { .. } => "setattr",
    Request::ReadDir { .. } => "readdir",
    Request::Make { .. } => "make",
    Request::Unlink { .. } => "unlink",
    Request::RmDir { .. } => "rmdir",
    Request::Rename { .. } => "rename",
    Request::Access { .. } => "access",
    Request::Lock { .. } => "lock",
    Request::Unlock { .. } => "unlock",
    Request::TestLock { .. } => "test_lock",
    Request::AwaitLocks { .. } => "await_locks",
    Request::CancelLock { .. } => "cancel_lock",
    Request::Link { .. } => "link",
    Request::ReadLink { .. } => "readlink",
    Request::Sync { .. } => "sync",
    Request::SyncRest { .. } => "sync_rest",
    Request::Allocate { .. } => "allocate",
    Request::SetXattr { .. } => "setxattr",
    Request::GetXattr { .. } => "getxattr",
    Request::ListXattr { .. } => "listxattr",
    Request::RemoveXattr { .. } => "removexattr",
    Request::StatFs => "statfs",
    Request::Hello(_) => "hello",
    Request::Prove { .. } => "prove",
    Request::Bye => "bye",
    Request::CreateInstance(_) => "create_instance",
    Request::RemoveInstance { .. } => "remove_instance",
    Request::ResizeInstance { .. } => "resize_instance",
    Request::ListInstances => "list_instances",
    Request::SetPeers { .. } => "set_peers",
    Request::Peer(_) => "peer",
}

/// A kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKind(usize);

impl RequestKind {
    pub fn of(request: &Request) -> RequestKind {
        RequestKind(place(request))
    }
}

#[derive(Debug, Default)]
struct OfKind {
    answered: Latency,
    failed: Counter,
}

/// The counts, advanced by the daemon's threads with relaxed atomics.
#[derive(Debug)]
pub struct StoreCounters {
    requests: Vec<OfKind>,
    pub received: Counter,
    pub sent: Counter,
    pub records: Counter,
    pub record_bytes: Counter,
    pub syncs: Latency,
    pub direct_read: Counter,
    pub direct_written: Counter,
    pub path: DataPath,
}

impl StoreCounters {
    pub fn new(path: DataPath) -> StoreCounters {
        StoreCounters {
            requests: NAMES.iter().map(|_| OfKind::default()).collect(),
            received: Counter::default(),
            sent: Counter::default(),
            records: Counter::default(),
            record_bytes: Counter::default(),
            syncs: Latency::default(),
            direct_read: Counter::default(),
            direct_written: Counter::default(),
            path,
        }
    }

    /// A request was answered this long after it had arrived.
    pub fn count_request(&self, kind: RequestKind, took: Duration, failed: bool) {
        if let Some(of_kind) = self.requests.get(kind.0) {
            of_kind.answered.record_duration(took);
            if failed {
                of_kind.failed.increment();
            }
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStats {
    /// From the arrival of a request until its answer was given to the socket.
    pub latency: LatencySnapshot,
    /// Of these, answered with an error; `ENOENT` of a lookup is one.
    pub failed: u64,
}

/// What a daemon has at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreGauges {
    /// Instances and how full they are.
    pub instances: Vec<InstanceUsage>,
    /// Sessions, administrators' included.
    pub sessions: u64,
    /// Connections, those for bulk data included.
    pub connections: u64,
    /// What the log has room for.
    #[serde(default)]
    pub log_space: LogSpace,
}

/// Everything that a daemon counts. Counts are since its start. Data that clients on the daemon's
/// own host read and write by descriptor does not pass through it and is not in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Requests by kind, those without any included.
    pub requests: BTreeMap<String, RequestStats>,
    /// Bytes that came through sockets.
    pub received: u64,
    /// Bytes that went through sockets.
    pub sent: u64,
    /// Records written to the log.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Syncs of the log: one serves all who wait for it.
    pub syncs: LatencySnapshot,
    /// Which way data of clients on other hosts go.
    pub data_path: DataPath,
    /// Bytes read past the page cache for them.
    pub direct_read: u64,
    /// Bytes written past the page cache for them.
    pub direct_written: u64,
    /// What it has at the moment; `None` if the daemon did not say in time.
    pub gauges: Option<StoreGauges>,
    /// Removed instances that still take space.
    #[serde(default)]
    pub removals: Vec<RemovalProgress>,
}

impl StoreReport {
    /// All requests together, but those that wait for other clients' locks.
    pub fn total_latency(&self) -> LatencySnapshot {
        let mut all = LatencySnapshot::default();
        let others = self
            .requests
            .iter()
            .filter(|(kind, _)| *kind != "await_locks");
        for (_, requests) in others {
            all.merge(&requests.latency);
        }
        all
    }
}

/// A view of a running daemon's counts. It does not keep the daemon alive.
#[derive(Clone, Debug)]
pub struct StatsHandle {
    pub(super) counters: Arc<StoreCounters>,
    pub(super) leaving: Arc<RemovalQueue>,
    pub(super) wake: Arc<Mailbox>,
}

impl StatsHandle {
    /// The counts now, and what the daemon says it has if it does so within `patience`. It is asked
    /// between two turns of its loop and costs it some microseconds.
    pub fn collect_report(&self, patience: Duration) -> StoreReport {
        let counters = &self.counters;
        let of_kind = |(name, of_kind): (&&str, &OfKind)| {
            let requests = RequestStats {
                latency: of_kind.answered.snapshot(),
                failed: of_kind.failed.get(),
            };
            ((*name).to_owned(), requests)
        };
        StoreReport {
            requests: NAMES.iter().zip(&counters.requests).map(of_kind).collect(),
            received: counters.received.get(),
            sent: counters.sent.get(),
            records: counters.records.get(),
            record_bytes: counters.record_bytes.get(),
            syncs: counters.syncs.snapshot(),
            data_path: counters.path,
            direct_read: counters.direct_read.get(),
            direct_written: counters.direct_written.get(),
            gauges: self.wake.request_gauges().recv_timeout(patience).ok(),
            removals: self.leaving.progress(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = NAMES.iter().collect();
        assert_eq!(names.len(), NAMES.len());
        assert_eq!(
            NAMES.get(RequestKind::of(&Request::StatFs).0).copied(),
            Some("statfs")
        );
        assert_eq!(
            NAMES
                .get(RequestKind::of(&Request::ListInstances).0)
                .copied(),
            Some("list_instances")
        );
    }
}
