//! The connections of the event loop: listeners, sockets, readiness, admission.

use super::connection::{Connection, Incoming};
use super::counters::StoreCounters;
use super::mailbox::Mailbox;
use crate::node::ConnId;
use forebay_net::admission::{AdmissionControl, ConnectionLimits};
use forebay_net::frame::FrameError;
use forebay_net::handshake::ServerHandshake;
use forebay_net::listener::ACCEPT_BACKOFF;
use forebay_net::stream::Stream;
use forebay_protocol::Reply;
use forebay_protocol::message::BatchReply;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

const MAILBOX: u64 = 0;
const UNIX: u64 = 1;
const TCP: u64 = 2;
const FIRST_CONNECTION: u64 = 16;
/// Most events per call of `epoll_wait`.
pub const MAX_EVENTS: usize = 256;
/// Bytes per read from a socket.
const RECEIVE_BYTES: usize = 64 << 10;
/// Something is ready.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    Mailbox,
    UnixListener,
    TcpListener,
    Connection(ConnId, EventFlags),
}

impl Ready {
    /// The readiness that an event reports.
    pub fn of(event: &epoll::Event) -> Ready {
        match event.data.u64() {
            MAILBOX => Ready::Mailbox,
            UNIX => Ready::UnixListener,
            TCP => Ready::TcpListener,
            id => Ready::Connection(ConnId(id), event.flags),
        }
    }
}

/// Outcome of reading from a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// There may be a call.
    Input,
    Nothing,
    /// The peer closed the connection, or the connection failed.
    Closed,
}

/// Listeners and connections.
pub struct Connections {
    epoll: Arc<OwnedFd>,
    unix: UnixListener,
    tcp: Option<TcpListener>,
    open: HashMap<ConnId, Connection>,
    next_id: u64,
    receive_buffer: Vec<u8>,
    /// Connections that have output or a finished call.
    touched: Vec<ConnId>,
    counters: Arc<StoreCounters>,
    pub admission: AdmissionControl,
}

