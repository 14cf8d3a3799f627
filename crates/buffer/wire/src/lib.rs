//! Messages between clients and storage daemons, and the transports that carry them.
//!
//! A [`message::Request`] or [`message::Reply`] becomes a checked frame ([`frame`]), with data behind
//! it in checked chunks ([`chunk`]), and travels over a Unix or TCP socket ([`stream`]), a client's
//! end of which is a [`link`]; on a Unix socket a reply may carry a file descriptor, so that data
//! need not cross a socket at all. [`layout`] says which storage node holds which part of a file;
//! [`seal`] are its checksums at rest, [`lock`] what clients lock of it; [`behind`] gives the device
//! work while data still come.
#![warn(missing_docs)]

pub mod auth;
pub mod behind;
pub mod chunk;
pub mod frame;
pub mod ids;
pub mod layout;
pub mod link;
pub mod listen;
pub mod lock;
pub mod message;
pub mod munge;
pub mod opening;
pub mod peer;
pub mod place;
pub mod progress;
pub mod seal;
pub mod staging;
pub mod stream;

pub use ids::{Errno, HandleId, Ino, InstanceId, LockOwner, Node, SessionId, Timestamp};
pub use message::{Attr, Call, Caller, Kind, Reply, Request};
