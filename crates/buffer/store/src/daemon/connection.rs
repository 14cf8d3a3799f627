//! One connection of the event loop: bytes in, frames out; replies in, bytes out.

use super::batch::BatchInProgress;
use super::counters::{RequestKind, StoreCounters};
use forebay_net::channel::{Receiver, Sender};
use forebay_net::frame::{
    self, Flags, FrameError, HEADER_BYTES, Kind, MAX_UNAUTHENTICATED_BODY_BYTES,
};
use forebay_net::handshake::ServerHandshake;
use forebay_net::record::RecordCipher;
use forebay_net::stream::Stream;
use forebay_protocol::message::BatchReply;
use forebay_protocol::{Call, Errno, Reply, Request};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of consumed frames at which the input buffer is compacted although others follow.
const COMPACT_BYTES: usize = 64 << 10;

/// A complete frame.
#[derive(Debug)]
pub enum Incoming {
    /// A call.
    Call(Call),
    /// The body of a handshake message.
    Handshake(Vec<u8>),
}

/// A connection. It has at most one call or batch in progress, so the buffers are bounded.
#[derive(Debug)]
pub struct Connection {
    pub stream: Arc<Stream>,
    /// The host at the other end; `None`: this one.
    pub host: Option<IpAddr>,
    /// Received, and decrypted where necessary.
    input: Vec<u8>,
    consumed: usize,
    /// The beginning of a record that has not arrived completely.
    record: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    descriptor: Option<OwnedFd>,
    /// An encoded frame before its encryption.
    frame: Vec<u8>,
    /// Encryption of sent, and decryption of received bytes.
    ciphers: (Option<RecordCipher>, Option<RecordCipher>),
    counters: Arc<StoreCounters>,
    /// The handshake in progress, on TCP.
    pub handshake: Option<ServerHandshake>,
    /// Longest body of a frame, in bytes.
    pub max_body: usize,
    /// Error with which all calls are refused, and the connection closed.
    pub refused: Option<Errno>,
    /// The call in progress, and its arrival.
    call: Option<(RequestKind, Instant)>,
    /// If it is a batch, the replies to its requests so far.
    batch: Option<BatchInProgress>,
    /// A call is in progress, or a proof is being verified.
    pub busy: bool,
    /// The socket took less than it was given.
    pub blocked: bool,
    /// The event loop polls for room in the socket.
    pub watching_output: bool,
    /// The event loop polls for input.
    pub watching_input: bool,
}

