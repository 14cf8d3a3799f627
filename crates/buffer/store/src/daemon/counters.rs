//! Counters of a storage daemon.

use super::report::RequestStats;
use super::scrubber::ScrubCounters;
use forebay_metrics::{Counter, Latency};
use forebay_protocol::Request;
use forebay_protocol::message::{
    AdminRequest, DataRequest, FileRequest, InodeRequest, LockRequest, NameRequest, SessionRequest,
};
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
    ReadLink: Request::Name(NameRequest::ReadLink { .. }) => "readlink",
    ReadDir: Request::Name(NameRequest::ReadDir { .. }) => "readdir",
    Mknod: Request::Name(NameRequest::Mknod { .. }) => "mknod",
    Create: Request::Name(NameRequest::Create { .. }) => "create",
    CreateUnnamed: Request::Name(NameRequest::CreateUnnamed { .. }) => "create_unnamed",
    PutFile: Request::Name(NameRequest::PutFile { .. }) => "put_file",
    Unlink: Request::Name(NameRequest::Unlink { .. }) => "unlink",
    Delegated: Request::Delegated(_) => "delegated",
    RmDir: Request::Name(NameRequest::RmDir { .. }) => "rmdir",
    Rename: Request::Name(NameRequest::Rename { .. }) => "rename",
    Link: Request::Name(NameRequest::Link { .. }) => "link",
    GetAttr: Request::Inode(InodeRequest::GetAttr { .. }) => "getattr",
    GetAttrs: Request::Inode(InodeRequest::GetAttrs { .. }) => "getattrs",
    SetAttr: Request::Inode(InodeRequest::SetAttr { .. }) => "setattr",
    Access: Request::Inode(InodeRequest::Access { .. }) => "access",
    SetXattr: Request::Inode(InodeRequest::SetXattr { .. }) => "setxattr",
    GetXattr: Request::Inode(InodeRequest::GetXattr { .. }) => "getxattr",
    ListXattr: Request::Inode(InodeRequest::ListXattr { .. }) => "listxattr",
    RemoveXattr: Request::Inode(InodeRequest::RemoveXattr { .. }) => "removexattr",
    GetFile: Request::Inode(InodeRequest::GetFile { .. }) => "get_file",
    StatFs: Request::Inode(InodeRequest::StatFs) => "statfs",
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
    Seek: Request::File(FileRequest::Seek { .. }) => "seek",
    Lock: Request::Lock(LockRequest::Acquire { .. }) => "lock",
    Unlock: Request::Lock(LockRequest::Release { .. }) => "unlock",
    TestLock: Request::Lock(LockRequest::Test { .. }) => "test_lock",
    AwaitEvents: Request::Lock(LockRequest::AwaitEvents { .. }) => "await_events",
    CancelLock: Request::Lock(LockRequest::Cancel { .. }) => "cancel_lock",
    Lease: Request::Lock(LockRequest::Lease { .. }) => "lease",
    WriteLease: Request::Lock(LockRequest::WriteLease { .. }) => "write_lease",
    Attach: Request::Session(SessionRequest::Attach(_)) => "attach",
    Detach: Request::Session(SessionRequest::Detach) => "detach",
    CreateInstance: Request::Admin(AdminRequest::CreateInstance(_)) => "create_instance",
    RemoveInstance: Request::Admin(AdminRequest::RemoveInstance { .. }) => "remove_instance",
    ResizeInstance: Request::Admin(AdminRequest::ResizeInstance { .. }) => "resize_instance",
    ListInstances: Request::Admin(AdminRequest::ListInstances) => "list_instances",
    FenceHosts: Request::Admin(AdminRequest::FenceHosts { .. }) => "fence_hosts",
    ScrubInstance: Request::Admin(AdminRequest::ScrubInstance { .. }) => "scrub_instance",
    ListSessions: Request::Admin(AdminRequest::ListSessions { .. }) => "list_sessions",
    EvictSessions: Request::Admin(AdminRequest::EvictSessions { .. }) => "evict_sessions",
    Path: Request::Path(_) => "path",
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
            delayed_requests: Counter::default(),
            delay_us: Counter::default(),
            scrub: Arc::default(),
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
