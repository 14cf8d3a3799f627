//! Messages between the buffer's processes, and the types in them.
//!
//! A client sends a [`Request`] in a [`Call`] and receives a [`Reply`]; daemons exchange
//! [`peer::PeerMessage`]s. [`placement`] describes an instance's nodes ([`forebay_policy::layout`]
//! maps a file's bytes to them), [`acl`] contains access control lists, [`lock`] file locks,
//! [`progress`] that of stages, and [`staging`] the messages of `libdatawarp`. This crate does no
//! I/O: `forebay-net` carries the messages.
#![warn(missing_docs)]

pub mod acl;
pub mod address;
pub mod credentials;
pub mod ids;
pub mod inode_tag;
pub mod lock;
pub mod message;
pub mod peer;
pub mod placement;
pub mod progress;
pub mod random;
pub mod space;
pub mod staging;

pub use credentials::{Credentials, PeerIdentity};
pub use ids::{
    Errno, HandleId, Ino, InstanceId, LeaseId, LockOwner, NodeIndex, SessionId, Timestamp,
};
pub use inode_tag::InodeTag;
pub use message::{Attr, Call, FileKind, Reply, Request};
