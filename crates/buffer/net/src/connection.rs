//! A client's end of a connection: calls and what comes back for them.

use crate::chunk::{self, Chunk, ChunkSource};
use crate::frame::{self, Direction, Flags, FrameError, HEADER_BYTES, Header};
use crate::stream::Stream;
use forebay_protocol::message::DataRequest;
use forebay_protocol::message::{Call, Reply, Request};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// What came back for a call.
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

/// The client's end of one connection: one call outstanding at a time.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    out: Vec<u8>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    descriptors: VecDeque<OwnedFd>,
}

impl Connection {
    /// A link over a connected, blocking socket.
    pub fn new(stream: Stream) -> Connection {
        Connection {
            stream,
            out: Vec::with_capacity(1024),
            buffer: vec![0; 16 * 1024],
            start: 0,
            end: 0,
            descriptors: VecDeque::new(),
        }
    }

    /// The socket.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Where the far end is, if it is a daemon on another host, which has to prove who it is:
    /// `None` on a Unix socket.
    pub fn remote_address(&self) -> io::Result<Option<SocketAddr>> {
        match &self.stream {
            Stream::Unix(_) => Ok(None),
            Stream::Tcp(stream) => stream.peer_addr().map(Some),
        }
    }

    /// The socket, when there will be no more calls.
    pub fn into_stream(self) -> Stream {
        self.stream
    }

    /// Send `call` with `payload` and wait for its reply; the reply's payload goes into `into`.
    pub fn call(&mut self, call: &Call, payload: &[u8], into: &mut [u8]) -> io::Result<Response> {
        self.send(call, payload)?;
        self.receive(call.seq, into)
    }

    /// Send `call` with `payload`. Its reply must be [received](Link::receive), or the link be
    /// dropped; several calls may be sent before, and are answered in their order.
    pub fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.out.clear();
        frame::encode_call(&mut self.out, call, payload.len())?;
        let offset = match &call.request {
            Request::Data(DataRequest::Write { offset, .. }) => *offset,
            _ => 0,
        };
        chunk::send_payload(&self.stream, &self.out, payload, offset)
    }

    /// Wait for the reply to call `seq`; the reply's payload goes into `into`.
    pub fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        loop {
            let (answered, answer) = self.next(into)?;
            // An answer to an earlier call that was given up on is passed over.
            if answered == seq {
                return Ok(answer);
            }
        }
    }

    fn gather(&mut self, need: usize) -> io::Result<()> {
        if self.start + need > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if need > self.buffer.len() {
                self.buffer.resize(need, 0);
            }
        }
        while self.end - self.start < need {
            self.stream.await_input()?;
            let n = self
                .stream
                .receive(&mut self.buffer[self.end..], &mut self.descriptors)?;
            if n == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            self.end += n;
        }
        Ok(())
    }

    fn next(&mut self, into: &mut [u8]) -> io::Result<(u64, Response)> {
        self.gather(HEADER_BYTES)?;
        let mut head = [0; HEADER_BYTES];
        head.copy_from_slice(&self.buffer[self.start..self.start + HEADER_BYTES]);
        let header: Header = frame::parse_header(&head)?;
        if header.direction != Direction::Reply {
            return Err(FrameError::Kind.into());
        }
        if header.payload > into.len() {
            return Err(FrameError::Length.into());
        }
        self.gather(HEADER_BYTES + header.body)?;
        let body = self.start + HEADER_BYTES..self.start + HEADER_BYTES + header.body;
        let mut reply = frame::decode_body(&head, &header, &self.buffer[body.clone()])?;
        self.start = body.end;
        let mut have = 0;
        while have < header.payload {
            match chunk::receive_chunk(self, &mut into[have..header.payload])? {
                Chunk::Data(count) => have += count,
                Chunk::End => break,
                Chunk::Failed(errno) => {
                    (reply, have) = (Reply::Failed(errno), 0);
                    break;
                }
            }
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let Flags {
            descriptor: expected,
            cacheable,
        } = header.flags;
        let descriptor = if expected {
            self.descriptors.pop_front()
        } else {
            None
        };
        if expected && descriptor.is_none() {
            return Err(FrameError::Kind.into());
        }
        Ok((
            header.seq,
            Response {
                reply,
                payload: have,
                descriptor,
                cacheable,
            },
        ))
    }
}

impl ChunkSource for Connection {
    fn fill(&mut self, into: &mut [u8]) -> io::Result<()> {
        let have = (self.end - self.start).min(into.len());
        into[..have].copy_from_slice(&self.buffer[self.start..self.start + have]);
        self.start += have;
        self.stream
            .receive_all(&mut into[have..], &mut self.descriptors)
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
    fn a_descriptor_arrives_with_its_reply_and_the_payload_in_the_callers_buffer() {
        let (near, far) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let far = Stream::Unix(far);
            let mut buffer = [0; 4096];
            let n = far.receive(&mut buffer, &mut VecDeque::new()).unwrap();
            assert!(n > HEADER_BYTES);
            let path = std::env::temp_dir().join(format!("forebay-net-{}", std::process::id()));
            std::fs::File::create(&path)
                .unwrap()
                .write_all(b"by descriptor")
                .unwrap();
            let file = std::fs::File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let mut out = Vec::new();
            frame::encode_reply(&mut out, 2, Flags::default(), &Reply::Failed(Errno::EIO), 0)
                .unwrap();
            let flags = Flags {
                descriptor: true,
                cacheable: false,
            };
            frame::encode_reply(&mut out, 3, flags, &Reply::Data, 7).unwrap();
            far.send_all(&out, &[], Some(file.as_fd())).unwrap();
            chunk::send_payload(&far, &[], b"payload", 0).unwrap();
        });
        let mut link = Connection::new(Stream::Unix(near));
        let call = Call {
            seq: 3,
            caller: None,
            request: Request::Inode(InodeRequest::GetAttr { ino: Ino::ROOT }),
        };
        let mut into = [0; 16];
        let answer = link.call(&call, &[], &mut into).unwrap();
        assert_eq!(
            (answer.reply, &into[..answer.payload]),
            (Reply::Data, &b"payload"[..])
        );
        let mut text = String::new();
        std::fs::File::from(answer.descriptor.unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "by descriptor");
        server.join().unwrap();
    }
}
