//! Changes that a client reports to programs as made before a storage node has made them.
//!
//! The only client of an instance on one node may have a *delegation*: no other session attaches while it
//! has. A client whose kernel checks permissions, and which knows the names and the attributes of a
//! directory, can then tell whether a change of an entry will succeed. It reports it as made, and sends it.
//!
//! A session gets its delegation by a [`Reply::Delegating`], and keeps it for the time for which that may
//! be cached. When another session wants to attach, the delegation is recalled with the lease on names and
//! attributes: the client returns it when all its delegated changes are made. If it does not for
//! [`DELEGATION_RECALL_NS`], the delegation is revoked, which is as durable as the beginning of the other
//! session: its number changes, and changes that arrive later with the old number are refused with
//! [`Errno::EKEYREVOKED`](crate::Errno::EKEYREVOKED). With the next delegation the client gets the new
//! number.

use super::NameRequest;
#[cfg(doc)]
use super::Reply;
use crate::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// Time for which a delegation may be returned after its recall.
pub const DELEGATION_RECALL_NS: u64 = 5_000_000_000;

/// A change under a delegation. Its caller is trusted, and has been checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated {
    /// The number of the delegation.
    pub number: u64,
    /// The time of the change, as the client has reported it.
    pub now: Timestamp,
    /// - [`Unlink`](NameRequest::Unlink);
    /// - [`CreateUnnamed`](NameRequest::CreateUnnamed): not a change that was reported, but the file for one,
    ///   without name, owner and permissions, whatever the request says of them. `ENOSPC` if the instance is
    ///   short of space, inodes or memory;
    /// - [`Create`](NameRequest::Create), whose handle has such a file open: this file gets the name, and the
    ///   owner and permissions of a new file. The reply is [`Reply::Done`].
    ///
    /// Others are refused with `EOPNOTSUPP`.
    pub request: NameRequest,
}

/// A field at the end of a message that senders of earlier releases do not send, and receivers of
/// earlier releases do not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrailingField<T>(pub T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for TrailingField<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TrailingField<T>, D::Error> {
        // There is nothing behind it that could be read wrongly.
        Ok(TrailingField(T::deserialize(deserializer).unwrap_or_default()))
    }
}