impl Connection {
    pub fn new(
        stream: Stream,
        handshake: Option<ServerHandshake>,
        counters: Arc<StoreCounters>,
    ) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            host: stream.peer_address(),
            stream: Arc::new(stream),
            input: Vec::new(),
            consumed: 0,
            record: Vec::new(),
            output: Vec::new(),
            sent: 0,
            descriptor: None,
            frame: Vec::new(),
            ciphers: (None, None),
            counters,
            handshake,
            max_body: MAX_UNAUTHENTICATED_BODY_BYTES,
            refused: None,
            call: None,
            batch: None,
            busy: false,
            blocked: false,
            watching_output: false,
            watching_input: true,
        })
    }

    /// Receive available bytes. `false`: the peer closed the connection.
    pub fn receive(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        // Clients do not send descriptors; any are closed.
        let mut descriptors = VecDeque::new();
        match self.stream.receive(scratch, &mut descriptors) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.add_input(&scratch[..count])?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Adds bytes that came through the socket, or from a client in this process.
    pub fn add_input(&mut self, received: &[u8]) -> Result<(), FrameError> {
        self.counters.received.add(received.len() as u64);
        if self.consumed == self.input.len() {
            self.input.clear();
            self.consumed = 0;
        } else if self.consumed > COMPACT_BYTES {
            self.input.drain(..self.consumed);
            self.consumed = 0;
        }
        self.take_in(received)
    }

    fn take_in(&mut self, received: &[u8]) -> Result<(), FrameError> {
        let Some(cipher) = &mut self.ciphers.1 else {
            self.input.extend_from_slice(received);
            return Ok(());
        };
        if self.record.is_empty() {
            let taken = cipher.decrypt(received, &mut self.input)?;
            self.record.extend_from_slice(&received[taken..]);
        } else {
            self.record.extend_from_slice(received);
            let taken = cipher.decrypt(&self.record, &mut self.input)?;
            self.record.drain(..taken);
        }
        Ok(())
    }

    /// The next complete frame, unless a call is in progress or its reply is not sent yet.
    pub fn next_frame(&mut self) -> Result<Option<Incoming>, FrameError> {
        if self.busy || self.blocked {
            return Ok(None);
        }
        let bytes = &self.input[self.consumed..];
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = frame::parse_header(head, self.max_body)?;
        let expected = match self.handshake {
            Some(_) => Kind::Handshake,
            None => Kind::Call,
        };
        // Payload comes on data connections only.
        if header.kind != expected || header.payload > 0 {
            return Err(FrameError::Kind);
        }
        let Some(body) = rest.get(..header.body) else {
            return Ok(None);
        };
        frame::check_body(head, &header, body)?;
        let incoming = if expected == Kind::Handshake {
            Incoming::Handshake(body.to_vec())
        } else {
            Incoming::Call(frame::decode(body)?)
        };
        self.consumed += HEADER_BYTES + header.body;
        assert!(self.consumed <= self.input.len());
        let now = Instant::now();
        self.batch = match &incoming {
            Incoming::Call(Call { request: Request::Batch(requests), .. }) => {
                Some(BatchInProgress::new(requests, now))
            }
            Incoming::Call(_) | Incoming::Handshake(_) => None,
        };
        self.call = match &incoming {
            // It gets no reply.
            Incoming::Call(Call { request: Request::Peer(_), .. }) => return Ok(Some(incoming)),
            Incoming::Call(call) => Some((RequestKind::of(&call.request), now)),
            Incoming::Handshake(_) => None,
        };
        self.busy = true;
        Ok(Some(incoming))
    }

    /// Both directions, for a blocking thread, when the connection leaves the event loop.
    pub fn into_channel(self) -> (Sender, Receiver) {
        assert!(self.sent == self.output.len(), "replies have been sent");
        let (send, receive) = self.ciphers;
        let input = self.input[self.consumed..].to_vec();
        let sender = Sender::new(self.stream.clone(), send);
        let receiver = Receiver::resume(self.stream, receive, input, self.record);
        (sender, receiver)
    }

    /// Whether there is input that may hold a frame.
    pub fn has_input(&self) -> bool {
        self.input.len() - self.consumed >= HEADER_BYTES
    }

    /// Encrypt everything from now on, in both directions.
    pub fn set_ciphers(
        &mut self,
        (send, receive): (RecordCipher, RecordCipher),
    ) -> Result<(), FrameError> {
        assert!(self.ciphers.0.is_none(), "a connection has one handshake");
        self.ciphers = (Some(send), Some(receive));
        let early = self.input.split_off(self.consumed);
        self.take_in(&early)
    }

    pub fn queue(&mut self, frames: &[u8]) -> Result<(), FrameError> {
        self.drop_sent_output();
        match &mut self.ciphers.0 {
            None => self.output.extend_from_slice(frames),
            Some(cipher) => cipher.encrypt(frames, &mut self.output)?,
        }
        Ok(())
    }

    fn drop_sent_output(&mut self) {
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Reply to the request at `position` of the batch in progress. Returns whether all have replies, which
    /// are queued.
    pub fn reply_in_batch(
        &mut self,
        seq: u64,
        position: usize,
        reply: BatchReply,
    ) -> Result<bool, FrameError> {
        let Some(batch) = &mut self.batch else {
            unreachable!("a request of a batch is answered while the batch is in progress");
        };
        let Some(replies) = batch.add(position, reply, &self.counters) else {
            return Ok(false);
        };
        self.batch = None;
        self.reply(seq, &Reply::Batch(replies), None, false)?;
        Ok(true)
    }

    /// Reply to the call in progress.
    pub fn reply(
        &mut self,
        seq: u64,
        reply: &Reply,
        descriptor: Option<OwnedFd>,
        cacheable: bool,
    ) -> Result<(), FrameError> {
        self.busy = false;
        if let Some((kind, since)) = self.call.take() {
            let failed = matches!(reply, Reply::Failed(_));
            self.counters.count_request(kind, since.elapsed(), failed);
        }
        let flags = Flags { descriptor: descriptor.is_some(), cacheable };
        self.descriptor = descriptor;
        if self.ciphers.0.is_none() {
            self.drop_sent_output();
            return frame::encode_reply(&mut self.output, seq, flags, reply, 0);
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame::encode_reply(&mut frame, seq, flags, reply, 0)?;
        let queued = self.queue(&frame);
        self.frame = frame;
        queued
    }

    /// Send as much as the socket takes.
    pub fn send(&mut self) -> io::Result<()> {
        self.blocked = false;
        while self.sent < self.output.len() {
            let descriptor = self.descriptor.as_ref().map(AsFd::as_fd);
            match self.stream.send(&[IoSlice::new(&self.output[self.sent..])], descriptor) {
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
