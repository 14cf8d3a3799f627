//! Calls that connections bring, and replies that go out on them.

use super::counters::RequestKind;
use super::events::EventLoop;
use crate::node::{ConnId, Input};
use forebay_protocol::{Reply, Request};
use rustix::event::epoll;
use std::os::fd::OwnedFd;
use std::time::Instant;

impl EventLoop {
    /// Puts a reply behind what a connection has to send.
    pub(super) fn reply(
        &mut self,
        id: ConnId,
        seq: u64,
        reply: &Reply,
        descriptor: Option<OwnedFd>,
        cacheable: bool,
    ) {
        if let Some(conn) = self.conns.get_mut(&id) {
            if let Err(error) = conn.reply(seq, reply, descriptor, cacheable) {
                tracing::error!(%error, "a reply is too long to send");
                self.forget(id);
            } else {
                self.touched.push(id);
            }
        }
    }

    /// Send what is due on a connection, then look whether it has another call waiting.
    pub(super) fn push_out(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if conn.send().is_err() {
            return self.forget(id);
        }
        let flags = if conn.blocked {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        if conn.blocked != conn.watching_output || !conn.watching_input {
            conn.watching_output = conn.blocked;
            conn.watching_input = true;
            let data = epoll::EventData::new_u64(id.0);
            if epoll::modify(&self.epoll, &conn.stream, data, flags).is_err() {
                return self.forget(id);
            }
        }
        if conn.has_input() {
            self.take_calls(id);
        }
    }

    /// Goes on with a connection that the kernel says something of.
    pub(super) fn ready(&mut self, id: ConnId, flags: epoll::EventFlags) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if flags.contains(epoll::EventFlags::OUT) {
            self.touched.push(id);
        }
        if !flags
            .intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR)
        {
            return;
        }
        let waiting = conn.busy || conn.blocked;
        if waiting && conn.has_input() && !flags.contains(epoll::EventFlags::HUP) {
            // It sends more before its call is answered: leave that in the socket.
            conn.watching_input = false;
            let flags = if conn.watching_output {
                epoll::EventFlags::OUT
            } else {
                epoll::EventFlags::empty()
            };
            let data = epoll::EventData::new_u64(id.0);
            let _ = epoll::modify(&self.epoll, &conn.stream, data, flags);
            return;
        }
        match conn.receive(&mut self.scratch) {
            Ok(true) => self.take_calls(id),
            Ok(false) | Err(_) => self.forget(id),
        }
    }

    /// Takes the calls that have come on a connection, as far as they may be under way.
    fn take_calls(&mut self, id: ConnId) {
        while let Some(conn) = self.conns.get_mut(&id) {
            match conn.next_call() {
                Ok(None) => return,
                Ok(Some(call)) => {
                    // Other daemons send one message after the other and want no answers.
                    self.doors.spoke(id);
                    let goes_on = matches!(call.request, Request::Peer(_));
                    conn.busy = !goes_on;
                    let (kind, begun) = (RequestKind::of(&call.request), Instant::now());
                    self.take_call(id, call);
                    if !goes_on {
                        return;
                    }
                    self.parts
                        .counters
                        .count_request(kind, begun.elapsed(), false);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection is closed");
                    return self.forget(id);
                }
            }
        }
    }

    /// Ends a connection.
    pub(super) fn forget(&mut self, id: ConnId) {
        self.doors.left(id);
        // Closing the socket takes it out of the epoll set.
        if self.conns.remove(&id).is_some() {
            self.step(Input::Disconnected(id));
        }
    }
}
