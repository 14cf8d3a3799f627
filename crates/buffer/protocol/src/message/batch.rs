//! Several independent requests in one message, and their replies in one.
//!
//! A [`Request::Batch`] is one call on a connection that has one of the [`BATCH_SLOTS`]. Each of its
//! requests is carried out as if it had come by itself, and has its own reply; one that has to wait does not
//! hold up the others, so the requests must not depend on each other. The replies are sent together when
//! there is one for each.
//!
//! The daemon remembers the result of the last change at each position of each batch slot, under a
//! [slot number](batch_position_slot) of its own, so that a retransmitted batch is answered but not repeated.
//! A daemon tells a client that it takes batches when the client attaches.

use super::{
    InodeRequest, MAX_SLOTS, NameRequest, NewInode, PROBE_SLOT, PathOperation, PathRequest, Reply,
    Request,
};
use crate::ids::Ino;
use serde::{Deserialize, Serialize};

/// Most requests in a batch.
pub const MAX_BATCH_REQUESTS: usize = 32;
/// Slots of a session that carry batches, each at most one at a time.
pub const BATCH_SLOTS: u32 = 4;
/// The first of them.
pub const FIRST_BATCH_SLOT: u32 = PROBE_SLOT - BATCH_SLOTS;
/// Most bytes of contents of files, paths and targets of links in the replies to a batch. Instead of one that
/// is longer than what others have left, the reply is `Failed` with
/// [`Errno::EUNBATCHED`](crate::Errno::EUNBATCHED).
pub const MAX_BATCH_REPLY_BYTES: usize = 192 << 10;

/// A request in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchRequest {
    /// On an entry of a directory.
    Name(NameRequest),
    /// On an inode.
    Inode(InodeRequest),
    /// On a path.
    Path(Box<PathRequest>),
}

/// The reply to a request in a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchReply {
    /// The reply.
    pub reply: Reply,
    /// It may be cached for [`CACHE_LIFETIME_NS`](super::CACHE_LIFETIME_NS).
    pub cacheable: bool,
}

impl From<BatchRequest> for Request {
    fn from(request: BatchRequest) -> Request {
        match request {
            BatchRequest::Name(request) => Request::Name(request),
            BatchRequest::Inode(request) => Request::Inode(request),
            BatchRequest::Path(request) => Request::Path(request),
        }
    }
}

impl Request {
    /// Whether daemons carry it out as part of a batch: its reply passes no descriptor, and is short or can
    /// be repeated.
    pub fn is_batched(&self) -> bool {
        match self {
            Request::Name(request) => request.is_batched(),
            Request::Inode(request) => request.is_batched(),
            Request::Path(request) => match &request.operation {
                PathOperation::Name(request) => request.is_batched(),
                PathOperation::Inode(request) => request.is_batched(),
                PathOperation::File(_) => false,
            },
            Request::Session(_)
            | Request::Admin(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_)
            | Request::Delegated(_)
            | Request::Batch(_) => false,
        }
    }
}

impl BatchRequest {
    /// Whether it changes names or attributes.
    pub fn is_change(&self) -> bool {
        match self {
            BatchRequest::Name(request) => request.is_change(),
            BatchRequest::Inode(request) => request.is_change(),
            BatchRequest::Path(request) => match &request.operation {
                PathOperation::Name(request) => request.is_change(),
                PathOperation::Inode(request) => request.is_change(),
                PathOperation::File(_) => false,
            },
        }
    }

    /// The inodes that it names, as [`Request::inodes`].
    pub fn inodes(&self) -> Vec<Ino> {
        match self {
            BatchRequest::Name(request) => request.inodes(),
            BatchRequest::Inode(request) => request.inodes(),
            BatchRequest::Path(request) => vec![request.path.from],
        }
    }

    /// An upper bound of its length in a message, in bytes.
    pub fn max_encoded_bytes(&self) -> usize {
        /// Numbers, attributes, and lengths of names.
        const FIXED: usize = 128;
        FIXED
            + match self {
                BatchRequest::Name(request) => request.variable_bytes(),
                BatchRequest::Inode(request) => request.variable_bytes(),
                BatchRequest::Path(request) => {
                    let operation = match &request.operation {
                        PathOperation::Name(request) => request.variable_bytes(),
                        PathOperation::Inode(request) => request.variable_bytes(),
                        PathOperation::File(_) => 0,
                    };
                    request.path.names.len() + operation
                }
            }
    }
}

impl NameRequest {
    fn is_batched(&self) -> bool {
        match self {
            NameRequest::Lookup { .. }
            | NameRequest::ReadLink { .. }
            | NameRequest::Mknod { .. }
            | NameRequest::PutFile { .. }
            | NameRequest::Unlink { .. }
            | NameRequest::RmDir { .. }
            | NameRequest::Link { .. } => true,
            NameRequest::ReadDir { .. }
            | NameRequest::Create { .. }
            | NameRequest::Rename { .. }
            | NameRequest::CreateUnnamed { .. } => false,
        }
    }

