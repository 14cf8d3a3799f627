//! A client's end of a connection to a storage daemon: calls and the responses to them.

use crate::auth::Authenticator;
use crate::channel::{Receiver, Sender, channel};
use crate::chunk::Chunk;
use crate::frame::{self, Flags, FrameError, Kind, MAX_BODY_BYTES};
use crate::handshake::{self, Service};
use crate::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::{Call, DataRequest, Reply, Request};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Time for the handshake of a TCP connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// The response to a call.
#[derive(Debug)]
pub struct Response {
    /// The reply.
    pub reply: Reply,
    /// Bytes of payload put into the caller's buffer.
    pub payload: usize,
    /// The descriptor that came along.
    pub descriptor: Option<OwnedFd>,
    /// It may be cached.
    pub cacheable: bool,
}

/// The client's end of one connection.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    receiver: Receiver,
    out: Vec<u8>,
}

/// Connects to `address`, on TCP for at most `timeout`, and authenticates both sides there.
pub fn connect(
    address: &Address,
    service: Service,
    auth: &Authenticator,
    timeout: Duration,
) -> io::Result<(Sender, Receiver)> {
    let stream = Stream::connect(address, timeout)?;
    let (mut sender, mut receiver) = channel(stream);
    if let Address::Tcp(at) = address {
        sender.stream().set_timeout(Some(HANDSHAKE_TIMEOUT))?;
        receiver.set_deadline(Some(Instant::now() + HANDSHAKE_TIMEOUT))?;
        handshake::connect(&mut sender, &mut receiver, (service, *at), auth)?;
        receiver.set_deadline(None)?;
    }
    Ok((sender, receiver))
}

impl Connection {
    /// Connects to the storage daemon at `address`, on TCP for at most `timeout`, and authenticates
    /// both sides there. On a Unix socket the kernel identifies the client.
    pub fn connect(
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        let (sender, receiver) = connect(address, Service::Storage, auth, timeout)?;
        Ok(Connection { sender, receiver, out: Vec::with_capacity(1024) })
    }

    /// A connection over a connected, blocking socket, without a handshake.
    pub fn new(stream: Stream) -> Connection {
        let (sender, receiver) = channel(stream);
        Connection { sender, receiver, out: Vec::with_capacity(1024) }
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        self.sender.stream()
    }

    /// Sends `call` with `payload` and waits for its reply; the reply's payload goes into `into`.
    pub fn call(&mut self, call: &Call, payload: &[u8], into: &mut [u8]) -> io::Result<Response> {
        self.send(call, payload)?;
        self.receive(call.seq, into)
    }

    /// Sends `call` with `payload`. Its reply must be [received](Connection::receive), or the
    /// connection be dropped; several calls may be sent before, and are answered in their order.
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
            | Request::Peer(_) => 0,
        };
        if payload.is_empty() {
            return self.sender.send(&self.out, None);
        }
        self.sender.send_payload(&self.out, payload, offset)
    }

    /// Sends frames that have been encoded already.
    pub fn send_frames(&mut self, frames: &[u8]) -> io::Result<()> {
        self.sender.send(frames, None)
    }

    /// Waits for the reply to call `seq`; the reply's payload goes into `into`.
    pub fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        loop {
            let (answered, response) = self.next(into)?;
            // A reply to an earlier call that was given up on is skipped.
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
            return Err(FrameError::Kind.into());
        }
        let response = Response { reply, payload: have, descriptor, cacheable };
        Ok((header.seq, response))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::ids::{Errno, Ino};
    use forebay_protocol::message::InodeRequest;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptor_arrives_with_its_reply_and_payload_in_the_callers_buffer() {
        let (near, far) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let (mut sender, mut receiver) = channel(Stream::Unix(far));
            let (header, _) = receiver.receive(MAX_BODY_BYTES).unwrap().unwrap();
            assert_eq!((header.kind, header.seq), (Kind::Call, 3));
            let path = std::env::temp_dir().join(format!("forebay-net-{}", std::process::id()));
            std::fs::File::create(&path).unwrap().write_all(b"by descriptor").unwrap();
            let file = std::fs::File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let mut out = Vec::new();
            let earlier = Reply::Failed(Errno::EIO);
            frame::encode_reply(&mut out, 2, Flags::default(), &earlier, 0).unwrap();
            let flags = Flags { descriptor: true, cacheable: false };
            frame::encode_reply(&mut out, 3, flags, &Reply::Data, 7).unwrap();
            sender.send(&out, Some(file.as_fd())).unwrap();
            sender.send_payload(&[], b"payload", 0).unwrap();
        });
        let mut connection = Connection::new(Stream::Unix(near));
        let call = Call {
            seq: 3,
            caller: None,
            request: Request::Inode(InodeRequest::GetAttr { ino: Ino::ROOT }),
        };
        let mut into = [0; 16];
        let response = connection.call(&call, &[], &mut into).unwrap();
        assert_eq!((response.reply, &into[..response.payload]), (Reply::Data, &b"payload"[..]));
        let mut text = String::new();
        std::fs::File::from(response.descriptor.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "by descriptor");
        server.join().unwrap();
    }
}
