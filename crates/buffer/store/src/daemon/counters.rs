//! Counters of a storage daemon, and reports of them.

use super::mailbox::Mailbox;
use crate::log::LogSpace;
use crate::objects::{RemovalProgress, RemovalQueue};
use forebay_metrics::{Counter, Latency, LatencySnapshot};
use forebay_protocol::Request;
use forebay_protocol::message::{
    AdminRequest, DataRequest, FileRequest, InodeRequest, InstanceUsage, LockRequest, NameRequest,
    SessionRequest,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

macro_rules! request_kinds {
    ($($kind:ident: $pattern:pat => $name:literal,)*) => {
        /// A kind of request, as counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RequestKind {
            $($kind,)*
        }

        /// Names in metrics and reports, in the order of [`RequestKind`].
        const KIND_NAMES: &[&str] = &[$($name,)*];

        impl RequestKind {
            pub fn of(request: &Request) -> RequestKind {
                match request {
                    $($pattern => RequestKind::$kind,)*
                }
            }
        }
    };
}

request_kinds! {
    Read: Request::Data(DataRequest::Read { .. }) => "read",
    Write: Request::Data(DataRequest::Write { .. }) => "write",
    Lookup: Request::Name(NameRequest::Lookup { .. }) => "lookup",
    Readlink: Request::Name(NameRequest::ReadLink { .. }) => "readlink",
    Readdir: Request::Name(NameRequest::ReadDir { .. }) => "readdir",
    Mknod: Request::Name(NameRequest::Mknod { .. }) => "mknod",
    Create: Request::Name(NameRequest::Create { .. }) => "create",
    PutFile: Request::Name(NameRequest::PutFile { .. }) => "put_file",
    Unlink: Request::Name(NameRequest::Unlink { .. }) => "unlink",
    Rmdir: Request::Name(NameRequest::RmDir { .. }) => "rmdir",
    Rename: Request::Name(NameRequest::Rename { .. }) => "rename",
    Link: Request::Name(NameRequest::Link { .. }) => "link",
    Getattr: Request::Inode(InodeRequest::GetAttr { .. }) => "getattr",
    Getattrs: Request::Inode(InodeRequest::GetAttrs { .. }) => "getattrs",
    Setattr: Request::Inode(InodeRequest::SetAttr { .. }) => "setattr",
    Access: Request::Inode(InodeRequest::Access { .. }) => "access",
    Setxattr: Request::Inode(InodeRequest::SetXattr { .. }) => "setxattr",
    Getxattr: Request::Inode(InodeRequest::GetXattr { .. }) => "getxattr",
    Listxattr: Request::Inode(InodeRequest::ListXattr { .. }) => "listxattr",
    Removexattr: Request::Inode(InodeRequest::RemoveXattr { .. }) => "removexattr",
    GetFile: Request::Inode(InodeRequest::GetFile { .. }) => "get_file",
    Statfs: Request::Inode(InodeRequest::StatFs) => "statfs",
    StatObjects: Request::Inode(InodeRequest::StatObjects { .. }) => "stat_objects",
    Open: Request::File(FileRequest::Open { .. }) => "open",
    OpenObject: Request::File(FileRequest::OpenObject { .. }) => "open_object",
    Close: Request::File(FileRequest::Close { .. }) => "close",
    CloseAll: Request::File(FileRequest::CloseAll { .. }) => "close_all",
    RenewCapability: Request::File(FileRequest::RenewCapability { .. }) => "renew_capability",
    ReserveSpace: Request::File(FileRequest::ReserveSpace { .. }) => "reserve_space",
    Allocate: Request::File(FileRequest::Allocate { .. }) => "allocate",
    Sync: Request::File(FileRequest::Sync { .. }) => "sync",
    SyncMetadata: Request::File(FileRequest::SyncMetadata { .. }) => "sync_metadata",
    AppendLock: Request::File(FileRequest::AppendLock { .. }) => "append_lock",
    AppendUnlock: Request::File(FileRequest::AppendUnlock { .. }) => "append_unlock",
    Lock: Request::Lock(LockRequest::Acquire { .. }) => "lock",
    Unlock: Request::Lock(LockRequest::Release { .. }) => "unlock",
    TestLock: Request::Lock(LockRequest::Test { .. }) => "test_lock",
    AwaitLocks: Request::Lock(LockRequest::Await { .. }) => "await_locks",
    CancelLock: Request::Lock(LockRequest::Cancel { .. }) => "cancel_lock",
    Attach: Request::Session(SessionRequest::Attach(_)) => "attach",
    Prove: Request::Session(SessionRequest::Prove { .. }) => "prove",
    Detach: Request::Session(SessionRequest::Detach) => "detach",
    CreateInstance: Request::Admin(AdminRequest::CreateInstance(_)) => "create_instance",
    RemoveInstance: Request::Admin(AdminRequest::RemoveInstance { .. }) => "remove_instance",
    ResizeInstance: Request::Admin(AdminRequest::ResizeInstance { .. }) => "resize_instance",
    SetPeers: Request::Admin(AdminRequest::SetPeers { .. }) => "set_peers",
    ListInstances: Request::Admin(AdminRequest::ListInstances) => "list_instances",
    ScrubInstance: Request::Admin(AdminRequest::ScrubInstance { .. }) => "scrub_instance",
    Peer: Request::Peer(_) => "peer",
}

