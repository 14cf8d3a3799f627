//! Counters of a storage daemon.

use super::report::RequestStats;
use super::scrubber::ScrubCounters;
use forebay_metrics::{Counter, Latency};
use forebay_protocol::Request;
use forebay_protocol::message::{
    AdminRequest, BatchRequest, DataRequest, FileRequest, InodeRequest, LockRequest, NameRequest,
    SessionRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

macro_rules! request_kinds {
    ($($kind:ident $name:literal,)*) => {
        /// A kind of request, as counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RequestKind {
            $($kind,)*
        }

        /// Names in metrics and reports, in the order of [`RequestKind`].
        const KIND_NAMES: &[&str] = &[$($name,)*];
    };
}

request_kinds! {
    Read "read",
    Write "write",
    Lookup "lookup",
    ReadLink "readlink",
    ReadDir "readdir",
    Mknod "mknod",
    Create "create",
    CreateUnnamed "create_unnamed",
    PutFile "put_file",
    Unlink "unlink",
    Delegated "delegated",
    RmDir "rmdir",
    Rename "rename",
    Link "link",
    GetAttr "getattr",
    GetAttrs "getattrs",
    SetAttr "setattr",
    Access "access",
    SetXattr "setxattr",
    GetXattr "getxattr",
    ListXattr "listxattr",
    RemoveXattr "removexattr",
    GetFile "get_file",
    StatFs "statfs",
    StatObjects "stat_objects",
    LendSpace "lend_space",
    Open "open",
    OpenObject "open_object",
    Close "close",
    CloseAll "close_all",
    RenewCapability "renew_capability",
    ReserveSpace "reserve_space",
    Allocate "allocate",
    Sync "sync",
    SyncMetadata "sync_metadata",
    AppendLock "append_lock",
    AppendUnlock "append_unlock",
    Seek "seek",
    Lock "lock",
    Unlock "unlock",
    TestLock "test_lock",
    AwaitEvents "await_events",
    CancelLock "cancel_lock",
    Lease "lease",
    WriteLease "write_lease",
    Attach "attach",
    Detach "detach",
    CreateInstance "create_instance",
    RemoveInstance "remove_instance",
    ResizeInstance "resize_instance",
    ListInstances "list_instances",
    FenceHosts "fence_hosts",
    ScrubInstance "scrub_instance",
    ListSessions "list_sessions",
    EvictSessions "evict_sessions",
    Path "path",
    Batch "batch",
    Peer "peer",
}

impl RequestKind {
    pub fn of(request: &Request) -> RequestKind {
        match request {
            Request::Name(request) => RequestKind::of_name(request),
            Request::Inode(request) => RequestKind::of_inode(request),
            Request::Data(request) => match request {
                DataRequest::Read { .. } => RequestKind::Read,
                DataRequest::Write { .. } => RequestKind::Write,
            },
            Request::Delegated(_) => RequestKind::Delegated,
            Request::File(request) => match request {
                FileRequest::Open { .. } => RequestKind::Open,
                FileRequest::OpenObject { .. } => RequestKind::OpenObject,
                FileRequest::Close { .. } => RequestKind::Close,
                FileRequest::CloseAll { .. } => RequestKind::CloseAll,
                FileRequest::RenewCapability { .. } => RequestKind::RenewCapability,
                FileRequest::ReserveSpace { .. } => RequestKind::ReserveSpace,
                FileRequest::Allocate { .. } => RequestKind::Allocate,
                FileRequest::Sync { .. } => RequestKind::Sync,
                FileRequest::SyncMetadata { .. } => RequestKind::SyncMetadata,
                FileRequest::AppendLock { .. } => RequestKind::AppendLock,
                FileRequest::AppendUnlock { .. } => RequestKind::AppendUnlock,
                FileRequest::Seek { .. } => RequestKind::Seek,
            },
            Request::Lock(request) => match request {
                LockRequest::Acquire { .. } => RequestKind::Lock,
                LockRequest::Release { .. } => RequestKind::Unlock,
                LockRequest::Test { .. } => RequestKind::TestLock,
                LockRequest::AwaitEvents { .. } => RequestKind::AwaitEvents,
                LockRequest::Cancel { .. } => RequestKind::CancelLock,
                LockRequest::Lease { .. } => RequestKind::Lease,
                LockRequest::WriteLease { .. } => RequestKind::WriteLease,
            },
            Request::Session(request) => match request {
                SessionRequest::Attach(_) => RequestKind::Attach,
                SessionRequest::Detach => RequestKind::Detach,
            },
            Request::Admin(request) => match request {
                AdminRequest::CreateInstance(_) => RequestKind::CreateInstance,
                AdminRequest::RemoveInstance { .. } => RequestKind::RemoveInstance,
                AdminRequest::ResizeInstance { .. } => RequestKind::ResizeInstance,
                AdminRequest::ListInstances => RequestKind::ListInstances,
                AdminRequest::FenceHosts { .. } => RequestKind::FenceHosts,
                AdminRequest::ScrubInstance { .. } => RequestKind::ScrubInstance,
                AdminRequest::ListSessions { .. } => RequestKind::ListSessions,
                AdminRequest::EvictSessions { .. } => RequestKind::EvictSessions,
            },
            Request::Path(_) => RequestKind::Path,
            Request::Batch(_) => RequestKind::Batch,
            Request::Peer(_) => RequestKind::Peer,
        }
    }

