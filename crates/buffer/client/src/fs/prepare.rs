//! Files that the storage node makes ahead of need, for creates under a
//! [delegation](crate::sessions::Delegation).

use super::{Fs, Opened};
use crate::file::File;
use crate::reservations::PendingReservation;
use crate::session::PendingCall;
use crate::sessions::NODE_0;
use forebay_protocol::message::{CreateMode, Delegated, NameRequest, NameResult, OpenMode};
use forebay_protocol::{Errno, HandleId, Ino, Timestamp};
use std::sync::Arc;
use std::time::Instant;

/// How a prepared file is open at the storage node.
const OPEN: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: true, ..OpenMode::NONE };

/// A file that the storage node was asked to make. Its reply must be
/// [received](Fs::finish_preparing).
#[derive(Debug)]
#[must_use = "its connections are lost unless the replies are received"]
pub(crate) struct Preparing {
    handle: HandleId,
    /// Epoch of the daemon before.
    pub(crate) epoch: u64,
    call: PendingCall,
    space: Option<PendingReservation>,
}

impl Fs {
    /// Sends the request for a file without a name, and one for space of it, if that is likely to be used.
    /// Waits for nothing. `None`: there is no delegation, or no idle connection.
    pub(crate) fn begin_preparing(&self) -> Option<Preparing> {
        let (sessions, reservations) = (self.sessions(), &self.requester.attachment.reservations);
        let number = sessions.delegation.number(Instant::now())?;
        let session = sessions.session(NODE_0).ok()?;
        let epoch = session.epoch();
        let (handle, open) = (sessions.new_handle(), OPEN);
        let (parent, mode) = (Ino::ROOT, CreateMode::from(0));
        let request = NameRequest::CreateUnnamed { parent, mode, linkable: true, handle, open };
        let delegated = Delegated { number, now: Timestamp::default(), request };
        let call = session.try_send_call(delegated.into())?;
        let space = reservations.space_of_prepared_file(handle).and_then(|space| {
            let call = session.try_send_call(space.request())?;
            Some(space.sent(NODE_0, call, epoch))
        });
        Some(Preparing { handle, epoch, call, space })
    }

    /// Receives the file. `ENOSPC`: the instance is short of space, inodes or memory.
    pub(crate) fn finish_preparing(&self, preparing: Preparing) -> Result<Arc<File>, Errno> {
        let Preparing { handle, call, space, .. } = preparing;
        let reply = self.sessions().session(NODE_0)?.receive_or_retransmit(call);
        let opened = reply.and_then(|reply| self.take_opened((NODE_0, handle, OPEN), None, reply));
        let file = match opened {
            Ok(NameResult::Found(Opened { file, .. })) => Ok(file),
            Ok(NameResult::Referral(_)) => Err(Errno::EPROTO),
            Err(errno) => Err(errno),
        };
        match (&file, space) {
            (Ok(file), Some(space)) => file.take_space(space),
            (Err(_), Some(space)) => self.requester.attachment.reservations.abandon(space),
            (_, None) => {}
        }
        file
    }
}
