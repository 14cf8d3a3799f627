//! Requests on behalf of a caller.

mod attributes;
mod caller;
mod path;

pub use caller::{CallerProcess, GroupHints};

use crate::attachment::Attachment;
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
        let (caller, process) = match (&self.caller, &self.process) {
            (Some(caller), Some(process)) if caller.groups.is_none() => (caller, process),
            (caller, _) => return sessions.exchange(node, caller.as_ref(), request),
        };
        let reply = sessions.exchange(node, Some(caller), request.clone())?;
        if reply.reply != Reply::Failed(Errno::EGROUPS) {
            return Ok(reply);
        }
        // The decision depends on the caller's groups.
        let caller = process.with_groups(caller);
        sessions.exchange(node, Some(&caller), request)
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
