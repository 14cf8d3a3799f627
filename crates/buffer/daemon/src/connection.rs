//! A connection with the controller: over a socket, or within the process.

use std::io;

use forebay_protocol::address::Address;

use crate::control_channel::{self, ControlReceiver, ControlSender, MAX_MESSAGE_BYTES};
use crate::controller::{Candidate, ConnectionId, ControllerPort, Outbox};
use crate::messages::{FromController, Role, ToController, Welcome};
use forebay_net::auth::Authenticator;

/// The place of a controller, or of an agent that relays to it.
#[derive(Clone)]
pub(crate) enum Endpoint {
    /// A socket, and the credentials to authenticate with.
    Socket { address: Address, identity: Authenticator },
    /// A controller in this process. Once it has ended it does not come back.
    InProcess(ControllerPort),
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Endpoint::Socket { address, .. } => address.fmt(f),
            Endpoint::InProcess(_) => f.write_str("this process"),
        }
    }
}

/// An established connection.
pub(crate) struct Connection {
    pub sender: Sender,
    pub receiver: Receiver,
    pub welcome: Welcome,
}

/// The sending half of a connection. Dropping it closes the connection.
pub(crate) enum Sender {
    Socket(ControlSender),
    InProcess(ControllerPort, ConnectionId),
}

/// The receiving half of a connection.
pub(crate) enum Receiver {
    Socket(ControlReceiver),
    InProcess(Outbox),
}

impl Endpoint {
    /// Whether a connection that is lost can be made again.
    pub fn can_reconnect(&self) -> bool {
        match self {
            Endpoint::Socket { .. } => true,
            Endpoint::InProcess(_) => false,
        }
    }

    /// Whether it is a Unix socket.
    pub fn is_local_socket(&self) -> bool {
        match self {
            Endpoint::Socket { address, .. } => matches!(address, Address::Unix(_)),
            Endpoint::InProcess(_) => false,
        }
    }

    /// Connects and authenticates.
    ///
    /// # Errors
    /// `PermissionDenied` if either side refuses the other.
    pub fn connect(&self, role: Role) -> io::Result<Connection> {
        match self {
            Endpoint::Socket { address, identity } => {
                let (sender, receiver, welcome) =
                    control_channel::connect(address, role, identity)?;
                Ok(Connection {
                    sender: Sender::Socket(sender),
                    receiver: Receiver::Socket(receiver),
                    welcome,
                })
            }
            Endpoint::InProcess(port) => {
                let refused = |reason| io::Error::new(io::ErrorKind::PermissionDenied, reason);
                let candidate = Candidate {
                    uid: rustix::process::geteuid().as_raw(),
                    gid: rustix::process::getegid().as_raw(),
                    trusted: true,
                    role,
                    source: None,
                    munge_origin: None,
                    stream: None,
                };
                let admitted = port.connect(candidate).map_err(refused)?;
                Ok(Connection {
                    sender: Sender::InProcess(port.clone(), admitted.id),
                    receiver: Receiver::InProcess(admitted.outbox),
                    welcome: admitted.welcome,
                })
            }
        }
    }
}

impl Sender {
    /// Sends a message.
    pub fn send(&mut self, message: &ToController) -> io::Result<()> {
        match self {
            Sender::Socket(out) => out.send(message),
            Sender::InProcess(port, id) => match port.deliver(*id, message.clone()) {
                true => Ok(()),
                false => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        match self {
            Sender::Socket(out) => out.stream().shut_down(),
            Sender::InProcess(port, id) => port.disconnect(*id),
        }
    }
}

impl Receiver {
    /// Blocks for the next message.
    pub fn receive(&mut self) -> io::Result<FromController> {
        match self {
            Receiver::Socket(input) => input.receive(MAX_MESSAGE_BYTES),
            Receiver::InProcess(outbox) => {
                outbox.next_message().ok_or_else(|| io::ErrorKind::ConnectionReset.into())
            }
        }
    }
}
