//! Messages between clients and storage daemons, and the types in them.
//!
//! A client sends a [`Request`] in a [`Call`] and receives a [`Reply`]; daemons exchange
//! [`peer::PeerMessage`]s. [`placement`] describes an instance's nodes ([`forebay_policy::layout`]
//! maps a file's bytes to them), [`lock`] holds the ranges of file locks, and [`staging`] the messages of
//! `libdatawarp`. Nothing here opens a socket: `forebay-net` carries the messages.
#![warn(missing_docs)]

pub mod address;
pub mod credentials;
pub mod identity;
pub mod ids;
pub mod lock;
pub mod message;
pub mod peer;
pub mod placement;
pub mod progress;
pub mod random;
pub mod space;
pub mod staging;
pub mod writeback;

pub use credentials::Credentials;
pub use ids::{Errno, HandleId, Ino, InstanceId, LockOwner, NodeIndex, SessionId, Timestamp};
pub use message::{Attr, Call, FileKind, Reply, Request};
