//! Sockets: addresses, sending and receiving with descriptors, and a client's blocking link.

use crate::frame::{self, BadFrame, Direction, Flags, HEADER, Header};
use crate::ids::Errno;
use crate::message::{Call, Reply};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Where a storage daemon listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = Errno;

    /// The address that [`Display`](fmt::Display) wrote: a path with a `/`, or a TCP address and
    /// port. `EINVAL` for anything else.
    fn from_str(text: &str) -> Result<Address, Errno> {
        if text.contains('/') {
            return Ok(Address::Unix(PathBuf::from(text)));
        }
        text.parse().map(Address::Tcp).map_err(|_| Errno::EINVAL)
    }
}

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// On the same host.
    Unix(UnixStream),
    /// Between hosts.
    Tcp(TcpStream),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
        }
    }
}

impl Stream {
    /// Connect to `address`, waiting at most `patience` on TCP.
    pub fn connect(address: &Address, patience: Duration) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, patience)?;
                stream.set_nodelay(true)?;
                notice_silence(&stream)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// A connection that someone has made to this host.
    pub fn accepted(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        notice_silence(&stream)?;
        Ok(Stream::Tcp(stream))
    }

    /// Whether sends and receives return at once instead of waiting.
    pub fn set_nonblocking(&self, yes: bool) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_nonblocking(yes),
            Stream::Tcp(s) => s.set_nonblocking(yes),
        }
    }

    /// How long a blocking send or receive may take.
    pub fn set_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(s) => {
                s.set_read_timeout(patience)?;
                s.set_write_timeout(patience)
            }
            Stream::Tcp(s) => {
                s.set_read_timeout(patience)?;
                s.set_write_timeout(patience)
            }
        }
    }

    /// Send some of `parts`, and `descriptor` with their first byte. Returns the bytes taken.
    pub fn send(
        &self,
        parts: &[IoSlice<'_>],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors;
        if let Some(fd) = descriptor {
            descriptors = [fd];
            if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                return Err(io::Error::other(
                    "no room for a descriptor in the control message",
                ));
            }
        }
        loop {
            match rustix::net::sendmsg(self, parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Send all of `head` and `payload` on a blocking socket.
    pub fn send_all(
        &self,
        head: &[u8],
        payload: &[u8],
        mut descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let total = head.len() + payload.len();
        let mut sent = 0;
        while sent < total {
            let n = if sent < head.len() {
                self.send(
                    &[IoSlice::new(&head[sent..]), IoSlice::new(payload)],
                    descriptor.take(),
                )?
            } else {
                self.send(&[IoSlice::new(&payload[sent - head.len()..])], None)?
            };
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += n;
        }
        Ok(())
    }

    /// Receive into `buffer`; descriptors that came along go to `descriptors`. 0: the peer closed.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        descriptors: &mut VecDeque<OwnedFd>,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(buffer)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(self, &mut parts, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(message) => {
                    for control in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(fds) = control {
                            descriptors.extend(fds);
                        }
                    }
                    return Ok(message.bytes);
                }
            }
        }
    }
}

/// Have the kernel find out when the other host is gone without a word, in half a minute: whoever
/// waits for an answer gets an error then. A host that is there answers without its daemon.
fn notice_silence(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    sockopt::set_tcp_user_timeout(stream, 30_000)?;
    Ok(())
}

/// Let this process have as many descriptors open as the system permits: every connection is one,
/// and so is every open file.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Without it the limit in force simply stays.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
}

/// What came back for a call.
#[derive(Debug)]
pub struct Answer {
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
pub struct Link {
    stream: Stream,
    out: Vec<u8>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    descriptors: VecDeque<OwnedFd>,
}

impl Link {
    /// A link over a connected, blocking socket.
    pub fn new(stream: Stream) -> Link {
        Link {
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
    pub fn far_end(&self) -> io::Result<Option<SocketAddr>> {
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
    pub fn call(&mut self, call: &Call, payload: &[u8], into: &mut [u8]) -> io::Result<Answer> {
        self.send(call, payload)?;
        self.receive(call.seq, into)
    }

    /// Send `call` with `payload`. Its reply must be [received](Link::receive), or the link be
    /// dropped; several calls may be sent before, and are answered in their order.
    pub fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.out.clear();
        frame::put_call(&mut self.out, call, payload)?;
        self.stream.send_all(&self.out, payload, None)
    }

    /// Wait for the reply to call `seq`; the reply's payload goes into `into`.
    pub fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Answer> {
        loop {
            let (answered, answer) = self.next(into)?;
            // An answer to an earlier call that was given up on is passed over.
            if answered == seq {
                return Ok(answer);
            }
        }
    }

    fn fill(&mut self, need: usize) -> io::Result<()> {
        if self.start + need > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if need > self.buffer.len() {
                self.buffer.resize(need, 0);
            }
        }
        while self.end - self.start < need {
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

    fn next(&mut self, into: &mut [u8]) -> io::Result<(u64, Answer)> {
        self.fill(HEADER)?;
        let mut head = [0; HEADER];
        head.copy_from_slice(&self.buffer[self.start..self.start + HEADER]);
        let header: Header = frame::parse_header(&head)?;
        if header.direction != Direction::Reply {
            return Err(BadFrame::Kind.into());
        }
        if header.payload > into.len() {
            return Err(BadFrame::Length.into());
        }
        self.fill(HEADER + header.body)?;
        let body = self.start + HEADER..self.start + HEADER + header.body;
        let mut have = (self.end - body.end).min(header.payload);
        into[..have].copy_from_slice(&self.buffer[body.end..body.end + have]);
        self.start = body.end + have;
        while have < header.payload {
            let n = self
                .stream
                .receive(&mut into[have..header.payload], &mut self.descriptors)?;
            if n == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            have += n;
        }
        let reply = frame::open(&head, &header, &self.buffer[body], &into[..have])?;
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
            return Err(BadFrame::Kind.into());
        }
        Ok((
            header.seq,
            Answer {
                reply,
                payload: have,
                descriptor,
                cacheable,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Errno, Ino};
    use crate::message::Request;
    use std::io::{Read, Write};

    #[test]
    fn a_descriptor_arrives_with_its_reply_and_the_payload_in_the_callers_buffer() {
        let (near, far) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let far = Stream::Unix(far);
            let mut buffer = [0; 4096];
            let n = far.receive(&mut buffer, &mut VecDeque::new()).unwrap();
            assert!(n > HEADER);
            let path = std::env::temp_dir().join(format!("forebay-wire-{}", std::process::id()));
            std::fs::File::create(&path)
                .unwrap()
                .write_all(b"by descriptor")
                .unwrap();
            let file = std::fs::File::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let mut out = Vec::new();
            frame::put_reply(
                &mut out,
                2,
                Flags::default(),
                &Reply::Failed(Errno::EIO),
                &[],
            )
            .unwrap();
            let flags = Flags {
                descriptor: true,
                cacheable: false,
            };
            frame::put_reply(&mut out, 3, flags, &Reply::Data, b"payload").unwrap();
            far.send_all(&out, b"payload", Some(file.as_fd())).unwrap();
        });
        let mut link = Link::new(Stream::Unix(near));
        let call = Call {
            seq: 3,
            caller: None,
            request: Request::GetAttr { ino: Ino::ROOT },
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
