//! Connections of the control protocol over sockets: JSON messages in frames. Between hosts both
//! sides authenticate first, and everything is encrypted (see [`forebay_net::handshake`]); on a Unix
//! socket the kernel identifies the peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_net::admission::{ConnectionLimits, ConnectionPermit};
use forebay_net::auth::{self, Authenticator};
use forebay_net::channel::{Receiver, Sender};
use forebay_net::connection;
use forebay_net::frame::{self, FrameError, Kind, MAX_UNAUTHENTICATED_BODY_BYTES};
use forebay_net::handshake::{self, Refusal, Service};
use forebay_net::listener::Listener;
use forebay_net::stream::Stream;
use forebay_protocol::PeerIdentity;
use forebay_protocol::address::Address;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::DaemonError;
use crate::messages::{HandshakeReply, Hello, OLDEST_VERSION, Role, VERSION, Welcome};
use crate::versions::{CONNECTING, DAEMON, OWN, VersionRange};

/// Longest message of a controller or a node, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Longest message of a client, in bytes: a job script and what goes with it.
pub const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Time for connecting, authenticating and being admitted.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connection limits of a controller and of an agent. One job on thousands of hosts has a connection of
/// each to the controller.
pub fn connection_limits() -> ConnectionLimits {
    ConnectionLimits { trusted: 8192, users: 8192, user: 256, ..ConnectionLimits::default() }
}

/// Listens on TCP.
pub fn listen_tcp(address: SocketAddr) -> Result<Listener, DaemonError> {
    Listener::tcp(address).map_err(DaemonError::with_context(address))
}

/// Listens at a Unix socket with these permission bits.
pub fn listen_unix(path: &Path, mode: u32) -> Result<Listener, DaemonError> {
    Listener::unix(path, mode).map_err(DaemonError::with_context(path.display()))
}

/// The sending half of a connection.
pub struct ControlSender(Sender);

/// The receiving half of a connection.
pub struct ControlReceiver(Receiver);

impl ControlSender {
    /// The socket.
    pub fn stream(&self) -> &Arc<Stream> {
        self.0.stream()
    }

    /// Sends a message.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let write = |out: &mut Vec<u8>| Ok(serde_json::to_writer(out, message)?);
        let frame = frame::encode_control(MAX_MESSAGE_BYTES, write)?;
        self.0.send(&frame, None)
    }

    /// Sends a message that was [received](ControlReceiver::receive_body) on another connection.
    pub fn forward(&mut self, body: &[u8]) -> io::Result<()> {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(body);
            Ok(())
        };
        self.0.send(&frame::encode_control(MAX_MESSAGE_BYTES, write)?, None)
    }
}

impl ControlReceiver {
    /// The socket.
    pub fn stream(&self) -> &Arc<Stream> {
        self.0.stream()
    }

    /// Receives the next message, of at most `max_bytes`.
    pub fn receive<T: DeserializeOwned>(&mut self, max_bytes: usize) -> io::Result<T> {
        let body = self.receive_body(max_bytes)?;
        serde_json::from_slice(body).map_err(|error| {
            let reason = format!("cannot decode a control message: {error}");
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })
    }

    /// Receives the body of the next message, of at most `max_bytes`.
    pub fn receive_body(&mut self, max_bytes: usize) -> io::Result<&[u8]> {
        let Some((header, body)) = self.0.receive(max_bytes)? else {
            return Err(io::ErrorKind::ConnectionReset.into());
        };
        if header.kind != Kind::Control || header.payload > 0 {
            return Err(FrameError::Kind.into());
        }
        Ok(body)
    }
}

fn refused(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason.into())
}

/// Connects to a controller, or to an agent that relays to it.
///
/// # Errors
/// `PermissionDenied` if either side refuses the other.
pub fn connect(
    address: &Address,
    role: Role,
    auth: &Authenticator,
) -> io::Result<(ControlSender, ControlReceiver, Welcome)> {
    let (sender, mut receiver) =
        connection::connect(address, Service::Controller, auth, HANDSHAKE_TIMEOUT)?;
    receiver.set_deadline(Some(Instant::now() + HANDSHAKE_TIMEOUT))?;
    let (mut sender, mut receiver) = (ControlSender(sender), ControlReceiver(receiver));
    sender.send(&Hello { version: OLDEST_VERSION, newest: Some(VERSION), role })?;
    match receiver.receive(MAX_MESSAGE_BYTES)? {
        HandshakeReply::Refused(reason) => Err(refused(reason)),
        HandshakeReply::Welcome(welcome) => {
            let version = welcome.version.unwrap_or(OLDEST_VERSION);
            let chosen = VersionRange { oldest: version, newest: version };
            OWN.agree(CONNECTING, chosen, DAEMON).map_err(refused)?;
            receiver.0.set_deadline(None)?;
            Ok((sender, receiver, Welcome { version: Some(version), ..*welcome }))
        }
    }
}

/// The authenticated peer of a connection to the controller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The process at the other end.
    pub peer: PeerIdentity,
    /// Its role.
    pub role: Role,
    /// The address from which it connected; `None` on a Unix socket.
    pub source: Option<IpAddr>,
    /// The host on which its MUNGE credential was made, according to that host's `munged`.
    pub munge_origin: Option<Ipv4Addr>,
}