impl Connections {
    /// Accept from these listeners.
    pub fn new(
        mailbox: &Mailbox,
        unix: UnixListener,
        tcp: Option<TcpListener>,
        limits: ConnectionLimits,
        counters: Arc<StoreCounters>,
    ) -> io::Result<Connections> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        unix.set_nonblocking(true)?;
        epoll::add(&epoll, mailbox, EventData::new_u64(MAILBOX), EventFlags::IN)?;
        epoll::add(&epoll, &unix, EventData::new_u64(UNIX), EventFlags::IN)?;
        if let Some(tcp) = &tcp {
            tcp.set_nonblocking(true)?;
            epoll::add(&epoll, tcp, EventData::new_u64(TCP), EventFlags::IN)?;
        }
        Ok(Connections {
            epoll,
            unix,
            tcp,
            open: HashMap::new(),
            next_id: FIRST_CONNECTION,
            receive_buffer: vec![0; RECEIVE_BYTES],
            touched: Vec::new(),
            counters,
            admission: AdmissionControl::new(limits),
        })
    }

    /// The set of descriptors on which a thread [waits](wait_for_events).
    pub fn epoll(&self) -> Arc<OwnedFd> {
        self.epoll.clone()
    }

    /// Whether a client in this process may add a call to the input of a connection: it is open, and
    /// earlier calls have been answered.
    pub fn takes_call(&self, id: ConnId) -> bool {
        self.open.get(&id).is_some_and(|conn| !conn.busy && !conn.blocked && !conn.has_input())
    }

    /// Adds input that did not come through the socket.
    pub fn add_input(&mut self, id: ConnId, bytes: &[u8]) -> Received {
        match self.open.get_mut(&id).map(|conn| conn.add_input(bytes)) {
            Some(Ok(())) => Received::Input,
            Some(Err(_)) => Received::Closed,
            None => Received::Nothing,
        }
    }

    pub fn count(&self) -> usize {
        self.open.len()
    }

    pub fn accept_unix(&self) -> Option<UnixStream> {
        accepted(self.unix.accept())
    }

    pub fn accept_tcp(&self) -> Option<TcpStream> {
        accepted(self.tcp.as_ref()?.accept())
    }

    /// Add an accepted connection, on TCP with its handshake. `None` if it failed already.
    pub fn add(&mut self, stream: Stream, handshake: Option<ServerHandshake>) -> Option<ConnId> {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        let conn = Connection::new(stream, handshake, self.counters.clone()).ok()?;
        let data = EventData::new_u64(id.0);
        epoll::add(&self.epoll, conn.stream.as_fd(), data, EventFlags::IN).ok()?;
        let replaced = self.open.insert(id, conn);
        assert!(replaced.is_none(), "connection ids are unique");
        Some(id)
    }

    /// Close a connection, which removes its socket from the epoll set. `false`: it is closed.
    pub fn close(&mut self, id: ConnId) -> bool {
        self.admission.remove(id.0);
        self.open.remove(&id).is_some()
    }

    /// Take a connection out of the event loop.
    pub fn take(&mut self, id: ConnId) -> Option<Connection> {
        self.admission.remove(id.0);
        let conn = self.open.remove(&id)?;
        let _ = epoll::delete(&self.epoll, conn.stream.as_fd());
        Some(conn)
    }

    pub fn close_all(&mut self) {
        self.open.clear();
    }

    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.open.get_mut(&id)
    }

    /// Queue the reply to the call in progress, or keep it until its batch is complete. Fails if the reply is
    /// too long.
    pub fn queue_reply(
        &mut self,
        id: ConnId,
        seq: u64,
        reply: Reply,
        descriptor: Option<OwnedFd>,
        cacheable: bool,
    ) -> Result<(), FrameError> {
        let Some(conn) = self.open.get_mut(&id.connection()) else {
            return Ok(());
        };
        let is_queued = match id.position() {
            Some(position) => {
                assert!(descriptor.is_none(), "no request of a batch passes a descriptor");
                conn.reply_in_batch(seq, position, BatchReply { reply, cacheable })?
            }
            None => {
                conn.reply(seq, &reply, descriptor, cacheable)?;
                true
            }
        };
        if is_queued {
            self.touched.push(id.connection());
        }
        Ok(())
    }

    /// A connection has output, or a finished call.
    pub fn touch(&mut self, id: ConnId) {
        self.touched.push(id);
    }

    /// The connections that have output or a finished call.
    pub fn take_touched(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.touched)
    }

    /// Send queued output. Returns whether there is input that may hold a call.
    pub fn flush(&mut self, id: ConnId) -> io::Result<bool> {
        let Some(conn) = self.open.get_mut(&id) else {
            return Ok(false);
        };
        conn.send()?;
        if conn.blocked != conn.watching_output || !conn.watching_input {
            conn.watching_output = conn.blocked;
            conn.watching_input = true;
            let flags =
                if conn.blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(id.0);
            epoll::modify(&self.epoll, &conn.stream, data, flags)?;
        }
        Ok(conn.has_input())
    }

    /// Handle the readiness of a connection.
    pub fn receive(&mut self, id: ConnId, flags: EventFlags) -> Received {
        let Some(conn) = self.open.get_mut(&id) else {
            return Received::Nothing;
        };
        if flags.contains(EventFlags::OUT) {
            self.touched.push(id);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return Received::Nothing;
        }
        let waits = conn.busy || conn.blocked;
        if waits && conn.has_input() && !flags.contains(EventFlags::HUP) {
            // The peer sends more before its call is answered: leave that in the socket.
            conn.watching_input = false;
            let flags = if conn.watching_output { EventFlags::OUT } else { EventFlags::empty() };
            let data = EventData::new_u64(id.0);
            let _ = epoll::modify(&self.epoll, &conn.stream, data, flags);
            return Received::Nothing;
        }
        match conn.receive(&mut self.receive_buffer) {
            Ok(true) => Received::Input,
            Ok(false) | Err(_) => Received::Closed,
        }
    }

    /// The next complete frame of a connection, unless a call is in progress.
    pub fn next_frame(&mut self, id: ConnId) -> Result<Option<Incoming>, FrameError> {
        match self.open.get_mut(&id) {
            Some(conn) => conn.next_frame(),
            None => Ok(None),
        }
    }
}

/// Wait up to `timeout`, or without limit, until something is ready. Replaces `events`.
pub fn wait_for_events(
    epoll: &OwnedFd,
    timeout: Option<Duration>,
    events: &mut Vec<epoll::Event>,
) -> io::Result<()> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    events.clear();
    let spare = rustix::buffer::spare_capacity(events);
    match epoll::wait(epoll, spare, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn accepted<S, A>(result: io::Result<(S, A)>) -> Option<S> {
    match result {
        Ok((socket, _)) => Some(socket),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => {
            tracing::warn!(%error, "cannot accept connection");
            std::thread::sleep(ACCEPT_BACKOFF);
            None
        }
    }
}
