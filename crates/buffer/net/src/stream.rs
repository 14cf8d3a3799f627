//! Sockets: addresses, and sending and receiving with descriptors.

use forebay_protocol::address::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

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

    /// Wait on a blocking socket until there is something to receive, as long as its timeout says.
    ///
    /// Who waits in `recvmsg` on a Unix socket is woken, and put to sleep again, also when the other
    /// end has taken what was sent: twice for each answer. Waiting for input alone is cheaper.
    pub fn await_input(&self) -> io::Result<()> {
        let Stream::Unix(socket) = self else {
            return Ok(()); // a TCP socket wakes its readers for input only
        };
        let patience = socket.read_timeout()?.and_then(|left| left.try_into().ok());
        let mut input = [PollFd::new(socket, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut input, patience.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other.map(|_| ())?),
            }
        }
    }

    /// Shuts down both directions, for all threads that use the connection.
    pub fn shut_down(&self) {
        // It fails if the peer has closed the connection already.
        let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Both);
    }

    /// Has the peer closed its end, as far as that is known here? What it sent before may still be
    /// there to receive.
    pub fn is_peer_gone(&self) -> io::Result<bool> {
        let mut end = [PollFd::new(self, PollFlags::RDHUP)];
        let at_once = rustix::event::Timespec::default();
        match rustix::event::poll(&mut end, Some(&at_once)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            other => Ok(other? > 0),
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
                return Err(io::Error::other("no room for a descriptor in the control message"));
            }
        }
        loop {
            match rustix::net::sendmsg(self, parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Send all of `parts` on a blocking socket, and `descriptor` with their first byte.
    pub fn send_parts(
        &self,
        parts: &[&[u8]],
        mut descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut parts[..];
        IoSlice::advance_slices(&mut rest, 0); // drops empty ones in front
        while !rest.is_empty() {
            match self.send(rest, descriptor.take())? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => IoSlice::advance_slices(&mut rest, sent),
            }
        }
        Ok(())
    }

    /// Receive all of `buffer` on a blocking socket. `ConnectionReset`: the peer closed before.
    pub fn receive_all(
        &self,
        buffer: &mut [u8],
        descriptors: &mut VecDeque<OwnedFd>,
    ) -> io::Result<()> {
        let mut have = 0;
        while have < buffer.len() {
            match self.receive_with(&mut buffer[have..], descriptors, RecvFlags::WAITALL)? {
                0 => return Err(io::ErrorKind::ConnectionReset.into()),
                count => have += count,
            }
        }
        Ok(())
    }

    /// Receive into `buffer`; descriptors that came along go to `descriptors`. 0: the peer closed.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        descriptors: &mut VecDeque<OwnedFd>,
    ) -> io::Result<usize> {
        self.receive_with(buffer, descriptors, RecvFlags::empty())
    }

    fn receive_with(
        &self,
        buffer: &mut [u8],
        descriptors: &mut VecDeque<OwnedFd>,
        flags: RecvFlags,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(buffer)];
            let flags = flags | RecvFlags::CMSG_CLOEXEC;
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
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
