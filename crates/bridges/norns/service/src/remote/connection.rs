//! The connection to the service of another node.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use forebay_net::channel::{Receiver, Sender};
use forebay_net::chunk::Chunk;
use forebay_net::connection;
use forebay_net::frame::{self, Flags, FrameError, Kind};
use forebay_net::handshake::Service;
use forebay_protocol::address::Address;
use parking_lot::Mutex;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Network;
use super::wire::{Answer, Call, Handle, MAX_BODY_BYTES, MAX_PAYLOAD_BYTES, Operation, Session};

/// Time for connecting and for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the answer to a call; a sync may take long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// One end of a connection: messages with payloads.
pub(super) struct Messages {
    sender: Sender,
    receiver: Receiver,
    out: Vec<u8>,
}

impl Messages {
    pub fn new(sender: Sender, receiver: Receiver) -> Messages {
        Messages { sender, receiver, out: Vec::new() }
    }

    /// Sends a message with a payload.
    pub fn send(&mut self, kind: Kind, message: &impl Serialize, payload: &[u8]) -> io::Result<()> {
        self.out.clear();
        let fields = (kind, Flags::default(), 0);
        frame::encode(&mut self.out, fields, message, payload.len(), MAX_BODY_BYTES)?;
        match payload.is_empty() {
            true => self.sender.send(&self.out, None),
            false => self.sender.send_payload(&self.out, payload, 0),
        }
    }

    /// Receives a message, and its payload into the front of `into`. `None`: the peer closed the
    /// connection.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        into: &mut [u8],
    ) -> io::Result<Option<(T, usize)>> {
        let Some((header, body)) = self.receiver.receive(MAX_BODY_BYTES)? else {
            return Ok(None);
        };
        if header.kind != kind {
            return Err(FrameError::Kind.into());
        }
        let message = frame::decode(body)?;
        let wanted = into.get_mut(..header.payload).ok_or(FrameError::Length)?;
        let mut have = 0;
        while have < wanted.len() {
            match self.receiver.receive_chunk(&mut wanted[have..])? {
                Chunk::Data(count) => have += count,
                Chunk::End | Chunk::Failed(_) => return Err(FrameError::Length.into()),
            }
        }
        Ok(Some((message, have)))
    }
}

struct State {
    messages: Messages,
    /// Handles to close with the next call.
    closed: Vec<Handle>,
    /// After an error answers could be those to other calls.
    broken: bool,
}

/// A connection on which one call is in flight at a time.
pub(super) struct Connection(Mutex<State>);

impl Connection {
    /// Connects to the service of the node `host`, a name or an address, and begins a session.
    pub fn open(network: &Network, host: &str, session: &Session) -> Result<Connection, Errno> {
        let mut last = Errno::HOSTUNREACH;
        for address in addresses(host, network.port)? {
            match Connection::begin(network, address, session) {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    tracing::warn!(host, %address, %error, "cannot transfer data with this node");
                    last = errno(&error);
                }
            }
        }
        Err(last)
    }

    fn begin(network: &Network, at: SocketAddr, session: &Session) -> io::Result<Connection> {
        let address = Address::Tcp(at);
        let connected =
            connection::connect(&address, Service::Transfer, &network.auth, CONNECT_TIMEOUT)?;
        let (sender, mut receiver) = connected;
        sender.stream().set_timeout(Some(ANSWER_TIMEOUT))?;
        receiver.set_deadline(Some(Instant::now() + CONNECT_TIMEOUT))?;
        let mut messages = Messages::new(sender, receiver);
        messages.send(Kind::Call, session, &[])?;
        let answer = messages.receive(Kind::Reply, &mut [])?;
        messages.receiver.set_deadline(None)?;
        messages.sender.stream().set_timeout(Some(ANSWER_TIMEOUT))?;
        match answer {
            Some((Answer::Done, _)) => {
                let state = State { messages, closed: Vec::new(), broken: false };
                Ok(Connection(Mutex::new(state)))
            }
            Some((Answer::Refused(reason), _)) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Carries out an operation with a payload there; the answer's payload is received into the front
    /// of `into`.
    pub fn call(
        &self,
        operation: Operation,
        payload: &[u8],
        into: &mut [u8],
    ) -> Result<(Answer, usize), Errno> {
        assert!(payload.len() <= MAX_PAYLOAD_BYTES);
        let mut state = self.0.lock();
        if state.broken {
            return Err(Errno::CONNRESET);
        }
        let call = Call { closed: std::mem::take(&mut state.closed), operation };
        let sent = state.messages.send(Kind::Call, &call, payload);
        let received = sent.and_then(|()| state.messages.receive(Kind::Reply, into));
        match received {
            Ok(Some((Answer::Failed(number), _))) => Err(Errno::from_raw_os_error(number)),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => {
                state.broken = true;
                Err(Errno::CONNRESET)
            }
            Err(error) => {
                state.broken = true;
                Err(errno(&error))
            }
        }
    }

    /// Closes a handle with the next call.
    pub fn close(&self, handle: Handle) {
        self.0.lock().closed.push(handle);
    }
}

/// The addresses of `host`, which may end with a port.
fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, Errno> {
    let found = match host.parse::<std::net::IpAddr>() {
        Ok(ip) => Ok(vec![SocketAddr::new(ip, port)]),
        Err(_) if host.contains(':') => host.to_socket_addrs().map(Iterator::collect),
        Err(_) => (host, port).to_socket_addrs().map(Iterator::collect),
    };
    found.map_err(|error: io::Error| {
        tracing::warn!(host, %error, "unknown node");
        Errno::HOSTUNREACH
    })
}

/// The error number of a failed connection.
fn errno(error: &io::Error) -> Errno {
    if let Some(errno) = Errno::from_io_error(error) {
        return if errno == Errno::AGAIN { Errno::TIMEDOUT } else { errno };
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Errno::TIMEDOUT,
        io::ErrorKind::InvalidData => Errno::PROTO,
        _ => Errno::CONNRESET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_an_address_or_a_name_with_or_without_a_port() {
        let at = |host: &str| addresses(host, 42_000).map(|found| found[0].to_string());
        assert_eq!(at("127.0.0.1"), Ok("127.0.0.1:42000".to_owned()));
        assert_eq!(at("127.0.0.1:7"), Ok("127.0.0.1:7".to_owned()));
        assert_eq!(at("::1"), Ok("[::1]:42000".to_owned()));
        assert_eq!(at("[::1]:7"), Ok("[::1]:7".to_owned()));
        assert_eq!(at("127.0.0.1:port"), Err(Errno::HOSTUNREACH));
    }
}
