//! Requests of clients to a storage daemon, and its replies.
//!
//! A client's attachment to an instance is a *session*. Each of its connections is a *slot* with at
//! most one request in flight, numbered 1, 2, 3, … by [`Call::seq`]. A daemon stores the reply to the
//! last change of each slot durably, so that a retransmitted request is answered but not repeated.
//! Several independent requests can be sent as one call, a [batch](Request::Batch).

mod batch;
mod delegation;
mod duration;
pub(crate) mod file;
mod inodes;
mod instance;
mod limits;
mod path;
mod reply;
mod request;
mod session;

pub use batch::{
    BATCH_SLOTS, BatchReply, BatchRequest, FIRST_BATCH_SLOT, MAX_BATCH_REPLY_BYTES,
    MAX_BATCH_REQUESTS, batch_position_slot, connection_slot, is_batch_slot,
};
pub use delegation::{DELEGATION_RECALL_NS, Delegated, TrailingField};
pub use file::{
    ACCESS_ACL, Allocate, Attr, CAPABILITY_XATTR, CreateMode, DEFAULT_ACL, DIRECTORY_ENTRY_BYTES,
    DirEntry, FileKind, NewInode, OnExisting, OpenMode, Provisional, SetAttr, SetTime, XattrMode,
    is_acl, is_xattr_supported,
};
pub use instance::{InstanceSpec, InstanceUsage, ScrubReport, Share, StatFs};
pub use limits::{
    CACHE_LIFETIME_NS, DELEGATION_SLOT, EVENT_SLOT, FIRST_WRITE_LEASE_SLOT, MAX_ACL_BYTES,
    MAX_CLOSED_HANDLES, MAX_DATA, MAX_DATA_CONNECTIONS, MAX_FENCED_HOSTS, MAX_HOST_NAME,
    MAX_INLINE_FILE_BYTES, MAX_LEASED_HANDLES, MAX_LISTED_SESSIONS, MAX_NAME, MAX_REQUEST_INODES,
    MAX_SLOTS, MAX_SYMLINK_TARGET, MAX_WRITE_LEASES, MAX_XATTR, PROBE_SLOT, PROTOCOL_VERSION,
    READ_LEASE_NS, RECOVERY_SLOT, SESSION_LEASE_NS, WRITE_LEASE_RECALL_NS,
};
pub use path::{MAX_PATH_BYTES, MAX_PATH_LINKS, PathOperation, PathRequest, PathRest};
pub use reply::{FoundExtent, NameResult, Reply};
pub use request::{
    AdminRequest, CacheRecall, Call, DataRequest, FileRequest, InodeRequest, LockRequest,
    NameRequest, Request, SessionRequest,
};
pub use session::{ALL_HOSTS, Attach, ClientHost, HostFence, SessionInfo, SessionToken};
