//! What may be done while the log is short of room.
//!
//! With [`Room::Spare`] everything that gives space back goes on, and what it takes to get there:
//! clients come, look, remove and cut. With [`Room::None`] they still read what they have, and
//! nothing is recorded.

use super::{Context, Shard};
use crate::log::LogSpace;
use crate::objects::Objects;
use forebay_protocol::message::{AdminRequest, FileRequest, InodeRequest, NameRequest};
use forebay_protocol::message::{Allocate, OpenMode, RECOVERY_SLOT};
use forebay_protocol::peer::Step;
use forebay_protocol::{Errno, InstanceId, Request};

impl<O: Objects> Shard<O> {
    /// `ENOSPC` unless the log has this much room.
    pub(super) fn need_room(&self, needed: LogSpace) -> Result<(), Errno> {
        match self.room >= needed {
            true => Ok(()),
            false => Err(Errno::ENOSPC),
        }
    }

    /// The room that a client's request takes in the log.
    pub(super) fn room_for(&self, context: &Context, request: &Request) -> LogSpace {
        match request {
            Request::File(FileRequest::Open { open, .. })
            | Request::File(FileRequest::OpenObject { open, .. }) => {
                // What a client had open before this start it must have back: it may have written.
                let again = context.slot == RECOVERY_SLOT && !open.truncate;
                match alters(*open) && !again {
                    true => LogSpace::ReserveOnly,
                    false => LogSpace::Exhausted,
                }
            }
            // Perhaps the file is there: see `create`.
            Request::Name(NameRequest::Create { .. }) => LogSpace::Exhausted,
            Request::Name(NameRequest::Unlink { .. })
            | Request::Name(NameRequest::RmDir { .. })
            | Request::Inode(InodeRequest::RemoveXattr { .. }) => LogSpace::ReserveOnly,
            Request::Inode(InodeRequest::SetAttr { ino, set, .. }) => {
                let now = || self.attr(context.instance, *ino).ok();
                let cuts = |size| now().is_some_and(|attr| size <= attr.size);
                // One that was under way when the daemon died has perhaps been done in part.
                let length = self.length(context.instance, *ino);
                let under_way = set.size.is_some() && length.is_some_and(|length| !length.known);
                match under_way || set.size.is_some_and(cuts) {
                    true => LogSpace::ReserveOnly,
                    false => LogSpace::Normal,
                }
            }
            Request::File(FileRequest::Allocate {
                what: Allocate::PunchHole,
                ..
            }) => LogSpace::ReserveOnly,
            Request::Name(
                NameRequest::Mknod { .. }
                | NameRequest::PutFile { .. }
                | NameRequest::Rename { .. }
                | NameRequest::Link { .. },
            )
            | Request::Inode(InodeRequest::SetXattr { .. })
            | Request::File(FileRequest::ReserveSpace { .. } | FileRequest::Allocate { .. }) => {
                LogSpace::Normal
            }
            // Nothing is recorded.
            Request::Name(
                NameRequest::Lookup { .. }
                | NameRequest::ReadLink { .. }
                | NameRequest::ReadDir { .. },
            )
            | Request::Inode(
                InodeRequest::GetAttr { .. }
                | InodeRequest::GetAttrs { .. }
                | InodeRequest::Access { .. }
                | InodeRequest::GetXattr { .. }
                | InodeRequest::ListXattr { .. }
                | InodeRequest::GetFile { .. }
                | InodeRequest::StatFs
                | InodeRequest::StatObjects { .. },
            )
            | Request::File(
                FileRequest::Close { .. }
                | FileRequest::CloseAll { .. }
                | FileRequest::RenewCapability { .. }
                | FileRequest::Sync { .. }
                | FileRequest::SyncMetadata { .. }
                | FileRequest::AppendLock { .. }
                | FileRequest::AppendUnlock { .. },
            )
            | Request::Session(_)
            | Request::Admin(_)
            | Request::Lock(_)
            | Request::Data(_)
            | Request::Peer(_) => LogSpace::Exhausted,
        }
    }

    /// The room that a request of an administrator takes.
    pub(super) fn room_to_administer(&self, request: &AdminRequest) -> LogSpace {
        match request {
            AdminRequest::RemoveInstance { .. } | AdminRequest::SetPeers { .. } => {
                LogSpace::ReserveOnly
            }
            AdminRequest::ResizeInstance { id, capacity } if self.shrinks(*id, *capacity) => {
                LogSpace::ReserveOnly
            }
            AdminRequest::ResizeInstance { .. }
            | AdminRequest::CreateInstance(_)
            | AdminRequest::ListInstances
            | AdminRequest::ScrubInstance { .. } => LogSpace::Normal,
        }
    }

    fn shrinks(&self, id: InstanceId, capacity: u64) -> bool {
        self.names(id)
            .is_ok_and(|instance| capacity <= instance.spec.capacity)
    }
}

fn alters(open: OpenMode) -> bool {
    open.write || open.truncate
}

/// The room that parts of a transaction take on a node that does not decide it.
pub(super) fn room_for_steps(steps: &[Step]) -> LogSpace {
    let gives_back = |step: &Step| matches!(step, Step::RemoveLink { .. } | Step::LockRenames);
    match steps.iter().all(gives_back) {
        true => LogSpace::ReserveOnly,
        false => LogSpace::Normal,
    }
}
