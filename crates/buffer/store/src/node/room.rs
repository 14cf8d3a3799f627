//! What may be done while the log is short of room.
//!
//! With [`Room::Spare`] everything that gives space back goes on, and what it takes to get there:
//! clients come, look, remove and cut. With [`Room::None`] they still read what they have, and
//! nothing is recorded.

use super::{Context, Shard};
use crate::log::LogSpace;
use crate::objects::Objects;
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

    /// The room that a request of a client takes which alters something.
    pub(super) fn room_for(&self, context: &Context, request: &Request) -> LogSpace {
        match request {
            Request::Open { open, .. } | Request::OpenObject { open, .. } => {
                // What a client had open before this start it must have back: it may have written.
                let again = context.slot == RECOVERY_SLOT && !open.truncate;
                match alters(*open) && !again {
                    true => LogSpace::ReserveOnly,
                    false => LogSpace::Exhausted,
                }
            }
            // Perhaps the file is there: see `create`.
            Request::Create { .. } => LogSpace::Exhausted,
            Request::Unlink { .. } | Request::RmDir { .. } | Request::RemoveXattr { .. } => {
                LogSpace::ReserveOnly
            }
            Request::SetAttr { ino, set, .. } => {
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
            Request::Allocate {
                what: Allocate::PunchHole,
                ..
            } => LogSpace::ReserveOnly,
            _ => LogSpace::Normal,
        }
    }

    /// The room that a request of an administrator takes.
    pub(super) fn room_to_administer(&self, request: &Request) -> LogSpace {
        match request {
            Request::RemoveInstance { .. } | Request::SetPeers { .. } => LogSpace::ReserveOnly,
            Request::ResizeInstance { id, capacity } if self.shrinks(*id, *capacity) => {
                LogSpace::ReserveOnly
            }
            _ => LogSpace::Normal,
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
