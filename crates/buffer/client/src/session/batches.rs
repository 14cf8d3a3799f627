//! Batches of requests, which have connections of their own.

use super::{PendingCall, Session, SessionReply, Slot};
use forebay_protocol::message::{BatchReply, BatchRequest, FIRST_BATCH_SLOT, MAX_BATCH_REQUESTS};
use forebay_protocol::{Call, Credentials, Errno, Request};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A batch that was sent, whose replies are to be [received](Session::receive_batch).
#[derive(Debug)]
#[must_use = "its connection is lost unless its replies are received"]
pub struct PendingBatch {
    call: PendingCall,
    requests: usize,
}

impl Session {
    /// Whether the daemon takes batches.
    pub fn takes_batches(&self) -> bool {
        self.takes_batches.load(Ordering::Acquire)
    }

    /// Sends independent requests, at most [`MAX_BATCH_REQUESTS`] and as long as one message, without waiting
    /// for the replies. If no connection is idle, waits for one if `waits`, as
    /// [`send_call`](Session::send_call) does; otherwise returns `None`.
    pub fn send_batch(
        &self,
        caller: Option<&Credentials>,
        requests: &[&BatchRequest],
        waits: bool,
    ) -> Result<Option<PendingBatch>, Errno> {
        assert!((1..=MAX_BATCH_REQUESTS).contains(&requests.len()));
        let create = |number| Slot::new(FIRST_BATCH_SLOT + number);
        let slot = match waits {
            true => self.acquire_slot_of(&self.batch_slots, create)?,
            false => match self.batch_slots.acquire_until(Some(Instant::now()), create) {
                Some(slot) => slot,
                None => return Ok(None),
            },
        };
        let batch = requests.iter().map(|request| (*request).clone()).collect();
        let call = self.send_on(slot, caller, Request::Batch(batch));
        Ok(Some(PendingBatch { call, requests: requests.len() }))
    }

    /// Receives the replies to the requests of a batch, in their order; retransmits the batch where
    /// necessary. The daemon carries out each request once. Refusals are replies, `EAGAIN` among them: the
    /// request conflicts with another one, and nothing was done.
    pub fn receive_batch(&self, pending: PendingBatch) -> Result<Vec<SessionReply>, Errno> {
        let sent_at = pending.call.sent_at;
        let reply = self.receive_or_retransmit(pending.call)?.reply;
        let replies: Vec<BatchReply> = reply.try_into()?;
        if replies.len() != pending.requests {
            return Err(Errno::EPROTO);
        }
        let with_ttl =
            |BatchReply { reply, cacheable }| self.reply_with_ttl(reply, cacheable, sent_at);
        Ok(replies.into_iter().map(with_ttl).collect())
    }

    /// Fails with `EIO` if a batch is to be repeated at a daemon of an earlier release: whether the daemon
    /// before has carried it out is not known to it.
    pub(super) fn check_batch(&self, call: &Call) -> io::Result<()> {
        if matches!(call.request, Request::Batch(_)) && !self.takes_batches() {
            tracing::error!(address = %self.address,
                "requests failed: the storage daemon was replaced by one of an earlier release");
            return Err(io::Error::other(Errno::EIO));
        }
        Ok(())
    }
}
