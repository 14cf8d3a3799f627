//! Two requests, of which the second one refers to what the first one does.

use super::{PendingCall, Session, SessionReply, Slot};
use forebay_protocol::{Credentials, Errno, Request};
use std::time::Instant;

impl Session {
    /// As [`send_call`](Session::send_call), in the name of the user of this process. `None`: no connection is
    /// idle.
    pub fn try_send_call(&self, request: Request) -> Option<PendingCall> {
        let slot = self.slots.acquire_until(Some(Instant::now()), Slot::new)?;
        Some(self.send_on(slot, None, request))
    }

    /// As [`exchange`](Session::exchange), and sends a second request behind it, of this process, on another
    /// connection, if one is idle. That one may fail because the daemon carries it out first, or because the
    /// first one fails.
    pub fn exchange_and_send(
        &self,
        caller: Option<&Credentials>,
        first: Request,
        second: Request,
    ) -> (Result<SessionReply, Errno>, Option<PendingCall>) {
        let first = match self.send_awaited_call(caller, first) {
            Ok(first) => first,
            Err(errno) => return (Err(errno), None),
        };
        let mut unconnected = None;
        let second = match self.slots.acquire_until(Some(Instant::now()), Slot::new) {
            Some(slot) if slot.connection.is_some() => Some(self.send_on(slot, None, second)),
            slot => {
                unconnected = slot;
                None
            }
        };
        let reply = self.receive_or_retransmit(first);
        if let Some(mut slot) = unconnected {
            // The next one finds a connection.
            if reply.is_ok() {
                slot.connection = self.connect(slot.number, slot.seq + 1, false).ok();
            }
            self.slots.release(slot);
        }
        (reply, second)
    }
}
