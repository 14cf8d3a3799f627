//! One connection of the event loop: bytes in, calls out; replies in, bytes out.

use super::counters::{RequestKind, StoreCounters};
use forebay_net::frame::{self, Direction, Flags, FrameError, HEADER_BYTES};
use forebay_net::stream::Stream;
use forebay_protocol::{Call, Errno, Reply};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Longest body of a call from someone who is not known yet, in bytes: a credential and what goes
/// with it.
pub const MAX_STRANGE: usize = 32 << 10;
/// Bytes of calls that were taken, from which on they are cleared away though others follow.
const COMPACT: usize = 64 << 10;

/// A connection. It has at most one call under way, so what is buffered is bounded.
#[derive(Debug)]
pub struct Connection {
    pub stream: Stream,
    input: Vec<u8>,
    start: usize,
    output: Vec<u8>,
    sent: usize,
    descriptor: Option<OwnedFd>,
    counters: Arc<StoreCounters>,
    /// Longest body of a call, in bytes.
    pub longest: usize,
    /// Why all calls are refused, and the connection closed.
    pub refused: Option<Errno>,
    /// What was asked last, and when.
    asked: (RequestKind, Instant),
    /// A call was taken and not answered yet.
    pub busy: bool,
    /// The socket took less than it was given.
    pub blocked: bool,
    /// The loop listens for room in the socket.
    pub watching_output: bool,
    /// The loop listens for input.
    pub watching_input: bool,
}

impl Connection {
    pub fn new(stream: Stream, counters: Arc<StoreCounters>) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            input: Vec::new(),
            start: 0,
            output: Vec::new(),
            sent: 0,
            descriptor: None,
            counters,
            longest: MAX_STRANGE,
            refused: None,
            asked: (RequestKind::Attach, Instant::now()),
            busy: false,
            blocked: false,
            watching_output: false,
            watching_input: true,
        })
    }

    /// Take what has arrived. `false`: the peer closed.
    pub fn receive(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        // Clients do not send descriptors; any are closed.
        let mut descriptors = VecDeque::new();
        match self.stream.receive(scratch, &mut descriptors) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.counters.received.add(count as u64);
                if self.start == self.input.len() {
                    self.input.clear();
                    self.start = 0;
                } else if self.start > COMPACT {
                    self.input.drain(..self.start);
                    self.start = 0;
                }
                self.input.extend_from_slice(&scratch[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The next whole call, unless one is under way or its answer has not left yet.
    pub fn next_call(&mut self) -> Result<Option<Call>, FrameError> {
        if self.busy || self.blocked {
            return Ok(None);
        }
        let bytes = &self.input[self.start..];
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = frame::parse_header(head)?;
        if header.direction != Direction::Call || header.payload > 0 {
            return Err(FrameError::Kind); // payload comes on bulk connections only
        }
        if header.body > self.longest {
            return Err(FrameError::Length);
        }
        let end = HEADER_BYTES + header.body;
        let Some(body) = bytes.get(HEADER_BYTES..end) else {
            return Ok(None);
        };
        let call: Call = frame::decode_body(head, &header, body)?;
        self.start += end;
        self.busy = true;
        self.asked = (RequestKind::of(&call.request), Instant::now());
        Ok(Some(call))
    }

    /// Bytes received but not taken as calls, when the connection leaves the event loop.
    pub fn leftover(&self) -> &[u8] {
        &self.input[self.start..]
    }

    /// Is there input that may hold a call?
    pub fn has_input(&self) -> bool {
        self.input.len() - self.start >= HEADER_BYTES
    }

    /// Answer the call under way.
    pub fn reply(
        &mut self,
        seq: u64,
        reply: &Reply,
        descriptor: Option<OwnedFd>,
        cacheable: bool,
    ) -> Result<(), FrameError> {
        self.busy = false;
        let (kind, since) = self.asked;
        let failed = matches!(reply, Reply::Failed(_));
        self.counters.count_request(kind, since.elapsed(), failed);
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
        let flags = Flags {
            descriptor: descriptor.is_some(),
            cacheable,
        };
        frame::encode_reply(&mut self.output, seq, flags, reply, 0)?;
        self.descriptor = descriptor;
        Ok(())
    }

    /// Send what the socket takes.
    pub fn send(&mut self) -> io::Result<()> {
        self.blocked = false;
        while self.sent < self.output.len() {
            let descriptor = self.descriptor.as_ref().map(AsFd::as_fd);
            match self
                .stream
                .send(&[IoSlice::new(&self.output[self.sent..])], descriptor)
            {
                Ok(count) => {
                    self.sent += count;
                    self.counters.sent.add(count as u64);
                    self.descriptor = None;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