#[derive(Debug, Default)]
struct KindCounters {
    answered: Latency,
    failed: Counter,
}

/// Counters, updated by the daemon's threads with relaxed atomics.
#[derive(Debug)]
pub struct StoreCounters {
    requests: Vec<KindCounters>,
    pub received: Counter,
    pub sent: Counter,
    pub records: Counter,
    pub record_bytes: Counter,
    pub syncs: Latency,
}

impl Default for StoreCounters {
    fn default() -> StoreCounters {
        StoreCounters {
            requests: KIND_NAMES.iter().map(|_| KindCounters::default()).collect(),
            received: Counter::default(),
            sent: Counter::default(),
            records: Counter::default(),
            record_bytes: Counter::default(),
            syncs: Latency::default(),
        }
    }
}

impl StoreCounters {
    /// Count an answered request. `took` is the time since its arrival.
    pub fn count_request(&self, kind: RequestKind, took: Duration, failed: bool) {
        if let Some(counters) = self.requests.get(kind as usize) {
            counters.answered.record_duration(took);
            if failed {
                counters.failed.increment();
            }
        }
    }
}

/// Statistics of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Time from the arrival of a request until its reply was passed to the socket.
    pub latency: LatencySnapshot,
    /// Requests answered with an error, including `ENOENT` of a lookup.
    pub failed: u64,
}

/// Current state of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreGauges {
    /// Instances and their use of space and inodes.
    pub instances: Vec<InstanceUsage>,
    /// Sessions, including those of administrators.
    pub sessions: u64,
    /// Connections, including data connections.
    pub connections: u64,
    /// Which records the log has space for.
    #[serde(default)]
    pub log_space: LogSpace,
}

/// Statistics of a daemon since its start. Data that clients on the daemon's host read and write
/// through descriptors bypass the daemon and are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Requests by kind, including kinds without requests.
    pub requests: BTreeMap<String, RequestStats>,
    /// Bytes received from sockets.
    pub received: u64,
    /// Bytes sent to sockets.
    pub sent: u64,
    /// Records written to the log.
    pub records: u64,
    /// Bytes of these records.
    pub record_bytes: u64,
    /// Syncs of the log: one serves all waiting requests.
    pub syncs: LatencySnapshot,
    /// Current state; `None` if the event loop did not answer in time.
    pub gauges: Option<StoreGauges>,
    /// Removed instances that still take space.
    #[serde(default)]
    pub removals: Vec<RemovalProgress>,
}

impl StoreReport {
    /// Latency of all requests, except those that wait for other clients' locks.
    pub fn total_latency(&self) -> LatencySnapshot {
        let mut total = LatencySnapshot::default();
        for (kind, requests) in &self.requests {
            if kind != "await_locks" {
                total.merge(&requests.latency);
            }
        }
        total
    }
}

/// Access to the statistics of a running daemon. Does not keep the daemon alive.
#[derive(Clone, Debug)]
pub struct StatsHandle {
    pub(super) counters: Arc<StoreCounters>,
    pub(super) removal_queue: Arc<RemovalQueue>,
    pub(super) mailbox: Arc<Mailbox>,
}

impl StatsHandle {
    /// Read all counters, and the gauges if the event loop answers within `timeout`, which costs it
    /// some microseconds.
    pub fn collect_report(&self, timeout: Duration) -> StoreReport {
        let counters = &self.counters;
        let stats_of = |(name, kind): (&&str, &KindCounters)| {
            let stats = RequestStats {
                latency: kind.answered.snapshot(),
                failed: kind.failed.get(),
            };
            ((*name).to_owned(), stats)
        };
        let kinds = KIND_NAMES.iter().zip(&counters.requests);
        StoreReport {
            requests: kinds.map(stats_of).collect(),
            received: counters.received.get(),
            sent: counters.sent.get(),
            records: counters.records.get(),
            record_bytes: counters.record_bytes.get(),
            syncs: counters.syncs.snapshot(),
            gauges: self.mailbox.request_gauges().recv_timeout(timeout).ok(),
            removals: self.removal_queue.progress(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_kind_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = KIND_NAMES.iter().collect();
        assert_eq!(names.len(), KIND_NAMES.len());
        let name_of = |request| KIND_NAMES[RequestKind::of(&request) as usize];
        assert_eq!(name_of(Request::Inode(InodeRequest::StatFs)), "statfs");
        assert_eq!(
            name_of(Request::Admin(AdminRequest::ListInstances)),
            "list_instances"
        );
    }
}
