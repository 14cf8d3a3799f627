//! Sockets, over which descriptors can be passed.

use crate::descriptors::relocate;
use forebay_protocol::address::Address;
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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
    /// Connects to `address`; on TCP, with a timeout.
    pub fn connect(address: &Address, timeout: Duration) -> io::Result<Stream> {
        match address {
            Address::Unix(path) => {
                let stream = relocate(UnixStream::connect(path)?.into());
                Ok(Stream::Unix(stream.into()))
            }
            Address::Tcp(address) => {
                let stream = relocate(TcpStream::connect_timeout(address, timeout)?.into());
                Stream::tcp(stream.into())
            }
        }
    }

    /// A TCP connection without delay of small messages. The kernel ends it if the peer's host is
    /// unreachable for half a minute, so that receivers get an error.
    pub fn tcp(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, Duration::from_secs(15))?;
        sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(5))?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        sockopt::set_tcp_user_timeout(&stream, 30_000)?;
        Ok(Stream::Tcp(stream))
    }

    /// Sets whether sends and receives return instead of waiting.
    pub fn set_nonblocking(&self, yes: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self, yes)?)
    }

    /// Sets the timeout of a blocking send or receive.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        sockopt::set_socket_timeout(self, Timeout::Recv, timeout)?;
        Ok(sockopt::set_socket_timeout(self, Timeout::Send, timeout)?)
    }

    /// Waits for input on a blocking socket, with the socket's timeout.
    ///
    /// A `recvmsg` on a Unix socket also wakes up when the peer receives, once for each reply. A
    /// `poll` for input avoids this.
    pub fn await_input(&self) -> io::Result<()> {
        let Stream::Unix(socket) = self else {
            return Ok(()); // a TCP socket wakes its readers for input only
        };
        let timeout = socket.read_timeout()?.and_then(|timeout| timeout.try_into().ok());
        let mut input = [PollFd::new(socket, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut input, timeout.as_ref()) {
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other.map(|_| ())?),
            }
        }
    }

    /// Waits until there is something to receive, or the peer has closed the connection. `false`: there
    /// is nothing after `timeout`.
    pub fn has_input(&self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        let mut input = [PollFd::new(self, PollFlags::IN)];
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).try_into().ok();
            match rustix::event::poll(&mut input, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other? > 0),
            }
        }
    }

    /// The peer's address; `None` on a Unix socket, or if the peer is gone.
    pub fn peer_address(&self) -> Option<IpAddr> {
        match self {
            Stream::Unix(_) => None,
            Stream::Tcp(socket) => socket.peer_addr().ok().map(|at| at.ip()),
        }
    }

    /// Shuts down both directions, for all threads that use the connection.
    pub fn shut_down(&self) {
        // Fails if the peer has closed the connection.
        let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Both);
    }

    /// Whether the peer is known to have closed its end. Data that it sent before may be left to
    /// receive.
    pub fn is_peer_gone(&self) -> io::Result<bool> {
        let mut end = [PollFd::new(self, PollFlags::RDHUP)];
        let no_wait = rustix::event::Timespec::default();
        match rustix::event::poll(&mut end, Some(&no_wait)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            other => Ok(other? > 0),
        }
    }

    /// Sends some of `parts`, and `descriptor` with their first byte. Returns the number of bytes sent.
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
                return Err(io::Error::other("no space for a descriptor in the control message"));
            }
        }
        loop {
            match rustix::net::sendmsg(self, parts, &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Sends all of `parts` on a blocking socket, and `descriptor` with their first byte.
    pub fn send_parts<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a [u8]>,
        mut descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut parts: Vec<_> = parts.into_iter().map(IoSlice::new).collect();
        let mut rest = &mut parts[..];
        IoSlice::advance_slices(&mut rest, 0); // skips empty parts
        while !rest.is_empty() {
            match self.send(rest, descriptor.take())? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => IoSlice::advance_slices(&mut rest, sent),
            }
        }
        Ok(())
    }

    /// Fills `buffer` on a blocking socket. `ConnectionReset`: the peer closed the connection.
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

    /// Receives into `buffer`, and appends passed descriptors to `descriptors`. 0: the peer closed the
    /// connection.
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
                            descriptors.extend(fds.map(relocate));
                        }
                    }
                    return Ok(message.bytes);
                }
            }
        }
    }
}

/// Raises the limit of open descriptors to the permitted maximum: connections and open files need
/// one each.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // On failure the current limit remains.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
