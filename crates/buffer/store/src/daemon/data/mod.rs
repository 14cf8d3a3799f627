//! Data connections: reads and writes of clients on other hosts, served by one thread per
//! connection without involving the event loop.

mod fences;
mod open_objects;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use fences::{DataSlots, Fence, FenceEpoch};
pub use open_objects::OpenObjects;

use super::charged_use::ChargedConnection;
use super::clock::Clock;
use super::counters::{RequestKind, StoreCounters};
use crate::context::Traffic;
use crate::objects::DiskObjects;
use forebay_net::channel::{Receiver, Sender};
use forebay_net::frame::{self, Flags, FrameError, HEADER_BYTES, Kind, MAX_BODY_BYTES};
use forebay_protocol::message::{DataRequest, MAX_DATA};
use forebay_protocol::{Call, Errno, Reply, Request, SessionId};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State that a data connection shares with the daemon.
#[derive(Clone, Copy)]
pub struct DataContext<'a> {
    pub opens: &'a OpenObjects,
    pub objects: &'a DiskObjects,
    pub counters: &'a StoreCounters,
    /// Counters of the session.
    pub traffic: &'a Traffic,
    /// The user who is charged; `None`: no rate is limited.
    pub charged: Option<&'a ChargedConnection>,
    pub clock: Clock,
    pub fence: &'a Arc<Fence>,
    /// Time without a request after which the connection is closed.
    pub idle_timeout: Duration,
}

/// Time without a request after which a connection's buffer is returned to the system.
const BUFFER_LIFETIME: Duration = Duration::from_secs(1);
/// Granularity of a buffer's size.
const BUFFER_STEP_BYTES: usize = 256 << 10;

struct DataConnection<'a> {
    sender: Sender,
    session: SessionId,
    context: DataContext<'a>,
    /// Data of one request; empty on an idle connection.
    buffer: Vec<u8>,
    out: Vec<u8>,
}

/// Serve a data connection until the peer closes it.
pub fn serve_data_connection(
    sender: Sender,
    receiver: Receiver,
    session: SessionId,
    context: DataContext<'_>,
) -> io::Result<()> {
    receiver.stream().set_nonblocking(false)?;
    let mut input = DataInput { receiver, fence: context.fence };
    let mut connection =
        DataConnection { sender, session, context, buffer: Vec::new(), out: Vec::new() };
    let counters = context.counters;
    loop {
        if !input.receiver.await_input(BUFFER_LIFETIME)? {
            connection.buffer = Vec::new();
            if !input.receiver.await_input(context.idle_timeout)? {
                return Ok(());
            }
        }
        let Some(incoming) = input.next_call()? else {
            return Ok(());
        };
        counters.received.add(incoming.bytes);
        let (kind, begun) = (RequestKind::of(&incoming.call.request), incoming.begun);
        let payload = incoming.payload as u64;
        let wanted = incoming.wanted_bytes();
        if let Some(charged) = context.charged
            && !charged.take(wanted.max(payload), context.fence, input.receiver.stream())?
        {
            return Ok(());
        }
        let answer = connection.handle_call(&mut input, incoming)?;
        if let Some(charged) = context.charged {
            charged.give_back(wanted.saturating_sub(answer.read_bytes));
        }
        counters.sent.add(answer.sent_bytes);
        counters.count_request(kind, begun.elapsed(), answer.failed);
        let written = if answer.failed { 0 } else { payload };
        context.traffic.count(context.clock.steady_ns(begun), answer.read_bytes, written);
    }
}

/// The first `length` bytes of a buffer, which grows as necessary.
fn first_bytes(buffer: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if buffer.len() < length {
        // All at once, so that it is zeroed by the system and not copied.
        *buffer = vec![0; length.next_multiple_of(BUFFER_STEP_BYTES)];
    }
    &mut buffer[..length]
}

/// A request without its data, which follow.
struct IncomingCall {
    call: Call,
    /// Bytes of data that follow.
    payload: usize,
    /// Bytes of frame and data.
    bytes: u64,
    /// Time at which it began to arrive.
    begun: Instant,
}

impl IncomingCall {
    /// Bytes that a read asks for.
    fn wanted_bytes(&self) -> u64 {
        match self.call.request {
            Request::Data(DataRequest::Read { length, .. }) => {
                u64::from(length).min(MAX_DATA as u64)
            }
            _ => 0,
        }
    }
}

/// Statistics of an answered request.
struct Answered {
    sent_bytes: u64,
    /// Contents among them.
    read_bytes: u64,
    failed: bool,
}

impl DataConnection<'_> {
    fn handle_call(
        &mut self,
        input: &mut DataInput<'_>,
        incoming: IncomingCall,
    ) -> io::Result<Answered> {
        let call = incoming.call;
        let outcome = match call.request {
            Request::Data(DataRequest::Read { handle, offset, length }) => {
                let open = self.context.opens.get_handle(self.session, handle);
                let open = open.as_deref().map_err(|errno| *errno);
                let length = (length as usize).min(MAX_DATA);
                return self.read(call.seq, open, offset, length);
            }
            Request::Data(DataRequest::Write { handle, offset, append }) => {
                let open = self.context.opens.get_handle(self.session, handle);
                let open = open.as_deref().map_err(|errno| *errno);
                self.write(input, open, offset, append, incoming.payload)?
            }
            Request::Session(_)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Path(_)
            | Request::Peer(_)
            | Request::Delegated(_)
            | Request::Batch(_) => Err(Errno::EOPNOTSUPP),
        };
        self.reply(call.seq, &outcome.unwrap_or_else(Reply::Failed))
    }

    fn reply(&mut self, seq: u64, reply: &Reply) -> io::Result<Answered> {
        self.out.clear();
        frame::encode_reply(&mut self.out, seq, Flags::default(), reply, 0)?;
        self.sender.send(&self.out, None)?;
        Ok(Answered {
            sent_bytes: self.out.len() as u64,
            read_bytes: 0,
            failed: matches!(reply, Reply::Failed(_)),
        })
    }
}

struct DataInput<'a> {
    receiver: Receiver,
    fence: &'a Fence,
}

impl DataInput<'_> {
    /// Receive the next request; `None` if the peer has closed.
    fn next_call(&mut self) -> io::Result<Option<IncomingCall>> {
        let Some((header, body)) = self.receiver.receive(MAX_BODY_BYTES)? else {
            return Ok(None);
        };
        let begun = Instant::now();
        if header.kind != Kind::Call {
            return Err(FrameError::Kind.into());
        }
        let call: Call = frame::decode(body)?;
        let is_write = matches!(call.request, Request::Data(DataRequest::Write { .. }));
        if header.payload > 0 && !is_write {
            return Err(FrameError::Kind.into());
        }
        Ok(Some(IncomingCall {
            call,
            payload: header.payload,
            bytes: (HEADER_BYTES + header.body + header.payload) as u64,
            begun,
        }))
    }
}