/// A connection to the controller that is not admitted yet.
pub struct IncomingConnection {
    pub sender: ControlSender,
    pub receiver: ControlReceiver,
    /// A refusal can be sent.
    is_authenticated: bool,
    /// The version that both sides speak, once it is known.
    version: Option<u16>,
}

impl IncomingConnection {
    /// A new connection.
    pub fn new(stream: Arc<Stream>) -> IncomingConnection {
        IncomingConnection {
            sender: ControlSender(Sender::new(stream.clone(), None)),
            receiver: ControlReceiver(Receiver::new(stream, None)),
            is_authenticated: false,
            version: None,
        }
    }

    /// Authenticates the peer and receives its role. Blocks for at most some seconds.
    pub fn authenticate(
        &mut self,
        auth: &Authenticator,
        permit: &ConnectionPermit,
    ) -> io::Result<Caller> {
        let stream = self.sender.stream().clone();
        stream.set_timeout(Some(HANDSHAKE_TIMEOUT))?;
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        self.receiver.0.set_deadline(Some(deadline))?;
        let (peer, source, munge_origin) = match &*stream {
            Stream::Unix(socket) => (auth::unix_peer(socket)?, None, None),
            Stream::Tcp(socket) => {
                let (at, source) = (socket.local_addr()?, socket.peer_addr()?);
                let (sender, receiver) = (&mut self.sender.0, &mut self.receiver.0);
                let verifying = || permit.set_authenticating().map_err(Refusal::overload);
                let server = (Service::Controller, at);
                let client = handshake::accept(sender, receiver, server, auth, verifying)?;
                (client.peer, Some(source.ip().to_canonical()), client.origin)
            }
        };
        self.is_authenticated = true;
        let hello: Hello = self.receiver.receive(MAX_UNAUTHENTICATED_BODY_BYTES)?;
        let version = OWN.agree(DAEMON, VersionRange::of(&hello), CONNECTING);
        self.version = Some(version.map_err(refused)?);
        Ok(Caller { peer, role: hello.role, source, munge_origin })
    }

    /// Admits the peer; from now on it may take its time.
    pub fn welcome(&mut self, welcome: Welcome) -> io::Result<()> {
        // An agent passes on no more than the controller speaks.
        let version = self.version.min(welcome.version.or(self.version));
        let welcome = Welcome { version, ..welcome };
        self.sender.send(&HandshakeReply::Welcome(Box::new(welcome)))?;
        self.receiver.0.set_deadline(None)
    }

    /// Refuses the peer, for this reason.
    pub fn refuse(mut self, reason: &str) {
        if self.is_authenticated {
            // The peer may have closed the connection.
            let _ = self.sender.send(&HandshakeReply::Refused(reason.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Query, ToController};
    use std::os::unix::net::UnixStream;

    fn pair() -> (ControlSender, ControlReceiver) {
        let (near, far) = UnixStream::pair().unwrap();
        let stream = |socket| Arc::new(Stream::Unix(socket));
        (
            ControlSender(Sender::new(stream(near), None)),
            ControlReceiver(Receiver::new(stream(far), None)),
        )
    }

    fn query() -> ToController {
        ToController::Query(7, Query::MountVariables("job".into()))
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(body);
            Ok(())
        };
        frame::encode_control(MAX_MESSAGE_BYTES, write).unwrap()
    }

    /// The message in these bytes.
    fn receive(bytes: &[u8], max_bytes: usize) -> io::Result<ToController> {
        let (sender, mut receiver) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _ = sender.stream().send_parts([bytes], None);
                drop(sender);
            });
            receiver.receive(max_bytes)
        })
    }

    #[test]
    fn message_is_received_unless_damaged_truncated_or_too_long() {
        let (mut sender, mut receiver) = pair();
        sender.send(&query()).unwrap();
        let received: ToController = receiver.receive(MAX_MESSAGE_BYTES).unwrap();
        assert_eq!(received, query());
        let bytes = framed(&serde_json::to_vec(&query()).unwrap());
        assert_eq!(receive(&bytes, MAX_MESSAGE_BYTES).unwrap(), query());
        assert!(receive(&bytes, 5).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(receive(&damaged, MAX_MESSAGE_BYTES).is_err(), "byte {at}");
            assert!(receive(&bytes[..at], MAX_MESSAGE_BYTES).is_err(), "cut at {at}");
        }
        let refused = serde_json::to_vec(&HandshakeReply::Refused("no".into())).unwrap();
        assert!(receive(&framed(&refused), MAX_MESSAGE_BYTES).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_refused_without_panic(bytes: Vec<u8>, body: Vec<u8>) {
            let _ = receive(&bytes, MAX_MESSAGE_BYTES);
            let _ = receive(&framed(&body), MAX_MESSAGE_BYTES);
        }

        #[test]
        fn any_damage_to_the_text_is_refused_or_decoded_without_panic(
            at in 0usize..200,
            with in "[ -~]{0,8}",
            deep in 0usize..2000,
        ) {
            let messages = [
                serde_json::to_string(&query()).unwrap(),
                format!("{{\"request\":[1,2,{}", "[".repeat(deep)),
            ];
            for mut text in messages {
                let at = at.min(text.len());
                text.insert_str(at, &with);
                let _ = receive(&framed(text.as_bytes()), MAX_MESSAGE_BYTES);
            }
        }
    }
}
