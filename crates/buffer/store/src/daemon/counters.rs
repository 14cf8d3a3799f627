//! What a storage daemon counts, and how others read it while it works.

use super::data::DataPath;
use super::mailbox::Mailbox;
use crate::log::LogSpace;
use crate::objects::{RemovalProgress, RemovalQueue};
use forebay_metrics::{Counter, Latency, LatencySnapshot};
use forebay_protocol::Request;
use forebay_protocol::message::InstanceUsage;
use forebay_protocol::message::{
    AdminRequest, DataRequest, FileRequest, InodeRequest, LockRequest, NameRequest, SessionRequest,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

macro_rules! kinds {
    ($($pattern:pat => $kind:ident $name:literal,)*) => {
        const NAMES: &[&str] = &[$($name),*];

        /// Indices into [`NAMES`].
        enum Index {
            $($kind,)*
        }

        /// The index of a request's kind in [`NAMES`].
        fn index(request: &Request) -> usize {
            match request {
                $($pattern => Index::$kind as usize,)*
            }
        }
    };
}

kinds! {
    Request::Data(DataRequest::Read { .. }) => Read "read",
    Request::Data(DataRequest::Write { .. }) => Write "write",
    Request::Name(NameRequest::Lookup { .. }) => Lookup "lookup",
    Request::Name(NameRequest::ReadLink { .. }) => Readlink "readlink",
    Request::Name(NameRequest::ReadDir { .. }) => Readdir "readdir",
    Request::Name(NameRequest::Mknod { .. }) => Mknod "mknod",
    Request::Name(NameRequest::Create { .. }) => Create "create",
    Request::Name(NameRequest::PutFile { .. }) => PutFile "put_file",
    Request::Name(NameRequest::Unlink { .. }) => Unlink "unlink",
    Request::Name(NameRequest::RmDir { .. }) => Rmdir "rmdir",
    Request::Name(NameRequest::Rename { .. }) => Rename "rename",
    Request::Name(NameRequest::Link { .. }) => Link "link",
    Request::Inode(InodeRequest::GetAttr { .. }) => Getattr "getattr",
    Request::Inode(InodeRequest::GetAttrs { .. }) => Getattrs "getattrs",
    Request::Inode(InodeRequest::SetAttr { .. }) => Setattr "setattr",
    Request::Inode(InodeRequest::Access { .. }) => Access "access",
    Request::Inode(InodeRequest::SetXattr { .. }) => Setxattr "setxattr",
    Request::Inode(InodeRequest::GetXattr { .. }) => Getxattr "getxattr",
    Request::Inode(InodeRequest::ListXattr { .. }) => Listxattr "listxattr",
    Request::Inode(InodeRequest::RemoveXattr { .. }) => Removexattr "removexattr",
    Request::Inode(InodeRequest::GetFile { .. }) => GetFile "get_file",
    Request::Inode(InodeRequest::StatFs) => Statfs "statfs",
    Request::Inode(InodeRequest::StatObjects { .. }) => StatObjects "stat_objects",
    Request::File(FileRequest::Open { .. }) => Open "open",
    Request::File(FileRequest::OpenObject { .. }) => OpenObject "open_object",
    Request::File(FileRequest::Close { .. }) => Close "close",
    Request::File(FileRequest::CloseAll { .. }) => CloseAll "close_all",
    Request::File(FileRequest::RenewCapability { .. }) => RenewCapability "renew_capability",
    Request::File(FileRequest::ReserveSpace { .. }) => ReserveSpace "reserve_space",
    Request::File(FileRequest::Allocate { .. }) => Allocate "allocate",
    Request::File(FileRequest::Sync { .. }) => Sync "sync",
    Request::File(FileRequest::SyncMetadata { .. }) => SyncMetadata "sync_metadata",
    Request::File(FileRequest::AppendLock { .. }) => AppendLock "append_lock",
    Request::File(FileRequest::AppendUnlock { .. }) => AppendUnlock "append_unlock",
    Request::Lock(LockRequest::Acquire { .. }) => Lock "lock",
    Request::Lock(LockRequest::Release { .. }) => Unlock "unlock",
    Request::Lock(LockRequest::Test { .. }) => TestLock "test_lock",
    Request::Lock(LockRequest::Await { .. }) => AwaitLocks "await_locks",
    Request::Lock(LockRequest::Cancel { .. }) => CancelLock "cancel_lock",
    Request::Session(SessionRequest::Attach(_)) => Attach "attach",
    Request::Session(SessionRequest::Prove { .. }) => Prove "prove",
    Request::Session(SessionRequest::Detach) => Detach "detach",
    Request::Admin(AdminRequest::CreateInstance(_)) => CreateInstance "create_instance",
    Request::Admin(AdminRequest::RemoveInstance { .. }) => RemoveInstance "remove_instance",
    Request::Admin(AdminRequest::ResizeInstance { .. }) => ResizeInstance "resize_instance",
    Request::Admin(AdminRequest::SetPeers { .. }) => SetPeers "set_peers",
    Request::Admin(AdminRequest::ListInstances) => ListInstances "list_instances",
    Request::Admin(AdminRequest::ScrubInstance { .. }) => ScrubInstance "scrub_instance",
    Request::Peer(_) => Peer "peer",
}

/// A kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKind(usize);

impl RequestKind {
    pub fn of(request: &Request) -> RequestKind {
        RequestKind(index(request))
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
            NAMES
                .get(RequestKind::of(&Request::Inode(InodeRequest::StatFs)).0)
                .copied(),
            Some("statfs")
        );
        assert_eq!(
            NAMES
                .get(RequestKind::of(&Request::Admin(AdminRequest::ListInstances)).0)
                .copied(),
            Some("list_instances")
        );
    }
}