    /// Bytes of names, targets of links and contents.
    fn variable_bytes(&self) -> usize {
        match self {
            NameRequest::Mknod { name, new: NewInode::Symlink(target), .. } => {
                name.len() + target.len()
            }
            NameRequest::PutFile { name, data, .. } => name.len() + data.len(),
            NameRequest::Rename { name, to_name, .. } => name.len() + to_name.len(),
            NameRequest::Lookup { name, .. }
            | NameRequest::Mknod { name, .. }
            | NameRequest::Create { name, .. }
            | NameRequest::Unlink { name, .. }
            | NameRequest::RmDir { name, .. }
            | NameRequest::Link { name, .. } => name.len(),
            NameRequest::ReadLink { .. }
            | NameRequest::ReadDir { .. }
            | NameRequest::CreateUnnamed { .. } => 0,
        }
    }
}

impl InodeRequest {
    fn is_batched(&self) -> bool {
        match self {
            InodeRequest::GetAttr { .. }
            | InodeRequest::SetAttr { .. }
            | InodeRequest::Access { .. }
            | InodeRequest::SetXattr { .. }
            | InodeRequest::RemoveXattr { .. }
            | InodeRequest::GetFile { .. } => true,
            InodeRequest::GetAttrs { .. }
            | InodeRequest::GetXattr { .. }
            | InodeRequest::ListXattr { .. }
            | InodeRequest::StatFs
            | InodeRequest::StatObjects { .. }
            | InodeRequest::LendSpace { .. } => false,
        }
    }

    /// Bytes of names, values and lists.
    fn variable_bytes(&self) -> usize {
        match self {
            InodeRequest::SetXattr { name, value, .. } => name.len() + value.len(),
            InodeRequest::GetXattr { name, .. } | InodeRequest::RemoveXattr { name, .. } => {
                name.len()
            }
            InodeRequest::GetAttrs { inos } | InodeRequest::StatObjects { inos } => {
                inos.len() * size_of::<Ino>() * 2
            }
            InodeRequest::GetAttr { .. }
            | InodeRequest::SetAttr { .. }
            | InodeRequest::Access { .. }
            | InodeRequest::ListXattr { .. }
            | InodeRequest::GetFile { .. }
            | InodeRequest::StatFs
            | InodeRequest::LendSpace { .. } => 0,
        }
    }
}

impl Reply {
    /// Bytes of contents of files, paths and targets of links. Other replies to the requests in batches are
    /// short.
    pub fn variable_bytes(&self) -> usize {
        match self {
            Reply::PathContinues { path, .. } => path.names.len(),
            Reply::Bytes(bytes) => bytes.len(),
            Reply::FileContents { data, .. } => data.len(),
            Reply::Tagged { reply, .. } => reply.variable_bytes(),
            _ => 0,
        }
    }
}

/// Whether a slot carries batches.
pub fn is_batch_slot(slot: u32) -> bool {
    (FIRST_BATCH_SLOT..FIRST_BATCH_SLOT + BATCH_SLOTS).contains(&slot)
}

/// The slot number under which the result of the request at `position` of a batch on `slot` is remembered.
/// No connection has it.
pub fn batch_position_slot(slot: u32, position: usize) -> u32 {
    assert!(is_batch_slot(slot) && position < MAX_BATCH_REQUESTS);
    // Behind the number of the slot of the delegation.
    let first = MAX_SLOTS + 1 + (slot - FIRST_BATCH_SLOT) * MAX_BATCH_REQUESTS as u32;
    first + position as u32
}

/// The slot of the connection through which a request with this slot number came.
pub fn connection_slot(slot: u32) -> u32 {
    match slot.checked_sub(MAX_SLOTS + 1) {
        Some(position) => FIRST_BATCH_SLOT + position / MAX_BATCH_REQUESTS as u32,
        None => slot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{DELEGATION_SLOT, RECOVERY_SLOT};
    use std::collections::BTreeSet;

    #[test]
    fn every_position_of_every_batch_slot_has_its_own_slot_number() {
        let mut numbers = BTreeSet::from_iter(0..=DELEGATION_SLOT);
        for slot in FIRST_BATCH_SLOT..FIRST_BATCH_SLOT + BATCH_SLOTS {
            for position in 0..MAX_BATCH_REQUESTS {
                let number = batch_position_slot(slot, position);
                assert!(numbers.insert(number));
                assert_eq!(connection_slot(number), slot);
            }
        }
        assert!((0..=DELEGATION_SLOT).all(|slot| connection_slot(slot) == slot));
        assert!(!is_batch_slot(PROBE_SLOT) && !is_batch_slot(RECOVERY_SLOT));
    }

    #[test]
    fn longest_replies_of_a_batch_fit_into_a_message() {
        let bound = MAX_BATCH_REPLY_BYTES + MAX_BATCH_REQUESTS * 512;
        assert!(bound < 256 << 10);
    }
}