    /// The kind of a request in a batch.
    pub fn of_batched(request: &BatchRequest) -> RequestKind {
        match request {
            BatchRequest::Name(request) => RequestKind::of_name(request),
            BatchRequest::Inode(request) => RequestKind::of_inode(request),
            BatchRequest::Path(_) => RequestKind::Path,
        }
    }

    fn of_name(request: &NameRequest) -> RequestKind {
        match request {
            NameRequest::Lookup { .. } => RequestKind::Lookup,
            NameRequest::ReadLink { .. } => RequestKind::ReadLink,
            NameRequest::ReadDir { .. } => RequestKind::ReadDir,
            NameRequest::Mknod { .. } => RequestKind::Mknod,
            NameRequest::Create { .. } => RequestKind::Create,
            NameRequest::CreateUnnamed { .. } => RequestKind::CreateUnnamed,
            NameRequest::PutFile { .. } => RequestKind::PutFile,
            NameRequest::Unlink { .. } => RequestKind::Unlink,
            NameRequest::RmDir { .. } => RequestKind::RmDir,
            NameRequest::Rename { .. } => RequestKind::Rename,
            NameRequest::Link { .. } => RequestKind::Link,
        }
    }

    fn of_inode(request: &InodeRequest) -> RequestKind {
        match request {
            InodeRequest::GetAttr { .. } => RequestKind::GetAttr,
            InodeRequest::GetAttrs { .. } => RequestKind::GetAttrs,
            InodeRequest::SetAttr { .. } => RequestKind::SetAttr,
            InodeRequest::Access { .. } => RequestKind::Access,
            InodeRequest::SetXattr { .. } => RequestKind::SetXattr,
            InodeRequest::GetXattr { .. } => RequestKind::GetXattr,
            InodeRequest::ListXattr { .. } => RequestKind::ListXattr,
            InodeRequest::RemoveXattr { .. } => RequestKind::RemoveXattr,
            InodeRequest::GetFile { .. } => RequestKind::GetFile,
            InodeRequest::StatFs => RequestKind::StatFs,
            InodeRequest::StatObjects { .. } => RequestKind::StatObjects,
            InodeRequest::LendSpace { .. } => RequestKind::LendSpace,
        }
    }
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
    /// Checkpoints that were written, and those that failed.
    pub checkpoints: Latency,
    pub failed_checkpoints: Counter,
    /// Connections that were refused or closed before they served a request.
    pub refused_connections: Counter,
    /// Requests that were delayed because their users exceed a rate.
    pub delayed_requests: Counter,
    /// Sum of these delays, in microseconds.
    pub delay_us: Counter,
    pub scrub: Arc<ScrubCounters>,
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
            checkpoints: Latency::default(),
            failed_checkpoints: Counter::default(),
            refused_connections: Counter::default(),
            delayed_requests: Counter::default(),
            delay_us: Counter::default(),
            scrub: Arc::default(),
        }
    }
}

impl StoreCounters {
    /// Count an answered request, or batch. `took` is the time since its arrival.
    pub fn count_request(&self, kind: RequestKind, took: Duration, failed: bool) {
        if let Some(counters) = self.requests.get(kind as usize) {
            counters.answered.record_duration(took);
            if failed {
                counters.failed.increment();
            }
        }
    }

    /// Statistics of all kinds of requests, by name.
    pub fn request_stats(&self) -> BTreeMap<String, RequestStats> {
        assert_eq!(self.requests.len(), KIND_NAMES.len());
        let stats_of = |(name, kind): (&&str, &KindCounters)| {
            let stats =
                RequestStats { latency: kind.answered.snapshot(), failed: kind.failed.get() };
            ((*name).to_owned(), stats)
        };
        KIND_NAMES.iter().zip(&self.requests).map(stats_of).collect()
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
        assert_eq!(name_of(Request::Admin(AdminRequest::ListInstances)), "list_instances");
    }
}
