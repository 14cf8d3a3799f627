//! Requests that are sent when all is done that programs take to be done, and that they may depend on.

use super::{Sessions, affected_files};
use crate::file::DelayedWrites;
use crate::session::{PendingCall, Session, SessionReply};
use forebay_protocol::{Credentials, Errno, NodeIndex, Request};
use std::sync::Arc;

impl Sessions {
    /// Sends a request to `node`. A refusal is a reply, too, with a time to live.
    pub fn exchange(
        &self,
        node: NodeIndex,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        let files = self.finish_before(&request);
        if files.is_empty() {
            return self.exchange_by(node, |session| session.exchange(caller, request));
        }
        self.exchange_beside(&files, node, caller, request)
    }

    /// Sends a request whose reply may show attributes of files with delayed writes: again, if it does, when
    /// these are over.
    fn exchange_beside(
        &self,
        files: &[Arc<DelayedWrites>],
        node: NodeIndex,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        let repeated = request.clone();
        let reply = self.exchange_by(node, |session| session.exchange(caller, request))?;
        if !affected_files::finish_shown(files, &reply.reply) {
            return Ok(reply);
        }
        self.exchange_by(node, |session| session.exchange(caller, repeated))
    }

    /// As [`exchange`](Sessions::exchange), and sends a second request [behind it](Session::exchange_and_send),
    /// unless the first one may have to be repeated. Its reply must be received.
    pub fn exchange_and_send(
        &self,
        node: NodeIndex,
        caller: Option<&Credentials>,
        first: Request,
        second: Request,
    ) -> (Result<SessionReply, Errno>, Option<PendingCall>) {
        let files = self.finish_before(&first);
        if !files.is_empty() {
            return (self.exchange_beside(&files, node, caller, first), None);
        }
        let mut pending = None;
        let reply = self.exchange_by(node, |session| {
            let (reply, second) = session.exchange_and_send(caller, first, second);
            pending = second;
            reply
        });
        (reply, pending)
    }

    fn exchange_by(
        &self,
        node: NodeIndex,
        exchange: impl FnOnce(&Session) -> Result<SessionReply, Errno>,
    ) -> Result<SessionReply, Errno> {
        self.send_heartbeat_if_due(node);
        let recalls = self.cache_recalls.count();
        let sent_at = self.options.system.now();
        let mut reply = exchange(self.session(node)?)?;
        reply.ttl = self.limit_ttl(node, reply.ttl, recalls);
        self.cache_directory_of(&reply, sent_at);
        self.note_delegation(&reply, sent_at, recalls);
        Ok(reply)
    }

    /// Waits until all is done that programs take to be done, and that a request may depend on. Returns
    /// files with delayed writes, as [`PendingWrites::finish_before`](super::PendingWrites::finish_before).
    fn finish_before(&self, request: &Request) -> Vec<Arc<DelayedWrites>> {
        self.delegation.finish();
        self.pending_writes.finish_before(request)
    }
}
