//! The handshake of a TCP connection: both sides agree on keys by the
//! [Noise protocol](https://noiseprotocol.org/noise.html) and authenticate each other.
//!
//! ```text
//! client                               server
//! Opening {method, ephemeral key}  ->
//!                                  <-  Answer {ephemeral key}, or a refusal in clear
//! Proof                            ->                          (encrypted from here on)
//!                                  <-  Verdict {proof, keys for data}, or a refusal
//! ```
//!
//! With the pool's key the pattern is `NNpsk0`: neither side can compute the session's keys without
//! it. The prologue binds the session to the address at which the client reached the server. Holders
//! of the key are trusted about the user they act for, as root of a cluster's node is. With MUNGE the
//! pattern is `NN`, which authenticates nobody; each side then sends a MUNGE credential whose payload
//! is derived from the session's handshake hash and that address (channel binding). A relay would
//! have sessions of its own, with other hashes, with both sides. The server's credential also
//! contains the client's user and group. The contexts of the two derivations differ, so neither
//! credential can be used as the other, nor for another kind of server.
//!
//! Address translation between client and server (NAT, a forwarded port) therefore fails.

mod client;
mod server;

pub use client::{ClientHandshake, ServerNotAuthenticated, connect};
pub use server::{Authenticated, CredentialCheck, ServerHandshake, Step, accept};

use crate::auth::PoolKey;
use crate::channel::Receiver;
use crate::frame::{self, Flags, FrameError, Kind, MAX_UNAUTHENTICATED_BODY_BYTES};
use crate::munge::MungeError;
use crate::record::DataProtection;
use forebay_protocol::Errno;
use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Version of the handshake's messages.
const VERSION: u16 = 2;
/// Longest Noise message of a handshake, in bytes.
const MAX_NOISE_BYTES: usize = 256;

/// Kinds of server. A session or credential for one is not valid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A storage daemon.
    Storage,
    /// A pool's controller.
    Controller,
    /// A data transfer service, of another one.
    Transfer,
    /// The controller of workflows, or a node's server of workflow data.
    Workflow,
}

impl Service {
    /// The contexts of its clients' credentials and of its own.
    fn contexts(self) -> [&'static str; 2] {
        match self {
            Service::Storage => ["forebay storage daemon's client 3", "forebay storage daemon 3"],
            Service::Controller => ["forebay controller's client 3", "forebay controller 3"],
            Service::Transfer => {
                ["forebay data transfer service's client 1", "forebay data transfer service 1"]
            }
            Service::Workflow => {
                ["forebay workflow server's client 1", "forebay workflow server 1"]
            }
        }
    }
}

/// Methods of authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Method {
    /// By the pool's key.
    Key,
    /// By MUNGE credentials.
    Munge,
}

/// The client's first message.
#[derive(Debug, Serialize, Deserialize)]
struct Opening {
    version: u16,
    method: Method,
    noise: Vec<u8>,
}

/// The server's first message.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Accepted { noise: Vec<u8> },
    Refused(Refusal),
}

/// The client's second message.
#[derive(Debug, Serialize, Deserialize)]
struct Proof {
    identity: Identity,
    /// The client's setting.
    data: Option<DataProtection>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Identity {
    /// The user and group for which a holder of the pool's key acts.
    Key { uid: u32, gid: u32 },
    /// A MUNGE credential over the client's challenge.
    Munge(Vec<u8>),
}

/// The server's second message.
#[derive(Serialize, Deserialize)]
enum Verdict {
    Accepted {
        /// The server's MUNGE credential, if the client has sent one.
        credential: Option<Vec<u8>>,
        protection: Protection,
    },
    Refused(Refusal),
}

/// Protection of bulk data, as configured on the server.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Protection {
    data: DataProtection,
    /// Keys of keyed hashes, to the server and to the client.
    mac_keys: [[u8; 32]; 2],
}

/// A server's refusal of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The error of the client's request.
    pub errno: Errno,
    /// For the client's log.
    pub reason: String,
}

impl Refusal {
    /// The peer has not proved its identity.
    pub fn authentication(reason: impl fmt::Display) -> Refusal {
        Refusal { errno: Errno::EKEYREJECTED, reason: format!("authentication failed: {reason}") }
    }

    /// The server is overloaded; the client may try again.
    pub fn overload(reason: impl fmt::Display) -> Refusal {
        Refusal { errno: Errno::EAGAIN, reason: format!("connection refused: {reason}") }
    }

    /// `munged` has not made or accepted a credential. If it did not reply, the client may try again.
    pub(crate) fn munge(error: &MungeError) -> Refusal {
        match error.is_temporary() {
            true => Refusal::overload(error),
            false => Refusal::authentication(error),
        }
    }

    fn protocol(reason: impl fmt::Display) -> Refusal {
        Refusal { errno: Errno::EPROTO, reason: format!("handshake failed: {reason}") }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Refusal {}

impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Refusal {
        Refusal::protocol(error)
    }
}

fn address_bytes(at: SocketAddr) -> [u8; 18] {
    let ip = match at.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&at.port().to_le_bytes());
    bytes
}

/// One side of a Noise handshake with the server at this address.
fn noise_state(
    method: Method,
    key: Option<&PoolKey>,
    (service, at): (Service, SocketAddr),
    initiator: bool,
) -> Result<HandshakeState, snow::Error> {
    let pattern = match method {
        Method::Key => "Noise_NNpsk0_25519_AESGCM_SHA256",
        Method::Munge => "Noise_NN_25519_AESGCM_SHA256",
    };
    let [context, _] = service.contexts();
    let mut prologue = context.as_bytes().to_vec();
    // With MUNGE the credentials are bound to the address, so that the server can report a reason.
    if method == Method::Key {
        prologue.extend_from_slice(&address_bytes(at));
    }
    let mut builder = Builder::new(pattern.parse()?).prologue(&prologue)?;
    if let (Method::Key, Some(key)) = (method, key) {
        builder = builder.psk(0, key.secret())?;
    }
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

/// Derives the payloads of MUNGE credentials of one session.
#[derive(Clone, Copy, Debug)]
struct Binding {
    service: Service,
    at: SocketAddr,
    hash: [u8; 32],
}

impl Binding {
    fn new(service: Service, at: SocketAddr, noise: &HandshakeState) -> Binding {
        let mut hash = [0; 32];
        hash.copy_from_slice(noise.get_handshake_hash());
        Binding { service, at, hash }
    }

    fn of_client(&self) -> [u8; 32] {
        let [context, _] = self.service.contexts();
        blake3::derive_key(context, &[&self.hash[..], &address_bytes(self.at)].concat())
    }

    fn of_server(&self, uid: u32, gid: u32) -> [u8; 32] {
        let [_, context] = self.service.contexts();
        let text =
            [&self.hash[..], &address_bytes(self.at), &uid.to_le_bytes(), &gid.to_le_bytes()];
        blake3::derive_key(context, &text.concat())
    }
}

fn handshake_frame<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut out = Vec::new();
    let fields = (Kind::Handshake, Flags::default(), 0);
    frame::encode(&mut out, fields, message, 0, MAX_UNAUTHENTICATED_BODY_BYTES)?;
    Ok(out)
}

fn refused(refusal: Refusal) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, refusal)
}

fn receive_body(receiver: &mut Receiver) -> io::Result<&[u8]> {
    let Some((header, body)) = receiver.receive(MAX_UNAUTHENTICATED_BODY_BYTES)? else {
        return Err(io::ErrorKind::ConnectionReset.into());
    };
    if header.kind != Kind::Handshake {
        return Err(FrameError::Kind.into());
    }
    Ok(body)
}
