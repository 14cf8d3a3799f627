//! The client's end of a connection to a storage daemon: calls and responses.

use crate::auth::Authenticator;
use crate::channel::{Receiver, Sender, channel};
use crate::chunk::Chunk;
use crate::frame::{self, Flags, FrameError, Kind, MAX_BODY_BYTES};
use crate::handshake::{self, Service};
use crate::in_process::{Delivery, InProcessCalls};
use crate::stream::Stream;
use forebay_protocol::Errno;
use forebay_protocol::address::Address;
use forebay_protocol::message::{Call, DataRequest, Reply, Request};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Timeout of the handshake of a TCP connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// The response to a call.
#[derive(Debug)]
pub struct Response {
    /// The reply.
    pub reply: Reply,
    /// Bytes of payload in the caller's buffer.
    pub payload: usize,
    /// The passed descriptor.
    pub descriptor: Option<OwnedFd>,
    /// The reply may be cached.
    pub cacheable: bool,
}

/// The client's end of one connection.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    receiver: Receiver,
    out: Vec<u8>,
    /// The daemon, as long as it is in this process and takes calls from this thread.
    in_process: Option<InProcessCalls>,
}

/// Connects to `address`; on TCP, with a timeout, and both sides authenticate.
pub fn connect(
    address: &Address,
    service: Service,
    auth: &Authenticator,
    timeout: Duration,
) -> io::Result<(Sender, Receiver)> {
    let (mut sender, mut receiver) = channel(Stream::connect(address, timeout)?);
    if let Address::Tcp(at) = address {
        sender.stream().set_timeout(Some(HANDSHAKE_TIMEOUT))?;
        receiver.set_deadline(Some(Instant::now() + HANDSHAKE_TIMEOUT))?;
        handshake::connect(&mut sender, &mut receiver, (service, *at), auth)?;
        receiver.set_deadline(None)?;
    }
    Ok((sender, receiver))
}

impl From<(Sender, Receiver)> for Connection {
    /// After the handshake, if there is one.
    fn from((sender, receiver): (Sender, Receiver)) -> Connection {
        Connection { sender, receiver, out: Vec::with_capacity(1024), in_process: None }
    }
}

impl Connection {
    /// Connects to the storage daemon at `address`. On TCP there is a timeout, and both sides
    /// authenticate; on a Unix socket the kernel identifies the client.
    pub fn connect(
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        connect(address, Service::Storage, auth, timeout).map(Connection::from)
    }

    /// As [`connect`](Connection::connect); if the daemon is in this process, threads can
    /// [carry out](Connection::carry_out) their calls.
    pub fn connect_in_process(
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        if let Address::Unix(path) = address
            && let Some((socket, calls)) = InProcessCalls::connect(path)?
        {
            let connection = Connection::from(channel(Stream::Unix(socket)));
            return Ok(Connection { in_process: Some(calls), ..connection });
        }
        Connection::connect(address, auth, timeout)
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        self.sender.stream()
    }

    /// Sends `call` with `payload` and receives the response.
    pub fn call(&mut self, call: &Call, payload: &[u8], into: &mut [u8]) -> io::Result<Response> {
        self.send(call, payload)?;
        self.receive(call.seq, into)
    }

    /// Sends `call` with `payload`. Its response must be [received](Connection::receive), or the
    /// connection be dropped. Calls in flight are answered in their order.
    pub fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.out.clear();
        frame::encode_call(&mut self.out, call, payload.len())?;
        let offset = match &call.request {
            Request::Data(DataRequest::Write { offset, .. }) => *offset,
            Request::Data(DataRequest::Read { .. })
            | Request::Session(_)
            | Request::Admin(_)
            | Request::Name(_)
            | Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Path(_)
            | Request::Peer(_)
            | Request::Delegated(_)
            | Request::Batch(_) => 0,
        };
        if payload.is_empty() {
            return self.sender.send(&self.out, None);
        }
        self.sender.send_payload(&self.out, payload, offset)
    }

    /// Sends `call`, whose response is received next. If the daemon is in this process, this thread
    /// carries the call out, since it would wait otherwise.
    pub fn carry_out(&mut self, call: &Call) -> io::Result<()> {
        let Some(daemon) = &self.in_process else {
            return self.send(call, &[]);
        };
        self.out.clear();
        frame::encode_call(&mut self.out, call, 0)?;
        match daemon.deliver(&self.out) {
            Delivery::Accepted => return Ok(()),
            Delivery::NeedsSocket => {}
            Delivery::NotServed => self.in_process = None,
        }
        self.sender.send(&self.out, None)
    }

    /// Sends encoded frames.
    pub fn send_frames(&mut self, frames: &[u8]) -> io::Result<()> {
        self.sender.send(frames, None)
    }

    /// Waits until something has arrived, or the daemon has closed the connection. `false`: nothing has
    /// within `timeout`.
    pub fn await_input(&self, timeout: Duration) -> io::Result<bool> {
        self.receiver.await_input(timeout)
    }

    /// Receives the response to call `seq`, with its payload in `into`.
    pub fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        loop {
            let (answered, response) = self.next(into)?;
            // Replies to abandoned calls are skipped.
            if answered == seq {
                return Ok(response);
            }
        }
    }

    fn next(&mut self, into: &mut [u8]) -> io::Result<(u64, Response)> {
        let Some((header, body)) = self.receiver.receive(MAX_BODY_BYTES)? else {
            return Err(io::ErrorKind::ConnectionReset.into());
        };
        if header.kind != Kind::Reply {
            return Err(FrameError::Kind.into());
        }
        if header.payload > into.len() {
            return Err(FrameError::Length.into());
        }
        let mut reply = frame::decode(body)?;
        let mut have = 0;
        while have < header.payload {
            match self.receiver.receive_chunk(&mut into[have..header.payload])? {
                Chunk::Data(count) => have += count,
                Chunk::End => break,
                Chunk::Failed(errno) => {
                    (reply, have) = (Reply::Failed(errno), 0);
                    break;
                }
            }
        }
        let Flags { descriptor: expected, cacheable } = header.flags;
        let descriptor = if expected { self.receiver.take_descriptor() } else { None };
        if expected && descriptor.is_none() {
            // The kernel drops a passed descriptor for which this process has no number left.
            reply = Reply::Failed(Errno::EMFILE);
        }
        assert!(have <= header.payload, "chunks are limited to the announced payload");
        let response = Response { reply, payload: have, descriptor, cacheable };
        Ok((header.seq, response))
    }
}
