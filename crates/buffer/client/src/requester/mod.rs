//! Requests on behalf of a caller.

mod attributes;
mod batches;
mod caller;
mod path;

pub(crate) use attributes::{MAX_QUERIED_NODES, nodes_with_parts};
pub use batches::PathTask;
pub use caller::{CallerProcess, GroupHints};

use crate::attachment::Attachment;
use crate::reservations::{PendingReservation, SpaceRequest};
use crate::session::{CallResult, SessionReply};
use forebay_protocol::{Credentials, Errno, NodeIndex, Reply, Request};
use std::sync::Arc;

/// Sends requests to the storage nodes of an instance on behalf of a caller.
#[derive(Clone, Debug)]
pub struct Requester {
    pub attachment: Arc<Attachment>,
    /// `None`: the user of this process.
    pub caller: Option<Credentials>,
    /// The process whose groups are the caller's.
    pub process: Option<CallerProcess>,
}

impl Requester {
    /// Sends a request to `node`. A refusal is a reply, too, with a time to live.
    pub fn exchange(&self, node: NodeIndex, request: Request) -> Result<SessionReply, Errno> {
        let sessions = &self.attachment.sessions;
        self.exchange_by(request, |caller, request| sessions.exchange(node, caller, request))
    }

    /// As [`exchange`](Requester::exchange), and sends a request for the space of the file that the first
    /// one opens [behind it](crate::session::Session::exchange_and_send).
    pub fn exchange_and_reserve(
        &self,
        node: NodeIndex,
        request: Request,
        mut space: Option<SpaceRequest>,
    ) -> (Result<SessionReply, Errno>, Option<PendingReservation>) {
        let reservations = &self.attachment.reservations;
        let sessions = &self.attachment.sessions;
        let mut early = None;
        let reply = self.exchange_by(request, |caller, request| {
            let Some(space) = space.take() else {
                return sessions.exchange(node, caller, request);
            };
            let epoch = sessions.session(node)?.epoch();
            let (reply, pending) =
                sessions.exchange_and_send(node, caller, request, space.request());
            early = pending.map(|call| space.sent(node, call, epoch));
            reply
        });
        if reply.as_ref().is_ok_and(|reply| !matches!(reply.reply, Reply::Failed(_))) {
            return (reply, early);
        }
        if let Some(early) = early {
            reservations.abandon(early);
        }
        (reply, None)
    }

    fn exchange_by(
        &self,
        request: Request,
        mut exchange: impl FnMut(Option<&Credentials>, Request) -> Result<SessionReply, Errno>,
    ) -> Result<SessionReply, Errno> {
        let (caller, process) = match (&self.caller, &self.process) {
            (Some(caller), Some(process)) if caller.groups.is_none() => (caller, process),
            (caller, _) => return exchange(caller.as_ref(), request),
        };
        let reply = exchange(Some(caller), request.clone())?;
        if reply.reply != Reply::Failed(Errno::EGROUPS) {
            return Ok(reply);
        }
        // The decision depends on the caller's groups.
        let caller = process.with_groups(caller);
        exchange(Some(&caller), request)
    }

    /// Sends a request to `node`. A refusal is an error.
    pub fn request<T: CallResult>(
        &self,
        node: NodeIndex,
        request: impl Into<Request>,
    ) -> Result<SessionReply<T>, Errno> {
        self.exchange(node, request.into())?.into_result()
    }

    /// As [`request`](Requester::request), without the time to live.
    pub fn call<T: CallResult>(
        &self,
        node: NodeIndex,
        request: impl Into<Request>,
    ) -> Result<T, Errno> {
        self.exchange(node, request.into())?.reply.try_into()
    }
}
