//! What clients ask of a storage daemon, and what it answers.
//!
//! A client's attachment to an instance is a *session*. Each of its connections is a *slot* with
//! at most one request outstanding, numbered 1, 2, 3, … by [`Call::seq`]. A daemon remembers the
//! outcome of the last change made through each slot, so that a repeated request is answered
//! again and not carried out again, also after the daemon crashed and recovered.

mod call;
mod file;
mod instance;
mod limits;
mod reply;
mod request;
mod session;

pub use call::Call;
pub use file::{
    Allocate, Attr, DirEntry, FileKind, NewInode, OnExisting, OpenMode, SetAttr, SetTime,
    XattrMode, is_xattr_supported,
};
pub use instance::{InstanceSpec, InstanceUsage, ScrubReport, StatFs};
pub use limits::{
    CACHE_LIFETIME_NS, LOCK_WATCH_SLOT, MAX_CLOSED_HANDLES, MAX_DATA, MAX_DATA_CONNECTIONS,
    MAX_INLINE_FILE_BYTES, MAX_NAME, MAX_REQUEST_INODES, MAX_SLOTS, MAX_SYMLINK_TARGET, MAX_XATTR,
    PROTOCOL_VERSION, RECOVERY_SLOT,
};
pub use reply::{NameResult, Reply};
pub use request::{
    AdminRequest, DataRequest, FileRequest, InodeRequest, LockRequest, NameRequest, Request,
    SessionRequest,
};
pub use session::{Attach, SessionToken};
